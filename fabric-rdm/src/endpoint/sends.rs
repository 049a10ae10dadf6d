//! Posting to peers: messages and one-sided operations, and their ends.

use fabric::{Access, Completion as RawCompletion, Op, OpKind};
use fabric_core::{Error, Status as RawStatus, cold_path, likely, unlikely};

use super::completion::{Kind, Status};
use super::core::Core;
use super::link::{PeerLink, PostedKind};
use super::op::{PayloadRef, Send};
use super::ops::{Body, SendOp};
use super::post_error::{Full, PostError};
use super::posting::How;
use super::shared::Shared;
use super::table::OpKey;
use super::wire::{HEAD, MessageHead, Way};
use crate::peers::Peer;
use crate::window::Blocked;

impl Core {
    /// Posts a message.
    pub(super) fn post_send(&mut self, peer: Peer, send: &Send<'_>) -> Result<OpKey, PostError> {
        self.check_send()?;
        let payload = send.payload;
        let len = match payload {
            PayloadRef::Slice(slice) => {
                self.shared.domain.check_slice("send", slice, Access::empty())?;
                slice.len() as u64
            }
            PayloadRef::Bytes(bytes) => self.check_inject(bytes)?,
        };
        if unlikely(self.own.peer == Some(peer)) {
            return self.send_to_self(peer, send, len);
        }
        let (link, shared) = self.link_to_post(peer)?;
        let charged = match link.place(shared, len) {
            Ok(charged) => charged,
            Err(blocked) => {
                cold_path();
                // Nothing else might say that more is wanted: the application may only post, and wait for room.
                self.after_post();
                return Err(Full::Peer(blocked).into());
            }
        };
        let what = (send.context, send.signaled);
        let op = |body| SendOp::new(peer, what, Kind::Send, len, body);
        let is_first = link.is_clear();
        if charged == Some(Way::Whole) && is_first {
            let head = MessageHead {
                number: 0,
                tag: send.tag,
                immediate: send.immediate,
                len,
                matched: send.matched,
                way: Way::Whole,
            };
            let waits_match = send.matched;
            let key =
                shared.sends.insert_with(|| SendOp { posts: 1, waits_match, ..op(Body::Posted) });
            let how = How { fence: send.fence, lazy: !send.signaled && !send.matched };
            let sent = link.transmit_now(shared, key, head, (payload, how));
            if let Ok(true) = sent {
                link.track(key);
                shared.sends_out += 1;
                self.after_post();
                return Ok(key);
            }
            cold_path();
            shared.sends.remove(key);
            sent.inspect_err(|_| link.uncharge(charged, len))?;
        }
        let body =
            shared.keep_message(send, charged).inspect_err(|_| link.uncharge(charged, len))?;
        let key = shared.sends.insert(op(body));
        match charged {
            Some(_) => link.submit(shared, key),
            None => {
                // It waits for its place.
                link.uncharged += 1;
                link.enqueue(shared, key);
            }
        }
        shared.sends_out += 1;
        self.after_post();
        Ok(key)
    }

