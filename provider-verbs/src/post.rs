//! From operations of the send queue to work requests.
//!
//! The usual post goes straight to the device. An operation that is emulated, and everything posted behind one, goes
//! through the connection's soft queue ([`SoftSendQueue`](fabric_util::emulate::SoftSendQueue)).

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use fabric_core::work::total_len;
use fabric_core::{AtomicOp, Error, Failure, Posted, Result, SendFlags, SendOp, SendWork};
use fabric_util::emulate::{CasDevice, CasRequest, SoftSendQueue};

use crate::chain::{Chain, Many, One};
use crate::conn::Conn;
use crate::error::NAME;
use crate::ffi::{ibv_send_flags, ibv_send_wr, ibv_wr_opcode as opcode};
use crate::softroce::read_verify::may_be_long_read;
use crate::tokens::InternalWr;
use crate::windows::Binding;

/// A request with nothing in it.
fn blank() -> ibv_send_wr {
    // SAFETY: numbers and pointers; zero is a value of each.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Whether no device has the operation.
pub(crate) fn must_emulate(op: &SendOp) -> bool {
    match op {
        SendOp::Atomic { call, .. } => {
            let native = match call.op {
                AtomicOp::Add => !call.ty.is_float(),
                AtomicOp::CompareSwap => true,
                _ => false,
            };
            !native || call.ty.size() != 8
        }
        SendOp::Send { .. } | SendOp::Write { .. } | SendOp::Read { .. } => false,
        _ => true,
    }
}

/// Posts all of the work, as much at a time as `post` takes, which is something.
pub(crate) fn in_turn<W>(work: &[W], mut post: impl FnMut(&[W]) -> Posted) -> Posted {
    let mut accepted = 0;
    while accepted < work.len() {
        let posted = post(&work[accepted..]);
        accepted += posted.accepted;
        if posted.refusal.is_some() {
            return Posted { accepted, ..posted };
        }
    }
    Posted::all(accepted)
}

impl Conn {
    /// Posts operations to the send queue.
    ///
    /// # Safety
    /// As [`EndpointOps::post_send`](fabric_core::EndpointOps::post_send).
    #[inline]
    pub(crate) unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted {
        // SAFETY: the caller's promise is passed on.
        unsafe {
            match work {
                [one]
                    if !self.soft_queue_active.load(Ordering::Acquire)
                        && self.can_post_directly(one) =>
                {
                    self.note_unacked_send(one);
                    self.post_chain(One::new(), std::slice::from_ref(one))
                }
                _ => self.post_several(work),
            }
        }
    }

    /// Whether an operation can go to the device at once, while the soft queue is empty.
    #[inline]
    fn can_post_directly(&self, work: &SendWork<'_>) -> bool {
        !SoftSendQueue::must_take(work, &Direct(self))
    }

    /// An atomic behind a send or a write may have to wait for it; see [`Direct::must_wait`].
    #[inline]
    fn note_unacked_send(&self, work: &SendWork<'_>) {
        let message = matches!(work.op, SendOp::Send { .. } | SendOp::Write { .. });
        if message || self.goes_as_write(work) {
            self.unacked_send.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it is a read that the device is asked for as an empty write.
    #[inline]
    fn goes_as_write(&self, work: &SendWork<'_>) -> bool {
        matches!(work.op, SendOp::Read { .. })
            && total_len(work.segments) == 0
            && self.domain.device.quirks.repeated_reads_need_keys
    }

    /// # Safety
    /// As [`post_send`](Conn::post_send).
    #[inline(never)]
    unsafe fn post_several(&self, work: &[SendWork<'_>]) -> Posted {
        let direct = if self.soft_queue_active.load(Ordering::Acquire) {
            0
        } else {
            let direct = work.iter().take_while(|one| self.can_post_directly(one));
            // Each is noted before the next is looked at, which may have to wait for it.
            direct.inspect(|one| self.note_unacked_send(one)).count()
        };
        // SAFETY: the caller's promise is passed on.
        let posted = unsafe { self.post_direct(&work[..direct]) };
        if posted.refusal.is_some() || direct == work.len() {
            return posted;
        }
        // SAFETY: as above.
        let rest = unsafe { self.post_to_soft_queue(&work[direct..]) };
        Posted { accepted: direct + rest.accepted, ..rest }
    }

    /// Posts behind the operations of the soft queue.
    ///
    /// # Safety
    /// As [`post_send`](Conn::post_send).
    #[cold]
    unsafe fn post_to_soft_queue(&self, work: &[SendWork<'_>]) -> Posted {
        let mut state = self.lock();
        for (done, one) in work.iter().enumerate() {
            if self.is_dead() {
                return Posted::until(done, Error::NotConnected);
            }
            // SAFETY: the caller's promise; the soft queue is cancelled before the queue pair is destroyed.
            if let Err(error) = unsafe { state.soft_queue.post(one, &mut Direct(self)) } {
                self.set_soft_queue_active(!state.soft_queue.is_idle());
                return Posted::until(done, error);
            }
        }
        self.set_soft_queue_active(!state.soft_queue.is_idle());
        Posted::all(work.len())
    }

    /// Posts to the device.
    ///
    /// # Safety
    /// As [`post_send`](Conn::post_send); the soft queue is empty, or its lock is held.
    pub(crate) unsafe fn post_direct(&self, work: &[SendWork<'_>]) -> Posted {
        // SAFETY: the caller's promise is passed on.
        in_turn(work, |rest| unsafe { self.post_chain(Many::new(), rest) })
    }

    /// Posts as many operations as a chain has room for.
    ///
    /// # Safety
    /// As [`post_direct`](Conn::post_direct).
    #[inline]
    unsafe fn post_chain<const R: usize, const S: usize>(
        &self,
        mut chain: Chain<ibv_send_wr, R, S>,
        work: &[SendWork<'_>],
    ) -> Posted {
        let mut quiet = false;
        for one in work {
            if !chain.has_room() {
                break;
            }
            self.tokens.note_send(one.token, matches!(one.op, SendOp::Send { .. }));
            if !self.is_signaled(one) {
                self.tokens.note_unsignaled(one.token);
                quiet = true;
            }
            self.lower(one, &mut chain);
        }
        // SAFETY: the caller's promise; the chain is on this stack until the call returns.
        match unsafe { self.submit(&mut chain) } {
            Ok(()) => {
                if quiet {
                    self.tokens.unsignaled_is_posted();
                }
                Posted::all(chain.operations().into())
            }
            Err((taken, error)) => {
                if let Some(refused) = work.get(taken) {
                    self.tokens.take_back(refused.token);
                }
                Posted::until(taken, error)
            }
        }
    }

    /// # Safety
    /// As [`post_direct`](Conn::post_direct).
    #[inline]
    unsafe fn submit<const R: usize, const S: usize>(
        &self,
        chain: &mut Chain<ibv_send_wr, R, S>,
    ) -> Result<(), (usize, Error)> {
        let Some(first) = chain.link(|request, next| request.next = next) else { return Ok(()) };
        // SAFETY: the caller's promise.
        unsafe { self.qp.post_send(first) }
            .map_err(|(bad, cause)| (chain.taken_before(bad), refused(cause)))
    }

    /// Whether the device is to complete an operation that succeeds. All of them where the send queue is watched: else it could
    /// not be seen that the last ones are done.
    #[inline]
    fn is_signaled(&self, work: &SendWork<'_>) -> bool {
        work.flags.contains(SendFlags::SIGNALED)
            || self.attr.stall.is_some()
            || self.domain.device.quirks.refused_reads_succeed && may_be_long_read(work)
    }

    /// Turns an operation into one work request, or two.
    #[inline]
    fn lower<const R: usize, const S: usize>(
        &self,
        work: &SendWork<'_>,
        chain: &mut Chain<ibv_send_wr, R, S>,
    ) {
        let mut request = blank();
        request.wr_id = work.token.to_bits();
        request.send_flags = flags(work.flags);
        if self.is_signaled(work) {
            request.send_flags |= ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
        let first = chain.segments_len();
        if self.goes_inline(work) {
            request.send_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
            chain.local(work.segments);
        } else if work.flags.contains(SendFlags::INJECT) && !work.segments.is_empty() {
            let (addr, len, lkey) = self.bounce(work);
            chain.segment(addr, len, lkey);
        } else {
            chain.local(work.segments);
        }
        let mut flush_key = None;
        match work.op {
            SendOp::Send { imm } => {
                set_immediate(&mut request, imm, opcode::IBV_WR_SEND, opcode::IBV_WR_SEND_WITH_IMM)
            }
            SendOp::Write { to, imm } => {
                let (plain, with) = (opcode::IBV_WR_RDMA_WRITE, opcode::IBV_WR_RDMA_WRITE_WITH_IMM);
                set_immediate(&mut request, imm, plain, with);
                set_remote(&mut request, to.addr, to.key as u32);
                if work.flags.contains(SendFlags::DELIVERY_COMPLETE) && !work.segments.is_empty() {
                    flush_key = Some((to.key >> 32) as u32);
                }
            }
            SendOp::Read { from } => {
                request.opcode = opcode::IBV_WR_RDMA_READ;
                if self.goes_as_write(work) {
                    request.opcode = opcode::IBV_WR_RDMA_WRITE;
                }
                set_remote(&mut request, from.addr, from.key as u32);
            }
            SendOp::Atomic { at, call, fetch } => {
                let swap = call.op == AtomicOp::CompareSwap;
                request.opcode = if swap {
                    opcode::IBV_WR_ATOMIC_CMP_AND_SWP
                } else {
                    opcode::IBV_WR_ATOMIC_FETCH_AND_ADD
                };
                request.wr.atomic.remote_addr = at.addr;
                request.wr.atomic.rkey = at.key as u32;
                request.wr.atomic.compare_add = if swap { call.compare } else { call.operand };
                request.wr.atomic.swap = call.operand;
                if !fetch {
                    chain.segment(self.scratch_slot.discard(), 8, self.scratch_slot.lkey);
                }
            }
            // `must_emulate` keeps it from here; a write with key 0 reaches no memory.
            _ => {}
        }
        (request.sg_list, request.num_sge) = chain.list(first);
        let Some(key) = flush_key else {
            chain.push(request);
            return chain.end_operation();
        };
        // A read behind the write is answered after the bytes have arrived.
        request.send_flags &= !ibv_send_flags::IBV_SEND_SIGNALED.0;
        chain.push(request);
        let mut read = blank();
        read.wr_id = work.token.to_bits();
        read.opcode = opcode::IBV_WR_RDMA_READ;
        if self.is_signaled(work) {
            read.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
        set_remote(&mut read, 0, key);
        let first = chain.segments_len();
        chain.segment(self.scratch_slot.discard(), 1, self.scratch_slot.lkey);
        (read.sg_list, read.num_sge) = chain.list(first);
        chain.push(read);
        chain.end_operation();
    }

    /// Whether a request carries its bytes in itself: all that fit do, which saves the device a look at memory. Not
    /// behind a fence, where the bytes may still be on their way into that memory; those of an inject are not.
    #[inline]
    fn goes_inline(&self, work: &SendWork<'_>) -> bool {
        let carries = matches!(work.op, SendOp::Send { .. } | SendOp::Write { .. });
        let settled =
            work.flags.contains(SendFlags::INJECT) || !work.flags.contains(SendFlags::FENCE);
        carries
            && settled
            && !work.segments.is_empty()
            && total_len(work.segments) <= self.qp.inline() as usize
    }

    /// Posts a liveness probe: an empty write, which needs no right at the peer.
    pub(crate) fn post_probe(&self) -> io::Result<()> {
        let mut request = self.empty_write(InternalWr::Probe);
        // SAFETY: no segments; the caller holds the lock that `destroy` takes.
        unsafe { self.qp_of_probes().post_send(&mut request) }.map_err(|(_, cause)| cause)
    }

    /// Posts the last request of a closed connection, which the device flushes behind all others.
    pub(crate) fn post_end_marker(&self) -> io::Result<()> {
        let mut request = self.empty_write(InternalWr::EndMarker);
        // SAFETY: no segments; the caller holds the lock that `destroy` takes.
        unsafe { self.qp.post_send(&mut request) }.map_err(|(_, cause)| cause)
    }

    /// Has the device bind a memory window to the queue pair.
    pub(crate) fn post_bind(&self, binding: &Binding) -> io::Result<()> {
        let mut request = blank();
        request.wr_id = InternalWr::Bind.wr_id(self.number);
        request.opcode = opcode::IBV_WR_BIND_MW;
        request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
        request.bind_mw_tso_union.bind_mw.mw = binding.mw.cast();
        request.bind_mw_tso_union.bind_mw.rkey = binding.rkey;
        request.bind_mw_tso_union.bind_mw.bind_info.mr = binding.mr;
        request.bind_mw_tso_union.bind_mw.bind_info.addr = binding.addr;
        request.bind_mw_tso_union.bind_mw.bind_info.length = binding.len;
        request.bind_mw_tso_union.bind_mw.bind_info.mw_access_flags = binding.rights.0;
        // SAFETY: window and registration stay until this has ended; the caller holds the lock that `destroy` takes.
        unsafe { self.qp.post_send(&mut request) }.map_err(|(_, cause)| cause)
    }

    /// An empty write, for which the peer checks no key.
    fn empty_write(&self, purpose: InternalWr) -> ibv_send_wr {
        let mut request = blank();
        request.wr_id = purpose.wr_id(self.number);
        request.opcode = opcode::IBV_WR_RDMA_WRITE;
        request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
        request
    }
}

/// The device, for the soft queue of a connection whose lock is held.
pub(crate) struct Direct<'a>(pub(crate) &'a Conn);

impl CasDevice for Direct<'_> {
    #[inline]
    fn must_emulate(&self, op: &SendOp) -> bool {
        must_emulate(op)
    }

    #[inline]
    fn must_wait(&self, work: &SendWork<'_>) -> bool {
        let (conn, quirks) = (self.0, &self.0.domain.device.quirks);
        let fenced = work.flags.contains(SendFlags::FENCE);
        fenced && quirks.fences_hang
            || matches!(work.op, SendOp::Atomic { .. })
                && quirks.acks_end_atomics
                && conn.unacked_send.load(Ordering::Relaxed)
    }

    fn barrier(&mut self) -> Result<()> {
        let mut chain = One::new();
        chain.push(self.0.empty_write(InternalWr::Cas));
        chain.end_operation();
        // SAFETY: it has no segments.
        unsafe { self.0.submit(&mut chain) }.map_err(|(_, error)| error)
    }

    fn compare_and_swap(&mut self, cas: &CasRequest, how: SendFlags) -> Result<()> {
        let mut chain = One::new();
        let mut request = blank();
        request.wr_id = InternalWr::Cas.wr_id(self.0.number);
        request.opcode = opcode::IBV_WR_ATOMIC_CMP_AND_SWP;
        request.send_flags = flags(how & SendFlags::FENCE | SendFlags::SIGNALED);
        request.wr.atomic.remote_addr = cas.at.addr;
        request.wr.atomic.rkey = cas.at.key as u32;
        request.wr.atomic.compare_add = cas.compare;
        request.wr.atomic.swap = cas.swap;
        chain.segment(self.0.scratch_slot.result(), 8, self.0.scratch_slot.lkey);
        (request.sg_list, request.num_sge) = chain.list(0);
        chain.push(request);
        chain.end_operation();
        // SAFETY: the result's place belongs to the connection, which outlives its queue pair.
        unsafe { self.0.submit(&mut chain) }.map_err(|(_, error)| error)
    }

    unsafe fn post(&mut self, work: &SendWork<'_>) -> Result<()> {
        self.0.note_unacked_send(work);
        // SAFETY: the caller's promise is passed on.
        match unsafe { self.0.post_direct(std::slice::from_ref(work)) } {
            Posted { refusal: Some(error), .. } => Err(error),
            _ => Ok(()),
        }
    }
}

#[inline]
fn flags(how: SendFlags) -> u32 {
    let mut flags = 0;
    if how.contains(SendFlags::SIGNALED) {
        flags |= ibv_send_flags::IBV_SEND_SIGNALED.0;
    }
    if how.contains(SendFlags::FENCE) {
        flags |= ibv_send_flags::IBV_SEND_FENCE.0;
    }
    flags
}

#[inline]
fn set_immediate(request: &mut ibv_send_wr, imm: Option<u32>, plain: u32, with: u32) {
    request.opcode = if imm.is_some() { with } else { plain };
    request.imm_data_invalidated_rkey_union.imm_data = imm.unwrap_or_default().to_be();
}

#[inline]
fn set_remote(request: &mut ibv_send_wr, addr: u64, rkey: u32) {
    request.wr.rdma.remote_addr = addr;
    request.wr.rdma.rkey = rkey;
}

/// A request that the driver did not take, though everything was checked and there is room.
#[cold]
pub(crate) fn refused(cause: io::Error) -> Error {
    match crate::ffi::code(&cause) {
        Some(libc::ENOTCONN) => Error::NotConnected,
        _ => Error::Internal(Failure::new("post", "the device refused").of(NAME).because(cause)),
    }
}
