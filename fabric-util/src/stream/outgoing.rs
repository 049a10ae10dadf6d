//! The stream to the peer: runs of memory, in order.
//!
//! Small things (headers, short payloads) are copied into one buffer, so that many frames are one run; long
//! payloads are runs where they lie. Runs of this side's operations stay valid until those complete; runs
//! of answers lie in regions that can close, so they are entered for each system call.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use fabric_core::memory;
use smallvec::SmallVec;

use super::io_vec::{IoVec, MAX_IO_VECS};
use super::transport::Transport;
use crate::region_table::{RegionEntry, RegionGuard};

/// Where a run of the stream lies.
enum Piece {
    /// The next bytes of the buffer.
    Copied(usize),
    /// Memory of an operation of this side.
    Local(*mut u8, usize),
    /// Memory of a region that answers the read with this number.
    Region(Arc<RegionEntry>, u64, usize, u32),
}

// SAFETY: the addresses are those of segments, which may go from thread to thread.
unsafe impl Send for Piece {}

/// The stream to the peer.
#[derive(Default)]
pub(super) struct Outgoing {
    buffer: Vec<u8>,
    /// Bytes of the buffer that were transmitted.
    spent: usize,
    pieces: VecDeque<Piece>,
    queued: usize,
    /// Bytes that were transmitted, of all that ever came here.
    gone: u64,
}

/// No more is cut, or said, while this many bytes wait for the socket.
const MAX_QUEUED: usize = 512 << 10;
/// A buffer that grew beyond this is given back when it is empty; so much of it is moved away at a time.
const KEEP_BUFFER: usize = 16 << 10;

