//! Operations as data: what a post hands to a provider.

use crate::atomic::AtomicCall;
use crate::cold_path;
use crate::error::Error;
use crate::token::Token;

/// A run of local memory, in plain words.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[non_exhaustive]
pub struct Segment {
    /// The first byte.
    pub addr: *mut u8,
    /// Bytes; never zero, the shared checks drop empty segments.
    pub len: usize,
    /// The registration's local key; zero for the bytes of an inject, which are not registered.
    pub key: u64,
}

impl Segment {
    /// `len` bytes at `addr`, of the registration with this local key.
    #[inline]
    pub fn new(addr: *mut u8, len: usize, key: u64) -> Self {
        Segment { addr, len, key }
    }
}

// SAFETY: a segment is an address and a length; every place that dereferences it justifies that.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// A place in the peer's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RemoteAddr {
    /// The registration's remote key.
    pub key: u64,
    /// In the address space that the target's registration chose
    /// ([`RegistrationOps::remote_base`](crate::provider::RegistrationOps::remote_base)).
    pub addr: u64,
}

/// What to do.
///
/// More kinds may come, each with a capability: a provider refuses with `Unsupported` what it does not know.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum SendOp {
    /// Send the segments' bytes to the peer's next receive.
    Send {
        /// Immediate data for the receive's completion.
        imm: Option<u32>,
    },
    /// Write the segments' bytes to the peer's memory.
    Write {
        /// Where.
        to: RemoteAddr,
        /// Immediate data; with it, the write consumes the peer's next receive.
        imm: Option<u32>,
    },
    /// Read the peer's memory into the segments.
    Read {
        /// Where.
        from: RemoteAddr,
    },
    /// Execute one atomic operation on the peer's memory.
    Atomic {
        /// Where.
        at: RemoteAddr,
        /// Operation, type and operands.
        call: AtomicCall,
        /// Whether the old value goes to the one segment; without it there is none.
        fetch: bool,
    },
}

bitflags::bitflags! {
    /// How to do it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SendFlags: u32 {
        /// Report success too; failures are always reported.
        const SIGNALED = 1;
        /// Start only when every earlier read and atomic of this endpoint has finished.
        const FENCE = 1 << 1;
        /// The segments' memory may be reused as soon as the post returns.
        const INJECT = 1 << 2;
        /// Complete only when the target's CPU and every initiator can see the bytes (writes).
        const DELIVERY_COMPLETE = 1 << 3;
        /// Complete as late as costs least. A stream then leaves out the request for an acknowledgement, and makes up for it later.
        const LAZY = 1 << 4;
    }
}

/// One operation for the send queue.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SendWork<'a> {
    /// Comes back in the completion.
    pub token: Token,
    /// What to do.
    pub op: SendOp,
    /// Local memory, gathered from or scattered to in this order.
    pub segments: &'a [Segment],
    /// How to do it.
    pub flags: SendFlags,
}

impl<'a> SendWork<'a> {
    /// An operation; `token` comes back in its completion.
    #[inline]
    pub fn new(token: Token, op: SendOp, segments: &'a [Segment], flags: SendFlags) -> Self {
        SendWork { token, op, segments, flags }
    }
}

/// One operation for the receive queue.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RecvWork<'a> {
    /// Comes back in the completion.
    pub token: Token,
    /// Local memory, filled in this order.
    pub segments: &'a [Segment],
}

impl<'a> RecvWork<'a> {
    /// A receive; `token` comes back in its completion.
    #[inline]
    pub fn new(token: Token, segments: &'a [Segment]) -> Self {
        RecvWork { token, segments }
    }
}

/// What became of a batch: its first `accepted` operations were taken, the rest had no effect.
#[derive(Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[must_use]
pub struct Posted {
    /// How many were taken.
    pub accepted: usize,
    /// Why the next one was not.
    pub refusal: Option<Error>,
}

impl Posted {
    /// All `n` were taken.
    #[inline]
    pub fn all(n: usize) -> Self {
        Posted { accepted: n, refusal: None }
    }

    /// The first `n` were taken, then `refusal` came.
    #[inline]
    pub fn until(n: usize, refusal: Error) -> Self {
        Posted { accepted: n, refusal: Some(refusal) }
    }
}

/// The sum of the segments' lengths.
#[inline]
pub fn total_len(segments: &[Segment]) -> usize {
    match segments {
        [one] => one.len,
        all => {
            cold_path();
            all.iter().map(|s| s.len).sum()
        }
    }
}
