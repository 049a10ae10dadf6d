//! The objects behind the handles. What they do is here, in safe code; what C calls is in `calls`.

pub(crate) mod av;
pub(crate) mod bound;
pub(crate) mod completions;
pub(crate) mod counter;
pub(crate) mod devices;
pub(crate) mod domain;
pub(crate) mod done;
pub(crate) mod endpoint;
pub(crate) mod event;
pub(crate) mod event_queue;
mod idle;
pub(crate) mod kinds;
pub(crate) mod marks;
pub(crate) mod passive;
mod posting;
pub(crate) mod rdm;
pub(crate) mod region;
pub(crate) mod requests;
pub(crate) mod shared_context;
pub(crate) mod tally;
pub(crate) mod transfer;
