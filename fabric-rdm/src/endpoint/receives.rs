//! What arrives: frames of peers, the receives that messages meet, and messages that the application claims.

use fabric::{Access, Completion as RawCompletion, OpKind};
use fabric_core::{Error, cold_path, likely, unlikely};
use smallvec::SmallVec;

use super::completion::{Completion, Kind, Status};
use super::core::Core;
use super::deliveries::InSlot;
use super::link::{Control, PeerLink};
use super::op::{PayloadRef, Recv};
use super::ops::{Arrival, Body, Delivery, Incoming, Met, Payload, RecvOp};
use super::post_error::{Full, PostError};
use super::shared::Shared;
use super::table::OpKey;
use super::wire::{Frame, MAX_CONTROL, MessageHead, Way};
use crate::connection::ConnId;
use crate::matching::{Arrived, Envelope, Match, MessageId, Receive};
use crate::peers::Peer;
use crate::window::Account;

/// Bytes of a slot that are looked at first: all of each frame but the payload, and a confirmation.
const LOOK: usize = 80;

impl Core {
    /// Posts a receive. From a peer that is down there is what waits already, and nothing else comes.
    pub(super) fn post_recv(&mut self, recv: &Recv<'_>) -> Result<OpKey, PostError> {
        self.check_device()?;
        if self.shared.recvs_out >= self.shared.attr.recv_depth {
            return Err(Full::Depth.into());
        }
        let mut death = None;
        if let Some(source) = recv.pattern.source() {
            self.peers.get(source)?;
            death = self.death_of(source);
        }
        let key = self.shared.add_recv(recv)?;
        let mut receive = Receive::new(recv.pattern, recv.into.len() as u64);
        if let Some(min_free) = recv.min_free {
            receive = receive.of_many(min_free).max_messages(recv.max_messages);
        }
        let mut matches: SmallVec<[Match<OpKey, OpKey>; 1]> = SmallVec::new();
        let posted = self.shared.matcher.post(receive, key, |met| matches.push(met));
        let posted = match (posted, death) {
            (Ok(id), Some(cause)) if matches.is_empty() => {
                let _ = self.shared.matcher.cancel(id);
                Err(PostError::PeerDown(cause))
            }
            (posted, _) => posted.map_err(PostError::from),
        };
        let id = posted.inspect_err(|_| _ = self.shared.recvs.remove(key))?;
        if let Some(recv) = self.shared.recvs.get_mut(key) {
            recv.id = Some(id);
        }
        self.shared.recvs_out += 1;
        for met in matches {
            if let Some(arrival) = self.shared.arrivals.remove(met.payload) {
                self.deliver_arrival(met.into(), arrival);
            }
        }
        if death.is_some() {
            // One of many messages has room for more.
            let ending = self.shared.matcher.cancel(id);
            self.end_receive(ending, Status::PeerLost);
        }
        self.pump();
        Ok(key)
    }

    /// A receive of a connection has completed.
    pub(super) fn on_slot(&mut self, slot: u32, completion: &RawCompletion) {
        let from = self.shared.conns.get(completion.endpoint).copied();
        if unlikely(!completion.is_ok()) {
            // Its connection ends.
        } else if unlikely(completion.kind == OpKind::RecvWrite) {
            // It took the slot, and left it as it was.
            self.on_written(from, completion);
        } else if let Some((peer, id)) = from {
            self.on_frame(peer, id, slot, completion.len);
        } else {
            cold_path();
            self.shared.dropped += 1;
        }
        if self.shared.slots.shared().is_some() {
            // Where it fails, the queue is over.
            let _ = self.shared.slots.repost_shared(slot);
        } else {
            self.repost_own(slot, from);
        }
    }

    /// A slot is posted to the connection it is of.
    #[inline(never)]
    fn repost_own(&mut self, slot: u32, from: Option<(Peer, ConnId)>) {
        let endpoint = from.and_then(|(peer, id)| {
            let state = self.peers.get_mut(peer).ok().and_then(|(_, state)| state.as_mut());
            state.and_then(|link| link.conn(id)).map(|conn| &conn.endpoint)
        });
        self.shared.slots.repost(slot, endpoint);
    }

