//! One-sided operations.

use fabric::{Access, Op};
use fabric_rdm::Peer;

use super::copies::Copied;
use super::enabled::RdmEnabled;
use super::memory::Memory;
use super::messages::DIRECT;
use super::pending::{Pending, Wants};
use crate::abi::flags::{
    FI_ATOMIC, FI_DELIVERY_COMPLETE, FI_FENCE, FI_READ, FI_REMOTE_CQ_DATA, FI_RMA, FI_WRITE,
};
use crate::errno::Errno;
use crate::objects::marks;
use crate::objects::transfer::{Options, Remote, Transmit};

impl RdmEnabled {
    pub(super) fn write(
        &self,
        peer: Peer,
        to: Remote,
        what: Transmit<'_>,
        options: Options,
        wants: Wants,
    ) -> Result<(), Errno> {
        let memory = match what {
            Transmit::Bytes(bytes) if bytes.len() <= DIRECT => {
                let op = Op::inject_write(bytes, to.place());
                return self.post_one_sided(peer, op, FI_WRITE | FI_RMA, options, wants, None);
            }
            Transmit::Bytes(bytes) => Memory::of_bytes(self, bytes)?,
            Transmit::Buffers(buffers) => Memory::of_message(self, buffers, Access::empty())?,
        };
        // SAFETY: the buffer is the operation's from this call on (fi_rma(3)); bytes to inject are for this call.
        unsafe { memory.load()? };
        let op = Op::write(memory.slice()?, to.place());
        self.post_one_sided(peer, op, FI_WRITE | FI_RMA, options, wants, memory.copied())
    }

    pub(super) fn read(
        &self,
        peer: Peer,
        from: Remote,
        what: Transmit<'_>,
        options: Options,
        wants: Wants,
    ) -> Result<(), Errno> {
        let Transmit::Buffers(buffers) = what else { return Err(Errno::INVALID) };
        let memory = Memory::of_message(self, buffers, Access::LOCAL_WRITE)?;
        let op = Op::read(memory.slice()?, from.place());
        self.post_one_sided(peer, op, FI_READ | FI_RMA, options, wants, memory.copied())
    }

    /// Posts an operation whose completion has these flags, and whose bytes may be copied.
    pub(super) fn post_one_sided(
        &self,
        peer: Peer,
        mut op: Op<'_>,
        flags: u64,
        options: Options,
        wants: Wants,
        copied: Option<Copied>,
    ) -> Result<(), Errno> {
        if options.flags & FI_REMOTE_CQ_DATA != 0 {
            // As many bytes as the info's `cq_data_size` says.
            op = op.immediate(options.data as u32);
        }
        let is_atomic = flags & FI_ATOMIC != 0;
        let is_fenced = match is_atomic {
            true => self.fenced & FI_ATOMIC != 0,
            false => flags & !self.fenced == 0,
        };
        let before = self.atomics.as_ref().and_then(|atomics| atomics.before(peer));
        if is_fenced || options.flags & FI_FENCE != 0 || before.is_some() {
            op = op.fence();
        }
        if options.flags & FI_DELIVERY_COMPLETE != 0 && flags == FI_WRITE | FI_RMA {
            op = op.delivery_complete();
        }
        if copied.is_none() && self.is_silent(wants, flags & (FI_READ | FI_WRITE)) {
            let op = op.unsignaled().context(marks::injected());
            self.endpoint.post(peer, &op).map_err(|error| self.refused(error))?;
        } else {
            let mut pending = Pending::new(options.context, flags, wants);
            pending.copied = copied;
            self.post(pending, |context| self.endpoint.post(peer, &op.context(context)))?;
        }
        if let Some(atomics) = &self.atomics {
            atomics.note(peer, is_atomic, before);
        }
        Ok(())
    }
}
