//! The functions of the libfabric that loaded this library, looked up when it runs: symbols of 1.17 and 2.x differ in their
//! versions, so nothing is linked. Infos are made, copied and freed by them alone: how large one is only they know.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::abi::flags::FI_LOG_CORE;
use crate::abi::{FiInfo, FiProvider};

/// What is used of libfabric.
pub(crate) struct Libfabric {
    dupinfo: unsafe extern "C" fn(*const FiInfo) -> *mut FiInfo,
    freeinfo: unsafe extern "C" fn(*mut FiInfo),
    version: unsafe extern "C" fn() -> u32,
    strerror: unsafe extern "C" fn(c_int) -> *const c_char,
    log_enabled: unsafe extern "C" fn(*const FiProvider, c_int, c_int) -> c_int,
    log: unsafe extern "C" fn(
        *const FiProvider,
        c_int,
        c_int,
        *const c_char,
        c_int,
        *const c_char,
        ...
    ),
}

impl Libfabric {
    /// The one of this process; `None` where none is loaded.
    pub(crate) fn get() -> Option<&'static Libfabric> {
        static FOUND: OnceLock<Option<Libfabric>> = OnceLock::new();
        FOUND.get_or_init(Self::find).as_ref()
    }

    fn find() -> Option<Libfabric> {
        // A program's plug-in may have loaded it for itself alone: then it is not among the symbols of all.
        // SAFETY: dlopen(3) of what is loaded already: nothing is run.
        let loaded = unsafe {
            libc::dlopen(c"libfabric.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD)
        };
        let loaded = if loaded.is_null() { libc::RTLD_DEFAULT } else { loaded };
        let symbol = |name: &CStr| {
            // SAFETY: dlsym(3) with a handle of dlopen, or the default one.
            let found = unsafe { libc::dlsym(loaded, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        // SAFETY: the functions of fabric.h and fi_errno.h of these names, with these types since version 1.0.
        unsafe {
            Some(Libfabric {
                dupinfo: cast(symbol(c"fi_dupinfo")?),
                freeinfo: cast(symbol(c"fi_freeinfo")?),
                version: cast(symbol(c"fi_version")?),
                strerror: cast(symbol(c"fi_strerror")?),
                log_enabled: cast(symbol(c"fi_log_enabled")?),
                log: cast(symbol(c"fi_log")?),
            })
        }
    }

    /// The version of its interface.
    pub(crate) fn version(&self) -> u32 {
        // SAFETY: fi_version(3) takes nothing, and any thread may call it.
        unsafe { (self.version)() }
    }

    /// The text of an error's number; null where it has none.
    pub(crate) fn strerror(&self, errno: c_int) -> *const c_char {
        // SAFETY: fi_strerror(3) takes any number.
        unsafe { (self.strerror)(errno) }
    }

    /// Whether lines of this level are written (`FI_LOG_LEVEL`).
    ///
    /// # Safety
    /// The provider is one that libfabric has taken from `fi_prov_ini`.
    pub(crate) unsafe fn logs(&self, provider: *const FiProvider, level: c_int) -> bool {
        // SAFETY: the caller's promise; of a subsystem that there is (fi_log.h).
        unsafe { (self.log_enabled)(provider, level, FI_LOG_CORE) != 0 }
    }

    /// Writes a line to its log.
    ///
    /// # Safety
    /// As of [`logs`](Self::logs).
    pub(crate) unsafe fn log(
        &self,
        provider: *const FiProvider,
        level: c_int,
        (place, line): (&CStr, c_int),
        text: &CStr,
    ) {
        let (format, text) = (c"%s\n".as_ptr(), text.as_ptr());
        // SAFETY: the caller's promise; the format takes one text.
        unsafe { (self.log)(provider, level, FI_LOG_CORE, place.as_ptr(), line, format, text) }
    }

    /// An info with all its parts, zero throughout (`fi_getinfo(3)`, `fi_allocinfo`); null without memory.
    pub(crate) fn alloc_info(&self) -> *mut FiInfo {
        // SAFETY: fi_dupinfo of nothing is fi_allocinfo.
        unsafe { (self.dupinfo)(std::ptr::null()) }
    }

    /// A copy with all its parts; null without memory.
    ///
    /// # Safety
    /// `info` is an info of this libfabric.
    pub(crate) unsafe fn copy_info(&self, info: *const FiInfo) -> *mut FiInfo {
        // SAFETY: the caller's promise.
        unsafe { (self.dupinfo)(info) }
    }

    /// Frees infos, up to the end of the list.
    ///
    /// # Safety
    /// They are infos of this libfabric, and not used again.
    pub(crate) unsafe fn free_info(&self, info: *mut FiInfo) {
        // SAFETY: the caller's promise.
        unsafe { (self.freeinfo)(info) }
    }
}

/// # Safety
/// `F` is the type of the function at this address.
unsafe fn cast<F: Copy>(symbol: *mut c_void) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: both are one address; the caller's promise.
    unsafe { std::mem::transmute_copy(&symbol) }
}