    /// Posts a one-sided operation.
    pub(super) fn post_one_sided(&mut self, peer: Peer, op: &Op<'_>) -> Result<OpKey, PostError> {
        self.check_send()?;
        let kind = match op.kind() {
            OpKind::Write => Kind::Write,
            OpKind::Read => Kind::Read,
            OpKind::Atomic => Kind::Atomic,
            _ => return Err(Error::invalid("post", "a message is posted by `send`").into()),
        };
        if self.own.peer == Some(peer) {
            return self.post_to_self(peer, op, kind);
        }
        let notifies = kind == Kind::Write && op.get_immediate().is_some();
        let (link, shared) = self.link_to_post(peer)?;
        let what = (op.get_context(), op.is_signaled());
        let one_sided = |body| SendOp::new(peer, what, kind, op.len() as u64, body);
        // The target's completion takes the place of a message without bytes; `Some(None)`: there is none yet.
        let charged = match notifies.then(|| link.place(shared, 0)).transpose() {
            Ok(charged) => charged,
            Err(blocked) => {
                self.after_post();
                return Err(Full::Peer(blocked).into());
            }
        };
        if link.is_clear() && charged != Some(None) {
            let key = shared.sends.insert_with(|| SendOp { posts: 1, ..one_sided(Body::Posted) });
            match link.post_direct(shared, key, op) {
                Ok(true) => {
                    if charged.is_some() {
                        let _ = link.connection.next_number();
                    }
                    link.track(key);
                    shared.sends_out += 1;
                    self.after_post();
                    return Ok(key);
                }
                Ok(false) => drop(shared.sends.remove(key)),
                Err(error) => {
                    shared.sends.remove(key);
                    link.uncharge(charged.flatten(), 0);
                    return Err(error.into());
                }
            }
        }
        let kept =
            shared.keep_op(&op.signaled()).inspect_err(|_| link.uncharge(charged.flatten(), 0))?;
        let body = match charged {
            None => Body::OneSided(kept),
            Some(charged) => {
                link.uncharged += u64::from(charged.is_none());
                Body::Notified(kept, charged.is_some())
            }
        };
        let key = shared.sends.insert(one_sided(body));
        link.enqueue(shared, key);
        shared.sends_out += 1;
        self.after_post();
        Ok(key)
    }

    /// Whether a post would find room: of a message to that peer, or of a receive.
    pub(super) fn has_room(&self, peer: Option<Peer>) -> bool {
        let attr = &self.shared.attr;
        let Some(peer) = peer else { return self.shared.recvs_out < attr.recv_depth };
        if self.shared.sends_out >= attr.send_depth {
            return false;
        }
        if self.own.peer == Some(peer) {
            // Where there is none, writes with data alone are refused.
            return self.own.death.is_some() || self.shared.has_place_of_own();
        }
        // A post to a peer that is gone, or down, fails at once.
        let Ok((_, Some(link))) = self.peers.get(peer) else { return true };
        match &link.window {
            _ if link.connection.death().is_some() => true,
            Some(window) if link.charges_at_once() => window.is_open(),
            _ => link.may_wait(&self.shared),
        }
    }

    fn check_send(&self) -> Result<(), PostError> {
        self.check_device()?;
        let Shared { sends_out, attr, .. } = &self.shared;
        if *sends_out < attr.send_depth { Ok(()) } else { Err(Full::Depth.into()) }
    }

    /// The link to a peer that is not down, which is used now.
    fn link_to_post(&mut self, peer: Peer) -> Result<(&mut PeerLink, &mut Shared), PostError> {
        let (link, shared) = self.link(peer)?;
        link.check_alive()?;
        link.touch(shared);
        Ok((link, shared))
    }

    /// What a post has changed beside its link.
    fn after_post(&mut self) {
        if !self.shared.dirty.is_empty() {
            self.pump();
        }
    }

    fn check_inject(&self, bytes: &[u8]) -> Result<u64, Error> {
        let (len, max) = (bytes.len(), self.max_inject());
        if len > max {
            let detail = format!("{len} bytes to inject; the endpoint takes {max}");
            return Err(Error::invalid("send", detail));
        }
        Ok(len as u64)
    }

    /// The most bytes that a message to inject has.
    pub(super) fn max_inject(&self) -> usize {
        self.shared.connection_attr.inject - HEAD
    }

    /// An operation of a send queue has completed.
    pub(super) fn on_sent(&mut self, number: u64, completion: &RawCompletion) {
        let Some(&(peer, id)) = self.shared.conns.get(completion.endpoint) else {
            cold_path();
            return self.on_own_sent(number, completion);
        };
        let Some((link, shared)) = self.find_link(peer) else { return };
        let Some(conn) = link.conn(id) else { return };
        conn.has_failed |= !completion.is_ok();
        let Some(posted) = conn.completed(number) else { return };
        posted.head.into_iter().for_each(|head| shared.heads.give_back(head));
        match posted.what {
            PostedKind::Op(key) => link.on_op(shared, key, completion.status),
            PostedKind::Read(key) => link.on_read(shared, key, completion.is_ok()),
            PostedKind::Park if completion.is_ok() => {
                cold_path();
                link.connection.park_completed(shared.now(), id);
            }
            PostedKind::Control | PostedKind::Park => {}
        }
        // There is room for one more.
        if unlikely(
            link.wants_connection() || link.draining || link.grant.is_some() || link.has_notice(),
        ) {
            link.mark(shared);
        }
        if link.conn(id).is_some_and(|conn| conn.is_lost && conn.posted.is_empty()) {
            cold_path();
            self.on_lost(completion.endpoint);
        }
    }
}