impl Outgoing {
    /// Bytes that wait.
    #[inline]
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// Bytes of the buffer, those among them that were transmitted too.
    #[inline]
    pub(super) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Whether more may be added.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.queued < MAX_QUEUED
    }

    /// How far the stream is transmitted, and how far it goes by now.
    pub(super) fn transmitted(&self) -> u64 {
        self.gone
    }

    pub(super) fn end(&self) -> u64 {
        self.gone + self.queued as u64
    }

    #[inline]
    pub(super) fn has_output(&self) -> bool {
        self.queued > 0
    }

    /// Appends bytes that `write` puts at the end of a buffer.
    pub(super) fn copied(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.buffer.len();
        write(&mut self.buffer);
        let len = self.buffer.len() - before;
        self.queued += len;
        match self.pieces.back_mut() {
            Some(Piece::Copied(last)) => *last += len,
            _ => self.pieces.push_back(Piece::Copied(len)),
        }
    }

    /// Appends a copy of `len` bytes at `addr`.
    ///
    /// # Safety
    /// The range must be allocated.
    pub(super) unsafe fn copy(&mut self, addr: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        self.copied(|buffer| unsafe { memory::append(addr, len, buffer) });
    }

    /// The first `taken` of these bytes were transmitted from elsewhere, with nothing before them; the others wait.
    #[inline]
    pub(super) fn sent_beside(&mut self, bytes: &[u8], taken: usize) {
        self.gone += taken as u64;
        if taken < bytes.len() {
            self.copied(|buffer| buffer.extend_from_slice(&bytes[taken..]));
        }
    }

    /// Appends memory of an operation of this side; it stays valid until the operation completes.
    pub(super) fn local(&mut self, addr: *mut u8, len: usize) {
        self.queued += len;
        self.pieces.push_back(Piece::Local(addr, len));
    }

    /// Appends memory of a region, which answers the read `seq`.
    pub(super) fn region(&mut self, entry: &Arc<RegionEntry>, addr: u64, len: usize, seq: u32) {
        self.queued += len;
        self.pieces.push_back(Piece::Region(entry.clone(), addr, len, seq));
    }

    /// If the next piece is of a region that has closed: puts zeroes in its place, forgets everything behind
    /// it, and gives the number of the read. What was behind it must not be believed: it says that the read
    /// went well.
    pub(super) fn spoil(&mut self) -> Option<u32> {
        let Some(Piece::Region(entry, _, len, seq)) = self.pieces.front() else { return None };
        if entry.enter().is_some() {
            return None;
        }
        let (len, seq) = (*len, *seq);
        self.clear();
        self.copied(|buffer| buffer.resize(len, 0));
        Some(seq)
    }

    /// Sends what comes next; `None` if that is of a region that has closed ([`spoil`](Outgoing::spoil)).
    #[inline]
    pub(super) fn send_to(&mut self, transport: &mut impl Transport) -> io::Result<Option<usize>> {
        if self.pieces.len() == 1
            && let Some(Piece::Copied(len)) = self.pieces.front()
        {
            // Small frames, the usual thing.
            let run = (self.buffer[self.spent..].as_ptr().cast_mut(), *len);
            // SAFETY: the bytes are in our buffer.
            let sent = unsafe { transport.send(&[run]) }?;
            self.spend(sent);
            return Ok(Some(sent));
        }
        self.send_pieces(transport)
    }

    /// As `send_to`, of several pieces, or of one that is no small frame.
    #[inline(never)]
    fn send_pieces(&mut self, transport: &mut impl Transport) -> io::Result<Option<usize>> {
        let mut runs: SmallVec<[IoVec; MAX_IO_VECS]> = SmallVec::new();
        let mut passes: SmallVec<[RegionGuard<'_>; 2]> = SmallVec::new();
        let mut spent = self.spent;
        for piece in self.pieces.iter().take(MAX_IO_VECS) {
            match piece {
                Piece::Copied(len) => {
                    runs.push((self.buffer[spent..].as_ptr().cast_mut(), *len));
                    spent += len;
                }
                Piece::Local(addr, len) => runs.push((*addr, *len)),
                Piece::Region(entry, addr, len, _) => {
                    // A thread that waits here for one region must hold no other, nor the same one: a
                    // deregistration may be waiting.
                    let pass = if passes.is_empty() { entry.enter() } else { entry.try_enter() };
                    let Some(pass) = pass else { break };
                    passes.push(pass);
                    runs.push((entry.at(*addr), *len));
                }
            }
        }
        if runs.is_empty() {
            return Ok(None);
        }
        // SAFETY: the memory is of our buffer, of operations that have not completed, and of regions that the passes hold open.
        let sent = unsafe { transport.send(&runs) }?;
        drop(passes);
        self.spend(sent);
        Ok(Some(sent))
    }

    fn spend(&mut self, bytes: usize) {
        self.queued -= bytes;
        self.gone += bytes as u64;
        if self.queued > 0 {
            self.spend_part(bytes);
        } else {
            // Mostly it is one, for which `clear` costs more.
            while self.pieces.pop_front().is_some() {}
            self.empty_buffer();
        }
    }

    /// As `spend`, where something is left.
    fn spend_part(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let Some(piece) = self.pieces.front_mut() else { break };
            let part = match piece {
                Piece::Copied(len) | Piece::Local(_, len) | Piece::Region(_, _, len, _) => {
                    bytes.min(*len)
                }
            };
            let left = match piece {
                Piece::Copied(len) => {
                    self.spent += part;
                    *len -= part;
                    *len
                }
                Piece::Local(addr, len) => {
                    *addr = addr.wrapping_add(part);
                    *len -= part;
                    *len
                }
                Piece::Region(_, addr, len, _) => {
                    *addr += part as u64;
                    *len -= part;
                    *len
                }
            };
            bytes -= part;
            if left == 0 {
                self.pieces.pop_front();
            }
        }
        // A stream that never runs dry keeps no more than twice of what waits.
        if self.spent >= KEEP_BUFFER.max(self.buffer.len() / 2) {
            self.buffer.drain(..self.spent);
            self.spent = 0;
        }
    }

    fn empty_buffer(&mut self) {
        self.spent = 0;
        if self.buffer.capacity() > KEEP_BUFFER {
            self.buffer = Vec::new();
        } else {
            self.buffer.clear();
        }
    }

    /// Copies everything that lies in operations' memory: afterwards the operations may end. Of a region that
    /// has closed come zeroes, and nothing behind them, as in [`spoil`](Outgoing::spoil); gives the number of its read.
    pub(super) fn own(&mut self) -> Option<u32> {
        let mut buffer = Vec::new();
        let (mut spent, mut spoiled) = (self.spent, None);
        for piece in &self.pieces {
            let at = buffer.len();
            match piece {
                Piece::Copied(len) => {
                    buffer.extend_from_slice(&self.buffer[spent..spent + len]);
                    spent += len;
                }
                Piece::Local(addr, len) => {
                    // SAFETY: the operation has not completed, so its segments are valid.
                    unsafe { memory::append(*addr, *len, &mut buffer) };
                }
                Piece::Region(entry, addr, len, seq) => {
                    buffer.resize(at + len, 0);
                    let Some(_pass) = entry.enter() else {
                        spoiled = Some(*seq);
                        break;
                    };
                    // SAFETY: the range was checked and the region is held open.
                    unsafe { memory::load(entry.at(*addr), &mut buffer[at..]) };
                }
            }
        }
        self.pieces.clear();
        self.queued = buffer.len();
        self.spent = 0;
        if !buffer.is_empty() {
            self.pieces.push_back(Piece::Copied(buffer.len()));
        }
        self.buffer = buffer;
        spoiled
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Outgoing::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::testing::Taker;

    #[test]
    fn a_stream_that_never_runs_dry_keeps_little() {
        let mut stream = Outgoing::default();
        let (mut next, mut expected) = (0u8, 0u8);
        let mut wait = |stream: &mut Outgoing| {
            next = next.wrapping_add(1);
            stream.copied(|buffer| buffer.resize(buffer.len() + 1000, next));
        };
        (0..10).for_each(|_| wait(&mut stream));
        let count = if cfg!(miri) { 30 } else { 10_000 };
        for _ in 0..count {
            wait(&mut stream);
            expected = expected.wrapping_add(1);
            let mut taker = Taker::new(1000);
            assert_eq!(stream.send_to(&mut taker).unwrap().unwrap(), 1000);
            assert_eq!(taker.bytes, [expected; 1000]);
        }
        assert_eq!((stream.queued(), stream.transmitted()), (10_000, 1000 * count));
        assert!(stream.buffer.capacity() < 100 << 10, "{} bytes", stream.buffer.capacity());
    }
}
