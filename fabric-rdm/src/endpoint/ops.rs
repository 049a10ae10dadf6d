//! What an endpoint keeps of operations, messages and receives until they end.

use fabric::{Grant, OwnedOp, OwnedSlice, PendingGrant};
use fabric_core::{RemoteRegion, Result};
use smallvec::SmallVec;

use super::completion::Kind;
use super::op::{PayloadRef, Send};
use super::table::OpKey;
use super::wire::{MessageHead, Way};
use crate::matching::{Envelope, Match, MessageId, ReceiveId};
use crate::peers::Peer;
use crate::window::Account;

/// An operation to a peer.
pub(super) struct SendOp {
    pub(super) peer: Peer,
    pub(super) context: u64,
    pub(super) kind: Kind,
    pub(super) signaled: bool,
    pub(super) len: u64,
    pub(super) body: Body,
    /// Operations of `fabric` that carry it and have not completed.
    pub(super) posts: u32,
    /// Its payload is not at the target.
    pub(super) waits_payload: bool,
    /// The target is to say that it has met a receive, and has not.
    pub(super) waits_match: bool,
}

impl SendOp {
    /// One that has not begun.
    pub(super) fn new(
        peer: Peer,
        (context, signaled): (u64, bool),
        kind: Kind,
        len: u64,
        body: Body,
    ) -> Self {
        let (posts, waits_payload, waits_match) = (0, false, false);
        SendOp { peer, context, kind, signaled, len, body, posts, waits_payload, waits_match }
    }

    /// Whether it has to get a place in the window.
    pub(super) fn lacks_place(&self) -> bool {
        match &self.body {
            Body::Message(message) => message.charged.is_none(),
            Body::Notified(_, is_charged) => !is_charged,
            Body::OneSided(_) | Body::Posted => false,
        }
    }

    /// The bytes that count in the window.
    pub(super) fn window_len(&self) -> u64 {
        if let Body::Notified(..) = self.body { 0 } else { self.len }
    }

    /// It has its place, for a message to go this way.
    pub(super) fn give_place(&mut self, way: Way) {
        match &mut self.body {
            Body::Message(message) => message.charged = Some(way),
            Body::Notified(_, is_charged) => *is_charged = true,
            Body::OneSided(_) | Body::Posted => {}
        }
    }

    /// It has no place any more; says whether it had one, and for which way.
    pub(super) fn take_place(&mut self) -> Option<Way> {
        match &mut self.body {
            Body::Message(message) => message.charged.take(),
            Body::Notified(_, is_charged) => std::mem::take(is_charged).then_some(Way::Whole),
            Body::OneSided(_) | Body::Posted => None,
        }
    }
}

/// What is needed of an operation that was not posted at once, or not all of it.
pub(super) enum Body {
    Message(Box<Outgoing>),
    OneSided(Box<OwnedOp>),
    /// A write with immediate data: like a message without bytes it needs a place in the window, and has it or not.
    Notified(Box<OwnedOp>, bool),
    /// All that is needed of it was posted.
    Posted,
}

/// A message on its way.
#[derive(Default)]
pub(super) struct Outgoing {
    pub(super) tag: Option<u64>,
    pub(super) immediate: Option<u32>,
    pub(super) matched: bool,
    pub(super) fence: bool,
    pub(super) source: Source,
    /// Once it was sent.
    pub(super) number: u64,
    /// The window has a place for it.
    pub(super) charged: Option<Way>,
    /// Bytes that were sent in pieces.
    pub(super) taken: u64,
    /// By which the target reads it.
    pub(super) grant: GrantState,
}

#[derive(Default)]
pub(super) enum GrantState {
    #[default]
    None,
    Pending(PendingGrant),
    Open(#[allow(dead_code)] Grant), // revoked by its drop
}

/// What holds the payload: a slice, or bytes, for which it keeps the memory that it had.
#[derive(Default)]
pub(super) struct Source {
    pub(super) slice: Option<OwnedSlice>,
    bytes: SmallVec<[u8; 64]>,
}

impl Outgoing {
    /// Makes it what is posted, with its payload held.
    pub(super) fn renew(&mut self, send: &Send<'_>, charged: Option<Way>) -> Result<()> {
        self.clear();
        self.source.hold(send.payload)?;
        (self.tag, self.immediate, self.matched) = (send.tag, send.immediate, send.matched);
        (self.fence, self.number, self.taken, self.charged) = (send.fence, 0, 0, charged);
        Ok(())
    }

