//! The provider contract of `fabric`.
//!
//! Applications use the crate `fabric`; this crate is for those who write a provider. It holds, once, what
//! is the same on all of them, and does no I/O. What providers are built from is in `fabric-util`.
//!
//! - the traits a provider implements: [`provider`] (factories), [`ops`] and [`datagram`] (data path); [`dyn_provider`]: any
//!   provider by one type;
//! - the plain types they speak: [`work`], [`completion`], [`event`], [`attr`], [`info`], [`path`], [`remote`],
//!   [`datagram_address`], [`setting`], [`variable`];
//! - the shared rules: [`hints`] (capability match), [`access`], [`state`], [`atomic`] (the matrix and its arithmetic),
//!   [`memory`] (the one way to touch region bytes).

pub mod access;
pub mod atomic;
pub mod attr;
mod cold;
pub mod completion;
pub mod datagram;
pub mod datagram_address;
pub mod dyn_provider;
pub mod error;
pub mod event;
pub mod hints;
pub mod info;
pub mod memory;
#[cfg(feature = "serde")]
#[doc(hidden)] // for derives of this library
pub mod names;
pub mod ops;
pub mod path;
pub mod provider;
pub mod remote;
pub mod security;
pub mod setting;
pub mod state;
pub mod token;
pub mod variable;
pub mod work;

pub use access::Access;
pub use atomic::{AtomicCall, AtomicOp, AtomicScalar, AtomicType, AtomicValue};
pub use attr::{CqAttr, DomainAttr, EndpointAttr, ListenerAttr, PathAttr, SharedReceiveAttr};
pub use cold::{cold_path, likely, unlikely};
pub use completion::{Completion, EndpointId, OpKind, RawCompletion, Status};
pub use datagram::{
    AddressHandleOps, DatagramAttr, DatagramDrops, DatagramOps, DatagramSources, DatagramWork,
};
pub use datagram_address::{DatagramAddress, DatagramKind};
pub use dyn_provider::{DynDomain, DynProvider};
pub use error::{Error, ErrorClass, Failure, Result};
pub use event::{Event, EventSink, ListenerId};
pub use hints::{Hints, Unmet};
pub use info::{AtomicScope, Capabilities, Device, Info, Limits, Unusable};
pub use memory::Memory;
pub use ops::{Armed, CqOps, EndpointOps, SharedReceiveOps};
pub use path::Path;
pub use provider::{DomainOps, GrantOps, ListenerOps, Provider, ProviderCounters, RegistrationOps};
pub use remote::{RemoteRegion, RemoteSlice};
pub use security::{IDENTITY_FILE, Identity, SECRET_FILE, Secret, Security, TRUSTED_FILE};
pub use setting::Setting;
pub use state::{DisconnectReason, EndpointState};
pub use token::{Side, Token};
pub use variable::Variable;
pub use work::{Posted, RecvWork, RemoteAddr, Segment, SendFlags, SendOp, SendWork};
