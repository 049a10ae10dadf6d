//! What every handle begins with, and its table of functions (`fabric.h`).

use std::ffi::{c_int, c_void};

/// What is not there: any call of it answers `-FI_ENOSYS`. One function serves all of them, whatever they take and whether they
/// give `int` or `ssize_t`: arguments are the caller's to clean up on every platform of this library, and a result of 64 bits has
/// that of 32 bits in its lower half (System V ABI, AAPCS64).
pub(crate) type Refused = unsafe extern "C" fn() -> isize;

/// `struct fid`
#[repr(C)]
pub(crate) struct Fid {
    pub(crate) fclass: usize,
    pub(crate) context: *mut c_void,
    pub(crate) ops: *const Ops,
}

/// `struct fi_ops`
#[repr(C)]
pub(crate) struct Ops {
    pub(crate) size: usize,
    pub(crate) close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub(crate) bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub(crate) control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
    pub(crate) ops_open: Refused,
    pub(crate) tostr: Option<Refused>,
    pub(crate) ops_set: Option<Refused>,
}
