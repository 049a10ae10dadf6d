//! The provider: what libfabric finds in this library (`fi_provider(7)`).

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use super::fabric::open_fabric;
use super::pep::passive;
use crate::abi::{FiInfo, FiProvider};
use crate::discovery::{getinfo, owned::text};
use crate::entry::entry;
use crate::errno::Errno;
use crate::handle::Name;
use crate::libfabric::Libfabric;
use crate::logging;
use crate::objects::kinds::AnyEndpoint;

/// The one provider. libfabric keeps notes in its context.
struct Provider(*mut FiProvider);

// SAFETY: the address of an allocation that is never freed; what is there is libfabric's to change.
unsafe impl Send for Provider {}
// SAFETY: as above.
unsafe impl Sync for Provider {}

/// What libfabric calls when it has loaded the library: the provider, or null if it cannot be used.
#[unsafe(no_mangle)]
pub(super) extern "C" fn fi_prov_ini() -> *mut std::ffi::c_void {
    static PROVIDER: OnceLock<Option<Provider>> = OnceLock::new();
    let provider = std::panic::catch_unwind(|| PROVIDER.get_or_init(new).as_ref().map(|p| p.0));
    provider.ok().flatten().unwrap_or(std::ptr::null_mut()).cast()
}

fn new() -> Option<Provider> {
    let libfabric = Libfabric::get()?;
    let provider = Box::into_raw(Box::new(FiProvider {
        version: crate::PROVIDER_VERSION,
        // It takes providers of its own version, or of later ones.
        fi_version: libfabric.version(),
        context: [std::ptr::null_mut(); 4],
        name: crate::discovery::PROVIDER_NAME.as_ptr(),
        getinfo: list,
        fabric: open_fabric,
        cleanup,
    }));
    logging::begin(Name::of(provider));
    Some(Provider(provider))
}

/// `fi_getinfo(3)`
unsafe extern "C" fn list(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const FiInfo,
    infos: *mut *mut FiInfo,
) -> c_int {
    entry(|| {
        // SAFETY: `fi_getinfo(3)`: the texts are null or end in zero, the hints null or of libfabric, and the list is a place for one.
        unsafe {
            let place = infos.as_mut().ok_or(Errno::INVALID)?;
            let handle = hints.as_ref().map_or(std::ptr::null_mut(), |hints| hints.handle);
            let source = passive(handle).map(|passive| passive.address()).transpose()?;
            let passive = source.map(|source| (Name::of(handle), source));
            *place = getinfo(version, (text(node), text(service)), flags, (hints, passive))?;
        }
        Ok(0)
    })
}

/// Nothing is held beyond what handles hold; a program that did not close them ends anyway. But libfabric's log ends here.
unsafe extern "C" fn cleanup() {
    logging::end();
}
