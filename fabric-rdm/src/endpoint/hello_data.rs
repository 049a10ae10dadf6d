//! What connection requests, acceptances and refusals carry: [`Hello`] and [`Refusal`] in the private data of `fabric`.
//!
//! A request has 48 bytes. So it has half of the identity that is meant, which is random like all of it, and the lower 48 bits
//! of numbers that count messages and attempts.

use std::time::Duration;

use fabric_core::info::{MAX_ACCEPT_DATA, MAX_CONNECT_DATA, MAX_REJECT_DATA};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::attr::MIN_SLOT;
use crate::connection::{Hello, Refusal};
use crate::identity::EndpointIdentity;

/// The version of the protocol, of requests and of all that connections carry.
const VERSION: u8 = 2;

const FORCE: u8 = 1;

/// A number below 2^48.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Low48 {
    high: U16,
    low: U32,
}

const LOW: u64 = (1 << 48) - 1;

impl Low48 {
    fn new(number: u64) -> Self {
        Low48 { high: U16::new((number >> 32) as u16), low: U32::new(number as u32) }
    }

    fn get(self) -> u64 {
        u64::from(self.high.get()) << 32 | u64::from(self.low.get())
    }

    /// The number with these lower bits that is nearest to one that is known.
    fn near(self, known: u64) -> u64 {
        let difference = self.get().wrapping_sub(known) & LOW;
        if difference <= LOW / 2 {
            known.saturating_add(difference)
        } else {
            known.saturating_sub(LOW + 1 - difference)
        }
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHello {
    version: u8,
    flags: u8,
    from: [u8; 16],
    to: [u8; 8],
    life: U32,
    session: Low48,
    sent: Low48,
    received: Low48,
}

/// What each side says of its receive window beside that.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawWindows {
    places: U64,
    bytes: U64,
    slot_len: U64,
}

const _: () = assert!(size_of::<RawHello>() == MAX_CONNECT_DATA);
const _: () = assert!(size_of::<RawHello>() + size_of::<RawWindows>() <= MAX_ACCEPT_DATA);
const _: () = assert!(size_of::<RawRefusal>() <= MAX_REJECT_DATA);

/// How much one peer may have of a receiver's places and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    pub(super) places: u64,
    pub(super) bytes: u64,
    /// Bytes of a frame that it takes.
    pub(super) slot_len: u64,
}

impl Windows {
    pub(super) const BYTES: usize = size_of::<RawWindows>();

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let raw = RawWindows {
            places: self.places.into(),
            bytes: self.bytes.into(),
            slot_len: self.slot_len.into(),
        };
        zerocopy::transmute!(raw)
    }

    /// `None`: no receiver has such windows.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let raw = RawWindows::ref_from_bytes(bytes).ok()?;
        let (places, bytes, slot_len) = (raw.places.get(), raw.bytes.get(), raw.slot_len.get());
        let is_sane = (1..=u32::MAX.into()).contains(&places)
            && bytes <= i64::MAX as u64
            && slot_len >= MIN_SLOT.into();
        is_sane.then_some(Windows { places, bytes, slot_len })
    }
}

fn short(identity: EndpointIdentity) -> [u8; 8] {
    let mut short = [0; 8];
    short.copy_from_slice(&identity.to_bytes()[..8]);
    short
}

/// What is known when a hello is read: who reads it, and the numbers that the peer's should be.
pub(super) struct Known {
    pub(super) me: EndpointIdentity,
    pub(super) attempts: u64,
    pub(super) sent: u64,
    pub(super) received: u64,
}

/// The private data of a request.
pub(super) fn encode_hello(hello: &Hello) -> [u8; MAX_CONNECT_DATA] {
    let raw = RawHello {
        version: VERSION,
        flags: if hello.force { FORCE } else { 0 },
        from: hello.from.to_bytes(),
        to: short(hello.to),
        life: hello.life.into(),
        session: Low48::new(hello.session),
        sent: Low48::new(hello.sent),
        received: Low48::new(hello.received),
    };
    zerocopy::transmute!(raw)
}

/// The identity of the side that asks, by the private data of a request. `None`: that is of another program, or another version.
pub(super) fn asking(data: &[u8]) -> Option<EndpointIdentity> {
    let raw = RawHello::ref_from_bytes(data).ok()?;
    (raw.version == VERSION && raw.flags & !FORCE == 0)
        .then(|| EndpointIdentity::from_bytes(raw.from))
}

/// Whether a request is meant for this identity: the address may be that of an earlier incarnation.
pub(super) fn is_for(me: EndpointIdentity, data: &[u8]) -> bool {
    RawHello::ref_from_bytes(data).is_ok_and(|raw| raw.to == short(me))
}

/// What the private data of a request says. `None` as for [`asking`].
pub(super) fn decode_hello(data: &[u8], known: &Known) -> Option<Hello> {
    let from = asking(data)?;
    let raw = RawHello::ref_from_bytes(data).ok()?;
    // One that is meant for another identity is answered so; which one does not matter.
    let to = if raw.to == short(known.me) { known.me } else { from };
    Some(Hello {
        from,
        to,
        session: raw.session.near(known.attempts),
        life: raw.life.get(),
        force: raw.flags & FORCE != 0,
        // The peer has received what was sent here, and the other way round.
        sent: raw.sent.near(known.received),
        received: raw.received.near(known.sent),
    })
}

