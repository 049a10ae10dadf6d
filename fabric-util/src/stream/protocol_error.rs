//! A peer that breaks the protocol.

use super::wire::Malformed;

/// What the peer did.
#[derive(Debug)]
pub(super) enum ProtocolError {
    /// It sent bytes that are no frame.
    Malformed(Malformed),
    /// It sent a frame that must not come now.
    Breach(Breach),
    /// What came is not what it sent: what the transport found.
    Changed(String),
}

/// A frame that must not come now: what is wrong about it.
#[derive(Debug)]
pub(super) struct Breach(pub(super) &'static str);

impl Breach {
    #[cold]
    pub(super) fn of(rule: &'static str) -> Self {
        Breach(rule)
    }
}

impl From<Breach> for ProtocolError {
    fn from(breach: Breach) -> Self {
        ProtocolError::Breach(breach)
    }
}

impl From<Malformed> for ProtocolError {
    fn from(malformed: Malformed) -> Self {
        ProtocolError::Malformed(malformed)
    }
}

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProtocolError::Malformed(malformed) => malformed.fmt(f),
            ProtocolError::Breach(Breach(what)) => f.write_str(what),
            ProtocolError::Changed(what) => f.write_str(what),
        }
    }
}
