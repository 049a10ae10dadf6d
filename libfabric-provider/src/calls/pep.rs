//! Calls of passive endpoints (`fi_endpoint(3)`, `fi_cm(3)`).

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

use super::any_ep::{self, owner};
use super::common::{bytes, device};
use super::options::OPS;
use crate::abi::flags::FI_BACKLOG;
use crate::abi::{FiInfo, Fid, FidEp, FidFabric, FidPep, Ops, OpsCm};
use crate::discovery::owned::OwnedInfo;
use crate::entry::{entry, handle_ops, refused};
use crate::errno::Errno;
use crate::handle::{Name, fid, object, of_fid, open};
use crate::objects::devices::Fabric;
use crate::objects::event_queue::Events;
use crate::objects::passive::Passive;
use crate::sync::lock;

static FID_OPS: Ops = handle_ops(close, bind, control);

static CM: OpsCm = OpsCm {
    size: size_of::<OpsCm>(),
    setname: any_ep::setname::<Passive>,
    getname: any_ep::getname::<Passive>,
    getpeer,
    connect,
    listen,
    accept,
    reject,
    shutdown,
    join: refused,
};

/// Those that are open. An info may name what is not there any more, so its handle is looked up before it is read.
static OPEN: Mutex<Vec<Name>> = Mutex::new(Vec::new());

/// The passive endpoint that a handle of an info is; `None` for null, and for what is something else, or gone.
///
/// # Safety
/// One of ours is not closed before the last use of what this gives.
pub(super) unsafe fn passive<'a>(handle: *mut Fid) -> Option<&'a Arc<Passive>> {
    if !lock(&OPEN).contains(&Name::of(handle)) {
        return None;
    }
    // SAFETY: it is open, and stays so by the caller's promise.
    unsafe { object::<Passive>(handle.cast()).ok() }
}

/// `fi_passive_ep`
pub(super) unsafe extern "C" fn open_passive(
    fabric: *mut FidFabric,
    info: *mut FiInfo,
    passive: *mut *mut FidPep,
    context: *mut c_void,
) -> c_int {
    entry(|| {
        // SAFETY: a fabric of ours, an info of libfabric, a place for a handle.
        unsafe {
            let fabric = object::<Fabric>(fabric)?;
            let place = passive.as_mut().ok_or(Errno::INVALID)?;
            let device = device(fabric, info)?;
            let mut template = OwnedInfo::copy(info)?;
            template.detach();
            let passive = Arc::new(Passive::new(fabric, device, template)?);
            *place = open(passive, |name| {
                lock(&OPEN).push(name);
                FidPep { fid: fid::<Passive>(context, &FID_OPS), ops: &OPS, cm: &CM }
            });
        }
        Ok(0)
    })
}

unsafe extern "C" fn close(handle: *mut Fid) -> c_int {
    let name = Name::of(handle);
    // Before its place is free for another one.
    lock(&OPEN).retain(|open| *open != name);
    // SAFETY: `fi_close`: a handle of this table, used again only if this fails.
    let closed = unsafe { any_ep::close::<Passive>(handle) };
    if closed != 0 {
        lock(&OPEN).push(name);
    }
    closed
}

unsafe extern "C" fn bind(handle: *mut Fid, to: *mut Fid, flags: u64) -> c_int {
    entry(|| {
        if flags != 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: an endpoint and a queue of ours.
        unsafe { of_fid::<Passive>(handle)?.bind(of_fid::<Events>(to)?)? };
        Ok(0)
    })
}

unsafe extern "C" fn control(handle: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    entry(|| {
        if command != FI_BACKLOG {
            return Err(Errno::NOT_THERE);
        }
        // SAFETY: `fi_endpoint(3)`: an endpoint of ours, and an `int`.
        unsafe {
            let backlog = *argument.cast::<c_int>().as_ref().ok_or(Errno::INVALID)?;
            let backlog = usize::try_from(backlog).map_err(|_| Errno::INVALID)?;
            of_fid::<Passive>(handle)?.set_backlog(backlog)?;
        }
        Ok(0)
    })
}

unsafe extern "C" fn listen(passive: *mut FidPep) -> c_int {
    entry(|| {
        // SAFETY: an endpoint of ours.
        unsafe { object::<Passive>(passive)?.listen(owner(passive.cast()))? };
        Ok(0)
    })
}

unsafe extern "C" fn reject(
    passive: *mut FidPep,
    request: *mut Fid,
    data: *const c_void,
    len: usize,
) -> c_int {
    entry(|| {
        // SAFETY: an endpoint of ours, and so many bytes. What the handle points to is not looked at.
        unsafe { object::<Passive>(passive)?.reject(Name::of(request), bytes(data, len)?)? };
        Ok(0)
    })
}

// A passive endpoint connects to no peer.
unsafe extern "C" fn getpeer(_: *mut FidEp, _: *mut c_void, _: *mut usize) -> c_int {
    -libc::ENOSYS
}
unsafe extern "C" fn connect(_: *mut FidEp, _: *const c_void, _: *const c_void, _: usize) -> c_int {
    -libc::ENOSYS
}
unsafe extern "C" fn accept(_: *mut FidEp, _: *const c_void, _: usize) -> c_int {
    -libc::ENOSYS
}
unsafe extern "C" fn shutdown(_: *mut FidEp, _: u64) -> c_int {
    -libc::ENOSYS
}
