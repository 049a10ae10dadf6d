//! Whether a peer is reached by shared memory, for those that have another way as well.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use fabric_core::EndpointAttr;
use fabric_util::sockets::Shared;
use socket2::Socket;

use crate::address::{self, Ends};
use crate::closer::Closer;
use crate::family::{ShmSocket, new_socket};
use crate::memory::ShmMemory;
use crate::transport::{self, ShmTransport};
use crate::user::is_same_user;

/// Why a peer is not reached by shared memory.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotNear {
    /// This host does not have its address.
    Elsewhere(IpAddr),
    /// Nothing listens there in this way: no process of this network namespace that has this provider.
    NoListener(SocketAddr),
    /// The listener has no room for one more, or this user has too many descriptors on their way.
    Full(SocketAddr),
    /// It is another user's. Any user can have such a listener, also at the address of another user's socket.
    OtherUser,
    /// This process may not have what it takes, by a limit or a rule of its own.
    Forbidden(io::Error),
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
            NotNear::Forbidden(error) => write!(f, "this process may not share memory: {error}"),
            NotNear::Failed(error) => write!(f, "{error}"),
        }
    }
}

impl From<io::Error> for NotNear {
    fn from(error: io::Error) -> Self {
        if is_forbidden(&error) { NotNear::Forbidden(error) } else { NotNear::Failed(error) }
    }
}

/// Whether an error says that the process may not have sockets or memory of this kind: systemd's `RestrictAddressFamilies`, a filter
/// of system calls, a security module (AppArmor, SELinux, Landlock), `vm.memfd_noexec`, or `ulimit -f`.
pub fn is_forbidden(error: &io::Error) -> bool {
    const ERRORS: [libc::c_int; 5] =
        [libc::EACCES, libc::EPERM, libc::EAFNOSUPPORT, libc::ENOSYS, libc::EFBIG];
    error.raw_os_error().is_some_and(|error| ERRORS.contains(&error))
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
    let closer = &shared.memory.closer;
    let (socket, ends) = dial_near(to, (attr.source, attr.source_port), closer)?;
    let connected = ShmTransport::connected(socket, shared);
    let transport = connected.map_err(|error| match error.raw_os_error() {
        Some(libc::ETOOMANYREFS) => NotNear::Full(to),
        _ => error.into(),
    })?;
    Ok((transport, ends.initiator))
}

/// Whether [`connect`] would: it connects, and leaves at once.
///
/// # Errors
/// Why it would not.
pub fn look(to: SocketAddr) -> Result<(), NotNear> {
    dial_near(to, (None, 0), &Arc::default()).map(drop)
}

/// Listens at an address that is the caller's already, by another kind of socket.
///
/// # Errors
/// As bind(2) and listen(2).
pub fn listen(addr: SocketAddr) -> io::Result<(ShmSocket, SocketAddr)> {
    ShmSocket::listen(addr, None)
}

fn dial_near(
    to: SocketAddr,
    (source, port): (Option<IpAddr>, u16),
    closer: &Arc<Closer>,
) -> Result<(Socket, Ends), NotNear> {
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
        _ => error.into(),
    })?;
    if is_same_user(&socket) {
        return Ok((socket, ends));
    }
    closer.close(socket);
    Err(NotNear::OtherUser)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::Ipv4Addr;

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
    fn what_is_forbidden_is_no_failure() {
        for error in [libc::EACCES, libc::EPERM, libc::EAFNOSUPPORT, libc::ENOSYS, libc::EFBIG] {
            let why = NotNear::from(io::Error::from_raw_os_error(error));
            assert!(matches!(why, NotNear::Forbidden(_)), "{why}");
        }
        let why = NotNear::from(io::Error::from_raw_os_error(libc::EMFILE));
        assert!(matches!(why, NotNear::Failed(_)), "{why}");
    }

    #[test]
    fn an_address_has_one_listener() {
        let (_reserved, free) = address::reserve(at(0)).unwrap();
        let _one = listen(free).unwrap();
        assert_eq!(listen(free).err().unwrap().kind(), ErrorKind::AddrInUse);
    }
}
