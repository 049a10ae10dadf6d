//! What several tables share: arguments that are bytes, addresses, wait objects, and calls that an object does not have.

use std::ffi::{c_char, c_int, c_void};
use std::net::SocketAddr;
use std::os::fd::RawFd;

use crate::abi::Fid;
use crate::abi::flags::{FI_ETOOSMALL, FI_GETWAIT, FI_GETWAITOBJ, FI_WAIT_FD};
use crate::discovery::address;
use crate::errno::Errno;
use crate::libfabric::Libfabric;

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
        (FI_GETWAITOBJ, fd) => {
            if fd.is_some() {
                FI_WAIT_FD
            } else {
                crate::abi::flags::FI_WAIT_NONE
            }
        }
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

/// `fi_ops.bind` of what is bound to nothing.
pub(super) unsafe extern "C" fn no_bind(_: *mut Fid, _: *mut Fid, _: u64) -> c_int {
    -libc::ENOSYS
}

/// `fi_ops.control` of what has no commands.
pub(super) unsafe extern "C" fn no_control(_: *mut Fid, _: c_int, _: *mut c_void) -> c_int {
    -libc::ENOSYS
}
