//! The address of an endpoint: what peers need to reach it, as a value, as bytes and as a text.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::address_error::AddressError;
use crate::identity::{EndpointIdentity, HostIdentity};
use crate::rail::Rail;

/// How every address begins, of whatever version.
const MAGIC: [u8; 4] = *b"FRDM";
/// The version that is written and read. Every version has the magic, its number, and at its end the CRC-32 of what is
/// before that; so a damaged address is never taken for one of another version.
const VERSION: u8 = 1;

/// As many rails as an address may have.
pub const MAX_RAILS: usize = 8;

/// As many bytes as an address may have, whatever version of this library made it.
pub const MAX_ADDRESS_BYTES: usize = 256;

/// What is before the rails.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    magic: [u8; 4],
    version: u8,
    rails: u8,
    identity: [u8; 16],
    host: [u8; 16],
}

const SUM_BYTES: usize = 4;
const _: () = assert!(encoded_len(1) == 64 && encoded_len(MAX_RAILS) <= MAX_ADDRESS_BYTES);

/// As many bytes as an address with so many rails has.
const fn encoded_len(rails: usize) -> usize {
    size_of::<Head>() + rails * size_of::<Rail>() + SUM_BYTES
}

/// The address of an endpoint: its identity, its host, and the rails by which it is reached.
///
/// An application ships it to peers however it likes: 64 bytes with one rail, at most 256; or a text of hexadecimal
/// digits, for files and environment variables. It authenticates no peer: any process can make one.
///
/// ```
/// use fabric_rdm::{Address, HostIdentity, EndpointIdentity};
///
/// let rail = "192.0.2.7:7471".parse()?;
/// let address = Address::new(EndpointIdentity::random()?, HostIdentity::read()?, &[rail])?;
/// assert_eq!(address.to_bytes().len(), 64);
/// assert_eq!(Address::from_bytes(&address.to_bytes())?, address);
/// assert_eq!(address.to_string().parse::<Address>()?, address);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "Vec<u8>", try_from = "Vec<u8>"))]
pub struct Address {
    identity: EndpointIdentity,
    host: HostIdentity,
    rails: Rails,
}

/// At least one. Most endpoints have one: it costs no allocation.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Rails {
    One(Rail),
    Many(Box<[Rail]>),
}

impl Rails {
    fn as_slice(&self) -> &[Rail] {
        match self {
            Rails::One(rail) => std::slice::from_ref(rail),
            Rails::Many(rails) => rails,
        }
    }
}

impl Address {
    /// An address with these rails, in order of preference: 1 to [`MAX_RAILS`]. An IPv4 address that is written as an
    /// IPv6 address becomes one; flow labels are dropped; scope ids stay.
    ///
    /// # Errors
    /// [`AddressError::RailCount`], [`AddressError::Rail`].
    pub fn new(
        identity: EndpointIdentity,
        host: HostIdentity,
        rails: &[SocketAddr],
    ) -> Result<Self, AddressError> {
        check_count(rails.len())?;
        let named = |(rail, addr): (usize, &SocketAddr)| {
            Rail::new(*addr).map_err(|reason| AddressError::Rail { rail, reason })
        };
        let rails = match rails {
            [rail] => Rails::One(named((0, rail))?),
            rails => Rails::Many(rails.iter().enumerate().map(named).collect::<Result<_, _>>()?),
        };
        Ok(Address { identity, host, rails })
    }

    /// The address of an endpoint that listens at `place` and is [named by it](crate::RdmAttr::named_by_place). Of its host
    /// nothing is said.
    ///
    /// # Errors
    /// [`AddressError::Rail`]: no endpoint listens there.
    pub fn of_listener(place: SocketAddr) -> Result<Self, AddressError> {
        let identity = EndpointIdentity::of_listener(place);
        Address::new(identity, HostIdentity::from_bytes([0; 16]), &[place])
    }

    /// The incarnation that is meant.
    pub fn identity(&self) -> EndpointIdentity {
        self.identity
    }

    /// Where it is.
    pub fn host(&self) -> HostIdentity {
        self.host
    }

