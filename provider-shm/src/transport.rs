//! What carries a connection's bytes: two rings, and a socket that wakes a side that sleeps and says when the other is gone. And
//! what of the peer's memory is reached without it.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use fabric_core::{EndpointAttr, EndpointId, RemoteAddr, Segment, SendOp};
use fabric_util::route::unspecified;
use fabric_util::sockets::{Accepted, Shared, SocketTransport};
use fabric_util::stats::Stats;
use fabric_util::stream::{IoVec, Reached, Transport};
use socket2::Socket;

use crate::address;
use crate::closer::SocketEnd;
use crate::memory::ShmMemory;
use crate::preface;
use crate::reach::{Found, Reach};
use crate::restart;
use crate::ring::{Moved, Rings};
use crate::user::is_same_user;

/// A connected or connecting socket.
pub struct ShmTransport {
    socket: Arc<Socket>,
    /// None before the initiator's have come.
    rings: Option<Rings>,
    stats: Arc<Stats>,
    memory: Arc<ShmMemory>,
    /// The endpoint, while the peer may reach this side's memory.
    open: Option<EndpointId>,
    /// What this side may reach of the peer's.
    reach: Option<Reach>,
    /// Operations that were executed so.
    reached: u64,
    /// It is not connected yet: the listener has no room for one more, or there is none.
    waits_for: Option<SocketAddr>,
    /// The peer has left; what it sent before may wait in the ring.
    ended: bool,
    /// Last: what holds the socket when all else is gone.
    end: SocketEnd,
}

/// Connects to the listener at the address, else to the one for all addresses. `WouldBlock`: it has no room for one more.
pub(crate) fn dial(socket: &Socket, to: SocketAddr) -> io::Result<()> {
    let all = SocketAddr::new(unspecified(to.ip()), to.port());
    match socket.connect(&address::listener(to)?) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            socket.connect(&address::listener(all)?)
        }
        connected => connected,
    }
}

impl ShmTransport {
    fn new(socket: Socket, shared: &Shared<ShmMemory>) -> Self {
        let (socket, closer) = (Arc::new(socket), shared.memory.closer.clone());
        let end = SocketEnd { socket: Some(socket.clone()), accepted: None, closer };
        ShmTransport {
            socket,
            rings: None,
            stats: shared.stats.clone(),
            memory: shared.memory.clone(),
            open: None,
            reach: None,
            reached: 0,
            waits_for: None,
            ended: false,
            end,
        }
    }

    /// The socket of a connection that came in.
    pub(crate) fn accepted(socket: Socket, shared: &Shared<ShmMemory>) -> Self {
        let mut new = Self::new(socket, shared);
        new.end.accepted = Some(Accepted::new());
        new
    }

    /// Begins, on such a one.
    ///
    /// # Errors
    /// The peer is gone, or begins otherwise than the provider does.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        self.socket.set_nonblocking(true)?;
        match self.receive_rings() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// A socket that has its name and connects.
    ///
    /// # Errors
    /// No memory or descriptor for the rings.
    pub(crate) fn connecting(
        socket: Socket,
        shared: &Shared<ShmMemory>,
        to: SocketAddr,
    ) -> io::Result<Self> {
        let mut new = Self::new(socket, shared);
        new.waits_for = Some(to);
        match new.try_connect() {
            // `finish_connect` tries again, and says why it cannot be.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(new),
            tried => tried.map(|()| new),
        }
    }

    /// A socket that is connected.
    ///
    /// # Errors
    /// As [`connecting`](ShmTransport::connecting).
    pub(crate) fn connected(socket: Socket, shared: &Shared<ShmMemory>) -> io::Result<Self> {
        let mut new = Self::new(socket, shared);
        new.send_rings()?;
        Ok(new)
    }

    fn try_connect(&mut self) -> io::Result<()> {
        let Some(to) = self.waits_for else { return Ok(()) };
        match dial(&self.socket, to) {
            // As TCP does, which asks again and again.
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            connected => connected?,
        }
        self.waits_for = None;
        self.send_rings()
    }

