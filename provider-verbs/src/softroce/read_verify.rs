//! Reads that may have been refused though their device says that they succeeded.
//!
//! Soft-RoCE (seen in Linux 6.1, no longer in 6.12) takes a refusal that comes in the midst of a read's answer, which it
//! does when a packet was lost and the region closed meanwhile, for a success: the read ends as if its bytes had come, and
//! its queue pair is in error. So the success of a read of several packets is believed if the queue pair is not in error,
//! or if a later completion shows that it was not then. If not, the read ends as one whose refusal got lost: `Canceled`, and
//! so does what is behind it. Such a read is always signaled; and before this side puts a queue pair in error, it takes
//! the completions that are there.

use fabric_core::work::total_len;
use fabric_core::{SendOp, SendWork, Side, Token};

use crate::ffi::{ibv_wc, ibv_wc_opcode, ibv_wc_status as status};

/// The minimum MTU (InfiniBand specification): a read of no more is answered by one packet, which has no midst.
const ONE_PACKET: u32 = 256;

/// A read that ended well by its completion, on a queue pair that is in error.
#[derive(Clone, Copy)]
pub(crate) struct UnverifiedRead {
    pub(crate) qp_number: u32,
    pub(crate) token: Token,
}

/// The unverified reads of a completion queue: of each queue pair one at most.
#[derive(Default)]
pub(crate) struct UnverifiedReads {
    reads: Vec<UnverifiedRead>,
    /// Some were added since the device was asked for completions last.
    added: bool,
}

impl UnverifiedReads {
    /// Whether a plain success is not to be passed on as it is.
    #[inline]
    pub(crate) fn concern(&self, wc: &ibv_wc) -> bool {
        is_long_read(wc) || !self.reads.is_empty()
    }

    pub(crate) fn add(&mut self, wc: &ibv_wc) {
        self.reads.push(UnverifiedRead { qp_number: wc.qp_num, token: Token::from_bits(wc.wr_id) });
        self.added = true;
    }

    /// The read that a later completion of its queue pair decides, and whether it succeeded: the queue pair was not in
    /// error then, unless the later request was flushed.
    pub(crate) fn settle(&mut self, wc: &ibv_wc) -> Option<(UnverifiedRead, bool)> {
        let own = !Token::is_internal(wc.wr_id);
        if own && Token::from_bits(wc.wr_id).side() == Side::Recv {
            return None;
        }
        let at = self.reads.iter().position(|read| read.qp_number == wc.qp_num)?;
        Some((self.reads.remove(at), wc.status != status::IBV_WC_WR_FLUSH_ERR))
    }

    /// Whether the device has to be asked once more, now that it had no further completion: what decides a read may have
    /// come between that and the look at its queue pair, which is put in error behind the completion of the cause.
    pub(crate) fn ask_again(&mut self) -> bool {
        std::mem::take(&mut self.added)
    }

    /// Takes one that no later completion can decide.
    pub(crate) fn pop(&mut self) -> Option<UnverifiedRead> {
        self.reads.pop()
    }
}

/// Whether a success may be a refusal in truth.
pub(crate) fn is_long_read(wc: &ibv_wc) -> bool {
    wc.opcode == ibv_wc_opcode::IBV_WC_RDMA_READ && wc.byte_len > ONE_PACKET
}

/// Whether an operation may end by such a success.
pub(crate) fn may_be_long_read(work: &SendWork<'_>) -> bool {
    matches!(work.op, SendOp::Read { .. }) && total_len(work.segments) > ONE_PACKET as usize
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;

    fn ended(token: u64, status: status::Type) -> ibv_wc {
        // SAFETY: numbers; zero is a value of each.
        let mut wc: ibv_wc = unsafe { MaybeUninit::zeroed().assume_init() };
        (wc.wr_id, wc.qp_num, wc.byte_len, wc.status) = (token, 7, 2047, status);
        wc.opcode = ibv_wc_opcode::IBV_WC_RDMA_READ;
        wc
    }

    #[test]
    fn what_decides_a_read_may_come_after_the_look_at_its_queue_pair() {
        let mut reads = UnverifiedReads::default();
        let read = ended(4, status::IBV_WC_SUCCESS);
        assert!(reads.concern(&read) && !reads.ask_again());
        reads.add(&read);
        // The device had no more when it was asked for this one; it has by now.
        assert!(reads.ask_again());
        let (settled, well) = reads.settle(&ended(5, status::IBV_WC_REM_ACCESS_ERR)).unwrap();
        assert!(settled.token == Token::from_bits(4) && well);
        assert!(!reads.ask_again() && reads.pop().is_none());
    }

    #[test]
    fn a_read_behind_which_all_is_flushed_or_nothing_comes_is_not_believed() {
        let mut reads = UnverifiedReads::default();
        reads.add(&ended(4, status::IBV_WC_SUCCESS));
        let (_, well) = reads.settle(&ended(5, status::IBV_WC_WR_FLUSH_ERR)).unwrap();
        assert!(!well);
        reads.add(&ended(6, status::IBV_WC_SUCCESS));
        assert!(reads.ask_again() && !reads.ask_again());
        assert!(reads.pop().is_some_and(|read| read.token == Token::from_bits(6)));
    }
}