    /// Lets go of the payload.
    pub(super) fn clear(&mut self) {
        self.source.slice = None;
        self.source.bytes.clear();
        self.grant = GrantState::None;
    }

    pub(super) fn head(&self, len: u64, way: Way) -> MessageHead {
        let Outgoing { number, tag, immediate, matched, .. } = *self;
        MessageHead { number, tag, immediate, len, matched, way }
    }
}

impl Source {
    /// Holds payload that is needed beyond the post.
    fn hold(&mut self, payload: PayloadRef<'_>) -> Result<()> {
        match payload {
            PayloadRef::Slice(slice) => self.slice = Some(slice.hold()?),
            PayloadRef::Bytes(bytes) => self.bytes.extend_from_slice(bytes),
        }
        Ok(())
    }

    pub(super) fn payload(&self) -> PayloadRef<'_> {
        match &self.slice {
            Some(slice) => PayloadRef::Slice(slice.as_slice()),
            None => PayloadRef::Bytes(&self.bytes),
        }
    }

    /// A part of it, which has so many bytes.
    pub(super) fn part(&self, start: usize, len: usize) -> PayloadRef<'_> {
        match self.payload() {
            PayloadRef::Slice(slice) => PayloadRef::Slice(slice.slice(start..start + len)),
            PayloadRef::Bytes(bytes) => PayloadRef::Bytes(&bytes[start..start + len]),
        }
    }
}

/// A posted receive.
pub(super) struct RecvOp {
    pub(super) context: u64,
    pub(super) signaled: bool,
    pub(super) into: OwnedSlice,
    /// In the matcher, once it is there.
    pub(super) id: Option<ReceiveId>,
}

/// A message that has not met a receive.
pub(super) struct Arrival {
    /// In the matcher; none once the application claimed it.
    pub(super) id: Option<MessageId>,
    pub(super) envelope: Envelope,
    pub(super) number: u64,
    pub(super) immediate: Option<u32>,
    /// The sender waits for its match.
    pub(super) wants_match: bool,
    /// What it uses of the window; nothing, if it is the endpoint's own.
    pub(super) account: Option<(Account, u64)>,
    pub(super) payload: Payload,
}

/// Where the payload of a message is that has not met a receive.
pub(super) enum Payload {
    /// Here.
    Whole(Box<[u8]>),
    /// Some of it is here, the rest comes.
    Partial(Vec<u8>),
    /// At its sender; and where it can be read, in which session of the connection.
    AtSender(Option<(u64, RemoteRegion)>),
    /// In an operation of this endpoint to itself.
    Own(OpKey),
}

/// A message and the receive that it met.
#[derive(Clone, Copy)]
pub(super) struct Met {
    pub(super) recv: OpKey,
    /// In the matcher; none of a message that was claimed.
    pub(super) receive: Option<ReceiveId>,
    pub(super) of_many: bool,
    pub(super) envelope: Envelope,
    /// Where in the receive's buffer, and how many bytes go there.
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl<P> From<Match<OpKey, P>> for Met {
    fn from(met: Match<OpKey, P>) -> Self {
        let Match { receive, context: recv, envelope, offset, len, of_many, .. } = met;
        Met { recv, receive: Some(receive), of_many, envelope, offset, len }
    }
}

/// A message that has met a receive, and whose payload is not all there.
pub(super) struct Delivery {
    pub(super) met: Met,
    pub(super) number: u64,
    pub(super) immediate: Option<u32>,
    /// Bytes that have come, or for which a read was posted.
    pub(super) taken: u64,
    /// Reads that have not completed.
    pub(super) reads: u32,
    /// Where the payload can be read.
    pub(super) remote: Option<RemoteRegion>,
    pub(super) account: Option<(Account, u64)>,
}

/// A message of a peer whose payload is not all there, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    Arrival(OpKey),
    Delivery(OpKey),
    /// It is not wanted, and so many bytes of it come. Until then it has its place: so these are bounded.
    Dropped {
        left: u64,
        place: Option<(Account, u64)>,
    },
}
