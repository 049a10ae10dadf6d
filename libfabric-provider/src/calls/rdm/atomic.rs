//! Calls of atomic operations (`fi_atomic(3)`): of one element each.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use crate::abi::flags::op::FI_ATOMIC_READ;
use crate::abi::flags::{FI_COMPARE_ATOMIC, FI_FETCH_ATOMIC, FI_MATCH_COMPLETE};
use crate::abi::{FiAtomicAttr, FiIoc, FiMsgAtomic, FidDomain, FidEp, OpsAtomic};
use crate::entry::entry;
use crate::errno::Errno;
use crate::handle::object;
use crate::objects::bound::TX;
use crate::objects::domain::Domain;
use crate::objects::rdm::atomic::{AtomicRequest, Form, valid};
use crate::objects::rdm::endpoint::RdmEndpoint;
use crate::objects::region::MemoryRegion;
use crate::objects::transfer::{Buffer, Options, Remote, Transfers};

pub(super) static OPS: OpsAtomic = OpsAtomic {
    size: size_of::<OpsAtomic>(),
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
};

/// What a call is given of memory: one element each. Null where the form has none, and for the operand of a read.
#[derive(Clone, Copy)]
struct Elements {
    operand: *const c_void,
    compare: *const c_void,
    result: *mut c_void,
    result_descriptor: *mut c_void,
}

impl Elements {
    fn operand(operand: *const c_void) -> Self {
        let (compare, result) = (std::ptr::null(), std::ptr::null_mut());
        Elements { operand, compare, result, result_descriptor: std::ptr::null_mut() }
    }

    fn fetch(operand: *const c_void, result: *mut c_void, result_descriptor: *mut c_void) -> Self {
        Elements { result, result_descriptor, ..Self::operand(operand) }
    }
}

/// Where an operation goes, and what it is.
#[derive(Clone, Copy)]
struct Call {
    at: Remote,
    datatype: c_int,
    op: c_int,
    options: Options,
    /// The endpoint's own flags hold as well.
    is_usual: bool,
    injects: bool,
}

impl Call {
    fn new(
        peer: u64,
        (address, key): (u64, u64),
        what: (c_int, c_int),
        context: *mut c_void,
    ) -> Self {
        let (at, options) = (Remote { address, key }, Options::new(peer, context as u64));
        Call { at, datatype: what.0, op: what.1, options, is_usual: true, injects: false }
    }

    /// That of a message.
    ///
    /// # Safety
    /// `fi_atomic(3)`: as many remote places as it says.
    unsafe fn of_message(message: &FiMsgAtomic, flags: u64) -> Result<Self, Errno> {
        // SAFETY: the caller's promise.
        let at = unsafe { message.rma_iov.as_ref() }.ok_or(Errno::INVALID)?;
        if message.rma_iov_count != 1 {
            return Err(Errno::INVALID);
        }
        check_count(at.count)?;
        let what = (message.datatype, message.op);
        let call = Call::new(message.addr, (at.addr, at.key), what, message.context);
        let options = Options { flags, ..call.options };
        Ok(Call { options, is_usual: false, ..call })
    }
}

/// An operation has one element.
fn check_count(count: usize) -> Result<(), Errno> {
    match count {
        0 => Err(Errno::INVALID),
        1 => Ok(()),
        _ => Err(Errno(libc::EMSGSIZE)),
    }
}

/// The bits of an element; 0 of none.
///
/// # Safety
/// Null, or so many bytes, 8 at most.
unsafe fn bits(element: *const c_void, size: usize) -> u64 {
    let mut bytes = [0; 8];
    if !element.is_null() {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(element.cast(), bytes.as_mut_ptr(), size.min(8)) };
    }
    // Of fewer bytes the rest is zero, on a little-endian machine: the only kind that this library is built for.
    u64::from_le_bytes(bytes)
}

/// Posts an operation on `count` elements: one.
///
/// # Safety
/// `fi_atomic(3)`: an endpoint of ours, elements of the type, a descriptor of ours or null.
unsafe fn post(
    endpoint: *mut FidEp,
    form: Form,
    count: usize,
    elements: Elements,
    call: Call,
) -> Result<isize, Errno> {
    check_count(count)?;
    // SAFETY: the caller's promise.
    unsafe {
        let endpoint = object::<RdmEndpoint>(endpoint)?;
        let size = endpoint.valid(form, call.op, call.datatype)?;
        let lacks = (call.op != FI_ATOMIC_READ && elements.operand.is_null())
            || (form != Form::Base && elements.result.is_null())
            || (form == Form::Compare && elements.compare.is_null());
        if lacks {
            return Err(Errno::INVALID);
        }
        let no_region = !endpoint.takes_descriptors() || elements.result_descriptor.is_null();
        let region = match no_region {
            true => None,
            false => Some(object::<MemoryRegion>(elements.result_descriptor.cast())?),
        };
        let result = Buffer { address: elements.result as usize, len: size, region };
        let usual = endpoint.op_flags()[TX].load(Ordering::Relaxed) & !FI_MATCH_COMPLETE;
        let flags = call.options.flags | if call.is_usual { usual } else { 0 };
        let request = AtomicRequest {
            form,
            datatype: call.datatype,
            op: call.op,
            operand: bits(elements.operand, size),
            compare: bits(elements.compare, size),
            result: (form != Form::Base).then_some(result),
            at: call.at,
            options: Options { flags, ..call.options },
        };
        endpoint.atomic(&request, call.injects)?;
    }
    Ok(0)
}

