//! Calls of messages (`fi_msg(3)`), and what they share with those of one-sided operations.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::common::bytes;
use crate::abi::flags::{FI_CLAIM, FI_DISCARD, FI_INJECT, FI_MULTI_RECV, FI_PEEK};
use crate::abi::{FiMsg, FidEp, Iovec, OpsMsg};
use crate::entry::entry;
use crate::errno::Errno;
use crate::handle::object;
use crate::objects::bound::{RX, TX};
use crate::objects::region::MemoryRegion;
use crate::objects::transfer::{Buffer, Kind, Options, Receive, Transfers, Transmit};

/// The table of an endpoint of this kind.
pub(super) const fn table<E: Transfers>() -> &'static OpsMsg {
    const {
        &OpsMsg {
            size: size_of::<OpsMsg>(),
            recv: recv::<E>,
            recvv: recvv::<E>,
            recvmsg: recvmsg::<E>,
            send: send::<E>,
            sendv: sendv::<E>,
            sendmsg: sendmsg::<E>,
            inject: inject::<E>,
            senddata: senddata::<E>,
            injectdata: injectdata::<E>,
        }
    }
}

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

    /// The buffers, and the regions that they are in where descriptors count.
    ///
    /// # Safety
    /// `fi_msg(3)`: there are so many; a descriptor that counts is null or of `fi_mr_desc`, of a region that is not closed meanwhile.
    #[inline]
    unsafe fn read<'a>(self, takes_descriptors: bool) -> Result<BufferList<'a>, Errno> {
        self.check()?;
        let mut list = BufferList::new();
        for at in 0..self.count {
            // SAFETY: the caller's promise. A descriptor is the region's handle.
            unsafe {
                let Iovec { iov_base, iov_len } = *self.buffers.add(at);
                // That of no bytes may be anything (fi_msg(3)).
                let is_ignored = !takes_descriptors || iov_len == 0 || self.descriptors.is_null();
                let descriptor =
                    if is_ignored { std::ptr::null_mut() } else { *self.descriptors.add(at) };
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
pub(super) unsafe fn transmit<E: Transfers>(
    endpoint: &E,
    kind: Kind,
    local: Local,
    options: Options,
) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    let buffers = unsafe { local.read(endpoint.takes_descriptors())? };
    let injects = options.flags & FI_INJECT != 0 && !matches!(kind, Kind::Read(_));
    if !injects && !endpoint.takes_copy(kind, &buffers) {
        endpoint.transmit(kind, Transmit::Buffers(&buffers), options)?;
        return Ok(0);
    }
    // SAFETY: the caller's promise.
    if unsafe { local.len() }.map_or(true, |len| len > endpoint.inject_size()) {
        return Err(Errno(libc::EMSGSIZE));
    }
    // SAFETY: the caller's promise.
    let bytes_of = |buffer: &Buffer<'_>| unsafe { bytes(buffer.address as *const _, buffer.len) };
    let mut copy = SmallVec::<[u8; 256]>::new();
    let all = match &buffers[..] {
        [one] => bytes_of(one)?,
        more => {
            for buffer in more {
                copy.extend_from_slice(bytes_of(buffer)?);
            }
            &copy[..]
        }
    };
    endpoint.transmit(kind, Transmit::Bytes(all), options)?;
    Ok(0)
}

/// As [`transmit`], with the flags of the endpoint beside those of the call.
///
/// # Safety
/// As of [`transmit`].
#[inline]
pub(super) unsafe fn transmit_as_usual<E: Transfers>(
    endpoint: *mut FidEp,
    kind: Kind,
    local: Local,
    options: Options,
) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        let endpoint = object::<E>(endpoint)?;
        let usual = endpoint.op_flags()[TX].load(Ordering::Relaxed);
        let flags = options.flags | kind.usual(usual);
        transmit(&**endpoint, kind, local, Options { flags, ..options })
    }
}

/// Posts a transmit of a copy of these bytes, without a completion.
///
/// # Safety
/// An endpoint of ours, and so many bytes.
#[inline]
pub(super) unsafe fn inject_bytes<E: Transfers>(
    endpoint: *mut FidEp,
    kind: Kind,
    (from, len): (*const c_void, usize),
    options: Options,
) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        let endpoint = object::<E>(endpoint)?;
        if len > endpoint.inject_size() {
            return Err(Errno(libc::EMSGSIZE));
        }
        endpoint.inject(kind, bytes(from, len)?, options)?;
    }
    Ok(0)
}

/// From whom a receive takes which messages.
pub(super) type Wanted = (u64, Option<(u64, u64)>);

/// Posts a receive; without flags of its own, with those of the endpoint.
///
/// # Safety
/// An endpoint of ours, and as of [`Local::read`].
pub(super) unsafe fn receive<E: Transfers>(
    endpoint: *mut FidEp,
    local: Local,
    (from, tag): Wanted,
    flags: Option<u64>,
    context: *mut c_void,
) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        let endpoint = object::<E>(endpoint)?;
        // No tagged receive takes many.
        let not_of_it = if tag.is_some() { FI_MULTI_RECV } else { 0 };
        let usual = || endpoint.op_flags()[RX].load(Ordering::Relaxed) & !not_of_it;
        let flags = flags.unwrap_or_else(usual);
        // What is dropped has no use for them, whatever they are.
        let drops = flags & FI_DISCARD != 0 && flags & (FI_PEEK | FI_CLAIM) != 0;
        let takes = endpoint.takes_descriptors();
        let buffers = if drops { BufferList::new() } else { local.read(takes)? };
        let context = context as u64;
        endpoint.receive(&Receive { buffers: &buffers, from, tag, flags, context })?;
    }
    Ok(0)
}