    fn on_frame(&mut self, peer: Peer, id: ConnId, slot: u32, len: usize) {
        let mut look = [0; LOOK];
        let seen = &mut look[..len.min(LOOK)];
        InSlot { slot, start: 0, len }.read(&self.shared.slots, seen);
        // It stays where it was put together: see `Met::completion`.
        let decoded = Frame::decode(seen);
        let (frame, start) = match &decoded {
            Ok((frame, start)) if likely(frame.has_payload()) || *start == len => (frame, *start),
            _ => return self.break_off(peer, id),
        };
        self.on_heard(peer, id);
        let from = InSlot { slot, start, len: len - start };
        let Some((link, shared)) = self.find_link(peer) else { return cold_path() };
        match frame {
            Frame::Message(head) => link.on_message(shared, id, head, &from),
            Frame::Confirm => self.on_confirm_frame(peer, id, &from),
            frame => link.on_control(shared, id, frame, &from),
        }
    }

    #[inline(always)] // one place that is executed for each message calls it
    fn on_heard(&mut self, peer: Peer, id: ConnId) {
        if let Some((link, shared)) = self.find_link(peer)
            && link.connection.on_heard(id)
        {
            cold_path();
            link.mark(shared);
            // What came goes by the connection that is there now.
            self.act(peer);
        }
    }

    #[cold]
    fn on_confirm_frame(&mut self, peer: Peer, id: ConnId, from: &InSlot) {
        let mut bytes = [0; MAX_CONTROL];
        match bytes.get_mut(..from.len) {
            Some(payload) => {
                from.read(&self.shared.slots, payload);
                self.on_confirm(peer, id, payload);
            }
            None => self.break_off(peer, id),
        }
    }

    /// A peer has written with immediate data.
    #[inline(never)]
    fn on_written(&mut self, from: Option<(Peer, ConnId)>, completion: &RawCompletion) {
        let (Some((peer, id)), Some(data)) = (from, completion.immediate) else {
            self.shared.dropped += 1;
            return;
        };
        self.on_heard(peer, id);
        if let Some((link, shared)) = self.find_link(peer) {
            link.on_written(shared, id, data, completion.len as u64);
        }
    }

    #[cold]
    fn break_off(&mut self, peer: Peer, id: ConnId) {
        if let Some((link, shared)) = self.find_link(peer) {
            link.break_off(shared, id);
        }
    }

    /// A message that was there has met a receive.
    pub(super) fn deliver_arrival(&mut self, met: Met, arrival: Arrival) {
        let Arrival { number, immediate, wants_match, account: credit, payload, .. } = arrival;
        match payload {
            Payload::Whole(bytes) => {
                self.shared.place(&met, 0, &bytes);
                self.shared.end_met(&met, Status::Ok, immediate, credit);
            }
            Payload::Own(key) => {
                self.deliver_own(&met, key, immediate);
                return;
            }
            Payload::Partial(bytes) => {
                self.shared.place(&met, 0, &bytes);
                let taken = bytes.len() as u64;
                if let Some((link, shared)) = self.find_link(met.envelope.source) {
                    let delivery = Delivery::new(met, number, immediate, taken, credit);
                    link.keep_delivery(shared, delivery);
                }
            }
            Payload::AtSender(offer) => {
                if let Some((link, shared)) = self.find_link(met.envelope.source) {
                    let session = link.connection.session();
                    let remote = offer.filter(|(of, _)| Some(*of) == session && !link.park_sent);
                    let mut delivery = Delivery::new(met, number, immediate, 0, credit);
                    delivery.remote = remote.map(|(_, remote)| remote);
                    link.add_delivery(shared, delivery);
                }
                return;
            }
        }
        if wants_match
            && let Some((link, shared)) = self.find_link(met.envelope.source)
            && link.connection.death().is_none()
        {
            link.say(shared, Control::Matched(number));
        }
    }

    /// A message of the endpoint to itself has met a receive.
    fn deliver_own(&mut self, met: &Met, key: OpKey, immediate: Option<u32>) {
        let shared = &mut self.shared;
        let Some(op) = shared.sends.remove(key) else { return };
        if let (Body::Message(message), Some(recv)) = (&op.body, shared.recvs.get(met.recv)) {
            let (start, len) = (met.offset as usize, met.len as usize);
            let into = recv.into.as_slice().slice(start..start + len);
            // Both were checked when they were posted.
            let _ = match message.source.payload() {
                PayloadRef::Bytes(bytes) => into.write_at(0, &bytes[..len]),
                PayloadRef::Slice(from) => into.copy_from(from.slice(..len)),
            };
        }
        shared.end_met(met, Status::Ok, immediate, None);
        shared.end_send(op, Status::Ok);
    }

