//! Calls of memory regions (`fi_mr(3)`).

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::common::API_1_5;
use crate::abi::flags::{FI_EBADFLAGS, FI_PROV_FLAGS};
use crate::abi::{FiMrAttr, Fid, FidMr, Iovec, Ops, OpsMr};
use crate::entry::{entry, handle_ops, no_bind, no_control};
use crate::errno::Errno;
use crate::handle::{close as close_handle, fid, of_fid, open};
use crate::objects::domain::Domain;
use crate::objects::region::MemoryRegion;

pub(super) static OPS: OpsMr = OpsMr { size: size_of::<OpsMr>(), reg, regv, regattr };

static FID_OPS: Ops = handle_ops(close, no_bind, no_control);

/// Registers a buffer; its handle is what `fi_mr_desc` gives.
///
/// # Safety
/// `fi_mr(3)`: a domain of ours; memory that stays mapped until the region is closed; a place for a handle.
unsafe fn register(
    domain: *mut Fid,
    buffer: Iovec,
    (access, flags): (u64, u64),
    region: *mut *mut FidMr,
    context: *mut c_void,
) -> Result<c_int, Errno> {
    // `ofi_rxm` sets bits of its own: they concern a cache that is not here.
    if flags & !FI_PROV_FLAGS != 0 {
        return Err(Errno(FI_EBADFLAGS));
    }
    // SAFETY: the caller's promise.
    unsafe {
        let domain = of_fid::<Domain>(domain)?;
        let place = region.as_mut().ok_or(Errno::INVALID)?;
        let (address, len) = (buffer.iov_base.cast(), buffer.iov_len);
        let region = Arc::new(MemoryRegion::register(domain, (address, len), access)?);
        let key = region.key();
        *place = open(region, |name| FidMr {
            fid: fid::<MemoryRegion>(context, &FID_OPS),
            mem_desc: name.as_fid().cast(),
            key,
        });
    }
    Ok(0)
}

unsafe extern "C" fn reg(
    domain: *mut Fid,
    buffer: *const c_void,
    len: usize,
    access: u64,
    _offset: u64,
    _requested_key: u64,
    flags: u64,
    region: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    let buffer = Iovec { iov_base: buffer.cast_mut(), iov_len: len };
    // SAFETY: the arguments are the caller's.
    entry(|| unsafe { register(domain, buffer, (access, flags), region, context) })
}

unsafe extern "C" fn regv(
    domain: *mut Fid,
    buffers: *const Iovec,
    count: usize,
    access: u64,
    _offset: u64,
    _requested_key: u64,
    flags: u64,
    region: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    entry(|| {
        // One buffer for each region: the info's `mr_iov_limit`.
        if count != 1 {
            return Err(Errno::INVALID);
        }
        // SAFETY: `fi_mr(3)`: there are so many.
        let buffer = *unsafe { buffers.as_ref() }.ok_or(Errno::INVALID)?;
        // SAFETY: the arguments are the caller's.
        unsafe { register(domain, buffer, (access, flags), region, context) }
    })
}

unsafe extern "C" fn regattr(
    domain: *mut Fid,
    attr: *const FiMrAttr,
    flags: u64,
    region: *mut *mut FidMr,
) -> c_int {
    entry(|| {
        // SAFETY: `fi_mr(3)`: attributes with as many buffers as they say, of the size that the application's version has.
        unsafe {
            if attr.is_null() {
                return Err(Errno::INVALID);
            }
            let version = of_fid::<Domain>(domain)?.fabric.version;
            let has_key = version >= API_1_5 && (*attr).auth_key_size != 0;
            if (*attr).iov_count != 1 || has_key {
                return Err(Errno::INVALID);
            }
            let buffer = *(*attr).mr_iov.as_ref().ok_or(Errno::INVALID)?;
            register(domain, buffer, ((*attr).access, flags), region, (*attr).context)
        }
    })
}

unsafe extern "C" fn close(handle: *mut Fid) -> c_int {
    entry(|| {
        // SAFETY: `fi_close`: a handle of this table, used again only if this fails.
        unsafe { close_handle::<MemoryRegion>(handle, MemoryRegion::end)? };
        Ok(0)
    })
}
