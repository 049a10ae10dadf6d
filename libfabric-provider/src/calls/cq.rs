//! Calls of completion queues (`fi_cq(3)`).

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use super::common::{API_1_5, close, error_text, wait_command};
use crate::abi::flags::{
    FI_AFFINITY, FI_CQ_COND_NONE, FI_CQ_COND_THRESHOLD, FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_DATA,
    FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_TAGGED, FI_CQ_FORMAT_UNSPEC, FI_WAIT_FD, FI_WAIT_NONE,
    FI_WAIT_UNSPEC, FI_WAIT_YIELD,
};
use crate::abi::{
    FiCqAttr, FiCqDataEntry, FiCqEntry, FiCqErrEntry, FiCqMsgEntry, FiCqTaggedEntry, Fid, FidCq,
    FidDomain, Ops, OpsCq,
};
use crate::entry::{entry, handle_ops, no_bind};
use crate::errno::Errno;
use crate::handle::{fid, object, of_fid, open};
use crate::objects::domain::{Domain, Queue, deadline};
use crate::objects::done::Done;

static FID_OPS: Ops = handle_ops(close::<Queue>, no_bind, control);

static OPS: OpsCq =
    OpsCq { size: size_of::<OpsCq>(), read, readfrom, readerr, sread, sreadfrom, signal, strerror };

/// The entries of a queue whose size the application leaves open.
const SIZE: usize = 1024;

/// `fi_cq_open`
pub(super) unsafe extern "C" fn open_queue(
    domain: *mut FidDomain,
    attr: *mut FiCqAttr,
    queue: *mut *mut FidCq,
    context: *mut c_void,
) -> c_int {
    entry(|| {
        // SAFETY: a domain of ours, attributes or null, a place for a handle.
        unsafe {
            let domain = object::<Domain>(domain)?;
            let place = queue.as_mut().ok_or(Errno::INVALID)?;
            let (size, format, has_wait) = attributes(attr.as_ref())?;
            let queue = Arc::new(Queue::new(domain, size, format, has_wait)?);
            *place = open(queue, |_| FidCq { fid: fid::<Queue>(context, &FID_OPS), ops: &OPS });
        }
        Ok(0)
    })
}

/// The size, the format, and whether there is a wait object.
fn attributes(attr: Option<&FiCqAttr>) -> Result<(usize, c_int, bool), Errno> {
    let Some(attr) = attr else { return Ok((SIZE, FI_CQ_FORMAT_CONTEXT, false)) };
    let format = match attr.format {
        FI_CQ_FORMAT_UNSPEC => FI_CQ_FORMAT_CONTEXT,
        known @ FI_CQ_FORMAT_CONTEXT..=FI_CQ_FORMAT_TAGGED => known,
        _ => return Err(Errno::NOT_THERE),
    };
    let has_wait = match attr.wait_obj {
        FI_WAIT_NONE => false,
        FI_WAIT_UNSPEC | FI_WAIT_FD | FI_WAIT_YIELD => true,
        _ => return Err(Errno::NOT_THERE),
    };
    // A reader that waits for more than one takes what there is: a threshold is a hint.
    let is_condition = [FI_CQ_COND_NONE, FI_CQ_COND_THRESHOLD].contains(&attr.wait_cond);
    if attr.flags & !FI_AFFINITY != 0 || !is_condition {
        return Err(Errno::INVALID);
    }
    Ok((if attr.size == 0 { SIZE } else { attr.size }, format, has_wait))
}

unsafe extern "C" fn control(handle: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    entry(|| {
        // SAFETY: a queue of ours, and what the command takes.
        unsafe {
            let fd = of_fid::<Queue>(handle)?.completions.wait().map(|wait| wait.raw());
            wait_command(command, fd, argument)
        }
    })
}

