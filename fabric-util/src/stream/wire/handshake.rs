//! Handshake frames.

use fabric_core::info::{MAX_ACCEPT_DATA, MAX_CONNECT_DATA, MAX_REJECT_DATA};

use super::malformed::{Malformed, u32_at};
use crate::proof::SEAL;
use crate::refusal::RefuseReason;

/// The version of the protocol.
pub const VERSION: u8 = 1;
/// The first bytes of every connection.
pub const MAGIC: [u8; 4] = *b"FBRC";
/// Bytes before the private data.
pub const LEN: usize = 20;
/// The most bytes a handshake frame has.
pub const MAX: usize = LEN + MAX_ACCEPT_DATA + SEAL;

/// What a handshake frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HandshakeKind {
    /// The connecting side's request.
    Hello = 1,
    /// The application accepted.
    Accept = 2,
    /// The application rejected.
    Reject = 3,
    /// No, and why: [`RefuseReason`].
    Refuse = 4,
    /// The listening side's random number: the connecting side is to prove that it has the secret.
    Challenge = 5,
    /// That proof.
    Proof = 6,
    /// The connecting side encrypts: a random number and the proof of the secret, and behind it TLS, in which the hello comes.
    Encrypt = 7,
    /// As `Encrypt`, of a side that proves who it is by a certificate. Where it has no secret, there is no proof of that.
    Identify = 8,
}

impl HandshakeKind {
    /// All of them, by their numbers.
    pub const ALL: [HandshakeKind; 8] = [
        HandshakeKind::Hello,
        HandshakeKind::Accept,
        HandshakeKind::Reject,
        HandshakeKind::Refuse,
        HandshakeKind::Challenge,
        HandshakeKind::Proof,
        HandshakeKind::Encrypt,
        HandshakeKind::Identify,
    ];

    fn max_data(self) -> usize {
        match self {
            HandshakeKind::Hello => MAX_CONNECT_DATA,
            HandshakeKind::Accept => MAX_ACCEPT_DATA,
            HandshakeKind::Reject => MAX_REJECT_DATA,
            HandshakeKind::Refuse | HandshakeKind::Challenge | HandshakeKind::Proof => 0,
            HandshakeKind::Encrypt | HandshakeKind::Identify => SEAL,
        }
    }

    /// Whether such a frame opens a link.
    fn opens(self) -> bool {
        matches!(self, HandshakeKind::Hello | HandshakeKind::Accept)
    }

    /// Whether a frame may end with a seal, or be without.
    fn allows(self, sealed: bool) -> bool {
        match self {
            HandshakeKind::Hello
            | HandshakeKind::Accept
            | HandshakeKind::Reject
            | HandshakeKind::Identify => true,
            HandshakeKind::Refuse => !sealed,
            HandshakeKind::Challenge | HandshakeKind::Proof | HandshakeKind::Encrypt => sealed,
        }
    }
}

/// A handshake frame, less its private data and its seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// What it is.
    pub kind: HandshakeKind,
    /// Reads and atomics that the sender answers at a time.
    pub reads: u32,
    /// Receives that the sender has posted.
    pub credit: u32,
    /// Whether a random number or a proof is behind the private data.
    pub is_sealed: bool,
    /// Of a refusal.
    pub reason: RefuseReason,
}

/// A frame with all that belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// The frame.
    pub frame: Handshake,
    /// Its private data.
    pub data: &'a [u8],
    /// Its seal, where it is sealed.
    pub seal: Option<&'a [u8; SEAL]>,
    /// The bytes of all three.
    pub len: usize,
}

impl Decoded<'_> {
    /// The bytes before the seal.
    pub fn unsealed(&self) -> usize {
        self.len - if self.seal.is_some() { SEAL } else { 0 }
    }
}

impl Handshake {
    /// A frame without seal. One that opens a link has numbers, others have zeroes.
    pub fn new(kind: HandshakeKind, reads: u32, credit: u32) -> Self {
        let (reads, credit) = if kind.opens() { (reads, credit) } else { (0, 0) };
        Handshake { kind, reads, credit, is_sealed: false, reason: RefuseReason::Full }
    }

