//! Endpoints, and the tables of functions behind them (`fi_endpoint.h`, `fi_cm.h`, `fi_rma.h`, `fi_tagged.h`, `fi_atomic.h`).

use std::ffi::{c_int, c_void};

use super::base::{Fid, Refused};
use super::transfer::{FiIoc, FiMsg, FiMsgAtomic, FiMsgRma, FiMsgTagged, Iovec};

/// `struct fid_ep`
#[repr(C)]
pub(crate) struct FidEp {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsEp,
    pub(crate) cm: *const OpsCm,
    pub(crate) msg: *const OpsMsg,
    pub(crate) rma: *const OpsRma,
    pub(crate) tagged: *const OpsTagged,
    pub(crate) atomic: *const OpsAtomic,
    pub(crate) collective: *const OpsCollective,
}

/// `struct fid_pep`
#[repr(C)]
pub(crate) struct FidPep {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsEp,
    pub(crate) cm: *const OpsCm,
}

/// `struct fid_stx`
#[repr(C)]
pub(crate) struct FidStx {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsEp,
}

/// `struct fi_ops_ep`
#[repr(C)]
pub(crate) struct OpsEp {
    pub(crate) size: usize,
    pub(crate) cancel: unsafe extern "C" fn(*mut Fid, *mut c_void) -> isize,
    pub(crate) getopt:
        unsafe extern "C" fn(*mut Fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
    pub(crate) setopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int,
    pub(crate) tx_ctx: Refused,
    pub(crate) rx_ctx: Refused,
    pub(crate) rx_size_left: Refused,
    pub(crate) tx_size_left: Refused,
}

/// `struct fi_ops_cm`
#[repr(C)]
pub(crate) struct OpsCm {
    pub(crate) size: usize,
    pub(crate) setname: unsafe extern "C" fn(*mut Fid, *mut c_void, usize) -> c_int,
    pub(crate) getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
    pub(crate) getpeer: unsafe extern "C" fn(*mut FidEp, *mut c_void, *mut usize) -> c_int,
    pub(crate) connect:
        unsafe extern "C" fn(*mut FidEp, *const c_void, *const c_void, usize) -> c_int,
    pub(crate) listen: unsafe extern "C" fn(*mut FidPep) -> c_int,
    pub(crate) accept: unsafe extern "C" fn(*mut FidEp, *const c_void, usize) -> c_int,
    pub(crate) reject: unsafe extern "C" fn(*mut FidPep, *mut Fid, *const c_void, usize) -> c_int,
    pub(crate) shutdown: unsafe extern "C" fn(*mut FidEp, u64) -> c_int,
    pub(crate) join: Refused,
}

/// One segment of one buffer, as most transfers have it.
type WithBuffer =
    unsafe extern "C" fn(*mut FidEp, *mut c_void, usize, *mut c_void, u64, *mut c_void) -> isize;
type WithBuffers = unsafe extern "C" fn(
    *mut FidEp,
    *const Iovec,
    *mut *mut c_void,
    usize,
    u64,
    *mut c_void,
) -> isize;

/// `struct fi_ops_msg`
#[repr(C)]
pub(crate) struct OpsMsg {
    pub(crate) size: usize,
    pub(crate) recv: WithBuffer,
    pub(crate) recvv: WithBuffers,
    pub(crate) recvmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsg, u64) -> isize,
    pub(crate) send: WithBuffer,
    pub(crate) sendv: WithBuffers,
    pub(crate) sendmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsg, u64) -> isize,
    pub(crate) inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64) -> isize,
    pub(crate) senddata: unsafe extern "C" fn(
        *mut FidEp,
        *mut c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) injectdata:
        unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, u64) -> isize,
}

