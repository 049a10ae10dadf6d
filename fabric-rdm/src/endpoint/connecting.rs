//! Connections of an endpoint: the actions of their state machines, and what becomes of attempts and requests.

use fabric::Endpoint;
use fabric_core::{EndpointId, Error, Result};
use fabric_util::log_line;

use super::completion::Status;
use super::core::Core;
use super::hello_data::{Known, Windows, decode_acceptance, decode_refusal, encode_hello};
use super::link::{Conn, Control, PeerLink};
use super::shared::{PeerEvent, Shared};
use super::shortage;
use crate::address::Address;
use crate::connection::{Action, ConnId, DeathCause, DialError, Hello, Phase};
use crate::peers::Peer;
use crate::window::{Resource, SendWindow, WindowLimits};

/// A connection stays so many times as long as it took to make it.
const STAYS: u32 = 3;

impl PeerLink {
    /// What hellos of the peer are read by.
    pub(super) fn known(&self, shared: &Shared) -> Known {
        let (attempts, sent, received) = self.connection.numbers();
        Known { me: shared.me, attempts, sent, received }
    }

    /// Has the link looked at by the next turn.
    #[inline]
    pub(super) fn mark(&mut self, shared: &mut Shared) {
        if !std::mem::replace(&mut self.dirty, true) {
            shared.add_dirty(self.peer);
        }
    }

    /// The peer's windows are known.
    pub(super) fn set_windows(&mut self, windows: Windows) {
        let resource = |window| Resource { total: window, window, reserved: 0 };
        let limits =
            WindowLimits { places: resource(windows.places), bytes: resource(windows.bytes) };
        self.peer_slot = windows.slot_len;
        // One that is there goes on: its numbers count from the pair's beginning.
        self.window.get_or_insert_with(|| SendWindow::new(&limits));
    }

    /// Makes the endpoint of a connection or an attempt.
    pub(super) fn open(&mut self, shared: &mut Shared) -> Result<Endpoint> {
        let mut builder = shared.domain.endpoint().attr(shared.connection_attr.clone());
        builder = builder.events(&shared.events);
        if let Some(receives) = shared.slots.shared() {
            builder = builder.shared_receives(receives);
        }
        let endpoint = builder.build(&shared.queue)?;
        shared.slots.equip(&endpoint, shared.connection_attr.recv_depth)?;
        Ok(endpoint)
    }

    pub(super) fn keep(&mut self, shared: &mut Shared, id: ConnId, endpoint: Endpoint) {
        shared.conns.insert(endpoint.id(), (self.peer, id));
        let is_attempt = self.connection.phase() == Phase::Dialing;
        self.conns.push(Conn::new(id, endpoint, is_attempt));
    }

    /// Makes the attempt. The error, if it could not be made.
    fn dial(
        &mut self,
        shared: &mut Shared,
        address: &Address,
        id: ConnId,
        hello: &Hello,
    ) -> Result<()> {
        let rail = address.rails().nth(self.rail.next(address.rails().len()));
        self.phase_since = shared.now();
        let dialed = self.open(shared).and_then(|endpoint| {
            if let Some(rail) = rail {
                endpoint.connect(rail, &encode_hello(hello))?;
            }
            Ok(endpoint)
        });
        dialed.map(|endpoint| self.keep(shared, id, endpoint)).map_err(|error| match rail {
            Some(rail) => error.at(rail),
            None => error,
        })
    }

    /// The attempt could not be made because of its peer, or the way there.
    fn on_not_dialed(&mut self, shared: &mut Shared, id: ConnId, error: &Error) {
        log_line!(Warn, "{}: {error}", self.peer);
        self.on_not_found(shared, id, DialError::Unreachable);
    }

    /// An attempt has failed at its other end, or there was none.
    fn on_not_found(&mut self, shared: &Shared, id: ConnId, error: DialError) {
        let error = self.rail.on_failed(error);
        self.connection.on_failed(shared.now(), id, error);
    }

