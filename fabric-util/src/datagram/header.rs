//! The header of a datagram over a transport that carries bytes alone.
//!
//! ```text
//! 0..3  "FDG"
//! 3     version, 1
//! 4     flags: 1, there is immediate data
//! 5..8  zero
//! 8..12 immediate data, big-endian; zero where there is none
//! ```
//!
//! What does not begin so is of another program, or of a version that this one does not know: it is dropped. (A check of the bytes
//! is UDP's.)

/// Bytes of a header.
pub const HEADER_LEN: usize = 12;

const MAGIC: [u8; 3] = *b"FDG";
const VERSION: u8 = 1;
const IMMEDIATE: u8 = 1;

/// What travels before a datagram's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramHeader {
    /// Immediate data.
    pub immediate: Option<u32>,
}

impl DatagramHeader {
    /// As bytes.
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..3].copy_from_slice(&MAGIC);
        bytes[3] = VERSION;
        if let Some(immediate) = self.immediate {
            bytes[4] = IMMEDIATE;
            bytes[8..].copy_from_slice(&immediate.to_be_bytes());
        }
        bytes
    }

    /// From the front of a datagram of `len` bytes; `None`: it is not of this library.
    pub fn decode(bytes: &[u8; HEADER_LEN], len: usize) -> Option<DatagramHeader> {
        let [m0, m1, m2, version, flags, z0, z1, z2, i0, i1, i2, i3] = *bytes;
        let known = [m0, m1, m2] == MAGIC && version == VERSION && [z0, z1, z2] == [0; 3];
        if len < HEADER_LEN || !known {
            return None;
        }
        match (flags, u32::from_be_bytes([i0, i1, i2, i3])) {
            (0, 0) => Some(DatagramHeader { immediate: None }),
            (IMMEDIATE, immediate) => Some(DatagramHeader { immediate: Some(immediate) }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_survives_and_nothing_else_is_one() {
        for immediate in [None, Some(0), Some(7), Some(u32::MAX)] {
            let header = DatagramHeader { immediate };
            let bytes = header.encode();
            assert_eq!(DatagramHeader::decode(&bytes, HEADER_LEN), Some(header));
            assert_eq!(DatagramHeader::decode(&bytes, HEADER_LEN - 1), None);
            for at in 0..8 {
                let mut wrong = bytes;
                wrong[at] ^= 2;
                assert_eq!(DatagramHeader::decode(&wrong, 100), None, "byte {at}");
            }
        }
        let mut stray = DatagramHeader::default().encode();
        stray[11] = 1;
        assert_eq!(DatagramHeader::decode(&stray, HEADER_LEN), None, "data that the flags deny");
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn what_is_taken_is_what_would_be_sent(mut bytes: [u8; HEADER_LEN], len in 0..64_usize) {
            bytes[..4].copy_from_slice(b"FDG\x01");
            bytes[4] %= 3;
            bytes[5..8].fill(0);
            if let Some(header) = DatagramHeader::decode(&bytes, len) {
                prop_assert_eq!(header.encode(), bytes);
                prop_assert!(len >= HEADER_LEN);
            }
        }
    }
}