/// Writes an entry as the format has it.
///
/// # Safety
/// `to` has room for `at` entries of the format, and one more; `sources` is null, or has room for as many.
#[inline]
unsafe fn put(format: c_int, to: *mut c_void, sources: *mut u64, at: usize, done: &Done) {
    let (op_context, buf) = (done.context as *mut c_void, done.buffer as *mut c_void);
    let Done { flags, len, data, tag, .. } = *done;
    if !sources.is_null() {
        // SAFETY: the caller's promise.
        unsafe { sources.add(at).write(done.source) };
    }
    // SAFETY: the caller's promise; a caller's array may have any alignment that its own type has.
    unsafe {
        match format {
            FI_CQ_FORMAT_CONTEXT => to.cast::<FiCqEntry>().add(at).write(FiCqEntry { op_context }),
            FI_CQ_FORMAT_MSG => {
                to.cast::<FiCqMsgEntry>().add(at).write(FiCqMsgEntry { op_context, flags, len });
            }
            FI_CQ_FORMAT_DATA => {
                let entry = FiCqDataEntry { op_context, flags, len, buf, data };
                to.cast::<FiCqDataEntry>().add(at).write(entry);
            }
            _ => {
                let entry = FiCqTaggedEntry { op_context, flags, len, buf, data, tag };
                to.cast::<FiCqTaggedEntry>().add(at).write(entry);
            }
        }
    }
}

unsafe extern "C" fn read(queue: *mut FidCq, to: *mut c_void, count: usize) -> isize {
    // SAFETY: the arguments are the caller's; without sources.
    unsafe { readfrom(queue, to, count, std::ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(
    queue: *mut FidCq,
    to: *mut c_void,
    count: usize,
    sources: *mut u64,
) -> isize {
    entry(|| {
        // SAFETY: a queue of ours, and room for `count` entries of its format and as many sources; or neither, and no count.
        unsafe {
            let queue = object::<Queue>(queue)?;
            let count = if to.is_null() { 0 } else { count };
            let put = |at, done: &Done| put(queue.format, to, sources, at, done);
            Ok(queue.completions.read(count, put)? as isize)
        }
    })
}

unsafe extern "C" fn sread(
    queue: *mut FidCq,
    to: *mut c_void,
    count: usize,
    condition: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: the arguments are the caller's; without sources.
    unsafe { sreadfrom(queue, to, count, std::ptr::null_mut(), condition, timeout) }
}

unsafe extern "C" fn sreadfrom(
    queue: *mut FidCq,
    to: *mut c_void,
    count: usize,
    sources: *mut u64,
    _condition: *const c_void,
    timeout: c_int,
) -> isize {
    entry(|| {
        // SAFETY: as of `readfrom`.
        unsafe {
            let queue = object::<Queue>(queue)?;
            let count = if to.is_null() { 0 } else { count };
            let until = deadline(timeout);
            let put = |at, done: &Done| put(queue.format, to, sources, at, done);
            Ok(queue.read_or_sleep(count, until, put)? as isize)
        }
    })
}

unsafe extern "C" fn readerr(queue: *mut FidCq, to: *mut FiCqErrEntry, _flags: u64) -> isize {
    entry(|| {
        // SAFETY: a queue of ours, and an entry of the size that the application's version has.
        unsafe {
            let queue = object::<Queue>(queue)?;
            if to.is_null() {
                return Err(Errno::INVALID);
            }
            let done = queue.completions.read_error().ok_or(Errno::AGAIN)?;
            let (errno, _) = done.error.ok_or(Errno::AGAIN)?;
            (*to).op_context = done.context as *mut c_void;
            ((*to).flags, (*to).len, (*to).data) = (done.flags, done.len, done.data);
            ((*to).buf, (*to).tag) = (done.buffer as *mut c_void, done.tag);
            (*to).olen = done.overflow;
            ((*to).err, (*to).prov_errno) = (errno.0, errno.0);
            // There is no data. A buffer that the application gives stays its own.
            if queue.domain.fabric.version >= API_1_5 {
                (*to).err_data_size = 0;
            }
        }
        Ok(1)
    })
}

unsafe extern "C" fn signal(queue: *mut FidCq) -> c_int {
    entry(|| {
        // SAFETY: a queue of ours.
        unsafe { object::<Queue>(queue)? }.completions.signal();
        Ok(0)
    })
}

unsafe extern "C" fn strerror(
    _: *mut FidCq,
    errno: c_int,
    _: *const c_void,
    to: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: `fi_cq(3)`: the buffer is null or has so many bytes.
    entry(|| Ok(unsafe { error_text(errno, to, len) }))
}
