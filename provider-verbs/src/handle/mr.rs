//! Registered memory.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{Pd, destroyed};
use crate::ffi::{self, ibv_access_flags, pointer};

/// A memory region; its drop deregisters.
pub(crate) struct Mr {
    mr: NonNull<ffi::ibv_mr>,
    _pd: Arc<Pd>,
}

// SAFETY: as for `Context`; the keys are constants.
unsafe impl Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}

impl Mr {
    /// Registers `len` bytes at `addr`, which peers name by addresses from `iova` on.
    ///
    /// # Safety
    /// The range stays allocated until the drop returns, and is reached by this process only in ways that a
    /// concurrent device cannot make undefined.
    pub(crate) unsafe fn new(
        pd: &Arc<Pd>,
        (addr, len): (*mut u8, usize),
        iova: u64,
        access: ibv_access_flags,
    ) -> io::Result<Self> {
        // SAFETY: the protection domain lives; the kernel checks the range (ibv_reg_mr(3)).
        let mr = unsafe { ffi::ibv_reg_mr_iova2(pd.as_ptr(), addr.cast(), len, iova, access.0) };
        Ok(Mr { mr: pointer("ibv_reg_mr", mr)?, _pd: pd.clone() })
    }

    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: the region lives; the field is constant.
        unsafe { self.mr.as_ref() }.lkey
    }

    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.mr.as_ref() }.rkey
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: made by ibv_reg_mr_iova2, freed once.
        destroyed("ibv_dereg_mr", unsafe { ffi::ibv_dereg_mr(self.mr.as_ptr()) });
    }
}
