//! Addresses of datagram endpoints: 32 bytes that programs ship to each other by any way they like.
//!
//! ```text
//! 0..4   "FDGA"
//! 4      version, 1
//! 5      kind: 1 UDP, 2 InfiniBand or RoCE (UD), 3 memory of one process
//! 6..8   LID, big-endian; zero where there is none
//! 8..24  IPv6 address, IPv4-mapped for IPv4; of kind 2 the GID
//! 24..28 UDP port or queue pair number, big-endian
//! 28..32 FNV-1a of the bytes before, big-endian
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use crate::error::{Error, Result};

/// What a datagram endpoint is reached by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum DatagramKind {
    /// UDP over IP.
    Udp = 1,
    /// Unreliable datagrams of InfiniBand or RoCE.
    Ud = 2,
    /// Memory of one process.
    Memory = 3,
}

/// The address of a datagram endpoint: where its datagrams go, and where those that it received came from.
///
/// - A plain value of 32 bytes ([`to_bytes`](DatagramAddress::to_bytes)), or a text of 64 digits (`Display`, `FromStr`).
/// - It proves nothing: all who know it can send to it, and a network may let a sender claim any address.
/// - It does not say who has it. When its endpoint is gone, a later one may get the same address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "Blob", try_from = "Blob"))]
pub struct DatagramAddress {
    kind: DatagramKind,
    lid: u16,
    number: u32,
    ip: [u8; 16],
}

/// An address as it travels.
type Blob = [u8; DatagramAddress::LEN];

const MAGIC: [u8; 4] = *b"FDGA";
const VERSION: u8 = 1;
const OP: &str = "read datagram address";
/// Queue pair numbers have 24 bits (InfiniBand specification, "Base Transport Header").
const MAX_QP_NUMBER: u32 = (1 << 24) - 1;
/// Zero and one are those of the subnet and the general management (InfiniBand specification, "Special QPs").
const MIN_QP_NUMBER: u32 = 2;
/// From here on LIDs are those of groups (InfiniBand specification, "Local Identifiers").
const FIRST_GROUP_LID: u16 = 0xc000;

impl DatagramAddress {
    /// Bytes of an address.
    pub const LEN: usize = 32;

    /// That of a UDP socket.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no endpoint's address: unspecified, of a group or of everybody, port 0, or link-local, which
    /// means nothing to another host.
    pub fn udp(addr: SocketAddr) -> Result<Self> {
        Self::over_ip(DatagramKind::Udp, addr)
    }

    /// That of an endpoint of this process.
    ///
    /// # Errors
    /// As [`udp`](DatagramAddress::udp).
    pub fn memory(addr: SocketAddr) -> Result<Self> {
        Self::over_ip(DatagramKind::Memory, addr)
    }

    /// That of a UD queue pair; the LID is zero on RoCE.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no queue pair's: no GID or that of a group, numbers that no queue pair has.
    pub fn ud(gid: [u8; 16], lid: u16, qp_number: u32) -> Result<Self> {
        DatagramAddress { kind: DatagramKind::Ud, lid, number: qp_number, ip: gid }.checked()
    }

    fn over_ip(kind: DatagramKind, addr: SocketAddr) -> Result<Self> {
        let ip = mapped(addr.ip()).octets();
        DatagramAddress { kind, lid: 0, number: addr.port().into(), ip }.checked()
    }

    fn checked(self) -> Result<Self> {
        match self.flaw() {
            None => Ok(self),
            Some(flaw) => Err(Error::invalid(OP, flaw)),
        }
    }

