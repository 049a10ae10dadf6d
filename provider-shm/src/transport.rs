//! What carries a connection's bytes: its socket.

use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use fabric_core::EndpointAttr;
use fabric_util::sockets::{Accepted, SocketTransport, receive, transmit};
use fabric_util::stats::Stats;
use fabric_util::stream::{IoVec, Transport};
use socket2::Socket;

use crate::address;

/// A connected or connecting socket.
pub struct ShmTransport {
    socket: Socket,
    stats: Arc<Stats>,
    /// It is not connected yet: the listener has no room for one more, or there is none.
    waits_for: Option<SocketAddr>,
    _accepted: Option<Accepted>,
}

impl ShmTransport {
    /// The socket of a connection that came in.
    pub(crate) fn accepted(socket: Socket, stats: &Arc<Stats>) -> Self {
        let _accepted = Some(Accepted::new());
        ShmTransport { socket, stats: stats.clone(), waits_for: None, _accepted }
    }

    /// A socket that has its name and connects.
    pub(crate) fn connecting(socket: Socket, stats: &Arc<Stats>, to: SocketAddr) -> Self {
        let waits_for = Some(to);
        let mut new = ShmTransport { socket, stats: stats.clone(), waits_for, _accepted: None };
        // `finish_connect` tries again, and says why it cannot be.
        let _ = new.try_connect();
        new
    }

    /// To the listener at the address, else to the one for all addresses.
    fn try_connect(&mut self) -> io::Result<()> {
        let Some(to) = self.waits_for else { return Ok(()) };
        let all = SocketAddr::new(address::unspecified(to.ip()), to.port());
        let mut connected = self.socket.connect(&address::listener(to)?);
        if connected.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            connected = self.socket.connect(&address::listener(all)?);
        }
        match connected {
            // As TCP does, which asks again and again.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            connected => connected.map(|()| self.waits_for = None),
        }
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
        let peeked = self.socket.peek(&mut [MaybeUninit::uninit()]);
        peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

impl Transport for ShmTransport {
    #[inline]
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        self.stats.system_calls.add(1);
        // SAFETY: the caller's promise.
        unsafe { transmit(self.socket.as_fd(), from) }
    }

    #[inline]
    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
        self.stats.system_calls.add(1);
        // SAFETY: the caller's promise.
        unsafe { receive(self.socket.as_fd(), to) }
    }

    fn shutdown_write(&mut self) {
        // It fails only when the peer is gone, which the next read reports.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    fn finish_connect(&mut self) -> io::Result<bool> {
        self.try_connect()?;
        Ok(self.waits_for.is_none())
    }

    fn gave_up(&self) -> bool {
        self.waits_for.is_some()
    }
}
