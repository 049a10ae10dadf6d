//! Names of reliable datagram endpoints (`fi_cm(3)`). They have no connections.

use std::ffi::{c_int, c_void};

use crate::abi::{Fid, FidEp, FidPep, OpsCm};
use crate::calls::common::{bytes, put_address};
use crate::discovery::address;
use crate::entry::{entry, refused};
use crate::errno::Errno;
use crate::handle::of_fid;
use crate::objects::rdm::endpoint::RdmEndpoint;

pub(super) static CM: OpsCm = OpsCm {
    size: size_of::<OpsCm>(),
    setname,
    getname,
    getpeer,
    connect,
    listen,
    accept,
    reject,
    shutdown,
    join: refused,
};

unsafe extern "C" fn setname(handle: *mut Fid, to: *mut c_void, len: usize) -> c_int {
    entry(|| {
        // SAFETY: an endpoint of ours, and so many bytes.
        unsafe {
            let address = address::from_bytes(bytes(to, len)?).ok_or(Errno::INVALID)?;
            of_fid::<RdmEndpoint>(handle)?.set_address(address)?;
        }
        Ok(0)
    })
}

unsafe extern "C" fn getname(handle: *mut Fid, to: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: an endpoint of ours, and as many bytes as the number says.
    entry(|| unsafe { put_address(of_fid::<RdmEndpoint>(handle)?.address()?, to, len) })
}

unsafe extern "C" fn getpeer(_: *mut FidEp, _: *mut c_void, _: *mut usize) -> c_int {
    -libc::ENOSYS
}
unsafe extern "C" fn connect(_: *mut FidEp, _: *const c_void, _: *const c_void, _: usize) -> c_int {
    -libc::ENOSYS
}
unsafe extern "C" fn listen(_: *mut FidPep) -> c_int {
    -libc::ENOSYS
}
unsafe extern "C" fn accept(_: *mut FidEp, _: *const c_void, _: usize) -> c_int {
    -libc::ENOSYS
}
unsafe extern "C" fn reject(_: *mut FidPep, _: *mut Fid, _: *const c_void, _: usize) -> c_int {
    -libc::ENOSYS
}
unsafe extern "C" fn shutdown(_: *mut FidEp, _: u64) -> c_int {
    -libc::ENOSYS
}