/// The only element of a list of one; null if the list is empty.
///
/// # Safety
/// `fi_atomic(3)`: as many as the number says.
unsafe fn only(list: *const FiIoc, count: usize) -> Result<*mut c_void, Errno> {
    if count == 0 {
        return Ok(std::ptr::null_mut());
    }
    // SAFETY: the caller's promise.
    let one = unsafe { list.as_ref() }.ok_or(Errno::INVALID)?;
    check_count(count)?;
    check_count(one.count)?;
    Ok(one.addr)
}

/// The first of descriptors, if there are any.
///
/// # Safety
/// Null, or one at least.
unsafe fn first(descriptors: *mut *mut c_void) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { descriptors.as_ref() }.copied().unwrap_or(std::ptr::null_mut())
}

unsafe extern "C" fn write(
    endpoint: *mut FidEp,
    operand: *const c_void,
    count: usize,
    _descriptor: *mut c_void,
    peer: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let call = Call::new(peer, (address, key), (datatype, op), context);
    // SAFETY: the arguments are the caller's (fi_atomic(3)).
    entry(|| unsafe { post(endpoint, Form::Base, count, Elements::operand(operand), call) })
}

unsafe extern "C" fn writev(
    endpoint: *mut FidEp,
    operands: *const FiIoc,
    _descriptors: *mut *mut c_void,
    count: usize,
    peer: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let call = Call::new(peer, (address, key), (datatype, op), context);
    // SAFETY: the arguments are the caller's (fi_atomic(3)).
    entry(|| unsafe {
        let elements = Elements::operand(only(operands, count)?);
        post(endpoint, Form::Base, 1, elements, call)
    })
}

unsafe extern "C" fn writemsg(
    endpoint: *mut FidEp,
    message: *const FiMsgAtomic,
    flags: u64,
) -> isize {
    // SAFETY: the arguments are the caller's (fi_atomic(3)).
    entry(|| unsafe {
        let message = message.as_ref().ok_or(Errno::INVALID)?;
        let elements = Elements::operand(only(message.msg_iov, message.iov_count)?);
        post(endpoint, Form::Base, 1, elements, Call::of_message(message, flags)?)
    })
}

unsafe extern "C" fn inject(
    endpoint: *mut FidEp,
    operand: *const c_void,
    count: usize,
    peer: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
) -> isize {
    let call = Call::new(peer, (address, key), (datatype, op), std::ptr::null_mut());
    let call = Call { is_usual: false, injects: true, ..call };
    // SAFETY: the arguments are the caller's (fi_atomic(3)).
    entry(|| unsafe { post(endpoint, Form::Base, count, Elements::operand(operand), call) })
}

unsafe extern "C" fn readwrite(
    endpoint: *mut FidEp,
    operand: *const c_void,
    count: usize,
    _descriptor: *mut c_void,
    result: *mut c_void,
    result_descriptor: *mut c_void,
    peer: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let call = Call::new(peer, (address, key), (datatype, op), context);
    let elements = Elements::fetch(operand, result, result_descriptor);
    // SAFETY: the arguments are the caller's (fi_atomic(3)).
    entry(|| unsafe { post(endpoint, Form::Fetch, count, elements, call) })
}

unsafe extern "C" fn readwritev(
    endpoint: *mut FidEp,
    operands: *const FiIoc,
    _descriptors: *mut *mut c_void,
    count: usize,
    results: *mut FiIoc,
    result_descriptors: *mut *mut c_void,
    result_count: usize,
    peer: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let call = Call::new(peer, (address, key), (datatype, op), context);
    // SAFETY: the arguments are the caller's (fi_atomic(3)).
    entry(|| unsafe {
        let (operand, result) = (only(operands, count)?, only(results, result_count)?);
        let elements = Elements::fetch(operand, result, first(result_descriptors));
        post(endpoint, Form::Fetch, 1, elements, call)
    })
}

