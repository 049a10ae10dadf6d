//! Data frames.

use fabric_core::{AtomicCall, AtomicOp, AtomicType, RemoteAddr, Status, atomic};
use zerocopy::IntoBytes;

use super::malformed::{Malformed, u32_at, u64_at};

/// The bytes every frame begins with.
pub const BASE: usize = 24;
/// The longest header.
pub const MAX_HEADER: usize = BASE + 32;
/// The most payload bytes of one frame.
pub const MAX_PAYLOAD: u32 = 1 << 20;
/// The most bytes of one message.
pub const MAX_MESSAGE: u32 = 1 << 30;

pub(super) const IMMEDIATE: u8 = 1;
const LAST: u8 = 2;
const MORE: u8 = 4;
pub(super) const ASK: u8 = 8;

/// What a frame is, with the fields of its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// The first fragment of a send.
    Send {
        /// Bytes of the whole message.
        total: u32,
        /// Immediate data.
        imm: Option<u32>,
    },
    /// The first fragment of a write.
    Write {
        /// Bytes of the whole message.
        total: u32,
        /// Immediate data.
        imm: Option<u32>,
        /// Where to.
        to: RemoteAddr,
    },
    /// A read of `len` bytes.
    Read {
        /// Where from.
        from: RemoteAddr,
    },
    /// An atomic operation.
    Atomic {
        /// Where.
        at: RemoteAddr,
        /// Which.
        call: AtomicCall,
        /// Whether the old value is asked for.
        fetch: bool,
    },
    /// The next fragment of the message begun.
    Data {
        /// Whether others follow.
        more: bool,
    },
    /// A chunk of a read's answer.
    ReadData {
        /// Whether it is the last one.
        last: bool,
    },
    /// The answer to a fetching atomic.
    OldValue,
    /// Nothing but ack and credit.
    Ack,
    /// The request failed.
    Nak {
        /// `TooLong`, `RemoteAccess` or `Internal`.
        status: Status,
    },
    /// Orderly end.
    Bye,
    /// There is no shared receive for this request now: nothing of it or behind it is executed, and all of that is to be sent
    /// again, but not before `Ready`.
    NotReady,
    /// The answer to `NotReady`: what comes behind is new, or comes again.
    Resume,
    /// There may be a receive now.
    Ready,
    /// The next fragment of the send begun is not in the stream: the target takes it from there by itself.
    Lent {
        /// Where from.
        from: RemoteAddr,
        /// Whether others follow.
        more: bool,
    },
}

impl Kind {
    /// Whether it is of a request, or a part of one.
    pub fn is_request(&self) -> bool {
        matches!(
            self,
            Kind::Send { .. }
                | Kind::Write { .. }
                | Kind::Read { .. }
                | Kind::Atomic { .. }
                | Kind::Data { .. }
                | Kind::Lent { .. }
        )
    }
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// Whether the sender waits for word that the requests until here are accepted. Of sends, writes, atomics and
    /// acknowledgements.
    pub ask: bool,
    /// Payload bytes; for a read, bytes asked for; of what is lent, bytes that are there.
    pub len: u32,
    /// Requests that the sender has accepted.
    pub ack: u32,
    /// Receives that the sender has posted; all bits set if it shares a queue of them, so that no credit is needed.
    pub credit: u32,
    /// The request's number.
    pub seq: u32,
}

/// The number of a send, and the bytes of its header.
pub(super) const SEND: u8 = 1;
pub(super) const SEND_HEADER: usize = BASE + 8;

fn code(kind: &Kind) -> u8 {
    match kind {
        Kind::Send { .. } => SEND,
        Kind::Write { .. } => 2,
        Kind::Read { .. } => 3,
        Kind::Atomic { .. } => 4,
        Kind::Data { .. } => 5,
        Kind::ReadData { .. } => 6,
        Kind::OldValue => 7,
        Kind::Ack => 8,
        Kind::Nak { .. } => 9,
        Kind::Bye => 10,
        Kind::NotReady => 11,
        Kind::Resume => 12,
        Kind::Ready => 13,
        Kind::Lent { .. } => 14,
    }
}

