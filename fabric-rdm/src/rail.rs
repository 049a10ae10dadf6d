//! One rail of an endpoint: the address of a socket, in as few bytes as it has in an address blob.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An address that can be connected to: 22 bytes, for either family. This is also how it travels.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct Rail {
    /// An IPv4 address is here as IPv6 maps it, and an IPv6 address never is one of those.
    ip: [u8; 16],
    port: U16,
    /// The scope id of an IPv6 address: a link-local one means nothing without it.
    scope: U32,
}

impl Rail {
    /// The flow label of an IPv6 address is dropped: each connection has its own.
    ///
    /// # Errors
    /// Why nothing can be connected to it.
    pub(crate) fn new(addr: SocketAddr) -> Result<Self, &'static str> {
        let (ip, scope) = match addr {
            SocketAddr::V4(addr) => (addr.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(addr) if is_mapped(addr.ip()) => (*addr.ip(), 0),
            SocketAddr::V6(addr) => (*addr.ip(), addr.scope_id()),
        };
        let rail = Rail { ip: ip.octets(), port: addr.port().into(), scope: scope.into() };
        rail.check().map(|()| rail)
    }

    /// Whether it can be connected to, and is as [`new`](Self::new) would make it: for one from a peer.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let ip = self.addr().ip();
        if self.port.get() == 0 {
            Err("its port is 0, to which nothing connects")
        } else if ip.is_unspecified() {
            Err("its IP address is the unspecified one, to which no other host connects")
        } else if ip.is_multicast() || ip == Ipv4Addr::BROADCAST {
            Err("its IP address is that of many hosts")
        } else if ip.is_ipv4() && self.scope.get() != 0 {
            Err("it has an IPv4 address with a scope")
        } else {
            Ok(())
        }
    }

    /// The address.
    pub(crate) fn addr(&self) -> SocketAddr {
        let ip = Ipv6Addr::from(self.ip);
        match ip.to_ipv4_mapped() {
            Some(ip) => (ip, self.port.get()).into(),
            None => SocketAddrV6::new(ip, self.port.get(), 0, self.scope.get()).into(),
        }
    }
}

/// By which of a host's addresses peers may reach it: by the loopback only where there is nothing else, since on other hosts that
/// is another one's.
pub(crate) fn reachable(addresses: &[IpAddr]) -> impl Iterator<Item = IpAddr> {
    let has_network = addresses.iter().any(|ip| !ip.is_loopback());
    addresses.iter().copied().filter(move |ip| !(has_network && ip.is_loopback()))
}

fn is_mapped(ip: &Ipv6Addr) -> bool {
    ip.to_ipv4_mapped().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rail(addr: &str) -> Result<SocketAddr, &'static str> {
        Rail::new(addr.parse().unwrap()).map(|rail| rail.addr())
    }

    #[test]
    fn both_families_come_back() {
        assert_eq!(size_of::<Rail>(), 22);
        for addr in ["192.0.2.1:7471", "127.0.0.1:1", "[2001:db8::1]:65535", "[fe80::1%7]:80"] {
            assert_eq!(rail(addr), Ok(addr.parse().unwrap()));
        }
        assert_eq!(rail("[::ffff:192.0.2.1]:80"), Ok("192.0.2.1:80".parse().unwrap()), "one form");
        let flow = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 80, 5, 0);
        let plain = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 80, 0, 0);
        assert_eq!(Rail::new(flow.into()), Rail::new(plain.into()));
    }

    #[test]
    fn what_nothing_connects_to_is_refused() {
        for addr in ["192.0.2.1:0", "0.0.0.0:80", "[::]:80", "[::ffff:0.0.0.0]:80"] {
            assert!(rail(addr).is_err(), "{addr}");
        }
        for addr in ["224.0.0.1:80", "255.255.255.255:80", "[ff02::1]:80"] {
            assert!(rail(addr).is_err(), "{addr}");
        }
        let scoped = Rail { scope: 1.into(), ..Rail::new(([192, 0, 2, 1], 80).into()).unwrap() };
        assert!(scoped.check().is_err(), "one address has one form");
    }
}
