//! How much a connection is protected, and the secret or the [`Identity`] that it takes.

mod file;
mod identity;

use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::error::{Error, Result};
pub use identity::{IDENTITY_FILE, Identity, TRUSTED_FILE};

/// How much every connection of a domain is protected. Each level has what those before it have.
///
/// A domain has one level, and connects to none of another: there is no fallback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Security {
    /// Every host that reaches a listener may connect.
    #[default]
    Open,
    /// Both ends prove that they have the same [`Secret`] before either application hears of the other, and that no bit has
    /// been changed of what they said until then, private data included. What follows is neither encrypted nor
    /// authenticated: who can write into the connection's stream can still do so.
    Authenticated,
    /// Both ends prove that they have the same [`Secret`], or who they are by an [`Identity`], or both. All that a connection carries is encrypted, and ends the connection if a bit of it was changed, left out, repeated or
    /// moved: no such bit reaches the application's memory. A reader on the way learns when how much is sent, and no more.
    Encrypted,
}

impl Security {
    /// Every level, the least first.
    pub const ALL: [Security; 3] = [Security::Open, Security::Authenticated, Security::Encrypted];

    /// The level of this name: `open`, `authenticated`, `encrypted`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.to_string() == name)
    }
}

impl fmt::Display for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Security::Open => "open",
            Security::Authenticated => "authenticated",
            Security::Encrypted => "encrypted",
        })
    }
}

/// How many bytes a secret has. They are used as they are, so all of them should be random: `openssl rand -hex 32`.
pub const SECRET_LEN: RangeInclusive<usize> = 32..=64;

/// The variable of the environment that names the file of a secret.
pub const SECRET_FILE: &str = "FABRIC_SECRET_FILE";

/// A secret that all members of a job share, and no others have. Copies share its bytes, which are overwritten with the
/// last of them, and never shown.
#[derive(Clone)]
pub struct Secret(Arc<Zeroizing<Vec<u8>>>);

impl Secret {
    /// A secret of these bytes.
    ///
    /// # Errors
    /// `InvalidArgument` if they are fewer than 32 or more than 64.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        Self::checked(Zeroizing::new(bytes.to_vec())).map_err(|text| Error::invalid(OP, text))
    }

    /// The secret in a file: all of its bytes, but for a line end behind them.
    ///
    /// The file must be a regular one that belongs to this process's user or to root, and that neither its group nor others
    /// may touch: `(umask 077; openssl rand -hex 32 >job.secret)`.
    ///
    /// # Errors
    /// `InvalidArgument` that names the file, what is wrong with it, and what would be right; `NoMemory` if this process has no
    /// descriptor left.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        // One more than a secret and its line end can be.
        let mut bytes = file::read(OP, path, &file::PRIVATE, SECRET_LEN.end() + 3)?;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
        }
        Self::checked(bytes).map_err(|why| file::invalid(OP, path, &why))
    }

    /// Its bytes, for a provider.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn checked(bytes: Zeroizing<Vec<u8>>) -> Result<Self, String> {
        if SECRET_LEN.contains(&bytes.len()) {
            return Ok(Secret(Arc::new(bytes)));
        }
        let (len, min, max) = (bytes.len(), SECRET_LEN.start(), SECRET_LEN.end());
        let len = if len > *max { format!("more than {max}") } else { len.to_string() };
        Err(format!(
            "a secret has {min} to {max} bytes, not {len}; `openssl rand -hex 32` makes one"
        ))
    }
}

const OP: &str = "read secret";

impl PartialEq for Secret {
    /// In a time that does not depend on where they differ.
    fn eq(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.bytes(), other.bytes());
        let difference = ours.iter().zip(theirs).fold(0, |all, (a, b)| all | (a ^ b));
        ours.len() == theirs.len() && std::hint::black_box(difference) == 0
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

#[cfg(test)]
mod tests;
