//! The one public error type.
//!
//! Two words wide, so that `Result<(), Error>` travels in registers: variants that a data path meets
//! carry nothing, the others are boxed and say which operation of which provider failed, and why.

use std::fmt;
use std::io;

/// The result of every fallible call of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed, or how a connection attempt ended.
///
/// An error from a call means that the call had no effect and that nothing of it happens later.
/// Operations that were accepted never report through this type: they end in a completion with a
/// [`Status`](crate::Status).
#[derive(Debug, thiserror::Error)]
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
    #[error("the time given has passed")]
    TimedOut,
    /// Nobody listens there, the listener's backlog is full, or it was closed with the request pending.
    #[error("the peer refused the connection: nobody listens, its backlog is full, or it closed")]
    Refused,
    /// The owner of the connection attempt gave it up.
    #[error("canceled by its owner")]
    Canceled,
    /// The device was removed or failed for good; every endpoint on it is dead.
    #[error("the device is gone")]
    DeviceLost,
    /// The peer's application rejected the connection, with this private data.
    #[error("the peer rejected the connection ({} bytes of private data)", .0.len())]
    Rejected(Box<Box<[u8]>>), // boxed twice: a fat pointer would make the whole enum wider
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

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The same call can succeed later.
    Transient,
    /// The same call fails again until something else is changed.
    Permanent,
    /// The peer, or the way to it, is lost: connect anew.
    PeerLost,
}

/// The details of a failure: which operation, of which provider, what was wrong, and the cause.
#[derive(Debug)]
pub struct Failure {
    /// The operation, in the words of this API: `"register"`, `"connect"`.
    pub operation: &'static str,
    /// The provider, or `"fabric"` for what is checked above all providers.
    pub provider: &'static str,
    /// What was wrong, and what would be right.
    pub detail: String,
    /// The system's error, where there is one.
    pub cause: Option<io::Error>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, self.detail)?;
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
        Box::new(Failure { operation, provider: SHARED, detail: detail.into(), cause: None })
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
        const FULL: [libc::c_int; 4] = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOSPC];
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
            // EAGAIN: no caller waits with these calls; so they tell of a limit, as pthread_create(3) does.
            K::OutOfMemory | K::WouldBlock => Error::NoMemory(failure),
            K::AddrInUse => Error::AddrInUse(failure),
            // No wait and no peer changes that.
            K::AddrNotAvailable if operation == "listen" => Error::InvalidArgument(failure),
            K::AddrNotAvailable | K::HostUnreachable | K::NetworkUnreachable | K::NetworkDown => {
                Error::Unreachable(failure)
            }
            K::ConnectionRefused => Error::Refused,
            K::TimedOut => Error::TimedOut,
            _ => Error::Internal(failure),
        }
    }

    /// What the caller can do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Error::Again | Error::Busy | Error::TimedOut | Error::NoMemory(_) | Error::Refused => {
                ErrorClass::Transient
            }
            Error::NotConnected | Error::Unreachable(_) | Error::DeviceLost => ErrorClass::PeerLost,
            _ => ErrorClass::Permanent,
        }
    }

    /// The details, where the variant carries them.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Error::Unreachable(f)
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
}

/// The error number, also of an error that a provider wrapped to name the call that failed.
fn errno(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| errno(error.get_ref()?.source()?.downcast_ref()?))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(matches!(of(libc::ECONNREFUSED), Error::Refused));
        assert!(matches!(of(libc::ETIMEDOUT), Error::TimedOut));
        assert!(matches!(of(libc::EBADF), Error::Internal(_)));
    }

    #[test]
    fn text_names_operation_provider_and_cause() {
        let error = Error::system("listen", "tcp", io::Error::from_raw_os_error(libc::EADDRINUSE));
        let text = error.to_string();
        assert!(text.starts_with("listen: the address is in use"), "{text}");
        assert!(text.ends_with("[tcp]"), "{text}");
    }
}
