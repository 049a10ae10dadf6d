//! Shared receive queues.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::context::Pd;
use super::destroy::log_failure;
use crate::ffi::{self, errno, ibv_recv_wr, pointer, refused};

/// A shared receive queue. It can be destroyed before it is dropped: what the device holds ends at a moment of the owner's choice.
pub(crate) struct Srq {
    /// Null once destroyed.
    srq: AtomicPtr<ffi::ibv_srq>,
    /// Destroying it failed.
    stays: AtomicBool,
    pd: Arc<Pd>,
}

impl Srq {
    pub(crate) fn new(pd: &Arc<Pd>, depth: u32, segments: u32) -> io::Result<Self> {
        let mut init = MaybeUninit::<ffi::ibv_srq_init_attr>::zeroed();
        // SAFETY: plain numbers and a pointer; zero is a value of each.
        let init = unsafe { init.assume_init_mut() };
        (init.attr.max_wr, init.attr.max_sge) = (depth, segments);
        // SAFETY: the domain lives as long as the queue, which holds it.
        let srq = pointer("ibv_create_srq", unsafe { ffi::ibv_create_srq(pd.as_ptr(), init) })?;
        let stays = AtomicBool::new(false);
        Ok(Srq { srq: AtomicPtr::new(srq.as_ptr()), stays, pd: pd.clone() })
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::ibv_srq {
        self.srq.load(Ordering::Acquire)
    }

    /// Posts a chain of receives; on failure gives the request that was not taken.
    ///
    /// # Safety
    /// Segments stay as the contract of the completion demands; `destroy` is not called at the same time.
    #[inline]
    pub(crate) unsafe fn post_recv(
        &self,
        chain: &mut ibv_recv_wr,
    ) -> Result<(), (*const ibv_recv_wr, io::Error)> {
        let srq = self.srq.load(Ordering::Relaxed);
        if srq.is_null() {
            return Err((chain, io::Error::from_raw_os_error(libc::ENOTCONN)));
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the caller's promise (ibv_post_srq_recv(3)).
        match unsafe { ffi::ibv_post_srq_recv(srq, chain, &mut bad) } {
            0 => Ok(()),
            code => Err((bad, refused("ibv_post_srq_recv", code))),
        }
    }

    /// Destroys it: when this returns `Ok`, the device touches no segment of its receives.
    ///
    /// - It fails while a queue pair takes receives from it (ibv_destroy_srq(3)).
    /// - If it fails, the queue stays until the process ends; there is no second try, as with a queue pair.
    ///
    /// # Safety
    /// No other call on it is under way or begins later, but `destroy`.
    pub(crate) unsafe fn destroy(&self) -> io::Result<()> {
        let srq = self.srq.swap(ptr::null_mut(), Ordering::AcqRel);
        if srq.is_null() {
            let stays = self.stays.load(Ordering::Acquire);
            return if stays {
                Err(io::Error::other("ibv_destroy_srq has failed"))
            } else {
                Ok(())
            };
        }
        // SAFETY: made by ibv_create_srq, destroyed once: the pointer is gone.
        let destroyed = errno("ibv_destroy_srq", unsafe { ffi::ibv_destroy_srq(srq) });
        if destroyed.is_err() {
            self.stays.store(true, Ordering::Release);
            std::mem::forget(self.pd.clone());
        }
        destroyed
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        if !self.as_ptr().is_null() {
            // SAFETY: nothing else has it; queue pairs held it by `Arc`.
            log_failure(unsafe { self.destroy() });
        }
    }
}
