//! Whether a peer is reached by shared memory, for those that have another way as well.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

use fabric_core::EndpointAttr;
use fabric_util::sockets::Shared;
use socket2::Socket;

use crate::address::{self, Ends};
use crate::family::{ShmSocket, new_socket};
use crate::memory::{ShmMemory, is_same_user};
use crate::transport::{self, ShmTransport};

/// Why a peer is not reached by shared memory.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotNear {
    /// This host does not have its address.
    Elsewhere(IpAddr),
    /// Nothing listens there in this way: no process of this network namespace that has this provider.
    NoListener(SocketAddr),
    /// The listener has no room for one more.
    Full(SocketAddr),
    /// It is another user's. Any user can have such a listener, also at the address of another user's socket.
    OtherUser,
    /// The kernel does not say.
    Failed(io::Error),
}

impl fmt::Display for NotNear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotNear::Elsewhere(ip) => write!(f, "{ip} is no address of this host"),
            NotNear::NoListener(at) => {
                write!(f, "nothing listens at {at} by shared memory in this network namespace")
            }
            NotNear::Full(at) => write!(f, "the listener at {at} has no room for one more"),
            NotNear::OtherUser => f.write_str("the listener is of another user"),
            NotNear::Failed(error) => write!(f, "{error}"),
        }
    }
}

impl From<io::Error> for NotNear {
    fn from(error: io::Error) -> Self {
        NotNear::Failed(error)
    }
}

/// Connects to a listener of the same user, if one is there just now; gives the local address, too.
///
/// # Errors
/// Why it is not.
pub fn connect(
    to: SocketAddr,
    attr: &EndpointAttr,
    shared: &Shared<ShmMemory>,
) -> Result<(ShmTransport, SocketAddr), NotNear> {
    let (socket, ends) = dial_near(to, attr.source, attr.source_port)?;
    Ok((ShmTransport::connected(socket, shared)?, ends.initiator))
}

/// Whether [`connect`] would: it connects, and leaves at once.
///
/// # Errors
/// Why it would not.
pub fn look(to: SocketAddr) -> Result<(), NotNear> {
    dial_near(to, None, 0).map(drop)
}

/// Listens at an address that is the caller's already, by another kind of socket.
///
/// # Errors
/// As bind(2) and listen(2).
pub fn listen(addr: SocketAddr) -> io::Result<(ShmSocket, SocketAddr)> {
    ShmSocket::listen(addr, None)
}

fn dial_near(to: SocketAddr, source: Option<IpAddr>, port: u16) -> Result<(Socket, Ends), NotNear> {
    let to = SocketAddr::new(to.ip().to_canonical(), to.port());
    let source = SocketAddr::new(source.unwrap_or(to.ip()), port);
    for ip in [to.ip(), source.ip()] {
        if !address::is_here(ip)? {
            return Err(NotNear::Elsewhere(ip));
        }
    }
    let socket = new_socket()?;
    let ends = address::bind_initiator(&socket, source, to)?;
    transport::dial(&socket, to).map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused => NotNear::NoListener(to),
        ErrorKind::WouldBlock => NotNear::Full(to),
        _ => NotNear::Failed(error),
    })?;
    if is_same_user(&socket) { Ok((socket, ends)) } else { Err(NotNear::OtherUser) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use fabric_util::sockets::{PeerMemory, Trust};

    use super::*;

    fn at(port: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, port).into()
    }

    #[test]
    fn the_reason_is_said() {
        // For documentation (RFC 5737).
        let far = SocketAddr::from(([192, 0, 2, 1], 7));
        let said = look(far).unwrap_err();
        assert!(matches!(said, NotNear::Elsewhere(_)));
        assert_eq!(said.to_string(), "192.0.2.1 is no address of this host");
        let (_reserved, free) = address::reserve(at(0)).unwrap();
        assert!(matches!(look(free), Err(NotNear::NoListener(to)) if to == free));
        let memory = ShmMemory::new(Trust::User);
        let shared = Shared { stats: Arc::default(), memory };
        let mut attr = EndpointAttr::default();
        attr.source = Some(far.ip());
        assert!(matches!(connect(free, &attr, &shared), Err(NotNear::Elsewhere(_))));
        let socket = listen(free).unwrap();
        look(free).unwrap();
        let (_transport, local) = connect(free, &EndpointAttr::default(), &shared).unwrap();
        assert_eq!(local.ip(), free.ip());
        drop(socket);
        assert!(matches!(look(free), Err(NotNear::NoListener(_))));
    }

    #[test]
    fn an_address_has_one_listener() {
        let (_reserved, free) = address::reserve(at(0)).unwrap();
        let _one = listen(free).unwrap();
        assert_eq!(listen(free).err().unwrap().kind(), ErrorKind::AddrInUse);
    }
}
