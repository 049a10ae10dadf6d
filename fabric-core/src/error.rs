//! The one public error type.
//!
//! Two words wide, so that `Result<(), Error>` travels in registers: variants that a data path meets
//! carry nothing, the others are boxed and name the operation and the provider that failed, and why.

use std::fmt;
use std::io;
use std::net::SocketAddr;

/// The result of every fallible call of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed, or how a connection attempt ended.
///
/// An error from a call means that the call had no effect and that nothing of it happens later.
/// Operations that were accepted never report through this type: they end in a completion with a
/// [`Status`](crate::Status).
///
/// Errors of connecting, listening and accepting name the address where the call knows it. `Debug` prints the variant's
/// name and the text of `Display`: that is what `fn main() -> fabric::Result<()>` shows to a user.
///
/// It converts to a [`std::io::Error`] of the kind that fits, with itself inside.
#[derive(thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Error {
    /// The queue is at its depth: take completions, then post again.
    #[error("the queue is full: take completions, then post again")]
    Again,
    /// The endpoint is not connected: not yet, or no longer.
    #[error("the endpoint is not connected")]
    NotConnected,
    /// Local operations still use the object.
    #[error(
        "local operations still use it: take their completions; if they are unsignaled, try again"
    )]
    Busy,
    /// The time given has passed.
    #[error("{}the time given has passed", prefix(.0))]
    TimedOut(Option<Box<SocketAddr>>),
    /// No listener is there, the listener's backlog is full, or it was closed with the request pending.
    #[error("{}the peer refused the connection: there is no listener, its backlog is full, or it closed", prefix(.0))]
    Refused(Option<Box<SocketAddr>>),
    /// The owner of the connection attempt gave it up.
    #[error("canceled by its owner")]
    Canceled,
    /// The device was removed or failed for good; every endpoint on it is dead.
    #[error("the device is gone")]
    DeviceLost,
    /// The peer's application rejected the connection, with this private data.
    #[error("the peer rejected the connection ({} bytes of private data)", .0.len())]
    Rejected(Box<Box<[u8]>>), // boxed twice: a fat pointer would make the whole enum wider
    /// The two ends do not have the same [`Secret`](crate::Secret), or one does not trust the other's
    /// [`Identity`](crate::Identity), or one has none; or somebody between them changed what they said.
    #[error("{0}")]
    Unauthenticated(Box<Failure>),
    /// No route, no such address, or the address cannot be used from here.
    #[error("{0}")]
    Unreachable(Box<Failure>),
    /// Another listener has this address.
    #[error("{0}")]
    AddrInUse(Box<Failure>),
    /// An argument that can never work, or not on this object.
    #[error("{0}")]
    InvalidArgument(Box<Failure>),
    /// The object is not in a state that allows this call.
    #[error("{0}")]
    InvalidState(Box<Failure>),
    /// The provider does not offer this; [`Info`](crate::Info) says so too.
    #[error("{0}")]
    Unsupported(Box<Failure>),
    /// Memory, locked memory, descriptors or device resources ran out.
    #[error("{0}")]
    NoMemory(Box<Failure>),
    /// No provider satisfies the request; the text says why each one does not.
    #[error("{0}")]
    NoProvider(Box<Failure>),
    /// A system call, a verb or this library failed in a way that it does not expect.
    #[error("{0}")]
    Internal(Box<Failure>),
}

const _: () = assert!(size_of::<Error>() <= 16);

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.name())
    }
}

/// The address before the text of an error.
fn prefix(addr: &Option<Box<SocketAddr>>) -> String {
    addr.as_ref().map(|addr| format!("{addr}: ")).unwrap_or_default()
}

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The same call can succeed later.
    Transient,
    /// The same call fails again until something else is changed.
    Permanent,
    /// The connection cannot be used. `NotConnected`: wait for `Connected` if the endpoint is connecting, else make a new one.
    /// `Unreachable`: connect anew. `DeviceLost`: open another domain first.
    PeerLost,
}

/// The name of an operation or a provider. Serde takes a field that is written as a reference for one that borrows from
/// its input, an alias not.
pub(crate) type Name = &'static str;

