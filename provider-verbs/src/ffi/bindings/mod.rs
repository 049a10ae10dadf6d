//! The C types and constants of libibverbs and librdmacm that the provider uses, with the names that the crate `rdma-sys`
//! gives them. They were made by its generator (bindgen, from the headers of rdma-core 44) and are kept here, so that a build
//! needs neither libclang nor the headers. That these types do not change is libibverbs' promise: its name ends in `.so.1`.
//!
//! They hold for every Linux target: each field has its C type, and what differs between targets, `char` and the mutexes of
//! pthreads, is taken from `std` and `libc`. (The generator's output for x86-64 and for aarch64 differs by the mutex alone,
//! which is 8 bytes longer on aarch64.) `tests/rdma_sys.rs` compares every type, field, constant and function with those of
//! `rdma-sys`; `make bindings` runs it, where that crate can be built, which needs libclang 14:
//!
//! ```sh
//! LIBCLANG_PATH=/usr/lib/llvm-14/lib cargo test -p anyfabric-verbs --features rdma-sys
//! ```
//!
//! To add a type, run this, take its definition from `target/debug/build/rdma-sys-*/out/bindings.rs` (of unions, and of what
//! has one inside, from the documentation of `rdma-sys`), and name it in the test, which says what differs. A function goes
//! into the list in `functions.rs`. Types that are only pointed to stay opaque.

#![allow(missing_docs)] // in the headers and man pages
#![allow(non_camel_case_types)] // C's names
#![allow(unreachable_pub)] // as of a crate of its own
#![allow(dead_code)] // all values of an enumeration, though not all are used

#[macro_use]
pub mod constants;
pub mod rdma_cma;
pub mod verbs;

pub use constants::*;
pub use rdma_cma::*;
pub use verbs::*;

// What the headers' types measure there.
#[cfg(all(
    target_env = "gnu",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
const _: () = {
    const MUTEX: usize = if cfg!(target_arch = "aarch64") { 48 } else { 40 };
    assert!(size_of::<ibv_context>() == 288 + MUTEX);
    assert!(size_of::<ibv_cq>() == 88 + MUTEX);
    assert!(size_of::<ibv_qp>() == 120 + MUTEX);
    assert!(size_of::<ibv_srq>() == 88 + MUTEX);
    assert!(size_of::<ibv_device_attr>() == 232);
    assert!(size_of::<ibv_port_attr>() == 52);
    assert!(size_of::<ibv_qp_attr>() == 144);
    assert!(size_of::<ibv_send_wr>() == 128);
    assert!(size_of::<ibv_wc>() == 48);
    assert!(size_of::<ibv_async_event>() == 16);
    assert!(size_of::<rdma_cm_id>() == 416);
    assert!(size_of::<rdma_cm_event>() == 80);
};
