//! Where the processes of a job meet: as a value and as a text, and how a process joins there.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use fabric_core::{Error, SECRET_FILE, Secret};

use crate::client;
use crate::error::{ExchangeError, Result};
use crate::exchange::Exchange;
use crate::job::Membership;
use crate::limits::Limits;
use crate::stored::{self, directory::Directory};

/// Where the processes of a job meet.
///
/// ```
/// use fabric_exchange::Rendezvous;
///
/// let there: Rendezvous = "tcp://node7:7473".parse()?;
/// assert_eq!(there, Rendezvous::Tcp("node7:7473".to_owned()));
/// assert_eq!("dir:///scratch/job".parse::<Rendezvous>()?.to_string(), "dir:///scratch/job");
/// # Ok::<(), fabric_exchange::ExchangeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rendezvous {
    /// A server of `fabric rendezvous`, `HOST:PORT`.
    Tcp(String),
    /// A directory that all processes see, absolute.
    Directory(PathBuf),
    /// Servers of etcd, `HOST:PORT`, separated by commas. To join there takes the crate's feature `etcd`.
    Etcd(String),
}

/// The port of `fabric rendezvous`, unless it is given another.
pub const DEFAULT_PORT: u16 = 7473;

impl FromStr for Rendezvous {
    type Err = ExchangeError;

    /// From `tcp://HOST:PORT`, `dir:///PATH` or `etcd://HOST:PORT[,HOST:PORT...]`.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            let right = "tcp://HOST:PORT, dir:///PATH and etcd://HOST:PORT[,HOST:PORT...] are places of a rendezvous";
            Err(ExchangeError::Invalid(format!("{text:?} {why}; {right}")))
        };
        let is_host = |host: &str| match host.rsplit_once(':') {
            Some((name, port)) => {
                !name.is_empty()
                    && !name.contains('/')
                    && port.parse::<u16>().is_ok_and(|port| port > 0)
            }
            None => false,
        };
        match text.split_once("://") {
            Some(("tcp", host)) if is_host(host) => Ok(Rendezvous::Tcp(host.to_owned())),
            Some(("etcd", hosts)) if hosts.split(',').all(is_host) => {
                Ok(Rendezvous::Etcd(hosts.to_owned()))
            }
            Some(("dir", path)) if path.starts_with('/') => Ok(Rendezvous::Directory(path.into())),
            Some(("tcp" | "etcd", _)) => wrong("has no host with a port"),
            Some(("dir", _)) => wrong("has no absolute path: it takes three slashes"),
            _ => wrong("begins with none of tcp://, dir:// and etcd://"),
        }
    }
}

impl fmt::Display for Rendezvous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rendezvous::Tcp(host) => write!(f, "tcp://{host}"),
            Rendezvous::Directory(path) => write!(f, "dir://{}", path.display()),
            Rendezvous::Etcd(hosts) => write!(f, "etcd://{hosts}"),
        }
    }
}

/// How a process joins.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JoinOptions {
    /// The secret of the job. With one, a server proves it too, and values in a directory or in etcd carry a code by it.
    pub secret: Option<Secret>,
    /// How long to try to reach a server that may not be there yet: 30 s.
    pub timeout: Duration,
    /// The bounds of the job in a directory or in etcd, which all members should set alike. A server has its own.
    pub limits: Limits,
}

impl Default for JoinOptions {
    fn default() -> Self {
        let timeout = Duration::from_secs(30);
        JoinOptions { secret: None, timeout, limits: Limits::default() }
    }
}

impl JoinOptions {
    /// The defaults, with the secret in the file that `FABRIC_SECRET_FILE` names, if it is set.
    ///
    /// # Errors
    /// `Invalid`: what is wrong with the file; `Storage` if this process has no descriptor left.
    pub fn from_env() -> Result<Self> {
        let Some(path) = std::env::var_os(SECRET_FILE) else { return Ok(Self::default()) };
        let secret = Secret::from_file(path).map_err(|error| match error {
            Error::NoMemory(_) => ExchangeError::Storage(error.to_string()),
            error => ExchangeError::Invalid(format!("{SECRET_FILE}: {error}")),
        })?;
        Ok(JoinOptions { secret: Some(secret), ..Self::default() })
    }
}

impl Exchange {
    /// Joins a job at a place.
    ///
    /// # Errors
    /// `Unreachable` if the place is not there in time; `Unauthenticated`; `AlreadyJoined`; `SizeDiffers`; `Full`; `Invalid` for limits
    /// that cannot be, and for etcd if the crate was built without it; and what the carrier finds.
    pub fn join(
        place: &Rendezvous,
        membership: &Membership,
        options: &JoinOptions,
    ) -> Result<Self> {
        let JoinOptions { secret, timeout, limits } = options;
        match place {
            Rendezvous::Tcp(server) => client::join(server, membership, secret.as_ref(), *timeout),
            Rendezvous::Directory(root) => {
                let store = Directory::open(root, membership.job())?;
                stored::join(store, membership, secret.as_ref(), *limits)
            }
            #[cfg(feature = "etcd")]
            Rendezvous::Etcd(servers) => {
                let store = stored::etcd::Etcd::open(servers, membership, *timeout)?;
                stored::join(store, membership, secret.as_ref(), *limits)
            }
            #[cfg(not(feature = "etcd"))]
            Rendezvous::Etcd(_) => {
                let text =
                    format!("{place}: anyfabric-exchange was built without its feature `etcd`");
                Err(ExchangeError::Invalid(text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_shown() {
        for text in ["tcp://[::1]:7473", "dir:///a b/c", "etcd://a:1,b:2"] {
            assert_eq!(text.parse::<Rendezvous>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_place_says_what_is() {
        for (text, why) in [
            ("node7:7473", "begins with none"),
            ("http://node7:1", "begins with none"),
            ("tcp://node7", "no host with a port"),
            ("tcp://:1", "no host with a port"),
            ("tcp://a:0", "no host with a port"),
            ("tcp://a:1/x:2", "no host with a port"),
            ("etcd://a:1,", "no host with a port"),
            ("dir://relative/path", "three slashes"),
        ] {
            let error = text.parse::<Rendezvous>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("dir:///PATH"), "{text}: {error}");
        }
    }
}
