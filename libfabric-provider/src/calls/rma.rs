//! Calls of one-sided operations (`fi_rma(3)`).

use std::ffi::c_void;

use super::msg::{Local, inject_bytes, transmit, transmit_as_usual};
use crate::abi::{FiMsgRma, FidEp, Iovec, OpsRma};
use crate::entry::entry;
use crate::errno::Errno;
use crate::handle::object;
use crate::objects::transfer::{Kind, Options, Remote, Transfers};

/// The table of an endpoint of this kind.
pub(super) const fn table<E: Transfers>() -> &'static OpsRma {
    const {
        &OpsRma {
            size: size_of::<OpsRma>(),
            read: read::<E>,
            readv: readv::<E>,
            readmsg: readmsg::<E>,
            write: write::<E>,
            writev: writev::<E>,
            writemsg: writemsg::<E>,
            inject: inject::<E>,
            writedata: writedata::<E>,
            injectdata: injectdata::<E>,
        }
    }
}

unsafe extern "C" fn read<E: Transfers>(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    len: usize,
    descriptor: *mut c_void,
    peer: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let buffer = Iovec { iov_base: buffer, iov_len: len };
    let local = Local { buffers: &buffer, descriptors: &descriptor, count: 1 };
    let kind = Kind::Read(Remote { address, key });
    let options = Options::new(peer, context as u64);
    // SAFETY: the arguments are the caller's (fi_rma(3)).
    entry(|| unsafe { transmit_as_usual::<E>(endpoint, kind, local, options) })
}

unsafe extern "C" fn readv<E: Transfers>(
    endpoint: *mut FidEp,
    buffers: *const Iovec,
    descriptors: *mut *mut c_void,
    count: usize,
    peer: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let local = Local { buffers, descriptors, count };
    let kind = Kind::Read(Remote { address, key });
    let options = Options::new(peer, context as u64);
    // SAFETY: the arguments are the caller's (fi_rma(3)).
    entry(|| unsafe { transmit_as_usual::<E>(endpoint, kind, local, options) })
}

unsafe extern "C" fn readmsg<E: Transfers>(
    endpoint: *mut FidEp,
    message: *const FiMsgRma,
    flags: u64,
) -> isize {
    // SAFETY: the arguments are the caller's (fi_rma(3)).
    entry(|| unsafe { transmit_message::<E>(endpoint, Kind::Read, message, flags) })
}

unsafe extern "C" fn write<E: Transfers>(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    len: usize,
    descriptor: *mut c_void,
    peer: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let buffer = Iovec { iov_base: buffer, iov_len: len };
    let local = Local { buffers: &buffer, descriptors: &descriptor, count: 1 };
    let kind = Kind::Write(Remote { address, key });
    let options = Options::new(peer, context as u64);
    // SAFETY: the arguments are the caller's (fi_rma(3)).
    entry(|| unsafe { transmit_as_usual::<E>(endpoint, kind, local, options) })
}

unsafe extern "C" fn writev<E: Transfers>(
    endpoint: *mut FidEp,
    buffers: *const Iovec,
    descriptors: *mut *mut c_void,
    count: usize,
    peer: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let local = Local { buffers, descriptors, count };
    let kind = Kind::Write(Remote { address, key });
    let options = Options::new(peer, context as u64);
    // SAFETY: the arguments are the caller's (fi_rma(3)).
    entry(|| unsafe { transmit_as_usual::<E>(endpoint, kind, local, options) })
}

unsafe extern "C" fn writemsg<E: Transfers>(
    endpoint: *mut FidEp,
    message: *const FiMsgRma,
    flags: u64,
) -> isize {
    // SAFETY: the arguments are the caller's (fi_rma(3)).
    entry(|| unsafe { transmit_message::<E>(endpoint, Kind::Write, message, flags) })
}

/// Posts what a message says, with the flags of the call.
///
/// # Safety
/// `fi_rma(3)`: an endpoint of ours, and a message with as many buffers and remote places as it says.
unsafe fn transmit_message<E: Transfers>(
    endpoint: *mut FidEp,
    kind: fn(Remote) -> Kind,
    message: *const FiMsgRma,
    flags: u64,
) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        let endpoint = object::<E>(endpoint)?;
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
        let (data, context) = (message.data, message.context as u64);
        let options = Options { flags, data, context, peer: message.addr };
        let kind = kind(Remote { address: remote.addr, key: remote.key });
        transmit(&**endpoint, kind, local, options)
    }
}

unsafe extern "C" fn inject<E: Transfers>(
    endpoint: *mut FidEp,
    from: *const c_void,
    len: usize,
    peer: u64,
    address: u64,
    key: u64,
) -> isize {
    let kind = Kind::Write(Remote { address, key });
    let options = Options::new(peer, 0);
    // SAFETY: the arguments are the caller's (fi_rma(3)).
    entry(|| unsafe { inject_bytes::<E>(endpoint, kind, (from, len), options) })
}

unsafe extern "C" fn writedata<E: Transfers>(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    len: usize,
    descriptor: *mut c_void,
    data: u64,
    peer: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let buffer = Iovec { iov_base: buffer, iov_len: len };
    let local = Local { buffers: &buffer, descriptors: &descriptor, count: 1 };
    let kind = Kind::Write(Remote { address, key });
    let options = Options::new(peer, context as u64).data(data);
    // SAFETY: the arguments are the caller's (fi_rma(3)).
    entry(|| unsafe { transmit_as_usual::<E>(endpoint, kind, local, options) })
}

unsafe extern "C" fn injectdata<E: Transfers>(
    endpoint: *mut FidEp,
    from: *const c_void,
    len: usize,
    data: u64,
    peer: u64,
    address: u64,
    key: u64,
) -> isize {
    let kind = Kind::Write(Remote { address, key });
    let options = Options::new(peer, 0).data(data);
    // SAFETY: the arguments are the caller's (fi_rma(3)).
    entry(|| unsafe { inject_bytes::<E>(endpoint, kind, (from, len), options) })
}
