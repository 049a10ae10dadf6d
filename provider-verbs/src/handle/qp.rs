//! Queue pairs: reliable connected ones, and those for datagrams.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::context::Pd;
use super::cq::Cq;
use super::destroy::log_failure;
use super::srq::Srq;
use crate::ffi::{
    self, errno, ibv_access_flags, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state, ibv_recv_wr,
    ibv_send_wr, pointer, refused,
};

/// What a queue pair has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpAttributes {
    pub(crate) send_depth: u32,
    pub(crate) recv_depth: u32,
    pub(crate) send_segments: u32,
    pub(crate) recv_segments: u32,
    pub(crate) inline: u32,
    /// Peers may execute atomics. A device without them need not take the right (mlx5: EOPNOTSUPP).
    pub(crate) atomics: bool,
}

/// Where a queue pair stands, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QpState {
    Error,
    Other,
}

/// A queue pair. It can be destroyed before it is dropped: what the device holds ends at a moment of the
/// owner's choice.
pub(crate) struct Qp {
    /// Null once destroyed.
    qp: AtomicPtr<ffi::ibv_qp>,
    /// Destroying it failed.
    stays: AtomicBool,
    number: u32,
    inline: u32,
    atomics: bool,
    port: u8,
    pd: Arc<Pd>,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    srq: Option<Arc<Srq>>,
}

impl Qp {
    /// A queue pair in the state INIT: receives can be posted. With a shared receive queue it has none of its own.
    pub(crate) fn new(
        pd: &Arc<Pd>,
        (send_cq, recv_cq): (&Arc<Cq>, &Arc<Cq>),
        srq: Option<&Arc<Srq>>,
        wanted: &QpAttributes,
        port: u8,
    ) -> io::Result<Self> {
        let this =
            Self::create(pd, (send_cq, recv_cq), srq, wanted, port, ffi::ibv_qp_type::IBV_QPT_RC)?;
        this.init(0)?;
        Ok(this)
    }

    /// A queue pair for datagrams, ready to send and to receive.
    pub(crate) fn datagram(
        pd: &Arc<Pd>,
        queues: (&Arc<Cq>, &Arc<Cq>),
        wanted: &QpAttributes,
        port: u8,
        q_key: u32,
    ) -> io::Result<Self> {
        let this = Self::create(pd, queues, None, wanted, port, ffi::ibv_qp_type::IBV_QPT_UD)?;
        this.start_datagrams(q_key)?;
        Ok(this)
    }

    /// A queue pair in the state RESET. Where the device has none that carries so many bytes inline, one that carries none.
    fn create(
        pd: &Arc<Pd>,
        queues: (&Arc<Cq>, &Arc<Cq>),
        srq: Option<&Arc<Srq>>,
        wanted: &QpAttributes,
        port: u8,
        kind: ffi::ibv_qp_type::Type,
    ) -> io::Result<Self> {
        let make = |wanted| Self::create_exactly(pd, queues, srq, wanted, port, kind);
        match make(wanted) {
            Err(_) if wanted.inline > 0 => make(&QpAttributes { inline: 0, ..*wanted }),
            made => made,
        }
    }

    fn create_exactly(
        pd: &Arc<Pd>,
        (send_cq, recv_cq): (&Arc<Cq>, &Arc<Cq>),
        srq: Option<&Arc<Srq>>,
        wanted: &QpAttributes,
        port: u8,
        kind: ffi::ibv_qp_type::Type,
    ) -> io::Result<Self> {
        let mut init = MaybeUninit::<ffi::ibv_qp_init_attr>::zeroed();
        // SAFETY: plain numbers and pointers; zero is a value of each.
        let init = unsafe { init.assume_init_mut() };
        (init.send_cq, init.recv_cq) = (send_cq.as_ptr(), recv_cq.as_ptr());
        init.srq = srq.map_or(ptr::null_mut(), |srq| srq.as_ptr());
        init.cap.max_send_wr = wanted.send_depth;
        init.cap.max_recv_wr = wanted.recv_depth;
        init.cap.max_send_sge = wanted.send_segments;
        init.cap.max_recv_sge = wanted.recv_segments;
        init.cap.max_inline_data = wanted.inline;
        init.qp_type = kind;
        // SAFETY: domain and queues live as long as the queue pair, which holds them.
        let qp = pointer("ibv_create_qp", unsafe { ffi::ibv_create_qp(pd.as_ptr(), init) })?;
        // SAFETY: just made.
        let number = unsafe { qp.as_ref() }.qp_num;
        // Where none were wanted, room for some may be left between the segments.
        let inline = if wanted.inline == 0 { 0 } else { init.cap.max_inline_data };
        Ok(Qp {
            qp: AtomicPtr::new(qp.as_ptr()),
            stays: AtomicBool::new(false),
            number,
            inline,
            atomics: wanted.atomics,
            port,
            pd: pd.clone(),
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            srq: srq.cloned(),
        })
    }

