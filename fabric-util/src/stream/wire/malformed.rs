//! Bytes that are no frame, and numbers in bytes.

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The magic number of another protocol.
    Magic([u8; 4]),
    /// A version of the protocol that this library does not speak.
    Version {
        /// The peer's.
        theirs: u8,
        /// This side's.
        ours: u8,
    },
    /// An unknown kind of frame.
    Kind(u8),
    /// Flags that the kind does not have.
    Flags(u8),
    /// A length beyond what the kind allows.
    Length(u32),
    /// A field with a value it cannot have.
    Field(&'static str),
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Malformed::Magic(bytes) => {
                write!(f, "it speaks another protocol (begins with {bytes:02x?})")
            }
            Malformed::Version { theirs, ours } => {
                write!(f, "it speaks version {theirs} of the protocol, this side version {ours}")
            }
            Malformed::Kind(kind) => write!(f, "unknown frame kind {kind}"),
            Malformed::Flags(flags) => write!(f, "flags {flags:#x} that the frame does not have"),
            Malformed::Length(len) => write!(f, "a length of {len} that the frame cannot have"),
            Malformed::Field(name) => write!(f, "a value that the field `{name}` cannot have"),
        }
    }
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}
