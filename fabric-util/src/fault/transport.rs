//! A transport that moves less than it could.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use fabric_core::{EndpointId, RemoteAddr, Segment, SendOp, cold_path};
use smallvec::SmallVec;

use crate::splitmix::SplitMix64;
use crate::stream::{IoVec, Reached, Silence, Transport};

/// The maximum number of calls in a row that find the stream full though it is not.
const MAX_REFUSALS: usize = 8;

/// A transport whose calls are cut short by the choice of a seed.
pub struct FaultTransport<T> {
    inner: T,
    numbers: SplitMix64,
    /// So many calls of `send` from now on find the stream full.
    refusals: usize,
    gave_up: bool,
}

impl<T> FaultTransport<T> {
    /// Wraps a transport; each connection should have a seed of its own.
    pub fn new(inner: T, seed: u64) -> Self {
        FaultTransport { inner, numbers: SplitMix64::new(seed), refusals: 0, gave_up: false }
    }

    /// What it is over.
    #[cfg(all(test, feature = "encryption"))]
    pub(crate) fn inner_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// The maximum number of bytes for the next call. Headers have up to some 70 bytes, so half of the calls cut one, or
    /// the beginning of a payload; the others are large, or long transfers would take for ever.
    fn max(&mut self) -> usize {
        match self.numbers.below(8) {
            0 => 1,
            1..4 => 1 + self.numbers.below(70),
            4 => 1 + self.numbers.below(5000),
            _ => usize::MAX,
        }
    }
}

/// The first `max` bytes of `pieces`.
fn within(max: usize, pieces: &[IoVec]) -> SmallVec<[IoVec; 8]> {
    let mut left = max;
    let cut = pieces.iter().map(|&(base, len)| {
        let part = len.min(left);
        left -= part;
        (base, part)
    });
    cut.take_while(|&(_, part)| part > 0).collect()
}

impl<T: Transport> Transport for FaultTransport<T> {
    #[cold] // not to be in the way where there are no faults
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        self.gave_up = self.refusals > 0;
        if self.gave_up {
            self.refusals -= 1;
            return Err(ErrorKind::WouldBlock.into());
        }
        let max = self.max();
        // SAFETY: the caller's promise holds for the beginning of its memory too.
        let sent = unsafe { self.inner.send(&within(max, from)) }?;
        if self.numbers.once_in(16) {
            self.refusals = 1 + self.numbers.below(MAX_REFUSALS);
        }
        Ok(sent)
    }

    #[cold]
    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
        self.gave_up = false;
        let max = self.max();
        // SAFETY: the caller's promise holds for the beginning of its memory too.
        let got = unsafe { self.inner.recv(&within(max, to)) }?;
        self.gave_up = got == max;
        Ok(got)
    }

    fn is_holding(&self) -> bool {
        self.inner.is_holding()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.gave_up = false;
        self.inner.flush()
    }

    fn shutdown_write(&mut self) {
        self.inner.shutdown_write();
    }

    fn finish_connect(&mut self) -> io::Result<bool> {
        self.inner.finish_connect()
    }

    fn unsent(&self) -> usize {
        self.inner.unsent()
    }

    fn peer_identity(&self) -> Option<Arc<str>> {
        self.inner.peer_identity()
    }

    fn silence(&self) -> Option<Silence> {
        self.inner.silence()
    }

    fn arm(&mut self) -> bool {
        self.inner.arm()
    }

    fn is_reached(&self, addr: *const u8, len: usize) -> bool {
        self.inner.is_reached(addr, len)
    }

    fn reaches(&self, at: RemoteAddr) -> bool {
        self.inner.reaches(at)
    }

    unsafe fn fetch(&mut self, from: RemoteAddr, to: &[IoVec]) -> Option<bool> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.fetch(from, to) }
    }

    fn dump(&self) -> Option<String> {
        self.inner.dump()
    }

    fn open(&mut self, endpoint: EndpointId) {
        self.inner.open(endpoint);
    }

    fn close(&mut self) {
        self.inner.close();
    }

    unsafe fn reach(&mut self, op: &SendOp, segments: &[Segment]) -> Reached {
        // SAFETY: the caller's promise.
        unsafe { self.inner.reach(op, segments) }
    }

    fn gave_up(&self) -> bool {
        self.gave_up || self.inner.gave_up()
    }
}

/// A transport as it is, or with faults injected, as a setting of the provider says.
pub enum MaybeFaulty<T> {
    /// It does its best.
    Plain(T),
    /// Its calls are cut short.
    Faulty(FaultTransport<T>),
}

/// The same code for both, or other code for one with faults, which only tests have.
macro_rules! either {
    ($transport:expr, $inner:ident => $call:expr) => {
        either!($transport, $inner => $call, $inner => $call)
    };
    ($transport:expr, $plain:ident => $of_plain:expr, $faulty:ident => $of_faulty:expr) => {
        match $transport {
            MaybeFaulty::Plain($plain) => $of_plain,
            MaybeFaulty::Faulty($faulty) => {
                cold_path();
                $of_faulty
            }
        }
    };
}