    /// To INIT, RTR and RTS, as ibv_modify_qp(3) has it for IBV_QPT_UD.
    fn start_datagrams(&self, q_key: u32) -> io::Result<()> {
        let mut attr = zeroed();
        attr.qp_state = ibv_qp_state::IBV_QPS_INIT;
        (attr.pkey_index, attr.port_num, attr.qkey) = (0, self.port, q_key);
        let init = ibv_qp_attr_mask::IBV_QP_STATE
            | ibv_qp_attr_mask::IBV_QP_PKEY_INDEX
            | ibv_qp_attr_mask::IBV_QP_PORT
            | ibv_qp_attr_mask::IBV_QP_QKEY;
        self.modify(&mut attr, init.0 as i32)?;
        attr.qp_state = ibv_qp_state::IBV_QPS_RTR;
        self.modify(&mut attr, ibv_qp_attr_mask::IBV_QP_STATE.0 as i32)?;
        attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
        let ready = ibv_qp_attr_mask::IBV_QP_STATE | ibv_qp_attr_mask::IBV_QP_SQ_PSN;
        self.modify(&mut attr, ready.0 as i32)
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Bytes that a post can carry in itself: less than wanted, where the device has no more.
    pub(crate) fn inline(&self) -> u32 {
        self.inline
    }

    pub(crate) fn as_ptr(&self) -> *mut ffi::ibv_qp {
        self.qp.load(Ordering::Acquire)
    }

    /// To INIT, with every right that the device has: regions restrict.
    pub(crate) fn init(&self, pkey_index: u16) -> io::Result<()> {
        let mut attr = zeroed();
        attr.qp_state = ibv_qp_state::IBV_QPS_INIT;
        attr.pkey_index = pkey_index;
        attr.port_num = self.port;
        let rights = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE
            | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
            | ibv_access_flags::IBV_ACCESS_REMOTE_READ;
        let atomics = ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC;
        attr.qp_access_flags = if self.atomics { (rights | atomics).0 } else { rights.0 };
        let mask = ibv_qp_attr_mask::IBV_QP_STATE
            | ibv_qp_attr_mask::IBV_QP_PKEY_INDEX
            | ibv_qp_attr_mask::IBV_QP_PORT
            | ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS;
        self.modify(&mut attr, mask.0 as i32)
    }

    /// Sets attributes, and mostly a state. On a queue pair that was destroyed: `ENOTCONN`.
    pub(crate) fn modify(&self, attr: &mut ibv_qp_attr, mask: i32) -> io::Result<()> {
        let qp = self.as_ptr();
        if qp.is_null() {
            return Err(io::Error::from_raw_os_error(libc::ENOTCONN));
        }
        // SAFETY: the queue pair is alive: it is destroyed only as `destroy` demands.
        errno("ibv_modify_qp", unsafe { ffi::ibv_modify_qp(qp, attr, mask) })
    }

    /// To ERR: what was posted is flushed. Harmless when repeated.
    pub(crate) fn fail(&self) -> io::Result<()> {
        let mut attr = zeroed();
        attr.qp_state = ibv_qp_state::IBV_QPS_ERR;
        self.modify(&mut attr, ibv_qp_attr_mask::IBV_QP_STATE.0 as i32)
    }

    pub(crate) fn state(&self) -> io::Result<QpState> {
        let attr = self.query(ibv_qp_attr_mask::IBV_QP_STATE)?;
        let dead = attr.is_some_and(|attr| attr.qp_state == ibv_qp_state::IBV_QPS_ERR);
        Ok(if dead { QpState::Error } else { QpState::Other })
    }

    /// The number of the next packet that it expects of its peer; nothing once it was destroyed.
    pub(crate) fn next_psn(&self) -> io::Result<Option<u32>> {
        Ok(self.query(ibv_qp_attr_mask::IBV_QP_RQ_PSN)?.map(|attr| attr.rq_psn))
    }

    /// Nothing once it was destroyed.
    fn query(&self, mask: ibv_qp_attr_mask) -> io::Result<Option<ibv_qp_attr>> {
        let qp = self.as_ptr();
        if qp.is_null() {
            return Ok(None);
        }
        let (mut attr, mut init) = (zeroed(), MaybeUninit::zeroed());
        // SAFETY: the queue pair is alive, both structures are written (ibv_query_qp(3)).
        errno("ibv_query_qp", unsafe {
            ffi::ibv_query_qp(qp, &mut attr, mask.0 as i32, init.as_mut_ptr())
        })?;
        Ok(Some(attr))
    }

    /// Posts a chain of work requests; on failure gives the request that was not taken.
    ///
    /// # Safety
    /// Segments stay as the contract of the completion demands, inline ones until this returns; `destroy` is not
    /// called at the same time.
    #[inline]
    pub(crate) unsafe fn post_send(
        &self,
        chain: &mut ibv_send_wr,
    ) -> Result<(), (*const ibv_send_wr, io::Error)> {
        let qp = self.qp.load(Ordering::Relaxed);
        if qp.is_null() {
            return Err((chain, io::Error::from_raw_os_error(libc::ENOTCONN)));
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the caller's promise (ibv_post_send(3)).
        match unsafe { ffi::ibv_post_send(qp, chain, &mut bad) } {
            0 => Ok(()),
            code => Err((bad, refused("ibv_post_send", code))),
        }
    }

    /// Posts a chain of receives; on failure gives the request that was not taken.
    ///
    /// # Safety
    /// As [`post_send`](Qp::post_send).
    #[inline]
    pub(crate) unsafe fn post_recv(
        &self,
        chain: &mut ibv_recv_wr,
    ) -> Result<(), (*const ibv_recv_wr, io::Error)> {
        let qp = self.qp.load(Ordering::Relaxed);
        if qp.is_null() {
            return Err((chain, io::Error::from_raw_os_error(libc::ENOTCONN)));
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the caller's promise (ibv_post_recv(3)).
        match unsafe { ffi::ibv_post_recv(qp, chain, &mut bad) } {
            0 => Ok(()),
            code => Err((bad, refused("ibv_post_recv", code))),
        }
    }

    /// Destroys it: when this returns `Ok`, the device touches no segment and makes no completion.
    ///
    /// - If it fails, the queue pair stays until the process ends, and so does what it was made on. What a failed try
    ///   has left is unknown, so there is no second one: repeating it says the same.
    ///
    /// # Safety
    /// No other call on it is under way or begins later, but `destroy`, `modify` and `state` under a lock that
    /// is held here too.
    pub(crate) unsafe fn destroy(&self) -> io::Result<()> {
        let qp = self.qp.swap(ptr::null_mut(), Ordering::AcqRel);
        if qp.is_null() {
            let stays = self.stays.load(Ordering::Acquire);
            return if stays { Err(io::Error::other("ibv_destroy_qp has failed")) } else { Ok(()) };
        }
        // SAFETY: made by ibv_create_qp, destroyed once: the pointer is gone.
        let destroyed = errno("ibv_destroy_qp", unsafe { ffi::ibv_destroy_qp(qp) });
        if destroyed.is_err() {
            self.stays.store(true, Ordering::Release);
            std::mem::forget((self.pd.clone(), self.send_cq.clone(), self.recv_cq.clone()));
            std::mem::forget(self.srq.clone());
        }
        destroyed
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        if !self.as_ptr().is_null() {
            // SAFETY: nothing else has it.
            log_failure(unsafe { self.destroy() });
        }
    }
}

/// Attributes to fill in.
pub(super) fn zeroed() -> ibv_qp_attr {
    // SAFETY: plain numbers; zero is a value of each.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
