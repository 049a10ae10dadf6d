//! A provider for libfabric: libfabric 1.17 to 2.x loads it from a folder of `FI_PROVIDER_PATH`, and a program that speaks
//! libfabric then runs over the providers of `anyfabric`, unmodified. See `docs/libfabric.md` of the repository.

mod abi;
mod calls;
mod discovery;
mod entry;
mod errno;
mod handle;
mod libfabric;
mod logging;
mod objects;
mod sync;
mod wait;

/// The version of this provider, as libfabric writes one.
const PROVIDER_VERSION: u32 = abi::flags::version(0, 1);
