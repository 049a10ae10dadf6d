//! The RDMA verbs provider of `fabric`: reliable connected queue pairs over libibverbs and librdmacm.
//!
//! **Not there yet.** The crate holds the place, so that nothing moves when the provider comes. It implements
//! the same traits as `provider-tcp` (`fabric_core::{provider, ops}`), with the same file names for the same
//! jobs: `provider`, `device`, `domain`, `region`, `cq`, `listener`, `endpoint`; and `ffi`, the only file that
//! names `rdma_sys`. Until then a program that asks for `verbs` is told so by name.

#![forbid(unsafe_code)]

/// The provider's name.
pub const NAME: &str = "verbs";
