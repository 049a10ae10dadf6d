//! Registered memory.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::context::Pd;
use super::destroy::log_failure;
use crate::ffi::{self, ibv_access_flags, pointer};

/// A memory region; its drop deregisters what was not, and cannot report whether that worked.
pub(crate) struct Mr {
    /// Until it is deregistered.
    mr: Option<NonNull<ffi::ibv_mr>>,
    lkey: u32,
    rkey: u32,
    pd: Arc<Pd>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}

impl Mr {
    /// Registers `len` bytes at `addr`, which peers name by addresses from `iova` on.
    ///
    /// # Safety
    /// The range stays allocated until [`deregister`](Mr::deregister) returned `Ok`, or the device is gone, and is
    /// reached by this process only in ways that a concurrent device cannot make undefined.
    pub(crate) unsafe fn new(
        pd: &Arc<Pd>,
        (addr, len): (*mut u8, usize),
        iova: u64,
        access: ibv_access_flags,
    ) -> io::Result<Self> {
        // SAFETY: the protection domain lives; the kernel checks the range (ibv_reg_mr(3)).
        let mr = unsafe { ffi::ibv_reg_mr_iova2(pd.as_ptr(), addr.cast(), len, iova, access.0) };
        let mr = pointer("ibv_reg_mr", mr)?;
        // SAFETY: it was just made.
        let ffi::ibv_mr { lkey, rkey, .. } = *unsafe { mr.as_ref() };
        Ok(Mr { mr: Some(mr), lkey, rkey, pd: pd.clone() })
    }

    pub(crate) fn as_ptr(&self) -> *mut ffi::ibv_mr {
        self.mr.map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.lkey
    }

    pub(crate) fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Ends the registration; repeating that is harmless. On error it is still registered.
    pub(crate) fn deregister(&mut self) -> io::Result<()> {
        if let Some(mr) = self.mr {
            // SAFETY: made by ibv_reg_mr_iova2; a failure leaves it as it was (ibv_dereg_mr(3)), success takes it out.
            ffi::errno("ibv_dereg_mr", unsafe { ffi::ibv_dereg_mr(mr.as_ptr()) })?;
            self.mr = None;
        }
        Ok(())
    }

    /// The device is gone, and the registration with it.
    pub(crate) fn forget(&mut self) {
        self.mr = None;
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        let deregistered = self.deregister();
        if deregistered.is_err() {
            // It stays, and with it what it was made on.
            std::mem::forget(self.pd.clone());
        }
        log_failure(deregistered);
    }
}
