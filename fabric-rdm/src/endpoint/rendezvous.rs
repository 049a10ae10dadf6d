//! Payload that stays at its sender until its message has met a receive: fetched, offered, read, or sent in pieces.

use fabric::Op;

use super::link::{Control, PeerLink, PostedKind};
use super::ops::{Body, GrantState, SendOp};
use super::posting::Sent;
use super::shared::Shared;
use super::table::OpKey;

/// What a fetch of a message comes to.
enum FetchAnswer {
    Offer(fabric_core::RemoteRegion),
    /// Once its grant is open.
    Later,
    Pieces,
}

impl PeerLink {
    /// The peer wants the payload of a message.
    pub(super) fn on_fetch(&mut self, shared: &mut Shared, number: u64) {
        let Some(&key) = self.awaiting.get(&number) else { return };
        if self.park_sent {
            // Nothing goes any more on this connection.
            if !self.late_fetches.contains(&number) {
                self.late_fetches.push(number);
            }
            return;
        }
        // One answer at a time, however often it is asked for.
        let offers = |control: &Control| matches!(control, Control::Offer(of, _) if *of == number);
        if self.granting.iter().any(|(of, _)| *of == number) || self.controls.iter().any(offers) {
            return;
        }
        let Some(op) = shared.sends.get_mut(key) else { return };
        let Body::Message(mut message) = std::mem::replace(&mut op.body, Body::Posted) else {
            return;
        };
        let answer = match &message.grant {
            GrantState::Open(grant) => FetchAnswer::Offer(grant.remote()),
            GrantState::Pending(_) => FetchAnswer::Later,
            GrantState::None => match (self.grant(shared, &mut message), &message.grant) {
                (Some(remote), _) => FetchAnswer::Offer(remote),
                (None, GrantState::Pending(_)) => FetchAnswer::Later,
                (None, _) => FetchAnswer::Pieces,
            },
        };
        if let Some(op) = shared.sends.get_mut(key) {
            op.body = Body::Message(message);
        }
        match answer {
            FetchAnswer::Offer(remote) => self.controls.push_back(Control::Offer(number, remote)),
            FetchAnswer::Later => self.granting.push_back((number, key)),
            FetchAnswer::Pieces => self.serve(shared, number, key),
        }
        self.mark(shared);
    }

    /// Sends the payload of a message that has met its receive in pieces.
    fn serve(&mut self, shared: &mut Shared, number: u64, key: OpKey) {
        self.awaiting.remove(&number);
        if let Some(op) = shared.sends.get_mut(key) {
            op.waits_match = false;
        }
        self.serving.push_back(key);
    }

    /// Offers what the peer fetched, and can read by now.
    pub(super) fn open_grants(&mut self, shared: &mut Shared) {
        for _ in 0..self.granting.len() {
            let Some((number, key)) = self.granting.pop_front() else { return };
            let Some(SendOp { body: Body::Message(message), .. }) = shared.sends.get_mut(key)
            else {
                continue;
            };
            let GrantState::Pending(pending) = &mut message.grant else { continue };
            match pending.poll() {
                Ok(Some(grant)) => {
                    self.controls.push_back(Control::Offer(number, grant.remote()));
                    message.grant = GrantState::Open(grant);
                }
                Ok(None) => self.granting.push_back((number, key)),
                Err(_) => {
                    message.grant = GrantState::None;
                    self.serve(shared, number, key);
                }
            }
        }
    }

    /// The peer has the payload of a message, or does not want it; or the message has met a receive.
    pub(super) fn on_end(&mut self, shared: &mut Shared, number: u64, done: bool) {
        let Some(&key) = self.awaiting.get(&number) else { return };
        let Some(op) = shared.sends.get_mut(key) else {
            self.awaiting.remove(&number);
            return;
        };
        op.waits_match = false;
        if done {
            op.waits_payload = false;
        }
        // One whose payload is fetched is waited for until that is done.
        let is_fetched = op.waits_payload && !self.serving.contains(&key);
        if done {
            let body = std::mem::replace(&mut op.body, Body::Posted);
            shared.let_go(body);
        }
        if !is_fetched {
            self.awaiting.remove(&number);
        }
        self.end_if_done(shared, key);
    }

    /// Posts the next read of a payload; whether it did.
    pub(super) fn transmit_read(&mut self, shared: &mut Shared) -> bool {
        let Some(&key) = self.reading.front() else { return false };
        let Some(delivery) = shared.deliveries.get(key) else {
            self.reading.pop_front();
            return true;
        };
        let (met, taken, remote) = (delivery.met, delivery.taken, delivery.remote);
        let (Some(remote), Some(recv)) = (remote, shared.recvs.get(met.recv)) else {
            self.reading.pop_front();
            return true;
        };
        let more = met.len.saturating_sub(taken).min(shared.domain.info().limits.message);
        let start = (met.offset + taken) as usize;
        // Held for the length of this call: the read holds the region itself.
        let Ok(into) = recv.into.as_slice().slice(start..start + more as usize).hold() else {
            return false;
        };
        let sent = self.post(shared, (PostedKind::Read(key), None), |context, to| {
            to.post(&Op::read(into.as_slice(), remote.at(taken)).context(context))
        });
        if sent == Sent::No {
            return false;
        }
        self.reads += 1;
        if let Some(delivery) = shared.deliveries.get_mut(key) {
            delivery.reads += 1;
            delivery.taken += more;
            if delivery.taken == met.len {
                self.reading.pop_front();
            }
        }
        true
    }
}
