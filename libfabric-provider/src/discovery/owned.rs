//! Infos of libfabric that this library holds: made, read and changed here, freed by libfabric.

use std::ffi::{CStr, CString, c_char, c_void};
use std::net::SocketAddr;
use std::ptr::NonNull;

use super::address;
use crate::abi::{FiDomainAttr, FiEpAttr, FiFabricAttr, FiInfo, FiRxAttr, FiTxAttr};
use crate::errno::Errno;
use crate::handle::Name;
use crate::libfabric::Libfabric;

/// An info with all its parts, and none behind it in a list.
pub(crate) struct OwnedInfo(NonNull<FiInfo>);

// SAFETY: it is memory that no one else has, and libfabric's functions for it are not bound to a thread (fi_getinfo(3)).
unsafe impl Send for OwnedInfo {}
// SAFETY: a shared one is only read.
unsafe impl Sync for OwnedInfo {}

/// The parts of an info.
pub(crate) struct Parts<'a> {
    pub(crate) info: &'a mut FiInfo,
    pub(crate) tx: &'a mut FiTxAttr,
    pub(crate) rx: &'a mut FiRxAttr,
    pub(crate) ep: &'a mut FiEpAttr,
    pub(crate) domain: &'a mut FiDomainAttr,
    pub(crate) fabric: &'a mut FiFabricAttr,
}

impl OwnedInfo {
    /// One that is zero throughout.
    pub(crate) fn new() -> Result<Self, Errno> {
        let libfabric = Libfabric::get().ok_or(Errno::NOT_THERE)?;
        NonNull::new(libfabric.alloc_info()).map(OwnedInfo).ok_or(Errno::NO_MEMORY)
    }

    /// A copy.
    ///
    /// # Safety
    /// `info` is null or an info of this process's libfabric.
    pub(crate) unsafe fn copy(info: *const FiInfo) -> Result<Self, Errno> {
        let libfabric = Libfabric::get().ok_or(Errno::NOT_THERE)?;
        if info.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller's promise.
        let copy = NonNull::new(unsafe { libfabric.copy_info(info) }).ok_or(Errno::NO_MEMORY)?;
        Ok(OwnedInfo(copy))
    }

    pub(crate) fn duplicate(&self) -> Result<Self, Errno> {
        // SAFETY: it is one.
        unsafe { Self::copy(self.0.as_ptr()) }
    }

    /// All parts, to be filled; an application's info may lack some, and then this is an error.
    pub(crate) fn parts(&mut self) -> Result<Parts<'_>, Errno> {
        // SAFETY: all of it belongs to this one, and the parts are allocations of their own (fi_getinfo(3)); of each only what
        // this version knows is reached.
        unsafe {
            let info = self.0.as_mut();
            let missing = Errno::INVALID;
            Ok(Parts {
                tx: info.tx_attr.as_mut().ok_or(missing)?,
                rx: info.rx_attr.as_mut().ok_or(missing)?,
                ep: info.ep_attr.as_mut().ok_or(missing)?,
                domain: info.domain_attr.as_mut().ok_or(missing)?,
                fabric: info.fabric_attr.as_mut().ok_or(missing)?,
                info,
            })
        }
    }

    pub(crate) fn set_source(&mut self, address: SocketAddr) -> Result<(), Errno> {
        // SAFETY: it is this one's alone.
        let info = unsafe { self.0.as_mut() };
        info.addr_format = address::format(address.ip());
        set(&mut info.src_addr, &mut info.src_addrlen, address)
    }

    pub(crate) fn set_destination(&mut self, address: SocketAddr) -> Result<(), Errno> {
        // SAFETY: it is this one's alone.
        let info = unsafe { self.0.as_mut() };
        set(&mut info.dest_addr, &mut info.dest_addrlen, address)
    }

    /// Where it is.
    pub(crate) fn name(&self) -> Name {
        Name::of(self.0.as_ptr())
    }

    /// Names what an endpoint of this info is made from: the request that it answers, or a passive one.
    pub(crate) fn set_handle(&mut self, name: Name) {
        // SAFETY: it is this one's alone.
        unsafe { self.0.as_mut() }.handle = name.as_fid();
    }

    /// Leaves out what concerned the application that it came from: what it answers.
    pub(crate) fn detach(&mut self) {
        // SAFETY: it is this one's alone; a copy is in no list (fi_getinfo(3), `fi_dupinfo`).
        unsafe { self.0.as_mut() }.handle = std::ptr::null_mut();
    }

    pub(crate) fn source(&self) -> Option<SocketAddr> {
        // SAFETY: an info's address has the length that it says.
        unsafe { address::read(self.0.as_ref().src_addr, Some(self.0.as_ref().src_addrlen)) }
    }

    /// Gives it away: to an application, which frees it by `fi_freeinfo`.
    pub(crate) fn into_raw(self) -> *mut FiInfo {
        std::mem::ManuallyDrop::new(self).0.as_ptr()
    }
}

impl Drop for OwnedInfo {
    fn drop(&mut self) {
        if let Some(libfabric) = Libfabric::get() {
            // SAFETY: it is this one's, and gone with it.
            unsafe { libfabric.free_info(self.0.as_ptr()) };
        }
    }
}

/// Makes a list of them, in order, which is the application's.
pub(crate) fn into_list(infos: Vec<OwnedInfo>) -> *mut FiInfo {
    let chain = |next: *mut FiInfo, info: OwnedInfo| {
        let info = info.into_raw();
        // SAFETY: it was this library's until here.
        unsafe { (*info).next = next };
        info
    };
    infos.into_iter().rev().fold(std::ptr::null_mut(), chain)
}

/// Puts a copy of an address where libfabric frees it.
fn set(place: &mut *mut c_void, len: &mut usize, address: SocketAddr) -> Result<(), Errno> {
    let bytes = address::to_bytes(address);
    let bytes = bytes.as_slice();
    // SAFETY: malloc(3); it is freed by libfabric's free(3), or here.
    let copy = unsafe { libc::malloc(bytes.len()) };
    if copy.is_null() {
        return Err(Errno::NO_MEMORY);
    }
    // SAFETY: it has this length; what was there before is of malloc and goes.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy.cast(), bytes.len());
        libc::free(*place);
    }
    (*place, *len) = (copy, bytes.len());
    Ok(())
}

/// Puts a text where libfabric frees it.
pub(crate) fn set_text(place: &mut *mut c_char, text: &str) -> Result<(), Errno> {
    let text = CString::new(text).map_err(|_| Errno::INVALID)?;
    // SAFETY: strdup(3) of a text; what was there before is of malloc and goes.
    unsafe {
        let copy = libc::strdup(text.as_ptr());
        if copy.is_null() {
            return Err(Errno::NO_MEMORY);
        }
        libc::free((*place).cast());
        *place = copy;
    }
    Ok(())
}

/// A text of C's.
///
/// # Safety
/// `text` is null, or ends in zero and stays as it is.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}
