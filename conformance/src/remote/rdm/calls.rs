//! The calls of one endpoint.

use fabric_rdm::matching::Pattern;
use fabric_rdm::{Address, Kind, OpId, PayloadRef, Peer, Probed, RdmAttr, Recv, Send};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// The type of an answer, where there is one, is in the documentation. Posts answer `Result<OpId, PostError>`.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) enum RdmCall {
    /// [`Address`]
    Make(Box<RdmAttr>),
    Drop,
    /// [`Peer`]
    Insert(Address),
    Remove(Peer),
    /// [`Address`]
    AddressOf(Peer),
    /// `Option<DeathCause>`
    Down(Peer),
    Revive(Peer),
    PostSend(Peer, RdmSend),
    PostRecv(RdmRecv),
    /// `bool`
    Cancel(OpId),
    /// `Option<Completion>`
    Poll,
    /// `Option<PeerEvent>`
    PollEvent,
    Progress,
    /// `u64`
    Arrived,
    /// `(u64, u64)`: successes and errors.
    Count(Kind),
    /// An error unless the counter is there, `TimedOut` if it can still come to that.
    Reached {
        kind: Kind,
        successes: u64,
        known_errors: u64,
    },
    /// `usize`
    MaxInject,
    /// `u32`
    Connections,
    /// `String`
    Dump,
    /// `Option<Probed>`
    Probe(Pattern),
    /// `bool`: whether it is claimed, by this name.
    Claim {
        claimed: u64,
        probed: Probed,
    },
    /// A post.
    Receive {
        claimed: u64,
        into: RdmSlice,
        context: u64,
    },
    /// What was claimed is dropped, if it was not received.
    Forget {
        claimed: u64,
    },
}

/// Part of a region, by the addresses of the near end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::remote) struct RdmSlice {
    pub(super) start: u64,
    pub(super) len: u64,
}

/// What a message's bytes are.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) enum RdmPayload {
    Inject(ByteBuf),
    At(RdmSlice),
}

/// A message.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) struct RdmSend {
    pub(super) payload: RdmPayload,
    tag: Option<u64>,
    immediate: Option<u32>,
    context: u64,
    matched: bool,
    signaled: bool,
}

/// A receive.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) struct RdmRecv {
    pattern: Pattern,
    pub(super) into: RdmSlice,
    min_free: Option<u64>,
    context: u64,
    signaled: bool,
}

impl From<fabric::Slice<'_>> for RdmSlice {
    fn from(slice: fabric::Slice<'_>) -> Self {
        RdmSlice { start: slice.addr() as u64, len: slice.len() as u64 }
    }
}

impl From<&Send<'_>> for RdmSend {
    fn from(send: &Send<'_>) -> Self {
        RdmSend {
            payload: match send.payload() {
                PayloadRef::Bytes(bytes) => RdmPayload::Inject(ByteBuf::from(bytes)),
                PayloadRef::Slice(slice) => RdmPayload::At(slice.into()),
            },
            tag: send.get_tag(),
            immediate: send.get_immediate(),
            context: send.get_context(),
            matched: send.is_matched(),
            signaled: send.is_signaled(),
        }
    }
}

impl RdmSend {
    /// The message again, with its payload at this end.
    pub(super) fn of<'a>(&self, payload: PayloadRef<'a>) -> Send<'a> {
        let mut send = match payload {
            PayloadRef::Bytes(bytes) => Send::inject(bytes),
            PayloadRef::Slice(slice) => Send::new(slice),
        };
        if let Some(tag) = self.tag {
            send = send.tag(tag);
        }
        if let Some(immediate) = self.immediate {
            send = send.immediate(immediate);
        }
        if self.matched {
            send = send.matched();
        }
        if !self.signaled {
            send = send.unsignaled();
        }
        send.context(self.context)
    }
}

impl From<&Recv<'_>> for RdmRecv {
    fn from(recv: &Recv<'_>) -> Self {
        RdmRecv {
            pattern: recv.pattern(),
            into: recv.slice().into(),
            min_free: recv.min_free(),
            context: recv.get_context(),
            signaled: recv.is_signaled(),
        }
    }
}

impl RdmRecv {
    /// The receive again, into memory at this end.
    pub(super) fn of<'a>(&self, into: fabric::Slice<'a>) -> Recv<'a> {
        let mut recv = Recv::new(self.pattern, into).context(self.context);
        if let Some(min_free) = self.min_free {
            recv = recv.of_many(min_free);
        }
        if !self.signaled {
            recv = recv.unsignaled();
        }
        recv
    }
}

#[cfg(test)]
impl RdmCall {
    /// One of each kind that carries something of its own.
    pub(in crate::remote) fn samples() -> impl Iterator<Item = RdmCall> {
        let peer = Peer::from_bits(7 << 32 | 8);
        let address = Address::of_listener(([192, 0, 2, 1], 7471).into()).unwrap();
        let part = RdmSlice { start: 1 << 47, len: 9 };
        let send = |payload| {
            let mut message = RdmSend::from(&Send::inject(b"").tag(1).immediate(2).matched());
            message.payload = payload;
            RdmCall::PostSend(peer, message)
        };
        let recv = RdmRecv {
            pattern: Pattern::tagged(3).ignoring(4).from(peer),
            into: part,
            min_free: Some(5),
            context: 6,
            signaled: false,
        };
        [
            RdmCall::Make(Box::default()),
            RdmCall::Insert(address),
            RdmCall::Down(peer),
            send(RdmPayload::Inject(vec![1; 96].into())),
            send(RdmPayload::At(part)),
            RdmCall::PostRecv(recv),
            RdmCall::Count(Kind::Released),
            RdmCall::Reached { kind: Kind::Send, successes: 1, known_errors: 2 },
            RdmCall::Probe(Pattern::untagged()),
            RdmCall::Receive { claimed: 1, into: part, context: 2 },
            RdmCall::Forget { claimed: 1 },
        ]
        .into_iter()
    }
}
