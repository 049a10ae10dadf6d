//! Calls of event queues (`fi_eq(3)`).

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use super::common::{API_1_5, bytes, close, error_text, wait_command};
use crate::abi::flags::{
    FI_AFFINITY, FI_PEEK, FI_WAIT_FD, FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_YIELD, FI_WRITE,
};
use crate::abi::{FiEqAttr, FiEqCmEntry, FiEqErrEntry, FiInfo, Fid, FidEq, FidFabric, Ops, OpsEq};
use crate::entry::{entry, handle_ops, no_bind};
use crate::errno::Errno;
use crate::handle::{fid, object, of_fid, open};
use crate::objects::devices::Fabric;
use crate::objects::domain::deadline;
use crate::objects::event::{Body, Delivery, EventError, RequestInfo};
use crate::objects::event_queue::Events;

static FID_OPS: Ops = handle_ops(close::<Events>, no_bind, control);

static OPS: OpsEq = OpsEq { size: size_of::<OpsEq>(), read, readerr, write, sread, strerror };

/// Events that an application may write before it reads, where it leaves the number open.
const SIZE: usize = 256;

/// `fi_eq_open`
pub(super) unsafe extern "C" fn open_events(
    fabric: *mut FidFabric,
    attr: *mut FiEqAttr,
    events: *mut *mut FidEq,
    context: *mut c_void,
) -> c_int {
    entry(|| {
        // SAFETY: a fabric of ours, attributes or null, a place for a handle.
        unsafe {
            let fabric = object::<Fabric>(fabric)?;
            let place = events.as_mut().ok_or(Errno::INVALID)?;
            let mut writes = 0;
            if let Some(attr) = attr.as_ref() {
                let waits = [FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_YIELD];
                if !waits.contains(&attr.wait_obj) {
                    return Err(Errno::NOT_THERE);
                }
                if attr.flags & !(FI_WRITE | FI_AFFINITY) != 0 {
                    return Err(Errno::INVALID);
                }
                if attr.flags & FI_WRITE != 0 {
                    writes = if attr.size == 0 { SIZE } else { attr.size };
                }
            }
            let events = Arc::new(Events::new(fabric, writes)?);
            *place = open(events, |_| FidEq { fid: fid::<Events>(context, &FID_OPS), ops: &OPS });
        }
        Ok(0)
    })
}

unsafe extern "C" fn control(handle: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    entry(|| {
        // SAFETY: a queue of ours, and what the command takes.
        unsafe {
            let fd = of_fid::<Events>(handle)?.wait().raw();
            wait_command(command, Some(fd), argument)
        }
    })
}

/// Writes what was read; gives its bytes.
///
/// # Safety
/// `event` is null or a place for a number, `to` has `space` bytes, enough for the entry without its data.
unsafe fn put(delivery: Delivery, event: *mut u32, to: *mut c_void, space: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(event) = event.as_mut() {
            *event = delivery.event;
        }
        let copy =
            |from: &[u8], to: *mut u8| std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len());
        match delivery.body {
            Body::Written(bytes) => {
                copy(&bytes, to.cast());
                bytes.len() as isize
            }
            Body::Connection { name, info, data } => {
                let info = match info {
                    Some(RequestInfo::Given(info)) => info.into_raw(),
                    Some(RequestInfo::Shown(name)) => name.address() as *mut FiInfo,
                    None => std::ptr::null_mut(),
                };
                let entry = FiEqCmEntry { fid: name.as_fid(), info };
                to.cast::<FiEqCmEntry>().write_unaligned(entry);
                // As much as there is room for.
                let fits = data.len().min(space - size_of::<FiEqCmEntry>());
                copy(&data[..fits], to.cast::<u8>().add(size_of::<FiEqCmEntry>()));
                (size_of::<FiEqCmEntry>() + fits) as isize
            }
        }
    }
}

unsafe extern "C" fn read(
    events: *mut FidEq,
    event: *mut u32,
    to: *mut c_void,
    space: usize,
    flags: u64,
) -> isize {
    entry(|| {
        // SAFETY: a queue of ours, a place for a number, and so many bytes.
        unsafe {
            let space = if to.is_null() { 0 } else { space };
            let delivery = object::<Events>(events)?.read(space, flags & FI_PEEK != 0)?;
            Ok(put(delivery, event, to, space))
        }
    })
}

unsafe extern "C" fn sread(
    events: *mut FidEq,
    event: *mut u32,
    to: *mut c_void,
    space: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    entry(|| {
        // SAFETY: as of `read`.
        unsafe {
            let space = if to.is_null() { 0 } else { space };
            let (peek, until) = (flags & FI_PEEK != 0, deadline(timeout));
            let delivery = object::<Events>(events)?.read_or_sleep(space, peek, until)?;
            Ok(put(delivery, event, to, space))
        }
    })
}

unsafe extern "C" fn readerr(events: *mut FidEq, to: *mut FiEqErrEntry, flags: u64) -> isize {
    entry(|| {
        if to.is_null() {
            return Err(Errno::INVALID);
        }
        let put = |error: &EventError| {
            // SAFETY: an entry, with a buffer of the size that it says, or none.
            unsafe {
                ((*to).fid, (*to).data) = (error.owner.name.as_fid(), 0);
                (*to).context = error.owner.context as *mut c_void;
                ((*to).err, (*to).prov_errno) = (error.errno.0, error.errno.0);
            }
        };
        // SAFETY: a queue of ours, and as above.
        unsafe {
            let events = object::<Events>(events)?;
            let is_given = events.version() >= API_1_5 && (*to).err_data_size > 0;
            events.read_error(flags & FI_PEEK != 0, |error| {
                put(error);
                put_data(&error.data, is_given, &mut *to);
            })?;
        }
        Ok(size_of::<FiEqErrEntry>() as isize)
    })
}

/// Puts the data of an error into the application's buffer, or says where it is until the queue is read again.
///
/// # Safety
/// If a buffer is given, it has as many bytes as the entry says.
unsafe fn put_data(data: &[u8], is_given: bool, to: &mut FiEqErrEntry) {
    if is_given && !to.err_data.is_null() {
        let fits = data.len().min(to.err_data_size);
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to.err_data.cast(), fits) };
        to.err_data_size = fits;
        return;
    }
    to.err_data =
        if data.is_empty() { std::ptr::null_mut() } else { data.as_ptr().cast_mut().cast() };
    to.err_data_size = data.len();
}

unsafe extern "C" fn write(
    events: *mut FidEq,
    event: u32,
    from: *const c_void,
    len: usize,
    _flags: u64,
) -> isize {
    entry(|| {
        // SAFETY: a queue of ours, and so many bytes.
        unsafe { object::<Events>(events)?.write(event, bytes(from, len)?)? };
        Ok(len as isize)
    })
}

unsafe extern "C" fn strerror(
    _: *mut FidEq,
    errno: c_int,
    _: *const c_void,
    to: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: `fi_eq(3)`: the buffer is null or has so many bytes.
    entry(|| Ok(unsafe { error_text(errno, to, len) }))
}
