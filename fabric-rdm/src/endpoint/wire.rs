//! What connections carry: the format of messages and of what controls them, each one send of `fabric`.
//!
//! Every frame begins with its kind. Numbers are little-endian. What is not as it should be is a [`WireError`]: no honest peer
//! sends it, and the connection ends.

use fabric_core::{RemoteRegion, cold_path, unlikely};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::address::MAX_ADDRESS_BYTES;
use crate::window::{Allowance, Grant, Notice, Notices};

/// The peer breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WireError;

/// As many bytes as are before the payload of a message.
pub(super) const HEAD: usize = size_of::<RawHead>();
/// As many bytes as are before the bytes of a [`Frame::Data`].
pub(super) const DATA_HEAD: usize = size_of::<RawNumber>();
/// The most that is sent by copying it into the operation.
pub(super) const MAX_INJECT: usize = 256;
/// Every frame but those with payload has at most so many bytes.
pub(super) const MAX_CONTROL: usize = size_of::<RawNumber>() + 24 + MAX_ADDRESS_BYTES;

/// What is known of a message before its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageHead {
    /// Among the messages of its sender, within a life of the pair.
    pub(super) number: u64,
    pub(super) tag: Option<u64>,
    pub(super) immediate: Option<u32>,
    pub(super) len: u64,
    /// The sender waits until it has met a receive.
    pub(super) matched: bool,
    pub(super) way: Way,
}

/// How the payload of a message comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Behind the head.
    Whole,
    /// In pieces, which follow without a request.
    Pieces,
    /// It stays at the sender until it is fetched.
    Fetched,
    /// The same, and it can be read there.
    Offered(RemoteRegion),
}

/// A frame, less the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The first one of the initiator: the connection is confirmed. The address of the initiator follows.
    Confirm,
    /// A message; with [`Way::Whole`] its payload follows.
    Message(MessageHead),
    /// The next bytes of the message with this number, which follow.
    Data(u64),
    /// The payload of the message with this number is wanted.
    Fetch(u64),
    /// The payload of the message with this number can be read there.
    Offer(u64, RemoteRegion),
    /// The payload of the message with this number was read, or is not wanted.
    Done(u64),
    /// The message with this number has met a receive.
    Matched(u64),
    /// What may be sent.
    Grant(Grant),
    /// What is not used, and what is wanted.
    Notice(Notices),
    /// Nothing comes after it on this connection. So many places of messages that came are free again.
    Park(u64),
}

const CONFIRM: u8 = 1;
const MESSAGE: u8 = 2;
const DATA: u8 = 3;
const FETCH: u8 = 4;
const OFFER: u8 = 5;
const DONE: u8 = 6;
const MATCHED: u8 = 7;
const GRANT: u8 = 8;
const NOTICE: u8 = 9;
const PARK: u8 = 10;

/// Flags of a message.
const TAGGED: u8 = 1;
const IMMEDIATE: u8 = 1 << 1;
const WANTS_MATCHED: u8 = 1 << 2;
const PIECES: u8 = 1 << 3;
const FETCHED: u8 = 1 << 4;
const OFFERED: u8 = 1 << 5;
const ALL_FLAGS: u8 = TAGGED | IMMEDIATE | WANTS_MATCHED | PIECES | FETCHED | OFFERED;

