//! A libfabric-style fabric library: one API for endpoints, memory regions and completion queues, several
//! providers beneath it.

#![deny(unsafe_op_in_unsafe_fn)]

mod any;
mod builder;
mod catalog;
mod choice;
mod counters;
mod cq;
mod domain;
mod endpoint;
mod env;
mod eq;
mod listener;
mod op;
mod post;
mod process;
mod region;

pub use builder::EndpointBuilder;
pub use catalog::{Catalog, Found, Selection};
pub use choice::{Choice, Named};
pub use counters::Counters;
pub use cq::CompletionQueue;
pub use domain::Domain;
pub use endpoint::Endpoint;
pub use env::{VARIABLES, Variable};
pub use eq::{Event, EventQueue};
/// The provider contract, for those who write one.
pub use fabric_core as core;
pub use fabric_core::info::{MAX_ACCEPT_DATA, MAX_CONNECT_DATA, MAX_REJECT_DATA, MIN_INJECT};
pub use fabric_core::{
    Access, Armed, AtomicOp, AtomicScalar, AtomicScope, AtomicType, AtomicValue, Capabilities,
    Completion, DisconnectReason, EndpointAttr, EndpointId, EndpointState, Error, ErrorClass,
    Failure, Hints, Info, Limits, ListenerAttr, ListenerId, Memory, OpKind, ProviderCounters,
    RemoteRegion, RemoteSlice, Result, Status, Unmet,
};
pub use listener::{ConnectRequest, Listener};
pub use op::{Op, Recv, Slices};
pub use post::BatchError;
pub use region::{AtomicElement, Region, Slice};
