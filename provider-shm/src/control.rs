//! What both ends of a ring say to each other: what is written, how far it is read, and whether an end waits.
//!
//! A ring holds records. A record begins with a line of its own, and there with a mark: how many bytes it has, or 0 while it is
//! not there. So the mark comes with the first of its bytes in one line, and an end that waits for the next record looks at
//! that line alone. Behind the last record there is always a mark that is 0. Positions count bytes and wrap; the ring's place of
//! one is its remainder. Each end believes its own position only, and checks what the other says. A side that goes to sleep says
//! so first and looks then; the other moves first and looks then whether that side sleeps: in between stands a full fence on both
//! sides, so that one of the two sees the other.

use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering;

use fabric_util::sync::{AtomicU32, fence};

use crate::line::{LINE, Line};

/// Bytes of a ring. A power of two, so that positions may wrap.
pub(crate) const LEN: u32 = if cfg!(loom) { 2 } else { 128 << 10 };
/// Bytes of a record before its own, with the mark in the first four.
pub(crate) const HEAD: u32 = if cfg!(loom) { 0 } else { 8 };
/// The most bytes of a record: the mark behind it has a line too.
const MAX_RECORD: u32 = LEN - LINE - HEAD;

/// Valid for any bytes, zeros included, with which it begins.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Control {
    /// The consumer's position.
    head: Line<AtomicU32>,
    /// The consumer waits for a record.
    armed: Line<AtomicU32>,
    /// The producer waits for room.
    waits: Line<AtomicU32>,
}

/// The bytes of a record that may begin here, or 0.
#[derive(Default)]
#[repr(transparent)]
pub(crate) struct Mark(AtomicU32);

impl Mark {
    /// No record begins here yet. For the producer, before the record in front of it is there.
    #[inline]
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// The bytes of the record, 0 if there is none.
    ///
    /// # Errors
    /// `InvalidData`: it has more than the ring.
    #[inline]
    pub(crate) fn filled(&self) -> io::Result<u32> {
        let bytes = self.0.load(Ordering::Acquire);
        if bytes <= MAX_RECORD { Ok(bytes) } else { Err(broken()) }
    }
}

/// How much of a ring a record with so many bytes takes.
#[inline]
pub(crate) fn record_len(bytes: u32) -> u32 {
    (HEAD + bytes).next_multiple_of(LINE)
}

/// The bytes that a record may have where so much of the ring is free.
#[inline]
pub(crate) fn capacity(room: u32) -> u32 {
    (room & !(LINE - 1)).saturating_sub(LINE + HEAD)
}

#[cold]
fn broken() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the peer says that a ring holds more than it can")
}

/// Whether a side that sleeps is to be woken, by this one alone.
#[inline]
fn take(word: &AtomicU32) -> bool {
    word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::Relaxed) != 0
}

impl Control {
    /// What of the ring is free for the producer at `tail`.
    ///
    /// # Errors
    /// `InvalidData`: the consumer says that it has read what was not written.
    pub(crate) fn room(&self, tail: u32) -> io::Result<u32> {
        let used = tail.wrapping_sub(self.head.0.load(Ordering::Acquire));
        LEN.checked_sub(used).ok_or_else(broken)
    }

    /// The producer has written the `bytes` of a record and cleared the mark behind it. True: the consumer is to be woken.
    #[inline]
    pub(crate) fn publish(&self, mark: &Mark, bytes: u32) -> bool {
        mark.0.store(bytes, Ordering::Release);
        fence(Ordering::SeqCst);
        take(&self.armed.0)
    }

    /// The producer at `tail` waits for room; gives how much there is meanwhile.
    ///
    /// # Errors
    /// As [`room`](Control::room).
    pub(crate) fn wait_for_room(&self, tail: u32) -> io::Result<u32> {
        self.waits.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.room(tail)
    }

    /// The consumer has read up to `head`. True: the producer is to be woken.
    pub(crate) fn consume(&self, head: u32) -> bool {
        self.head.0.store(head, Ordering::Release);
        fence(Ordering::SeqCst);
        take(&self.waits.0)
    }

    /// The consumer, for whom the mark is the next one, is to be woken when a record comes; gives the bytes of one that is there
    /// already.
    ///
    /// # Errors
    /// As [`Mark::filled`].
    pub(crate) fn arm(&self, mark: &Mark) -> io::Result<u32> {
        self.armed.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        mark.filled()
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_side_sees_what_the_other_did() {
        let (control, mark) = (Control::default(), Mark::default());
        assert_eq!((control.room(0).unwrap(), mark.filled().unwrap()), (LEN, 0));
        assert!(!control.publish(&mark, 7));
        assert_eq!(mark.filled().unwrap(), 7);
        assert_eq!(control.room(record_len(7)).unwrap(), LEN - LINE);
        assert!(!control.consume(LINE));
        assert_eq!(control.room(LINE).unwrap(), LEN);
        mark.clear();
        assert_eq!(mark.filled().unwrap(), 0);
    }

    #[test]
    fn one_that_waits_is_woken_once() {
        let (control, marks) = (Control::default(), [(); 3].map(|()| Mark::default()));
        assert_eq!(control.arm(&marks[0]).unwrap(), 0);
        assert!(control.publish(&marks[0], 1));
        assert!(!control.publish(&marks[1], 2));
        assert_eq!(control.arm(&marks[1]).unwrap(), 2, "a record that came is seen at once");
        assert_eq!(control.wait_for_room(LEN).unwrap(), 0);
        assert!(control.consume(LINE));
        assert!(!control.consume(LEN));
    }

    #[test]
    fn positions_wrap() {
        let control = Control::default();
        let begin = 0_u32.wrapping_sub(LINE);
        control.consume(begin);
        assert_eq!(control.room(begin.wrapping_add(3 * LINE)).unwrap(), LEN - 3 * LINE);
    }

    #[test]
    fn records_and_the_mark_behind_them_fit() {
        assert_eq!((record_len(1), record_len(56), record_len(57)), (64, 64, 128));
        assert_eq!((capacity(0), capacity(127), capacity(128)), (0, 0, 56));
        assert_eq!((capacity(LEN), record_len(MAX_RECORD) + LINE), (MAX_RECORD, LEN));
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        let (control, mark) = (Control::default(), Mark::default());
        control.publish(&mark, MAX_RECORD + 1);
        assert_eq!(mark.filled().unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(control.arm(&mark).unwrap_err().kind(), ErrorKind::InvalidData);
        control.consume(1);
        assert_eq!(control.room(0).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