impl<T> MaybeFaulty<T> {
    /// Wraps a transport; with a seed, faults are injected.
    pub fn new(inner: T, seed: Option<u64>) -> Self {
        match seed {
            None => MaybeFaulty::Plain(inner),
            Some(seed) => MaybeFaulty::Faulty(FaultTransport::new(inner, seed)),
        }
    }

    /// What it wraps.
    pub(crate) fn inner(&self) -> &T {
        either!(self, inner => inner, faulty => &faulty.inner)
    }

    fn inner_mut(&mut self) -> &mut T {
        either!(self, inner => inner, faulty => &mut faulty.inner)
    }
}

impl<T: Transport> Transport for MaybeFaulty<T> {
    #[inline]
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        unsafe { either!(self, inner => inner.send(from)) }
    }

    #[inline]
    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        unsafe { either!(self, inner => inner.recv(to)) }
    }

    #[inline]
    fn may_have_come(&self) -> bool {
        either!(self, inner => inner.may_have_come(), _faulty => true)
    }

    #[inline]
    fn is_holding(&self) -> bool {
        self.inner().is_holding()
    }

    fn flush(&mut self) -> io::Result<()> {
        either!(self, inner => inner.flush())
    }

    fn shutdown_write(&mut self) {
        self.inner_mut().shutdown_write();
    }

    fn finish_connect(&mut self) -> io::Result<bool> {
        self.inner_mut().finish_connect()
    }

    fn unsent(&self) -> usize {
        self.inner().unsent()
    }

    fn peer_identity(&self) -> Option<Arc<str>> {
        self.inner().peer_identity()
    }

    fn silence(&self) -> Option<Silence> {
        self.inner().silence()
    }

    fn arm(&mut self) -> bool {
        self.inner_mut().arm()
    }

    #[inline]
    fn is_reached(&self, addr: *const u8, len: usize) -> bool {
        self.inner().is_reached(addr, len)
    }

    #[inline]
    fn reaches(&self, at: RemoteAddr) -> bool {
        self.inner().reaches(at)
    }

    unsafe fn fetch(&mut self, from: RemoteAddr, to: &[IoVec]) -> Option<bool> {
        // SAFETY: the caller's promise.
        unsafe { self.inner_mut().fetch(from, to) }
    }

    fn dump(&self) -> Option<String> {
        self.inner().dump()
    }

    fn open(&mut self, endpoint: EndpointId) {
        self.inner_mut().open(endpoint);
    }

    fn close(&mut self) {
        self.inner_mut().close();
    }

    #[inline]
    unsafe fn reach(&mut self, op: &SendOp, segments: &[Segment]) -> Reached {
        // SAFETY: the caller's promise.
        unsafe { either!(self, inner => inner.reach(op, segments)) }
    }

    #[inline]
    fn gave_up(&self) -> bool {
        either!(self, inner => inner.gave_up())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes and gives everything.
    struct Endless;

    impl Transport for Endless {
        unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
            Ok(from.iter().map(|piece| piece.1).sum())
        }

        unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
            Ok(to.iter().map(|piece| piece.1).sum())
        }

        fn shutdown_write(&mut self) {}
    }

    const PIECES: [IoVec; 2] = [(std::ptr::null_mut(), 50), (std::ptr::null_mut(), 50)];

    fn received(seed: u64) -> Vec<usize> {
        let mut transport = FaultTransport::new(Endless, seed);
        // SAFETY: `Endless` leaves the memory alone.
        let mut recv = || unsafe { transport.recv(&PIECES) }.unwrap();
        (0..1000).map(|_| recv()).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "the same pieces in each of a thousand calls")]
    fn choices_follow_from_the_seed() {
        let one = received(1);
        assert_eq!(one, received(1));
        assert_ne!(one, received(2));
        for small in 1..=70 {
            assert!(one.contains(&small), "no cut at {small}");
        }
        assert!(one.contains(&100), "everything is cut");
    }

    #[test]
    fn a_stream_that_seems_full_says_that_it_is_not_and_takes_bytes_soon() {
        let mut transport = FaultTransport::new(Endless, 1);
        let (mut refusals, mut in_a_row) = (0, 0);
        for _ in 0..1000 {
            // SAFETY: `Endless` leaves the memory alone.
            let sent = unsafe { transport.send(&PIECES) };
            assert_eq!(sent.is_err(), transport.gave_up());
            match sent {
                Ok(_) => in_a_row = 0,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    (refusals, in_a_row) = (refusals + 1, in_a_row + 1);
                    assert!(in_a_row <= MAX_REFUSALS);
                }
            }
        }
        assert!(refusals > 0);
    }
}
