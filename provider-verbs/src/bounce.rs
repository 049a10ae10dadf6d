//! Room for injects, on a device that carries too few bytes in a request.

use std::sync::Arc;

use fabric_core::{EndpointAttr, Result, Segment, Token};

use crate::ffi::ibv_access_flags;
use crate::handle::Pd;
use crate::scratch::Slab;

/// A slot for each operation that a send queue can have in flight.
pub(crate) struct Bounce {
    slab: Slab,
    slot: usize,
}

impl Bounce {
    pub(crate) fn new(pd: &Arc<Pd>, attr: &EndpointAttr) -> Result<Self> {
        let slot = attr.inject.next_multiple_of(64);
        let len = slot * attr.send_depth.next_power_of_two();
        let slab = Slab::new("make endpoint", pd, len, None, ibv_access_flags(0))?;
        Ok(Bounce { slab, slot })
    }

    /// Copies an inject's bytes to where they can stay: address, length, and key.
    pub(crate) fn copy(&self, token: Token, segments: &[Segment]) -> (u64, u32, u32) {
        let slots = self.slab.memory.len() / self.slot;
        let slot = token.sequence() as usize & (slots - 1);
        let addr = self.slab.memory.as_ptr().wrapping_add(slot * self.slot);
        let mut at = 0;
        for segment in segments {
            // SAFETY: an inject has at most `slot` bytes; an operation's slot is its own until its completion.
            unsafe {
                fabric_core::memory::copy(addr.wrapping_add(at), segment.addr, segment.len);
            }
            at += segment.len;
        }
        (addr as u64, at as u32, self.slab.mr.lkey())
    }
}