/// What the header of a kind of frame may have.
struct Rules {
    /// Bytes of the whole header.
    size: u8,
    flags: u8,
    /// Bits of the fields `a` and `b`.
    ab: [u8; 2],
    /// The smallest and the largest length.
    len: [u32; 2],
}

/// By the number of the kind, from 1 on.
const RULES: [Rules; 14] = {
    const fn rules(fields: usize, flags: u8, ab: [u8; 2], len: [u32; 2]) -> Rules {
        Rules { size: (BASE + fields) as u8, flags, ab, len }
    }
    const ALL: u8 = u8::MAX;
    [
        rules(8, IMMEDIATE | MORE | ASK, [0, 0], [0, MAX_PAYLOAD]),
        rules(24, IMMEDIATE | MORE | ASK, [0, 0], [0, MAX_PAYLOAD]),
        rules(16, 0, [0, 0], [0, MAX_MESSAGE]),
        rules(32, LAST | ASK, [ALL, ALL], [0, 0]),
        rules(0, MORE, [0, 0], [0, MAX_PAYLOAD]),
        rules(0, LAST, [0, 0], [0, MAX_PAYLOAD]),
        rules(0, 0, [0, 0], [8, 8]),
        rules(0, ASK, [0, 0], [0, 0]),
        rules(0, 0, [ALL, 0], [0, 0]),
        rules(0, 0, [0, 0], [0, 0]),
        rules(0, 0, [0, 0], [0, 0]),
        rules(0, 0, [0, 0], [0, 0]),
        rules(0, 0, [0, 0], [0, 0]),
        rules(16, MORE, [0, 0], [1, MAX_PAYLOAD]),
    ]
};

#[inline]
fn rules(kind: u8) -> Option<&'static Rules> {
    RULES.get(usize::from(kind).wrapping_sub(1))
}

/// Bytes of the header of a frame of this kind; `None` for an unknown kind.
pub fn header_len(kind: u8) -> Option<usize> {
    rules(kind).map(|rules| rules.size.into())
}

impl Header {
    /// Payload bytes that follow the header.
    pub fn payload(&self) -> u32 {
        if matches!(self.kind, Kind::Read { .. } | Kind::Lent { .. }) { 0 } else { self.len }
    }

