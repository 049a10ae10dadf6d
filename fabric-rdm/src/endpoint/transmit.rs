//! Sending: what a link has for its connection, as far as there is room in it.

use fabric::{Access, Op};
use fabric_core::{Error, RemoteRegion};

use super::attr::CONTROL_DEPTH;
use super::link::{Control, PeerLink, PostedKind};
use super::op::PayloadRef;
use super::ops::{Body, GrantState, Outgoing, SendOp};
use super::posting::{How, Sent, has_to_wait};
use super::shared::Shared;
use super::table::OpKey;
use super::wire::{DATA_HEAD, Frame, HEAD, MessageHead, Way};
use crate::window::{Blocked, Grant, SendWindow, Sending};

impl SendOp {
    /// The connection is no more by which the target would have read its payload.
    pub(super) fn forget_grant(&mut self) {
        if let Body::Message(message) = &mut self.body {
            message.grant = GrantState::None;
        }
    }
}

impl PeerLink {
    /// How a message of this length goes if the window lets it.
    fn way_of(&self, shared: &Shared, len: u64) -> Way {
        if len.saturating_add(HEAD as u64) <= self.peer_slot {
            Way::Whole
        } else if len < shared.attr.rendezvous {
            Way::Pieces
        } else {
            Way::Fetched
        }
    }

    /// A place in the peer's window for a message.
    pub(super) fn charge(&mut self, shared: &Shared, len: u64) -> Result<Way, Blocked> {
        let way = self.way_of(shared, len);
        let bytes = if way == Way::Fetched { 0 } else { len };
        let Some(window) = &mut self.window else { return Err(Blocked::Places) };
        Ok(match window.post(bytes)? {
            Sending::Eager => way,
            Sending::EnvelopeOnly => Way::Fetched,
        })
    }

    /// The receiver's word on what the peer may send is newer.
    pub(super) fn add_grant(&mut self, mut grant: Grant) {
        if let Some(older) = self.grant {
            grant.places.recall |= older.places.recall;
            grant.bytes.recall |= older.bytes.recall;
        }
        self.grant = Some(grant);
    }

    /// Confirms a connection, if one is to be.
    fn transmit_confirm(&mut self, shared: &mut Shared) {
        let Some(id) = self.confirm else { return };
        let windows = shared.own_windows().to_bytes();
        let frame = Frame::Confirm.encode();
        let bytes = [frame.as_bytes(), &windows, &shared.address].concat();
        // With many rails it is too long to be injected.
        let Ok((number, head)) = shared.heads.write(&bytes) else {
            self.sent(shared, Some(id), Err(Error::Again));
            return;
        };
        let op = Op::send(head.slice(bytes.len()));
        let what = (PostedKind::Control, Some(number));
        let sent =
            self.post_by(Some(id), shared, what, |context, to| to.post(&op.context(context)));
        if sent == Sent::Yes {
            self.confirm = None;
        }
    }

    /// Sends all that can be sent.
    pub(super) fn transmit(&mut self, shared: &mut Shared) {
        self.lacks_room = false;
        self.transmit_confirm(shared);
        if self.current.is_none() || self.park_sent || self.transmit_controls(shared) == Sent::No {
            return;
        }
        if self.send_park && self.is_finished() {
            let freed = self.account.map_or(0, |account| shared.windows.take_freed(account));
            let encoded = Frame::Park(freed).encode();
            let sent =
                self.post_bytes(shared, (PostedKind::Park, How::default()), encoded.as_bytes());
            (self.send_park, self.park_sent) = (sent == Sent::No, sent == Sent::Yes);
            if let Some(id) = self.current.filter(|_| self.park_sent) {
                self.connection.park_sent(id);
            }
            return;
        }
        loop {
            let read = self.transmit_read(shared);
            let piece = self.transmit_piece(shared);
            let may = !self.draining || self.drain_left > 0;
            let queued = may && self.transmit_queued(shared);
            self.drain_left = self.drain_left.saturating_sub(usize::from(queued));
            if !read && !piece && !queued {
                break;
            }
        }
        if self.drain_left > 0 && self.has_room(shared, CONTROL_DEPTH as usize) {
            // The target took back what the next one needs.
            self.drain_left = 0;
        }
        if !self.draining
            && let Some(notices) = self.window.as_ref().and_then(SendWindow::notice)
            && self.has_room(shared, 0)
            && self.send_control(shared, Frame::Notice(notices))
            && let Some(window) = &mut self.window
        {
            window.take_notice();
        }
    }