    /// A message of the endpoint to itself comes to its end without a receive.
    pub(super) fn end_own_send(&mut self, key: OpKey, status: Status) {
        if let Some(op) = self.shared.sends.remove(key) {
            self.shared.end_send(op, status);
        }
    }

    /// The application does not want a message: its sender is not kept waiting.
    pub(super) fn drop_arrival(&mut self, key: OpKey) {
        let Some(arrival) = self.shared.arrivals.remove(key) else { return };
        let place = arrival.account;
        if let Payload::Own(key) = arrival.payload {
            return self.end_own_send(key, Status::Ok);
        }
        let Some((link, shared)) = self.find_link(arrival.envelope.source) else {
            return self.shared.free_place(place);
        };
        let freed = match arrival.payload {
            Payload::Partial(bytes) => {
                let left = arrival.envelope.len - bytes.len() as u64;
                link.incoming.insert(arrival.number, Incoming::Dropped { left, place });
                None
            }
            Payload::AtSender(_) => {
                link.incoming.remove(&arrival.number);
                link.say(shared, Control::Done(arrival.number));
                place
            }
            _ => place,
        };
        shared.free_place(freed);
        if arrival.wants_match && link.connection.death().is_none() {
            link.say(shared, Control::Matched(arrival.number));
        }
        self.pump();
    }
}

impl Shared {
    /// Keeps a receive.
    pub(super) fn add_recv(&mut self, recv: &Recv<'_>) -> Result<OpKey, Error> {
        self.domain.check_slice("recv", recv.into, Access::LOCAL_WRITE)?;
        let (context, signaled, into) = (recv.context, recv.signaled, recv.into.hold()?);
        Ok(self.recvs.insert_with(|| RecvOp { context, signaled, into, id: None }))
    }
}

impl PeerLink {
    fn on_message(&mut self, shared: &mut Shared, id: ConnId, head: &MessageHead, from: &InSlot) {
        if !self.connection.on_message(id, head.number) {
            cold_path();
            return self.mark(shared);
        }
        self.touch(shared);
        let is_whole = likely(head.way == Way::Whole);
        let bytes = if is_whole || head.way == Way::Pieces { head.len } else { 0 };
        let fits = if is_whole { from.len as u64 == head.len } else { head.len > 0 };
        let Some(account) =
            self.account.filter(|account| fits && shared.windows.admits(*account, bytes))
        else {
            cold_path();
            return self.break_off(shared, id);
        };
        let envelope = Envelope { source: self.peer, tag: head.tag, len: head.len };
        let Shared { matcher, arrivals, .. } = shared;
        let met = match matcher.arrive_as(envelope, (), |()| arrivals.next_key()) {
            Ok(Arrived::Matched(met)) => Met::from(met),
            Ok(Arrived::Waits(message)) => {
                return self.keep_arrival(
                    shared,
                    (message, envelope),
                    head,
                    (from, account, bytes),
                );
            }
            // There are as many places as were granted.
            Err(()) => {
                cold_path();
                return self.break_off(shared, id);
            }
        };
        if !is_whole {
            let credit = shared.take_place(account, bytes);
            return self.begin_delivery(shared, met, head, credit);
        }
        // In a receive of many its place is free when the application knows of it, else now.
        let credit = if unlikely(met.of_many) {
            shared.take_place(account, bytes)
        } else {
            shared.windows.on_passed(account, bytes);
            None
        };
        shared.place_from(&met, 0, from);
        shared.end_met(&met, Status::Ok, head.immediate, credit);
        if unlikely(head.matched) {
            self.say(shared, Control::Matched(head.number));
        }
    }

