//! Receives of datagrams: what the device writes before the bytes, and where it puts what does not fit.
//!
//! A UD queue pair writes 40 bytes before each datagram: the global routing header, or what takes its place on RoCE (InfiniBand
//! specification, "UD: global route header"; its annex on RoCE v2 for packets of IPv4). They go into memory of the provider. A
//! datagram that is longer than its receive would put the queue pair into error, or not, as the device likes; so each receive has
//! room for the longest one behind its own, in a place that all share and that is never read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fabric_core::work::total_len;
use fabric_core::{
    DatagramAddress, DatagramSources, Posted, RawCompletion, RecvWork, Result, Status, Token,
    memory,
};

use crate::chain::{Chain, Many};
use crate::cq::ReceiveMember;
use crate::ffi::{ibv_access_flags, ibv_recv_wr, ibv_wc, ibv_wc_flags};
use crate::handle::{Pd, Qp};
use crate::post::{in_turn, refused};
use crate::scratch::Slab;

/// Bytes that come before those of a datagram.
const HEADER: usize = 40;
/// A header's place: no two share a cache line.
const PLACE: usize = 64;

/// The memory behind an endpoint's receives, and what its completions mean.
pub(crate) struct DatagramReceiver {
    /// A header's place for each receive, by its sequence number; then the room for what does not fit.
    slab: Slab,
    /// By sequence number: the bytes of the receive.
    lens: Box<[AtomicU32]>,
    longest: usize,
    /// The GID of this endpoint, and whether it is of Ethernet, which has no LIDs.
    gid: [u8; 16],
    ethernet: bool,
    sources: Arc<DatagramSources>,
}

impl DatagramReceiver {
    pub(crate) fn new(
        pd: &Arc<Pd>,
        depth: usize,
        longest: usize,
        (gid, ethernet): ([u8; 16], bool),
        sources: &Arc<DatagramSources>,
    ) -> Result<Arc<Self>> {
        let places = depth.next_power_of_two();
        let (len, write) = (places * PLACE + longest, ibv_access_flags::IBV_ACCESS_LOCAL_WRITE);
        let slab = Slab::new("make datagram endpoint", pd, len, None, write)?;
        let lens = (0..places).map(|_| AtomicU32::new(0)).collect();
        let sources = sources.clone();
        Ok(Arc::new(DatagramReceiver { slab, lens, longest, gid, ethernet, sources }))
    }

    /// The device may go on writing to it: it stays allocated and registered.
    pub(crate) fn keep(self: &Arc<Self>) {
        std::mem::forget(self.clone());
    }

    fn index(&self, token: Token) -> usize {
        token.sequence() as usize & (self.lens.len() - 1)
    }

    fn header(&self, index: usize) -> *mut u8 {
        self.slab.memory.as_ptr().wrapping_add(index * PLACE)
    }

    /// Posts receives.
    ///
    /// # Safety
    /// As [`DatagramOps::post_recv`](fabric_core::DatagramOps::post_recv); the queue pair's receives are all of this receiver.
    pub(crate) unsafe fn post(&self, qp: &Qp, work: &[RecvWork<'_>]) -> Posted {
        // SAFETY: the caller's promise is passed on.
        in_turn(work, |rest| unsafe { self.post_chain(qp, rest) })
    }

    /// Posts as many receives as a chain has room for.
    ///
    /// # Safety
    /// As [`post`](DatagramReceiver::post).
    unsafe fn post_chain(&self, qp: &Qp, work: &[RecvWork<'_>]) -> Posted {
        let mut chain: Many<ibv_recv_wr> = Chain::new();
        let key = self.slab.mr.lkey();
        let spill = self.header(self.lens.len()) as u64;
        for one in work {
            if !chain.has_room() {
                break;
            }
            let (index, first) = (self.index(one.token), chain.segments_len());
            // No datagram has more than 32 bits can count.
            let len = u32::try_from(total_len(one.segments)).unwrap_or(u32::MAX);
            self.lens[index].store(len, Ordering::Relaxed);
            chain.segment(self.header(index) as u64, HEADER as u32, key);
            chain.local(one.segments);
            if (len as usize) < self.longest {
                chain.segment(spill, self.longest as u32 - len, key);
            }
            let (sg_list, num_sge) = chain.list(first);
            let (wr_id, next) = (one.token.to_bits(), std::ptr::null_mut());
            chain.push(ibv_recv_wr { wr_id, next, sg_list, num_sge });
            chain.end_operation();
        }
        let operations = usize::from(chain.operations());
        let Some(head) = chain.link(|request, next| request.next = next) else {
            return Posted::all(0);
        };
        // SAFETY: the caller's promise; the chain is on the stack until the call returns.
        match unsafe { qp.post_recv(head) } {
            Ok(()) => Posted::all(operations),
            Err((bad, cause)) => Posted::until(chain.taken_before(bad), refused(cause)),
        }
    }
}

impl ReceiveMember for DatagramReceiver {
    fn attribute(&self, wc: &ibv_wc, completion: &mut RawCompletion) {
        let index = self.index(completion.token);
        completion.len = u64::from(wc.byte_len).saturating_sub(HEADER as u64);
        if completion.len > self.lens[index].load(Ordering::Relaxed).into() {
            completion.status = Status::TooLong;
            return;
        }
        let mut header = [0; HEADER];
        // SAFETY: a place of the slab; the device has written it before it completed the receive.
        unsafe { memory::load(self.header(index), &mut header) };
        let gid = if wc.wc_flags & ibv_wc_flags::IBV_WC_GRH.0 == 0 {
            None
        } else {
            Some(source_gid(&header, &self.gid))
        };
        // Over Ethernet some devices have anything there, or leave it as it was (bnxt, mlx4).
        let lid = if self.ethernet { 0 } else { wc.slid };
        let source = gid.and_then(|gid| DatagramAddress::ud(gid, lid, wc.src_qp).ok());
        self.sources.note(completion.token, source);
    }
}

/// The GID that a datagram came from; `own` is that of the receiver. Where the packet was one of IPv4, its header stands in the
/// last 20 bytes, and what is in the first 20 is unspecified: the address that it came to decides.
fn source_gid(header: &[u8; HEADER], own: &[u8; 16]) -> [u8; 16] {
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let mut gid = [0; 16];
    if own[..12] == mapped && header[20] >> 4 == 4 && header[36..40] == own[12..] {
        gid[..12].copy_from_slice(&mapped);
        gid[12..].copy_from_slice(&header[32..36]);
    } else {
        gid.copy_from_slice(&header[8..24]);
    }
    gid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_both_families_are_read_from_the_header() {
        let own: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
        let mut four = [0; HEADER];
        four[20] = 0x45;
        four[32..36].copy_from_slice(&[10, 0, 0, 2]);
        four[36..].copy_from_slice(&[10, 0, 0, 1]);
        // What is before it does not matter.
        for before in [0, 0x60, 0xff] {
            four[..20].fill(before);
            let source = source_gid(&four, &own);
            assert_eq!((&source[..12], &source[12..]), (&own[..12], &[10, 0, 0, 2][..]));
        }
        let mut six = [0; HEADER];
        six[0] = 0x60;
        six[8..24].fill(7);
        six[24..].fill(8);
        assert_eq!(source_gid(&six, &[8; 16]), [7; 16]);
        assert_eq!(source_gid(&six, &own), [7; 16], "to another address of the port");
    }
}
