//! Remote descriptors: what a peer needs to know to reach a region.

use std::fmt;

use crate::access::Access;
use crate::error::{Error, Result};
use crate::work::RemoteAddr;

/// A peer's region: its key, its range and the rights a peer has on it.
///
/// The owner makes it (`Region::remote` of the `fabric` crate), ships its bytes
/// by whatever way it likes, and the peer parses them. The bytes are opaque, have a version and carry a
/// check sum, so that any single flipped bit is noticed.
///
/// A descriptor is a claim, not a right: the target checks each access against the region itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteRegion {
    key: u64,
    base: u64,
    len: u64,
    access: Access,
}

/// Part of a remote region, from some offset on: where a one-sided operation goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteSlice {
    region: RemoteRegion,
    offset: u64,
}

const VERSION: u8 = 1;
const MAGIC: [u8; 3] = *b"fbr";

impl RemoteRegion {
    /// The size of the bytes form.
    pub const BYTES: usize = 40;

    /// A descriptor from its parts: for tests and for bridges from other descriptor formats.
    #[inline]
    pub fn from_parts(key: u64, base: u64, len: u64, access: Access) -> Self {
        RemoteRegion { key, base, len, access: access.intersection(Access::REMOTE) }
    }

    /// The provider's key.
    #[inline]
    pub fn key(&self) -> u64 {
        self.key
    }

    /// The address of the first byte, in the space the target's provider chose.
    #[inline]
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty)] // a region is never empty
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// What a peer may do.
    #[inline]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The place `offset` bytes into the region. Whether the operation fits is checked by the post.
    #[inline]
    pub fn at(&self, offset: u64) -> RemoteSlice {
        RemoteSlice { region: *self, offset }
    }

    /// The bytes form: magic, version, access, key, base, length, check sum (CRC-32), little-endian.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..3].copy_from_slice(&MAGIC);
        bytes[3] = VERSION;
        bytes[4..8].copy_from_slice(&self.access.bits().to_le_bytes());
        bytes[8..16].copy_from_slice(&self.key.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.base.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.len.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..36]);
        bytes[36..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Parses the bytes form.
    ///
    /// # Errors
    /// `InvalidArgument` for a wrong length, magic, version, check sum or access bits.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let bad = |why: String| Error::invalid("parse remote descriptor", why);
        let Ok(bytes) = <&[u8; Self::BYTES]>::try_from(bytes) else {
            return Err(bad(format!("{} bytes, a descriptor has {}", bytes.len(), Self::BYTES)));
        };
        if bytes[..3] != MAGIC {
            return Err(bad("these bytes are no descriptor (wrong magic)".into()));
        }
        if bytes[3] != VERSION {
            return Err(bad(format!("version {}, this library reads version {VERSION}", bytes[3])));
        }
        let word = |at: usize| {
            let mut le = [0; 8];
            le.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(le)
        };
        if crc32fast::hash(&bytes[..36]) != (word(32) >> 32) as u32 {
            return Err(bad("the check sum does not match: the bytes were changed".into()));
        }
        let access = Access::from_bits(word(4) as u32)
            .filter(|a| Access::REMOTE.contains(*a) && word(32) as u32 == 0)
            .ok_or_else(|| bad(format!("unknown access bits {:#x}", word(4) as u32)))?;
        Ok(RemoteRegion { key: word(8), base: word(16), len: word(24), access })
    }
}

impl RemoteSlice {
    /// Where it is, for a provider.
    #[inline]
    pub fn addr(&self) -> RemoteAddr {
        RemoteAddr { key: self.region.key, addr: self.region.base.wrapping_add(self.offset) }
    }

    /// The region it is part of.
    pub fn region(&self) -> &RemoteRegion {
        &self.region
    }