unsafe extern "C" fn readwritemsg(
    endpoint: *mut FidEp,
    message: *const FiMsgAtomic,
    results: *mut FiIoc,
    result_descriptors: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: the arguments are the caller's (fi_atomic(3)).
    entry(|| unsafe {
        let message = message.as_ref().ok_or(Errno::INVALID)?;
        let operand = only(message.msg_iov, message.iov_count)?;
        let result = only(results, result_count)?;
        let elements = Elements::fetch(operand, result, first(result_descriptors));
        post(endpoint, Form::Fetch, 1, elements, Call::of_message(message, flags)?)
    })
}

unsafe extern "C" fn compwrite(
    endpoint: *mut FidEp,
    operand: *const c_void,
    count: usize,
    _descriptor: *mut c_void,
    compare: *const c_void,
    _compare_descriptor: *mut c_void,
    result: *mut c_void,
    result_descriptor: *mut c_void,
    peer: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let call = Call::new(peer, (address, key), (datatype, op), context);
    let elements = Elements { compare, ..Elements::fetch(operand, result, result_descriptor) };
    // SAFETY: the arguments are the caller's (fi_atomic(3)).
    entry(|| unsafe { post(endpoint, Form::Compare, count, elements, call) })
}

unsafe extern "C" fn compwritev(
    endpoint: *mut FidEp,
    operands: *const FiIoc,
    _descriptors: *mut *mut c_void,
    count: usize,
    compares: *const FiIoc,
    _compare_descriptors: *mut *mut c_void,
    compare_count: usize,
    results: *mut FiIoc,
    result_descriptors: *mut *mut c_void,
    result_count: usize,
    peer: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let call = Call::new(peer, (address, key), (datatype, op), context);
    // SAFETY: the arguments are the caller's (fi_atomic(3)).
    entry(|| unsafe {
        let (operand, result) = (only(operands, count)?, only(results, result_count)?);
        let elements = Elements::fetch(operand, result, first(result_descriptors));
        let compare = only(compares, compare_count)?;
        post(endpoint, Form::Compare, 1, Elements { compare, ..elements }, call)
    })
}

unsafe extern "C" fn compwritemsg(
    endpoint: *mut FidEp,
    message: *const FiMsgAtomic,
    compares: *const FiIoc,
    _compare_descriptors: *mut *mut c_void,
    compare_count: usize,
    results: *mut FiIoc,
    result_descriptors: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: the arguments are the caller's (fi_atomic(3)).
    entry(|| unsafe {
        let message = message.as_ref().ok_or(Errno::INVALID)?;
        let operand = only(message.msg_iov, message.iov_count)?;
        let result = only(results, result_count)?;
        let elements = Elements::fetch(operand, result, first(result_descriptors));
        let elements = Elements { compare: only(compares, compare_count)?, ..elements };
        post(endpoint, Form::Compare, 1, elements, Call::of_message(message, flags)?)
    })
}

/// Says how many elements an operation takes.
///
/// # Safety
/// An endpoint of ours, and a place for the number.
unsafe fn check(
    endpoint: *mut FidEp,
    form: Form,
    (datatype, op): (c_int, c_int),
    count: *mut usize,
) -> c_int {
    entry(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let count = count.as_mut().ok_or(Errno::INVALID)?;
            *count = 0;
            object::<RdmEndpoint>(endpoint)?.valid(form, op, datatype)?;
            *count = 1;
        }
        Ok(0)
    })
}

unsafe extern "C" fn writevalid(
    endpoint: *mut FidEp,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: the arguments are the caller's (fi_atomic(3)).
    unsafe { check(endpoint, Form::Base, (datatype, op), count) }
}

unsafe extern "C" fn readwritevalid(
    endpoint: *mut FidEp,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: the arguments are the caller's (fi_atomic(3)).
    unsafe { check(endpoint, Form::Fetch, (datatype, op), count) }
}

unsafe extern "C" fn compwritevalid(
    endpoint: *mut FidEp,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: the arguments are the caller's (fi_atomic(3)).
    unsafe { check(endpoint, Form::Compare, (datatype, op), count) }
}

/// `fi_query_atomic`
pub(in crate::calls) unsafe extern "C" fn query(
    domain: *mut FidDomain,
    datatype: c_int,
    op: c_int,
    attr: *mut FiAtomicAttr,
    flags: u64,
) -> c_int {
    entry(|| {
        let form = match flags {
            0 => Form::Base,
            FI_FETCH_ATOMIC => Form::Fetch,
            FI_COMPARE_ATOMIC => Form::Compare,
            _ => return Err(Errno::INVALID),
        };
        // SAFETY: `fi_atomic(3)`: a domain of ours, and a place for the answer.
        unsafe {
            let info = object::<Domain>(domain)?.device.domain.info();
            let attr = attr.as_mut().ok_or(Errno::INVALID)?;
            (attr.count, attr.size) = (0, 0);
            let size = valid(info, form, op, datatype).ok_or(Errno(libc::EOPNOTSUPP))?;
            (attr.count, attr.size) = (1, size);
        }
        Ok(0)
    })
}