    /// Why no endpoint has this address.
    fn flaw(&self) -> Option<String> {
        let ip = IpAddr::V6(self.ip.into()).to_canonical();
        let of_everybody = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
        if ip.is_unspecified() || ip.is_multicast() || of_everybody {
            return Some(format!("{ip} is no address of one endpoint"));
        }
        let number = self.number;
        if self.kind == DatagramKind::Ud {
            if !(MIN_QP_NUMBER..=MAX_QP_NUMBER).contains(&number) {
                return Some(format!(
                    "{number} is no number of a queue pair: 2 to {MAX_QP_NUMBER}"
                ));
            }
            let lid = self.lid;
            return (lid >= FIRST_GROUP_LID).then(|| format!("LID {lid:#x} is that of a group"));
        }
        if matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
            return Some(format!("{ip} means nothing without the interface that it is of"));
        }
        let is_port = (1..=u32::from(u16::MAX)).contains(&number);
        (!is_port || self.lid != 0).then(|| format!("{number} is no port: 1 to 65535, without LID"))
    }

    /// What it is reached by.
    pub fn kind(&self) -> DatagramKind {
        self.kind
    }

    /// The IP address and port, unless it is that of a queue pair.
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        let port = u16::try_from(self.number).ok().filter(|_| self.kind != DatagramKind::Ud)?;
        Some(SocketAddr::new(self.ip(), port))
    }

    /// The IP address; on RoCE the one that its GID is made of.
    pub fn ip(&self) -> IpAddr {
        IpAddr::V6(self.ip.into()).to_canonical()
    }

    /// The GID.
    pub fn gid(&self) -> [u8; 16] {
        self.ip
    }

    /// The LID; zero where there is none.
    pub fn lid(&self) -> u16 {
        self.lid
    }

    /// The queue pair's number, or the port.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// As bytes, to be shipped.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut blob = [0; Self::LEN];
        blob[..4].copy_from_slice(&MAGIC);
        (blob[4], blob[5]) = (VERSION, self.kind as u8);
        blob[6..8].copy_from_slice(&self.lid.to_be_bytes());
        blob[8..24].copy_from_slice(&self.ip);
        blob[24..28].copy_from_slice(&self.number.to_be_bytes());
        let sum = check_sum(&blob[..28]);
        blob[28..].copy_from_slice(&sum.to_be_bytes());
        blob
    }

    /// From bytes that came from anywhere.
    ///
    /// # Errors
    /// `InvalidArgument` that says what is wrong with them, and what would be right: the length, the first bytes, a newer version,
    /// the check sum, or an address that no endpoint has. A changed bit is always noticed.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let fail = |text: String| Err(Error::invalid(OP, text));
        let Ok(blob) = <&Blob>::try_from(bytes) else {
            return fail(format!("{} bytes; an address has {}", bytes.len(), Self::LEN));
        };
        if blob[..4] != MAGIC {
            let begins = &blob[..4];
            return fail(format!("it begins {begins:02x?}; an address begins with \"FDGA\""));
        }
        if blob[4] != VERSION {
            let version = blob[4];
            return fail(format!(
                "version {version}; this library knows {VERSION}: use one of the same version at both ends"
            ));
        }
        if check_sum(&blob[..28]).to_be_bytes() != blob[28..] {
            return fail(
                "the check sum is wrong: bytes were changed or lost on the way".to_owned(),
            );
        }
        let Some(kind) = DatagramKind::of(blob[5]) else {
            return fail(format!("kind {}; there are 1 UDP, 2 UD, 3 memory", blob[5]));
        };
        let lid = u16::from_be_bytes([blob[6], blob[7]]);
        let number = u32::from_be_bytes([blob[24], blob[25], blob[26], blob[27]]);
        let mut ip = [0; 16];
        ip.copy_from_slice(&blob[8..24]);
        DatagramAddress { kind, lid, number, ip }.checked()
    }

    /// In three words, for tables that many threads see.
    pub(crate) fn to_words(self) -> [u64; 3] {
        let bits = u128::from_be_bytes(self.ip);
        let rest =
            u64::from(self.kind as u8) << 48 | u64::from(self.lid) << 32 | u64::from(self.number);
        [rest, (bits >> 64) as u64, bits as u64]
    }

    /// The reverse; `None`: no address was noted.
    pub(crate) fn from_words([rest, high, low]: [u64; 3]) -> Option<Self> {
        let kind = DatagramKind::of((rest >> 48) as u8)?;
        let ip = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        Some(DatagramAddress { kind, lid: (rest >> 32) as u16, number: rest as u32, ip })
    }
}

impl DatagramKind {
    fn of(code: u8) -> Option<Self> {
        [DatagramKind::Udp, DatagramKind::Ud, DatagramKind::Memory]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }
}

fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// FNV-1a, 32 bits: a change of one byte always changes it. It is no protection against who wants to deceive.
fn check_sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

impl fmt::Display for DatagramAddress {
    /// 64 digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for DatagramAddress {
    /// As people read it: `Udp(127.0.0.1:4000)`, `Ud(::ffff:10.0.0.1, LID 0, QP 17)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.socket_addr() {
            Some(addr) => write!(f, "{:?}({addr})", self.kind),
            None => {
                let (gid, lid, qp) = (Ipv6Addr::from(self.ip), self.lid, self.number);
                write!(f, "Ud({gid}, LID {lid}, QP {qp})")
            }
        }
    }
}

impl FromStr for DatagramAddress {
    type Err = Error;

    /// From the text that `Display` gives; its letters may be of either case.
    fn from_str(text: &str) -> Result<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * Self::LEN {
            let (is, wanted) = (digits.len(), 2 * Self::LEN);
            return Err(Error::invalid(
                OP,
                format!("{is} characters; an address has {wanted} digits"),
            ));
        }
        let mut blob = [0; Self::LEN];
        for (byte, pair) in blob.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            let (Some(high), Some(low)) = (digit(0), digit(1)) else {
                return Err(Error::invalid(OP, "a character is no digit, 0 to 9 and a to f"));
            };
            *byte = (high << 4 | low) as u8;
        }
        Self::from_bytes(&blob)
    }
}