    /// Bytes into the region.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Checks that the descriptor itself grants `need` on `len` bytes here.
    ///
    /// # Errors
    /// `InvalidArgument`, naming the range or the right that is missing.
    #[inline]
    pub fn check(&self, operation: &'static str, len: u64, need: Access) -> Result<()> {
        let fits = self.offset.checked_add(len).is_some_and(|end| end <= self.region.len);
        if fits && self.region.access.contains(need) {
            return Ok(());
        }
        Err(self.refusal(operation, len, need, fits))
    }

    #[cold]
    fn refusal(&self, operation: &'static str, len: u64, need: Access, fits: bool) -> Error {
        let RemoteRegion { len: size, access, .. } = self.region;
        Error::invalid(
            operation,
            if fits {
                format!("the remote region grants {access:?}; this needs {need:?}")
            } else {
                format!(
                    "{len} bytes at offset {} do not fit a remote region of {size}",
                    self.offset
                )
            },
        )
    }
}

// The key is a secret that opens the region, so it is not printed.
impl fmt::Debug for RemoteRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RemoteRegion { key: _, base, len, access } = self;
        f.debug_struct("RemoteRegion")
            .field("base", base)
            .field("len", len)
            .field("access", access)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for RemoteRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "remote region of {} bytes, {:?}", self.len, self.access)
    }
}

#[cfg(feature = "serde")]
mod serde_impl {
    use super::RemoteRegion;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    impl Serialize for RemoteRegion {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            self.to_bytes().as_slice().serialize(serializer)
        }
    }

    impl<'de> Deserialize<'de> for RemoteRegion {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let bytes = Vec::<u8>::deserialize(deserializer)?;
            RemoteRegion::from_bytes(&bytes).map_err(D::Error::custom)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn bytes_survive_and_any_flipped_bit_is_noticed(
            key: u64, base: u64, len: u64, access in 0u32..16, bit in 0..RemoteRegion::BYTES * 8,
        ) {
            let region = RemoteRegion::from_parts(key, base, len, Access::from_bits_truncate(access));
            let mut bytes = region.to_bytes();
            prop_assert_eq!(RemoteRegion::from_bytes(&bytes).unwrap(), region);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(RemoteRegion::from_bytes(&bytes).is_err());
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = RemoteRegion::from_bytes(&bytes);
        }
    }

    #[test]
    fn the_key_is_not_printed() {
        const KEY: u64 = 0x1234_5678_9abc_def0;
        let region = RemoteRegion::from_parts(KEY, 16, 64, Access::REMOTE_WRITE);
        for text in [
            format!("{region:?}"),
            format!("{region:#x?}"),
            format!("{:?}", region.at(8)),
            format!("{region}"),
        ] {
            let lower = text.to_lowercase();
            for secret in [KEY.to_string(), format!("{KEY:x}")] {
                assert!(!lower.contains(&secret), "{text}");
            }
            assert!(lower.contains("64") || lower.contains("0x40"), "{text}");
        }
    }

    #[test]
    fn range_and_rights_are_checked() {
        let region = RemoteRegion::from_parts(1, 0, 64, Access::REMOTE_WRITE);
        assert!(region.at(0).check("write", 64, Access::REMOTE_WRITE).is_ok());
        assert!(region.at(64).check("write", 0, Access::REMOTE_WRITE).is_ok());
        assert!(region.at(1).check("write", 64, Access::REMOTE_WRITE).is_err());
        assert!(region.at(u64::MAX).check("write", 2, Access::REMOTE_WRITE).is_err());
        assert!(region.at(0).check("read", 1, Access::REMOTE_READ).is_err());
    }

    #[cfg(feature = "serde")]
    #[test]
    fn serde_keeps_the_checks() {
        let region = RemoteRegion::from_parts(7, 8, 9, Access::REMOTE_READ);
        let json = serde_json::to_string(&region).unwrap();
        assert_eq!(serde_json::from_str::<RemoteRegion>(&json).unwrap(), region);
        assert!(serde_json::from_str::<RemoteRegion>("[1,2,3]").is_err());
    }
}