    /// A message waits for its receive.
    #[inline(never)]
    fn keep_arrival(
        &mut self,
        shared: &mut Shared,
        (message, envelope): (MessageId, Envelope),
        head: &MessageHead,
        (from, account, bytes): (&InSlot, Account, u64),
    ) {
        let credit = shared.take_place(account, bytes);
        let payload = match head.way {
            Way::Whole => Payload::Whole(from.to_bytes(&shared.slots)),
            Way::Pieces => Payload::Partial(Vec::new()),
            Way::Fetched => Payload::AtSender(None),
            Way::Offered(remote) => {
                Payload::AtSender(self.connection.session().map(|session| (session, remote)))
            }
        };
        let key = shared.arrivals.insert(Arrival {
            id: Some(message),
            envelope,
            number: head.number,
            immediate: head.immediate,
            wants_match: head.matched,
            account: credit,
            payload,
        });
        if head.way != Way::Whole {
            self.incoming.insert(head.number, Incoming::Arrival(key));
        }
    }

    /// It counts as a message, the next one, and its place is free when the application knows of it: so these are bounded.
    fn on_written(&mut self, shared: &mut Shared, id: ConnId, immediate: u32, len: u64) {
        let (_, _, number) = self.connection.numbers();
        if !self.connection.on_message(id, number) {
            return self.mark(shared);
        }
        self.touch(shared);
        let account = self.account.filter(|account| shared.windows.on_message(*account, 0).is_ok());
        let Some(account) = account else { return self.break_off(shared, id) };
        let mut completion = Completion::new(0, Kind::RecvWrite, Status::Ok);
        completion.peer = Some(self.peer);
        (completion.len, completion.message_len) = (len, len);
        completion.immediate = Some(immediate);
        shared.end_recv(completion, true, false, Some((account, 0)));
    }

    #[inline(never)]
    fn on_control(&mut self, shared: &mut Shared, id: ConnId, frame: &Frame, from: &InSlot) {
        // One that was given up says nothing any more.
        if self.current != Some(id) {
            return;
        }
        let (_, sent, _) = self.connection.numbers();
        let is_fine = match *frame {
            Frame::Data(number) => self.on_data(shared, number, from),
            Frame::Fetch(number) if number < sent => {
                self.on_fetch(shared, number);
                true
            }
            Frame::Done(number) | Frame::Matched(number) if number < sent => {
                self.on_end(shared, number, matches!(frame, Frame::Done(_)));
                true
            }
            Frame::Offer(number, remote) => self.on_offer(shared, number, remote),
            Frame::Grant(grant) => {
                let is_first = !std::mem::replace(&mut self.has_grant, true);
                self.asks = false;
                let window = self.window.as_mut();
                let is_fine = window.is_some_and(|window| window.on_grant(grant).is_ok());
                if is_first && self.draining {
                    self.drain_left = self.sendable(shared);
                }
                is_fine
            }
            Frame::Notice(notices) => {
                let account = self.account;
                account.is_some_and(|account| shared.windows.on_notice(account, notices).is_ok())
            }
            Frame::Park(freed) => {
                self.connection.on_park(shared.now(), id);
                let window = self.window.as_mut();
                window.is_some_and(|window| window.on_freed(freed).is_ok())
            }
            _ => false,
        };
        if is_fine { self.mark(shared) } else { self.break_off(shared, id) }
    }

    /// A read of a delivery has completed.
    pub(super) fn on_read(&mut self, shared: &mut Shared, key: OpKey, ok: bool) {
        let Some(delivery) = shared.deliveries.get_mut(key) else { return };
        delivery.reads = delivery.reads.saturating_sub(1);
        self.reads = self.reads.saturating_sub(1);
        // If not, the connection is over, and the delivery ends with it.
        if ok && delivery.reads == 0 && delivery.taken >= delivery.met.len {
            self.end_delivery(shared, key);
        }
    }

    /// The peer broke the protocol.
    pub(super) fn break_off(&mut self, shared: &mut Shared, id: ConnId) {
        self.connection.on_broken(id);
        self.mark(shared);
    }

    /// Has something said to the peer. Of one that goes by the rules so much never waits, since it sends no more than it was
    /// granted: this one takes nothing, and goes on.
    pub(super) fn say(&mut self, shared: &mut Shared, control: Control) {
        let (window, sends) = (shared.attr.window.places.window, shared.attr.send_depth);
        let bound = window.saturating_mul(4).saturating_add(sends.into());
        match self.current {
            Some(id) if self.controls.len() as u64 >= bound => self.break_off(shared, id),
            _ => self.controls.push_back(control),
        }
        self.mark(shared);
    }
}
