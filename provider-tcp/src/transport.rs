//! What carries a connection's bytes: its socket.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use fabric_core::EndpointAttr;
use fabric_util::sockets::{Accepted, SocketTransport, receive, transmit};
use fabric_util::stats::Stats;
use fabric_util::stream::{IoVec, Silence, Transport};
use socket2::SockRef;

use crate::socket;

/// A connected or connecting socket.
pub struct TcpTransport {
    socket: OwnedFd,
    stats: Arc<Stats>,
    /// The connection is lost when the peer's host is silent for this long.
    liveness: Option<Duration>,
    _accepted: Option<Accepted>,
}

impl TcpTransport {
    /// The socket of a connection that came in.
    pub(crate) fn accepted(socket: OwnedFd, stats: &Arc<Stats>) -> Self {
        let _accepted = Some(Accepted::new());
        TcpTransport { socket, stats: stats.clone(), liveness: None, _accepted }
    }

    /// A socket that is connecting.
    pub(crate) fn connecting(socket: OwnedFd, stats: &Arc<Stats>, attr: &EndpointAttr) -> Self {
        let (stats, liveness) = (stats.clone(), attr.liveness);
        TcpTransport { socket, stats, liveness, _accepted: None }
    }

    fn ask_often(&self) {
        if let Some(interval) = self.liveness {
            socket::ask_often(self.socket.as_fd(), interval);
        }
    }
}

impl AsFd for TcpTransport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl SocketTransport for TcpTransport {
    fn belongs_to(&mut self, peer: SocketAddr, attr: &EndpointAttr) {
        // It fails only for a socket whose peer is gone, which the first read finds.
        let socket = SockRef::from(&self.socket);
        let _ = socket::tune(&socket, peer.is_ipv6(), attr);
        socket::keep_in_cache(&socket, peer.ip());
        self.liveness = attr.liveness;
        self.ask_often();
    }

    fn keep_alive(&self) {
        // As for `belongs_to`.
        let interval = EndpointAttr::default().liveness;
        let _ = socket::keep_alive(&SockRef::from(&self.socket), interval);
    }

    fn is_quiet(&self) -> bool {
        let peeked = SockRef::from(&self.socket).peek(&mut [std::mem::MaybeUninit::uninit()]);
        peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

impl Transport for TcpTransport {
    #[inline]
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        let sent = unsafe { transmit(self.socket.as_fd(), from) };
        self.stats.system_calls.add(1); // behind it: what is sent is on its way
        sent
    }

    #[inline]
    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
        self.stats.system_calls.add(1);
        // SAFETY: the caller's promise.
        unsafe { receive(self.socket.as_fd(), to) }
    }

    fn shutdown_write(&mut self) {
        // It fails only when the peer is gone, which the next read reports.
        let _ = SockRef::from(&self.socket).shutdown(Shutdown::Write);
    }

    fn finish_connect(&mut self) -> io::Result<bool> {
        socket::take_error(self.socket.as_fd())?;
        let socket = SockRef::from(&self.socket);
        let peer = match socket.peer_addr() {
            Ok(peer) => peer,
            Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(false),
            Err(error) => return Err(error),
        };
        if socket.local_addr()?.as_socket() == peer.as_socket() {
            // The kernel chose the very port as ours and connected us to ourselves: there is no listener.
            return Err(ErrorKind::ConnectionRefused.into());
        }
        self.ask_often();
        Ok(true)
    }

    fn unsent(&self) -> usize {
        let unsent = socket::unsent(self.socket.as_fd());
        // A socket that was reset has no peer any more, but the kernel goes on counting.
        let counts = unsent > 0 && SockRef::from(&self.socket).peer_addr().is_ok();
        if counts { unsent } else { 0 }
    }

    fn silence(&self) -> Option<Silence> {
        socket::silence(self.socket.as_fd())
    }
}

impl Drop for TcpTransport {
    fn drop(&mut self) {
        socket::forget_unsent(self.socket.as_fd());
    }
}
