//! Sockets: how they are made, and their options.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use fabric_core::EndpointAttr;
use fabric_util::stream::Silence;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// The kernel takes no more while so many bytes are unsent: a peer that does not read costs so much, and not all that the
/// send buffer grows to (4 MiB usually). What is on its way does not count, so a long way is filled all the same. Half of it
/// takes a third off the rate of reads over loopback; twice as much adds nothing.
const MAX_UNSENT: u32 = 512 << 10;

/// As `SO_SNDBUF`, which the kernel doubles, and bounds before that by `net.core.wmem_max`, between two ends on one host: what
/// is on its way is read from the processor's cache only if it is little. By itself the kernel lets 2.5 MiB be, or more: 1 MiB
/// messages then have two thirds of the rate. Half of this is slower again.
const ON_ITS_WAY_WITHIN_A_HOST: usize = 256 << 10;

/// A listening socket. The kernel's backlog is at its maximum: the one that counts is ours.
pub(crate) fn listen(addr: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&addr.into())?;
    socket.listen(libc::c_int::from(u16::MAX))?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A socket that is connecting.
pub(crate) fn connect(
    to: SocketAddr,
    source: Option<IpAddr>,
    attr: &EndpointAttr,
) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    let port = attr.source_port;
    if port != 0 {
        // An earlier connection of the port may be in TIME_WAIT: only one to the same peer is in the way.
        socket.set_reuse_address(true)?;
    } else if source.is_some() {
        choose_port_late(socket.as_fd());
    }
    if port != 0 || source.is_some() {
        socket.bind(&SocketAddr::new(source.unwrap_or(any_address(to)), port).into())?;
    }
    tune(&SockRef::from(&socket), to.is_ipv6(), attr)?;
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        // By this the kernel says that there is a connection from this port to the peer's, or from each port: an address that is
        // not there was found by bind(2).
        Err(error)
            if (port != 0 || source.is_some())
                && error.kind() == io::ErrorKind::AddrNotAvailable =>
        {
            return Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
        }
        Err(error) => return Err(error),
    }
    keep_in_cache(&SockRef::from(&socket), to.ip());
    Ok(socket.into())
}

fn any_address(of_family: SocketAddr) -> IpAddr {
    if of_family.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// Has the kernel choose the port in connect(2), and not in bind(2): then connections to different peers can share one, and a
/// source has as many ports for each peer as there are.
fn choose_port_late(fd: BorrowedFd<'_>) {
    let on: libc::c_int = 1;
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // Kernels before 4.2 do not know it: connections to all peers share the ports there.
    // SAFETY: the kernel reads one int (ip(7), IP_BIND_ADDRESS_NO_PORT).
    let _ = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            len,
        )
    };
}

/// Sets the options of a connection's socket.
pub(crate) fn tune(socket: &SockRef<'_>, v6: bool, attr: &EndpointAttr) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    // On kernels that do not know it a peer that does not read costs more.
    let _ = socket.set_tcp_notsent_lowat(MAX_UNSENT);
    if let Some(class) = attr.traffic_class {
        if v6 {
            socket.set_tclass_v6(class.into())?;
        } else {
            socket.set_tos_v4(class.into())?;
        }
    }
    keep_alive(socket, attr.liveness)
}

/// Bounds what is on its way if the peer is on this host.
pub(crate) fn keep_in_cache(socket: &SockRef<'_>, peer: IpAddr) {
    let is_own =
        || socket.local_addr().is_ok_and(|own| own.as_socket().map(|own| own.ip()) == Some(peer));
    if peer.is_loopback() || is_own() {
        // Without it large messages are slower.
        let _ = socket.set_send_buffer_size(ON_ITS_WAY_WITHIN_A_HOST);
    }
}

/// Has the kernel look whether the peer's host is there, while nothing is under way: see `liveness` for when something is.
pub(crate) fn keep_alive(socket: &SockRef<'_>, interval: Option<Duration>) -> io::Result<()> {
    let Some(interval) = interval else { return socket.set_keepalive(false) };
    // A probe after one interval, lost when two stay unanswered, which with the least interval of 1 s is three intervals.
    let probe = (interval * 2 / 3).max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new().with_time(interval).with_interval(probe).with_retries(2);
    socket.set_tcp_keepalive(&keepalive)
}

