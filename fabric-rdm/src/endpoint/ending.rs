//! Ends before the time: a peer's death, its removal, and operations that the application cancels.

use fabric_core::Result;

use super::completion::Status;
use super::core::Core;
use super::link::PeerLink;
use super::ops::{Incoming, Payload};
use super::shared::{PeerEvent, Shared};
use super::table::OpKey;
use crate::address::Address;
use crate::matching::Ending;
use crate::peers::Peer;

/// So much further go the attempts at new peers with each one that is removed, at most. One that is inserted again and had more
/// says where it is.
const MAX_REMOVED_AHEAD: u64 = 1 << 10;

impl Core {
    /// Ends all that waits or is under way with a peer: the oldest operation with `first`, the others as canceled, receives from
    /// it alone with `receives`. Messages that came whole stay.
    pub(super) fn end_all(&mut self, peer: Peer, first: Status, receives: Status) {
        self.end_receives(peer, receives);
        let Some((link, shared)) = self.find_link(peer) else { return };
        let ids: Vec<_> = link.conns.iter().map(|conn| conn.id).collect();
        ids.into_iter().for_each(|id| link.close(shared, id));
        link.end_operations(shared, first);
        link.end_incoming(shared, receives);
        link.clear(shared);
        // Messages that stay are of a life that is over: its numbers mean nothing to the next one.
        shared
            .arrivals
            .values_mut()
            .filter(|arrival| arrival.envelope.source == peer)
            .for_each(|arrival| arrival.wants_match = false);
    }

    pub(super) fn end_receives(&mut self, peer: Peer, status: Status) {
        let mut ended = Vec::new();
        self.shared.matcher.end_peer(peer, |_, ending| ended.push(ending));
        for ending in ended {
            self.end_receive(ending, status);
        }
    }

    pub(super) fn end_receive(&mut self, ending: Ending<OpKey>, status: Status) {
        match ending {
            Ending::Ended(key) => self.shared.end_recv_without(key, status),
            Ending::Released(released) => self.shared.end_released(released),
            Ending::WithLast | Ending::NotThere => {}
        }
    }

    /// Takes a peer out: what is pending ends as canceled, its messages are dropped.
    pub(super) fn remove(&mut self, peer: Peer) -> Result<Address> {
        self.peers.get(peer)?;
        // What it sent before that was received.
        self.take_arrived();
        if self.own.peer == Some(peer) {
            self.end_own(Status::Canceled);
        }
        self.end_all(peer, Status::Canceled, Status::Canceled);
        let mut dropped = Vec::new();
        self.shared.matcher.remove_peer(peer, |_, _| {}, |message| dropped.push(message.payload));
        for key in dropped {
            self.shared.dropped += 1;
            let Some(arrival) = self.shared.arrivals.remove(key) else { continue };
            self.shared.free_place(arrival.account);
            if let Payload::Own(key) = arrival.payload {
                self.end_own_send(key, Status::Canceled);
            }
        }
        if let Some((link, shared)) = self.find_link(peer) {
            shared.strangers -= u32::from(link.is_stranger);
            let (attempts, ..) = link.connection.numbers();
            // The peer may have named any number: attempts at others do not go that far.
            let bound = shared.removed_attempts.saturating_add(MAX_REMOVED_AHEAD);
            shared.removed_attempts = shared.removed_attempts.max(attempts.min(bound));
        }
        self.shared.peer_events.retain(|event| match event {
            PeerEvent::Admitted(of) | PeerEvent::Down(of, _) => *of != peer,
        });
        self.forget_active(peer);
        if self.own.peer == Some(peer) {
            self.own.peer = None;
        }
        let (address, _) = self.peers.remove(peer)?;
        self.pump();
        Ok(address)
    }

    /// Ends a send that is not on its way. Whether there was one.
    pub(super) fn cancel_send(&mut self, key: OpKey) -> bool {
        let Some(op) = self.shared.sends.get(key) else { return false };
        let (peer, is_own) = (op.peer, self.own.peer == Some(op.peer));
        if is_own {
            return self.cancel_own(key);
        }
        let Some((link, shared)) = self.find_link(peer) else { return false };
        let Some(at) = link.queue.iter().position(|queued| *queued == key) else { return false };
        if let Some(op) = shared.sends.get_mut(key) {
            link.uncharged -= u64::from(op.lacks_place());
            link.uncharge(op.take_place(), op.window_len());
        }
        link.queue.remove(at);
        link.end_op(shared, key, Status::Canceled);
        // What was behind it may go now.
        link.mark(shared);
        self.pump();
        true
    }

    /// Ends a receive that has not met its message. Whether there was one.
    pub(super) fn cancel_recv(&mut self, key: OpKey) -> bool {
        // It may have a message by now, whose sender knows that.
        if self.take_arrived() {
            self.pump();
        }
        let id = self.shared.recvs.get(key).and_then(|recv| recv.id);
        let Some(id) = id else { return false };
        let ending = self.shared.matcher.cancel(id);
        let is_there = ending != Ending::NotThere;
        self.end_receive(ending, Status::Canceled);
        is_there
    }
}

impl PeerLink {
    /// Ends all operations, in the order of their posts.
    fn end_operations(&mut self, shared: &mut Shared, first: Status) {
        let mut status = if self.refused { Status::Canceled } else { first };
        for key in std::mem::take(&mut self.outstanding) {
            if let Some(op) = shared.sends.remove(key) {
                shared.end_send(op, status);
                status = Status::Canceled;
            }
        }
        self.live = 0;
    }

    /// Ends messages whose payload does not come any more.
    fn end_incoming(&mut self, shared: &mut Shared, status: Status) {
        for (_, incoming) in std::mem::take(&mut self.incoming) {
            match incoming {
                Incoming::Arrival(key) => {
                    let Some(arrival) = shared.arrivals.remove(key) else { continue };
                    if let Some(id) = arrival.id {
                        let _ = shared.matcher.claim(id);
                    }
                    shared.free_place(arrival.account);
                    shared.dropped += 1;
                }
                Incoming::Delivery(key) => {
                    let Some(delivery) = shared.deliveries.remove(key) else { continue };
                    shared.end_met(&delivery.met, status, None, delivery.account);
                }
                Incoming::Dropped { place, .. } => shared.free_place(place),
            }
        }
    }

    /// Forgets what was to be sent, and gives the peer's part of the window back.
    fn clear(&mut self, shared: &mut Shared) {
        self.queue.clear();
        (self.uncharged, self.asks) = (0, false);
        self.awaiting.clear();
        self.serving.clear();
        self.granting.clear();
        self.reading.clear();
        self.reads = 0;
        self.controls.clear();
        self.grant = None;
        self.late_fetches.clear();
        self.window = None;
        if let Some(account) = self.account.take() {
            shared.windows.close(account);
        }
    }
}