    /// Makes the rings and sends them to the acceptor.
    fn send_rings(&mut self) -> io::Result<()> {
        let (rings, file) = Rings::create()?;
        self.rings = Some(rings);
        // Files come ahead of the answer.
        self.reach = self.memory.trusts(&self.socket).then(Reach::default);
        match preface::send(self.socket.as_fd(), &file) {
            // The listener has closed; the next read reports that.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            sent => sent,
        }
    }

    /// Takes the initiator's rings. `WouldBlock`: they have not come yet.
    #[cold]
    fn receive_rings(&mut self) -> io::Result<()> {
        self.stats.system_calls.add(1);
        let closer = &self.memory.closer;
        if closer.is_behind() && !is_same_user(&self.socket) {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        let file = preface::receive(self.socket.as_fd(), |file| closer.close(file))?;
        self.rings = match Rings::of(file.as_fd()) {
            Ok(rings) => Some(rings),
            Err(error) => {
                closer.close(file);
                return Err(error);
            }
        };
        Ok(())
    }

    /// Takes what came by the socket.
    fn take_events(&mut self) {
        self.stats.system_calls.add(1);
        let socket = self.socket.as_fd();
        let is_here = match &mut self.reach {
            None => preface::take_nudges(socket, &self.memory.closer),
            Some(reach) => {
                let is_here = preface::take_files(socket, |file| {
                    reach.take(file, &self.memory.mappings);
                });
                // Before the connection is open nothing is lent.
                if let (Some(_), Some(rings)) = (self.open, &self.rings) {
                    rings.hazard().set_files(reach.files());
                }
                is_here
            }
        };
        self.ended |= !is_here;
    }

    /// Wakes the peer if it waits for what was done.
    #[inline]
    fn wake_for(&self, moved: Moved) -> usize {
        if moved.wake {
            self.stats.system_calls.add(1);
            preface::nudge(self.socket.as_fd());
        }
        moved.bytes
    }
}

impl AsFd for ShmTransport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl SocketTransport for ShmTransport {
    fn belongs_to(&mut self, _peer: SocketAddr, _attr: &EndpointAttr) {}

    // The peer's host is this one.
    fn keep_alive(&self) {}

    fn is_quiet(&self) -> bool {
        let is_dry = self.rings.as_ref().is_none_or(|rings| rings.is_dry().unwrap_or(false));
        is_dry && preface::take_nudges(self.socket.as_fd(), &self.memory.closer)
    }
}

impl Transport for ShmTransport {
    #[inline]
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        let Some(rings) = &mut self.rings else { return Err(ErrorKind::WouldBlock.into()) };
        // SAFETY: the caller's promise.
        let moved = unsafe { rings.write(from) }?;
        Ok(self.wake_for(moved))
    }

