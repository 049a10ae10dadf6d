//! Accesses under Miri: plain ones, one at a time.

use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::portable;

static ACCESS: Mutex<()> = Mutex::new(());

fn lock() -> MutexGuard<'static, ()> {
    ACCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) use self::{copy as load, copy as store};

pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    let _one = lock();
    // SAFETY: the caller answers for both ranges; the lock keeps other accesses of this module away.
    unsafe { ptr::copy(src, dst, len) }
}

pub(super) unsafe fn zero(dst: *mut u8, len: usize) {
    let _one = lock();
    // SAFETY: as above.
    unsafe { ptr::write_bytes(dst, 0, len) }
}

macro_rules! under_lock {
    ($($name:ident($at:ty $(, $arg:ident: $ty:ty)*) $(-> $result:ty)?;)*) => {$(
        pub(super) unsafe fn $name(at: $at $(, $arg: $ty)*) $(-> $result)? {
            let _one = lock();
            // SAFETY: the caller answers for it, in the same words.
            unsafe { portable::$name(at $(, $arg)*) }
        }
    )*};
}

under_lock! {
    load_word(*const u8, width: usize) -> u64;
    store_word(*mut u8, width: usize, bits: u64);
    swap(*mut u8, width: usize, bits: u64) -> u64;
    fetch_add(*mut u8, width: usize, bits: u64) -> u64;
    compare_exchange(*mut u8, width: usize, expected: u64, new: u64) -> u64;
}
