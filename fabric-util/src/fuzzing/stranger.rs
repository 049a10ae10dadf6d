//! The other end of a stream, in memory, and a link without memory of its own.

use std::io;
use std::sync::Arc;

use fabric_core::EndpointId;

use crate::completion_ring::CompletionRing;
use crate::stats::Stats;
use crate::stream::{IoVec, LinkContext, Transport};

/// What a link without memory is part of.
pub(super) fn context() -> Option<LinkContext> {
    let stats = Arc::new(Stats::default());
    let ring = || CompletionRing::new(&stats).ok();
    let (send_ring, recv_ring) = (ring()?, ring()?);
    let regions = Arc::default();
    Some(LinkContext { id: EndpointId(1), regions, send_ring, recv_ring, receives: None, stats })
}

/// The other end of a stream.
#[derive(Default)]
pub(super) struct Stranger {
    pub(super) says: Vec<u8>,
    pub(super) hears: Vec<u8>,
}

impl Transport for Stranger {
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        let before = self.hears.len();
        for &(addr, len) in from {
            // SAFETY: the caller's promise.
            self.hears.extend_from_slice(unsafe { std::slice::from_raw_parts(addr, len) });
        }
        Ok(self.hears.len() - before)
    }

    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
        let mut got = 0;
        for &(addr, len) in to {
            let part = len.min(self.says.len() - got);
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(self.says[got..].as_ptr(), addr, part) };
            got += part;
        }
        self.says.drain(..got);
        if got == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(got) }
    }

    fn shutdown_write(&mut self) {}
}
