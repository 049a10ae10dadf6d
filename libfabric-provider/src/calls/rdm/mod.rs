//! Calls of reliable datagram endpoints, beside those that message endpoints have as well.

mod atomic;
mod cm;
mod ep;
mod tagged;

pub(super) use atomic::query;
pub(super) use ep::open_rdm;
