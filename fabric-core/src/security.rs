//! How much a connection is protected, and the secret that it takes.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::ops::RangeInclusive;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::error::{Error, Result};

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
    /// All that a connection carries is encrypted, and ends the connection if a bit of it was changed, left out, repeated or
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
        let invalid = |why| Error::invalid(OP, format!("{}: {why}", path.display()));
        // A FIFO without a writer would be waited for.
        let mut options = File::options();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path);
        let file = file.map_err(|cause| {
            let text = format!("it cannot be read: {cause}");
            match Error::system(OP, "fabric", cause) {
                full @ Error::NoMemory(_) => full,
                _ => invalid(text),
            }
        })?;
        read(file).map_err(invalid)
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

fn read(file: File) -> Result<Secret, String> {
    // Of what was opened, whatever the path leads to by now.
    check_file(&file.metadata().map_err(|error| error.to_string())?)?;
    // One more than a secret and its line end can be.
    let limit = SECRET_LEN.end() + 3;
    let mut bytes = Zeroizing::new(Vec::with_capacity(limit));
    file.take(limit as u64).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    Secret::checked(bytes)
}

fn check_file(file: &Metadata) -> Result<(), String> {
    // SAFETY: it only asks, and cannot fail (geteuid(2)).
    let user = unsafe { libc::geteuid() };
    if !file.is_file() {
        return Err("it is no regular file".to_owned());
    }
    if ![user, 0].contains(&file.uid()) {
        let owner = file.uid();
        return Err(format!(
            "it belongs to user {owner}; it has to belong to user {user} or to root"
        ));
    }
    let mode = file.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(format!("others may touch it (mode {mode:04o}); `chmod 600` keeps them off"));
    }
    Ok(())
}

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
