//! Transfers: from what C names to operations of ours.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use fabric::{Access, Op, RemoteRegion, RemoteSlice, Slice};
use smallvec::SmallVec;

use super::bound::{RX, TX};
use super::endpoint::{Enabled, MessageEndpoint};
use super::marks;
use super::region::MemoryRegion;
use crate::abi::FidEp;
use crate::abi::flags::{
    FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_EBADFLAGS, FI_FENCE, FI_INJECT, FI_INJECT_COMPLETE,
    FI_MORE, FI_READ, FI_REMOTE_CQ_DATA, FI_SEND, FI_TRANSMIT_COMPLETE, FI_WRITE,
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
type SliceList<'a> = SmallVec<[Slice<'a>; 4]>;

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

impl Kind {
    /// The flags that it does not take.
    pub(super) fn forbidden(self, flags: u64) -> u64 {
        let not_of_reads = FI_INJECT | FI_REMOTE_CQ_DATA;
        let taken = if matches!(self, Kind::Read(_)) { FLAGS & !not_of_reads } else { FLAGS };
        flags & !taken
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

impl Transfers for MessageEndpoint {
    #[inline]
    fn op_flags(&self) -> &[AtomicU64; 2] {
        &self.op_flags
    }

    #[inline]
    fn inject_size(&self) -> usize {
        self.wishes.inject
    }

    #[inline]
    fn transmit(&self, kind: Kind, what: Transmit<'_>, options: Options) -> Result<(), Errno> {
        let enabled = self.enabled()?;
        if kind.forbidden(options.flags) != 0 {
            return Err(Errno(FI_EBADFLAGS));
        }
        self.check_data(kind, options.flags)?;
        let wants = !enabled.is_selective[TX] || options.flags & FI_COMPLETION != 0;
        enabled.post(kind, what, options, wants)
    }

    #[inline]
    fn inject(&self, kind: Kind, bytes: &[u8], options: Options) -> Result<(), Errno> {
        self.check_data(kind, options.flags)?;
        let options = Options { context: marks::injected(), ..options };
        self.enabled()?.post(kind, Transmit::Bytes(bytes), options, false)
    }

    #[inline]
    fn receive(&self, receive: &Receive<'_>) -> Result<(), Errno> {
        let enabled = self.enabled()?;
        if receive.flags & !(FI_COMPLETION | FI_MORE) != 0 {
            return Err(Errno(FI_EBADFLAGS));
        }
        let is_silent = enabled.is_selective[RX] && receive.flags & FI_COMPLETION == 0;
        let context = if is_silent { marks::silent() } else { receive.context };
        let slices = slices(receive.buffers)?;
        Ok(enabled.endpoint.recv(&slices[..], context)?)
    }
}

impl MessageEndpoint {
    /// A write with data takes a receive of the peer's: only for applications that are prepared for that.
    fn check_data(&self, kind: Kind, flags: u64) -> Result<(), Errno> {
        let takes = flags & FI_REMOTE_CQ_DATA != 0 && matches!(kind, Kind::Write(_));
        if takes && !self.writes_data() { Err(Errno(libc::EOPNOTSUPP)) } else { Ok(()) }
    }
}

impl Enabled {
    #[inline]
    fn post(
        &self,
        kind: Kind,
        what: Transmit<'_>,
        options: Options,
        wants: bool,
    ) -> Result<(), Errno> {
        let slices = match what {
            Transmit::Buffers(buffers) => slices(buffers)?,
            Transmit::Bytes(_) => SliceList::new(),
        };
        let op = match (kind, what) {
            (Kind::Send, Transmit::Buffers(_)) => Op::send(&slices[..]),
            (Kind::Send, Transmit::Bytes(bytes)) => Op::inject(bytes),
            (Kind::Write(to), Transmit::Buffers(_)) => Op::write(&slices[..], to.place()),
            (Kind::Write(to), Transmit::Bytes(bytes)) => Op::inject_write(bytes, to.place()),
            (Kind::Read(from), Transmit::Buffers(_)) => Op::read(&slices[..], from.place()),
            (Kind::Read(_), Transmit::Bytes(_)) => return Err(Errno::INVALID),
            // A table of refusals has those calls.
            (Kind::Tagged(_), _) => return Err(Errno::NOT_THERE),
        };
        let mut op = op.context(options.context);
        if options.flags & FI_REMOTE_CQ_DATA != 0 {
            // As many bytes as the info's `cq_data_size` says.
            op = op.immediate(options.data as u32);
        }
        if options.flags & FI_FENCE != 0 {
            op = op.fence();
        }
        if options.flags & FI_DELIVERY_COMPLETE != 0 && matches!(kind, Kind::Write(_)) {
            op = op.delivery_complete();
        }
        if !wants {
            op = self.without_completion(op, kind);
        }
        Ok(self.endpoint.post(&op)?)
    }

    /// The same without a completion for the application; a counter needs ours.
    fn without_completion<'a>(&self, op: Op<'a>, kind: Kind) -> Op<'a> {
        if !self.tally.counts(kind.counted()) {
            return op.unsignaled();
        }
        if op.get_context() == marks::injected() { op } else { op.context(marks::silent()) }
    }
}

/// The parts of regions that buffers are; a buffer of no bytes needs no region.
#[inline]
fn slices<'a>(buffers: &[Buffer<'a>]) -> Result<SliceList<'a>, Errno> {
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
