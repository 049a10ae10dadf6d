//! What is transferred, and from where to where (`fi_endpoint.h`, `fi_rma.h`, `fi_tagged.h`, `fi_atomic.h`,
//! `fi_domain.h`).

use std::ffi::{c_int, c_void};

/// `struct iovec`
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Iovec {
    pub(crate) iov_base: *mut c_void,
    pub(crate) iov_len: usize,
}

/// `struct fi_msg`
#[repr(C)]
pub(crate) struct FiMsg {
    pub(crate) msg_iov: *const Iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

/// `struct fi_rma_iov`
#[repr(C)]
pub(crate) struct FiRmaIov {
    pub(crate) addr: u64,
    pub(crate) len: usize,
    pub(crate) key: u64,
}

/// `struct fi_msg_rma`
#[repr(C)]
pub(crate) struct FiMsgRma {
    pub(crate) msg_iov: *const Iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) rma_iov: *const FiRmaIov,
    pub(crate) rma_iov_count: usize,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

/// `struct fi_mr_attr`, up to what kind of memory it is: that counts with `FI_HMEM` only (`fi_mr(3)`), which is not offered.
#[repr(C)]
pub(crate) struct FiMrAttr {
    pub(crate) mr_iov: *const Iovec,
    pub(crate) iov_count: usize,
    pub(crate) access: u64,
    pub(crate) offset: u64,
    pub(crate) requested_key: u64,
    pub(crate) context: *mut c_void,
    pub(crate) auth_key_size: usize,
    pub(crate) auth_key: *mut u8,
}

/// `struct fi_msg_tagged`
#[repr(C)]
pub(crate) struct FiMsgTagged {
    pub(crate) msg_iov: *const Iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

/// `struct fi_atomic_attr`
#[repr(C)]
pub(crate) struct FiAtomicAttr {
    pub(crate) count: usize,
    pub(crate) size: usize,
}

/// `struct fi_ioc`
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct FiIoc {
    pub(crate) addr: *mut c_void,
    pub(crate) count: usize,
}

/// `struct fi_rma_ioc`
#[repr(C)]
pub(crate) struct FiRmaIoc {
    pub(crate) addr: u64,
    pub(crate) count: usize,
    pub(crate) key: u64,
}

/// `struct fi_msg_atomic`
#[repr(C)]
pub(crate) struct FiMsgAtomic {
    pub(crate) msg_iov: *const FiIoc,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) rma_iov: *const FiRmaIoc,
    pub(crate) rma_iov_count: usize,
    pub(crate) datatype: c_int,
    pub(crate) op: c_int,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}
