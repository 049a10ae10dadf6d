//! Two sides in one process: what one has, and what the other does to it.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use fabric_core::{AtomicCall, AtomicOp, AtomicType, EndpointId, Error, Memory, memory};
use fabric_util::region_table::{WindowAttr, Windows};
use fabric_util::sockets::{PeerMemory, Trust};
use socket2::Socket;

use super::*;
use crate::memory::ShmMemory;
use crate::preface;
use crate::ring::Rings;

const KEY: u64 = 5;
const BASE: u64 = 1 << 40;
const AT: RemoteAddr = RemoteAddr { key: KEY, addr: BASE };
const ONE: EndpointId = EndpointId(1);
const LEN: usize = 4096;

/// The side whose memory is reached, and the one that reaches it.
struct Both {
    owner: Arc<ShmMemory>,
    memory: Memory,
    socket: Socket,
    rings: Rings,
    reach: Reach,
    _owned: (Arc<Socket>, Rings),
}

impl Both {
    fn new(len: usize) -> Self {
        let (one, other) = UnixStream::pair().unwrap();
        let [one, other] = [one, other].map(|stream| Socket::from(OwnedFd::from(stream)));
        let owner = ShmMemory::new(Trust::User);
        let memory = owner.allocate(len).unwrap();
        let (rings, file) = Rings::create().unwrap();
        let (own, one) = (Rings::of(file.as_fd()).unwrap(), Arc::new(one));
        assert!(owner.trusts(&one));
        owner.admit(ONE, own.peer(), &one);
        let reach = Reach::default();
        let mut new = Both { owner, memory, socket: other, rings, reach, _owned: (one, own) };
        new.take_files();
        new
    }

    fn take_files(&mut self) {
        let mappings = Mappings::default();
        let socket = self.socket.as_fd();
        assert!(preface::take_files(socket, |file| self.reach.take(file, &mappings)));
    }

    /// All of the memory.
    fn open(&self, access: Access, only: Option<EndpointId>) -> u32 {
        self.open_at(AT, access, only)
    }

    fn open_at(&self, at: RemoteAddr, access: Access, only: Option<EndpointId>) -> u32 {
        let (addr, len) = (self.memory.as_ptr(), self.memory.len());
        self.owner.open(&WindowAttr { at, addr, len, access, only }).unwrap()
    }

    fn execute(&self, op: SendOp, own: &mut [u8], pieces: usize) -> Found {
        let segments: Vec<_> = own
            .chunks_mut(pieces)
            .map(|piece| Segment::new(piece.as_mut_ptr(), piece.len(), 0))
            .collect();
        // SAFETY: the pieces are of a slice that is borrowed.
        unsafe { self.reach.execute(self.rings.hazard(), &op, &segments) }
    }

    fn write(&self, addr: u64, bytes: &mut [u8]) -> Found {
        let to = RemoteAddr { key: KEY, addr };
        let pieces = bytes.len().max(1);
        self.execute(SendOp::Write { to, imm: None }, bytes, pieces)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.memory.len()];
        // SAFETY: all of the memory.
        unsafe { memory::load(self.memory.as_ptr(), &mut bytes) };
        bytes
    }
}

#[test]
fn bytes_of_all_lengths_go_and_come_in_pieces_of_all_sizes() {
    let both = Both::new(3 * BITE);
    both.open(Access::ALL, None);
    let mut numbers = fabric_util::splitmix::SplitMix64::new(1);
    let mut wanted = both.bytes();
    for len in [1, 7, 64, 4096, BITE - 1, BITE, BITE + 1, 2 * BITE + 5, 3 * BITE] {
        let at = numbers.below(both.memory.len() - len + 1);
        let mut bytes: Vec<u8> = (0..len).map(|_| numbers.below(256) as u8).collect();
        wanted[at..at + len].copy_from_slice(&bytes);
        let to = RemoteAddr { key: KEY, addr: BASE + at as u64 };
        let pieces = 1 + numbers.below(len);
        let pieces = pieces.max(len / 500);
        assert_eq!(both.execute(SendOp::Write { to, imm: None }, &mut bytes, pieces), Found::All);
        assert!(both.bytes() == wanted, "{len} bytes at {at}");
        let mut back = vec![0; len];
        assert_eq!(both.execute(SendOp::Read { from: to }, &mut back, pieces.max(9)), Found::All);
        assert!(back == bytes, "{len} bytes at {at}");
    }
}

#[test]
fn atomics_change_the_value_and_give_the_old_one() {
    let both = Both::new(LEN);
    both.open(Access::ALL, None);
    let atomic = |addr, call, fetch, old: &mut [u8]| {
        let at = RemoteAddr { key: KEY, addr };
        both.execute(SendOp::Atomic { at, call, fetch }, old, 8)
    };
    let add = AtomicCall { op: AtomicOp::Add, ty: AtomicType::U32, operand: 7, compare: 0 };
    let mut old = [9; 4];
    assert_eq!(atomic(BASE + 12, add, true, &mut old), Found::All);
    assert_eq!(atomic(BASE + 12, add, false, &mut []), Found::All);
    assert_eq!(old, [0; 4]);
    assert_eq!(atomic(BASE + 12, add, true, &mut old), Found::All);
    assert_eq!(u32::from_ne_bytes(old), 14);
    assert_eq!(atomic(BASE + 13, add, true, &mut old), Found::Nothing, "misaligned");
    assert_eq!(atomic(BASE + LEN as u64 - 2, add, true, &mut old), Found::Nothing);
    assert_eq!(both.bytes()[12..16], 21_u32.to_ne_bytes());
}

