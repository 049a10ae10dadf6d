//! The provider of `fabric` that is made of two: shared memory for the peers of this host, and another, TCP or verbs, for all
//! others.
//!
//! Which way a connection goes is chosen when it is made, by the peer's address and by what listens there; from then on it is one of
//! the two providers' own, with all of its rules. The application sees one domain: one address to listen at, one registration, whose
//! key peers of both kinds use, and one completion queue.
//!
//! Files, from the contract inwards:
//! - [`provider`], `domain`, `cq`, `listener`, `endpoint`, `region`, `shared_receives`: the contract's objects, each over those of the two;
//! - `ways`: what a domain has of the two, and the end of both.
#![doc = include_str!("../README.md")]

mod cq;
mod domain;
mod endpoint;
mod listener;
mod name;
pub mod provider;
mod region;
mod shared_receives;
mod ways;

pub use cq::AutoCq;
pub use domain::AutoDomain;
pub use endpoint::AutoEndpoint;
pub use listener::AutoListener;
pub use name::NAME;
pub use provider::AutoProvider;
pub use region::AutoRegistration;
