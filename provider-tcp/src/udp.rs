//! Sockets for datagrams: how they are made, and what the kernel says of them.
//!
//! They are not connected, so no answer of a network (port unreachable, host unreachable) is an error of a later call (udp(7)).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use socket2::{Domain, Protocol, Socket, Type};

/// Bytes of the longest datagram, on every interface: what IPv4 leaves of 65,535 behind the headers of IP (20) and UDP (8). Over
/// IPv6 it would be 20 more, which the other family would not have. What is longer than a packet of the path travels in fragments:
/// if one of them is lost, so is the datagram.
pub(crate) const LONGEST: usize = 65_507;

/// How many bytes of datagrams that were not read yet the kernel may hold, bookkeeping included. It gives what
/// `net.core.rmem_max` permits, 208 KiB unless set; what comes beyond that is lost (socket(7)).
const RECEIVE_BUFFER: usize = 4 << 20;

/// A socket that is bound.
pub(crate) fn bind(addr: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.bind(&addr.into())?;
    let bound = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok((socket.into(), bound))
}

/// Datagrams that the kernel dropped since the buffer was full, or their check sum was wrong.
pub(crate) fn overrun(fd: BorrowedFd<'_>) -> Option<u64> {
    // Of linux/sock_diag.h, which libc does not have: the index of the drops, and the number of words.
    const SK_MEMINFO_DROPS: usize = 8;
    const SK_MEMINFO_VARS: usize = 9;
    let mut words = [0_u32; SK_MEMINFO_VARS];
    let mut len = size_of_val(&words) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `words` (net/core/sock.c, SO_MEMINFO).
    let failed = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            words.as_mut_ptr().cast(),
            &raw mut len,
        )
    } != 0;
    let whole = !failed && len as usize == size_of_val(&words);
    whole.then(|| words[SK_MEMINFO_DROPS].into())
}
