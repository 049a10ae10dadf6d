//! Two rings in memory that both ends of a connection have mapped, one for each direction: a stream of bytes, in records.

use std::io::{self, ErrorKind};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use fabric_core::memory;
use fabric_util::stream::IoVec;

use crate::control::{Control, HEAD, LEN, Mark, capacity, record_len};
use crate::hazard::Hazard;
use crate::line::LINE;
use crate::mapping::{Mapping, Placed, Words};

/// Bytes of a page of memory, on most machines.
const PAGE: usize = 4096;
/// The second ring, what both ends say of both, and the first ring, in this order, so that a connection that has not said much
/// yet has one page: half of it is the end of the second ring, where that begins to be used.
const SECOND: usize = PAGE / 2;
const PAGES: usize = SECOND + LEN as usize;
const FIRST: usize = PAGES + 2 * size_of::<Page>();
const MAPPED: usize = (FIRST + LEN as usize).next_multiple_of(PAGE);
/// Where the bytes of each are, and which of them is the first to be used.
const RINGS: [(usize, u32); 2] = [(FIRST, 0), (SECOND, LEN.saturating_sub(PAGE as u32 / 2))];

/// What both ends say of one direction: of the ring, and of what the end that writes to it does by itself.
#[repr(C)]
struct Page {
    control: Control,
    hazard: Hazard,
}

// SAFETY: atomics, and any values are valid.
unsafe impl Words for Page {}

/// One direction.
struct Ring {
    page: Placed<Page>,
    /// In the same mapping, at the beginning of a line.
    bytes: NonNull<u8>,
    /// Which of them is at the position 0.
    origin: u32,
    /// How far this end is: where the next record begins, or what of one is read.
    position: u32,
    /// Of the end that reads: the bytes of a record that are left.
    left: u32,
    /// The position of the end that reads as it last published it, or as the end that writes last looked: neither is done for
    /// each record, since the line then goes from one processor to the other.
    head: u32,
}

/// Bytes that are read before the position is published. A producer that finds no room has three times as many before it that
/// are not read yet, so it is published again.
const HEAD_EVERY: u32 = if cfg!(loom) { 1 } else { LEN / 4 };
/// Lines behind the next mark that the producer's processor gets while the other end is at work.
const AHEAD: u32 = 2;

impl Ring {
    fn new(mapping: &Arc<Mapping>, which: usize) -> Self {
        let (bytes, origin) = RINGS[which];
        Ring {
            page: Placed::new(mapping, PAGES + which * size_of::<Page>()),
            bytes: mapping.at(bytes),
            origin,
            position: 0,
            left: 0,
            head: 0,
        }
    }

    fn control(&self) -> &Control {
        &self.page.control
    }

    /// The mark of a record that begins at the position, which is that of a line.
    #[inline]
    fn mark(&self, position: u32) -> &Mark {
        let at = (position.wrapping_add(self.origin) % LEN) & !(LINE - 1);
        // SAFETY: within the ring's bytes, which are the mapping's, which `page` keeps; aligned as lines are; an atomic word, for
        // which any bytes are valid. The end that writes copies bytes there only before a mark is there.
        unsafe { self.bytes.add(at as usize).cast::<Mark>().as_ref() }
    }

    /// What is free, enough for a record of `wanted` bytes if there is so much; asks to be woken if there is too little for any.
    #[inline]
    fn room(&mut self, wanted: usize) -> io::Result<u32> {
        let known = LEN.wrapping_sub(self.position.wrapping_sub(self.head));
        if wanted <= capacity(known) as usize {
            return Ok(known);
        }
        let mut room = self.control().room(self.position)?;
        if capacity(room) == 0 {
            room = self.control().wait_for_room(self.position)?;
        }
        self.head = self.position.wrapping_sub(LEN - room);
        Ok(room)
    }

    /// The bytes that are left of the present record, or those of the next one; 0 if there is none.
    #[inline]
    fn ready(&mut self) -> io::Result<u32> {
        if self.left == 0 {
            self.left = self.mark(self.position).filled()?;
            if self.left > 0 {
                self.position = self.position.wrapping_add(HEAD);
            }
        }
        Ok(self.left)
    }

