//! Names of reliable datagram endpoints (`fi_cm(3)`). They have no connections.

use std::ffi::{c_int, c_void};

use crate::abi::{Fid, FidEp, FidPep, OpsCm};
use crate::calls::any_ep;
use crate::entry::refused;
use crate::objects::rdm::endpoint::RdmEndpoint;

pub(super) static CM: OpsCm = OpsCm {
    size: size_of::<OpsCm>(),
    setname: any_ep::setname::<RdmEndpoint>,
    getname: any_ep::getname::<RdmEndpoint>,
    getpeer,
    connect,
    listen,
    accept,
    reject,
    shutdown,
    join: refused,
};

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
