//! The endpoint's connection to itself: made when it is needed, closed when nothing is under way, and lost.

use std::time::Duration;

use fabric::{ConnectRequest, Endpoint};
use fabric_core::info::MAX_CONNECT_DATA;
use fabric_core::{EndpointId, Error, Result, unlikely};
use fabric_util::log_line;

use super::completion::Status;
use super::core::Core;
use super::hello_data::{encode_hello, encode_refusal};
use super::ops::Body;
use super::own::{Ends, Own};
use super::room::ROOM_LOOK;
use super::shared::{PeerEvent, Shared};
use super::shortage::{self, Taken};
use crate::address::Address;
use crate::connection::{DeathCause, Hello, Refusal};
use crate::identity::random_bytes;

/// Until the next attempt, where the process has too little for one.
const SHORTAGE: Duration = Duration::from_millis(100);
/// So often the time to the next attempt doubles.
const DOUBLINGS: u32 = 5;

impl Shared {
    /// Makes one end.
    fn open_own_end(&self) -> Result<Endpoint> {
        let mut attr = self.connection_attr.clone();
        // Nothing is received by it; and no end outlives the other.
        (attr.recv_depth, attr.liveness) = (1, None);
        self.domain.endpoint().attr(attr).events(&self.events).build(&self.queue)
    }

    /// A request to oneself that no other process can make.
    fn own_hello(&self) -> Result<[u8; MAX_CONNECT_DATA]> {
        let [session, sent, received] = [(), (), ()].map(|()| random_bytes("connect to oneself"));
        Ok(encode_hello(&Hello {
            from: self.me,
            to: self.me,
            session: u64::from_ne_bytes(session?),
            life: 0,
            force: false,
            sent: u64::from_ne_bytes(sent?),
            received: u64::from_ne_bytes(received?),
        }))
    }
}

impl Core {
    /// Has everything go that can: what waits is posted, messages in their turn arrive, and the connection is made if one is needed.
    pub(super) fn settle_own(&mut self) {
        while let Some(&op) = self.own.queue.front() {
            let Some(send) = self.shared.sends.get(op.key) else {
                self.own.queue.pop_front();
                continue;
            };
            if let Body::OneSided(one_sided) = &send.body {
                let depth = self.shared.attr.connection_depth;
                match self.own.post(depth, op, |context, to| one_sided.post(to, context)) {
                    Ok(true) => {}
                    Ok(false) => return self.await_own(),
                    Err(error) => {
                        log_line!(Warn, "the endpoint as its own peer: a post failed: {error}");
                        return self.on_own_death(DeathCause::Lost);
                    }
                }
                if let Some(send) = self.shared.sends.get_mut(op.key) {
                    send.posts = 1;
                    let body = std::mem::replace(&mut send.body, Body::Posted);
                    self.shared.let_go(body);
                }
            } else if !self.own.is_under_way() {
                self.arrive_own(op.key);
            } else {
                return;
            }
            self.own.queue.pop_front();
        }
        if self.own.ends.is_none() {
            // What it was to be made for was canceled: the next attempt has all its time.
            (self.own.failed, self.own.dialing_since) = (0, None);
        }
    }

    /// Has what was not posted tried again: with a completion, once there is a connection, or soon where nothing makes room.
    fn await_own(&mut self) {
        let is_connected = self.own.ends.as_ref().is_some_and(|ends| ends.is_connected);
        if !is_connected {
            self.connect_own();
        } else if !self.own.is_under_way() {
            self.own.next_try = Some(self.shared.now().saturating_add(ROOM_LOOK));
        }
    }

    /// Makes the connection, unless there is one, or an attempt has just failed.
    fn connect_own(&mut self) {
        let now = self.shared.now();
        if self.own.ends.is_some() || self.own.next_try.is_some_and(|at| now < at) {
            return;
        }
        self.own.next_try = None;
        self.own.dialing_since.get_or_insert(now);
        match self.dial_own() {
            Ok(ends) => self.own.ends = Some(Box::new(ends)),
            Err(error) => self.on_own_not_connected(&error),
        }
    }

    fn dial_own(&mut self) -> Result<Ends> {
        let address = Address::from_bytes(&self.shared.address)?;
        let (count, failed) = (address.rails().len(), self.own.failed as usize);
        let rail = address.rails().nth(failed % count.max(1));
        let missing = || Error::state("connect to oneself", "the endpoint's address has no rail");
        let (rail, hello) = (rail.ok_or_else(missing)?, self.shared.own_hello()?);
        let initiator = self.shared.open_own_end()?;
        initiator.connect(rail, &hello)?;
        Ok(Ends {
            initiator,
            target: None,
            hello,
            is_connected: false,
            has_failed: false,
            is_lost: false,
            taken: [Some(Taken::new(true)), None],
        })
    }

    /// A request in the endpoint's own name: its own one is accepted, and that of an impostor is answered as one to a predecessor.
    pub(super) fn answer_own(&mut self, request: &mut ConnectRequest) -> Result<()> {
        let is_it = |ends: &&mut Box<Ends>| {
            ends.target.is_none() && ends.hello[..] == *request.private_data()
        };
        let Some(ends) = self.own.ends.as_mut().filter(is_it) else {
            return request.reject(&encode_refusal(Refusal::Gone));
        };
        let accepted = self.shared.open_own_end().and_then(|target| {
            request.accept(&target, &[])?;
            Ok(target)
        });
        match accepted {
            Ok(target) => {
                ends.target = Some(target);
                ends.taken[1] = Some(Taken::new(false));
            }
            Err(error) => self.on_own_not_connected(&error),
        }
        Ok(())
    }

