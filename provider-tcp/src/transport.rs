//! What carries a connection's bytes: its socket, plain or with faults injected.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fabric_util::fault::FaultTransport;
use fabric_util::stream::{IoVec, Silence, Transport};
use socket2::SockRef;

use crate::socket;

/// A connected or connecting socket.
pub(crate) struct TcpTransport(OwnedFd);

impl Transport for TcpTransport {
    #[inline]
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        unsafe { socket::transmit(self.0.as_fd(), from) }
    }

    #[inline]
    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        unsafe { socket::receive(self.0.as_fd(), to) }
    }

    fn shutdown_write(&mut self) {
        // It fails only when the peer is gone, which the next read reports.
        let _ = SockRef::from(&self.0).shutdown(Shutdown::Write);
    }

    fn has_unsent(&self) -> bool {
        let fd = self.0.as_fd();
        socket::unsent(fd) > 0 && socket::take_error(fd).is_ok()
    }

    fn silence(&self) -> Option<Silence> {
        socket::silence(self.0.as_fd())
    }
}

impl Drop for TcpTransport {
    fn drop(&mut self) {
        socket::forget_unsent(self.0.as_fd());
    }
}

/// A connection's transport.
pub(crate) enum Stream {
    Plain(TcpTransport),
    Faulty(FaultTransport<TcpTransport>),
}

impl Stream {
    /// With a seed, faults are injected.
    pub(crate) fn new(socket: OwnedFd, faults: Option<u64>) -> Self {
        let transport = TcpTransport(socket);
        match faults {
            None => Stream::Plain(transport),
            Some(seed) => Stream::Faulty(FaultTransport::new(transport, seed)),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Plain(transport) => transport.0.as_fd(),
            Stream::Faulty(transport) => transport.inner().0.as_fd(),
        }
    }
}

impl Transport for Stream {
    #[inline]
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Stream::Plain(transport) => transport.send(from),
                Stream::Faulty(transport) => transport.send(from),
            }
        }
    }

    #[inline]
    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Stream::Plain(transport) => transport.recv(to),
                Stream::Faulty(transport) => transport.recv(to),
            }
        }
    }

    fn shutdown_write(&mut self) {
        match self {
            Stream::Plain(transport) => transport.shutdown_write(),
            Stream::Faulty(transport) => transport.shutdown_write(),
        }
    }

    fn has_unsent(&self) -> bool {
        match self {
            Stream::Plain(transport) => transport.has_unsent(),
            Stream::Faulty(transport) => transport.has_unsent(),
        }
    }

    fn silence(&self) -> Option<Silence> {
        match self {
            Stream::Plain(transport) => transport.silence(),
            Stream::Faulty(transport) => transport.silence(),
        }
    }

    #[inline]
    fn gave_up(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Faulty(transport) => transport.gave_up(),
        }
    }
}
