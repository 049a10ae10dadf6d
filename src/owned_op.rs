//! Operations that are posted later: checked now, and with all that they need.

use fabric_core::{EndpointAttr, Error, OpKind, Result, SendFlags};
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
/// nothing, and with more nothing if it is [renewed](OwnedOp::renew) where as much was before.
#[derive(Debug)]
pub struct OwnedOp {
    code: OpCode,
    local: OwnedLocal,
    immediate: Option<u32>,
    flags: SendFlags,
}

/// The room of what it is not is kept for a later one.
#[derive(Debug)]
struct OwnedLocal {
    kind: LocalKind,
    slices: SmallVec<[OwnedSlice; 1]>,
    bytes: SmallVec<[u8; 64]>,
}

#[derive(Clone, Copy, Debug)]
enum LocalKind {
    Slices,
    Inject,
    /// It was let go of.
    Nothing,
}

impl OwnedLocal {
    /// Checks an operation, and holds its local side.
    fn hold(&mut self, domain: &Domain, attr: &EndpointAttr, op: &Op<'_>) -> Result<()> {
        let domain = &domain.inner;
        domain.ops.check("post")?;
        let spec = op.code.spec();
        let (len, kind) = match &op.local {
            Local::Slices(slices) => {
                let max = attr.send_segments;
                let held = &mut self.slices;
                (domain.hold_slices(spec.name, slices, spec.local, max, held)?, LocalKind::Slices)
            }
            Local::Inject(bytes) => {
                let len = check_inject(attr.inject, spec.name, bytes)?;
                self.bytes.extend_from_slice(bytes);
                (len, LocalKind::Inject)
            }
        };
        domain.check_send(op, spec, len)?;
        self.kind = kind;
        Ok(())
    }

    fn clear(&mut self) {
        self.kind = LocalKind::Nothing;
        self.slices.clear();
        self.bytes.clear();
    }
}

/// Slices of one post that need no allocation.
const INLINE_SLICES: usize = 8;

impl OwnedOp {
    /// Checks an operation for endpoints of `domain` that are made with `attr`, and keeps it.
    ///
    /// # Errors
    /// As [`Endpoint::post`](crate::Endpoint::post), but for those of the connection and of the queue's depth.
    pub fn new(domain: &Domain, attr: &EndpointAttr, op: &Op<'_>) -> Result<Self> {
        let kind = LocalKind::Nothing;
        let local = OwnedLocal { kind, slices: SmallVec::new(), bytes: SmallVec::new() };
        let (immediate, flags) = (None, SendFlags::empty());
        let mut kept = OwnedOp { code: op.code, local, immediate, flags };
        kept.renew(domain, attr, op)?;
        Ok(kept)
    }

    /// Keeps another operation in place of this one, in its memory.
    ///
    /// # Errors
    /// As [`new`](OwnedOp::new); then it is let go of.
    pub fn renew(&mut self, domain: &Domain, attr: &EndpointAttr, op: &Op<'_>) -> Result<()> {
        self.let_go();
        if let Err(error) = self.local.hold(domain, attr, op) {
            self.let_go();
            return Err(error);
        }
        (self.code, self.immediate, self.flags) = (op.code, op.immediate, op.flags);
        Ok(())
    }

    /// Lets go of its regions and bytes, but not of the memory that it has for them: until it is [renewed](OwnedOp::renew) it is not
    /// posted.
    pub fn let_go(&mut self) {
        self.local.clear();
    }

    /// Bytes of its local side.
    #[allow(clippy::len_without_is_empty)] // no collection
    pub fn len(&self) -> usize {
        let OwnedLocal { slices, bytes, .. } = &self.local;
        slices.iter().map(OwnedSlice::len).sum::<usize>() + bytes.len()
    }

    /// What it is.
    pub fn kind(&self) -> OpKind {
        self.code.spec().kind
    }

    /// Posts it; once for each time that this is called.
    ///
    /// # Errors
    /// As [`Endpoint::post`](crate::Endpoint::post); `InvalidState` if it was let go of.
    pub fn post(&self, endpoint: &Endpoint, context: u64) -> Result<()> {
        let slices: SmallVec<[Slice<'_>; INLINE_SLICES]>;
        let local = match self.local.kind {
            LocalKind::Slices => {
                slices = self.local.slices.iter().map(OwnedSlice::as_slice).collect();
                Local::Slices(Slices(List::Many(&slices)))
            }
            LocalKind::Inject => Local::Inject(&self.local.bytes),
            LocalKind::Nothing => return Err(Error::state("post", "the operation was let go of")),
        };
        let OwnedOp { code, immediate, flags, .. } = *self;
        endpoint.post(&Op { code, local, immediate, context, flags })
    }
}
