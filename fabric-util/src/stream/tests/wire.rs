//! A stream in memory: each test decides what it takes, what comes, and when it ends.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::rc::Rc;

use fabric_core::{RemoteAddr, Segment, SendOp};

use crate::stream::{IoVec, Reached, Silence, Transport};

/// One direction of a stream.
#[derive(Default)]
pub(super) struct Half {
    pub(super) bytes: VecDeque<u8>,
    /// Bytes that it holds.
    pub(super) capacity: Option<usize>,
    /// Bytes of one read.
    pub(super) read_max: Option<usize>,
    pub(super) ended: bool,
    pub(super) broken: Option<ErrorKind>,
}

/// One end of a stream.
#[derive(Clone, Default)]
pub(super) struct Wire {
    pub(super) out: Rc<RefCell<Half>>,
    pub(super) back: Rc<RefCell<Half>>,
    pub(super) connects: Rc<RefCell<Option<io::Result<bool>>>>,
    pub(super) silence: Rc<Cell<Option<Silence>>>,
    /// No event follows what it did last.
    pub(super) gives_up: Rc<Cell<bool>>,
    /// This end reaches the peer's memory, where each byte is what its address ends with.
    pub(super) reaches: Rc<Cell<bool>>,
    /// Bytes that it took from there.
    pub(super) fetched: Rc<Cell<usize>>,
}

impl Wire {
    pub(super) fn pair() -> (Wire, Wire) {
        let near = Wire::default();
        let far = Wire { out: near.back.clone(), back: near.out.clone(), ..Wire::default() };
        (near, far)
    }
}

impl Transport for Wire {
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        let mut out = self.out.borrow_mut();
        if let Some(kind) = out.broken {
            return Err(kind.into());
        }
        let mut left = out.capacity.map_or(usize::MAX, |max| max.saturating_sub(out.bytes.len()));
        let before = out.bytes.len();
        for &(addr, len) in from {
            // SAFETY: the caller's promise.
            out.bytes.extend(unsafe { std::slice::from_raw_parts(addr, len.min(left)) });
            left -= len.min(left);
        }
        match out.bytes.len() - before {
            0 => Err(ErrorKind::WouldBlock.into()),
            sent => Ok(sent),
        }
    }

    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
        let mut back = self.back.borrow_mut();
        if back.bytes.is_empty() {
            return match (back.broken, back.ended) {
                (Some(kind), _) => Err(kind.into()),
                (None, true) => Ok(0),
                (None, false) => Err(ErrorKind::WouldBlock.into()),
            };
        }
        let mut got = 0;
        for &(addr, len) in to {
            let max = back.read_max.unwrap_or(usize::MAX) - got;
            let part: Vec<u8> = {
                let len = len.min(max).min(back.bytes.len());
                back.bytes.drain(..len).collect()
            };
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), addr, part.len()) };
            got += part.len();
        }
        Ok(got)
    }

    fn shutdown_write(&mut self) {
        self.out.borrow_mut().ended = true;
    }

    fn finish_connect(&mut self) -> io::Result<bool> {
        self.connects.borrow_mut().take().unwrap_or(Ok(true))
    }

    fn unsent(&self) -> usize {
        self.out.borrow().bytes.len()
    }

    fn silence(&self) -> Option<Silence> {
        self.silence.get()
    }

    fn gave_up(&self) -> bool {
        self.gives_up.get()
    }

    fn reaches(&self, _: RemoteAddr) -> bool {
        self.reaches.get()
    }

    unsafe fn reach(&mut self, _: &SendOp, _: &[Segment]) -> Reached {
        if self.reaches.get() { Reached::Yes } else { Reached::No }
    }

    unsafe fn fetch(&mut self, from: RemoteAddr, to: &[IoVec]) -> Option<bool> {
        let mut bytes = (from.addr..).map(|at| at as u8);
        for &(addr, len) in to {
            let run: Vec<u8> = bytes.by_ref().take(len).collect();
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(run.as_ptr(), addr, len) };
            self.fetched.set(self.fetched.get() + len);
        }
        Some(self.reaches.get())
    }
}