impl From<DatagramAddress> for [u8; DatagramAddress::LEN] {
    fn from(address: DatagramAddress) -> Self {
        address.to_bytes()
    }
}

impl TryFrom<[u8; DatagramAddress::LEN]> for DatagramAddress {
    type Error = Error;

    fn try_from(bytes: [u8; DatagramAddress::LEN]) -> Result<Self> {
        Self::from_bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn some() -> [DatagramAddress; 4] {
        let gid = "::ffff:10.0.0.1".parse::<Ipv6Addr>().unwrap().octets();
        [
            DatagramAddress::udp("127.0.0.1:4000".parse().unwrap()).unwrap(),
            DatagramAddress::udp("[fd00::7]:1".parse().unwrap()).unwrap(),
            DatagramAddress::ud(gid, 17, 0x12_3456).unwrap(),
            DatagramAddress::memory("127.0.0.1:65535".parse().unwrap()).unwrap(),
        ]
    }

    #[test]
    fn they_survive_shipping() {
        for address in some() {
            assert_eq!(DatagramAddress::from_bytes(&address.to_bytes()).unwrap(), address);
            let text = address.to_string();
            assert_eq!(text.parse::<DatagramAddress>().unwrap(), address);
            assert_eq!(text.to_uppercase().parse::<DatagramAddress>().unwrap(), address);
            assert_eq!(DatagramAddress::from_words(address.to_words()), Some(address));
        }
        assert_eq!(format!("{:?}", some()[0]), "Udp(127.0.0.1:4000)");
        assert_eq!(format!("{:?}", some()[2]), "Ud(::ffff:10.0.0.1, LID 17, QP 1193046)");
        assert_eq!(DatagramAddress::from_words([0; 3]), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "no memory is touched")]
    fn each_changed_bit_is_noticed() {
        for address in some() {
            for bit in 0..8 * DatagramAddress::LEN {
                let mut blob = address.to_bytes();
                blob[bit / 8] ^= 1 << (bit % 8);
                let error = DatagramAddress::from_bytes(&blob).unwrap_err();
                assert!(matches!(error, Error::InvalidArgument(_)), "bit {bit}: {error}");
            }
        }
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let reseal = |at: usize, byte: u8| {
            let mut blob = some()[0].to_bytes();
            blob[at] = byte;
            let sum = check_sum(&blob[..28]);
            blob[28..].copy_from_slice(&sum.to_be_bytes());
            DatagramAddress::from_bytes(&blob).unwrap_err().to_string()
        };
        assert!(reseal(4, 2).contains("version 2; this library knows 1"), "{}", reseal(4, 2));
        assert!(reseal(5, 9).contains("kind 9"));
        assert!(reseal(0, b'X').contains("FDGA"));
        assert!(reseal(20, 224).contains("no address of one endpoint"));
        assert!(DatagramAddress::from_bytes(&[0; 31]).unwrap_err().to_string().contains("has 32"));
        assert!("ab".parse::<DatagramAddress>().unwrap_err().to_string().contains("64 digits"));
        assert!("zz".repeat(32).parse::<DatagramAddress>().is_err());
    }

    #[test]
    fn what_no_endpoint_has_is_refused() {
        for addr in ["0.0.0.0:7", "[::]:7", "255.255.255.255:7", "224.0.0.1:7", "[ff02::1]:7"] {
            assert!(DatagramAddress::udp(addr.parse().unwrap()).is_err(), "{addr}");
        }
        assert!(DatagramAddress::udp("127.0.0.1:0".parse().unwrap()).is_err());
        assert!(DatagramAddress::udp("[fe80::1]:7".parse().unwrap()).is_err());
        let gid = [7; 16];
        for (lid, number) in [(0, 0), (0, 1), (0, 1 << 24), (0xc000, 7)] {
            assert!(DatagramAddress::ud(gid, lid, number).is_err(), "{lid} {number}");
        }
        assert!(DatagramAddress::ud([0; 16], 0, 7).is_err());
        assert!(DatagramAddress::ud([0xff; 16], 0, 7).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 512 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn bytes_of_anybody_are_refused_or_mean_what_they_say(mut blob: [u8; 32], seal: bool) {
            blob[..5].copy_from_slice(b"FDGA\x01");
            blob[5] %= 5;
            if seal {
                let sum = check_sum(&blob[..28]);
                blob[28..].copy_from_slice(&sum.to_be_bytes());
            }
            if let Ok(address) = DatagramAddress::from_bytes(&blob) {
                prop_assert_eq!(address.to_bytes(), blob);
            }
        }
    }
}