    /// One of the ends is connected.
    pub(super) fn on_own_connected(&mut self, endpoint: EndpointId) {
        let Some(ends) = &mut self.own.ends else { return };
        if ends.initiator.id() != endpoint {
            return;
        }
        ends.is_connected = true;
        ends.taken.iter_mut().flatten().for_each(Taken::is_connected);
        (self.own.failed, self.own.dialing_since) = (0, None);
        self.settle_own();
    }

    /// One of the ends could not be connected.
    pub(super) fn on_own_connect_failed(&mut self, error: &Error) {
        match &self.own.ends {
            Some(ends) if ends.is_connected => self.on_own_disconnected(),
            _ => self.on_own_not_connected(error),
        }
    }

    /// An attempt has failed. The next one is due later, as long as connecting to any peer may take.
    fn on_own_not_connected(&mut self, error: &Error) {
        self.own.close();
        let (now, timeouts) = (self.shared.now(), self.shared.attr.timeouts);
        if self.own.failed == 0 {
            log_line!(Warn, "the endpoint cannot connect to itself: {error}");
        }
        self.own.failed = self.own.failed.saturating_add(1);
        if shortage::is_of_process(error) {
            self.own.dialing_since = None;
            self.own.next_try = Some(now.saturating_add(SHORTAGE));
            return;
        }
        let since = *self.own.dialing_since.get_or_insert(now);
        if now.saturating_sub(since) >= timeouts.connect {
            return self.on_own_death(DeathCause::Unreachable);
        }
        let wait = timeouts.retry.saturating_mul(1 << self.own.failed.min(DOUBLINGS));
        self.own.next_try = Some(now.saturating_add(wait));
    }

    /// The connection is over. How its operations did is known by their completions, which are still to come.
    pub(super) fn on_own_disconnected(&mut self) {
        self.own.ends.iter_mut().for_each(|ends| ends.is_lost = true);
        self.end_own_if_over();
    }

    pub(super) fn end_own_if_over(&mut self) {
        let is_over = self.own.ends.as_ref().is_some_and(|ends| ends.is_lost);
        if !is_over || !self.own.posted.is_empty() {
            return;
        }
        if self.own.refused || !self.own.unsure.is_empty() {
            return self.on_own_death(DeathCause::Lost);
        }
        // Nothing went by it that did not end well: it is made again when it is needed.
        self.own.close();
        self.own.next_try = Some(self.shared.now().saturating_add(self.shared.attr.timeouts.retry));
        self.settle_own();
    }

    /// The endpoint has lost its connection to itself: it is down as a peer that is lost. Its messages that have arrived stay.
    pub(super) fn on_own_death(&mut self, cause: DeathCause) {
        let Some(peer) = self.own.peer else { return };
        let first = if self.own.refused { Status::Canceled } else { Status::PeerLost };
        self.end_own(first);
        self.own.death = Some(cause);
        self.end_receives(peer, Status::PeerLost);
        self.shared.peer_events.push_back(PeerEvent::Down(peer, cause));
        log_line!(Info, "the endpoint as its own peer {peer} is down: {cause}");
    }

    /// Closes the connection, and ends what has not ended: the oldest with `first`, the others as canceled.
    pub(super) fn end_own(&mut self, first: Status) {
        let mut status = first;
        let Own { unsure, posted, queue, .. } = &mut self.own;
        for op in unsure.drain(..).chain(posted.drain(..)).chain(queue.drain(..)) {
            self.shared.end_own_op(op, std::mem::replace(&mut status, Status::Canceled));
        }
        self.own.begin_anew();
    }

    /// Tries again what is due: to connect to itself, or to post.
    pub(super) fn tick_own(&mut self) {
        if let Some(at) = self.own.next_try
            && unlikely(at <= self.shared.now())
        {
            self.own.next_try = None;
            self.settle_own();
        }
    }

    /// Closes the connection, if nothing is under way: others have a use for what it takes.
    pub(super) fn rest_own(&mut self) {
        if self.own.rests() {
            self.own.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use fabric::{Access, Hints, Op};

    use super::*;
    use crate::{Endpoint, RdmAttr};

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn what_finds_no_room_where_nothing_is_under_way_goes_when_there_is_some() {
        let domain =
            fabric::Domain::open(&Hints { provider: Some("tcp".into()), ..Hints::default() });
        let endpoint = Endpoint::new(&domain.unwrap(), &RdmAttr::default()).unwrap();
        let own = endpoint.insert(endpoint.address()).unwrap();
        let region = endpoint.domain().alloc(16, Access::ALL).unwrap();
        let write = || {
            let to = region.remote().at(8);
            endpoint.post(own, &Op::write(region.slice(..8), to)).unwrap();
        };
        // So that there is a connection.
        write();
        assert_eq!(endpoint.wait_one(Some(SOON)).unwrap().status, Status::Ok);
        let limit = |depth| {
            endpoint
                .driver
                .call(|core| std::mem::replace(&mut core.shared.attr.connection_depth, depth))
        };
        let depth = limit(0);
        write();
        let waits = endpoint.wait_one(Some(Duration::from_millis(50)));
        assert!(waits.is_err(), "there is no room");
        limit(depth);
        assert_eq!(endpoint.wait_one(Some(SOON)).unwrap().status, Status::Ok);
    }
}