    /// Closes a connection, or gives an attempt up. Its operations end with it, and its memory is free.
    pub(super) fn close(&mut self, shared: &mut Shared, id: ConnId) {
        if let Some(at) = self.conns.iter().position(|conn| conn.id == id) {
            let Conn { endpoint, posted, taken, .. } = self.conns.remove(at);
            shared.conns.remove(endpoint.id());
            // Then nothing reads the heads any more.
            drop(endpoint);
            drop(taken);
            posted.iter().filter_map(|one| one.head).for_each(|head| shared.heads.give_back(head));
        }
        self.confirm = self.confirm.filter(|confirm| *confirm != id);
        if self.current == Some(id) {
            self.current = None;
            self.leave(shared);
        }
    }

    /// A connection is lost, or was closed by the peer.
    pub(super) fn lose(&mut self, shared: &mut Shared, id: ConnId) {
        let (now, is_agreed) = (shared.now(), self.connection.has_heard_park());
        self.connection.on_lost(now, id);
        self.close(shared, id);
        if !is_agreed {
            self.next_look = now;
        }
        self.mark(shared);
    }

    /// The connection that messages went by is no more: what belongs to it, and not to the pair, is given up.
    fn leave(&mut self, shared: &mut Shared) {
        self.reads = 0;
        (self.draining, self.send_park, self.park_sent) = (false, false, false);
        self.drain_left = 0;
        self.next_look = shared.now().saturating_add(shared.attr.timeouts.connect);
        (self.grant, self.has_grant, self.has_granted) = (None, false, false);
        for key in self.awaiting.values() {
            if let Some(op) = shared.sends.get_mut(*key) {
                op.forget_grant();
            }
        }
        self.granting.clear();
        if self.connection.phase() != Phase::Dead {
            // What was offered on this connection is fetched anew: its grant ended with it.
            for key in std::mem::take(&mut self.reading) {
                if let Some(delivery) = shared.deliveries.get_mut(key) {
                    (delivery.remote, delivery.taken) = (None, 0);
                    self.controls.push_back(Control::Fetch(delivery.number));
                }
            }
            self.uncharge_queue(shared);
            self.window.iter_mut().for_each(SendWindow::park);
            self.account.into_iter().for_each(|account| shared.windows.park(account));
        }
    }

    /// Whether something waits at the peer, and there is no connection: messages, or payload that was to come here.
    pub(super) fn waits_unconnected(&self) -> bool {
        self.connection.phase() == Phase::Parked
            && (!self.awaiting.is_empty() || !self.incoming.is_empty())
    }

    /// The connection is there.
    fn ready(&mut self, shared: &mut Shared, id: ConnId) {
        self.current = Some(id);
        shared.connected += 1;
        self.current().into_iter().for_each(|conn| conn.taken.is_connected());
        // It is not the one to be parked next, before anything went by it: a message and its answer take about as long as this did.
        self.touch(shared);
        let now = shared.now();
        let took = now.saturating_sub(self.phase_since).min(shared.attr.timeouts.retry);
        self.stays_until = now.saturating_add(STAYS * took);
        self.gave_way = 0;
        if let Some(account) = self.account {
            shared.windows.resume(account);
        }
        for number in std::mem::take(&mut self.late_fetches) {
            self.on_fetch(shared, number);
        }
    }

    /// Whether all is done that has to be before the connection is parked. Each side has been granted by then what there is
    /// for it, so that what waits there goes by this connection, and needs no other one. A connection that has failed is lost, and
    /// not parked: what went by it has not arrived.
    fn is_drained(&self) -> bool {
        let may_send_more = !self.has_grant && !self.queue.is_empty();
        let has_failed =
            self.conns.iter().any(|conn| Some(conn.id) == self.current && conn.has_failed);
        self.draining
            && !has_failed
            && self.has_granted
            && !may_send_more
            && self.drain_left == 0
            && self.is_finished()
            && !self.has_posted()
    }
}

