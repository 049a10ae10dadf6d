//! Sockets for tests: TCP with nothing set; and a wait for what another thread or the kernel does.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use fabric_core::EndpointAttr;

use super::family::{Arrival, Shared, SocketFamily, SocketTransport};
use super::transfer::{receive, transmit};
use crate::stream::{IoVec, Transport};

/// Waits until something holds.
pub(super) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(super) struct Loopback;

pub(super) struct Socket(TcpStream);

impl SocketFamily for Loopback {
    const NAME: &'static str = "loopback";
    const VERSION: &'static str = "0";
    const THREAD: &'static str = "loopback";

    type Memory = ();
    type Listener = TcpListener;
    type Transport = Socket;

    fn listen(addr: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
        let listener = TcpListener::bind(addr)?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        Ok((listener, addr))
    }

    fn accept(listener: &TcpListener, _: &Shared<()>) -> io::Result<Arrival<Socket>> {
        let (stream, peer) = listener.accept()?;
        stream.set_nonblocking(true)?;
        let local = stream.local_addr().ok();
        Ok(Arrival { transport: Socket(stream), peer, local })
    }

    fn connect(
        to: SocketAddr,
        _: Option<IpAddr>,
        _: &EndpointAttr,
        _: &Shared<()>,
    ) -> io::Result<(Socket, Option<SocketAddr>)> {
        let stream = TcpStream::connect(to)?;
        stream.set_nonblocking(true)?;
        let local = stream.local_addr().ok();
        Ok((Socket(stream), local))
    }
}

impl Transport for Socket {
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        unsafe { transmit(self.0.as_fd(), from) }
    }

    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        unsafe { receive(self.0.as_fd(), to) }
    }

    fn shutdown_write(&mut self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl SocketTransport for Socket {
    fn belongs_to(&mut self, _: SocketAddr, _: &EndpointAttr) {}

    fn keep_alive(&self) {}

    fn is_quiet(&self) -> bool {
        self.0.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}
