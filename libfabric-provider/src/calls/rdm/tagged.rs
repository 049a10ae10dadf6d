//! Calls of tagged messages (`fi_tagged(3)`).

use std::ffi::c_void;

use crate::abi::{FiMsgTagged, FidEp, Iovec, OpsTagged};
use crate::calls::msg::{Local, inject_bytes, receive, transmit, transmit_as_usual};
use crate::entry::entry;
use crate::errno::Errno;
use crate::handle::object;
use crate::objects::rdm::endpoint::RdmEndpoint;
use crate::objects::transfer::{Kind, Options};

pub(super) static OPS: OpsTagged = OpsTagged {
    size: size_of::<OpsTagged>(),
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

type E = RdmEndpoint;

unsafe extern "C" fn recv(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    len: usize,
    descriptor: *mut c_void,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let buffer = Iovec { iov_base: buffer, iov_len: len };
    let local = Local { buffers: &buffer, descriptors: &descriptor, count: 1 };
    let wanted = (from, Some((tag, ignore)));
    // SAFETY: the arguments are the caller's (fi_tagged(3)).
    entry(|| unsafe { receive::<E>(endpoint, local, wanted, None, context) })
}

unsafe extern "C" fn recvv(
    endpoint: *mut FidEp,
    buffers: *const Iovec,
    descriptors: *mut *mut c_void,
    count: usize,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let local = Local { buffers, descriptors, count };
    let wanted = (from, Some((tag, ignore)));
    // SAFETY: the arguments are the caller's (fi_tagged(3)).
    entry(|| unsafe { receive::<E>(endpoint, local, wanted, None, context) })
}

unsafe extern "C" fn recvmsg(
    endpoint: *mut FidEp,
    message: *const FiMsgTagged,
    flags: u64,
) -> isize {
    entry(|| {
        // SAFETY: the arguments are the caller's (fi_tagged(3)).
        unsafe {
            let message = message.as_ref().ok_or(Errno::INVALID)?;
            let wanted = (message.addr, Some((message.tag, message.ignore)));
            receive::<E>(endpoint, Local::from(message), wanted, Some(flags), message.context)
        }
    })
}

impl From<&FiMsgTagged> for Local {
    fn from(message: &FiMsgTagged) -> Self {
        let &FiMsgTagged { msg_iov: buffers, desc, iov_count: count, .. } = message;
        Local { buffers, descriptors: desc.cast_const(), count }
    }
}

unsafe extern "C" fn send(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    len: usize,
    descriptor: *mut c_void,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let buffer = Iovec { iov_base: buffer, iov_len: len };
    let local = Local { buffers: &buffer, descriptors: &descriptor, count: 1 };
    let options = Options::new(to, context as u64);
    // SAFETY: the arguments are the caller's (fi_tagged(3)).
    entry(|| unsafe { transmit_as_usual::<E>(endpoint, Kind::Tagged(tag), local, options) })
}

unsafe extern "C" fn sendv(
    endpoint: *mut FidEp,
    buffers: *const Iovec,
    descriptors: *mut *mut c_void,
    count: usize,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let local = Local { buffers, descriptors, count };
    let options = Options::new(to, context as u64);
    // SAFETY: the arguments are the caller's (fi_tagged(3)).
    entry(|| unsafe { transmit_as_usual::<E>(endpoint, Kind::Tagged(tag), local, options) })
}

unsafe extern "C" fn sendmsg(
    endpoint: *mut FidEp,
    message: *const FiMsgTagged,
    flags: u64,
) -> isize {
    entry(|| {
        // SAFETY: the arguments are the caller's (fi_tagged(3)).
        unsafe {
            let endpoint = object::<E>(endpoint)?;
            let message = message.as_ref().ok_or(Errno::INVALID)?;
            let (data, context) = (message.data, message.context as u64);
            let options = Options { flags, data, context, peer: message.addr };
            transmit(&**endpoint, Kind::Tagged(message.tag), Local::from(message), options)
        }
    })
}

unsafe extern "C" fn inject(
    endpoint: *mut FidEp,
    from: *const c_void,
    len: usize,
    to: u64,
    tag: u64,
) -> isize {
    let options = Options::new(to, 0);
    // SAFETY: the arguments are the caller's (fi_tagged(3)).
    entry(|| unsafe { inject_bytes::<E>(endpoint, Kind::Tagged(tag), (from, len), options) })
}

unsafe extern "C" fn senddata(
    endpoint: *mut FidEp,
    buffer: *mut c_void,
    len: usize,
    descriptor: *mut c_void,
    data: u64,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let buffer = Iovec { iov_base: buffer, iov_len: len };
    let local = Local { buffers: &buffer, descriptors: &descriptor, count: 1 };
    let options = Options::new(to, context as u64).data(data);
    // SAFETY: the arguments are the caller's (fi_tagged(3)).
    entry(|| unsafe { transmit_as_usual::<E>(endpoint, Kind::Tagged(tag), local, options) })
}

unsafe extern "C" fn injectdata(
    endpoint: *mut FidEp,
    from: *const c_void,
    len: usize,
    data: u64,
    to: u64,
    tag: u64,
) -> isize {
    let options = Options::new(to, 0).data(data);
    // SAFETY: the arguments are the caller's (fi_tagged(3)).
    entry(|| unsafe { inject_bytes::<E>(endpoint, Kind::Tagged(tag), (from, len), options) })
}