impl Core {
    /// Does all that follows from what happened to a link.
    pub(super) fn settle(&mut self, peer: Peer) {
        loop {
            self.act(peer);
            let Some((link, shared)) = self.find_link(peer) else { return };
            link.transmit(shared);
            match link.current {
                Some(id) if link.is_drained() => link.connection.drained(id),
                None if link.wants_connection() && link.connection.death().is_none() => {
                    let _ = link.connection.want(shared.now()); // it is not dead
                }
                _ => {}
            }
            if !link.connection.has_actions() {
                return self.note_active(peer);
            }
        }
    }

    /// Does what a link's state machine asks for.
    pub(super) fn act(&mut self, peer: Peer) {
        while let Some((link, shared)) = self.find_link(peer)
            && let Some(action) = link.connection.poll_action()
        {
            match action {
                Action::Dial(id, hello) => self.dial(peer, id, &hello),
                Action::Died(cause) => self.on_death(peer, cause),
                Action::Close(id) => link.close(shared, id),
                // It has ended since: what was to be done with it is no more.
                Action::Confirm(id)
                | Action::Ready(id)
                | Action::Drain(id)
                | Action::SendPark(id)
                    if link.conn(id).is_none() => {}
                Action::Confirm(id) => link.confirm = Some(id),
                Action::Ready(id) => {
                    link.ready(shared, id);
                    // This one can be parked, if not others are.
                    self.make_room();
                }
                Action::Drain(_) => {
                    link.draining = true;
                    link.drain_left = link.sendable(shared);
                    link.phase_since = shared.now();
                }
                Action::SendPark(_) => link.send_park = true,
            }
        }
    }

    fn dial(&mut self, peer: Peer, id: ConnId, hello: &Hello) {
        if self.has_place_to_dial(peer) && self.shortage.has_enough(self.shared.now()) {
            let Ok((address, Some(link))) = self.peers.get_mut(peer) else { return };
            match link.dial(&mut self.shared, &address.clone(), id, hello) {
                Ok(()) => self.shared.attempts += 1,
                Err(error) if shortage::is_of_process(&error) => {
                    link.connection.on_no_place(self.shared.now(), id);
                    self.on_shortage(&error);
                    self.wait_for_room(peer);
                }
                Err(error) => link.on_not_dialed(&mut self.shared, id, &error),
            }
            return;
        }
        let Some((link, shared)) = self.find_link(peer) else { return };
        link.connection.on_no_place(shared.now(), id);
        self.wait_for_room(peer);
    }

    /// There are no descriptors for one more connection, or the like. Attempts wait, and one that is under way gives way: its
    /// peer may be of this process, and needs the same to accept it.
    pub(super) fn on_shortage(&mut self, error: &Error) {
        if self.shortage.begin(self.shared.now()) {
            log_line!(Warn, "connections wait: {error}");
        }
        self.give_way();
    }

    fn find_conn(&mut self, endpoint: EndpointId) -> Option<(Peer, ConnId)> {
        self.shared.conns.get(endpoint).copied()
    }

    pub(super) fn on_connected(&mut self, endpoint: EndpointId, data: &[u8]) {
        let Some((peer, id)) = self.find_conn(endpoint) else { return };
        let Some((link, shared)) = self.find_link(peer) else { return };
        if link.connection.phase() == Phase::Dialing {
            match decode_acceptance(data, &link.known(shared)) {
                Some((hello, windows)) => {
                    link.set_windows(windows);
                    link.rail.is_found();
                    link.connection.on_connected(shared.now(), id, &hello);
                }
                None => {
                    log_line!(
                        Warn,
                        "{peer}: another program, or another version, is at its address"
                    );
                    link.close(shared, id);
                    link.on_not_found(shared, id, DialError::Unreachable);
                }
            }
            link.mark(shared);
            self.attempts.is_answered();
        }
    }

