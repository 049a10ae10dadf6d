//! libibverbs and librdmacm objects as values: made with every return value checked, destroyed on drop.
//!
//! Each holds its parents by `Arc`, so that nothing can be destroyed before what was made on it: the only legal
//! order, by construction. A destroyer that fails is logged; there is no remedy.

mod ah;
mod cm;
mod context;
mod cq;
mod destroy;
mod mr;
mod mw;
mod qp;
mod srq;

pub(crate) use ah::{Ah, Route};
pub(crate) use cm::{CmEvent, CmId, ConnParam, EventChannel, connection_manager};
pub(crate) use context::{
    AsyncEvent, Context, DeviceAttributes, KernelVersion, Pd, PortAttributes, PortState, Transport,
    device_names, kernel_version,
};
pub(crate) use cq::Cq;
pub(crate) use mr::Mr;
pub(crate) use mw::Mw;
pub(crate) use qp::{Qp, QpAttributes, QpState};
pub(crate) use srq::Srq;