    /// The bytes of the frame with its private data, which the handles have checked to be short enough; its seal is to follow.
    pub fn encode(&self, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LEN + data.len() + SEAL);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[VERSION, self.kind as u8]);
        bytes.extend_from_slice(&(data.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&self.reads.to_le_bytes());
        bytes.extend_from_slice(&self.credit.to_le_bytes());
        bytes.extend_from_slice(&[u8::from(self.is_sealed), self.reason as u8, 0, 0]);
        bytes.extend_from_slice(data);
        bytes
    }

    /// Reads a frame from the start of `bytes`: `None` if it is not all there yet. Wrong bytes are noticed as soon as they are there.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Option<Decoded<'_>>, Malformed> {
        let known = bytes.len().min(4);
        if bytes[..known] != MAGIC[..known] {
            let mut magic = [0; 4];
            magic[..known].copy_from_slice(&bytes[..known]);
            return Err(Malformed::Magic(magic));
        }
        if let Some(&version) = bytes.get(4).filter(|&&v| v != VERSION) {
            return Err(Malformed::Version { theirs: version, ours: VERSION });
        }
        let Some(&number) = bytes.get(5) else { return Ok(None) };
        let kind = HandshakeKind::ALL.into_iter().find(|kind| *kind as u8 == number);
        let kind = kind.ok_or(Malformed::Kind(number))?;
        if bytes.len() < LEN {
            return Ok(None);
        }
        let data = u16::from_le_bytes([bytes[6], bytes[7]]);
        if usize::from(data) > kind.max_data() {
            return Err(Malformed::Length(data.into()));
        }
        let (reads, credit) = (u32_at(bytes, 8), u32_at(bytes, 12));
        if kind.opens() && reads == 0 || !kind.opens() && (reads, credit) != (0, 0) {
            return Err(Malformed::Field("reads"));
        }
        let is_sealed = match bytes[16] {
            flag @ 0..=1 if kind.allows(flag == 1) => flag == 1,
            _ => return Err(Malformed::Field("sealed")),
        };
        let Some(reason) = RefuseReason::of_byte(bytes[17]) else {
            return Err(Malformed::Field("reason"));
        };
        if kind != HandshakeKind::Refuse && reason != RefuseReason::Full {
            return Err(Malformed::Field("reason"));
        }
        if bytes[18..LEN] != [0, 0] {
            return Err(Malformed::Field("reserved"));
        }
        let frame = Handshake { kind, reads, credit, is_sealed, reason };
        Ok(frame.rest(&bytes[LEN..], data.into()))
    }

    /// Takes what follows, as far as it is all there.
    fn rest(self, bytes: &[u8], data: usize) -> Option<Decoded<'_>> {
        let (data, rest) = bytes.split_at_checked(data)?;
        let seal = if self.is_sealed { Some(rest.first_chunk::<SEAL>()?) } else { None };
        let len = LEN + data.len() + seal.map_or(0, |seal| seal.len());
        Some(Decoded { frame: self, data, seal, len })
    }
}

// Without unsafe code there is nothing here for Miri.
#[cfg(not(miri))]
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame() -> impl Strategy<Value = (Handshake, Vec<u8>)> {
        let kinds = prop::sample::select(HandshakeKind::ALL.to_vec());
        let reasons = prop::sample::select(RefuseReason::ALL.to_vec());
        (kinds, reasons, any::<bool>())
            .prop_flat_map(|(kind, reason, sealed)| {
                let data = prop::collection::vec(any::<u8>(), 0..=kind.max_data());
                (Just((kind, reason, sealed)), data, 1u32.., any::<u32>())
            })
            .prop_map(|((kind, reason, sealed), bytes, reads, credit)| {
                let mut frame = Handshake::new(kind, reads, credit);
                frame.is_sealed = if kind.allows(sealed) { sealed } else { !sealed };
                if kind == HandshakeKind::Refuse {
                    frame.reason = reason;
                }
                (frame, bytes)
            })
    }

    proptest! {
        #[test]
        fn survives_and_every_prefix_is_incomplete((frame, data) in frame(), seal: [u8; SEAL], more: Vec<u8>) {
            let mut bytes = frame.encode(&data);
            let seal = frame.is_sealed.then_some(&seal);
            bytes.extend(seal.into_iter().flatten());
            let len = bytes.len();
            for cut in 0..len {
                prop_assert_eq!(Handshake::decode(&bytes[..cut]), Ok(None));
            }
            bytes.extend(more);
            let decoded = Decoded { frame, data: &data, seal, len };
            prop_assert_eq!(Handshake::decode(&bytes), Ok(Some(decoded)));
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = Handshake::decode(&bytes);
            let mut bytes = bytes;
            bytes.splice(0..0, *b"FBRC\x01");
            let _ = Handshake::decode(&bytes);
        }
    }

    #[test]
    fn wrong_bytes_are_noticed_at_once() {
        assert_eq!(Handshake::decode(b"GE"), Err(Malformed::Magic(*b"GE\0\0")));
        assert_eq!(
            Handshake::decode(b"FBRC\x02"),
            Err(Malformed::Version { theirs: 2, ours: VERSION })
        );
        assert_eq!(Handshake::decode(b"FBRC\x01\x09"), Err(Malformed::Kind(9)));
        let hello = Handshake::new(HandshakeKind::Hello, 1, 0).encode(b"");
        let wrong = |kind, at: usize, value| {
            let mut bytes = hello.clone();
            (bytes[5], bytes[at]) = (kind as u8, value);
            if !matches!(kind, HandshakeKind::Hello) {
                bytes[8] = 0;
            }
            Handshake::decode(&bytes).unwrap_err()
        };
        assert_eq!(wrong(HandshakeKind::Hello, 16, 2), Malformed::Field("sealed"));
        assert_eq!(wrong(HandshakeKind::Refuse, 16, 1), Malformed::Field("sealed"));
        assert_eq!(wrong(HandshakeKind::Proof, 16, 0), Malformed::Field("sealed"));
        assert_eq!(wrong(HandshakeKind::Hello, 17, 1), Malformed::Field("reason"));
        assert_eq!(
            wrong(HandshakeKind::Refuse, 17, RefuseReason::ALL.len() as u8),
            Malformed::Field("reason")
        );
        assert_eq!(wrong(HandshakeKind::Hello, 19, 1), Malformed::Field("reserved"));
    }
}