/// The details of a failure: the operation, the provider, what was wrong, and the cause.
#[derive(Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Failure {
    /// The operation, in the words of this API: `"register"`, `"connect"`.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::names::deserialize"))]
    pub operation: Name,
    /// The provider, or `"fabric"` for what is checked above all providers.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::names::deserialize"))]
    pub provider: Name,
    /// The address that the operation was for, where it was for one.
    pub addr: Option<SocketAddr>,
    /// What was wrong, and what would be right.
    pub detail: String,
    /// The system's error, where there is one.
    #[cfg_attr(feature = "serde", serde(with = "cause"))]
    pub cause: Option<io::Error>,
}

/// The system's error by its number, or else in words: its kind is lost.
#[cfg(feature = "serde")]
mod cause {
    use std::io;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Cause {
        Errno(i32),
        Text(String),
    }

    pub(super) fn serialize<S: Serializer>(
        cause: &Option<io::Error>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let cause = cause.as_ref().map(|cause| match cause.raw_os_error() {
            Some(errno) => Cause::Errno(errno),
            None => Cause::Text(cause.to_string()),
        });
        cause.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<io::Error>, D::Error> {
        let cause = Option::<Cause>::deserialize(from)?;
        Ok(cause.map(|cause| match cause {
            Cause::Errno(errno) => io::Error::from_raw_os_error(errno),
            Cause::Text(text) => io::Error::other(text),
        }))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation)?;
        if let Some(addr) = &self.addr {
            write!(f, " {addr}")?;
        }
        write!(f, ": {}", self.detail)?;
        if let Some(cause) = &self.cause {
            write!(f, ": {cause}")?;
        }
        if self.provider != SHARED { write!(f, " [{}]", self.provider) } else { Ok(()) }
    }
}

/// The provider name of checks that are made once, above all providers.
pub const SHARED: &str = "fabric";

impl Failure {
    /// A failure that the shared code found.
    pub fn new(operation: &'static str, detail: impl Into<String>) -> Box<Self> {
        let detail = detail.into();
        Box::new(Failure { operation, provider: SHARED, addr: None, detail, cause: None })
    }

    /// Names the provider that found it.
    pub fn of(mut self: Box<Self>, provider: &'static str) -> Box<Self> {
        self.provider = provider;
        self
    }

    /// Adds the system's error.
    pub fn because(mut self: Box<Self>, cause: io::Error) -> Box<Self> {
        self.cause = Some(cause);
        self
    }
}

impl Error {
    /// An argument that can never work; `detail` says what was wrong and what would be right.
    #[cold]
    pub fn invalid(operation: &'static str, detail: impl Into<String>) -> Self {
        Error::InvalidArgument(Failure::new(operation, detail))
    }

    /// A call that the object's present state does not allow.
    #[cold]
    pub fn state(operation: &'static str, detail: impl Into<String>) -> Self {
        Error::InvalidState(Failure::new(operation, detail))
    }

    /// Something `provider` does not offer.
    #[cold]
    pub fn unsupported(
        operation: &'static str,
        provider: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Error::Unsupported(Failure::new(operation, detail).of(provider))
    }

    /// A failed system call, sorted by what the caller can do about it.
    #[cold]
    pub fn system(operation: &'static str, provider: &'static str, cause: io::Error) -> Self {
        use io::ErrorKind as K;
        let kind = cause.kind();
        // ENOSPC: as epoll_ctl(2) says that the user has no watch left.
        // ETOOMANYREFS: as unix(7) does that the user has too many descriptors on their way.
        const FULL: [libc::c_int; 5] =
            [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOSPC, libc::ETOOMANYREFS];
        let full = errno(&cause).is_some_and(|errno| FULL.contains(&errno));
        let detail = match kind {
            _ if full => "out of descriptors or buffers (see `ulimit -n`)",
            K::OutOfMemory => "out of memory",
            K::WouldBlock => "out of threads, ports or memory (see `ulimit -a`)",
            K::AddrInUse => "the address is in use",
            K::AddrNotAvailable => "no interface of this machine has the address",
            K::HostUnreachable | K::NetworkUnreachable | K::NetworkDown => "no way to the address",
            _ => "the system call failed",
        };
        let failure = Failure::new(operation, detail).of(provider).because(cause);
        match kind {
            _ if full => Error::NoMemory(failure),
            // EAGAIN: no caller waits with these calls; so they report a limit, as pthread_create(3) does.
            K::OutOfMemory | K::WouldBlock => Error::NoMemory(failure),
            K::AddrInUse => Error::AddrInUse(failure),
            // No wait and no peer changes that.
            K::AddrNotAvailable if operation == "listen" => Error::InvalidArgument(failure),
            K::AddrNotAvailable | K::HostUnreachable | K::NetworkUnreachable | K::NetworkDown => {
                Error::Unreachable(failure)
            }
            K::ConnectionRefused => Error::Refused(None),
            K::TimedOut => Error::TimedOut(None),
            _ => Error::Internal(failure),
        }
    }