    /// So many bytes of the present record are read.
    #[inline]
    fn advance(&mut self, bytes: u32) {
        self.left -= bytes;
        self.position = self.position.wrapping_add(bytes);
        if self.left == 0 {
            self.position = self.position.wrapping_add(LINE - 1) & !(LINE - 1);
        }
    }

    /// Publishes how far it has read, now and then. True: the peer is to be woken.
    #[inline]
    fn publish_head(&mut self) -> bool {
        let read = self.position & !(LINE - 1);
        if read.wrapping_sub(self.head) < HEAD_EVERY {
            return false;
        }
        self.head = read;
        self.control().consume(read)
    }

    /// The run of bytes at the position, at most `len`.
    #[inline]
    fn run(&self, len: usize) -> (*mut u8, usize) {
        let at = self.position.wrapping_add(self.origin) % LEN;
        // SAFETY: within the ring's bytes.
        let start = unsafe { self.bytes.add(at as usize) };
        (start.as_ptr(), len.min((LEN - at) as usize))
    }

    /// Copies `bytes` of the pieces of memory behind the position, in their order.
    ///
    /// # Safety
    /// The memory is allocated, and there is room.
    #[inline]
    unsafe fn fill(&mut self, bytes: u32, pieces: &[IoVec]) {
        let mut left = bytes as usize;
        for &(base, len) in pieces {
            let mut done = 0;
            while done < len && left > 0 {
                let (at, run) = self.run((len - done).min(left));
                // SAFETY: the caller's promise for the one side, a run within the mapping for the other.
                unsafe { memory::copy(at, base.wrapping_add(done), run) };
                self.position = self.position.wrapping_add(run as u32);
                (done, left) = (done + run, left - run);
            }
        }
    }

    /// Clears marks where the next records may go, as far as that is free: their writes then find the lines in the cache.
    #[inline]
    fn prefetch(&self) {
        for line in 1..=AHEAD {
            let at = self.position.wrapping_add(line * LINE);
            if at.wrapping_sub(self.head) < LEN {
                self.mark(at).clear();
            }
        }
    }
}

/// What a call did, and whether the peer waits for it and is to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) bytes: usize,
    pub(crate) wake: bool,
}

/// What a peer does by itself, also when the rings are gone.
pub(crate) struct Peer(Placed<Page>);

impl Peer {
    pub(crate) fn hazard(&self) -> &Hazard {
        &self.0.hazard
    }
}

/// Both directions.
pub(crate) struct Rings {
    to_peer: Ring,
    from_peer: Ring,
    /// The last write found no room.
    blocked: bool,
}

// SAFETY: the pointers are into the mapping, which the value keeps.
unsafe impl Send for Rings {}

impl Rings {
    /// Of a new connection; gives the descriptor for the peer.
    ///
    /// # Errors
    /// As [`Mapping::create`].
    pub(crate) fn create() -> io::Result<(Self, OwnedFd)> {
        let (mapping, file) = Mapping::create(MAPPED)?;
        mapping.secure(0, MAPPED)?;
        Ok((Self::new(mapping, 0), file))
    }