    /// Whether the receiver is to be sent something about the window.
    pub(super) fn has_notice(&self) -> bool {
        self.window.as_ref().is_some_and(|window| window.notice().is_some())
    }

    /// How many of the queue have all that they need: the first ones.
    pub(super) fn sendable(&self, shared: &Shared) -> usize {
        let mut places = self.window.as_ref().map_or(0, SendWindow::places);
        let may_go = |key: &&OpKey| {
            if shared.sends.get(**key).is_some_and(SendOp::lacks_place) {
                places = places.wrapping_sub(1);
                return places != u64::MAX;
            }
            true
        };
        self.queue.iter().take_while(may_go).count()
    }

    fn transmit_controls(&mut self, shared: &mut Shared) -> Sent {
        self.open_grants(shared);
        while let Some(control) = self.controls.front() {
            let frame = match *control {
                Control::Fetch(number) => Frame::Fetch(number),
                Control::Offer(number, remote) => Frame::Offer(number, remote),
                Control::Done(number) => Frame::Done(number),
                Control::Matched(number) => Frame::Matched(number),
            };
            if !self.send_control(shared, frame) {
                return Sent::No;
            }
            self.controls.pop_front();
        }
        if let Some(grant) = self.grant
            && !(self.draining && self.has_granted)
        {
            if !self.send_control(shared, Frame::Grant(grant)) {
                return Sent::No;
            }
            (self.grant, self.has_granted) = (None, true);
        }
        Sent::Yes
    }

    /// Posts the next of what waits in the queue; whether something was posted, or ended.
    fn transmit_queued(&mut self, shared: &mut Shared) -> bool {
        let Some(&key) = self.queue.front() else { return false };
        let Some(op) = shared.sends.get_mut(key) else {
            // It was canceled.
            self.queue.pop_front();
            return true;
        };
        if op.lacks_place() {
            let len = op.window_len();
            let Ok(way) = self.charge(shared, len) else { return false };
            self.uncharged -= 1;
            if let Some(op) = shared.sends.get_mut(key) {
                op.give_place(way);
            }
        }
        let sent = self.transmit_op(shared, key);
        if sent {
            self.queue.pop_front();
        }
        sent
    }

    /// Posts an operation for the first time. False: there is no room.
    pub(super) fn transmit_op(&mut self, shared: &mut Shared, key: OpKey) -> bool {
        let Some(op) = shared.sends.get_mut(key) else { return true };
        let body = std::mem::replace(&mut op.body, Body::Posted);
        let len = op.len;
        match body {
            Body::OneSided(ref one_sided) | Body::Notified(ref one_sided, _) => {
                let sent = self.post(shared, (PostedKind::Op(key), None), |context, to| {
                    one_sided.post(to, context)
                });
                let is_sent = sent == Sent::Yes;
                if is_sent && let Body::Notified(..) = body {
                    // It counts among the messages, at both ends.
                    let _ = self.connection.next_number();
                }
                if let Some(op) = shared.sends.get_mut(key) {
                    op.posts = u32::from(is_sent);
                    if !is_sent {
                        op.body = body;
                        return false;
                    }
                }
                shared.let_go(body);
                is_sent
            }
            Body::Message(message) => {
                let (is_sent, body) = self.transmit_message(shared, key, len, message);
                if let Some(op) = shared.sends.get_mut(key) {
                    op.body = body;
                }
                is_sent
            }
            Body::Posted => true,
        }
    }

    /// Posts the beginning of a message, or all of it; gives back what is still needed of it.
    fn transmit_message(
        &mut self,
        shared: &mut Shared,
        key: OpKey,
        len: u64,
        mut message: Box<Outgoing>,
    ) -> (bool, Body) {
        // The number is used only if it is sent.
        let (_, sent, _) = self.connection.numbers();
        message.number = sent;
        // Without a place in the window it goes nowhere.
        let Some(way) = message.charged else { return (false, Body::Message(message)) };
        let posted = match way {
            Way::Whole => self.transmit_whole(shared, key, len, &message),
            Way::Pieces => {
                self.transmit_head(shared, (key, message.fence), &message.head(len, way))
            }
            Way::Fetched | Way::Offered(_) => {
                let offer = self.grant(shared, &mut message);
                let way = offer.map_or(Way::Fetched, Way::Offered);
                self.transmit_head(shared, (key, message.fence), &message.head(len, way))
            }
        };
        if posted == Sent::No {
            message.grant = GrantState::None;
            return (false, Body::Message(message));
        }
        let _ = self.connection.next_number();
        if message.matched || way == Way::Fetched {
            self.awaiting.insert(message.number, key);
        }
        if let Some(op) = shared.sends.get_mut(key) {
            op.posts += 1;
            op.waits_payload = way != Way::Whole;
            op.waits_match = message.matched;
        }
        match way {
            Way::Whole => {
                shared.let_go(Body::Message(message));
                (true, Body::Posted)
            }
            Way::Pieces => {
                self.serving.push_back(key);
                (true, Body::Message(message))
            }
            _ => (true, Body::Message(message)),
        }
    }

