//! TCP, and UDP for datagrams, as `fabric_util::sockets` wants them.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{BorrowedFd, OwnedFd};

use fabric_core::EndpointAttr;
use fabric_util::sockets::{Arrival, Shared, SocketFamily};
use socket2::SockRef;

use crate::name::NAME;
use crate::transport::TcpTransport;
use crate::{socket, udp};

/// The kernel's TCP.
#[derive(Clone, Copy, Debug)]
pub struct Tcp;

impl SocketFamily for Tcp {
    const NAME: &'static str = NAME;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const THREAD: &'static str = "fabric-tcp";

    type Memory = ();
    type Listener = TcpListener;
    type Transport = TcpTransport;

    fn listen(addr: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
        let listener = socket::listen(addr)?;
        let addr = listener.local_addr()?;
        Ok((listener, addr))
    }

    fn accept(listener: &TcpListener, shared: &Shared<()>) -> io::Result<Arrival<TcpTransport>> {
        let (stream, peer) = listener.accept()?;
        stream.set_nonblocking(true).map_err(|_| ErrorKind::ConnectionAborted)?;
        let local = stream.local_addr().ok();
        Ok(Arrival { transport: TcpTransport::accepted(stream.into(), &shared.stats), peer, local })
    }

    fn connect(
        to: SocketAddr,
        source: Option<IpAddr>,
        attr: &EndpointAttr,
        shared: &Shared<()>,
    ) -> io::Result<(TcpTransport, Option<SocketAddr>)> {
        let socket = socket::connect(to, source, attr)?;
        let local = SockRef::from(&socket).local_addr().ok().and_then(|addr| addr.as_socket());
        Ok((TcpTransport::connecting(socket, &shared.stats, attr), local))
    }

    const DATAGRAM: usize = udp::LONGEST;

    fn datagram_socket(addr: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
        udp::bind(addr)
    }

    fn datagram_overrun(socket: BorrowedFd<'_>) -> Option<u64> {
        udp::overrun(socket)
    }
}
