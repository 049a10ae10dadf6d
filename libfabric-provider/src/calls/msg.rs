//! Calls of messages (`fi_msg(3)`), and what they share with those of one-sided operations.

use std::ffi::c_void;

use smallvec::SmallVec;

use super::common::bytes;
use crate::abi::flags::{FI_INJECT, FI_REMOTE_CQ_DATA};
use crate::abi::{FiMsg, FidEp, Iovec, OpsMsg};
use crate::entry::entry;
use crate::errno::Errno;
use crate::handle::object;
use crate::objects::endpoint::{MessageEndpoint, RX, TX};
use crate::objects::region::MemoryRegion;
use crate::objects::transfer::{Buffer, Kind, Options, Transmit};

pub(super) static OPS: OpsMsg = OpsMsg {
    size: size_of::<OpsMsg>(),
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
};

/// The buffers that a call may have: more than any device takes.
const MAX_BUFFERS: usize = 256;

/// The buffers of a call; more go to the heap.
type BufferList<'a> = SmallVec<[Buffer<'a>; 4]>;

/// Local memory as C names it: buffers, and the descriptors of the regions that they are in, or none.
#[derive(Clone, Copy)]
pub(super) struct Local {
    pub(super) buffers: *const Iovec,
    pub(super) descriptors: *const *mut c_void,
    pub(super) count: usize,
}

impl Local {
    fn check(self) -> Result<(), Errno> {
        let is_there = self.count == 0 || !self.buffers.is_null();
        if self.count <= MAX_BUFFERS && is_there { Ok(()) } else { Err(Errno::INVALID) }
    }

    /// The buffers.
    ///
    /// # Safety
    /// `fi_msg(3)`: there are so many; a descriptor is null or of `fi_mr_desc`, of a region that is not closed meanwhile.
    #[inline]
    unsafe fn read<'a>(self) -> Result<BufferList<'a>, Errno> {
        self.check()?;
        let mut list = BufferList::new();
        for at in 0..self.count {
            // SAFETY: the caller's promise. A descriptor is the region's handle.
            unsafe {
                let Iovec { iov_base, iov_len } = *self.buffers.add(at);
                let no_descriptors = self.descriptors.is_null();
                let descriptor =
                    if no_descriptors { std::ptr::null_mut() } else { *self.descriptors.add(at) };
                let region = match descriptor.is_null() {
                    true => None,
                    false => Some(object::<MemoryRegion>(descriptor.cast())?),
                };
                list.push(Buffer { address: iov_base as usize, len: iov_len, region });
            }
        }
        Ok(list)
    }

    /// The bytes of all buffers.
    ///
    /// # Safety
    /// There are so many.
    pub(super) unsafe fn len(self) -> Result<usize, Errno> {
        self.check()?;
        // SAFETY: the caller's promise.
        let mut lens = (0..self.count).map(|at| unsafe { (*self.buffers.add(at)).iov_len });
        lens.try_fold(0_usize, usize::checked_add).ok_or(Errno::INVALID)
    }
}

/// Posts a transmit of these buffers; what is to be injected is copied.
///
/// # Safety
/// An endpoint of ours, and as of [`Local::read`]; the buffers can be read.
#[inline]
pub(super) unsafe fn transmit(
    endpoint: &MessageEndpoint,
    kind: Kind,
    local: Local,
    options: Options,
) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    let buffers = unsafe { local.read()? };
    if options.flags & FI_INJECT == 0 || matches!(kind, Kind::Read(_)) {
        endpoint.transmit(kind, Transmit::Buffers(&buffers), options)?;
        return Ok(0);
    }
    // SAFETY: the caller's promise.
    if unsafe { local.len() }.map_or(true, |len| len > endpoint.inject_size()) {
        return Err(Errno(libc::EMSGSIZE));
    }
    let mut copy = SmallVec::<[u8; 256]>::new();
    for buffer in &buffers {
        // SAFETY: the caller's promise.
        copy.extend_from_slice(unsafe { bytes(buffer.address as *const c_void, buffer.len)? });
    }
    endpoint.transmit(kind, Transmit::Bytes(&copy), options)?;
    Ok(0)
}

/// As [`transmit`], with the flags of the endpoint beside those of the call.
///
/// # Safety
/// As of [`transmit`].
#[inline]
pub(super) unsafe fn transmit_as_usual(
    endpoint: *mut FidEp,
    kind: Kind,
    local: Local,
    (flags, data, context): (u64, u64, *mut c_void),
) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        let endpoint = object::<MessageEndpoint>(endpoint)?;
        let mut flags = flags | endpoint.op_flags(TX);
        if matches!(kind, Kind::Read(_)) {
            flags &= !FI_INJECT;
        }
        transmit(endpoint, kind, local, Options { flags, data, context: context as u64 })
    }
}

/// Posts a transmit of a copy of these bytes, without a completion.
///
/// # Safety
/// An endpoint of ours, and so many bytes.
#[inline]
pub(super) unsafe fn inject_bytes(
    endpoint: *mut FidEp,
    kind: Kind,
    (from, len): (*const c_void, usize),
    data: Option<u64>,
) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        let endpoint = object::<MessageEndpoint>(endpoint)?;
        if len > endpoint.inject_size() {
            return Err(Errno(libc::EMSGSIZE));
        }
        endpoint.inject(kind, bytes(from, len)?, data)?;
    }
    Ok(0)
}