    #[inline]
    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
        if self.rings.is_none() {
            match self.receive_rings() {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                received => received?,
            }
        }
        let Some(rings) = &mut self.rings else { return Err(ErrorKind::WouldBlock.into()) };
        // SAFETY: the caller's promise.
        match unsafe { rings.read(to) } {
            // Looked at behind what ended it: nothing came in between.
            Err(error) if error.kind() == ErrorKind::WouldBlock && self.ended => Ok(0),
            moved => moved.map(|moved| self.wake_for(moved)),
        }
    }

    #[inline]
    fn may_have_come(&self) -> bool {
        self.ended || self.rings.as_ref().is_none_or(|rings| !rings.is_dry().unwrap_or(false))
    }

    fn shutdown_write(&mut self) {
        // It fails only when the peer is gone, which the next read reports.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    fn finish_connect(&mut self) -> io::Result<bool> {
        self.try_connect()?;
        Ok(self.waits_for.is_none())
    }

    fn arm(&mut self) -> bool {
        if self.rings.is_none() {
            return false;
        }
        self.take_events();
        let Some(rings) = &self.rings else { return false };
        // A ring that the peer has broken is to be read, which reports that.
        self.ended || rings.arm().unwrap_or(true)
    }

    #[inline]
    fn is_reached(&self, addr: *const u8, len: usize) -> bool {
        let (Some(_), Some(rings)) = (self.open, &self.rings) else { return false };
        self.memory.is_in_files(addr, len, rings.peer_hazard().files())
    }

    #[inline]
    fn reaches(&self, at: RemoteAddr) -> bool {
        self.reach.as_ref().is_some_and(|reach| reach.shows(at.key))
    }

    unsafe fn fetch(&mut self, from: RemoteAddr, to: &[IoVec]) -> Option<bool> {
        let (reach, rings) = (self.reach.as_ref()?, self.rings.as_ref()?);
        self.reached += 1;
        // SAFETY: the caller's promise.
        Some(unsafe { reach.fetch(rings.hazard(), from, to) })
    }

    fn dump(&self) -> Option<String> {
        let files = self.reach.as_ref()?.files();
        Some(format!("{files} files of the peer's memory, {} operations by itself", self.reached))
    }

    fn gave_up(&self) -> bool {
        self.waits_for.is_some()
    }

    fn open(&mut self, endpoint: EndpointId) {
        let Some(rings) = &self.rings else { return };
        if restart::is_there() {
            rings.hazard().set_restarts();
        }
        if self.memory.trusts(&self.socket) {
            let reach = self.reach.get_or_insert_default();
            rings.hazard().set_files(reach.files());
            self.open = Some(endpoint);
            self.memory.admit(endpoint, rings.peer(), &self.socket);
        }
    }

    fn close(&mut self) {
        if let Some(endpoint) = self.open.take() {
            self.reach = None;
            self.memory.expel(endpoint);
        }
    }

    #[inline]
    unsafe fn reach(&mut self, op: &SendOp, segments: &[Segment]) -> Reached {
        let (Some(reach), Some(rings)) = (&mut self.reach, &self.rings) else { return Reached::No };
        // SAFETY: the caller's promise.
        match unsafe { reach.execute(rings.hazard(), op, segments) } {
            Found::All => {
                self.reached += 1;
                Reached::Yes
            }
            Found::NoFile if reach.wants_files() => {
                self.take_events();
                Reached::Look
            }
            Found::Nothing | Found::NoFile => Reached::No,
        }
    }
}