    pub(super) fn on_connect_failed(&mut self, endpoint: EndpointId, error: &Error) {
        let Some((peer, id)) = self.find_conn(endpoint) else { return };
        let Some((link, shared)) = self.find_link(peer) else { return };
        if shortage::is_of_process(error) && link.connection.phase() == Phase::Dialing {
            link.close(shared, id);
            link.connection.on_no_place(shared.now(), id);
            link.mark(shared);
            self.on_shortage(error);
            return self.wait_for_room(peer);
        }
        let refusal = match error {
            Error::Rejected(data) => decode_refusal(data),
            _ => None,
        };
        let failure = refusal.map_or(DialError::Unreachable, DialError::Refused);
        let now = shared.now();
        link.close(shared, id);
        if link.connection.phase() == Phase::Dialing {
            link.on_not_found(shared, id, failure);
        }
        // On the side that accepted, this is the end of the connection.
        link.lose(shared, id);
        match error {
            Error::Rejected(_) => self.attempts.is_answered(),
            Error::TimedOut(_) => {
                self.attempts.is_unanswered(now, self.shared.attr.timeouts.attempt);
            }
            _ => {}
        }
    }

    /// A connection has ended. How each of its operations did is known by their completions, which are still to come.
    pub(super) fn on_disconnected(&mut self, endpoint: EndpointId) {
        let Some((peer, id)) = self.find_conn(endpoint) else { return };
        let Some((link, _)) = self.find_link(peer) else { return };
        if let Some(conn) = link.conn(id) {
            conn.is_lost = true;
            if conn.posted.is_empty() {
                self.on_lost(endpoint);
            }
        }
    }

    pub(super) fn on_lost(&mut self, endpoint: EndpointId) {
        let Some((peer, id)) = self.find_conn(endpoint) else { return };
        let Some((link, shared)) = self.find_link(peer) else { return };
        link.lose(shared, id);
    }

    /// The first frame of an initiator: it has its address.
    pub(super) fn on_confirm(&mut self, peer: Peer, id: ConnId, payload: &[u8]) {
        let parts = payload.split_at_checked(Windows::BYTES);
        let said = parts.and_then(|(windows, address)| {
            Some((Windows::from_bytes(windows)?, Address::from_bytes(address).ok()?))
        });
        let Some((link, shared)) = self.find_link(peer) else { return };
        let Some((windows, address)) = said else { return link.break_off(shared, id) };
        link.set_windows(windows);
        link.connection.on_confirm(id);
        link.mark(shared);
        // Another identity would be another peer's: that it is this one's is checked there.
        let _ = self.peers.set_address(peer, &address);
        // What follows in the queue goes by the connection that is there now.
        self.act(peer);
    }

    pub(super) fn on_device_lost(&mut self) {
        self.shared.device_lost = true;
        if self.own.is_busy() {
            self.on_own_death(DeathCause::Lost);
        }
        let peers: Vec<_> = self.peers.iter().map(|(peer, ..)| peer).collect();
        for peer in peers {
            if let Some((link, shared)) = self.find_link(peer) {
                link.connection.on_device_lost();
                link.mark(shared);
            }
        }
        // From no peer, and so not among what ends with one.
        let posted: Vec<_> = self.shared.recvs.iter().filter_map(|(_, recv)| recv.id).collect();
        for id in posted {
            let ending = self.shared.matcher.cancel(id);
            self.end_receive(ending, Status::Canceled);
        }
    }

    /// The application takes a peer for alive again.
    pub(super) fn revive(&mut self, peer: Peer) -> Result<()> {
        self.peers.get(peer)?;
        if self.own.peer == Some(peer) {
            self.own.death = None;
        }
        let Some((link, _)) = self.find_link(peer) else { return Ok(()) };
        if link.connection.death().is_none() {
            return Ok(());
        }
        let account = self.shared.open_account(peer)?;
        if let Some((link, _)) = self.find_link(peer) {
            link.account = Some(account);
            link.window = None;
            link.refused = false;
            link.connection.revive();
        }
        Ok(())
    }

    /// Ends what waits or is under way to a peer that is dead.
    pub(super) fn on_death(&mut self, peer: Peer, cause: DeathCause) {
        let first = if cause == DeathCause::Gone { Status::PeerGone } else { Status::PeerLost };
        self.end_all(peer, first, Status::PeerLost);
        self.shared.peer_events.push_back(PeerEvent::Down(peer, cause));
        log_line!(Info, "{peer} is down: {cause}");
    }
}