    /// Appends the header's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; MAX_HEADER];
        let len = self.write(&mut bytes);
        out.extend_from_slice(&bytes[..len]);
    }

    /// Writes the header's bytes to the beginning of `out`; says how many they are. Where the kind is known, code for it alone.
    #[inline(always)]
    pub fn write(&self, out: &mut [u8; MAX_HEADER]) -> usize {
        let (mut flags, mut a, mut b, mut immediate) = (0, 0, 0, 0);
        match self.kind {
            Kind::Send { total, imm } | Kind::Write { total, imm, .. } => {
                if let Some(value) = imm {
                    flags |= IMMEDIATE;
                    immediate = value;
                }
                if total > self.len {
                    flags |= MORE;
                }
            }
            Kind::Atomic { call, fetch, .. } => {
                (a, b) = (call.op as u8, call.ty as u8);
                flags = if fetch { LAST } else { 0 };
            }
            Kind::Data { more } | Kind::Lent { more, .. } => flags = if more { MORE } else { 0 },
            Kind::ReadData { last } => flags = if last { LAST } else { 0 },
            Kind::Nak { status } => a = nak_code(status),
            _ => {}
        }
        if self.ask {
            flags |= ASK;
        }
        let first = u32::from_le_bytes([code(&self.kind), flags, a, b]);
        let base = [first, self.len, self.ack, self.credit, self.seq, immediate];
        out[..BASE].copy_from_slice(base.map(u32::to_le).as_bytes());
        let fields = &mut out[BASE..];
        BASE + match self.kind {
            Kind::Send { total, .. } => put(fields, [u64::from(total)]),
            Kind::Write { total, to, .. } => put(fields, [u64::from(total), to.key, to.addr]),
            Kind::Read { from } | Kind::Lent { from, .. } => put(fields, [from.key, from.addr]),
            Kind::Atomic { at, call, .. } => {
                put(fields, [at.key, at.addr, call.operand, call.compare])
            }
            _ => 0,
        }
    }

    /// Reads a header from the start of `bytes`: `None` if it is not all there yet, else the header and its
    /// length.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Header, usize)>, Malformed> {
        let Some(&code) = bytes.first() else { return Ok(None) };
        let rules = rules(code).ok_or(Malformed::Kind(code))?;
        let size = usize::from(rules.size);
        match bytes.get(..size) {
            Some(bytes) => Ok(Some((Self::decode_as(code, rules, bytes)?, size))),
            None => Ok(None),
        }
    }

    /// Reads the header of this kind, all of whose bytes are there.
    fn decode_as(code: u8, rules: &Rules, bytes: &[u8]) -> Result<Header, Malformed> {
        let (base, fields) = bytes.split_at(BASE.min(bytes.len()));
        let word = |at| u32_at(base, at);
        let [_, flags, a, b] = word(0).to_le_bytes();
        let (len, immediate) = (word(4), word(20));
        if flags & !rules.flags != 0 {
            return Err(Malformed::Flags(flags));
        }
        let imm = (flags & IMMEDIATE != 0).then_some(immediate);
        if imm.is_none() && immediate != 0 {
            return Err(Malformed::Field("immediate"));
        }
        if (a & !rules.ab[0]) | (b & !rules.ab[1]) != 0 {
            return Err(Malformed::Field("a"));
        }
        if len < rules.len[0] || len > rules.len[1] {
            return Err(Malformed::Length(len));
        }
        let addr = |at| RemoteAddr { key: u64_at(fields, at), addr: u64_at(fields, at + 8) };
        let kind = match code {
            SEND => Kind::Send { total: total(fields, len, flags)?, imm },
            2 => Kind::Write { total: total(fields, len, flags)?, imm, to: addr(8) },
            3 => Kind::Read { from: addr(0) },
            4 => Kind::Atomic { at: addr(0), call: call(a, b, fields)?, fetch: flags & LAST != 0 },
            5 => Kind::Data { more: flags & MORE != 0 },
            6 => Kind::ReadData { last: flags & LAST != 0 },
            7 => Kind::OldValue,
            8 => Kind::Ack,
            9 => Kind::Nak { status: nak_status(a)? },
            10 => Kind::Bye,
            11 => Kind::NotReady,
            12 => Kind::Resume,
            13 => Kind::Ready,
            _ => Kind::Lent { from: addr(0), more: flags & MORE != 0 },
        };
        let ask = flags & ASK != 0;
        Ok(Header { kind, ask, len, ack: word(8), credit: word(12), seq: word(16) })
    }
}

#[inline]
fn put<const N: usize>(out: &mut [u8], words: [u64; N]) -> usize {
    out[..8 * N].copy_from_slice(words.map(u64::to_le).as_bytes());
    8 * N
}

/// The whole length of a message whose first fragment has `len` bytes; `fields` are those of its kind.
#[inline]
fn total(fields: &[u8], len: u32, flags: u8) -> Result<u32, Malformed> {
    let word = u64_at(fields, 0);
    let (total, reserved) = (word as u32, (word >> 32) as u32);
    if total > MAX_MESSAGE || len > total {
        return Err(Malformed::Length(total));
    }
    if reserved != 0 {
        return Err(Malformed::Field("reserved"));
    }
    let more = flags & MORE != 0;
    if more != (total > len) || (more && len == 0) {
        return Err(Malformed::Flags(flags));
    }
    Ok(total)
}

fn call(op: u8, ty: u8, bytes: &[u8]) -> Result<AtomicCall, Malformed> {
    let op = AtomicOp::from_wire(op).ok_or(Malformed::Field("operation"))?;
    let ty = AtomicType::from_wire(ty).ok_or(Malformed::Field("type"))?;
    if !atomic::is_defined(op, ty) {
        return Err(Malformed::Field("operation"));
    }
    let (operand, compare) = (u64_at(bytes, 16), u64_at(bytes, 24));
    Ok(AtomicCall { op, ty, operand, compare })
}

/// The wire's number of a status; also the provider's own code in completions.
pub fn nak_code(status: Status) -> u8 {
    match status {
        Status::TooLong => 1,
        Status::RemoteAccess => 2,
        _ => 3,
    }
}

