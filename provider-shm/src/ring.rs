//! Two rings of bytes in memory that both ends of a connection have mapped, one for each direction.

use std::io::{self, ErrorKind};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use fabric_core::memory;
use fabric_util::stream::IoVec;

use crate::control::{Control, LEN};
use crate::hazard::Hazard;
use crate::mapping::{Mapping, Placed, Words};

/// Where the bytes of the first ring are: behind a page with what both ends say of both rings.
const BYTES: usize = 4096;
const MAPPED: usize = BYTES + 2 * LEN as usize;
const _: () = assert!(2 * size_of::<Page>() <= BYTES);

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
    /// In the same mapping.
    bytes: NonNull<u8>,
    /// How far this end is.
    position: u32,
}

impl Ring {
    fn new(mapping: &Arc<Mapping>, which: usize) -> Self {
        Ring {
            page: Placed::new(mapping, which * size_of::<Page>()),
            bytes: mapping.at(BYTES + which * LEN as usize),
            position: 0,
        }
    }

    fn control(&self) -> &Control {
        &self.page.control
    }

    /// The run of bytes at the position, at most `len`.
    fn run(&self, len: usize) -> (*mut u8, usize) {
        let at = self.position % LEN;
        // SAFETY: within the ring's bytes.
        let start = unsafe { self.bytes.add(at as usize) };
        (start.as_ptr(), len.min((LEN - at) as usize))
    }

    /// Moves at most `room` bytes between the ring and the pieces of memory, in their order, by `copy` (in the ring, in the
    /// memory, how many); says how many.
    fn pass(
        &mut self,
        room: u32,
        pieces: &[IoVec],
        copy: impl Fn(*mut u8, *mut u8, usize),
    ) -> usize {
        let mut left = room as usize;
        for &(base, len) in pieces {
            let mut done = 0;
            while done < len && left > 0 {
                let (at, run) = self.run((len - done).min(left));
                copy(at, base.wrapping_add(done), run);
                self.position = self.position.wrapping_add(run as u32);
                (done, left) = (done + run, left - run);
            }
        }
        room as usize - left
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
    pub(crate) unsafe fn write(&mut self, from: &[IoVec]) -> io::Result<Moved> {
        let ring = &mut self.to_peer;
        let mut room = ring.control().room(ring.position)?;
        if room == 0 {
            room = ring.control().wait_for_room(ring.position)?;
        }
        self.blocked = room == 0;
        if self.blocked {
            return Err(ErrorKind::WouldBlock.into());
        }
        // SAFETY: the caller's promise for the one side, a run within the mapping for the other.
        let bytes =
            ring.pass(room, from, |at, memory, len| unsafe { memory::copy(at, memory, len) });
        Ok(Moved { bytes, wake: ring.control().publish(ring.position) })
    }

    /// Reads what has come. `WouldBlock`: nothing has.
    ///
    /// # Errors
    /// `InvalidData`: the peer has broken the ring.
    ///
    /// # Safety
    /// As [`Transport::recv`](fabric_util::stream::Transport::recv).
    pub(crate) unsafe fn read(&mut self, to: &[IoVec]) -> io::Result<Moved> {
        let ring = &mut self.from_peer;
        let filled = ring.control().filled(ring.position)?;
        if filled == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        // SAFETY: the caller's promise for the one side, a run within the mapping for the other.
        let bytes =
            ring.pass(filled, to, |at, memory, len| unsafe { memory::copy(memory, at, len) });
        Ok(Moved { bytes, wake: ring.control().consume(ring.position) })
    }

    /// Whether nothing has come.
    ///
    /// # Errors
    /// `InvalidData`: the peer has broken the ring.
    pub(crate) fn is_dry(&self) -> io::Result<bool> {
        let ring = &self.from_peer;
        Ok(ring.control().filled(ring.position)? == 0)
    }

    /// The peer wakes this side when something comes. True: it has, or there is room again for a write that found none, of
    /// which the word may have been lost.
    ///
    /// # Errors
    /// `InvalidData`: the peer has broken the ring.
    pub(crate) fn arm(&self) -> io::Result<bool> {
        let (to, from) = (&self.to_peer, &self.from_peer);
        Ok(from.control().arm(from.position)? > 0
            || self.blocked && to.control().room(to.position)? > 0)
    }

    /// For tests: says to the peer that so much was written.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn claim(&self, bytes: u32) {
        self.to_peer.control().publish(bytes);
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests
mod tests {
    use std::os::fd::AsFd;

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
        assert_eq!(write(&mut one, &mut all, LEN as usize).unwrap().bytes, LEN as usize - 1);
        assert_eq!(write(&mut one, &mut all, 1).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(read(&mut other, &mut all, LEN as usize).unwrap().wake);
    }
}
