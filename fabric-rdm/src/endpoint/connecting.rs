//! Connections of an endpoint: the actions of their state machines, and what becomes of attempts and requests.

use std::time::Duration;

use fabric::{ConnectRequest, Endpoint};
use fabric_core::{EndpointId, Error, Result};
use fabric_util::log_line;

use super::completion::Status;
use super::core::Core;
use super::hello_data::{
    Known, Windows, asking, decode_acceptance, decode_hello, decode_refusal, encode_acceptance,
    encode_hello, encode_refusal,
};
use super::link::{Conn, PeerLink};
use super::shared::{PeerEvent, Shared};
use crate::address::Address;
use crate::connection::{Action, Answer, ConnId, DeathCause, DialError, Hello, Phase, Refusal};
use crate::identity::HostIdentity;
use crate::peers::Peer;
use crate::window::{Resource, SendWindow, WindowLimits};

/// Between looks whether a grant is open.
const GRANT_LOOK: Duration = Duration::from_micros(100);

impl PeerLink {
    /// What hellos of the peer are read by.
    fn known(&self, shared: &Shared) -> Known {
        let (attempts, sent, received) = self.connection.numbers();
        Known { me: shared.me, attempts, sent, received }
    }

    /// Has the link looked at by the next turn.
    pub(super) fn mark(&mut self, shared: &mut Shared) {
        if !std::mem::replace(&mut self.dirty, true) {
            shared.dirty.push_back(self.peer);
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
    fn open(&mut self, shared: &mut Shared) -> Result<Endpoint> {
        let mut builder = shared.domain.endpoint().attr(shared.connection_attr.clone());
        builder = builder.events(&shared.events);
        if let Some(receives) = shared.slots.shared() {
            builder = builder.shared_receives(receives);
        }
        let endpoint = builder.build(&shared.queue)?;
        shared.slots.equip(&endpoint, shared.connection_attr.recv_depth)?;
        Ok(endpoint)
    }

    fn keep(&mut self, shared: &mut Shared, id: ConnId, endpoint: Endpoint) {
        shared.conns.insert(endpoint.id(), (self.peer, id));
        self.conns.push(Conn::new(id, endpoint));
    }

    fn dial(&mut self, shared: &mut Shared, address: &Address, id: ConnId, hello: &Hello) {
        let rails = address.rails().len();
        let rail = address.rails().nth(self.dials % rails.max(1));
        self.dials += 1;
        let dialed = self.open(shared).and_then(|endpoint| {
            if let Some(rail) = rail {
                endpoint.connect(rail, &encode_hello(hello))?;
            }
            Ok(endpoint)
        });
        match dialed {
            Ok(endpoint) => self.keep(shared, id, endpoint),
            Err(error) => {
                log_line!(Warn, "{} at {rail:?}: {error}", self.peer);
                self.connection.on_failed(shared.now(), id, DialError::Unreachable);
            }
        }
    }

    /// Closes a connection, or gives an attempt up. Its operations end with it, and its memory is free.
    pub(super) fn close(&mut self, shared: &mut Shared, id: ConnId) {
        if let Some(at) = self.conns.iter().position(|conn| conn.id == id) {
            let conn = self.conns.remove(at);
            shared.conns.remove(&conn.endpoint.id());
            for posted in &conn.posted {
                posted.head.into_iter().for_each(|head| shared.heads.give_back(head));
            }
        }
        if self.current == Some(id) {
            self.current = None;
            self.leave(shared);
        }
    }

    /// The connection that messages went by is no more: what belongs to it, and not to the pair, is given up.
    fn leave(&mut self, shared: &mut Shared) {
        self.reads = 0;
        (self.draining, self.send_park, self.park_sent, self.confirm) =
            (false, false, false, false);
        (self.grant, self.has_grant) = (None, false);
        for key in self.awaiting.values() {
            if let Some(op) = shared.sends.get_mut(*key) {
                op.forget_grant();
            }
        }
        self.granting.clear();
        if self.connection.phase() != Phase::Dead {
            self.uncharge_queue(shared);
            self.window.iter_mut().for_each(SendWindow::park);
            self.account.into_iter().for_each(|account| shared.windows.park(account));
        }
    }

    /// The connection is there.
    fn ready(&mut self, shared: &mut Shared, id: ConnId) {
        self.current = Some(id);
        if let Some(account) = self.account {
            shared.windows.resume(account);
        }
        for number in std::mem::take(&mut self.late_fetches) {
            self.on_fetch(shared, number);
        }
    }

    /// Whether all is done that has to be before the connection is parked.
    fn is_drained(&self) -> bool {
        self.draining
            && self.reads == 0
            && self.reading.is_empty()
            && self.serving.is_empty()
            && self.granting.is_empty()
            && self.controls.is_empty()
            && self.conns.iter().all(|conn| conn.posted.is_empty())
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

    /// Keeps the list of links with connections or attempts, and the time of the next call.
    fn note_active(&mut self, peer: Peer) {
        let Some((link, shared)) = self.find_link(peer) else { return };
        let is_open = !link.conns.is_empty();
        // Nothing reports that a grant is open.
        let grants = (!link.granting.is_empty()).then(|| shared.now() + GRANT_LOOK);
        let deadline = link.connection.deadline().into_iter().chain(grants).min();
        let (was_active, is_active) = (link.is_active, is_open || deadline.is_some());
        let was_open = std::mem::replace(&mut link.is_open, is_open);
        link.is_active = is_active;
        let before = std::mem::replace(&mut link.deadline, deadline);
        if is_active && !was_active {
            self.active.push(peer);
        } else if was_active && !is_active {
            self.active.retain(|active| *active != peer);
        }
        self.open = self.open + u32::from(is_open) - u32::from(was_open);
        match deadline {
            Some(deadline) if self.earliest.is_none_or(|earliest| deadline < earliest) => {
                self.earliest = Some(deadline);
            }
            // It may have been the first one.
            deadline if before.is_some() && before != deadline => {
                self.earliest = self.first_deadline();
            }
            _ => {}
        }
        if was_open && !is_open {
            self.call_waiting();
        }
    }

    /// A peer is being removed.
    pub(super) fn forget_active(&mut self, peer: Peer) {
        self.note_active(peer);
        self.active.retain(|active| *active != peer);
        self.waiting.retain(|waiting| *waiting != peer);
    }

    /// There is room for one more connection: the first link that waits for it has it.
    fn call_waiting(&mut self) {
        while let Some(peer) = self.waiting.pop_front() {
            let Some((link, shared)) = self.find_link(peer) else { continue };
            link.waits_for_room = false;
            if link.connection.hurry(shared.now()) {
                return link.mark(shared);
            }
        }
    }

    /// Does what a link's state machine asks for.
    fn act(&mut self, peer: Peer) {
        while let Some((link, _)) = self.find_link(peer)
            && let Some(action) = link.connection.poll_action()
        {
            match action {
                Action::Dial(id, hello) => {
                    if !self.make_room(peer) {
                        // It waits for one that is being parked.
                        let now = self.shared.now();
                        let Some((link, _)) = self.find_link(peer) else { return };
                        link.connection.on_failed(now, id, DialError::Refused(Refusal::Busy));
                        if !std::mem::replace(&mut link.waits_for_room, true) {
                            self.waiting.push_back(peer);
                        }
                        continue;
                    }
                    let Ok((address, Some(link))) = self.peers.get_mut(peer) else { return };
                    let address = address.clone();
                    link.dial(&mut self.shared, &address, id, &hello);
                }
                action => {
                    let Some((link, shared)) = self.find_link(peer) else { return };
                    match action {
                        Action::Close(id) => link.close(shared, id),
                        Action::Confirm(_) => link.confirm = true,
                        Action::Ready(id) => link.ready(shared, id),
                        Action::Drain(_) => link.draining = true,
                        Action::SendPark(_) => link.send_park = true,
                        Action::Died(cause) => self.on_death(peer, cause),
                        Action::Dial(..) => {}
                    }
                }
            }
        }
    }

    /// Whether one more connection may be made for this peer; if not, one is parked.
    fn make_room(&mut self, peer: Peer) -> bool {
        let is_counted = matches!(self.peers.get(peer), Ok((_, Some(link))) if link.is_open);
        if self.open - u32::from(is_counted) < self.shared.attr.max_open {
            return true;
        }
        self.park_oldest();
        false
    }

    /// Parks the connection that was used the longest time ago: one with nothing under way, if there is one.
    fn park_oldest(&mut self) {
        let mut oldest: Option<((bool, u64), Peer)> = None;
        let mut draining = 0;
        for &peer in &self.active {
            let Ok((_, Some(link))) = self.peers.get(peer) else { continue };
            draining += usize::from(link.connection.phase() == Phase::Draining);
            let rank = (!link.is_idle(), link.used);
            if link.connection.phase() == Phase::Established
                && oldest.is_none_or(|(best, _)| rank < best)
            {
                oldest = Some((rank, peer));
            }
        }
        // Each that is being parked makes room for one that waits.
        if draining <= self.waiting.len()
            && let Some((_, peer)) = oldest
            && let Some((link, shared)) = self.find_link(peer)
        {
            link.connection.park();
            link.mark(shared);
        }
    }

    fn find_conn(&mut self, endpoint: EndpointId) -> Option<(Peer, ConnId)> {
        self.shared.conns.get(&endpoint).copied()
    }

    pub(super) fn on_connected(&mut self, endpoint: EndpointId, data: &[u8]) {
        let Some((peer, id)) = self.find_conn(endpoint) else { return };
        let Some((link, shared)) = self.find_link(peer) else { return };
        if link.connection.phase() == Phase::Dialing {
            match decode_acceptance(data, &link.known(shared)) {
                Some((hello, windows)) => {
                    link.set_windows(windows);
                    link.connection.on_connected(id, &hello);
                }
                None => {
                    log_line!(
                        Warn,
                        "{peer}: another program, or another version, is at its address"
                    );
                    link.close(shared, id);
                    link.connection.on_failed(shared.now(), id, DialError::Unreachable);
                }
            }
            link.mark(shared);
        }
    }

    pub(super) fn on_connect_failed(&mut self, endpoint: EndpointId, error: &Error) {
        let Some((peer, id)) = self.find_conn(endpoint) else { return };
        let Some((link, shared)) = self.find_link(peer) else { return };
        let refusal = match error {
            Error::Rejected(data) => decode_refusal(data),
            _ => None,
        };
        let failure = refusal.map_or(DialError::Unreachable, DialError::Refused);
        let now = shared.now();
        link.close(shared, id);
        link.connection.on_failed(now, id, failure);
        // On the side that accepted, this is the end of the connection.
        link.connection.on_lost(now, id);
        link.mark(shared);
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
        let now = shared.now();
        link.connection.on_lost(now, id);
        link.close(shared, id);
        link.mark(shared);
    }

    pub(super) fn on_requests(&mut self) {
        while let Some(mut request) = self.listener.poll() {
            while self.take_completions() > 0 {}
            if let Err(error) = self.on_request(&mut request) {
                log_line!(Warn, "a request of {}: {error}", request.peer_addr());
            }
        }
    }

    fn on_request(&mut self, request: &mut ConnectRequest) -> Result<()> {
        let Some(from) = asking(request.private_data()) else {
            // Of another program, or another version: it is sent away without data.
            return request.reject(&[]);
        };
        let refuse =
            |request: &mut ConnectRequest, refusal| request.reject(&encode_refusal(refusal));
        let peer = match self.peers.find(from) {
            Some(peer) => peer,
            None if from == self.shared.me => return refuse(request, Refusal::Gone),
            None if self.shared.strangers >= self.shared.attr.max_strangers => {
                return refuse(request, Refusal::Stranger);
            }
            None => self.admit(from, request)?,
        };
        let (link, shared) = self.link(peer)?;
        let Some(hello) = decode_hello(request.private_data(), &link.known(shared)) else {
            return request.reject(&[]);
        };
        if link.connection.phase() != Phase::Dead && link.conns.is_empty() && !self.make_room(peer)
        {
            return refuse(request, Refusal::Busy);
        }
        let (link, shared) = self.link(peer)?;
        let answer = link.connection.on_request(shared.now(), &hello);
        // What it closes goes first: it has the room that the new one needs.
        self.act(peer);
        let (link, shared) = self.link(peer)?;
        let answered = match answer {
            Answer::Refuse(refusal) => request.reject(&encode_refusal(refusal)),
            Answer::Accept(id, hello) => {
                let data = encode_acceptance(&hello, shared.own_windows());
                let accepted = link.open(shared).and_then(|endpoint| {
                    request.accept(&endpoint, &data)?;
                    Ok(endpoint)
                });
                match accepted {
                    Ok(endpoint) => {
                        link.keep(shared, id, endpoint);
                        Ok(())
                    }
                    Err(error) => {
                        link.connection.on_lost(shared.now(), id);
                        Err(error)
                    }
                }
            }
        };
        link.mark(shared);
        answered
    }

    /// A stranger becomes a peer. Its own address comes with its confirmation.
    fn admit(
        &mut self,
        from: crate::identity::EndpointIdentity,
        request: &ConnectRequest,
    ) -> Result<Peer> {
        let host = HostIdentity::from_bytes([0; 16]);
        let address = Address::new(from, host, &[request.peer_addr()])?;
        let peer = self.peers.insert(&address)?;
        self.shared.strangers += 1;
        self.link(peer)?.0.is_stranger = true;
        self.shared.peer_events.push_back(PeerEvent::Admitted(peer));
        Ok(peer)
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

    /// Calls the state machines whose time has come.
    pub(super) fn tick(&mut self) {
        let Some(earliest) = self.earliest else { return };
        let now = self.shared.now();
        if now < earliest {
            return;
        }
        for at in 0..self.active.len() {
            let peer = self.active[at];
            let Some((link, shared)) = self.find_link(peer) else { continue };
            if link.deadline.is_some_and(|deadline| deadline <= now) {
                // What comes next is known when the link is settled.
                link.deadline = None;
                link.connection.tick(now);
                link.mark(shared);
            }
        }
        self.earliest = self.first_deadline();
    }

    fn first_deadline(&self) -> Option<Duration> {
        let of = |peer: &Peer| self.peers.get(*peer).ok()?.1.as_ref()?.deadline;
        self.active.iter().filter_map(of).min()
    }

    /// When [`tick`](Self::tick) has to be called at the latest.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.earliest
    }

    pub(super) fn on_device_lost(&mut self) {
        self.shared.device_lost = true;
        let peers: Vec<_> = self.peers.iter().map(|(peer, ..)| peer).collect();
        for peer in peers {
            if let Some((link, _)) = self.find_link(peer)
                && link.connection.death().is_none()
            {
                self.on_death(peer, DeathCause::Lost);
            }
        }
    }

    /// The application takes a peer for alive again.
    pub(super) fn revive(&mut self, peer: Peer) -> Result<()> {
        self.peers.get(peer)?;
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
