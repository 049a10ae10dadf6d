//! Addresses: what `ip:port` is called among the abstract names of unix(7), and which ports are free.
//!
//! Such names belong to a network namespace, as addresses do, and go with the socket that has them. A listener is called by
//! its address; a connecting socket by its own and the one that it connects to, so that both ends know both.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

use fabric_util::route::leaves_by;
use socket2::{Domain, SockAddr, Socket, Type};

/// In front of all names.
const PREFIX: &str = "fabric/";
/// Ports that are chosen for connecting sockets: those that IANA leaves for that (RFC 6335, section 6).
const FIRST_PORT: u16 = 49152;
const PORTS: u32 = 1 << 14;

/// Where both ends of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The one that connects.
    pub(crate) initiator: SocketAddr,
    /// The one that it connects to.
    pub(crate) acceptor: SocketAddr,
}

impl Ends {
    /// The name of the connecting socket.
    fn name(self) -> io::Result<SockAddr> {
        name(format_args!("{}>{}", self.initiator, self.acceptor))
    }

    /// Reads a connecting socket's name; `None` if it is none.
    pub(crate) fn of(name: &SockAddr) -> Option<Self> {
        let name = std::str::from_utf8(name.as_abstract_namespace()?).ok()?;
        let (initiator, acceptor) = name.strip_prefix(PREFIX)?.split_once('>')?;
        Some(Ends { initiator: initiator.parse().ok()?, acceptor: acceptor.parse().ok()? })
    }
}

/// The listener's name.
pub(crate) fn listener(addr: SocketAddr) -> io::Result<SockAddr> {
    name(format_args!("{addr}"))
}

fn name(what: std::fmt::Arguments<'_>) -> io::Result<SockAddr> {
    SockAddr::unix(format!("\0{PREFIX}{what}"))
}

/// Whether this host has the address.
///
/// # Errors
/// That the kernel cannot be asked, for want of descriptors for example.
pub(crate) fn is_here(ip: IpAddr) -> io::Result<bool> {
    if ip.is_unspecified() || matches!(ip, IpAddr::V4(ip) if ip.is_loopback()) {
        return Ok(true);
    }
    // The kernel lets sockets have its own addresses only (ip(7)),
    match UdpSocket::bind((ip, 0)) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => return Ok(false),
        Err(error) => return Err(error),
    }
    // unless it is set to let them have any (ip_nonlocal_bind).
    if leaves_by(ip).is_ok_and(|by| by == ip) {
        return Ok(true);
    }
    // An interface's second address is reached from its first.
    Ok(if_addrs::get_if_addrs()?.iter().any(|interface| interface.ip() == ip))
}

/// A TCP socket that has the address and does nothing: the kernel finds a free port, and gives it to no other listener, of
/// this provider or of any program, for all addresses or for one.
pub(crate) fn reserve(addr: SocketAddr) -> io::Result<(Socket, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    if addr.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&addr.into())?;
    let addr = socket.local_addr()?.as_socket().ok_or(ErrorKind::AddrNotAvailable)?;
    Ok((socket, addr))
}

/// Gives a socket the name of one that connects to `acceptor` from `source`, or from any port if that has none; gives both
/// addresses.
pub(crate) fn bind_initiator(
    socket: &Socket,
    source: SocketAddr,
    acceptor: SocketAddr,
) -> io::Result<Ends> {
    let ip = source.ip();
    if source.port() != 0 {
        // A socket that lets others have its port finds out whether a listener has it (socket(7), SO_REUSEADDR).
        let probe = Socket::new(Domain::for_address(source), Type::STREAM, None)?;
        probe.set_reuse_address(true)?;
        probe.bind(&source.into())?;
        let ends = Ends { initiator: source, acceptor };
        return socket.bind(&ends.name()?).map(|()| ends);
    }
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..PORTS {
        // Processes begin at different ones.
        let next = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id() << 6);
        let port = FIRST_PORT + (next % PORTS) as u16;
        let ends = Ends { initiator: SocketAddr::new(ip, port), acceptor };
        match socket.bind(&ends.name()?) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            bound => return bound.map(|()| ends),
        }
    }
    Err(ErrorKind::AddrNotAvailable.into())
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests
mod tests {
    use std::net::Ipv4Addr;

