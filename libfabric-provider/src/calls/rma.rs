//! Calls of one-sided operations (`fi_rma(3)`).

use std::ffi::c_void;

use super::msg::{Local, inject_bytes, transmit, transmit_as_usual};
use crate::abi::flags::FI_REMOTE_CQ_DATA;
use crate::abi::{FiMsgRma, FidEp, Iovec, OpsRma};
use crate::entry::entry;
use crate::errno::Errno;
use crate::handle::object;
use crate::objects::endpoint::MessageEndpoint;
use crate::objects::transfer::{Kind, Options, Remote};

pub(super) static OPS: OpsRma = OpsRma {
    size: size_of::<OpsRma>(),
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
};

unsafe extern "C" fn read(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    len: usize,
    descriptor: *mut c_void,
    _from: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let buffer = Iovec { iov_base: buffer, iov_len: len };
    let local = Local { buffers: &buffer, descriptors: &descriptor, count: 1 };
    let kind = Kind::Read(Remote { address, key });
    // SAFETY: the arguments are the caller's (fi_rma(3)).
    entry(|| unsafe { transmit_as_usual(endpoint, kind, local, (0, 0, context)) })
}

unsafe extern "C" fn readv(
    endpoint: *mut FidEp,
    buffers: *const Iovec,
    descriptors: *mut *mut c_void,
    count: usize,
    _from: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let local = Local { buffers, descriptors, count };
    let kind = Kind::Read(Remote { address, key });
    // SAFETY: the arguments are the caller's (fi_rma(3)).
    entry(|| unsafe { transmit_as_usual(endpoint, kind, local, (0, 0, context)) })
}

unsafe extern "C" fn readmsg(endpoint: *mut FidEp, message: *const FiMsgRma, flags: u64) -> isize {
    // SAFETY: the arguments are the caller's (fi_rma(3)).
    entry(|| unsafe { transmit_message(endpoint, Kind::Read, message, flags) })
}

unsafe extern "C" fn write(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    len: usize,
    descriptor: *mut c_void,
    _to: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let buffer = Iovec { iov_base: buffer, iov_len: len };
    let local = Local { buffers: &buffer, descriptors: &descriptor, count: 1 };
    let kind = Kind::Write(Remote { address, key });
    // SAFETY: the arguments are the caller's (fi_rma(3)).
    entry(|| unsafe { transmit_as_usual(endpoint, kind, local, (0, 0, context)) })
}

unsafe extern "C" fn writev(
    endpoint: *mut FidEp,
    buffers: *const Iovec,
    descriptors: *mut *mut c_void,
    count: usize,
    _to: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let local = Local { buffers, descriptors, count };
    let kind = Kind::Write(Remote { address, key });
    // SAFETY: the arguments are the caller's (fi_rma(3)).
    entry(|| unsafe { transmit_as_usual(endpoint, kind, local, (0, 0, context)) })
}

unsafe extern "C" fn writemsg(endpoint: *mut FidEp, message: *const FiMsgRma, flags: u64) -> isize {
    // SAFETY: the arguments are the caller's (fi_rma(3)).
    entry(|| unsafe { transmit_message(endpoint, Kind::Write, message, flags) })
}

/// Posts what a message says, with the flags of the call.
///
/// # Safety
/// `fi_rma(3)`: an endpoint of ours, and a message with as many buffers and remote places as it says.
unsafe fn transmit_message(
    endpoint: *mut FidEp,
    kind: fn(Remote) -> Kind,
    message: *const FiMsgRma,
    flags: u64,
) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        let endpoint = object::<MessageEndpoint>(endpoint)?;
        let message = message.as_ref().ok_or(Errno::INVALID)?;
        // One remote place: the info's `rma_iov_limit`.
        if message.rma_iov_count != 1 {
            return Err(Errno::INVALID);
        }
        let remote = message.rma_iov.as_ref().ok_or(Errno::INVALID)?;
        let &FiMsgRma { msg_iov: buffers, desc, iov_count: count, .. } = message;
        let local = Local { buffers, descriptors: desc.cast_const(), count };
        if local.len()? != remote.len {
            return Err(Errno::INVALID);
        }
        let options = Options { flags, data: message.data, context: message.context as u64 };
        let kind = kind(Remote { address: remote.addr, key: remote.key });
        transmit(endpoint, kind, local, options)
    }
}

unsafe extern "C" fn inject(
    endpoint: *mut FidEp,
    from: *const c_void,
    len: usize,
    _to: u64,
    address: u64,
    key: u64,
) -> isize {
    let kind = Kind::Write(Remote { address, key });
    // SAFETY: the arguments are the caller's (fi_rma(3)).
    entry(|| unsafe { inject_bytes(endpoint, kind, (from, len), None) })
}

unsafe extern "C" fn writedata(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    len: usize,
    descriptor: *mut c_void,
    data: u64,
    _to: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let buffer = Iovec { iov_base: buffer, iov_len: len };
    let local = Local { buffers: &buffer, descriptors: &descriptor, count: 1 };
    let kind = Kind::Write(Remote { address, key });
    let options = (FI_REMOTE_CQ_DATA, data, context);
    // SAFETY: the arguments are the caller's (fi_rma(3)).
    entry(|| unsafe { transmit_as_usual(endpoint, kind, local, options) })
}

unsafe extern "C" fn injectdata(
    endpoint: *mut FidEp,
    from: *const c_void,
    len: usize,
    data: u64,
    _to: u64,
    address: u64,
    key: u64,
) -> isize {
    let kind = Kind::Write(Remote { address, key });
    // SAFETY: the arguments are the caller's (fi_rma(3)).
    entry(|| unsafe { inject_bytes(endpoint, kind, (from, len), Some(data)) })
}
