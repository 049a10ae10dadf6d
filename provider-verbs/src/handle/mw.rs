//! Memory windows.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::context::Pd;
use super::destroy::log_failure;
use crate::ffi::{self, pointer};

/// A memory window of type 2: bound by a work request, to the queue pair that this was posted to.
pub(crate) struct Mw {
    /// Until it is deallocated.
    mw: Option<NonNull<ffi::MemoryWindow>>,
    rkey: u32,
    pd: Arc<Pd>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Mw {}
// SAFETY: as above.
unsafe impl Sync for Mw {}

impl Mw {
    pub(crate) fn new(pd: &Arc<Pd>) -> io::Result<Self> {
        // SAFETY: the protection domain lives.
        let mw = unsafe { ffi::ibv_alloc_mw(pd.as_ptr(), ffi::MW_TYPE_2) };
        let mw = pointer("ibv_alloc_mw", mw)?;
        // SAFETY: just made.
        let rkey = unsafe { mw.as_ref() }.rkey;
        Ok(Mw { mw: Some(mw), rkey, pd: pd.clone() })
    }

    pub(crate) fn as_ptr(&self) -> *mut ffi::MemoryWindow {
        self.mw.map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    /// The key that it gets when it is bound for the first time: the low byte is the user's, and differs from the one
    /// before (ibv_inc_rkey(3)).
    pub(crate) fn bound_rkey(&self) -> u32 {
        self.rkey & !0xff | self.rkey.wrapping_add(1) & 0xff
    }

    /// Unbinds and frees it (ibv_dealloc_mw(3)); repeating that is harmless. On error it is still there.
    pub(crate) fn deallocate(&mut self) -> io::Result<()> {
        if let Some(mw) = self.mw {
            // SAFETY: made by ibv_alloc_mw; success takes it out.
            ffi::errno("ibv_dealloc_mw", unsafe { ffi::ibv_dealloc_mw(mw.as_ptr()) })?;
            self.mw = None;
        }
        Ok(())
    }

    /// The device is gone, and the window with it.
    pub(crate) fn forget(&mut self) {
        self.mw = None;
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        let deallocated = self.deallocate();
        if deallocated.is_err() {
            // It stays, and with it what it was made on.
            std::mem::forget(self.pd.clone());
        }
        log_failure(deallocated);
    }
}
