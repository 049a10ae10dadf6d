//! Calls of counters (`fi_cntr(3)`).

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::common::close;
use crate::abi::flags::{FI_CNTR_EVENTS_COMP, FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_YIELD};
use crate::abi::{FiCntrAttr, FidCntr, FidDomain, Ops, OpsCntr};
use crate::entry::{entry, handle_ops, no_bind, no_control};
use crate::errno::Errno;
use crate::handle::{fid, object, open};
use crate::objects::counter::Counter;
use crate::objects::domain::{Domain, deadline};

static FID_OPS: Ops = handle_ops(close::<Counter>, no_bind, no_control);

static OPS: OpsCntr =
    OpsCntr { size: size_of::<OpsCntr>(), read, readerr, add, set, wait, adderr, seterr };

/// `fi_cntr_open`
pub(super) unsafe extern "C" fn open_counter(
    domain: *mut FidDomain,
    attr: *mut FiCntrAttr,
    counter: *mut *mut FidCntr,
    context: *mut c_void,
) -> c_int {
    entry(|| {
        // SAFETY: a domain of ours, attributes or null, a place for a handle.
        unsafe {
            let domain = object::<Domain>(domain)?;
            let place = counter.as_mut().ok_or(Errno::INVALID)?;
            if let Some(attr) = attr.as_ref() {
                if attr.events != FI_CNTR_EVENTS_COMP || attr.flags != 0 {
                    return Err(Errno::INVALID);
                }
                // It can be waited for, and has nothing else to be woken by.
                if ![FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_YIELD].contains(&attr.wait_obj) {
                    return Err(Errno::NOT_THERE);
                }
            }
            *place = open(Arc::new(Counter::new(domain)), |_| FidCntr {
                fid: fid::<Counter>(context, &FID_OPS),
                ops: &OPS,
            });
        }
        Ok(0)
    })
}

unsafe extern "C" fn read(counter: *mut FidCntr) -> u64 {
    // SAFETY: a counter of ours.
    entry(|| Ok(unsafe { object::<Counter>(counter)? }.read().0))
}

unsafe extern "C" fn readerr(counter: *mut FidCntr) -> u64 {
    // SAFETY: a counter of ours.
    entry(|| Ok(unsafe { object::<Counter>(counter)? }.read().1))
}

/// Changes one of its numbers.
///
/// # Safety
/// A counter of ours.
unsafe fn change(
    counter: *mut FidCntr,
    change: impl FnOnce(&Counter) -> (&AtomicU64, Option<u64>),
    value: u64,
) -> c_int {
    entry(|| {
        // SAFETY: the caller's promise.
        match change(unsafe { object::<Counter>(counter)? }) {
            (number, Some(value)) => number.store(value, Ordering::Release),
            (number, None) => drop(number.fetch_add(value, Ordering::AcqRel)),
        }
        Ok(0)
    })
}

unsafe extern "C" fn add(counter: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: a counter of ours.
    unsafe { change(counter, |counter| (&counter.count.value, None), value) }
}

unsafe extern "C" fn set(counter: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: a counter of ours.
    unsafe { change(counter, |counter| (&counter.count.value, Some(value)), value) }
}

unsafe extern "C" fn adderr(counter: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: a counter of ours.
    unsafe { change(counter, |counter| (&counter.count.errors, None), value) }
}

unsafe extern "C" fn seterr(counter: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: a counter of ours.
    unsafe { change(counter, |counter| (&counter.count.errors, Some(value)), value) }
}

unsafe extern "C" fn wait(counter: *mut FidCntr, threshold: u64, timeout: c_int) -> c_int {
    entry(|| {
        // SAFETY: a counter of ours.
        unsafe { object::<Counter>(counter)? }.wait(threshold, deadline(timeout))?;
        Ok(0)
    })
}
