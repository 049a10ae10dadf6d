//! What several tables share: arguments that are bytes, addresses, wait objects, and calls that an object does not have.

use std::ffi::{c_char, c_int, c_void};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::abi::flags::{
    FI_ETOOSMALL, FI_GETOPSFLAG, FI_GETWAIT, FI_GETWAITOBJ, FI_RECV, FI_SEND, FI_SETOPSFLAG,
    FI_WAIT_FD, FI_WAIT_NONE, version,
};
use crate::abi::{FiInfo, Fid};
use crate::discovery::{address, owned::text};
use crate::entry::entry;
use crate::errno::Errno;
use crate::handle::{Object, close as close_handle};
use crate::libfabric::Libfabric;
use crate::objects::bound::{RX, TX};
use crate::objects::devices::{Device, Fabric};
use crate::objects::transfer::Transfers;

/// From this version of the interface on, an error entry says how large its data is, and an application can give a buffer for it; and
/// attributes of regions have keys of authorization.
pub(super) const API_1_5: u32 = version(1, 5);

/// The device that an info names.
///
/// # Safety
/// `info` is null or an info of libfabric.
pub(super) unsafe fn device(fabric: &Fabric, info: *const FiInfo) -> Result<Arc<Device>, Errno> {
    // SAFETY: the caller's promise: its parts are null or there, and a name ends in zero.
    let name = unsafe {
        let attr = info.as_ref().and_then(|info| info.domain_attr.as_ref());
        attr.and_then(|attr| text(attr.name)).ok_or(Errno::INVALID)?
    };
    fabric.device(name.to_str().map_err(|_| Errno::INVALID)?)
}

/// Bytes that a call is given.
///
/// # Safety
/// `data` has `len` bytes that stay as they are; it may be null if there are none.
pub(super) unsafe fn bytes<'a>(data: *const c_void, len: usize) -> Result<&'a [u8], Errno> {
    match (data.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Errno::INVALID),
        _ if len > isize::MAX as usize => Err(Errno::INVALID),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) }),
    }
}

/// Writes an address as far as there is room, and the bytes that all of it takes (`fi_cm(3)`, `fi_getname`).
///
/// # Safety
/// `len` is null or points to the number of bytes that `to` has.
pub(super) unsafe fn put_address(
    from: SocketAddr,
    to: *mut c_void,
    len: *mut usize,
) -> Result<c_int, Errno> {
    let bytes = address::to_bytes(from);
    let bytes = bytes.as_slice();
    // SAFETY: the caller's promise.
    let len = unsafe { len.as_mut() }.ok_or(Errno::INVALID)?;
    let fits = if to.is_null() { 0 } else { (*len).min(bytes.len()) };
    if fits > 0 {
        // SAFETY: there is room for so many.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), fits) };
    }
    *len = bytes.len();
    if fits < bytes.len() { Err(Errno(FI_ETOOSMALL)) } else { Ok(0) }
}

/// The commands of wait objects.
///
/// # Safety
/// `argument` is null, or points to an `int` (`fi_cq(3)`, `fi_eq(3)`, `FI_GETWAIT`).
pub(super) unsafe fn wait_command(
    command: c_int,
    fd: Option<RawFd>,
    argument: *mut c_void,
) -> Result<c_int, Errno> {
    let value = match (command, fd) {
        (FI_GETWAIT, Some(fd)) => fd,
        (FI_GETWAITOBJ, Some(_)) => FI_WAIT_FD,
        (FI_GETWAITOBJ, None) => FI_WAIT_NONE,
        (FI_GETWAIT, None) => return Err(Errno::NO_DATA),
        _ => return Err(Errno::NOT_THERE),
    };
    // SAFETY: the caller's promise.
    *unsafe { argument.cast::<c_int>().as_mut() }.ok_or(Errno::INVALID)? = value;
    Ok(0)
}

/// The text of a provider's own error, which here is a number of libfabric's; into `to` as well, if there is room.
///
/// # Safety
/// `to` is null or has `len` bytes.
pub(super) unsafe fn error_text(errno: c_int, to: *mut c_char, len: usize) -> *const c_char {
    let Some(libfabric) = Libfabric::get() else { return c"unknown".as_ptr() };
    let text = libfabric.strerror(errno);
    if !to.is_null() && len > 0 && !text.is_null() {
        // SAFETY: a text of libfabric's; there is room for `len` bytes, and the last one becomes zero.
        unsafe {
            libc::strncpy(to, text, len);
            *to.add(len - 1) = 0;
        }
    }
    text
}

/// `fi_close` of a handle whose object needs nothing else.
pub(super) unsafe extern "C" fn close<T: Object>(handle: *mut Fid) -> c_int {
    entry(|| {
        // SAFETY: `fi_close`: a handle of this table, not used again.
        unsafe { close_handle::<T>(handle, |_| Ok(()))? };
        Ok(0)
    })
}

/// The commands that read and set the flags of operations that have none of their own.
///
/// # Safety
/// `argument` is null, or points to a number of 64 bits (`fi_endpoint(3)`, `FI_GETOPSFLAG`).
pub(super) unsafe fn op_flags_command<E: Transfers>(
    endpoint: &E,
    command: c_int,
    argument: *mut c_void,
) -> Result<c_int, Errno> {
    if ![FI_GETOPSFLAG, FI_SETOPSFLAG].contains(&command) {
        return Err(Errno::NOT_THERE);
    }
    // SAFETY: the caller's promise.
    let flags = unsafe { argument.cast::<u64>().as_mut() }.ok_or(Errno::INVALID)?;
    let side = match *flags & (FI_SEND | FI_RECV) {
        FI_SEND => TX,
        FI_RECV => RX,
        _ => return Err(Errno::INVALID),
    };
    let own = &endpoint.op_flags()[side];
    match command {
        FI_GETOPSFLAG => *flags = own.load(Ordering::Relaxed),
        _ => own.store(*flags & !(FI_SEND | FI_RECV), Ordering::Relaxed),
    }
    Ok(0)
}

/// Writes an option that is a size (`fi_endpoint(3)`, `fi_getopt`).
///
/// # Safety
/// `len` is null or points to the number of bytes that `value` has.
pub(super) unsafe fn option(
    size: usize,
    value: *mut c_void,
    len: *mut usize,
) -> Result<c_int, Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        let len = len.as_mut().ok_or(Errno::INVALID)?;
        if *len < size_of::<usize>() {
            return Err(Errno(FI_ETOOSMALL));
        }
        *value.cast::<usize>().as_mut().ok_or(Errno::INVALID)? = size;
        *len = size_of::<usize>();
    }
    Ok(0)
}
