//! The socket of a datagram endpoint: what waits there, and its turns.
//!
//! A send goes out within its post. What the kernel does not take at once waits in its order until the socket can be written, so
//! that a burst is not lost at its own sender. What comes is read when the selector names the socket, by whichever thread drives the
//! domain, straight into the first receive; what finds none is read and dropped, so that it takes nothing from what comes later.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use fabric_core::{
    AddressHandleOps, DatagramAddress, DatagramSources, DatagramWork, Error, Posted, RawCompletion,
    RecvWork, Segment, SendFlags, Status, Token,
};
use mio::Interest;
use smallvec::SmallVec;
use socket2::SockAddr;

use super::transfer::{receive_from, transmit_to};
use crate::completion_ring::CompletionRing;
use crate::datagram::{DatagramHeader, DatagramReceives, Drops, HEADER_LEN};
use crate::stats::Stats;
use crate::stream::IoVec;
use crate::sync::Mutex;

#[cfg(all(test, not(miri), not(loom)))]
mod tests;

/// Datagrams that one turn reads: others have theirs then.
const TURN: usize = 64;

/// The header, and the segments of a datagram.
type Runs = SmallVec<[IoVec; 5]>;

/// What an endpoint has resolved.
pub(super) struct SocketAddress(pub(super) SockAddr);

impl AddressHandleOps for SocketAddress {}

/// Where completions go.
pub(super) struct Rings {
    pub(super) send: Arc<CompletionRing>,
    pub(super) recv: Arc<CompletionRing>,
    pub(super) sources: Arc<DatagramSources>,
    pub(super) stats: Arc<Stats>,
}

/// A datagram that the kernel did not take at once.
struct WaitingSend {
    token: Token,
    to: SockAddr,
    header: [u8; HEADER_LEN],
    segments: SmallVec<[Segment; 4]>,
    /// The bytes of an inject, which has no segments then.
    bytes: SmallVec<[u8; 256]>,
}

#[derive(Default)]
struct SendSide {
    waiting: VecDeque<WaitingSend>,
    /// The selector says when the socket can be written.
    watched: bool,
    ended: bool,
}

#[derive(Default)]
struct ReceiveSide {
    posted: DatagramReceives,
    ended: bool,
}

/// A socket for datagrams, as the engine knows it.
pub(super) struct DatagramSocket {
    pub(super) name: usize,
    socket: OwnedFd,
    pub(super) address: DatagramAddress,
    sends: Mutex<SendSide>,
    receives: Mutex<ReceiveSide>,
    rings: Rings,
    pub(super) drops: Drops,
}

impl DatagramSocket {
    pub(super) fn new(
        name: usize,
        socket: OwnedFd,
        address: DatagramAddress,
        rings: Rings,
    ) -> Self {
        let (sends, receives, drops) = (Mutex::default(), Mutex::default(), Drops::default());
        DatagramSocket { name, socket, address, sends, receives, rings, drops }
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// What the selector is to look for. Not for writing as long as nothing waits: each datagram that has left would be an event.
    pub(super) fn interest(waits: bool) -> Interest {
        if waits { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE }
    }

    /// The selector named it: reads what came, and writes what waits. `watch` has the selector name it again, at once if there is
    /// something to read, and when it can be written if that is asked for.
    pub(super) fn turn(&self, watch: impl Fn(bool)) {
        let more = self.read();
        // Under the lock, so that a post that begins to wait has the last word.
        let mut sends = self.sends.lock();
        self.write_waiting(&mut sends);
        let waits = !sends.waiting.is_empty();
        if more || waits || sends.watched {
            watch(waits);
        }
        sends.watched = waits;
    }

    /// Reads into the receives; true: there may be more.
    fn read(&self) -> bool {
        let mut receives = self.receives.lock();
        if receives.ended {
            return false;
        }
        let mut done: SmallVec<[RawCompletion; TURN]> = SmallVec::new();
        let mut more = true;
        for _ in 0..TURN {
            match self.read_one(&mut receives.posted) {
                Ok(completion) => done.extend(completion),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    more = false;
                    break;
                }
                // What a network answers to earlier datagrams is no business of these.
                Err(_) => {}
            }
        }
        self.rings.recv.push([&done, &[]]);
        more
    }

    /// Reads one datagram; gives the completion of the receive that it took, if it took one.
    fn read_one(&self, posted: &mut DatagramReceives) -> io::Result<Option<RawCompletion>> {
        let mut header = [0; HEADER_LEN];
        let mut runs = Runs::from_slice(&[(header.as_mut_ptr(), HEADER_LEN)]);
        if let Some(first) = posted.first() {
            runs.extend(first.segments.iter().map(|segment| (segment.addr, segment.len)));
        }
        self.rings.stats.system_calls.add(1);
        // SAFETY: the header is this function's; a receive that waits has its segments until its completion, and the caller of
        // the contract reaches them through `memory` alone.
        let (len, from) = unsafe { receive_from(self.socket.as_fd(), &runs)? };
        let source = from.and_then(|from| DatagramAddress::udp(from).ok());
        let (Some(header), Some(source)) = (DatagramHeader::decode(&header, len), source) else {
            self.drops.malformed.add(1);
            return Ok(None);
        };
        let Some(completion) = posted.complete(len - HEADER_LEN, header.immediate) else {
            self.drops.no_receive.add(1);
            return Ok(None);
        };
        self.rings.sources.note(completion.token, Some(source));
        Ok(Some(completion))
    }