    use fabric_util::route::unspecified;

    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_longest_name_fits_and_reads_back() {
        let far = addr("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535");
        for ends in [
            Ends { initiator: addr("127.0.0.1:1"), acceptor: addr("10.0.0.1:65535") },
            Ends { initiator: far, acceptor: far },
        ] {
            assert_eq!(Ends::of(&ends.name().unwrap()), Some(ends));
        }
    }

    #[test]
    fn what_is_no_name_of_a_connecting_socket_is_none() {
        for text in [
            "",
            "\0",
            "/fabric/1.2.3.4:5>1.2.3.4:6",
            "\0fabric/",
            "\0fabric/1.2.3.4:5",
            "\0fabric/1.2.3.4:5>",
            "\0fabric/1.2.3.4:5>1.2.3.4:6>",
            "\0fabric/a>b",
            "\0other/1.2.3.4:5>1.2.3.4:6",
        ] {
            assert_eq!(Ends::of(&SockAddr::unix(text).unwrap()), None, "{text:?}");
        }
    }

    #[test]
    fn a_port_is_reserved_for_one() {
        let (first, at) = reserve(addr("127.0.0.1:0")).unwrap();
        assert_ne!(at.port(), 0);
        assert_eq!(reserve(at).unwrap_err().kind(), ErrorKind::AddrInUse);
        let all = SocketAddr::new(unspecified(at.ip()), at.port());
        assert_eq!(reserve(all).unwrap_err().kind(), ErrorKind::AddrInUse);
        assert_eq!(std::net::TcpListener::bind(at).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(first);
        reserve(at).unwrap();
    }

    #[test]
    fn only_addresses_of_this_host_are_here() {
        assert!(is_here(Ipv4Addr::LOCALHOST.into()).unwrap());
        // For documentation (RFC 5737).
        assert!(!is_here(Ipv4Addr::new(192, 0, 2, 1).into()).unwrap());
    }

    #[test]
    fn connecting_sockets_have_different_ports() {
        let new = || Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        let (one, other, to) = (new(), new(), addr("127.0.0.1:9"));
        let from = addr("127.0.0.1:0");
        let ends = [&one, &other].map(|socket| bind_initiator(socket, from, to).unwrap());
        assert_ne!(ends[0].initiator, ends[1].initiator);
        // One that asks for a port has it, for this peer alone; unless another program has just that one.
        let is_had = |at: Ends| {
            let asked = bind_initiator(&new(), at.initiator, to).unwrap_err();
            assert_eq!(asked.kind(), ErrorKind::AddrInUse);
            let elsewhere = bind_initiator(&new(), at.initiator, addr("127.0.0.1:10"));
            elsewhere.is_ok_and(|ends| ends.initiator == at.initiator)
        };
        let more = (0..20).map(|_| new()).collect::<Vec<_>>();
        let mut all = more.iter().map(|socket| bind_initiator(socket, from, to).unwrap());
        assert!(all.any(is_had));
        // And not that of a listener.
        let (_listener, at) = reserve(from).unwrap();
        assert_eq!(bind_initiator(&new(), at, to).unwrap_err().kind(), ErrorKind::AddrInUse);
    }

    /// In a network of its own, if this thread may have one.
    #[test]
    #[cfg_attr(miri, ignore)] // namespaces
    fn addresses_that_sockets_may_have_are_not_all_here() {
        // SAFETY: unshare(2) takes no memory; it changes which network this thread has, which ends with the test.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
            return println!("not run: {}", io::Error::last_os_error());
        }
        std::fs::write("/proc/sys/net/ipv4/ip_nonlocal_bind", "1").unwrap();
        assert!(UdpSocket::bind("192.0.2.1:0").is_ok());
        only_addresses_of_this_host_are_here();
    }
}
