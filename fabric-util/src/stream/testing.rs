//! For tests: transports in memory, and what a connection asks of its provider.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

#[cfg(not(miri))]
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
#[cfg(not(miri))]
use std::time::Duration;

#[cfg(not(miri))]
use fabric_core::Event;

use super::io_vec::IoVec;
use super::transport::Transport;
#[cfg(not(miri))]
use super::{Host, Timer};

/// Bytes on their way from one end to the other. A call moves a limited number of them.
pub(crate) struct Pipe<'a> {
    pub(crate) bytes: &'a mut Vec<u8>,
    pub(crate) max: usize,
}

impl Transport for Pipe<'_> {
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        let mut left = self.max;
        for &(addr, len) in from {
            let part = len.min(left);
            // SAFETY: the caller's promise.
            self.bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(addr, part) });
            left -= part;
        }
        Ok(self.max - left)
    }

    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
        let mut got = 0;
        for &(addr, len) in to {
            let part = len.min(self.bytes.len() - got).min(self.max - got);
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(self.bytes[got..].as_ptr(), addr, part) };
            got += part;
        }
        self.bytes.drain(..got);
        Ok(got)
    }

    fn shutdown_write(&mut self) {}

    fn unsent(&self) -> usize {
        self.bytes.len()
    }
}

/// One end of a stream: what has come, and what it said; a call takes `max` bytes at most.
#[cfg(not(miri))]
pub(crate) struct Stream {
    pub(crate) came: Vec<u8>,
    pub(crate) said: Vec<u8>,
    pub(crate) max: usize,
    pub(crate) has_ended: bool,
    /// The peer reads nothing more.
    pub(crate) is_broken: bool,
}

#[cfg(not(miri))]
impl Default for Stream {
    fn default() -> Self {
        Stream {
            came: Vec::new(),
            said: Vec::new(),
            max: usize::MAX,
            has_ended: false,
            is_broken: false,
        }
    }
}

#[cfg(not(miri))]
impl Transport for Stream {
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        if self.is_broken {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if self.max == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        // SAFETY: the caller's promise.
        unsafe { Pipe { bytes: &mut self.said, max: self.max }.send(from) }
    }

    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
        if self.came.is_empty() && !self.has_ended {
            return Err(ErrorKind::WouldBlock.into());
        }
        // SAFETY: the caller's promise.
        unsafe { Pipe { bytes: &mut self.came, max: usize::MAX }.recv(to) }
    }

    fn shutdown_write(&mut self) {}
}

/// Takes a limited number of bytes, and has none to give.
#[cfg(test)]
pub(crate) struct Taker {
    pub(crate) bytes: Vec<u8>,
    max: usize,
    max_pieces: usize,
}

#[cfg(test)]
impl Taker {
    pub(crate) fn new(max: usize) -> Self {
        Taker { bytes: Vec::new(), max, max_pieces: usize::MAX }
    }

    #[cfg(not(miri))]
    pub(crate) fn of_pieces(max_pieces: usize) -> Self {
        Taker { max_pieces, ..Taker::new(usize::MAX) }
    }
}

#[cfg(test)]
impl Transport for Taker {
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        let from = &from[..from.len().min(self.max_pieces)];
        // SAFETY: the caller's promise.
        unsafe { Pipe { bytes: &mut self.bytes, max: self.max }.send(from) }
    }

    unsafe fn recv(&mut self, _to: &[IoVec]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }

    fn shutdown_write(&mut self) {}
}

/// What a connection asked of its provider, and what it is answered.
#[cfg(not(miri))]
#[derive(Default)]
pub(crate) struct HostLog {
    pub(crate) deadlines: RefCell<Vec<Timer>>,
    pub(crate) closed: Cell<usize>,
    pub(crate) events: RefCell<Vec<Event>>,
    pub(crate) has_ended: Cell<bool>,
    pub(crate) may_defer: Cell<bool>,
}

#[cfg(not(miri))]
impl Host for &HostLog {
    fn deadline(&self, _after: Duration, timer: Timer) {
        self.deadlines.borrow_mut().push(timer);
    }

    fn closed(&self) {
        self.closed.set(self.closed.get() + 1);
    }

    fn report(&self, event: Event) {
        self.events.borrow_mut().push(event);
    }

    fn may_defer(&self) -> bool {
        self.may_defer.get()
    }

    fn has_ended(&self) -> bool {
        self.has_ended.get()
    }
}

impl super::Link {
    /// Counts from here on, as after so many requests of this side's and receives of the peer's, and the other way round. Before
    /// the connection is made.
    #[cfg(not(miri))]
    pub(crate) fn count_from(
        &mut self,
        (sent, consumed): (u32, u32),
        (posted, accepted): (u32, u32),
    ) {
        self.sends.count_from(sent, consumed);
        self.sends.segments.count_from(sent);
        self.recvs.count_from(posted);
        self.recvs.receives.segments.count_from(posted);
        self.incoming.begun = accepted;
        self.incoming.debt.count_from(accepted);
    }

    /// What the next frame of the peer's may say: the number of its request, or of the oldest of this side's, which it
    /// answers; and the requests that it has accepted and the receives that it has posted, at least.
    #[cfg(not(miri))]
    pub(crate) fn expects(&self) -> (u32, u32, u32, u32) {
        let (first, acked, credit) = self.sends.numbers();
        (self.incoming.begun, first, acked, credit)
    }
}

/// A link without memory of its own.
#[cfg(not(miri))]
pub(crate) fn link() -> super::Link {
    let stats = std::sync::Arc::default();
    let ring = || crate::completion_ring::CompletionRing::new(&stats).unwrap();
    super::Link::new(super::LinkContext {
        id: fabric_core::EndpointId(1),
        regions: std::sync::Arc::default(),
        send_ring: ring(),
        recv_ring: ring(),
        receives: None,
        stats: stats.clone(),
    })
}
