//! Sends, writes and reads as values: what is posted, wherever that is.

use std::marker::PhantomData;

use fabric::Op;

use crate::lease::RemoteTarget;
use crate::op_buffers::{OpBuffers, SliceVec};

pub(crate) enum TransferKind {
    Send { immediate: Option<u32> },
    Write { to: RemoteTarget, immediate: Option<u32>, delivered: bool },
    Read { from: RemoteTarget },
}

/// A send, write or read of such a payload.
pub(crate) struct Transfer<P> {
    pub(crate) what: TransferKind,
    pub(crate) fence: bool,
    payload: PhantomData<fn() -> P>,
}

impl<P> Transfer<P> {
    #[inline]
    pub(crate) fn new(what: TransferKind) -> Self {
        Transfer { what, fence: false, payload: PhantomData }
    }

    /// Where it goes, if it is one-sided.
    #[inline]
    pub(crate) fn target(&self) -> Option<&RemoteTarget> {
        match &self.what {
            TransferKind::Send { .. } => None,
            TransferKind::Write { to: at, .. } | TransferKind::Read { from: at } => Some(at),
        }
    }

    /// The operation as the fabric's.
    #[inline]
    pub(crate) fn build<'a, 's>(
        &'a self,
        buffers: &'a OpBuffers,
        scratch: &'s mut SliceVec<'a>,
    ) -> Op<'s>
    where
        'a: 's,
    {
        let slices = buffers.slices(scratch);
        let op = match &self.what {
            TransferKind::Send { immediate: None } => Op::send(slices),
            TransferKind::Send { immediate: Some(value) } => Op::send(slices).immediate(*value),
            TransferKind::Write { to, immediate, delivered } => {
                let mut op = Op::write(slices, to.slice());
                if let Some(value) = immediate {
                    op = op.immediate(*value);
                }
                if *delivered { op.delivery_complete() } else { op }
            }
            TransferKind::Read { from } => Op::read(slices, from.slice()),
        };
        if self.fence { op.fence() } else { op }
    }
}
