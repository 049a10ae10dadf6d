//! An X.509 identity: a private key with its certificates, and the authorities whose certificates are trusted.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::pem::{PemObject, SectionKind};
use zeroize::Zeroizing;

use super::file::{self, PRIVATE, UNALTERED};
use crate::error::{Error, Result};

/// The variable of the environment that names the file with a private key and its certificates.
pub const IDENTITY_FILE: &str = "FABRIC_IDENTITY_FILE";
/// The variable of the environment that names the file with the certificates of the authorities that are trusted.
pub const TRUSTED_FILE: &str = "FABRIC_TRUSTED_FILE";

/// The most bytes that either file has.
const MAX: usize = 1 << 20;
const OP: &str = "read identity";

/// What an end of a connection proves itself by, and what it asks of the other: a private key with an X.509 certificate for
/// it, and the certificates of the authorities that are trusted. Copies share it. The key is overwritten with the last of
/// them, and never shown.
///
/// Every end whose certificate leads to a trusted authority is let in, whatever its name and address: use an authority of the
/// job's own, or look at the name of each peer.
#[derive(Clone)]
pub struct Identity(Arc<Parts>);

struct Parts {
    key: Zeroizing<Vec<u8>>,
    chain: Vec<Vec<u8>>,
    trusted: Vec<Vec<u8>>,
    origins: [String; 2],
}

impl Identity {
    /// An identity of these texts (PEM, RFC 7468): `identity` has the private key and its certificate, and behind that those that
    /// lead from it to an authority; `trusted` has the certificates of the authorities that are trusted.
    ///
    /// # Errors
    /// `InvalidArgument` that says what is missing. Whether the key is that of the certificate is found where a domain is opened,
    /// and whether that has expired where a connection is made.
    pub fn from_pem(identity: &[u8], trusted: &[u8]) -> Result<Self> {
        let origins = ["the identity", "the trusted certificates"].map(str::to_owned);
        Self::of(identity, trusted, origins)
    }

    /// The same, of two files of at most 1 MiB.
    ///
    /// Both must be regular files that belong to this process's user or to root. That of the identity neither its group nor
    /// others may touch; that of the trusted certificates they may read.
    ///
    /// # Errors
    /// As [`from_pem`](Identity::from_pem), with the file's name; `NoMemory` if this process has no descriptor left.
    pub fn from_files(identity: impl AsRef<Path>, trusted: impl AsRef<Path>) -> Result<Self> {
        let paths = [identity.as_ref(), trusted.as_ref()];
        let read = |path, rule| {
            let bytes = file::read(OP, path, rule, MAX + 1)?;
            if bytes.len() > MAX {
                return Err(file::invalid(OP, path, &format!("it has more than {MAX} bytes")));
            }
            Ok(bytes)
        };
        let (identity, trusted) = (read(paths[0], &PRIVATE)?, read(paths[1], &UNALTERED)?);
        Self::of(&identity, &trusted, paths.map(|path| path.display().to_string()))
    }

    fn of(identity: &[u8], trusted: &[u8], origins: [String; 2]) -> Result<Self> {
        let invalid = |of: usize, why: &str| Error::invalid(OP, format!("{}: {why}", origins[of]));
        let (mut keys, chain) = parse(identity).map_err(|why| invalid(0, &why))?;
        let (_, trusted) = parse(trusted).map_err(|why| invalid(1, &why))?;
        let key = match (keys.pop(), keys.len()) {
            (Some(key), 0) => key,
            (None, _) => return Err(invalid(0, NO_KEY)),
            (Some(_), _) => {
                return Err(invalid(0, "there are several private keys in it, not one"));
            }
        };
        if chain.is_empty() {
            return Err(invalid(0, NO_CERTIFICATE));
        }
        if trusted.is_empty() {
            return Err(invalid(1, NO_AUTHORITY));
        }
        Ok(Identity(Arc::new(Parts { key, chain, trusted, origins })))
    }

    /// The private key, for a provider: PKCS #8, PKCS #1 or SEC 1 (DER).
    pub fn key(&self) -> &[u8] {
        &self.0.key
    }

    /// Its certificate, and behind it those that lead to an authority (DER).
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        self.0.chain.iter().map(Vec::as_slice)
    }

    /// The certificates of the authorities that are trusted (DER).
    pub fn trusted(&self) -> impl Iterator<Item = &[u8]> {
        self.0.trusted.iter().map(Vec::as_slice)
    }

    /// Where key and chain are from, and where the trusted certificates: for errors.
    pub fn origins(&self) -> &[String; 2] {
        &self.0.origins
    }
}

const NO_KEY: &str = "there is no private key in it (`-----BEGIN PRIVATE KEY-----`); one with a password is not read";
const NO_CERTIFICATE: &str = "there is no certificate in it (`-----BEGIN CERTIFICATE-----`); that of the key has to be the \
                              first, and those that lead to an authority follow";
const NO_AUTHORITY: &str = "there is no certificate in it (`-----BEGIN CERTIFICATE-----`); those of the authorities that are \
                            trusted have to be";

/// The private keys in a text, and the certificates.
type Sections = (Vec<Zeroizing<Vec<u8>>>, Vec<Vec<u8>>);

fn parse(pem: &[u8]) -> Result<Sections, String> {
    let (mut keys, mut certificates) = Sections::default();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
        match section.map_err(|error| format!("it is no PEM: {error}"))? {
            (SectionKind::Certificate, der) => certificates.push(der),
            (
                SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey,
                der,
            ) => keys.push(Zeroizing::new(der)),
            _ => {}
        }
    }
    Ok((keys, certificates))
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [identity, trusted] = self.origins();
        write!(f, "Identity({identity}, not shown; trusts {trusted})")
    }
}
