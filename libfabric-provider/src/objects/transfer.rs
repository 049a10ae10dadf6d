//! Transfers, as C names them, and what their calls need of an endpoint.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use fabric::{Access, RemoteRegion, RemoteSlice, Slice};
use smallvec::SmallVec;

use super::region::MemoryRegion;
use crate::abi::FidEp;
use crate::abi::flags::{
    FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_FENCE, FI_INJECT, FI_INJECT_COMPLETE,
    FI_MATCH_COMPLETE, FI_MORE, FI_READ, FI_REMOTE_CQ_DATA, FI_SEND, FI_TRANSMIT_COMPLETE,
    FI_WRITE,
};
use crate::errno::Errno;
use crate::handle::Object;

/// Part of an operation's local memory: a buffer, and the region that it is in, where the application names one.
#[derive(Clone, Copy)]
pub(crate) struct Buffer<'a> {
    pub(crate) address: usize,
    pub(crate) len: usize,
    pub(crate) region: Option<&'a Arc<MemoryRegion>>,
}

/// The slices of an operation; more than this many go to the heap.
pub(super) type SliceList<'a> = SmallVec<[Slice<'a>; 4]>;

/// The parts of regions that buffers are; a buffer of no bytes needs no region.
#[inline]
pub(super) fn slices<'a>(buffers: &[Buffer<'a>]) -> Result<SliceList<'a>, Errno> {
    let mut slices = SliceList::new();
    for buffer in buffers {
        match buffer.region {
            _ if buffer.len == 0 => {}
            Some(region) => slices.push(region.slice(buffer.address, buffer.len)?),
            None => return Err(Errno::INVALID),
        }
    }
    Ok(slices)
}

/// What is transmitted.
#[derive(Clone, Copy)]
pub(crate) enum Transmit<'a> {
    /// These buffers.
    Buffers(&'a [Buffer<'a>]),
    /// A copy of these bytes.
    Bytes(&'a [u8]),
}

/// Where a one-sided operation goes.
#[derive(Clone, Copy)]
pub(crate) struct Remote {
    pub(crate) address: u64,
    pub(crate) key: u64,
}

/// What a transmit has beside its bytes.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) flags: u64,
    pub(crate) data: u64,
    pub(crate) context: u64,
    /// Whom an address vector names so; of connections, nothing.
    pub(crate) peer: u64,
}

impl Options {
    pub(crate) fn new(peer: u64, context: u64) -> Self {
        Options { flags: 0, data: 0, context, peer }
    }

    pub(crate) fn data(self, data: u64) -> Self {
        Options { flags: self.flags | FI_REMOTE_CQ_DATA, data, ..self }
    }
}

/// Kinds of transmits.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Send,
    /// With this tag.
    Tagged(u64),
    Write(Remote),
    Read(Remote),
}

/// A receive.
pub(crate) struct Receive<'a> {
    pub(crate) buffers: &'a [Buffer<'a>],
    /// The only peer whose messages it takes, if its endpoint has more than one.
    pub(crate) from: u64,
    /// The tag, and the bits of it that are ignored.
    pub(crate) tag: Option<(u64, u64)>,
    pub(crate) flags: u64,
    pub(crate) context: u64,
}

/// What calls of transfers need of an endpoint of either kind.
pub(crate) trait Transfers: Object<C = FidEp> {
    /// The flags of operations of a side that have none of their own.
    fn op_flags(&self) -> &[AtomicU64; 2];
    /// The bytes of an inject, at most.
    fn inject_size(&self) -> usize;
    /// Whether descriptors say where buffers are; else they are ignored, and may be anything (`fi_mr(3)`, `FI_MR_LOCAL`).
    fn takes_descriptors(&self) -> bool {
        true
    }
    /// Whether a transmit of these buffers is one of a copy of them, though the application does not ask for that.
    fn takes_copy(&self, _kind: Kind, _buffers: &[Buffer<'_>]) -> bool {
        false
    }
    /// Posts a transmit, with the flags that it has.
    fn transmit(&self, kind: Kind, what: Transmit<'_>, options: Options) -> Result<(), Errno>;
    /// Posts a transmit of bytes that are free again when this returns, and that has no completion.
    fn inject(&self, kind: Kind, bytes: &[u8], options: Options) -> Result<(), Errno>;
    /// Posts a receive.
    fn receive(&self, receive: &Receive<'_>) -> Result<(), Errno>;
}

/// What a transmit may have. `FI_DELIVERY_COMPLETE` is more than a completion means for writes only: a message is seen by the
/// completion of its receive, and a read is complete when it is here.
const FLAGS: u64 = FI_COMPLETION
    | FI_MORE
    | FI_FENCE
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_REMOTE_CQ_DATA;

/// What a receive may have: its completion means that the message is here.
pub(super) const RECEIVE_FLAGS: u64 = FI_COMPLETION | FI_MORE | FI_TRANSMIT_COMPLETE;

impl Kind {
    /// The flags that it does not take.
    pub(super) fn forbidden(self, flags: u64) -> u64 {
        let not_of_reads = FI_INJECT | FI_REMOTE_CQ_DATA;
        let taken = if matches!(self, Kind::Read(_)) { FLAGS & !not_of_reads } else { FLAGS };
        flags & !taken
    }

    /// Of the flags that an endpoint has for all its operations those that hold for one of this kind.
    pub(crate) fn usual(self, flags: u64) -> u64 {
        match self {
            Kind::Send | Kind::Tagged(_) => flags,
            Kind::Write(_) => flags & !FI_MATCH_COMPLETE,
            Kind::Read(_) => flags & !(FI_MATCH_COMPLETE | FI_INJECT),
        }
    }

    /// As counters name it.
    pub(super) fn counted(self) -> u64 {
        match self {
            Kind::Send | Kind::Tagged(_) => FI_SEND,
            Kind::Write(_) => FI_WRITE,
            Kind::Read(_) => FI_READ,
        }
    }
}

impl Remote {
    /// The target checks the range; what it is, is not known here.
    pub(super) fn place(self) -> RemoteSlice {
        RemoteRegion::from_parts(self.key, 0, u64::MAX, Access::REMOTE).at(self.address)
    }
}
