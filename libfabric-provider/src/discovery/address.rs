//! Addresses: between `struct sockaddr` and ours, and from names.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::{offset_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::abi::flags::{FI_FORMAT_UNSPEC, FI_SOCKADDR, FI_SOCKADDR_IN, FI_SOCKADDR_IN6};
use crate::errno::Errno;

/// The bytes of a `struct sockaddr_in` or `sockaddr_in6`.
pub(crate) struct Bytes {
    all: [u8; size_of::<libc::sockaddr_in6>()],
    len: usize,
}

impl Bytes {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.all[..self.len]
    }
}

/// As C has it.
pub(crate) fn to_bytes(address: SocketAddr) -> Bytes {
    let mut all = [0; size_of::<libc::sockaddr_in6>()];
    let mut put = |at: usize, bytes: &[u8]| all[at..at + bytes.len()].copy_from_slice(bytes);
    let port = address.port().to_be_bytes();
    let len = match address {
        SocketAddr::V4(v4) => {
            put(0, &(libc::AF_INET as libc::sa_family_t).to_ne_bytes());
            put(offset_of!(libc::sockaddr_in, sin_port), &port);
            put(offset_of!(libc::sockaddr_in, sin_addr), &v4.ip().octets());
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            put(0, &(libc::AF_INET6 as libc::sa_family_t).to_ne_bytes());
            put(offset_of!(libc::sockaddr_in6, sin6_port), &port);
            put(offset_of!(libc::sockaddr_in6, sin6_flowinfo), &v6.flowinfo().to_ne_bytes());
            put(offset_of!(libc::sockaddr_in6, sin6_addr), &v6.ip().octets());
            put(offset_of!(libc::sockaddr_in6, sin6_scope_id), &v6.scope_id().to_ne_bytes());
            size_of::<libc::sockaddr_in6>()
        }
    };
    Bytes { all, len }
}

/// From what C has; `None` for another family, or too few bytes.
pub(crate) fn from_bytes(bytes: &[u8]) -> Option<SocketAddr> {
    fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
        bytes.get(at..at + N)?.try_into().ok()
    }
    let port = u16::from_be_bytes(field(bytes, offset_of!(libc::sockaddr_in, sin_port))?);
    match libc::sa_family_t::from_ne_bytes(field(bytes, 0)?).into() {
        libc::AF_INET => {
            let ip: [u8; 4] = field(bytes, offset_of!(libc::sockaddr_in, sin_addr))?;
            Some((ip, port).into())
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = field(bytes, offset_of!(libc::sockaddr_in6, sin6_addr))?;
            Some((ip, port).into())
        }
        _ => None,
    }
}

/// The bytes that an address has in C.
pub(crate) fn len(address: SocketAddr) -> usize {
    match address {
        SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
    }
}

/// The address at a place that C gives: of an info, or an argument.
///
/// # Safety
/// `address` is null, or has `len` bytes; where `len` is `None`, as many as its family says.
pub(crate) unsafe fn read(address: *const c_void, len: Option<usize>) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    let family = || {
        // SAFETY: the caller's promise: an address begins with its family (bind(2)).
        match unsafe { address.cast::<libc::sa_family_t>().read_unaligned() }.into() {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
            _ => 0,
        }
    };
    let len = len.unwrap_or_else(family);
    // SAFETY: the caller's promise.
    from_bytes(unsafe { std::slice::from_raw_parts(address.cast(), len) })
}

/// The number of libfabric for addresses of this family.
pub(crate) fn format(address: IpAddr) -> u32 {
    if address.is_ipv4() { FI_SOCKADDR_IN } else { FI_SOCKADDR_IN6 }
}

/// Whether an application that asks for addresses of this format takes this one.
pub(crate) fn suits(wanted: u32, address: IpAddr) -> bool {
    [FI_FORMAT_UNSPEC, FI_SOCKADDR, format(address)].contains(&wanted)
}

/// The address that a text of libfabric's is (`fi_getinfo(3)`, `FI_ADDR_STR`): `fi_sockaddr_in://192.0.2.1:7471`.
fn from_text(text: &CStr) -> Option<SocketAddr> {
    let (format, place) = text.to_str().ok()?.split_once("://")?;
    let is_known = ["fi_sockaddr", "fi_sockaddr_in", "fi_sockaddr_in6"].contains(&format);
    place.parse().ok().filter(|_| is_known)
}