unsafe extern "C" fn recv<E: Transfers>(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    len: usize,
    descriptor: *mut c_void,
    from: u64,
    context: *mut c_void,
) -> isize {
    let buffer = Iovec { iov_base: buffer, iov_len: len };
    let local = Local { buffers: &buffer, descriptors: &descriptor, count: 1 };
    // SAFETY: the arguments are the caller's (fi_msg(3)).
    entry(|| unsafe { receive::<E>(endpoint, local, (from, None), None, context) })
}

unsafe extern "C" fn recvv<E: Transfers>(
    endpoint: *mut FidEp,
    buffers: *const Iovec,
    descriptors: *mut *mut c_void,
    count: usize,
    from: u64,
    context: *mut c_void,
) -> isize {
    let local = Local { buffers, descriptors, count };
    // SAFETY: the arguments are the caller's (fi_msg(3)).
    entry(|| unsafe { receive::<E>(endpoint, local, (from, None), None, context) })
}

unsafe extern "C" fn recvmsg<E: Transfers>(
    endpoint: *mut FidEp,
    message: *const FiMsg,
    flags: u64,
) -> isize {
    entry(|| {
        // SAFETY: the arguments are the caller's (fi_msg(3)).
        unsafe {
            let message = message.as_ref().ok_or(Errno::INVALID)?;
            let wanted = (message.addr, None);
            receive::<E>(endpoint, Local::from(message), wanted, Some(flags), message.context)
        }
    })
}

impl From<&FiMsg> for Local {
    fn from(&FiMsg { msg_iov: buffers, desc, iov_count: count, .. }: &FiMsg) -> Self {
        Local { buffers, descriptors: desc.cast_const(), count }
    }
}

unsafe extern "C" fn send<E: Transfers>(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    len: usize,
    descriptor: *mut c_void,
    to: u64,
    context: *mut c_void,
) -> isize {
    let buffer = Iovec { iov_base: buffer, iov_len: len };
    let local = Local { buffers: &buffer, descriptors: &descriptor, count: 1 };
    let options = Options::new(to, context as u64);
    // SAFETY: the arguments are the caller's (fi_msg(3)).
    entry(|| unsafe { transmit_as_usual::<E>(endpoint, Kind::Send, local, options) })
}

unsafe extern "C" fn sendv<E: Transfers>(
    endpoint: *mut FidEp,
    buffers: *const Iovec,
    descriptors: *mut *mut c_void,
    count: usize,
    to: u64,
    context: *mut c_void,
) -> isize {
    let local = Local { buffers, descriptors, count };
    let options = Options::new(to, context as u64);
    // SAFETY: the arguments are the caller's (fi_msg(3)).
    entry(|| unsafe { transmit_as_usual::<E>(endpoint, Kind::Send, local, options) })
}

unsafe extern "C" fn sendmsg<E: Transfers>(
    endpoint: *mut FidEp,
    message: *const FiMsg,
    flags: u64,
) -> isize {
    entry(|| {
        // SAFETY: the arguments are the caller's (fi_msg(3)).
        unsafe {
            let endpoint = object::<E>(endpoint)?;
            let message = message.as_ref().ok_or(Errno::INVALID)?;
            let (data, context) = (message.data, message.context as u64);
            let options = Options { flags, data, context, peer: message.addr };
            transmit(&**endpoint, Kind::Send, Local::from(message), options)
        }
    })
}

unsafe extern "C" fn inject<E: Transfers>(
    endpoint: *mut FidEp,
    from: *const c_void,
    len: usize,
    to: u64,
) -> isize {
    // SAFETY: the arguments are the caller's (fi_msg(3)).
    entry(|| unsafe { inject_bytes::<E>(endpoint, Kind::Send, (from, len), Options::new(to, 0)) })
}

unsafe extern "C" fn senddata<E: Transfers>(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    len: usize,
    descriptor: *mut c_void,
    data: u64,
    to: u64,
    context: *mut c_void,
) -> isize {
    let buffer = Iovec { iov_base: buffer, iov_len: len };
    let local = Local { buffers: &buffer, descriptors: &descriptor, count: 1 };
    let options = Options::new(to, context as u64).data(data);
    // SAFETY: the arguments are the caller's (fi_msg(3)).
    entry(|| unsafe { transmit_as_usual::<E>(endpoint, Kind::Send, local, options) })
}

unsafe extern "C" fn injectdata<E: Transfers>(
    endpoint: *mut FidEp,
    from: *const c_void,
    len: usize,
    data: u64,
    to: u64,
) -> isize {
    // SAFETY: the arguments are the caller's (fi_msg(3)).
    entry(|| unsafe {
        inject_bytes::<E>(endpoint, Kind::Send, (from, len), Options::new(to, 0).data(data))
    })
}