    /// Those that the peer has made.
    ///
    /// # Errors
    /// As [`Mapping::of`].
    pub(crate) fn of(file: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self::new(Mapping::of(file, MAPPED)?, 1))
    }

    /// `own`: which of the two this end writes to, the initiator to the first.
    fn new(mapping: Mapping, own: usize) -> Self {
        let mapping = Arc::new(mapping);
        Rings {
            to_peer: Ring::new(&mapping, own),
            from_peer: Ring::new(&mapping, 1 - own),
            blocked: false,
        }
    }

    /// Where this side says what it does by itself to the peer's memory.
    #[inline]
    pub(crate) fn hazard(&self) -> &Hazard {
        &self.to_peer.page.hazard
    }

    /// Where the peer says what it does by itself to this side's.
    #[inline]
    pub(crate) fn peer_hazard(&self) -> &Hazard {
        &self.from_peer.page.hazard
    }

    /// The same, for longer than there are rings.
    pub(crate) fn peer(&self) -> Peer {
        Peer(self.from_peer.page.clone())
    }

    /// Writes what there is room for. `WouldBlock`: there is none; the peer wakes this side when there is.
    ///
    /// # Errors
    /// `InvalidData`: the peer has broken the ring.
    ///
    /// # Safety
    /// As [`Transport::send`](fabric_util::stream::Transport::send).
    #[inline]
    pub(crate) unsafe fn write(&mut self, from: &[IoVec]) -> io::Result<Moved> {
        let ring = &mut self.to_peer;
        let wanted = from.iter().map(|piece| piece.1).sum();
        if wanted == 0 {
            return Ok(Moved { bytes: 0, wake: false });
        }
        let room = capacity(ring.room(wanted)?);
        self.blocked = room == 0;
        if self.blocked {
            return Err(ErrorKind::WouldBlock.into());
        }
        let bytes = room.min(wanted.try_into().unwrap_or(room));
        let (start, next) = (ring.position, ring.position.wrapping_add(record_len(bytes)));
        ring.mark(next).clear();
        ring.position = start.wrapping_add(HEAD);
        // SAFETY: the caller's promise; there is room.
        unsafe { ring.fill(bytes, from) };
        ring.position = next;
        let wake = ring.control().publish(ring.mark(start), bytes);
        ring.prefetch();
        Ok(Moved { bytes: bytes as usize, wake })
    }

    /// Reads what has come. `WouldBlock`: nothing has.
    ///
    /// # Errors
    /// `InvalidData`: the peer has broken the ring.
    ///
    /// # Safety
    /// As [`Transport::recv`](fabric_util::stream::Transport::recv).
    #[inline]
    pub(crate) unsafe fn read(&mut self, to: &[IoVec]) -> io::Result<Moved> {
        let ring = &mut self.from_peer;
        let mut bytes = 0;
        'all: for &(base, len) in to {
            let mut done = 0;
            while done < len {
                let ready = ring.ready()?;
                if ready == 0 {
                    break 'all;
                }
                let (at, run) = ring.run((len - done).min(ready as usize));
                // SAFETY: the caller's promise for the one side, a run within the mapping for the other.
                unsafe { memory::copy(base.wrapping_add(done), at, run) };
                ring.advance(run as u32);
                (done, bytes) = (done + run, bytes + run);
            }
        }
        if bytes == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(Moved { bytes, wake: ring.publish_head() })
    }

    /// Whether nothing has come.
    ///
    /// # Errors
    /// `InvalidData`: the peer has broken the ring.
    pub(crate) fn is_dry(&self) -> io::Result<bool> {
        let ring = &self.from_peer;
        Ok(ring.left == 0 && ring.mark(ring.position).filled()? == 0)
    }

    /// The peer wakes this side when something comes. True: it has, or there is room again for a write that found none, of
    /// which the word may have been lost.
    ///
    /// # Errors
    /// `InvalidData`: the peer has broken the ring.
    pub(crate) fn arm(&self) -> io::Result<bool> {
        let (to, from) = (&self.to_peer, &self.from_peer);
        Ok(from.left > 0
            || from.control().arm(from.mark(from.position))? > 0
            || self.blocked && capacity(to.control().room(to.position)?) > 0)
    }

    /// For tests: says to the peer that there is a record of so many bytes.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn claim(&self, bytes: u32) {
        self.to_peer.control().publish(self.to_peer.mark(self.to_peer.position), bytes);
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn pair() -> (Rings, Rings) {
        let (one, file) = Rings::create().unwrap();
        let other = Rings::of(file.as_fd()).unwrap();
        (one, other)
    }

    fn pieces<'a>(of: impl Iterator<Item = &'a mut [u8]>) -> Vec<IoVec> {
        of.map(|piece| (piece.as_mut_ptr(), piece.len())).collect()
    }

    fn write(rings: &mut Rings, bytes: &mut [u8], piece: usize) -> io::Result<Moved> {
        // SAFETY: the pieces are of a slice that is borrowed.
        unsafe { rings.write(&pieces(bytes.chunks_mut(piece))) }
    }

    fn read(rings: &mut Rings, bytes: &mut [u8], piece: usize) -> io::Result<Moved> {
        // SAFETY: as for `write`.
        unsafe { rings.read(&pieces(bytes.chunks_mut(piece))) }
    }

    #[test]
    fn bytes_come_whole_and_in_order_in_pieces_of_all_sizes() {
        let (mut one, mut other) = pair();
        let mut numbers = fabric_util::splitmix::SplitMix64::new(1);
        let (mut wrote, mut got) = (0_u32, 0_u32);
        let byte = |at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8;
        while got < 5 * LEN {
            let len = numbers.below(LEN as usize) as u32;
            let mut bytes: Vec<u8> = (wrote..wrote + len).map(byte).collect();
            match write(&mut one, &mut bytes, 1 + numbers.below(9000)) {
                Ok(moved) => wrote += moved.bytes as u32,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            let mut bytes = vec![0; numbers.below(LEN as usize)];
            match read(&mut other, &mut bytes, 1 + numbers.below(9000)) {
                Ok(moved) => {
                    let wanted: Vec<u8> = (got..got + moved.bytes as u32).map(byte).collect();
                    assert!(bytes[..moved.bytes] == wanted);
                    got += moved.bytes as u32;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
    }

    #[test]
    fn the_directions_are_apart() {
        let (mut one, mut other) = pair();
        assert_eq!(write(&mut one, &mut [1; 3], 3).unwrap(), Moved { bytes: 3, wake: false });
        assert_eq!(write(&mut other, &mut [2; 5], 5).unwrap(), Moved { bytes: 5, wake: false });
        let mut bytes = [0; 9];
        assert_eq!(read(&mut one, &mut bytes, 9).unwrap().bytes, 5);
        assert_eq!(bytes[..5], [2; 5]);
        assert_eq!(read(&mut other, &mut bytes, 9).unwrap().bytes, 3);
        assert_eq!(bytes[..3], [1; 3]);
        assert!(one.is_dry().unwrap() && other.is_dry().unwrap());
    }

    #[test]
    fn who_waits_is_woken() {
        let (mut one, mut other) = pair();
        assert!(!other.arm().unwrap());
        assert!(write(&mut one, &mut [0; 1], 1).unwrap().wake);
        assert!(other.arm().unwrap());
        let mut all = vec![0; LEN as usize];
        let rest = capacity(LEN - LINE) as usize;
        assert_eq!(write(&mut one, &mut all, LEN as usize).unwrap().bytes, rest);
        assert_eq!(write(&mut one, &mut all, 1).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(read(&mut other, &mut all, LEN as usize).unwrap().wake);
    }

    /// A hostile peer writes to all of the memory whenever it likes; what steers is at the beginning of lines.
    #[test]
    fn one_that_scribbles_over_the_rings_reaches_nothing_beside_them() {
        let mut numbers = fabric_util::splitmix::SplitMix64::new(7);
        let (mut moved, mut broken) = (0, 0);
        for step in (0..100).flat_map(|_| 0..60) {
            let (mut rings, file) = Rings::create().unwrap();
            let theirs = Mapping::of(file.as_fd(), MAPPED).unwrap();
            for _ in 0..1 + step * 20 {
                let word = theirs.at(64 * numbers.below(MAPPED / 64)).cast::<AtomicU32>();
                // SAFETY: an aligned word of the mapping, which is reached by atomics and opaque copies only.
                let word = unsafe { word.as_ref() };
                word.store(numbers.below(2 * LEN as usize) as u32, Ordering::Relaxed);
            }
            let mut bytes = vec![7; 3 + 300 * step];
            let end = bytes.len() - 1;
            for call in [read, write, read] {
                match call(&mut rings, &mut bytes[1..end], 500) {
                    Ok(done) => moved += usize::from(done.bytes > 0 && done.bytes < end),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => broken += usize::from(error.kind() == ErrorKind::InvalidData),
                }
                assert_eq!((bytes[0], bytes[end]), (7, 7));
                let _ = (rings.is_dry(), rings.arm());
            }
        }
        assert!(moved > 500 && broken > 500, "{moved} {broken}");
    }
}