/// The first address that a name or a number has, with the port of a service (getaddrinfo(3)); for listening, the unspecified one
/// where there is no name. A text of libfabric's for an address has the port itself.
pub(crate) fn resolve(
    node: Option<&CStr>,
    service: Option<&CStr>,
    (wanted, to_listen, is_number): (u32, bool, bool),
) -> Result<SocketAddr, Errno> {
    if let (Some(place), None) = (node.and_then(from_text), service) {
        return if suits(wanted, place.ip()) { Ok(place) } else { Err(Errno::NO_DATA) };
    }
    // SAFETY: a structure of numbers and pointers, for which zero means no restriction.
    let mut hints: libc::addrinfo = unsafe { zeroed() };
    hints.ai_family = match wanted {
        FI_SOCKADDR_IN => libc::AF_INET,
        FI_SOCKADDR_IN6 => libc::AF_INET6,
        _ => libc::AF_UNSPEC,
    };
    // Of a name without a family, and of none at all, an IPv4 address is the first one.
    if node.is_none() && hints.ai_family == libc::AF_UNSPEC {
        hints.ai_family = libc::AF_INET;
    }
    hints.ai_socktype = libc::SOCK_STREAM;
    hints.ai_flags |= if to_listen { libc::AI_PASSIVE } else { 0 };
    hints.ai_flags |= if is_number { libc::AI_NUMERICHOST } else { 0 };
    let text = |text: Option<&CStr>| text.map_or(std::ptr::null::<c_char>(), CStr::as_ptr);
    let mut found = std::ptr::null_mut();
    // SAFETY: the texts end in zero or are null, the hints are zero where they say nothing (getaddrinfo(3)).
    let status = unsafe { libc::getaddrinfo(text(node), text(service), &hints, &mut found) };
    if status != 0 || found.is_null() {
        return Err(Errno::NO_DATA);
    }
    // SAFETY: getaddrinfo succeeded: the list has one entry at least, with an address of the length that it says.
    let address = unsafe { read((*found).ai_addr.cast(), Some((*found).ai_addrlen as usize)) };
    // SAFETY: the list is not used again.
    unsafe { libc::freeaddrinfo(found) };
    address.ok_or(Errno::NO_DATA)
}

/// The node so many behind another one: the address that is that much more, or the name whose number at its end is.
pub(crate) fn node_behind(first: &CStr, count: u64) -> Option<CString> {
    if count == 0 {
        return Some(first.to_owned());
    }
    let first = first.to_str().ok()?;
    let node = match first.parse() {
        Ok(IpAddr::V4(ip)) => {
            Ipv4Addr::from_bits(ip.to_bits().checked_add(count.try_into().ok()?)?).to_string()
        }
        Ok(IpAddr::V6(ip)) => {
            Ipv6Addr::from_bits(ip.to_bits().checked_add(count.into())?).to_string()
        }
        Err(_) => {
            let (name, digits) =
                first.split_at(first.trim_end_matches(|c: char| c.is_ascii_digit()).len());
            let number = digits.parse::<u64>().ok()?.checked_add(count)?;
            format!("{name}{number:0width$}", width = digits.len())
        }
    };
    CString::new(node).ok()
}

/// The address that packets to a peer leave from, by the routing table. Nothing is sent.
pub(crate) fn source_for(peer: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if peer.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive() {
        for text in ["127.0.0.1:7471", "[::1]:80", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(from_bytes(to_bytes(address).as_slice()), Some(address));
        }
        assert_eq!(from_bytes(&[]), None);
        assert_eq!(from_bytes(&[0; 28]), None);
    }

    #[test]
    fn nodes_are_counted_from_the_first() {
        for (first, count, node) in [
            (c"10.1.1.1", 0, Some(c"10.1.1.1")),
            (c"10.1.1.255", 1, Some(c"10.1.2.0")),
            (c"255.255.255.255", 1, None),
            (c"10.1.1.1", 1 << 32, None),
            (c"2001:db8::ffff", 1, Some(c"2001:db8::1:0")),
            (c"host10", 1, Some(c"host11")),
            (c"host09", 1, Some(c"host10")),
            (c"host9", 2, Some(c"host11")),
            (c"host", 0, Some(c"host")),
            (c"host", 1, None),
            (c"host18446744073709551615", 1, None),
        ] {
            assert_eq!(node_behind(first, count).as_deref(), node, "{first:?} and {count}");
        }
    }

    #[test]
    fn names_are_resolved() {
        let of =
            |node, service, how| resolve(node, service, how).map(|address| address.to_string());
        assert_eq!(of(Some(c"127.0.0.1"), Some(c"80"), (0, false, true)).unwrap(), "127.0.0.1:80");
        assert_eq!(of(None, Some(c"80"), (0, true, false)).unwrap(), "0.0.0.0:80");
        assert!(of(Some(c"no number"), None, (0, false, true)).is_err());
        let v6 = Some(c"fi_sockaddr://[2001:db8::1]:80");
        assert_eq!(of(v6, None, (0, false, false)).unwrap(), "[2001:db8::1]:80");
        let v4 = Some(c"fi_sockaddr_in://192.0.2.1:80");
        assert_eq!(of(v4, None, (0, false, false)).unwrap(), "192.0.2.1:80");
        assert!(of(v4, None, (FI_SOCKADDR_IN6, false, false)).is_err());
        assert!(of(v4, Some(c"80"), (0, false, true)).is_err(), "a service beside it");
    }

    #[test]
    fn loopback_is_reached_from_itself() {
        let peer = SocketAddr::from(([127, 0, 0, 1], 9));
        assert_eq!(source_for(peer), Some(peer.ip()));
    }
}