type RemoteBuffer = unsafe extern "C" fn(
    *mut FidEp,
    *mut c_void,
    usize,
    *mut c_void,
    u64,
    u64,
    u64,
    *mut c_void,
) -> isize;
type RemoteBuffers = unsafe extern "C" fn(
    *mut FidEp,
    *const Iovec,
    *mut *mut c_void,
    usize,
    u64,
    u64,
    u64,
    *mut c_void,
) -> isize;

/// `struct fi_ops_rma`
#[repr(C)]
pub(crate) struct OpsRma {
    pub(crate) size: usize,
    pub(crate) read: RemoteBuffer,
    pub(crate) readv: RemoteBuffers,
    pub(crate) readmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgRma, u64) -> isize,
    pub(crate) write: RemoteBuffer,
    pub(crate) writev: RemoteBuffers,
    pub(crate) writemsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgRma, u64) -> isize,
    pub(crate) inject:
        unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, u64, u64) -> isize,
    pub(crate) writedata: unsafe extern "C" fn(
        *mut FidEp,
        *mut c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) injectdata:
        unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, u64, u64, u64) -> isize,
}

/// `struct fi_ops_tagged`
#[repr(C)]
pub(crate) struct OpsTagged {
    pub(crate) size: usize,
    pub(crate) recv: unsafe extern "C" fn(
        *mut FidEp,
        *mut c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) recvv: unsafe extern "C" fn(
        *mut FidEp,
        *const Iovec,
        *mut *mut c_void,
        usize,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) recvmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgTagged, u64) -> isize,
    pub(crate) send: unsafe extern "C" fn(
        *mut FidEp,
        *mut c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) sendv: unsafe extern "C" fn(
        *mut FidEp,
        *const Iovec,
        *mut *mut c_void,
        usize,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) sendmsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgTagged, u64) -> isize,
    pub(crate) inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, u64) -> isize,
    pub(crate) senddata: unsafe extern "C" fn(
        *mut FidEp,
        *mut c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub(crate) injectdata:
        unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64, u64, u64) -> isize,
}

/// Of operations, and types of the data.
type Valid = unsafe extern "C" fn(*mut FidEp, c_int, c_int, *mut usize) -> c_int;

/// `struct fi_ops_atomic`
#[repr(C)]
pub(crate) struct OpsAtomic {
    pub(crate) size: usize,
    pub(crate) write: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) writev: unsafe extern "C" fn(
        *mut FidEp,
        *const FiIoc,
        *mut *mut c_void,
        usize,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) writemsg: unsafe extern "C" fn(*mut FidEp, *const FiMsgAtomic, u64) -> isize,
    pub(crate) inject: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        c_int,
        c_int,
    ) -> isize,
    pub(crate) readwrite: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) readwritev: unsafe extern "C" fn(
        *mut FidEp,
        *const FiIoc,
        *mut *mut c_void,
        usize,
        *mut FiIoc,
        *mut *mut c_void,
        usize,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) readwritemsg: unsafe extern "C" fn(
        *mut FidEp,
        *const FiMsgAtomic,
        *mut FiIoc,
        *mut *mut c_void,
        usize,
        u64,
    ) -> isize,
    pub(crate) compwrite: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        *const c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) compwritev: unsafe extern "C" fn(
        *mut FidEp,
        *const FiIoc,
        *mut *mut c_void,
        usize,
        *const FiIoc,
        *mut *mut c_void,
        usize,
        *mut FiIoc,
        *mut *mut c_void,
        usize,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub(crate) compwritemsg: unsafe extern "C" fn(
        *mut FidEp,
        *const FiMsgAtomic,
        *const FiIoc,
        *mut *mut c_void,
        usize,
        *mut FiIoc,
        *mut *mut c_void,
        usize,
        u64,
    ) -> isize,
    pub(crate) writevalid: Valid,
    pub(crate) readwritevalid: Valid,
    pub(crate) compwritevalid: Valid,
}

/// `struct fi_ops_collective`
#[repr(C)]
pub(crate) struct OpsCollective {
    pub(crate) size: usize,
    pub(crate) all: [Refused; 11],
}