    /// Writes what waits, as much as the kernel takes.
    fn write_waiting(&self, sends: &mut SendSide) {
        let mut done: SmallVec<[RawCompletion; TURN]> = SmallVec::new();
        while let Some(first) = sends.waiting.front_mut() {
            let bytes = [(first.bytes.as_mut_ptr(), first.bytes.len())];
            let own: &[IoVec] = if first.bytes.is_empty() { &[] } else { &bytes };
            // SAFETY: its segments stay until its completion, and the bytes are its own.
            if !unsafe { self.write(&first.to, &first.header, &first.segments, own) } {
                break;
            }
            done.push(RawCompletion::new(first.token, Status::Ok));
            sends.waiting.pop_front();
        }
        self.rings.send.push([&done, &[]]);
    }

    /// Hands a datagram to the kernel; false: it takes none now. What it refuses for another reason is lost, and counted.
    ///
    /// # Safety
    /// Segments and runs must be allocated and readable.
    unsafe fn write(
        &self,
        to: &SockAddr,
        header: &[u8; HEADER_LEN],
        segments: &[Segment],
        own: &[IoVec],
    ) -> bool {
        let mut runs = Runs::from_slice(&[(header.as_ptr().cast_mut(), HEADER_LEN)]);
        runs.extend(segments.iter().map(|segment| (segment.addr, segment.len)));
        runs.extend_from_slice(own);
        self.rings.stats.system_calls.add(1);
        // SAFETY: the caller's promise; the header is borrowed.
        match unsafe { transmit_to(self.socket.as_fd(), to, &runs) } {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            // No route, no room in a queue of the device, a filter: as if the network had lost it.
            Err(_) => {
                self.drops.unsent.add(1);
                true
            }
        }
    }

    /// Sends, or keeps what the kernel does not take; `watch` has the selector say when that changes.
    ///
    /// # Safety
    /// As [`DatagramOps::post_send`](fabric_core::DatagramOps::post_send).
    pub(super) unsafe fn post_send(
        &self,
        work: &[DatagramWork<'_>],
        watch: impl Fn(bool),
    ) -> Posted {
        let mut sends = self.sends.lock();
        if sends.ended {
            return Posted::until(0, Error::DeviceLost);
        }
        let mut done: SmallVec<[RawCompletion; 1]> = SmallVec::new();
        let mut posted = Posted::all(work.len());
        for (i, one) in work.iter().enumerate() {
            let to: &dyn std::any::Any = one.to;
            let Some(SocketAddress(to)) = to.downcast_ref() else {
                posted =
                    Posted::until(i, Error::invalid("send_to", "a handle of another provider"));
                break;
            };
            let header = DatagramHeader { immediate: one.imm }.encode();
            // SAFETY: the caller's promise.
            let sent =
                sends.waiting.is_empty() && unsafe { self.write(to, &header, one.segments, &[]) };
            if sent {
                done.push(RawCompletion::new(one.token, Status::Ok));
            } else {
                // SAFETY: as above.
                sends.waiting.push_back(unsafe { WaitingSend::new(one, to, header) });
            }
        }
        self.rings.send.push([&done, &[]]);
        if !sends.waiting.is_empty() && !std::mem::replace(&mut sends.watched, true) {
            watch(true);
        }
        posted
    }

    /// # Safety
    /// As [`DatagramOps::post_recv`](fabric_core::DatagramOps::post_recv).
    pub(super) unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        let mut receives = self.receives.lock();
        if receives.ended {
            return Posted::until(0, Error::DeviceLost);
        }
        receives.posted.push(work);
        Posted::all(work.len())
    }

    /// Nothing touches a segment any more; what is in flight is forgotten.
    pub(super) fn end(&self) {
        let mut sends = self.sends.lock();
        sends.ended = true;
        sends.waiting = VecDeque::new();
        drop(sends);
        let mut receives = self.receives.lock();
        receives.ended = true;
        receives.posted.clear();
    }

    /// The domain's thread has failed: all that is in flight is canceled, and nothing is posted any more.
    pub(super) fn fail(&self) {
        let mut sends = self.sends.lock();
        sends.ended = true;
        let waiting = std::mem::take(&mut sends.waiting);
        let canceled = waiting.iter().map(|one| RawCompletion::new(one.token, Status::Canceled));
        self.rings.send.push([&canceled.collect::<Vec<_>>(), &[]]);
        drop(sends);
        let mut receives = self.receives.lock();
        receives.ended = true;
        let canceled = receives.posted.cancel();
        self.rings.recv.push([&canceled, &[]]);
    }

    pub(super) fn dump(&self) -> String {
        let receives = self.receives.try_lock().map(|receives| receives.posted.len());
        let waiting = self.sends.try_lock().map(|sends| sends.waiting.len());
        format!("{:?}: receives {receives:?}, sends that wait {waiting:?}", self.address)
    }
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl WaitingSend {
    /// # Safety
    /// As [`DatagramSocket::post_send`].
    #[cold]
    unsafe fn new(work: &DatagramWork<'_>, to: &SockAddr, header: [u8; HEADER_LEN]) -> Self {
        let (token, to) = (work.token, to.clone());
        let (segments, bytes) = (SmallVec::new(), SmallVec::new());
        let mut one = WaitingSend { token, to, header, segments, bytes };
        if !work.flags.contains(SendFlags::INJECT) {
            one.segments = work.segments.into();
            return one;
        }
        for segment in work.segments {
            let before = one.bytes.len();
            one.bytes.resize(before + segment.len, 0);
            // SAFETY: an inject's bytes are readable until the post returns.
            unsafe { fabric_core::memory::load(segment.addr, &mut one.bytes[before..]) };
        }
        one
    }
}
