//! Handles of each kind, and the tables of functions behind them (`fabric.h`, `fi_domain.h`, `fi_endpoint.h`, `fi_eq.h`, `fi_cm.h`, `fi_rma.h`).

use std::ffi::{c_char, c_int, c_void};

use super::base::{Fid, Refused};
use super::info::FiInfo;
use super::queue::{FiCntrAttr, FiCqAttr, FiCqErrEntry, FiEqAttr, FiEqErrEntry};
use super::transfer::{FiMrAttr, FiMsg, FiMsgRma, Iovec};

/// `struct fid_fabric`
#[repr(C)]
pub(crate) struct FidFabric {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsFabric,
    pub(crate) api_version: u32,
}

/// `struct fi_ops_fabric`
#[repr(C)]
pub(crate) struct OpsFabric {
    pub(crate) size: usize,
    pub(crate) domain: unsafe extern "C" fn(
        *mut FidFabric,
        *mut FiInfo,
        *mut *mut FidDomain,
        *mut c_void,
    ) -> c_int,
    pub(crate) passive_ep:
        unsafe extern "C" fn(*mut FidFabric, *mut FiInfo, *mut *mut FidPep, *mut c_void) -> c_int,
    pub(crate) eq_open:
        unsafe extern "C" fn(*mut FidFabric, *mut FiEqAttr, *mut *mut FidEq, *mut c_void) -> c_int,
    pub(crate) wait_open: Refused,
    pub(crate) trywait: unsafe extern "C" fn(*mut FidFabric, *mut *mut Fid, c_int) -> c_int,
    pub(crate) domain2: Refused,
}

/// `struct fid_domain`
#[repr(C)]
pub(crate) struct FidDomain {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsDomain,
    pub(crate) mr: *const OpsMr,
}

/// `struct fi_ops_domain`
#[repr(C)]
pub(crate) struct OpsDomain {
    pub(crate) size: usize,
    pub(crate) av_open: Refused,
    pub(crate) cq_open:
        unsafe extern "C" fn(*mut FidDomain, *mut FiCqAttr, *mut *mut FidCq, *mut c_void) -> c_int,
    pub(crate) endpoint:
        unsafe extern "C" fn(*mut FidDomain, *mut FiInfo, *mut *mut FidEp, *mut c_void) -> c_int,
    pub(crate) scalable_ep: Refused,
    pub(crate) cntr_open: unsafe extern "C" fn(
        *mut FidDomain,
        *mut FiCntrAttr,
        *mut *mut FidCntr,
        *mut c_void,
    ) -> c_int,
    pub(crate) poll_open: Refused,
    pub(crate) stx_ctx: Refused,
    pub(crate) srx_ctx: Refused,
    pub(crate) query_atomic: Refused,
    pub(crate) query_collective: Refused,
    pub(crate) endpoint2: Refused,
}

/// `struct fi_ops_mr`
#[repr(C)]
pub(crate) struct OpsMr {
    pub(crate) size: usize,
    pub(crate) reg: unsafe extern "C" fn(
        *mut Fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    pub(crate) regv: unsafe extern "C" fn(
        *mut Fid,
        *const Iovec,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    pub(crate) regattr:
        unsafe extern "C" fn(*mut Fid, *const FiMrAttr, u64, *mut *mut FidMr) -> c_int,
}

/// `struct fid_mr`
#[repr(C)]
pub(crate) struct FidMr {
    pub(crate) fid: Fid,
    pub(crate) mem_desc: *mut c_void,
    pub(crate) key: u64,
}

/// `struct fid_eq`
#[repr(C)]
pub(crate) struct FidEq {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsEq,
}

/// `struct fi_ops_eq`
#[repr(C)]
pub(crate) struct OpsEq {
    pub(crate) size: usize,
    pub(crate) read: unsafe extern "C" fn(*mut FidEq, *mut u32, *mut c_void, usize, u64) -> isize,
    pub(crate) readerr: unsafe extern "C" fn(*mut FidEq, *mut FiEqErrEntry, u64) -> isize,
    pub(crate) write: unsafe extern "C" fn(*mut FidEq, u32, *const c_void, usize, u64) -> isize,
    pub(crate) sread:
        unsafe extern "C" fn(*mut FidEq, *mut u32, *mut c_void, usize, c_int, u64) -> isize,
    pub(crate) strerror:
        unsafe extern "C" fn(*mut FidEq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
}

/// `struct fid_cq`
#[repr(C)]
pub(crate) struct FidCq {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsCq,
}

/// `struct fi_ops_cq`
#[repr(C)]
pub(crate) struct OpsCq {
    pub(crate) size: usize,
    pub(crate) read: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize) -> isize,
    pub(crate) readfrom: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *mut u64) -> isize,
    pub(crate) readerr: unsafe extern "C" fn(*mut FidCq, *mut FiCqErrEntry, u64) -> isize,
    pub(crate) sread:
        unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *const c_void, c_int) -> isize,
    pub(crate) sreadfrom: unsafe extern "C" fn(
        *mut FidCq,
        *mut c_void,
        usize,
        *mut u64,
        *const c_void,
        c_int,
    ) -> isize,
    pub(crate) signal: unsafe extern "C" fn(*mut FidCq) -> c_int,
    pub(crate) strerror:
        unsafe extern "C" fn(*mut FidCq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
}

/// `struct fid_cntr`
#[repr(C)]
pub(crate) struct FidCntr {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsCntr,
}

/// `struct fi_ops_cntr`
#[repr(C)]
pub(crate) struct OpsCntr {
    pub(crate) size: usize,
    pub(crate) read: unsafe extern "C" fn(*mut FidCntr) -> u64,
    pub(crate) readerr: unsafe extern "C" fn(*mut FidCntr) -> u64,
    pub(crate) add: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
    pub(crate) set: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
    pub(crate) wait: unsafe extern "C" fn(*mut FidCntr, u64, c_int) -> c_int,
    pub(crate) adderr: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
    pub(crate) seterr: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
}

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

/// `struct fi_ops_ep`
#[repr(C)]
pub(crate) struct OpsEp {
    pub(crate) size: usize,
    pub(crate) cancel: Refused,
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
    pub(crate) all: [Refused; 9],
}

/// `struct fi_ops_atomic`
#[repr(C)]
pub(crate) struct OpsAtomic {
    pub(crate) size: usize,
    pub(crate) all: [Refused; 13],
}

/// `struct fi_ops_collective`
#[repr(C)]
pub(crate) struct OpsCollective {
    pub(crate) size: usize,
    pub(crate) all: [Refused; 11],
}