/// The error by which a connecting socket ended, or none.
pub(crate) fn take_error(fd: BorrowedFd<'_>) -> io::Result<()> {
    match SockRef::from(&fd).take_error()? {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// How silent the peer's kernel is; `None` for a socket that is not connected.
///
/// A peer whose process is stopped answers all the same, with a closed window, and then only the probes of that window
/// are unanswered for a moment; so `TCP_USER_TIMEOUT`, which ends such a connection too, is not what is wanted.
pub(crate) fn silence(fd: BorrowedFd<'_>) -> Option<Silence> {
    // SAFETY: tcp_info is plain data.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `info` (tcp(7), TCP_INFO).
    let failed = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut len,
        )
    } != 0;
    if failed {
        return None;
    }
    let heard = info.tcpi_last_ack_recv.min(info.tcpi_last_data_recv);
    let unanswered = info.tcpi_unacked > 0 || info.tcpi_probes > 0;
    let held_back = !unanswered && unsent(fd) > 0;
    Some(Silence { lasts: Duration::from_millis(heard.into()), unanswered, held_back })
}

/// How many bytes the kernel has not sent yet, since the peer does not take them.
pub(crate) fn unsent(fd: BorrowedFd<'_>) -> usize {
    // Of linux/sockios.h, which libc does not have.
    const SIOCOUTQNSD: libc::Ioctl = 0x894b;
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int (net/ipv4/tcp.c, tcp_ioctl).
    let failed = unsafe { libc::ioctl(fd.as_raw_fd(), SIOCOUTQNSD, &raw mut bytes) } != 0;
    if failed { 0 } else { usize::try_from(bytes).unwrap_or_default() }
}

/// Before a socket is closed: what the peer has not taken by now goes with it. Otherwise the kernel would keep that for as
/// long as the peer likes, after this process too. What is on its way arrives.
pub(crate) fn forget_unsent(fd: BorrowedFd<'_>) {
    if unsent(fd) > 0 {
        // It fails only for what is no socket.
        let _ = SockRef::from(&fd).set_linger(Some(Duration::ZERO));
    }
}

/// The kernel sends again what is unanswered, and asks a peer that takes no more, at least once in an interval; by itself
/// it comes to wait for two minutes, in which the peer may be long gone. Only for a socket that is connected: it would
/// give up connecting early.
pub(crate) fn ask_often(fd: BorrowedFd<'_>, interval: Duration) {
    // Of linux/tcp.h, which libc does not have yet.
    const TCP_RTO_MAX_MS: libc::c_int = 44;
    let max = interval.clamp(Duration::from_secs(1), Duration::from_secs(120)).as_millis();
    let max = max as libc::c_int;
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // Kernels before 6.15 do not know it: a peer that takes no more and is then lost is noticed later there.
    // SAFETY: the kernel reads one int.
    let _ = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            (&raw const max).cast(),
            len,
        )
    };
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn little_is_on_its_way_within_a_host() {
        let plain = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        plain.set_send_buffer_size(ON_ITS_WAY_WITHIN_A_HOST).unwrap();
        let bounded = plain.send_buffer_size().unwrap();

        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let to = listener.local_addr().unwrap();
        let attr = EndpointAttr::default();
        let connecting = connect(to, None, &attr).unwrap();
        let (accepted, peer) = listener.accept().unwrap();
        assert_ne!(SockRef::from(&accepted).send_buffer_size().unwrap(), bounded);
        keep_in_cache(&SockRef::from(&accepted), peer.ip());
        for socket in [SockRef::from(&connecting), SockRef::from(&accepted)] {
            assert_eq!(socket.send_buffer_size().unwrap(), bounded);
        }
        // Elsewhere: an address for documentation (RFC 5737).
        let far = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        keep_in_cache(&SockRef::from(&far), "192.0.2.1".parse().unwrap());
        assert_ne!(far.send_buffer_size().unwrap(), bounded);
    }

    #[test]
    fn a_port_is_chosen_when_the_peer_is_known() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let address: SocketAddr = address.parse().unwrap();
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
            choose_port_late(socket.as_fd());
            if let Err(error) = socket.bind(&address.into()) {
                assert_eq!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL), "no IPv6 here");
                continue;
            }
            let port = || socket.local_addr().unwrap().as_socket().unwrap().port();
            assert_eq!(port(), 0, "{address}");
            let listener = std::net::TcpListener::bind(address).unwrap();
            socket.connect(&listener.local_addr().unwrap().into()).unwrap();
            assert_ne!(port(), 0, "{address}");
        }
    }
}
