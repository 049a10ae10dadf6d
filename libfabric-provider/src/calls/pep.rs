//! Calls of passive endpoints (`fi_endpoint(3)`, `fi_cm(3)`).

use std::ffi::{c_int, c_void};
use std::sync::Arc;

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

static FID_OPS: Ops = handle_ops(any_ep::close::<Passive>, bind, control);

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

/// The passive endpoint that a handle of an info is; `None` for null, and for what is something else, of whatever provider.
///
/// # Safety
/// `handle` is null or points to a structure that begins with a [`Fid`]; one of ours is not closed before the last use of
/// what this gives.
pub(super) unsafe fn passive<'a>(handle: *mut Fid) -> Option<&'a Arc<Passive>> {
    // SAFETY: the caller's promise; only handles of ours of this kind have this table.
    unsafe {
        let is_one = handle.as_ref().is_some_and(|fid| std::ptr::eq(fid.ops, &FID_OPS));
        if is_one { object::<Passive>(handle.cast()).ok() } else { None }
    }
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
            *place = open(passive, |_| FidPep {
                fid: fid::<Passive>(context, &FID_OPS),
                ops: &OPS,
                cm: &CM,
            });
        }
        Ok(0)
    })
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
