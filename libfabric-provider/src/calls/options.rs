//! Options of endpoints of messages, passive ones, and contexts that they share (`fi_endpoint(3)`).

use std::ffi::{c_int, c_void};

use super::common::option;
use crate::abi::flags::{FI_OPT_CM_DATA_SIZE, FI_OPT_ENDPOINT};
use crate::abi::{Fid, OpsEp};
use crate::discovery::CM_DATA_SIZE;
use crate::entry::{entry, refused};
use crate::errno::Errno;

/// All of them have the same options.
pub(super) static OPS: OpsEp = OpsEp {
    size: size_of::<OpsEp>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: refused,
    rx_ctx: refused,
    rx_size_left: refused,
    tx_size_left: refused,
};

/// No operation of a connection ends before it.
unsafe extern "C" fn cancel(_: *mut Fid, _: *mut c_void) -> isize {
    -(libc::ENOSYS as isize)
}

unsafe extern "C" fn getopt(
    _: *mut Fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    entry(|| {
        if (level, name) != (FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE) {
            return Err(Errno(libc::ENOPROTOOPT));
        }
        // SAFETY: `fi_endpoint(3)`, `fi_getopt`: as many bytes as the number says.
        unsafe { option(CM_DATA_SIZE, value, len) }
    })
}

unsafe extern "C" fn setopt(_: *mut Fid, _: c_int, _: c_int, _: *const c_void, _: usize) -> c_int {
    -libc::ENOPROTOOPT
}