    /// Adds the address that the call was for, unless one is there, or the variant has no place for it.
    #[cold]
    pub fn at(mut self, to: SocketAddr) -> Self {
        match &mut self {
            Error::Refused(addr) | Error::TimedOut(addr) => {
                addr.get_or_insert_with(|| Box::new(to));
            }
            Error::Unauthenticated(f)
            | Error::Unreachable(f)
            | Error::AddrInUse(f)
            | Error::InvalidArgument(f)
            | Error::NoMemory(f)
            | Error::Internal(f) => {
                f.addr.get_or_insert(to);
            }
            _ => {}
        }
        self
    }

    /// What the caller can do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Error::Again
            | Error::Busy
            | Error::TimedOut(_)
            | Error::NoMemory(_)
            | Error::Refused(_) => ErrorClass::Transient,
            Error::NotConnected | Error::Unreachable(_) | Error::DeviceLost => ErrorClass::PeerLost,
            _ => ErrorClass::Permanent,
        }
    }

    /// The details, where the variant carries them.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Error::Unauthenticated(f)
            | Error::Unreachable(f)
            | Error::AddrInUse(f)
            | Error::InvalidArgument(f)
            | Error::InvalidState(f)
            | Error::Unsupported(f)
            | Error::NoMemory(f)
            | Error::NoProvider(f)
            | Error::Internal(f) => Some(f),
            _ => None,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Error::Again => "Again",
            Error::NotConnected => "NotConnected",
            Error::Busy => "Busy",
            Error::TimedOut(_) => "TimedOut",
            Error::Refused(_) => "Refused",
            Error::Canceled => "Canceled",
            Error::DeviceLost => "DeviceLost",
            Error::Rejected(_) => "Rejected",
            Error::Unauthenticated(_) => "Unauthenticated",
            Error::Unreachable(_) => "Unreachable",
            Error::AddrInUse(_) => "AddrInUse",
            Error::InvalidArgument(_) => "InvalidArgument",
            Error::InvalidState(_) => "InvalidState",
            Error::Unsupported(_) => "Unsupported",
            Error::NoMemory(_) => "NoMemory",
            Error::NoProvider(_) => "NoProvider",
            Error::Internal(_) => "Internal",
        }
    }

    /// The kind of an [`io::Error`] that says the same, as far as there is one.
    pub fn io_kind(&self) -> io::ErrorKind {
        use io::ErrorKind as K;
        // The system's own word for it is more exact, where there is one.
        if let Some(cause) = self.failure().and_then(|failure| failure.cause.as_ref())
            && cause.kind() != K::Other
        {
            return cause.kind();
        }
        match self {
            Error::Again => K::WouldBlock,
            Error::NotConnected => K::NotConnected,
            Error::Busy => K::ResourceBusy,
            Error::TimedOut(_) => K::TimedOut,
            Error::Refused(_) | Error::Rejected(_) => K::ConnectionRefused,
            Error::Canceled => K::ConnectionAborted,
            Error::DeviceLost => K::NetworkDown,
            Error::Unreachable(_) => K::HostUnreachable,
            Error::Unauthenticated(_) => K::PermissionDenied,
            Error::AddrInUse(_) => K::AddrInUse,
            Error::InvalidArgument(_) => K::InvalidInput,
            Error::Unsupported(_) | Error::NoProvider(_) => K::Unsupported,
            Error::NoMemory(_) => K::OutOfMemory,
            Error::InvalidState(_) | Error::Internal(_) => K::Other,
        }
    }
}

