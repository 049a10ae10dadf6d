//! Attributes and entries of completion queues, event queues and counters (`fi_eq.h`).

use std::ffi::{c_int, c_void};

use super::base::Fid;
use super::info::FiInfo;

/// `struct fi_eq_attr`
#[repr(C)]
pub(crate) struct FiEqAttr {
    pub(crate) size: usize,
    pub(crate) flags: u64,
    pub(crate) wait_obj: c_int,
    pub(crate) signaling_vector: c_int,
    pub(crate) wait_set: *mut c_void,
}

/// `struct fi_eq_err_entry`
#[repr(C)]
pub(crate) struct FiEqErrEntry {
    pub(crate) fid: *mut Fid,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
    pub(crate) err: c_int,
    pub(crate) prov_errno: c_int,
    pub(crate) err_data: *mut c_void,
    pub(crate) err_data_size: usize,
}

/// `struct fi_eq_cm_entry`, up to the private data, which follows it.
#[repr(C)]
pub(crate) struct FiEqCmEntry {
    pub(crate) fid: *mut Fid,
    pub(crate) info: *mut FiInfo,
}

/// `struct fi_cq_attr`
#[repr(C)]
pub(crate) struct FiCqAttr {
    pub(crate) size: usize,
    pub(crate) flags: u64,
    pub(crate) format: c_int,
    pub(crate) wait_obj: c_int,
    pub(crate) signaling_vector: c_int,
    pub(crate) wait_cond: c_int,
    pub(crate) wait_set: *mut c_void,
}

/// `struct fi_cq_entry`
#[repr(C)]
pub(crate) struct FiCqEntry {
    pub(crate) op_context: *mut c_void,
}

/// `struct fi_cq_msg_entry`
#[repr(C)]
pub(crate) struct FiCqMsgEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
}

/// `struct fi_cq_data_entry`
#[repr(C)]
pub(crate) struct FiCqDataEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
}

/// `struct fi_cq_tagged_entry`
#[repr(C)]
pub(crate) struct FiCqTaggedEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
}

/// `struct fi_cq_err_entry`
#[repr(C)]
pub(crate) struct FiCqErrEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    pub(crate) olen: usize,
    pub(crate) err: c_int,
    pub(crate) prov_errno: c_int,
    pub(crate) err_data: *mut c_void,
    pub(crate) err_data_size: usize,
}

/// `struct fi_cntr_attr`
#[repr(C)]
pub(crate) struct FiCntrAttr {
    pub(crate) events: c_int,
    pub(crate) wait_obj: c_int,
    pub(crate) wait_set: *mut c_void,
    pub(crate) flags: u64,
}
