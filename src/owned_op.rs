//! Operations that are posted later: checked now, and with all that they need.

use fabric_core::{EndpointAttr, OpKind, Result, SendFlags};
use smallvec::SmallVec;

use crate::check::check_inject;
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::op::{List, Local, Op, OpCode, Slices};
use crate::slice::{OwnedSlice, Slice};

/// An operation that is posted later: an [`Op`] that borrows nothing.
///
/// It holds its regions as an operation in flight does ([`OwnedSlice`]), and has the bytes to inject. It was checked as a
/// post checks, so what is wrong with it is known before there is a connection. With one slice, or 64 B to inject, it allocates
/// nothing.
#[derive(Debug)]
pub struct OwnedOp {
    code: OpCode,
    local: OwnedLocal,
    immediate: Option<u32>,
    flags: SendFlags,
}

#[derive(Debug)]
enum OwnedLocal {
    Slices(SmallVec<[OwnedSlice; 1]>),
    Inject(SmallVec<[u8; 64]>),
}

impl OwnedOp {
    /// Checks an operation for endpoints of `domain` that are made with `attr`, and keeps it.
    ///
    /// # Errors
    /// As [`Endpoint::post`](crate::Endpoint::post), but for those of the connection and of the queue's depth.
    pub fn new(domain: &Domain, attr: &EndpointAttr, op: &Op<'_>) -> Result<Self> {
        let domain = &domain.inner;
        domain.ops.check("post")?;
        let spec = op.code.spec();
        let (len, local) = match &op.local {
            Local::Slices(slices) => {
                let max = attr.send_segments;
                let (len, held) = domain.hold_slices(spec.name, slices, spec.local, max)?;
                (len, OwnedLocal::Slices(held))
            }
            Local::Inject(bytes) => {
                let len = check_inject(attr.inject, spec.name, bytes)?;
                (len, OwnedLocal::Inject(SmallVec::from_slice(bytes)))
            }
        };
        domain.check_send(op, spec, len)?;
        Ok(OwnedOp { code: op.code, local, immediate: op.immediate, flags: op.flags })
    }

    /// Bytes of its local side.
    #[allow(clippy::len_without_is_empty)] // no collection
    pub fn len(&self) -> usize {
        match &self.local {
            OwnedLocal::Slices(held) => held.iter().map(OwnedSlice::len).sum(),
            OwnedLocal::Inject(bytes) => bytes.len(),
        }
    }

    /// What it is.
    pub fn kind(&self) -> OpKind {
        self.code.spec().kind
    }

    /// Posts it; once for each time that this is called.
    ///
    /// # Errors
    /// As [`Endpoint::post`](crate::Endpoint::post).
    pub fn post(&self, endpoint: &Endpoint, context: u64) -> Result<()> {
        let slices: SmallVec<[Slice<'_>; 4]>;
        let local = match &self.local {
            OwnedLocal::Slices(held) => {
                slices = held.iter().map(OwnedSlice::as_slice).collect();
                Local::Slices(Slices(List::Many(&slices)))
            }
            OwnedLocal::Inject(bytes) => Local::Inject(bytes),
        };
        let OwnedOp { code, immediate, flags, .. } = *self;
        endpoint.post(&Op { code, local, immediate, context, flags })
    }
}
