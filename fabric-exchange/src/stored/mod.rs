//! Exchanges over a store that keeps named values and cannot wait: one implementation for all of them.

pub(crate) mod directory;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
mod member;
mod names;
mod sealed;
mod store;

pub(crate) use member::join;
