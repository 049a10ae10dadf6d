//! Which of a device's addresses to use.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use fabric_core::error::{Error, Failure, Result};
use fabric_core::info::Info;

/// The address to listen on so that only this device is reached: for the unspecified address, the device's first
/// one of the family.
///
/// # Errors
/// `InvalidArgument` if the device does not have the address.
pub fn listen_addr(info: &Info, addr: SocketAddr) -> Result<SocketAddr> {
    let own = if addr.ip().is_unspecified() {
        info.addresses.iter().find(|ip| ip.is_ipv4() == addr.is_ipv4())
    } else {
        info.addresses.iter().find(|ip| **ip == addr.ip())
    };
    own.map(|ip| SocketAddr::new(*ip, addr.port())).ok_or_else(|| {
        let cause = ErrorKind::AddrNotAvailable.into();
        Error::InvalidArgument(not_here("listen", info, addr).because(cause))
    })
}

/// The address to connect from so that this device is used: `source`, or its first one of the family.
///
/// # Errors
/// `Unreachable` if there is none of the family.
pub fn source_addr(info: &Info, to: SocketAddr, source: Option<IpAddr>) -> Result<IpAddr> {
    let fits = |ip: &IpAddr| ip.is_ipv4() == to.is_ipv4();
    let own = match source {
        Some(source) => Some(source).filter(fits),
        None => info.addresses.iter().find(|ip| fits(ip)).copied(),
    };
    own.ok_or_else(|| Error::Unreachable(not_here("connect", info, to)))
}

/// The unspecified address of the same family.
pub fn unspecified(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// The address of this host by which its packets leave for another one, as the routing table has it. Nothing is sent.
///
/// # Errors
/// There is no way there; or the kernel cannot be asked, for want of descriptors for example.
pub fn leaves_by(to: IpAddr) -> io::Result<IpAddr> {
    let socket = UdpSocket::bind((unspecified(to), 0))?;
    socket.connect((to, 9))?;
    Ok(socket.local_addr()?.ip())
}

/// Orders the addresses of a host by how likely peers elsewhere reach it there: first those by which its packets leave for a network
/// far away, as the routing table has it, last the loopback. Programs listen at the first one unless they choose.
pub fn outward_first(addresses: &mut [IpAddr]) {
    // Of documentation (RFC 5737, RFC 3849): no route is for them alone.
    let far: [IpAddr; 2] = [
        Ipv4Addr::new(198, 51, 100, 1).into(),
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    ];
    let outward = far.map(|to| leaves_by(to).ok());
    addresses.sort_by_key(|ip| (ip.is_loopback(), !outward.contains(&Some(*ip))));
}

/// Refuses to connect to what is no peer's address: none, that of everybody, that of a group. What systems make of these
/// differs from one to the other.
///
/// # Errors
/// `InvalidArgument` that names the address.
pub fn check_peer(to: SocketAddr) -> Result<()> {
    let why = match to.ip().to_canonical() {
        ip if ip.is_unspecified() => "unspecified: say which address the peer has",
        ip if ip.is_multicast() => "that of a group",
        IpAddr::V4(ip) if ip.is_broadcast() => "that of every host",
        _ => return Ok(()),
    };
    Err(Error::invalid("connect", format!("the address {} is {why}", to.ip())))
}

fn not_here(operation: &'static str, info: &Info, addr: SocketAddr) -> Box<Failure> {
    let text =
        format!("the address cannot be used from {}, which has {:?}", info.device, info.addresses);
    let mut failure = Failure::new(operation, text).of(info.provider);
    failure.addr = Some(addr);
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_uses_its_own_addresses() {
        let mut info = Info::new("tcp", "eth0");
        let (four, six): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), "fd00::1".parse().unwrap());
        info.addresses = vec![six, four];
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(listen_addr(&info, at("0.0.0.0:7")).unwrap(), at("10.0.0.1:7"));
        assert_eq!(listen_addr(&info, at("[fd00::1]:7")).unwrap(), at("[fd00::1]:7"));
        assert!(matches!(listen_addr(&info, at("10.0.0.2:7")), Err(Error::InvalidArgument(_))));
        assert_eq!(source_addr(&info, at("1.2.3.4:7"), None).unwrap(), four);
        assert_eq!(source_addr(&info, at("[::1]:7"), Some(six)).unwrap(), six);
        assert!(matches!(
            source_addr(&info, at("[::1]:7"), Some(four)),
            Err(Error::Unreachable(_))
        ));
    }

    #[test]
    #[cfg_attr(miri, ignore)] // asks the routing table
    fn the_loopback_comes_last() {
        let [four, six]: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let [near, far]: [IpAddr; 2] = [[203, 0, 113, 7].into(), [203, 0, 113, 8].into()];
        let mut addresses = [four, near, six, far];
        outward_first(&mut addresses);
        assert_eq!(addresses, [near, far, four, six]);
    }

    #[test]
    fn what_is_no_peers_address_is_refused_and_named() {
        for to in [
            "0.0.0.0:7",
            "[::]:7",
            "[::ffff:0.0.0.0]:7",
            "255.255.255.255:7",
            "224.0.0.1:7",
            "239.255.1.1:7",
            "[ff02::1]:7",
        ] {
            let to: SocketAddr = to.parse().unwrap();
            let Err(Error::InvalidArgument(failure)) = check_peer(to) else { panic!("{to}") };
            assert!(failure.to_string().contains(&to.ip().to_string()), "{failure}");
        }
        for to in ["127.0.0.1:7", "10.0.0.255:7", "[::1]:7", "[fe80::1]:7", "[::ffff:1.2.3.4]:7"] {
            check_peer(to.parse().unwrap()).unwrap();
        }
    }
}
