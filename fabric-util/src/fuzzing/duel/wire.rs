//! The stream between the two ends of a duel: how much it takes and gives, and how it is spoiled.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::rc::Rc;

use fabric_core::memory;

use crate::stream::{IoVec, Transport};

/// One direction.
pub(super) struct Flow {
    bytes: Vec<u8>,
    read: usize,
    /// Bytes that it holds, and of one read.
    pub(super) capacity: usize,
    pub(super) read_max: usize,
    /// The writer is gone; the reader is.
    ended: bool,
    broken: bool,
    /// Bytes that went in or out, ends included.
    pub(super) moved: usize,
}

/// One end of the stream. Dropping it closes both directions.
pub(super) struct DuelWire {
    out: Rc<RefCell<Flow>>,
    back: Rc<RefCell<Flow>>,
    gave_up: bool,
}

/// How bytes on their way are changed. Places count from the oldest one that is still there.
pub(super) enum Spoil<'a> {
    Flip(usize, u8),
    Cut(usize, usize),
    Repeat(usize, usize),
    Insert(usize, &'a [u8]),
    /// What is there is lost, and behind it is the end.
    End,
}

impl Flow {
    /// Two directions, and the ends of them.
    pub(super) fn pair() -> ([Rc<RefCell<Flow>>; 2], [DuelWire; 2]) {
        let flow = || {
            Rc::new(RefCell::new(Flow {
                bytes: Vec::new(),
                read: 0,
                capacity: usize::MAX,
                read_max: usize::MAX,
                ended: false,
                broken: false,
                moved: 0,
            }))
        };
        let flows = [flow(), flow()];
        let end = |out: usize| {
            let (out, back) = (flows[out].clone(), flows[1 - out].clone());
            DuelWire { out, back, gave_up: false }
        };
        let ends = [end(0), end(1)];
        (flows, ends)
    }

    /// Bytes on their way.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.read
    }

    /// It takes and gives all there is.
    pub(super) fn unlimit(&mut self) {
        (self.capacity, self.read_max) = (usize::MAX, usize::MAX);
    }

    pub(super) fn spoil(&mut self, how: &Spoil<'_>) {
        let place = |at: usize| self.read + at % (self.len() + 1);
        match *how {
            Spoil::Flip(at, bits) => {
                let at = place(at);
                self.bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= bits);
            }
            Spoil::Cut(at, len) => {
                let at = place(at);
                self.bytes.drain(at..self.bytes.len().min(at + len));
            }
            Spoil::Repeat(at, len) => {
                let at = place(at);
                let again = self.bytes[at..self.bytes.len().min(at + len)].to_vec();
                self.bytes.splice(at..at, again);
            }
            Spoil::Insert(at, bytes) => {
                let at = place(at);
                self.bytes.splice(at..at, bytes.iter().copied());
            }
            Spoil::End => {
                self.bytes.truncate(self.read);
                self.ended = true;
            }
        }
        self.moved += 1;
    }
}

impl Transport for DuelWire {
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        let mut out = self.out.borrow_mut();
        self.gave_up = false;
        if out.broken {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let before = out.bytes.len();
        for &(addr, len) in from {
            let len = len.min(out.capacity.saturating_sub(out.len()));
            // SAFETY: the caller's promise.
            unsafe { memory::append(addr, len, &mut out.bytes) };
        }
        let sent = out.bytes.len() - before;
        out.moved += sent;
        if sent == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(sent) }
    }

    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
        let mut back = self.back.borrow_mut();
        let back = &mut *back;
        let before = back.read;
        for &(addr, len) in to {
            let len = len.min(back.len()).min(back.read_max - (back.read - before));
            // SAFETY: the caller's promise.
            unsafe { memory::store(addr, &back.bytes[back.read..back.read + len]) };
            back.read += len;
        }
        let got = back.read - before;
        back.moved += got;
        self.gave_up = got == back.read_max && back.len() > 0;
        if back.len() == 0 {
            back.bytes.clear();
            back.read = 0;
        }
        if got == 0 && !back.ended { Err(ErrorKind::WouldBlock.into()) } else { Ok(got) }
    }

    fn shutdown_write(&mut self) {
        let mut out = self.out.borrow_mut();
        out.ended = true;
        out.moved += 1;
    }

    fn unsent(&self) -> usize {
        let out = self.out.borrow();
        if out.broken { 0 } else { out.len() }
    }

    fn gave_up(&self) -> bool {
        self.gave_up
    }
}

impl Drop for DuelWire {
    fn drop(&mut self) {
        self.shutdown_write();
        let mut back = self.back.borrow_mut();
        back.broken = true;
        back.moved += 1;
    }
}