fn nak_status(code: u8) -> Result<Status, Malformed> {
    match code {
        1 => Ok(Status::TooLong),
        2 => Ok(Status::RemoteAccess),
        3 => Ok(Status::Internal),
        _ => Err(Malformed::Field("status")),
    }
}

// Without unsafe code there is nothing here for Miri.
#[cfg(not(miri))]
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addr() -> impl Strategy<Value = RemoteAddr> {
        any::<(u64, u64)>().prop_map(|(key, addr)| RemoteAddr { key, addr })
    }

    fn defined_call() -> impl Strategy<Value = AtomicCall> {
        (0..AtomicOp::ALL.len(), 0..AtomicType::ALL.len(), any::<u64>(), any::<u64>())
            .prop_map(|(op, ty, operand, compare)| {
                let (op, ty) = (AtomicOp::ALL[op], AtomicType::ALL[ty]);
                AtomicCall { op, ty, operand, compare }
            })
            .prop_filter("defined", |call| atomic::is_defined(call.op, call.ty))
    }

    /// A header of every kind, with lengths that fit it.
    fn header() -> impl Strategy<Value = Header> {
        let message =
            (0..=MAX_MESSAGE, any::<u32>(), any::<Option<u32>>()).prop_map(|(total, cut, imm)| {
                let max = total.min(MAX_PAYLOAD);
                let len = if max == 0 { 0 } else { 1 + cut % max };
                (total, len, imm)
            });
        let status =
            prop_oneof![Just(Status::TooLong), Just(Status::RemoteAccess), Just(Status::Internal)];
        let parts = prop_oneof![
            message.clone().prop_map(|(total, len, imm)| (Kind::Send { total, imm }, len)),
            (message, addr())
                .prop_map(|((total, len, imm), to)| (Kind::Write { total, imm, to }, len)),
            (addr(), 0..=MAX_MESSAGE).prop_map(|(from, len)| (Kind::Read { from }, len)),
            (addr(), defined_call(), any::<bool>())
                .prop_map(|(at, call, fetch)| (Kind::Atomic { at, call, fetch }, 0)),
            (any::<bool>(), 0..=MAX_PAYLOAD).prop_map(|(more, len)| (Kind::Data { more }, len)),
            (any::<bool>(), 0..=MAX_PAYLOAD).prop_map(|(last, len)| (Kind::ReadData { last }, len)),
            Just((Kind::OldValue, 8)),
            Just((Kind::Ack, 0)),
            status.prop_map(|status| (Kind::Nak { status }, 0)),
            Just((Kind::Bye, 0)),
            Just((Kind::NotReady, 0)),
            Just((Kind::Resume, 0)),
            Just((Kind::Ready, 0)),
            (addr(), any::<bool>(), 1..=MAX_PAYLOAD)
                .prop_map(|(from, more, len)| (Kind::Lent { from, more }, len)),
        ];
        (parts, any::<([u32; 3], bool)>()).prop_map(|((kind, len), ([ack, credit, seq], ask))| {
            Header { kind, ask: ask && matches!(code(&kind), 1 | 2 | 4 | 8), len, ack, credit, seq }
        })
    }

    proptest! {
        #[test]
        fn survives_and_every_prefix_is_incomplete(header in header(), more: Vec<u8>) {
            let mut bytes = Vec::new();
            header.encode(&mut bytes);
            let len = bytes.len();
            prop_assert!(len <= MAX_HEADER);
            prop_assert_eq!(header_len(bytes[0]), Some(len));
            for cut in 0..len {
                prop_assert_eq!(Header::decode(&bytes[..cut]), Ok(None));
            }
            bytes.extend(more);
            prop_assert_eq!(Header::decode(&bytes), Ok(Some((header, len))));
        }

        #[test]
        fn what_decodes_encodes_to_the_same_bytes(kind in 0u8..16, bytes in prop::collection::vec(0u8..6, 56)) {
            let mut bytes = bytes;
            bytes[0] = kind;
            if let Ok(Some((header, len))) = Header::decode(&bytes) {
                let mut again = Vec::new();
                header.encode(&mut again);
                prop_assert_eq!(&again[..], &bytes[..len]);
            }
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = Header::decode(&bytes);
        }
    }
}
