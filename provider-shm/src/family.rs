//! The sockets of unix(7), as `fabric_util::sockets` wants them.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use fabric_core::EndpointAttr;
use fabric_util::fork::ForkEpoch;
use fabric_util::sockets::{Arrival, Shared, SocketFamily};
use socket2::{Domain, Socket, Type};

use crate::address::{self, Ends};
use crate::closer::Closer;
use crate::memory::ShmMemory;
use crate::name::NAME;
use crate::transport::ShmTransport;

/// Stream sockets within this host.
#[derive(Clone, Copy, Debug)]
pub struct Shm;

/// A socket that listens.
pub struct ShmSocket {
    socket: Socket,
    addr: SocketAddr,
    made_in: ForkEpoch,
    /// Keeps the address from others, where nothing else does.
    _reserved: Option<Socket>,
}

impl AsFd for ShmSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl ShmSocket {
    /// Listens; gives the address, too.
    ///
    /// # Errors
    /// As bind(2) and listen(2).
    pub(crate) fn listen(
        addr: SocketAddr,
        _reserved: Option<Socket>,
    ) -> io::Result<(Self, SocketAddr)> {
        let socket = new_socket()?;
        socket.bind(&address::listener(addr)?)?;
        // The kernel takes less if it has to (somaxconn); the backlog that counts is ours.
        socket.listen(i32::from(u16::MAX))?;
        Ok((ShmSocket { socket, addr, made_in: ForkEpoch::current(), _reserved }, addr))
    }

    /// Whether a connection that came to this address came here.
    fn has(&self, addr: SocketAddr) -> bool {
        let ip = self.addr.ip();
        addr.port() == self.addr.port() && (ip.is_unspecified() || addr.ip() == ip)
    }
}

impl Drop for ShmSocket {
    fn drop(&mut self) {
        // A child's copy is not the child's to empty.
        if !self.made_in.is_current() || self.socket.shutdown(Shutdown::Both).is_err() {
            return;
        }
        // Those that were not accepted would be closed with it, in this thread.
        let closer = Arc::new(Closer::default());
        while let Ok((socket, _)) = self.socket.accept() {
            closer.close_socket(Arc::new(socket), None);
        }
    }
}

pub(crate) fn new_socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl SocketFamily for Shm {
    const NAME: &'static str = NAME;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const THREAD: &'static str = "fabric-shm";
    const ARMS: bool = true;
    // A look at a ring takes some 30 ns, at the selector some 500, and to be woken some 3 us.
    const FEW: usize = 16;
    const PATIENCE: u32 = 4096;
    const EVENTS_EVERY: u64 = 256;
    // The peer takes the first ones while others are posted.
    const MAX_DEFERRED: usize = 2 << 10;

    type Memory = ShmMemory;
    type Listener = ShmSocket;
    type Transport = ShmTransport;

    fn listen(addr: SocketAddr) -> io::Result<(ShmSocket, SocketAddr)> {
        let addr = SocketAddr::new(addr.ip().to_canonical(), addr.port());
        let (reserved, addr) = address::reserve(addr)?;
        ShmSocket::listen(addr, Some(reserved))
    }

    fn accept(
        listener: &ShmSocket,
        shared: &Shared<ShmMemory>,
    ) -> io::Result<Arrival<ShmTransport>> {
        if shared.memory.closer.is_full() {
            return Err(rustix::io::Errno::MFILE.into());
        }
        // The rings come by a descriptor, which this one leaves room for.
        let room = listener.socket.try_clone()?;
        let (socket, name) = listener.socket.accept()?;
        let mut transport = ShmTransport::accepted(socket, shared);
        let unusable = || io::Error::from(ErrorKind::ConnectionAborted);
        let ends = Ends::of(&name).filter(|ends| listener.has(ends.acceptor));
        let ends = ends.ok_or_else(unusable)?;
        // Any program can connect, by any name; as over TCP it cannot have addresses of other hosts.
        if !address::is_here(ends.initiator.ip())? {
            return Err(unusable());
        }
        drop(room);
        transport.begin().map_err(|_| unusable())?;
        Ok(Arrival { transport, peer: ends.initiator, local: Some(ends.acceptor) })
    }

    fn connect(
        to: SocketAddr,
        source: Option<IpAddr>,
        attr: &EndpointAttr,
        shared: &Shared<ShmMemory>,
    ) -> io::Result<(ShmTransport, Option<SocketAddr>)> {
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        if !address::is_here(to.ip())? {
            return Err(ErrorKind::HostUnreachable.into());
        }
        let source = source.unwrap_or(to.ip());
        if !address::is_here(source)? {
            return Err(ErrorKind::AddrNotAvailable.into());
        }
        let socket = new_socket()?;
        let source = SocketAddr::new(source, attr.source_port);
        let ends = address::bind_initiator(&socket, source, to)?;
        let transport = ShmTransport::connecting(socket, shared, to)?;
        Ok((transport, Some(ends.initiator)))
    }
}