    /// Where it listens, in order of preference.
    pub fn rails(&self) -> impl ExactSizeIterator<Item = SocketAddr> + '_ {
        self.rails.as_slice().iter().map(Rail::addr)
    }

    /// As bytes: 64 with one rail, 22 more for each further one.
    pub fn to_bytes(&self) -> Vec<u8> {
        let rails = self.rails.as_slice();
        let head = Head {
            magic: MAGIC,
            version: VERSION,
            rails: rails.len() as u8, // at most MAX_RAILS
            identity: self.identity.to_bytes(),
            host: self.host.to_bytes(),
        };
        let mut bytes = Vec::with_capacity(encoded_len(rails.len()));
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(rails.as_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
        bytes
    }

    /// From bytes, all of them: nothing may follow.
    ///
    /// # Errors
    /// What is wrong with them; never a panic, whatever they are. A change of one bit is always noticed, and so is
    /// any within 32 bits.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, AddressError> {
        if bytes.get(..MAGIC.len()).is_some_and(|begin| begin != MAGIC) {
            return Err(AddressError::Magic);
        }
        let (found, expected) = (bytes.len(), encoded_len(1));
        let Ok((head, rest)) = Head::ref_from_prefix(bytes) else {
            return Err(AddressError::Length { found, expected });
        };
        if head.version != VERSION {
            // Of another version no more is known than where its sum is.
            check_sum(bytes)?;
            return Err(AddressError::Version { found: head.version, supported: VERSION });
        }
        let count = usize::from(head.rails);
        let Ok((rails, sum)) = <[Rail]>::ref_from_prefix_with_elems(rest, count) else {
            return Err(AddressError::Length { found, expected: encoded_len(count) });
        };
        if sum.len() != SUM_BYTES {
            return Err(AddressError::Length { found, expected: encoded_len(count) });
        }
        check_sum(bytes)?;
        Self::from_parts(head, rails)
    }

    fn from_parts(head: &Head, rails: &[Rail]) -> Result<Self, AddressError> {
        check_count(rails.len())?;
        for (number, rail) in rails.iter().enumerate() {
            rail.check().map_err(|reason| AddressError::Rail { rail: number, reason })?;
        }
        Ok(Address {
            identity: EndpointIdentity::from_bytes(head.identity),
            host: HostIdentity::from_bytes(head.host),
            rails: match rails {
                [rail] => Rails::One(*rail),
                rails => Rails::Many(rails.into()),
            },
        })
    }
}

/// As it travels by serde.
#[cfg(feature = "serde")]
impl From<Address> for Vec<u8> {
    fn from(address: Address) -> Self {
        address.to_bytes()
    }
}

#[cfg(feature = "serde")]
impl TryFrom<Vec<u8>> for Address {
    type Error = AddressError;

    fn try_from(bytes: Vec<u8>) -> Result<Self, AddressError> {
        Address::from_bytes(&bytes)
    }
}

fn check_count(found: usize) -> Result<(), AddressError> {
    match found {
        1..=MAX_RAILS => Ok(()),
        _ => Err(AddressError::RailCount { found, max: MAX_RAILS }),
    }
}

/// Whether the last bytes are the sum of the others.
fn check_sum(bytes: &[u8]) -> Result<(), AddressError> {
    let Ok((body, sum)) = U32::read_from_suffix(bytes) else {
        return Err(AddressError::Length { found: bytes.len(), expected: encoded_len(1) });
    };
    match (crc32fast::hash(body), sum.get()) {
        (found, expected) if found == expected => Ok(()),
        (found, expected) => Err(AddressError::CheckSum { found, expected }),
    }
}

/// As hexadecimal digits, two for each byte.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({} on {} at ", self.identity, self.host)?;
        f.debug_list().entries(self.rails()).finish()?;
        f.write_str(")")
    }
}

