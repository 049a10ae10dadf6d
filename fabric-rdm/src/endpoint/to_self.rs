//! Operations of the endpoint to itself: messages, which stay where they are until they meet a receive, and one-sided operations.
//!
//! What is posted behind a one-sided operation waits until that has ended: so a message, or a write with data, is seen when the
//! bytes of each write before it are there.

use fabric::{Completion as RawCompletion, Op};
use fabric_core::Status as RawStatus;

use super::completion::{Completion, Kind, Status};
use super::core::Core;
use super::op::Send;
use super::ops::{Arrival, Body, Payload, SendOp};
use super::own::OwnOp;
use super::post_error::{Full, PostError};
use super::shared::Shared;
use super::table::OpKey;
use crate::matching::{Arrived, Envelope};
use crate::peers::Peer;
use crate::window::Blocked;

impl Core {
    fn check_own(&self) -> Result<(), PostError> {
        self.own.death.map_or(Ok(()), |cause| Err(PostError::PeerDown(cause)))
    }

    /// A message of the endpoint to itself needs no connection and no window.
    pub(super) fn send_to_self(
        &mut self,
        peer: Peer,
        send: &Send<'_>,
        len: u64,
    ) -> Result<OpKey, PostError> {
        // Behind what came before it.
        if self.take_arrived() {
            self.pump();
        }
        self.check_own()?;
        let shared = &mut self.shared;
        let body = shared.keep_message(send, None)?;
        let what = (send.context, send.signaled);
        let op = SendOp::new(peer, what, Kind::Send, len, body);
        let waits_match = send.matched;
        let key = shared.sends.insert(SendOp { waits_payload: true, waits_match, ..op });
        shared.sends_out += 1;
        if self.own.is_busy() {
            self.own.queue.push_back(OwnOp { key, immediate: None });
        } else if !self.arrive(key) {
            self.shared.sends.remove(key);
            self.shared.sends_out -= 1;
            return Err(Full::Peer(Blocked::Places).into());
        }
        Ok(key)
    }

    /// A message of the endpoint to itself takes part in matching. False: the matcher has no place for it.
    fn arrive(&mut self, key: OpKey) -> bool {
        let shared = &mut self.shared;
        let Some(op) = shared.sends.get(key) else { return true };
        let Body::Message(message) = &op.body else { return true };
        let envelope = Envelope { source: op.peer, tag: message.tag, len: op.len };
        let mut arrival = Arrival {
            id: None,
            envelope,
            number: 0,
            immediate: message.immediate,
            wants_match: false,
            account: None,
            payload: Payload::Own(key),
        };
        match shared.matcher.arrive(envelope, shared.arrivals.next_key()) {
            Ok(Arrived::Matched(met)) => self.deliver_arrival(met.into(), arrival),
            Ok(Arrived::Waits(id)) => {
                arrival.id = Some(id);
                shared.arrivals.insert(arrival);
            }
            Err(_) => return false,
        }
        true
    }

    /// The same of one that waited for its turn. There are places for as many as may be posted.
    pub(super) fn arrive_own(&mut self, key: OpKey) {
        if !self.arrive(key)
            && let Some(op) = self.shared.sends.remove(key)
        {
            self.shared.end_send(op, Status::Internal);
        }
    }