impl Drop for ShmTransport {
    fn drop(&mut self) {
        self.close();
        // A visitor that does not get on keeps the socket, and the peer is to hear of the end.
        self.shutdown_write();
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests
mod tests {
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use fabric_core::Access;
    use fabric_util::region_table::WindowAttr;
    use fabric_util::sockets::{PeerMemory, Trust};

    use super::*;

    /// An initiator's and an acceptor's.
    fn pair() -> (ShmTransport, ShmTransport) {
        let (one, other) = UnixStream::pair().unwrap();
        let [one, other] = [one, other].map(|stream| {
            stream.set_nonblocking(true).unwrap();
            Socket::from(OwnedFd::from(stream))
        });
        let shared = || Shared { stats: Arc::default(), memory: ShmMemory::new(Trust::User) };
        let mut one = ShmTransport::new(one, &shared());
        one.send_rings().unwrap();
        let mut other = ShmTransport::accepted(other, &shared());
        other.begin().unwrap();
        (one, other)
    }

    fn send(transport: &mut ShmTransport, bytes: &mut [u8]) -> io::Result<usize> {
        // SAFETY: a slice that is borrowed.
        unsafe { transport.send(&[(bytes.as_mut_ptr(), bytes.len())]) }
    }

    fn recv(transport: &mut ShmTransport, bytes: &mut [u8]) -> io::Result<usize> {
        // SAFETY: a slice that is borrowed.
        unsafe { transport.recv(&[(bytes.as_mut_ptr(), bytes.len())]) }
    }

    fn would_block(result: io::Result<usize>) -> bool {
        result.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Whether the selector would name its socket.
    fn is_woken(transport: &ShmTransport) -> bool {
        transport.socket.peek(&mut [MaybeUninit::uninit()]).is_ok()
    }

    #[test]
    fn one_that_sleeps_is_woken_and_others_are_not() {
        let (mut one, mut other) = pair();
        send(&mut one, &mut [1]).unwrap();
        assert!(!is_woken(&other));
        assert!(other.arm(), "it is there already");
        assert_eq!(recv(&mut other, &mut [0; 9]).unwrap(), 1);
        assert!(!other.arm());
        send(&mut one, &mut [2]).unwrap();
        assert!(is_woken(&other));
        assert!(other.arm() && !is_woken(&other));
    }

    #[test]
    fn what_was_sent_comes_before_the_end() {
        let (mut one, mut other) = pair();
        assert!(!other.arm());
        send(&mut one, &mut [7; 3]).unwrap();
        drop(one);
        assert!(other.arm());
        let mut bytes = [0; 9];
        assert_eq!(recv(&mut other, &mut bytes).unwrap(), 3);
        assert_eq!(recv(&mut other, &mut bytes).unwrap(), 0);
        assert!(other.arm());
    }

    #[test]
    fn room_is_found_though_the_word_of_it_found_none() {
        let (mut one, mut other) = pair();
        let mut all = vec![0; 1 << 20];
        while send(&mut one, &mut all).is_ok() {}
        assert!(would_block(send(&mut one, &mut all)));
        for _ in 0..10_000 {
            preface::nudge(other.as_fd());
        }
        while recv(&mut other, &mut all).is_ok() {}
        assert!(one.arm(), "there is room, and no event says so any more");
        send(&mut one, &mut all).unwrap();
        assert!(!one.arm());
    }

    #[test]
    fn memory_is_reached_while_the_connection_is_open() {
        let (mut one, mut other) = pair();
        let memory = other.memory.allocate(64).unwrap();
        let (addr, access) = (memory.as_ptr(), Access::ALL);
        let at = RemoteAddr { key: 9, addr: 0 };
        let attr = WindowAttr { at, addr, len: 64, access, only: None };
        other.memory.windows().unwrap().open(&attr).unwrap();
        let mut bytes = [7; 8];
        let mut write = |one: &mut ShmTransport| {
            let op = SendOp::Write { to: at, imm: None };
            // SAFETY: of an array of the test's.
            unsafe { one.reach(&op, &[Segment::new(bytes.as_mut_ptr(), 8, 0)]) }
        };
        assert_eq!(write(&mut one), Reached::Look, "nothing has come");
        other.open(EndpointId(1));
        assert_eq!(write(&mut one), Reached::Look, "its files come now");
        assert_eq!(write(&mut one), Reached::Yes);
        let said = one.dump().unwrap();
        assert_eq!(said, "1 files of the peer's memory, 1 operations by itself");
        other.close();
        assert_eq!(write(&mut one), Reached::No);
        assert!(!one.arm() && one.arm() == one.ended);
    }

    #[test]
    fn files_that_found_no_room_come_another_time() {
        let (mut one, mut other) = pair();
        let files = |one: &ShmTransport| one.reach.as_ref().unwrap().files();
        other.open(EndpointId(1));
        for _ in 0..10_000 {
            preface::nudge(other.as_fd());
        }
        let first = other.memory.allocate(64).unwrap();
        while rustix::io::ioctl_fionread(&one.socket).unwrap() > 0 {
            one.take_events();
        }
        assert_eq!(files(&one), 0, "the socket was full");
        // It is a window that makes them useful.
        let (at, addr) = (RemoteAddr { key: 9, addr: 0 }, first.as_ptr());
        let attr = WindowAttr { at, addr, len: 64, access: Access::ALL, only: None };
        other.memory.windows().unwrap().open(&attr).unwrap();
        one.take_events();
        assert_eq!(files(&one), 1);
        let _second = other.memory.allocate(64 << 20).unwrap();
        one.take_events();
        assert_eq!(files(&one), 2);
    }

    #[test]
    fn a_ring_that_the_peer_breaks_ends_the_connection() {
        let (mut one, mut other) = pair();
        one.rings.as_ref().unwrap().claim(u32::MAX);
        assert!(other.arm());
        assert_eq!(recv(&mut other, &mut [0; 9]).unwrap_err().kind(), ErrorKind::InvalidData);
        one.arm();
        other.rings.as_ref().unwrap().claim(1 << 30);
        assert_eq!(recv(&mut one, &mut [0; 9]).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