impl PeerLink {
    fn check_alive(&self) -> Result<(), PostError> {
        match self.connection.death() {
            Some(cause) => Err(PostError::PeerDown(cause)),
            None => Ok(()),
        }
    }

    /// A place in the window for a message that is posted; `None`: it gets one later.
    #[inline]
    fn place(&mut self, shared: &mut Shared, len: u64) -> Result<Option<Way>, Blocked> {
        if likely(self.charges_at_once()) {
            let charged = self.charge(shared, len);
            if unlikely(self.has_notice()) {
                self.mark(shared);
            }
            return charged.map(Some);
        }
        if self.may_wait(shared) {
            return Ok(None);
        }
        self.ask(shared);
        Err(Blocked::Window)
    }

    /// One more message was refused: without a connection nothing would be heard of places that are free again.
    fn ask(&mut self, shared: &mut Shared) {
        if self.current.is_none() || self.draining {
            self.asks = true;
            self.mark(shared);
        }
    }

    /// A message is not sent after all.
    pub(super) fn uncharge(&mut self, charged: Option<Way>, len: u64) {
        if let (Some(way), Some(window)) = (charged, &mut self.window) {
            window.take_back(if way == Way::Fetched { 0 } else { len });
        }
    }

    /// Places were given to messages that did not go out on this connection: those that the next one gives are others.
    pub(super) fn uncharge_queue(&mut self, shared: &mut Shared) {
        for at in 0..self.queue.len() {
            let key = self.queue[at];
            let Some(op) = shared.sends.get_mut(key) else { continue };
            if let Some(charged) = op.take_place() {
                let len = op.window_len();
                self.uncharge(Some(charged), len);
                self.uncharged += 1;
            }
        }
    }

    /// Posts an operation, or has it wait behind those before it.
    fn submit(&mut self, shared: &mut Shared, key: OpKey) {
        if self.is_clear() && self.transmit_op(shared, key) {
            self.track(key);
            self.mark(shared);
        } else {
            self.enqueue(shared, key);
        }
    }

    /// Has an operation wait behind those before it.
    fn enqueue(&mut self, shared: &mut Shared, key: OpKey) {
        self.track(key);
        self.queue.push_back(key);
        self.mark(shared);
    }

    /// One of the operations of `fabric` that carry an operation has completed.
    fn on_op(&mut self, shared: &mut Shared, key: OpKey, status: RawStatus) {
        if let Some(op) = shared.sends.get_mut(key) {
            op.posts = op.posts.saturating_sub(1);
        }
        let status = match status {
            RawStatus::Ok => return self.end_if_done(shared, key),
            // The connection is over: what becomes of its operations follows, all at once and in their order.
            RawStatus::PeerLost | RawStatus::Canceled => return cold_path(),
            RawStatus::RemoteAccess => Status::RemoteAccess,
            _ => Status::Internal,
        };
        cold_path();
        self.refused = true;
        self.end_op(shared, key, status);
    }

    /// Ends an operation if nothing of it is under way.
    pub(super) fn end_if_done(&mut self, shared: &mut Shared, key: OpKey) {
        let is_done = shared.sends.get(key).is_some_and(|op| {
            op.posts == 0
                && !op.waits_payload
                && !op.waits_match
                && !matches!(op.body, Body::Message(_))
        });
        if is_done {
            self.end_op(shared, key, Status::Ok);
        }
    }

    /// Ends an operation.
    pub(super) fn end_op(&mut self, shared: &mut Shared, key: OpKey, status: Status) {
        if let Some(op) = shared.sends.remove(key) {
            shared.end_send(op, status);
            let sends = &shared.sends;
            self.untrack(|key| sends.get(key).is_some());
        }
    }
}
