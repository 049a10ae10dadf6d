//! Transfers of message endpoints: from what C names to operations of ours.

use std::sync::atomic::AtomicU64;

use fabric::Op;

use super::bound::{RX, TX};
use super::endpoint::{Enabled, MessageEndpoint};
use super::marks;
use super::transfer::{
    Kind, Options, RECEIVE_FLAGS, Receive, SliceList, Transfers, Transmit, slices,
};
use crate::abi::flags::{
    FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_EBADFLAGS, FI_FENCE, FI_REMOTE_CQ_DATA,
};
use crate::errno::Errno;

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
        if receive.flags & !RECEIVE_FLAGS != 0 {
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
