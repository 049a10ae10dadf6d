//! Leases: memory of a peer, for a time.
//!
//! - `api`: what connections offer; `policy`: what they lend on request; `terms`: times and lengths;
//! - the holder's side: `held`, what it knows of a lease, and `remote`, its handle; `pending`: requests that wait for their
//!   answer; `asked`: how they are made;
//! - the owner's side: `lent`, the memory of a lease; `grant`: how requests are granted; `lending`: what is lent in all;
//! - `control`: the connection over which both talk; `message`: its messages; `outbox`: those that wait to be sent;
//!   `receives`: its memory; `incoming`: what is done about its messages;
//!   `connect`: how it is made; `registry`: all of these connections of a node.

mod api;
mod asked;
mod connect;
mod control;
mod grant;
mod held;
mod incoming;
mod lending;
mod lent;
mod message;
mod outbox;
mod pending;
mod policy;
mod receives;
mod registry;
mod remote;
mod terms;

pub(crate) use control::Control;
pub(crate) use held::Held;
pub use held::RemoteTarget;
pub use lent::Lent;
pub use policy::LeasePolicy;
pub(crate) use registry::Leases;
pub use remote::Remote;