/// With the kind that fits and this error inside ([`io::Error::get_ref`]).
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::new(error.io_kind(), error)
    }
}

/// The error number, also of an error that a provider wrapped to name the call that failed.
fn errno(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| errno(error.get_ref()?.source()?.downcast_ref()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "serde")]
    #[test]
    fn errors_survive_json() {
        let refused = || io::Error::from_raw_os_error(libc::ECONNABORTED);
        let to = SocketAddr::from(([10, 0, 0, 1], 7471));
        for error in [
            Error::Again,
            Error::Refused(None).at(to),
            Error::Rejected(Box::new(Box::new([1, 2]))),
            Error::invalid("send", "too long").at(to),
            Error::unsupported("read", "tcp", "not here"),
            Error::system("connect", "verbs", refused()),
            Error::Internal(Failure::new("poll", "broke").because(io::Error::other("a cause"))),
        ] {
            let json = serde_json::to_string(&error).unwrap();
            let back: Error = serde_json::from_str(&json).unwrap();
            assert_eq!(format!("{back:?}"), format!("{error:?}"), "{json}");
            let errno = |error: &Error| error.failure()?.cause.as_ref()?.raw_os_error();
            assert_eq!(errno(&back), errno(&error));
        }
    }

    #[test]
    fn system_errors_are_sorted_by_remedy() {
        let of = |errno| Error::system("connect", "tcp", io::Error::from_raw_os_error(errno));
        for errno in [libc::EMFILE, libc::ENOSPC, libc::EAGAIN, libc::ENOMEM] {
            assert!(matches!(of(errno), Error::NoMemory(_)), "{errno}");
        }
        assert!(matches!(of(libc::EADDRINUSE), Error::AddrInUse(_)));
        assert!(matches!(of(libc::ENETUNREACH), Error::Unreachable(_)));
        assert!(matches!(of(libc::EADDRNOTAVAIL), Error::Unreachable(_)));
        let foreign = io::Error::from_raw_os_error(libc::EADDRNOTAVAIL);
        assert_eq!(Error::system("listen", "tcp", foreign).class(), ErrorClass::Permanent);
        assert!(matches!(of(libc::ECONNREFUSED), Error::Refused(_)));
        assert!(matches!(of(libc::ETIMEDOUT), Error::TimedOut(_)));
        assert!(matches!(of(libc::EBADF), Error::Internal(_)));
    }

    #[test]
    fn text_names_operation_provider_and_cause() {
        let error = Error::system("listen", "tcp", io::Error::from_raw_os_error(libc::EADDRINUSE));
        let text = error.to_string();
        assert!(text.starts_with("listen: the address is in use"), "{text}");
        assert!(text.ends_with("[tcp]"), "{text}");
    }

    #[test]
    fn text_names_the_address() {
        let to: SocketAddr = "10.0.0.7:7471".parse().unwrap();
        let text = Error::Refused(None).at(to).to_string();
        assert!(text.starts_with("10.0.0.7:7471: the peer refused"), "{text}");
        let system = Error::system("listen", "tcp", io::Error::from_raw_os_error(libc::EADDRINUSE));
        let text = system.at(to).at("10.0.0.8:1".parse().unwrap()).to_string();
        assert!(text.starts_with("listen 10.0.0.7:7471: the address is in use"), "{text}");
        assert_eq!(format!("{:?}", Error::Busy.at(to)), format!("Busy: {}", Error::Busy));
    }

    #[test]
    fn io_errors_have_the_kind_that_fits() {
        let kind = |error: Error| io::Error::from(error).kind();
        assert_eq!(kind(Error::Refused(None)), io::ErrorKind::ConnectionRefused);
        assert_eq!(kind(Error::invalid("connect", "no")), io::ErrorKind::InvalidInput);
        let foreign = io::Error::from_raw_os_error(libc::EADDRNOTAVAIL);
        let kept = io::Error::from(Error::system("listen", "tcp", foreign));
        assert_eq!(kept.kind(), io::ErrorKind::AddrNotAvailable);
        let inside = kept.get_ref().and_then(|inside| inside.downcast_ref::<Error>());
        assert!(matches!(inside, Some(Error::InvalidArgument(_))), "{inside:?}");
    }
}