/// From hexadecimal digits, of either case. White space at both ends is ignored, as files and shells add it.
impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let text = text.trim();
        // No address is that long: it takes no memory.
        if text.len() > 2 * MAX_ADDRESS_BYTES {
            let (found, expected) = (text.len() / 2, encoded_len(1));
            return Err(AddressError::Length { found, expected });
        }
        let mut bytes = Vec::with_capacity(text.len() / 2);
        let mut high = None;
        for (position, found) in text.chars().enumerate() {
            let digit = found.to_digit(16).ok_or(AddressError::Digit { position, found })? as u8;
            match high.take() {
                None => high = Some(digit),
                Some(high) => bytes.push(high << 4 | digit),
            }
        }
        match high {
            Some(_) => Err(AddressError::OddDigits { digits: text.len() }),
            None => Self::from_bytes(&bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(rails: &[&str]) -> Address {
        let rails: Vec<_> = rails.iter().map(|rail| rail.parse().unwrap()).collect();
        let (identity, host) =
            (EndpointIdentity::from_bytes([1; 16]), HostIdentity::from_bytes([2; 16]));
        Address::new(identity, host, &rails).unwrap()
    }

    /// With the sum that these bytes should have.
    fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
        let body = bytes.len() - SUM_BYTES;
        let sum = crc32fast::hash(&bytes[..body]);
        bytes[body..].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    #[test]
    fn one_rail_makes_64_bytes() {
        for rail in ["192.0.2.1:7471", "[2001:db8::1]:7471", "[fe80::1%3]:7471"] {
            let address = address(&[rail]);
            assert_eq!(address.to_bytes().len(), 64);
            assert_eq!(address.rails().collect::<Vec<_>>(), [rail.parse().unwrap()]);
        }
        assert!(address(&["192.0.2.1:1"; MAX_RAILS]).to_bytes().len() <= MAX_ADDRESS_BYTES);
        assert!(size_of::<Address>() <= 64, "peers have one each");
    }

    /// The format is fixed: peers of other builds read it.
    #[test]
    fn the_bytes_are_these() {
        let expected = "4652444d0101\
                        01010101010101010101010101010101\
                        02020202020202020202020202020202\
                        00000000000000000000ffffc0000201\
                        1d2f\
                        00000000";
        let text = address(&["192.0.2.1:7471"]).to_string();
        assert_eq!(text[..120], *expected);
    }

    #[test]
    fn places_name_endpoints() {
        let of = |place: &str| Address::of_listener(place.parse().unwrap()).map(|a| a.identity());
        assert_eq!(of("192.0.2.1:7471"), of("[::ffff:192.0.2.1]:7471"));
        assert_eq!(of("[fe80::1%3]:7471"), of("[fe80::1%5]:7471"));
        assert_ne!(of("192.0.2.1:7471"), of("192.0.2.1:7472"));
        assert_ne!(of("192.0.2.1:7471"), of("192.0.2.2:7471"));
        assert!(of("192.0.2.1:0").is_err());
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut bytes = address(&["192.0.2.1:7471"]).to_bytes();
        bytes[4] = 2;
        assert!(matches!(Address::from_bytes(&bytes), Err(AddressError::CheckSum { .. })));
        bytes.extend([0; 40]); // as long as that version likes
        let error = Address::from_bytes(&summed(bytes));
        assert_eq!(error, Err(AddressError::Version { found: 2, supported: 1 }));
    }

    #[test]
    fn what_is_cut_off_or_followed_is_refused() {
        let bytes = address(&["192.0.2.1:7471", "[2001:db8::1]:1"]).to_bytes();
        for len in 0..bytes.len() {
            let error = Address::from_bytes(&bytes[..len]).unwrap_err();
            assert!(matches!(error, AddressError::Length { found, .. } if found == len), "{error}");
        }
        let followed = [&bytes[..], &[0]].concat();
        let error = Address::from_bytes(&followed);
        assert_eq!(error, Err(AddressError::Length { found: 87, expected: 86 }));
        let error = Address::from_bytes(&summed([&bytes[..], &[0; 22]].concat()));
        assert_eq!(error, Err(AddressError::Length { found: 108, expected: 86 }));
    }

    #[test]
    fn rails_are_checked_on_both_ways() {
        let (identity, host) =
            (EndpointIdentity::from_bytes([1; 16]), HostIdentity::from_bytes([2; 16]));
        let new = |rails: &[SocketAddr]| Address::new(identity, host, rails);
        let good = SocketAddr::from(([192, 0, 2, 1], 1));
        let bad = SocketAddr::from(([192, 0, 2, 1], 0));
        assert!(matches!(new(&[good, bad]), Err(AddressError::Rail { rail: 1, .. })));
        assert_eq!(new(&[]), Err(AddressError::RailCount { found: 0, max: MAX_RAILS }));
        assert_eq!(new(&[good; 9]), Err(AddressError::RailCount { found: 9, max: MAX_RAILS }));
        let mut bytes = new(&[good]).unwrap().to_bytes();
        bytes[54..56].fill(0); // the port
        let error = Address::from_bytes(&summed(bytes)).unwrap_err();
        assert!(matches!(error, AddressError::Rail { rail: 0, .. }), "{error}");
        let mut none = address(&["192.0.2.1:1"]).to_bytes();
        none[5] = 0;
        none.truncate(42);
        let error = Address::from_bytes(&summed(none));
        assert_eq!(error, Err(AddressError::RailCount { found: 0, max: MAX_RAILS }));
    }

    #[test]
    fn a_text_survives_files_and_shells() {
        let address = address(&["192.0.2.1:7471"]);
        let text = address.to_string();
        assert_eq!(text.len(), 128);
        assert_eq!(format!(" {}\n", text.to_uppercase()).parse(), Ok(address));
        let error = |text: &str| text.parse::<Address>().unwrap_err();
        assert_eq!(
            error(&text.replacen("01", "0x", 1)),
            AddressError::Digit { position: 9, found: 'x' }
        );
        assert_eq!(error(&text[..127]), AddressError::OddDigits { digits: 127 });
        assert!(matches!(error(&text[..126]), AddressError::Length { found: 63, expected: 64 }));
        assert!(matches!(error(""), AddressError::Length { found: 0, .. }));
        assert_eq!(error("00112233"), AddressError::Magic);
        assert!(matches!(error(&text.repeat(5)), AddressError::Length { found: 320, .. }));
        assert_eq!(error("é"), AddressError::Digit { position: 0, found: 'é' });
    }

    fn any_rail() -> impl Strategy<Value = SocketAddr> {
        let v4 = (any::<[u8; 4]>(), 1..=u16::MAX).prop_map(SocketAddr::from);
        let v6 = (any::<[u8; 16]>(), 1..=u16::MAX, any::<u32>()).prop_map(|(ip, port, scope)| {
            std::net::SocketAddrV6::new(ip.into(), port, 0, scope).into()
        });
        prop_oneof![v4, v6].prop_filter("can be connected to", |addr| Rail::new(*addr).is_ok())
    }

    prop_compose! {
        fn any_address()(
            identity: [u8; 16],
            host: [u8; 16],
            rails in proptest::collection::vec(any_rail(), 1..=MAX_RAILS),
        ) -> Address {
            let (identity, host) = (EndpointIdentity::from_bytes(identity), HostIdentity::from_bytes(host));
            Address::new(identity, host, &rails).unwrap()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn blob_round_trip(address in any_address()) {
            let bytes = address.to_bytes();
            prop_assert!(bytes.len() <= MAX_ADDRESS_BYTES);
            prop_assert_eq!(Address::from_bytes(&bytes), Ok(address.clone()));
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        /// Every single one.
        #[test]
        fn blob_bit_flip(address in any_address()) {
            let mut bytes = address.to_bytes();
            for bit in 0..8 * bytes.len() {
                bytes[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(Address::from_bytes(&bytes).is_err(), "bit {}", bit);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }

        #[test]
        fn any_bytes_are_an_address_or_an_error(bytes: Vec<u8>, version: u8, rails: u8) {
            let _ = Address::from_bytes(&bytes);
            let begun = [&MAGIC[..], &[version, rails], &bytes].concat();
            let _ = Address::from_bytes(&begun);
            if let Ok(address) = Address::from_bytes(&summed(begun)) {
                let _ = address.to_string();
            }
        }

        #[test]
        fn any_text_is_an_address_or_an_error(text: String) {
            let _ = text.parse::<Address>();
        }
    }
}