    /// Posts a one-sided operation to oneself.
    pub(super) fn post_to_self(
        &mut self,
        peer: Peer,
        op: &Op<'_>,
        kind: Kind,
    ) -> Result<OpKey, PostError> {
        self.check_own()?;
        let (shared, own) = (&mut self.shared, &mut self.own);
        let (mut op, what) = (op.signaled(), (op.get_context(), op.is_signaled()));
        let mut immediate = None;
        if kind == Kind::Write {
            // This CPU is the target's: what it hears of next says that the bytes are there.
            immediate = op.get_immediate();
            op = op.without_immediate().delivery_complete();
        }
        if immediate.is_some() && !shared.has_place_of_own() {
            return Err(Full::Peer(Blocked::Window).into());
        }
        let new = |body| SendOp::new(peer, what, kind, op.len() as u64, body);
        if own.queue.is_empty() {
            let key = shared.sends.insert(SendOp { posts: 1, ..new(Body::Posted) });
            let depth = shared.attr.connection_depth;
            let post = |context, to: &fabric::Endpoint| to.post(&op.context(context));
            match own.post(depth, OwnOp { key, immediate }, post) {
                Ok(true) => {
                    shared.count_own_post(immediate);
                    return Ok(key);
                }
                Ok(false) => drop(shared.sends.remove(key)),
                Err(error) => {
                    shared.sends.remove(key);
                    return Err(error.into());
                }
            }
        }
        let kept = Body::OneSided(shared.keep_op(&op)?);
        let key = shared.sends.insert(new(kept));
        shared.count_own_post(immediate);
        own.queue.push_back(OwnOp { key, immediate });
        self.settle_own();
        Ok(key)
    }

    /// A one-sided operation to oneself has completed.
    pub(super) fn on_own_sent(&mut self, number: u64, completion: &RawCompletion) {
        let Some(op) = self.own.completed(completion.endpoint, number) else { return };
        match completion.status {
            RawStatus::Ok => self.shared.end_own_op(op, Status::Ok),
            // What becomes of these follows when the connection is over, all at once and in their order.
            RawStatus::PeerLost | RawStatus::Canceled => self.own.on_failed(op, false),
            status => {
                self.own.on_failed(op, true);
                let is_refused = status == RawStatus::RemoteAccess;
                let status = if is_refused { Status::RemoteAccess } else { Status::Internal };
                self.shared.end_own_op(op, status);
            }
        }
        self.end_own_if_over();
        self.settle_own();
    }

    /// Ends an operation to oneself that has not begun: a message without a receive, or what waits for its turn. Whether there was
    /// one.
    pub(super) fn cancel_own(&mut self, key: OpKey) -> bool {
        if let Some(op) = self.own.take_queued(key) {
            self.shared.end_own_op(op, Status::Canceled);
            // What was behind it may go now.
            self.settle_own();
            self.pump();
            return true;
        }
        let shared = &mut self.shared;
        let is_it = |payload: &Payload| matches!(payload, Payload::Own(of) if *of == key);
        let found = shared.arrivals.iter().find(|(_, arrival)| is_it(&arrival.payload));
        let Some((arrival, id)) = found.map(|(key, arrival)| (key, arrival.id)) else {
            return false;
        };
        // One that the application claimed is being taken.
        let Some(id) = id else { return false };
        if shared.matcher.claim(id).is_none() {
            return false;
        }
        shared.arrivals.remove(arrival);
        if let Some(op) = shared.sends.remove(key) {
            shared.end_send(op, Status::Canceled);
        }
        true
    }
}

impl Shared {
    /// Whether one more of the endpoint's writes to itself may have data: as many as any peer may have without a receive.
    pub(super) fn has_place_of_own(&self) -> bool {
        self.own_written < self.attr.window.places.window
    }

    fn count_own_post(&mut self, immediate: Option<u32>) {
        self.sends_out += 1;
        self.own_written += u64::from(immediate.is_some());
    }

    /// An operation of the endpoint to itself has ended, and is seen at both of its ends.
    pub(super) fn end_own_op(&mut self, own: OwnOp, status: Status) {
        let Some(op) = self.sends.remove(own.key) else { return };
        if let Some(immediate) = own.immediate {
            if status == Status::Ok {
                let mut completion = Completion::new(0, Kind::RecvWrite, Status::Ok);
                completion.peer = Some(op.peer);
                (completion.len, completion.message_len) = (op.len, op.len);
                completion.immediate = Some(immediate);
                // Its place is free when the application knows of it.
                self.end_recv(completion, true, false, None);
            } else {
                self.own_written -= 1;
            }
        }
        self.end_send(op, status);
    }
}
