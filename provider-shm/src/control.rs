//! What both ends of a ring say to each other: how far they are, and whether they wait.
//!
//! Positions count bytes and wrap; the ring's place of one is its remainder. Each end believes its own position only, and
//! checks what the other says. A side that goes to sleep says so first and looks then; the other moves first and looks
//! then whether that side sleeps: in between stands a full fence on both sides, so that one of the two sees the other.

use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering;

use fabric_util::sync::{AtomicU32, fence};

use crate::line::Line;

/// Bytes of a ring. A power of two, so that positions may wrap.
pub(crate) const LEN: u32 = if cfg!(loom) { 2 } else { 128 << 10 };

/// Valid for any bytes, zeros included, with which it begins.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Control {
    /// The producer's position.
    tail: Line<AtomicU32>,
    /// The consumer's.
    head: Line<AtomicU32>,
    /// The consumer waits for bytes.
    armed: Line<AtomicU32>,
    /// The producer waits for room.
    waits: Line<AtomicU32>,
}

fn broken() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the peer says that a ring holds more than it can")
}

/// Whether a side that sleeps is to be woken, by this one alone.
fn take(word: &AtomicU32) -> bool {
    word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::Relaxed) != 0
}

impl Control {
    /// Bytes that the producer at `tail` can add.
    pub(crate) fn room(&self, tail: u32) -> io::Result<u32> {
        let used = tail.wrapping_sub(self.head.0.load(Ordering::Acquire));
        LEN.checked_sub(used).ok_or_else(broken)
    }

    /// The producer has written up to `tail`. True: the consumer is to be woken.
    pub(crate) fn publish(&self, tail: u32) -> bool {
        self.tail.0.store(tail, Ordering::Release);
        fence(Ordering::SeqCst);
        take(&self.armed.0)
    }

    /// The producer at `tail` waits for room; gives how much there is meanwhile.
    pub(crate) fn wait_for_room(&self, tail: u32) -> io::Result<u32> {
        self.waits.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.room(tail)
    }

    /// Bytes that the consumer at `head` can take.
    pub(crate) fn filled(&self, head: u32) -> io::Result<u32> {
        let filled = self.tail.0.load(Ordering::Acquire).wrapping_sub(head);
        if filled <= LEN { Ok(filled) } else { Err(broken()) }
    }

    /// The consumer has read up to `head`. True: the producer is to be woken, which is not worth it for less than half of the
    /// ring.
    pub(crate) fn consume(&self, head: u32) -> bool {
        self.head.0.store(head, Ordering::Release);
        fence(Ordering::SeqCst);
        let used = self.tail.0.load(Ordering::Relaxed).wrapping_sub(head);
        used <= LEN / 2 && take(&self.waits.0)
    }

    /// The consumer at `head` is to be woken when there are bytes; gives how many there are already.
    pub(crate) fn arm(&self, head: u32) -> io::Result<u32> {
        self.armed.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.filled(head)
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_side_sees_what_the_other_did() {
        let control = Control::default();
        assert_eq!((control.room(0).unwrap(), control.filled(0).unwrap()), (LEN, 0));
        assert!(!control.publish(LEN));
        assert_eq!((control.room(LEN).unwrap(), control.filled(0).unwrap()), (0, LEN));
        assert!(!control.consume(5));
        assert_eq!((control.room(LEN).unwrap(), control.filled(5).unwrap()), (5, LEN - 5));
    }

    #[test]
    fn one_that_waits_is_woken_once() {
        let control = Control::default();
        assert_eq!(control.arm(0).unwrap(), 0);
        assert!(control.publish(1));
        assert!(!control.publish(2));
        assert_eq!(control.arm(0).unwrap(), 2, "bytes that came are seen at once");
        assert!(!control.publish(LEN) || control.filled(0).unwrap() == LEN);
        assert_eq!(control.wait_for_room(LEN).unwrap(), 0);
        assert!(!control.consume(LEN / 2 - 1), "less than half");
        assert!(control.consume(LEN / 2));
        assert!(!control.consume(LEN));
    }

    #[test]
    fn positions_wrap() {
        let control = Control::default();
        let begin = u32::MAX - 9;
        control.consume(begin);
        control.publish(begin.wrapping_add(30));
        assert_eq!(control.filled(begin).unwrap(), 30);
        assert_eq!(control.room(begin.wrapping_add(30)).unwrap(), LEN - 30);
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        let control = Control::default();
        control.publish(LEN + 1);
        assert_eq!(control.filled(0).unwrap_err().kind(), ErrorKind::InvalidData);
        control.consume(1);
        assert_eq!(control.room(0).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(control.arm(3 * LEN).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
