//! Identities: of an endpoint, and of the host that it is on.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use fabric_core::error::SHARED;
use fabric_core::{Error, Result};
use sha2::{Digest, Sha256};

/// One incarnation of an endpoint: 128 random bits, drawn when the endpoint is made.
///
/// A process that restarts at the same address has another identity, so it never receives what was meant for its
/// predecessor. Process ids do not do for that: in every container the first is 1.
///
/// The order breaks ties: of two simultaneous connection attempts, that of the lower identity wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointIdentity(u128);

impl EndpointIdentity {
    /// A new one.
    ///
    /// # Errors
    /// [`Error::Internal`]: the system gives no random numbers.
    pub fn random() -> Result<Self> {
        random_bytes("identity").map(Self::from_bytes)
    }

    /// That of an endpoint that is [named by its place](crate::RdmAttr::named_by_place). A scope is not part of it: hosts number
    /// theirs on their own.
    pub fn of_listener(place: SocketAddr) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(b"fabric endpoint identity by place 1");
        match place.ip().to_canonical() {
            IpAddr::V4(ip) => hasher.update(ip.octets()),
            IpAddr::V6(ip) => hasher.update(ip.octets()),
        }
        hasher.update(place.port().to_be_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hasher.finalize()[..16]);
        Self::from_bytes(bytes)
    }

    /// From its bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        EndpointIdentity(u128::from_be_bytes(bytes))
    }

    /// Its bytes, the most significant first.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

/// As 32 hexadecimal digits.
impl fmt::Display for EndpointIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for EndpointIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EndpointIdentity({self})")
    }
}

/// Bytes that cannot be guessed.
pub(crate) fn random_bytes<const N: usize>(operation: &'static str) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        let cause = match error.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::other(error.to_string()),
        };
        Error::system(operation, SHARED, cause)
    })?;
    Ok(bytes)
}

/// Which host, boot and network namespace an endpoint is in, hashed: endpoints with the same one reach each other by
/// loopback.
///
/// A hint, not a proof: virtual machines that were cloned while they ran have the same one. A caller that takes a
/// shorter way because of it has to notice when that way leads nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostIdentity([u8; 16]);

impl HostIdentity {
    /// This process's, by what `/proc` says.
    ///
    /// # Errors
    /// As for [`read_from`](Self::read_from).
    pub fn read() -> Result<Self> {
        Self::read_from(Path::new("/proc"))
    }

    /// The same, where `proc` is mounted elsewhere: by `sys/kernel/random/boot_id` and `self/ns/net` in it.
    ///
    /// # Errors
    /// [`Error::Internal`] with the file's name: it cannot be read, or the boot id is empty.
    pub fn read_from(proc: &Path) -> Result<Self> {
        let failed = |path: &Path, cause: io::Error| {
            let cause = io::Error::new(cause.kind(), format!("{}: {cause}", path.display()));
            Error::system("host identity", SHARED, cause)
        };
        let boot_id = proc.join("sys/kernel/random/boot_id");
        let text = std::fs::read_to_string(&boot_id).map_err(|cause| failed(&boot_id, cause))?;
        if text.trim().is_empty() {
            return Err(failed(
                &boot_id,
                io::Error::new(io::ErrorKind::InvalidData, "it is empty"),
            ));
        }
        // The link's text names the namespace: `net:[4026531840]`.
        let namespace = proc.join("self/ns/net");
        let name = std::fs::read_link(&namespace).map_err(|cause| failed(&namespace, cause))?;
        Ok(Self::hash(text.trim(), &name.to_string_lossy()))
    }

    /// By the two that make it. Hashed, since a boot id need not travel.
    fn hash(boot_id: &str, namespace: &str) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(b"fabric host identity 1");
        for part in [boot_id, namespace] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hasher.finalize()[..16]);
        HostIdentity(bytes)
    }

    /// From its bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        HostIdentity(bytes)
    }

    /// Its bytes.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

/// As 32 hexadecimal digits.
impl fmt::Display for HostIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for HostIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostIdentity({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    #[test]
    fn identities_differ_and_have_an_order() {
        assert_ne!(EndpointIdentity::random().unwrap(), EndpointIdentity::random().unwrap());
        let identity = |first, last| {
            let mut bytes = [0; 16];
            (bytes[0], bytes[15]) = (first, last);
            EndpointIdentity::from_bytes(bytes)
        };
        assert!(identity(0, 9) < identity(1, 0), "the first byte counts most");
        assert_eq!(identity(0xab, 1).to_string(), "ab000000000000000000000000000001");
        assert_eq!(EndpointIdentity::from_bytes(identity(3, 4).to_bytes()), identity(3, 4));
    }

    /// A folder that is removed in the end.
    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// As `/proc` is, with this boot id and network namespace.
    fn proc(boot_id: &str, namespace: &str) -> Folder {
        let name = format!("fabric-rdm-proc-{}", EndpointIdentity::random().unwrap());
        let folder = Folder(std::env::temp_dir().join(name));
        std::fs::create_dir_all(folder.0.join("sys/kernel/random")).unwrap();
        std::fs::create_dir_all(folder.0.join("self/ns")).unwrap();
        std::fs::write(folder.0.join("sys/kernel/random/boot_id"), boot_id).unwrap();
        symlink(namespace, folder.0.join("self/ns/net")).unwrap();
        folder
    }

    #[test]
    fn a_host_is_its_boot_and_its_network_namespace() {
        let read = |boot_id, namespace| HostIdentity::read_from(&proc(boot_id, namespace).0);
        let this = read("b1\n", "net:[1]").unwrap();
        assert_eq!(this, read("b1", "net:[1]").unwrap(), "without the end of the line");
        assert_ne!(this, read("b2\n", "net:[1]").unwrap(), "another boot");
        assert_ne!(this, read("b1\n", "net:[2]").unwrap(), "another namespace");
        assert_eq!(HostIdentity::from_bytes(this.to_bytes()), this);
        assert_eq!(this.to_string().len(), 32);
    }

    #[test]
    fn this_host_has_one() {
        assert_eq!(HostIdentity::read().unwrap(), HostIdentity::read().unwrap());
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let folder = proc("\n", "net:[1]");
        let error = HostIdentity::read_from(&folder.0).unwrap_err().to_string();
        assert!(error.contains("boot_id") && error.contains("empty"), "{error}");
        std::fs::write(folder.0.join("sys/kernel/random/boot_id"), "b").unwrap();
        std::fs::remove_file(folder.0.join("self/ns/net")).unwrap();
        let error = HostIdentity::read_from(&folder.0).unwrap_err().to_string();
        assert!(error.contains("self/ns/net"), "{error}");
    }
}
