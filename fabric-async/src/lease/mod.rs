//! Leases: memory of a peer, for a time.
//!
//! - `api`: what connections offer; `policy`: what they lend on request; `terms`: times and lengths;
//! - the holder's side: `remote_lease`, the handle of a lease, and `remote_state`, what it knows of it; `client`: how leases
//!   are asked for; `pending`: requests that wait for their answer;
//! - the owner's side: `local_lease`, the memory of a lease; `server`: how requests are granted; `record`: what the
//!   books have of it; `lease_key`: by which key it is reached; `opening`: how the peer gets that; `decision`: the
//!   application's own word;
//! - `control`: the connection over which both talk; `message`: its messages; `outbox`: those that wait to be sent;
//!   `receives`: its memory; `incoming`: how its messages are handled;
//!   `connect`: how it is made; `registry`: all of these connections of a node.

mod api;
mod client;
mod connect;
mod control;
mod decision;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod incoming;
mod lease_key;
mod local_lease;
mod message;
mod opening;
mod outbox;
mod pending;
mod policy;
mod receives;
mod record;
mod registry;
mod remote_lease;
mod remote_state;
mod server;
mod terms;

pub(crate) use control::Control;
pub(crate) use decision::LeaseDecision;
pub use decision::LeaseRequest;
pub use local_lease::LocalLease;
pub use policy::LeasePolicy;
pub(crate) use registry::Leases;
pub use remote_lease::RemoteLease;
pub(crate) use remote_state::RemoteLeaseState;
pub use remote_state::RemoteTarget;