/// The private data of an acceptance.
pub(super) fn encode_acceptance(hello: &Hello, windows: Windows) -> Vec<u8> {
    [&encode_hello(hello)[..], &windows.to_bytes()].concat()
}

/// What the private data of an acceptance says.
pub(super) fn decode_acceptance(data: &[u8], known: &Known) -> Option<(Hello, Windows)> {
    let (hello, windows) = data.split_at_checked(MAX_CONNECT_DATA)?;
    Some((decode_hello(hello, known)?, Windows::from_bytes(windows)?))
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRefusal {
    version: u8,
    kind: u8,
    zero: [u8; 6],
    number: U64,
}

/// The private data of a refusal.
pub(super) fn encode_refusal(refusal: Refusal) -> Vec<u8> {
    let (kind, number) = match refusal {
        Refusal::Crossing => (1, 0),
        Refusal::Gone => (2, 0),
        Refusal::Over(life) => (3, u64::from(life)),
        Refusal::Stale(session) => (4, session),
        Refusal::Stranger => (5, 0),
        Refusal::Busy(wait) => (6, wait.as_micros() as u64),
    };
    let raw = RawRefusal { version: VERSION, kind, zero: [0; 6], number: number.into() };
    raw.as_bytes().to_vec()
}

/// What the private data of a refusal says. `None`: it is of another program, or another version.
pub(super) fn decode_refusal(data: &[u8]) -> Option<Refusal> {
    let raw = RawRefusal::ref_from_bytes(data).ok()?;
    let number = raw.number.get();
    if raw.version != VERSION || raw.zero != [0; 6] {
        return None;
    }
    match (raw.kind, number) {
        (1, 0) => Some(Refusal::Crossing),
        (2, 0) => Some(Refusal::Gone),
        (3, life) => u32::try_from(life).ok().map(Refusal::Over),
        (4, session) => Some(Refusal::Stale(session)),
        (5, 0) => Some(Refusal::Stranger),
        (6, micros) => Some(Refusal::Busy(Duration::from_micros(micros))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn identity(bytes: [u8; 16]) -> EndpointIdentity {
        EndpointIdentity::from_bytes(bytes)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn hellos_come_back(
            from in any::<[u8; 16]>(),
            to in any::<[u8; 16]>(),
            session in 0..u64::MAX >> 1,
            sent in 0..u64::MAX >> 1,
            received in 0..u64::MAX >> 1,
            life in any::<u32>(),
            force in any::<bool>(),
            off in 0..1u64 << 40,
        ) {
            let (from, to) = (identity(from), identity(to));
            let hello = Hello { from, to, session, life, force, sent, received };
            let data = encode_hello(&hello);
            prop_assert_eq!(asking(&data), Some(from));
            // What is known is near, before or behind.
            for (attempts, known_sent, known_received) in [
                (session + off, received + off, sent + off),
                (session.saturating_sub(off), received.saturating_sub(off), sent.saturating_sub(off)),
            ] {
                let known = Known { me: to, attempts, sent: known_sent, received: known_received };
                prop_assert_eq!(decode_hello(&data, &known), Some(hello));
                let windows = Windows { places: 64, bytes: 1 << 20, slot_len: 4096 };
                let acceptance = encode_acceptance(&hello, windows);
                prop_assert!(acceptance.len() <= MAX_ACCEPT_DATA);
                prop_assert_eq!(decode_acceptance(&acceptance, &known), Some((hello, windows)));
            }
            let other = Known { me: identity([0x5a; 16]), attempts: session, sent: received, received: sent };
            prop_assume!(to != other.me);
            prop_assert_ne!(decode_hello(&data, &other).map(|hello| hello.to), Some(other.me));
        }

        #[test]
        fn any_data_is_a_hello_or_not(data: Vec<u8>, version in 0..3u8) {
            let known = Known { me: identity([1; 16]), attempts: 0, sent: 0, received: 0 };
            let mut begun = data;
            begun.insert(0, version);
            begun.truncate(MAX_ACCEPT_DATA);
            let _ = (decode_hello(&begun, &known), decode_acceptance(&begun, &known), decode_refusal(&begun));
            begun.resize(MAX_CONNECT_DATA, 0);
            let hello = decode_hello(&begun, &known);
            prop_assert_eq!(hello.is_some(), version == VERSION && begun[1] <= 1);
        }
    }

    #[test]
    fn refusals_come_back() {
        for refusal in [
            Refusal::Crossing,
            Refusal::Gone,
            Refusal::Over(7),
            Refusal::Stale(1 << 50),
            Refusal::Stranger,
            Refusal::Busy(Duration::ZERO),
            Refusal::Busy(Duration::from_micros(u64::MAX)),
        ] {
            let data = encode_refusal(refusal);
            assert!(data.len() <= MAX_REJECT_DATA);
            assert_eq!(decode_refusal(&data), Some(refusal));
            assert_eq!(decode_refusal(&data[1..]), None);
        }
        assert_eq!(decode_refusal(&[]), None);
    }

    #[test]
    fn windows_that_no_receiver_has_are_refused() {
        for (places, bytes, slot_len) in
            [(0, 1, 512), (1 << 32, 1, 512), (1, 1 << 63, 512), (1, 1, 511)]
        {
            let windows = Windows { places, bytes, slot_len };
            assert_eq!(Windows::from_bytes(&windows.to_bytes()), None);
        }
    }
}