    fn transmit_head(
        &mut self,
        shared: &mut Shared,
        (key, fence): (OpKey, bool),
        head: &MessageHead,
    ) -> Sent {
        let encoded = Frame::Message(*head).encode();
        let how = How { fence, lazy: false };
        self.post_bytes(shared, (PostedKind::Op(key), how), encoded.as_bytes())
    }

    fn transmit_whole(
        &mut self,
        shared: &mut Shared,
        key: OpKey,
        len: u64,
        message: &Outgoing,
    ) -> Sent {
        let mut encoded = Frame::Message(message.head(len, Way::Whole)).encode();
        let how = How { fence: message.fence, lazy: false };
        let payload = (message.source.payload(), how);
        let posted = self.post_frame(shared, key, &mut encoded, payload);
        self.sent(shared, self.current, posted)
    }

    /// Posts a short message that was not kept, since nothing is before it. False: there is no room.
    ///
    /// # Errors
    /// The payload's memory was closed meanwhile.
    #[inline(always)] // one place that is executed for each message calls it
    pub(super) fn transmit_now(
        &mut self,
        shared: &mut Shared,
        key: OpKey,
        mut head: MessageHead,
        payload: (PayloadRef<'_>, How),
    ) -> Result<bool, Error> {
        let (_, sent, _) = self.connection.numbers();
        head.number = sent;
        let mut encoded = Frame::Message(head).encode();
        match self.post_frame(shared, key, &mut encoded, payload) {
            Ok(()) => {}
            Err(error) if has_to_wait(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
        let _ = self.connection.next_number();
        if head.matched {
            self.awaiting.insert(sent, key);
        }
        Ok(true)
    }

    /// Posts the next piece of a message that goes in pieces; whether it did.
    fn transmit_piece(&mut self, shared: &mut Shared) -> bool {
        let Some(&key) = self.serving.front() else { return false };
        let Some(op) = shared.sends.get_mut(key) else {
            self.serving.pop_front();
            return true;
        };
        let len = op.len;
        let body = std::mem::replace(&mut op.body, Body::Posted);
        let Body::Message(mut message) = body else {
            self.serving.pop_front();
            return true;
        };
        let mut encoded = Frame::Data(message.number).encode();
        let left = len - message.taken;
        let room = match message.source.payload() {
            PayloadRef::Bytes(_) => shared.connection_attr.inject as u64,
            PayloadRef::Slice(_) => self.peer_slot,
        };
        let piece = left.min(room - DATA_HEAD as u64);
        let part = message.source.part(message.taken as usize, piece as usize);
        let posted = self.post_frame(shared, key, &mut encoded, (part, How::default()));
        let is_sent = self.sent(shared, self.current, posted) == Sent::Yes;
        if is_sent {
            message.taken += piece;
        }
        let is_over = message.taken == len;
        let mut body = Body::Message(message);
        if is_over {
            shared.let_go(body);
            body = Body::Posted;
        }
        if let Some(op) = shared.sends.get_mut(key) {
            op.posts += u32::from(is_sent);
            op.waits_payload = !is_over;
            op.body = body;
        }
        if is_over {
            self.serving.pop_front();
        } else if is_sent {
            // The others have their turn.
            self.serving.rotate_left(1);
        }
        is_sent
    }

    /// Opens the payload of a message to its target, if the region it is in allows that. Nothing: it cannot be read (yet).
    pub(super) fn grant(
        &mut self,
        shared: &Shared,
        message: &mut Outgoing,
    ) -> Option<RemoteRegion> {
        let slice = message.source.slice.as_ref()?;
        let may = shared.has_grants
            && slice.as_slice().access().contains(Access::REMOTE_READ)
            && !slice.is_empty();
        let conn = if may { self.current() } else { None }?;
        let mut pending = slice.begin_grant(&conn.endpoint, Access::REMOTE_READ).ok()?;
        match pending.poll() {
            Ok(Some(grant)) => {
                let remote = grant.remote();
                message.grant = GrantState::Open(grant);
                Some(remote)
            }
            Ok(None) => {
                message.grant = GrantState::Pending(pending);
                None
            }
            Err(_) => None,
        }
    }
}
