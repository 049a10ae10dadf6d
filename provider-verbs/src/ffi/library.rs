//! libibverbs and librdmacm, loaded when they are first needed: a program with this provider runs on machines without
//! them, too, and hears there what to install.
//!
//! Both become visible to the whole process, and a function is looked up where the dynamic linker would look for a linked
//! program: so libraries named by `LD_PRELOAD` come first, and librdmacm calls the same libibverbs.

use std::ffi::c_void;
use std::sync::OnceLock;

use libc::{RTLD_GLOBAL, RTLD_NOW};
use libloading::os::unix::Library;

/// In this order: librdmacm is linked to libibverbs. The numbers are those of their interfaces (soname).
const NAMES: [&str; 2] = ["libibverbs.so.1", "librdmacm.so.1"];

/// Stands in for functions of the libraries: gives the one to call for a name, if there is one.
type Interposer = fn(&str) -> Option<*mut c_void>;

static INTERPOSER: OnceLock<Interposer> = OnceLock::new();

/// Lets a test put its own functions in the place of the libraries', as a program that is linked to them can. What was
/// found before stays.
///
/// # Safety
/// Each function has the type of the one it stands in for, and keeps its promises.
#[doc(hidden)]
pub unsafe fn interpose(interposer: Interposer) {
    let _ = INTERPOSER.set(interposer);
}

/// All that is loaded and visible.
pub(super) struct Libraries(Library);

impl Libraries {
    /// Loads both, for as long as the process lives: their threads and destructors allow no end before.
    pub(super) fn open() -> Result<Self, String> {
        Self::open_named(&NAMES)
    }

    fn open_named(names: &[&str]) -> Result<Self, String> {
        for name in names {
            // SAFETY: their constructors demand nothing of who loads them.
            let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) };
            std::mem::forget(library.map_err(|error| error.to_string())?);
        }
        Ok(Libraries(Library::this()))
    }

    /// The address of a function; of several versions the default one, which is the newest.
    pub(super) fn function(&self, name: &str) -> Result<*mut c_void, String> {
        if let Some(found) = INTERPOSER.get().and_then(|interposer| interposer(name)) {
            return Ok(found);
        }
        // SAFETY: only the address is taken.
        let found = unsafe { self.0.get::<*mut c_void>(name.as_bytes()) };
        match found.map(|symbol| symbol.as_raw_ptr()) {
            Ok(found) if !found.is_null() => Ok(found),
            _ => Err(format!(
                "the libibverbs or librdmacm here has no {name}: rdma-core 28 or newer is needed"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let reason = Libraries::open_named(&["libfabric-none.so.1"]).err().unwrap();
        assert!(reason.contains("libfabric-none.so.1: cannot open"), "{reason}");
    }

    #[test]
    fn a_function_that_is_not_there_is_named() {
        let libraries = Libraries::open_named(&[]).unwrap();
        assert!(!libraries.function("malloc").unwrap().is_null());
        let reason = libraries.function("ibv_none").unwrap_err();
        assert!(reason.contains("has no ibv_none: rdma-core 28"), "{reason}");
    }
}
