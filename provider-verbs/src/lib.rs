//! The RDMA verbs provider of `fabric`: reliable connected queue pairs over libibverbs and librdmacm.
//!
//! Obligations of every provider are in `fabric_core::{ops, provider}`; here the device keeps most of them, and
//! software what is left: atomics that devices lack, exact private data, time-outs, liveness, orderly ends.
//!
//! Files, from the contract inwards:
//! - [`provider`], `device`, `domain`, `region`, `cq`, `listener`, `endpoint`: the contract's objects;
//! - `conn`: a queue pair and its connection; `connect`: how it comes about; `post`: from operations to work
//!   requests; `complete` and `status`: completions that are no plain success; `header`: private data;
//! - [`raw`]: the way out, to libibverbs itself;
//! - `manager`: what a domain's objects share, and its thread; `scratch`: registered memory of its own;
//! - `sysfs`, `quirks`: what libibverbs does not tell, and where drivers depart from the specification;
//! - `handle`: libibverbs objects as values; `ffi`: the only file that names `rdma_sys`.

mod complete;
mod conn;
mod connect;
mod cq;
mod device;
mod domain;
mod endpoint;
mod ffi;
mod handle;
mod header;
mod listener;
mod manager;
mod post;
pub mod provider;
mod quirks;
pub mod raw;
mod region;
mod scratch;
mod status;
mod sysfs;

pub use cq::VerbsCq;
pub use domain::VerbsDomain;
pub use endpoint::VerbsEndpoint;
pub use listener::VerbsListener;
pub use provider::VerbsProvider;
pub use region::VerbsRegistration;

/// The provider's name.
pub const NAME: &str = "verbs";
