//! Handshake frames.

use fabric_core::info::{MAX_ACCEPT_DATA, MAX_CONNECT_DATA, MAX_REJECT_DATA};

use super::malformed::{Malformed, u32_at};

/// The version of the protocol.
pub const VERSION: u8 = 1;
/// The first bytes of every connection.
pub const MAGIC: [u8; 4] = *b"FBRC";
/// Bytes before the private data.
pub const LEN: usize = 20;
/// The most bytes a handshake frame has.
pub const MAX: usize = LEN + MAX_ACCEPT_DATA;

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
    /// The backlog is full, or the listener closed.
    Refuse = 4,
}

impl HandshakeKind {
    fn max_data(self) -> usize {
        match self {
            HandshakeKind::Hello => MAX_CONNECT_DATA,
            HandshakeKind::Accept => MAX_ACCEPT_DATA,
            HandshakeKind::Reject => MAX_REJECT_DATA,
            HandshakeKind::Refuse => 0,
        }
    }
}

/// A handshake frame, less its private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// What it is.
    pub kind: HandshakeKind,
    /// Reads and atomics that the sender answers at a time.
    pub reads: u32,
    /// Receives that the sender has posted.
    pub credit: u32,
}

/// A frame, its private data, and the bytes that both have together.
pub type Decoded<'a> = (Handshake, &'a [u8], usize);

impl Handshake {
    /// The bytes of the frame with its private data, which the handles have checked to be short enough.
    pub fn encode(&self, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LEN + data.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[VERSION, self.kind as u8]);
        bytes.extend_from_slice(&(data.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&self.reads.to_le_bytes());
        bytes.extend_from_slice(&self.credit.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(data);
        bytes
    }

    /// Reads a frame from the start of `bytes`: `None` if it is not all there yet, else the frame, its private
    /// data and its length. Wrong bytes are noticed as soon as they are there.
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
        let kind = match bytes.get(5) {
            None => return Ok(None),
            Some(1) => HandshakeKind::Hello,
            Some(2) => HandshakeKind::Accept,
            Some(3) => HandshakeKind::Reject,
            Some(4) => HandshakeKind::Refuse,
            Some(&other) => return Err(Malformed::Kind(other)),
        };
        if bytes.len() < LEN {
            return Ok(None);
        }
        let data = u16::from_le_bytes([bytes[6], bytes[7]]);
        if usize::from(data) > kind.max_data() {
            return Err(Malformed::Length(data.into()));
        }
        let frame = Handshake { kind, reads: u32_at(bytes, 8), credit: u32_at(bytes, 12) };
        let opens = matches!(kind, HandshakeKind::Hello | HandshakeKind::Accept);
        if opens && frame.reads == 0 || !opens && (frame.reads, frame.credit) != (0, 0) {
            return Err(Malformed::Field("reads"));
        }
        if u32_at(bytes, 16) != 0 {
            return Err(Malformed::Field("reserved"));
        }
        let len = LEN + usize::from(data);
        Ok(bytes.get(LEN..len).map(|data| (frame, data, len)))
    }
}

// Without unsafe code there is nothing here for Miri.
#[cfg(not(miri))]
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame() -> impl Strategy<Value = (Handshake, Vec<u8>)> {
        let kinds = prop_oneof![
            Just(HandshakeKind::Hello),
            Just(HandshakeKind::Accept),
            Just(HandshakeKind::Reject),
            Just(HandshakeKind::Refuse)
        ];
        kinds
            .prop_flat_map(|kind| {
                let data = prop::collection::vec(any::<u8>(), 0..=kind.max_data());
                (Just(kind), data, 1u32.., any::<u32>())
            })
            .prop_map(|(kind, bytes, reads, credit)| {
                let opens = matches!(kind, HandshakeKind::Hello | HandshakeKind::Accept);
                let (reads, credit) = if opens { (reads, credit) } else { (0, 0) };
                (Handshake { kind, reads, credit }, bytes)
            })
    }

    proptest! {
        #[test]
        fn survives_and_every_prefix_is_incomplete((frame, data) in frame(), more: Vec<u8>) {
            let mut bytes = frame.encode(&data);
            let len = bytes.len();
            for cut in 0..len {
                prop_assert_eq!(Handshake::decode(&bytes[..cut]), Ok(None));
            }
            bytes.extend(more);
            prop_assert_eq!(Handshake::decode(&bytes), Ok(Some((frame, &data[..], len))));
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
    }
}