#[test]
fn nothing_changes_that_is_not_open() {
    let mut both = Both::new(2 * BITE);
    let all = both.memory.len();
    let (read_only, to_another) = (RemoteAddr { key: 6, ..AT }, RemoteAddr { key: 7, ..AT });
    both.open_at(read_only, Access::REMOTE_READ, None);
    both.open_at(to_another, Access::ALL, Some(EndpointId(2)));
    let window = both.open(Access::REMOTE_WRITE, Some(ONE));
    let mut bytes = vec![1; all];
    for (addr, len) in [
        (BASE, 0),
        (BASE + all as u64, 1),
        (BASE + 1, all),
        (BASE - 1, 1),
        (BASE ^ 1 << 60, 8),
        (0, 8),
    ] {
        assert_eq!(both.write(addr, &mut bytes[..len]), Found::Nothing, "{addr:x} {len}");
    }
    assert_eq!(both.execute(SendOp::Read { from: AT }, &mut bytes, 8), Found::Nothing);
    for to in [read_only, to_another, RemoteAddr { key: 8, ..AT }, RemoteAddr { key: 0, ..AT }] {
        let write = SendOp::Write { to, imm: None };
        assert_eq!(both.execute(write, &mut bytes[..8], 8), Found::Nothing);
    }
    assert!(both.bytes().iter().all(|byte| *byte == 0));
    assert!(!both.rings.peer().hazard().is_anywhere());

    assert_eq!(both.write(BASE, &mut bytes[..8]), Found::All);
    both.owner.close(window).unwrap();
    assert_eq!(both.write(BASE, &mut bytes[..8]), Found::Nothing);
    both.open(Access::ALL, None);
    both.owner.expel(ONE);
    assert_eq!(both.write(BASE, &mut bytes[..8]), Found::Nothing, "the connection has ended");
    both.take_files();
}

#[test]
fn files_that_are_made_later_come_too() {
    let mut both = Both::new(LEN);
    both.memory = both.owner.allocate(64 << 20).unwrap();
    both.open(Access::ALL, None);
    assert_eq!(both.write(BASE, &mut [3]), Found::NoFile);
    assert!(both.reach.wants_files());
    both.take_files();
    assert_eq!(both.write(BASE, &mut [3]), Found::All);
    assert_eq!(both.bytes()[0], 3);
    for _ in 0..LOOKS {
        both.reach.wants_files();
    }
    assert!(!both.reach.wants_files(), "it does not look for ever");
}

#[test]
fn files_that_are_no_memory_end_what_is_reached() {
    let both = Both::new(LEN);
    let mut reach = Reach::default();
    reach.take(None, &Mappings::default());
    assert!(!reach.wants_files());
    let mut reach = Reach::default();
    let no_windows = both.socket.try_clone().unwrap();
    reach.take(Some(no_windows.into()), &Mappings::default());
    assert!(reach.view.is_none() && !reach.wants_files());
}

#[test]
fn a_window_closes_when_the_peer_has_left_it() {
    let both = Both::new(LEN);
    let hazard = both.rings.hazard();
    // Where others have the processors the peer leaves too late, and it is said that it does not get on.
    let closes_in_time = || {
        let (window, begun) = (both.open(Access::ALL, None), Instant::now());
        hazard.enter(window);
        thread::scope(|scope| {
            let closes = scope.spawn(|| both.owner.close(window));
            thread::sleep(Duration::from_millis(20));
            let (is_early, took) = (closes.is_finished(), begun.elapsed());
            hazard.leave();
            assert!(!is_early || took > Duration::from_millis(900), "the peer is there");
            closes.join().unwrap().is_ok()
        })
    };
    assert!((0..10).any(|_| closes_in_time()));
    // At another window it is in nothing's way.
    let window = both.open(Access::ALL, None);
    hazard.enter(window + 1);
    both.owner.close(window).unwrap();
}

#[test]
fn a_peer_that_does_not_get_on_is_said_until_it_does_or_is_gone() {
    for ends_first in [false, true] {
        let both = Both::new(LEN);
        let window = both.open(Access::ALL, None);
        both.rings.hazard().enter(window);
        if ends_first {
            both.owner.expel(ONE);
        }
        let begun = Instant::now();
        assert!(matches!(both.owner.close(window), Err(Error::Busy)));
        assert!(begun.elapsed() >= Duration::from_millis(900));
        // The number is no other window's meanwhile.
        assert_ne!(both.open(Access::ALL, None), window);
        if ends_first {
            both.rings.hazard().leave();
        } else {
            drop(both.socket);
        }
        both.owner.close(window).unwrap();
    }
}

#[test]
fn memory_that_is_trusted_to_none_is_the_heaps() {
    let owner = ShmMemory::new(Trust::None);
    let memory = owner.allocate(LEN).unwrap();
    let (addr, len) = (memory.as_ptr(), memory.len());
    let window = WindowAttr { at: AT, addr, len, access: Access::ALL, only: None };
    assert_eq!(owner.open(&window), None);
    let (one, _other) = UnixStream::pair().unwrap();
    assert!(!owner.trusts(&Socket::from(OwnedFd::from(one))));
}
