//! Calls of connections (`fi_cm(3)`).

use std::ffi::{c_int, c_void};

use super::any_ep::{self, owner};
use super::common::{bytes, put_address};
use crate::abi::{Fid, FidEp, FidPep, OpsCm};
use crate::discovery::address;
use crate::entry::{entry, refused};
use crate::errno::Errno;
use crate::handle::object;
use crate::objects::endpoint::MessageEndpoint;

pub(super) static CM: OpsCm = OpsCm {
    size: size_of::<OpsCm>(),
    setname: any_ep::setname::<MessageEndpoint>,
    getname: any_ep::getname::<MessageEndpoint>,
    getpeer,
    connect,
    listen,
    accept,
    reject,
    shutdown,
    join: refused,
};

unsafe extern "C" fn getpeer(endpoint: *mut FidEp, to: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: an endpoint of ours, and as many bytes as the number says.
    entry(|| unsafe { put_address(object::<MessageEndpoint>(endpoint)?.peer()?, to, len) })
}

unsafe extern "C" fn connect(
    endpoint: *mut FidEp,
    to: *const c_void,
    data: *const c_void,
    len: usize,
) -> c_int {
    entry(|| {
        // SAFETY: an endpoint of ours, a whole address, and so many bytes.
        unsafe {
            let to = address::read(to, None).ok_or(Errno::INVALID)?;
            let (owner, data) = (owner(endpoint.cast()), bytes(data, len)?);
            object::<MessageEndpoint>(endpoint)?.connect(owner, to, data)?;
        }
        Ok(0)
    })
}

unsafe extern "C" fn accept(endpoint: *mut FidEp, data: *const c_void, len: usize) -> c_int {
    entry(|| {
        // SAFETY: an endpoint of ours, and so many bytes.
        unsafe {
            let (owner, data) = (owner(endpoint.cast()), bytes(data, len)?);
            object::<MessageEndpoint>(endpoint)?.accept(owner, data)?;
        }
        Ok(0)
    })
}

unsafe extern "C" fn shutdown(endpoint: *mut FidEp, flags: u64) -> c_int {
    entry(|| {
        if flags != 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: an endpoint of ours.
        unsafe { object::<MessageEndpoint>(endpoint)? }.shutdown()?;
        Ok(0)
    })
}

// An active endpoint listens to no peer.
unsafe extern "C" fn listen(_: *mut FidPep) -> c_int {
    -libc::ENOSYS
}
unsafe extern "C" fn reject(_: *mut FidPep, _: *mut Fid, _: *const c_void, _: usize) -> c_int {
    -libc::ENOSYS
}