/// Posts a receive; without flags of its own, with those of the endpoint.
///
/// # Safety
/// An endpoint of ours, and as of [`Local::read`].
unsafe fn receive(
    endpoint: *mut FidEp,
    local: Local,
    flags: Option<u64>,
    context: *mut c_void,
) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        let endpoint = object::<MessageEndpoint>(endpoint)?;
        let flags = flags.unwrap_or_else(|| endpoint.op_flags(RX));
        endpoint.receive(&local.read()?, flags, context as u64)?;
    }
    Ok(0)
}

unsafe extern "C" fn recv(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    len: usize,
    descriptor: *mut c_void,
    _from: u64,
    context: *mut c_void,
) -> isize {
    let buffer = Iovec { iov_base: buffer, iov_len: len };
    let local = Local { buffers: &buffer, descriptors: &descriptor, count: 1 };
    // SAFETY: the arguments are the caller's (fi_msg(3)).
    entry(|| unsafe { receive(endpoint, local, None, context) })
}

unsafe extern "C" fn recvv(
    endpoint: *mut FidEp,
    buffers: *const Iovec,
    descriptors: *mut *mut c_void,
    count: usize,
    _from: u64,
    context: *mut c_void,
) -> isize {
    let local = Local { buffers, descriptors, count };
    // SAFETY: the arguments are the caller's (fi_msg(3)).
    entry(|| unsafe { receive(endpoint, local, None, context) })
}

unsafe extern "C" fn recvmsg(endpoint: *mut FidEp, message: *const FiMsg, flags: u64) -> isize {
    entry(|| {
        // SAFETY: the arguments are the caller's (fi_msg(3)).
        unsafe {
            let message = message.as_ref().ok_or(Errno::INVALID)?;
            receive(endpoint, Local::from(message), Some(flags), message.context)
        }
    })
}

impl From<&FiMsg> for Local {
    fn from(&FiMsg { msg_iov: buffers, desc, iov_count: count, .. }: &FiMsg) -> Self {
        Local { buffers, descriptors: desc.cast_const(), count }
    }
}

unsafe extern "C" fn send(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    len: usize,
    descriptor: *mut c_void,
    _to: u64,
    context: *mut c_void,
) -> isize {
    let buffer = Iovec { iov_base: buffer, iov_len: len };
    let local = Local { buffers: &buffer, descriptors: &descriptor, count: 1 };
    // SAFETY: the arguments are the caller's (fi_msg(3)).
    entry(|| unsafe { transmit_as_usual(endpoint, Kind::Send, local, (0, 0, context)) })
}

unsafe extern "C" fn sendv(
    endpoint: *mut FidEp,
    buffers: *const Iovec,
    descriptors: *mut *mut c_void,
    count: usize,
    _to: u64,
    context: *mut c_void,
) -> isize {
    let local = Local { buffers, descriptors, count };
    // SAFETY: the arguments are the caller's (fi_msg(3)).
    entry(|| unsafe { transmit_as_usual(endpoint, Kind::Send, local, (0, 0, context)) })
}

unsafe extern "C" fn sendmsg(endpoint: *mut FidEp, message: *const FiMsg, flags: u64) -> isize {
    entry(|| {
        // SAFETY: the arguments are the caller's (fi_msg(3)).
        unsafe {
            let endpoint = object::<MessageEndpoint>(endpoint)?;
            let message = message.as_ref().ok_or(Errno::INVALID)?;
            let options = Options { flags, data: message.data, context: message.context as u64 };
            transmit(endpoint, Kind::Send, Local::from(message), options)
        }
    })
}

unsafe extern "C" fn inject(
    endpoint: *mut FidEp,
    from: *const c_void,
    len: usize,
    _to: u64,
) -> isize {
    // SAFETY: the arguments are the caller's (fi_msg(3)).
    entry(|| unsafe { inject_bytes(endpoint, Kind::Send, (from, len), None) })
}

unsafe extern "C" fn senddata(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    len: usize,
    descriptor: *mut c_void,
    data: u64,
    _to: u64,
    context: *mut c_void,
) -> isize {
    let buffer = Iovec { iov_base: buffer, iov_len: len };
    let local = Local { buffers: &buffer, descriptors: &descriptor, count: 1 };
    let options = (FI_REMOTE_CQ_DATA, data, context);
    // SAFETY: the arguments are the caller's (fi_msg(3)).
    entry(|| unsafe { transmit_as_usual(endpoint, Kind::Send, local, options) })
}

unsafe extern "C" fn injectdata(
    endpoint: *mut FidEp,
    from: *const c_void,
    len: usize,
    data: u64,
    _to: u64,
) -> isize {
    // SAFETY: the arguments are the caller's (fi_msg(3)).
    entry(|| unsafe { inject_bytes(endpoint, Kind::Send, (from, len), Some(data)) })
}
