//! Why a connection is not made: what the listening side says, what the connecting side makes of it, and what the listening
//! side makes of a peer.

use std::borrow::Cow;
use std::fmt;

use fabric_core::{Error, Failure};

use crate::stats::Stats;

const SECRET_WANTED: &str = "the listener wants the proof of its secret, and this side has none: name its file by \
                             FABRIC_SECRET_FILE, or set Hints::secret";
const NO_SECRET: &str = "the listener has no secret, and this side connects to none without";
const OTHER_SECRET: &str = "the listener has another secret, or somebody changed what was said";
const ENCRYPTION_WANTED: &str = "the listener encrypts, and this side does not: set FABRIC_SECURITY=encrypted, or \
                                 Hints::security, and the listener's secret";
const NO_ENCRYPTION: &str = "the listener has a secret and does not encrypt, and this side connects to none without encryption";
const IDENTITY_WANTED: &str = "the listener wants a certificate of an authority that it trusts, and this side has none: name the \
                               files by FABRIC_IDENTITY_FILE and FABRIC_TRUSTED_FILE, or set Hints::identity";
const NO_IDENTITY: &str = "the listener has no certificate, and this side connects to none without";
/// Of a listener whose accept or reject has no proof.
pub const NOT_PROVEN: &str =
    "the listener did not prove that it has the secret, or somebody changed what it said";
/// Of a peer whose proof is none.
pub const CHANGED: &str = "has another secret, or somebody changed what was said";

/// Why the listening side refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum RefuseReason {
    /// The backlog is full, or the listener closed.
    #[default]
    Full = 0,
    /// The listening side wants the proof of its secret.
    SecretWanted = 1,
    /// The listening side has no secret, and the connecting side connects to none without.
    NoSecret = 2,
    /// The proof is none.
    OtherSecret = 3,
    /// The listening side encrypts.
    EncryptionWanted = 4,
    /// The listening side does not encrypt.
    NoEncryption = 5,
    /// The listening side wants a certificate.
    IdentityWanted = 6,
    /// The listening side has no certificate, and the connecting side connects to none without.
    NoIdentity = 7,
}

impl RefuseReason {
    /// All of them, by their numbers.
    pub const ALL: [RefuseReason; 8] = [
        RefuseReason::Full,
        RefuseReason::SecretWanted,
        RefuseReason::NoSecret,
        RefuseReason::OtherSecret,
        RefuseReason::EncryptionWanted,
        RefuseReason::NoEncryption,
        RefuseReason::IdentityWanted,
        RefuseReason::NoIdentity,
    ];

    /// The reason with this number.
    pub fn of_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// Why an answer made no connection. A transport's error has it inside where that finds out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Declined {
    /// The backlog is full, or the listener closed.
    Refused,
    /// The application at the other end rejected it, with this private data.
    Rejected(Box<[u8]>),
    /// The two ends do not have the same secret, or one does not trust the other; the text says what is known.
    Unauthenticated(Cow<'static, str>),
    /// It is no answer of this protocol's.
    Malformed(String),
}

impl Declined {
    /// For this reason.
    pub fn because(reason: RefuseReason) -> Self {
        match reason {
            RefuseReason::Full => Declined::Refused,
            RefuseReason::SecretWanted => Self::unauthenticated(SECRET_WANTED),
            RefuseReason::NoSecret => Self::unauthenticated(NO_SECRET),
            RefuseReason::OtherSecret => Self::unauthenticated(OTHER_SECRET),
            RefuseReason::EncryptionWanted => Self::unauthenticated(ENCRYPTION_WANTED),
            RefuseReason::NoEncryption => Self::unauthenticated(NO_ENCRYPTION),
            RefuseReason::IdentityWanted => Self::unauthenticated(IDENTITY_WANTED),
            RefuseReason::NoIdentity => Self::unauthenticated(NO_IDENTITY),
        }
    }

    /// The listener did not prove what it should.
    pub fn unauthenticated(text: impl Into<Cow<'static, str>>) -> Self {
        Declined::Unauthenticated(text.into())
    }
}

impl Declined {
    /// What the application gets.
    pub fn into_error(self, provider: &'static str) -> Error {
        let failure = |text| Failure::new("connect", text).of(provider);
        match self {
            Declined::Refused => Error::Refused(None),
            Declined::Rejected(data) => Error::Rejected(Box::new(data)),
            Declined::Unauthenticated(text) => Error::Unauthenticated(failure(text.into_owned())),
            Declined::Malformed(text) => Error::Unreachable(failure(text)),
        }
    }
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Declined::Refused => f.write_str("the listener refused"),
            Declined::Rejected(_) => f.write_str("the application at the other end rejected"),
            Declined::Unauthenticated(text) => f.write_str(text),
            Declined::Malformed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Declined {}

/// Why there will be no hello. Where the peer can make use of the reason, it was sent. A transport's error has it inside where
/// that finds out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwelcome {
    /// In words, after the peer's name.
    pub why: String,
    /// It did not prove to have the secret, or to be of a trusted authority.
    pub is_unauthenticated: bool,
}

impl Unwelcome {
    /// A peer that broke the protocol, or is gone.
    pub fn because(why: impl Into<String>) -> Self {
        Unwelcome { why: why.into(), is_unauthenticated: false }
    }

    /// A peer that did not prove what it should.
    pub fn unauthenticated(why: impl Into<String>) -> Self {
        Unwelcome { why: why.into(), is_unauthenticated: true }
    }

    /// Counts it.
    pub fn count(&self, stats: &Stats) {
        let counter = if self.is_unauthenticated {
            &stats.peers_unauthenticated
        } else {
            &stats.protocol_errors
        };
        counter.add(1);
    }
}

/// That both ends have a secret or neither has, as the listening side finds by the other's first words.
///
/// # Errors
/// What to say to the peer, and what to say of it.
pub fn check_secrets(ours: bool, theirs: bool) -> Result<(), (RefuseReason, Unwelcome)> {
    let (reason, why) = match (ours, theirs) {
        (true, true) | (false, false) => return Ok(()),
        (false, true) => (RefuseReason::NoSecret, "has a secret, and this side has none"),
        (true, false) => (RefuseReason::SecretWanted, "has no secret"),
    };
    Err((reason, Unwelcome::unauthenticated(why)))
}

impl fmt::Display for Unwelcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Unwelcome {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_their_numbers() {
        for (number, reason) in RefuseReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
            assert_eq!(RefuseReason::of_byte(number as u8), Some(reason));
        }
        assert_eq!(RefuseReason::of_byte(RefuseReason::ALL.len() as u8), None);
    }
}
