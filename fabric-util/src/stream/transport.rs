//! What carries a link's bytes to the peer and back.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fabric_core::{EndpointId, RemoteAddr, Segment, SendOp};

use super::io_vec::IoVec;

/// A reliable stream of bytes in both directions, such as a socket. No call blocks.
///
/// The caller learns by other means, such as a selector, when a stream that was full or dry is so no longer. Wherever
/// `send` or `recv` takes or gives less than it could, such an event has to follow, or [`gave_up`](Transport::gave_up) is true.
/// Of bytes that come while the stream is dry an event need only say from [`arm`](Transport::arm) on.
pub trait Transport {
    /// Sends bytes; returns how many were taken. `WouldBlock`: the stream is full.
    ///
    /// # Errors
    /// Any other error: the peer is gone, or takes nothing more.
    ///
    /// # Safety
    /// The memory must be allocated and readable until the call returns.
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize>;

    /// Receives bytes; returns how many came, 0 at the end of the stream. `WouldBlock`: the stream is dry. It is so too
    /// after a call that did not fill the memory.
    ///
    /// # Errors
    /// Any other error: the peer is gone.
    ///
    /// # Safety
    /// The memory must be allocated and writable until the call returns, without a reference into it.
    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize>;

    /// Whether [`recv`](Transport::recv) may find something; false only where that is known, and cheap to know.
    #[inline]
    fn may_have_come(&self) -> bool {
        true
    }

    /// Whether bytes that [`send`](Transport::send) took are still here, to be passed on by [`flush`](Transport::flush).
    #[inline]
    fn is_holding(&self) -> bool {
        false
    }

    /// Passes on what is held. `WouldBlock`: the stream takes no more of it now.
    ///
    /// # Errors
    /// As `send`.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Ends this side's half of the stream, behind what was sent. Nothing is held then.
    fn shutdown_write(&mut self);

    /// Whether the connection of a transport that was connecting is made by now.
    ///
    /// # Errors
    /// Why it never will be.
    fn finish_connect(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    /// Bytes that [`send`](Transport::send) took and that the peer has not taken: it loses them if the transport is dropped now.
    /// 0 where it is gone, or where that is not known.
    fn unsent(&self) -> usize {
        0
    }

    /// The name that the peer has proved, if it has, and has one; once the transport is connected.
    fn peer_identity(&self) -> Option<Arc<str>> {
        None
    }

    /// How silent the peer's host is; `None` if the transport does not know, or has no connection.
    fn silence(&self) -> Option<Silence> {
        None
    }

    /// The caller stops looking for bytes: an event has to say when there are some. True: there are some, or the stream has
    /// ended, so that no event follows.
    fn arm(&mut self) -> bool {
        false
    }

    /// The connection is established, as this endpoint's: the peer may reach this side's memory by itself, if this is a transport
    /// of that kind.
    fn open(&mut self, _endpoint: EndpointId) {}

    /// The connection ends: from the return on the peer reaches nothing by itself.
    fn close(&mut self) {}

    /// Executes a write, a read or an atomic by itself, if it can; nothing that was posted before is under way.
    ///
    /// # Safety
    /// The segments' memory must be allocated until the call returns, and as writable as the operation needs; no reference
    /// into it may exist.
    #[inline]
    unsafe fn reach(&mut self, _op: &SendOp, _segments: &[Segment]) -> Reached {
        Reached::No
    }

    /// Whether [`reach`](Transport::reach) is likely to execute an operation on this memory of the peer's.
    #[inline]
    fn reaches(&self, _at: RemoteAddr) -> bool {
        false
    }

    /// Whether the peer reaches memory of this side by itself, if a window is opened there.
    #[inline]
    fn is_reached(&self, _addr: *const u8, _len: usize) -> bool {
        false
    }

    /// Reads the peer's memory, which it has lent; false: it has not, or no more. `None`: this side reaches nothing.
    ///
    /// # Safety
    /// As [`recv`](Transport::recv).
    unsafe fn fetch(&mut self, _from: RemoteAddr, _to: &[IoVec]) -> Option<bool> {
        None
    }

    /// What it reaches and did by itself, for a bug report; nothing to say of most.
    fn dump(&self) -> Option<String> {
        None
    }

    /// Whether the last `send` or `recv` did less than it could, so that no event follows and it has to be called again.
    #[inline]
    fn gave_up(&self) -> bool {
        false
    }
}

/// What became of an operation that a transport may have executed by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It is executed: the peer's memory has what it writes, the segments have what it reads.
    Yes,
    /// It has to be transmitted, and the peer says what becomes of it.
    No,
    /// It may be once more, at once; and an event was taken, so that the stream has to be looked at.
    Look,
}

/// What this side's host knows of the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// How long nothing was heard from it.
    pub lasts: Duration,
    /// An answer to something that was sent is missing.
    pub unanswered: bool,
    /// Nothing is, and something cannot be sent, since the peer takes no more now.
    pub held_back: bool,
}

/// A transport of nothing.
pub(super) struct Unconnected;

impl Transport for Unconnected {
    unsafe fn send(&mut self, _: &[IoVec]) -> io::Result<usize> {
        Err(io::ErrorKind::NotConnected.into())
    }

    unsafe fn recv(&mut self, _: &[IoVec]) -> io::Result<usize> {
        Err(io::ErrorKind::NotConnected.into())
    }

    fn shutdown_write(&mut self) {}
}