/// Flags of a grant or a notice: recall, or wants, of places and of bytes.
const PLACES: u8 = 1;
const BYTES: u8 = 1 << 1;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    kind: u8,
    flags: u8,
    zero: [u8; 2],
    immediate: U32,
    number: U64,
    tag: U64,
    len: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawNumber {
    kind: u8,
    flags: u8,
    zero: [u8; 6],
    number: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawFlow {
    kind: u8,
    flags: u8,
    zero: [u8; 6],
    numbers: [U64; 4],
}

/// The bytes of a frame, on the stack, with room for a payload that is copied behind them.
pub(super) struct Encoded {
    bytes: [u8; MAX_INJECT],
    len: usize,
}

const _: () = assert!(HEAD + RemoteRegion::BYTES <= MAX_INJECT);
const _: () = assert!(size_of::<RawFlow>() <= MAX_INJECT);

impl Encoded {
    fn new(parts: [&[u8]; 2]) -> Self {
        let mut encoded = Encoded { bytes: [0; MAX_INJECT], len: 0 };
        for part in parts {
            encoded.room(part.len()).copy_from_slice(part);
        }
        encoded
    }

    /// The next bytes of it.
    ///
    /// # Panics
    /// If there are more than [`MAX_INJECT`].
    #[inline]
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        let start = self.len;
        self.len += len;
        &mut self.bytes[start..self.len]
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Frame {
    #[inline]
    pub(super) fn encode(&self) -> Encoded {
        if let Frame::Message(head) = self { head.encode() } else { self.encode_control() }
    }

    #[inline(never)] // not to be in the way of messages
    fn encode_control(&self) -> Encoded {
        let number =
            |kind, number: u64| RawNumber { kind, flags: 0, zero: [0; 6], number: number.into() };
        let one = |raw: RawNumber| Encoded::new([raw.as_bytes(), &[]]);
        match *self {
            Frame::Confirm => one(number(CONFIRM, 0)),
            Frame::Message(head) => head.encode(),
            Frame::Data(of) => one(number(DATA, of)),
            Frame::Fetch(of) => one(number(FETCH, of)),
            Frame::Offer(of, remote) => {
                Encoded::new([number(OFFER, of).as_bytes(), &remote.to_bytes()])
            }
            Frame::Done(of) => one(number(DONE, of)),
            Frame::Matched(of) => one(number(MATCHED, of)),
            Frame::Grant(Grant { places, bytes }) => {
                let flags = flags(places.recall, bytes.recall);
                let numbers = [places.granted, places.freed, bytes.granted, bytes.freed];
                flow(GRANT, flags, numbers)
            }
            Frame::Notice(Notices { places, bytes }) => {
                flow(NOTICE, flags(places.wants, bytes.wants), [places.unused, bytes.unused, 0, 0])
            }
            Frame::Park(freed) => one(number(PARK, freed)),
        }
    }

    /// Reads what is at the beginning of `bytes`; says how many of them that were. What follows is payload.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Frame, usize), WireError> {
        match bytes.first() {
            Some(&MESSAGE) => {
                let (raw, rest) = RawHead::ref_from_prefix(bytes).map_err(|_| WireError)?;
                let head = MessageHead::from_raw(raw, rest)?;
                let offer = if let Way::Offered(_) = head.way { RemoteRegion::BYTES } else { 0 };
                Ok((Frame::Message(head), HEAD + offer))
            }
            kind => Self::decode_control(kind, bytes),
        }
    }

    #[inline(never)] // not to be in the way of messages
    fn decode_control(kind: Option<&u8>, bytes: &[u8]) -> Result<(Frame, usize), WireError> {
        match kind {
            Some(&GRANT | &NOTICE) => {
                let (raw, _) = RawFlow::ref_from_prefix(bytes).map_err(|_| WireError)?;
                Ok((from_flow(raw)?, size_of::<RawFlow>()))
            }
            _ => {
                let (raw, rest) = RawNumber::ref_from_prefix(bytes).map_err(|_| WireError)?;
                let taken = size_of::<RawNumber>();
                if raw.flags != 0 || raw.zero != [0; 6] {
                    return Err(WireError);
                }
                let number = raw.number.get();
                let frame = match raw.kind {
                    CONFIRM if number == 0 => Frame::Confirm,
                    DATA => Frame::Data(number),
                    FETCH => Frame::Fetch(number),
                    OFFER => {
                        let frame = Frame::Offer(number, offer(rest)?);
                        return Ok((frame, taken + RemoteRegion::BYTES));
                    }
                    DONE => Frame::Done(number),
                    MATCHED => Frame::Matched(number),
                    PARK => Frame::Park(number),
                    _ => return Err(WireError),
                };
                Ok((frame, taken))
            }
        }
    }

    /// Whether payload may follow.
    pub(super) fn has_payload(&self) -> bool {
        match self {
            Frame::Confirm | Frame::Data(_) => true,
            Frame::Message(head) => head.way == Way::Whole,
            _ => false,
        }
    }
}

impl MessageHead {
    #[inline]
    fn encode(self) -> Encoded {
        let raw = self.to_raw();
        match self.way {
            Way::Offered(remote) => {
                cold_path();
                Encoded::new([raw.as_bytes(), &remote.to_bytes()])
            }
            _ => Encoded::new([raw.as_bytes(), &[]]),
        }
    }

    fn to_raw(self) -> RawHead {
        let flag = |is: bool, flag| if is { flag } else { 0 };
        let flags = flag(self.tag.is_some(), TAGGED)
            | flag(self.immediate.is_some(), IMMEDIATE)
            | flag(self.matched, WANTS_MATCHED)
            | flag(self.way == Way::Pieces, PIECES)
            | flag(self.way == Way::Fetched, FETCHED)
            | flag(matches!(self.way, Way::Offered(_)), OFFERED);
        RawHead {
            kind: MESSAGE,
            flags,
            zero: [0; 2],
            immediate: self.immediate.unwrap_or(0).into(),
            number: self.number.into(),
            tag: self.tag.unwrap_or(0).into(),
            len: self.len.into(),
        }
    }

    fn from_raw(raw: &RawHead, rest: &[u8]) -> Result<Self, WireError> {
        let (flags, tag, immediate) = (raw.flags, raw.tag.get(), raw.immediate.get());
        let (tagged, immediates) = (flags & TAGGED != 0, flags & IMMEDIATE != 0);
        let is_clean = (raw.zero == [0; 2])
            & (flags & !ALL_FLAGS == 0)
            & (tagged | (tag == 0))
            & (immediates | (immediate == 0));
        if unlikely(!is_clean) {
            return Err(WireError);
        }
        Ok(MessageHead {
            number: raw.number.get(),
            tag: tagged.then_some(tag),
            immediate: immediates.then_some(immediate),
            len: raw.len.get(),
            matched: flags & WANTS_MATCHED != 0,
            way: match flags & (PIECES | FETCHED | OFFERED) {
                0 => Way::Whole,
                PIECES => Way::Pieces,
                FETCHED => Way::Fetched,
                OFFERED => Way::Offered(offer(rest)?),
                _ => {
                    cold_path();
                    return Err(WireError);
                }
            },
        })
    }
}

fn offer(rest: &[u8]) -> Result<RemoteRegion, WireError> {
    let bytes = rest.get(..RemoteRegion::BYTES).ok_or(WireError)?;
    RemoteRegion::from_bytes(bytes).map_err(|_| WireError)
}

fn flags(places: bool, bytes: bool) -> u8 {
    let flag = |is: bool, flag| if is { flag } else { 0 };
    flag(places, PLACES) | flag(bytes, BYTES)
}

fn flow(kind: u8, flags: u8, numbers: [u64; 4]) -> Encoded {
    let raw = RawFlow { kind, flags, zero: [0; 6], numbers: numbers.map(U64::new) };
    Encoded::new([raw.as_bytes(), &[]])
}

fn from_flow(raw: &RawFlow) -> Result<Frame, WireError> {
    if raw.flags & !(PLACES | BYTES) != 0 || raw.zero != [0; 6] {
        return Err(WireError);
    }
    let [a, b, c, d] = raw.numbers.map(U64::get);
    let (places, bytes) = (raw.flags & PLACES != 0, raw.flags & BYTES != 0);
    match raw.kind {
        GRANT => Ok(Frame::Grant(Grant {
            places: Allowance { granted: a, freed: b, recall: places },
            bytes: Allowance { granted: c, freed: d, recall: bytes },
        })),
        _ if (c, d) == (0, 0) => Ok(Frame::Notice(Notices {
            places: Notice { unused: a, wants: places },
            bytes: Notice { unused: b, wants: bytes },
        })),
        _ => Err(WireError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric_core::Access;
    use proptest::prelude::*;

    fn any_frame() -> impl Strategy<Value = Frame> {
        let offered = (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(key, base, len)| {
            Way::Offered(RemoteRegion::from_parts(
                key,
                base.into(),
                len.into(),
                Access::REMOTE_READ,
            ))
        });
        let way = prop_oneof![Just(Way::Whole), Just(Way::Pieces), Just(Way::Fetched), offered];
        let head = (
            any::<u64>(),
            any::<Option<u64>>(),
            any::<Option<u32>>(),
            any::<u64>(),
            any::<bool>(),
            way,
        );
        let head = head.prop_map(|(number, tag, immediate, len, matched, way)| {
            Frame::Message(MessageHead { number, tag, immediate, len, matched, way })
        });
        let allowance = || {
            (any::<u64>(), any::<u64>(), any::<bool>())
                .prop_map(|(granted, freed, recall)| Allowance { granted, freed, recall })
        };
        let notice =
            || (any::<u64>(), any::<bool>()).prop_map(|(unused, wants)| Notice { unused, wants });
        let offer = (any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>()).prop_map(
            |(number, key, base, len)| {
                let (base, len) = (u64::from(base), u64::from(len));
                Frame::Offer(number, RemoteRegion::from_parts(key, base, len, Access::REMOTE_READ))
            },
        );
        prop_oneof![
            Just(Frame::Confirm),
            head,
            any::<u64>().prop_map(Frame::Data),
            any::<u64>().prop_map(Frame::Fetch),
            offer,
            any::<u64>().prop_map(Frame::Done),
            any::<u64>().prop_map(Frame::Matched),
            (allowance(), allowance())
                .prop_map(|(places, bytes)| Frame::Grant(Grant { places, bytes })),
            (notice(), notice())
                .prop_map(|(places, bytes)| Frame::Notice(Notices { places, bytes })),
            any::<u64>().prop_map(Frame::Park),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn frames_come_back(frame in any_frame(), payload: Vec<u8>) {
            let encoded = frame.encode();
            prop_assert!(encoded.as_bytes().len() <= MAX_CONTROL);
            let bytes = [encoded.as_bytes(), &payload].concat();
            prop_assert_eq!(Frame::decode(&bytes), Ok((frame, encoded.as_bytes().len())));
            for len in 0..encoded.as_bytes().len() {
                prop_assert!(Frame::decode(&bytes[..len]).is_err());
            }
        }

        /// What is read is what would be written: there are no two ways to say one thing.
        #[test]
        fn any_bytes_are_a_frame_or_an_error(kind in 0..12u8, rest: Vec<u8>) {
            let bytes = [&[kind][..], &rest].concat();
            if let Ok((frame, len)) = Frame::decode(&bytes) {
                let encoded = frame.encode();
                prop_assert_eq!(encoded.as_bytes(), &bytes[..len]);
            }
        }
    }
}
