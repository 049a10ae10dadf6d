//! Reliable datagram endpoints at the far end: what is called (`calls`), by whom here (`near`), and what it does there
//! (`far`).
//!
//! Such an endpoint is made of many objects of a provider, and its rules are the library's own. So it is not forwarded
//! object by object, as endpoints with a connection are, but lives at the far end as a program's would. No call waits for
//! what others have to do: the near end asks again, and what happens meanwhile the far library does by itself.

mod calls;
mod far;
mod near;
#[cfg(test)]
mod tests;

pub(super) use calls::RdmCall;
pub(super) use far::RdmHost;
pub(crate) use near::{RdmLink, RdmProxy, RemoteClaimed};
