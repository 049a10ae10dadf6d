//! What libfabric finds in a library that it loads (`providers/fi_prov.h`).

use std::ffi::{c_char, c_int, c_void};

use super::fid::FidFabric;
use super::info::{FiFabricAttr, FiInfo};

/// `struct fi_provider` (`providers/fi_prov.h`)
#[repr(C)]
pub(crate) struct FiProvider {
    pub(crate) version: u32,
    pub(crate) fi_version: u32,
    pub(crate) context: [*mut c_void; 4],
    pub(crate) name: *const c_char,
    pub(crate) getinfo: unsafe extern "C" fn(
        u32,
        *const c_char,
        *const c_char,
        u64,
        *const FiInfo,
        *mut *mut FiInfo,
    ) -> c_int,
    pub(crate) fabric:
        unsafe extern "C" fn(*mut FiFabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int,
    pub(crate) cleanup: unsafe extern "C" fn(),
}
