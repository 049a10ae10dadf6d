//! What can go wrong, and how it comes back together with the buffer.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fabric::{DisconnectReason, Status};

/// The result of calls that carry no buffer.
///
/// ```
/// use fabric_async::{Buffer, Node, Result};
///
/// fn greeting(node: &Node) -> Result<Buffer> {
///     node.pool().alloc_from(b"hello")
/// }
/// assert_eq!(*greeting(&Node::shared()?)?, *b"hello");
/// # Ok::<(), fabric_async::Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call or an operation failed.
///
/// ```
/// use fabric_async::{Error, Node};
///
/// let node = Node::builder().pool_bytes(1 << 20).build()?;
/// match node.pool().alloc(2 << 20).unwrap_err() {
///     Error::PoolExhausted { registered, bound, .. } => assert_eq!((registered, bound), (0, 1 << 20)),
///     other => return Err(other),
/// }
/// # Ok::<(), fabric_async::Error>(())
/// ```
///
/// `Debug` prints the variant's name and the text of `Display`: that is what `fn main() -> fabric_async::Result<()>` shows to
/// a user. It converts to a [`std::io::Error`] of the kind that fits, with itself inside.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection has ended; the reason says how. An operation that was under way was executed at most once.
    #[error("disconnected: {0}")]
    Disconnected(DisconnectReason),
    /// The target refused the access: its lease had ended, or the owner's memory does not allow this. Nothing was
    /// changed there, and the connection has ended.
    #[error(
        "the target refused the access (a lease that ended, or a right it does not give); the connection has ended"
    )]
    RemoteAccess,
    /// The message is longer than the peer takes; `max` is what it said when it connected.
    #[error("a message of {len} bytes; the peer takes at most {max} (its `max_message`)")]
    TooLong {
        /// Bytes of the message.
        len: usize,
        /// Bytes that the peer takes.
        max: usize,
    },
    /// The message was longer than the receive: what fits is in its buffer, the rest is lost. Its sender ended well.
    #[cfg(feature = "rdm")]
    #[error("a message of {len} bytes; the receive had room for {room}")]
    Truncated {
        /// Bytes of the message.
        len: usize,
        /// Bytes that there was room for, which are in the buffer.
        room: usize,
    },
    /// The peer of an endpoint is lost, and posts to it fail until it is [revived](crate::rdm::Endpoint::revive). Nothing was
    /// sent.
    #[cfg(feature = "rdm")]
    #[error("the peer is down, until it is revived: {0}")]
    PeerDown(fabric_rdm::DeathCause),
    /// Another incarnation is at the peer's address: the operation was not executed.
    #[cfg(feature = "rdm")]
    #[error("another incarnation is at the peer's address")]
    PeerGone,
    /// The operation ended badly in a way that the connection's end does not explain.
    #[error("the operation ended with: {0}")]
    Failed(Status),
    /// The lease has ended, as far as this side knows: nothing was sent.
    #[error("the lease has ended ({0})")]
    LeaseEnded(LeaseEnd),
    /// The owner of the memory did not grant the request; it says why.
    #[error("the peer lends nothing: {0}")]
    NotGranted(Refusal),
    /// The pool is at its bound: free buffers, wait ([`Pool::alloc_wait`](crate::Pool::alloc_wait)), or allow more
    /// ([`NodeBuilder::pool_bytes`](crate::NodeBuilder::pool_bytes)).
    #[error(
        "the pool is at its bound: {registered} of {bound} bytes are registered, {needed} more were needed"
    )]
    PoolExhausted {
        /// Bytes that were to be registered.
        needed: usize,
        /// Bytes that are.
        registered: usize,
        /// The most that may be.
        bound: usize,
    },
    /// The node accepts no more connections from there now: see [`NodeBuilder::connections`](crate::NodeBuilder::connections).
    #[error(
        "no place for another connection from {from}: it has {of_it}, and {taken} of {max} are taken \
         (NodeBuilder::connections, connections_per_address)"
    )]
    TooManyConnections {
        /// Where the peer is.
        from: IpAddr,
        /// Connections that came from there; of IPv6 from its /64.
        of_it: usize,
        /// Connections that came from anywhere.
        taken: usize,
        /// The most of them.
        max: usize,
    },
    /// The peer rejected the connection; its words, if it gave any.
    #[error("the peer rejected the connection{}", words(.0))]
    Rejected(Vec<u8>),
    /// The peer does not speak the protocol of this crate, or another version of it.
    #[error("{0}")]
    Protocol(String),
    /// The time given has passed.
    #[error("not done within {0:?}")]
    TimedOut(Duration),
    /// The address cannot be resolved.
    #[error("no address for {name:?}: {cause}")]
    Address {
        /// What was to be resolved.
        name: String,
        /// Why it could not be.
        cause: io::Error,
    },
    /// None of the addresses of a name could be connected to.
    #[error("no address of {name} could be connected to ({}); the last: {last}", list(.tried))]
    Unreached {
        /// What was resolved.
        name: String,
        /// Its addresses, in the order in which they were tried.
        tried: Vec<SocketAddr>,
        /// What the last one ended with.
        last: Box<Error>,
    },
    /// A call of the fabric failed.
    #[error(transparent)]
    Fabric(fabric::Error),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Error::Disconnected(_) => "Disconnected",
            Error::RemoteAccess => "RemoteAccess",
            Error::TooLong { .. } => "TooLong",
            #[cfg(feature = "rdm")]
            Error::Truncated { .. } => "Truncated",
            #[cfg(feature = "rdm")]
            Error::PeerDown(_) => "PeerDown",
            #[cfg(feature = "rdm")]
            Error::PeerGone => "PeerGone",
            Error::Failed(_) => "Failed",
            Error::LeaseEnded(_) => "LeaseEnded",
            Error::NotGranted(_) => "NotGranted",
            Error::PoolExhausted { .. } => "PoolExhausted",
            Error::TooManyConnections { .. } => "TooManyConnections",
            Error::Rejected(_) => "Rejected",
            Error::Protocol(_) => "Protocol",
            Error::TimedOut(_) => "TimedOut",
            Error::Address { .. } => "Address",
            Error::Unreached { .. } => "Unreached",
            Error::Fabric(error) => return fmt::Debug::fmt(error, f),
        };
        write!(f, "{name}: {self}")
    }
}

impl Error {
    /// The kind of an [`io::Error`] that says the same, as far as there is one.
    fn io_kind(&self) -> io::ErrorKind {
        match self {
            Error::Disconnected(DisconnectReason::Remote) => io::ErrorKind::ConnectionReset,
            Error::Disconnected(_) => io::ErrorKind::ConnectionAborted,
            Error::RemoteAccess | Error::NotGranted(_) => io::ErrorKind::PermissionDenied,
            Error::TooLong { .. } => io::ErrorKind::InvalidInput,
            #[cfg(feature = "rdm")]
            Error::Truncated { .. } => io::ErrorKind::InvalidData,
            #[cfg(feature = "rdm")]
            Error::PeerDown(_) | Error::PeerGone => io::ErrorKind::NotConnected,
            Error::PoolExhausted { .. } => io::ErrorKind::OutOfMemory,
            Error::TooManyConnections { .. } => io::ErrorKind::QuotaExceeded,
            Error::Rejected(_) => io::ErrorKind::ConnectionRefused,
            Error::Protocol(_) => io::ErrorKind::InvalidData,
            Error::TimedOut(_) => io::ErrorKind::TimedOut,
            Error::Address { cause, .. } => cause.kind(),
            Error::Unreached { last, .. } => last.io_kind(),
            Error::Fabric(error) => error.io_kind(),
            Error::Failed(_) | Error::LeaseEnded(_) => io::ErrorKind::Other,
        }
    }
}

/// With the kind that fits and this error inside ([`io::Error::get_ref`]).
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::new(error.io_kind(), error)
    }
}

impl<B> From<OpError<B>> for io::Error {
    fn from(failed: OpError<B>) -> Self {
        failed.error.into()
    }
}

/// How a lease ended, for who holds it.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// use fabric_async::{Error, LeaseEnd};
/// use std::time::Duration;
///
/// let remote = conn.request_lease(64, Duration::from_millis(2)).await?;
/// std::thread::sleep(Duration::from_millis(3));
/// assert_eq!(remote.end(), Some(LeaseEnd::Expired));
/// let error = Error::LeaseEnded(LeaseEnd::Expired);
/// assert_eq!(error.to_string(), "the lease has ended (it expired)");
/// # Ok(()) });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseEnd {
    /// It expired.
    Expired,
    /// This side gave it back.
    Released,
    /// The owner took it back.
    Revoked,
    /// The connection it came over has ended.
    Disconnected,
}

impl fmt::Display for LeaseEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LeaseEnd::Expired => "it expired",
            LeaseEnd::Released => "it was given back",
            LeaseEnd::Revoked => "its owner took it back",
            LeaseEnd::Disconnected => "its connection has ended",
        })
    }
}

/// Why a peer lends nothing.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// use fabric_async::{Error, Refusal};
///
/// let refused = conn.request_lease(1 << 40, std::time::Duration::from_secs(30)).await;
/// match refused.unwrap_err() {
///     Error::NotGranted(Refusal::TooMuch { max }) => assert_eq!(max, 64 << 20), // ask for less
///     other => return Err(other),
/// }
/// # Ok(()) });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Its policy lends nothing at all.
    Nothing,
    /// More bytes than it lends to one peer.
    TooMuch {
        /// The most bytes, all leases of this connection together.
        max: u64,
    },
    /// Longer than its longest lease.
    TooLong {
        /// The longest lease.
        max: Duration,
    },
    /// Rights that it does not give.
    Rights,
    /// More leases at a time than it grants to one peer.
    TooMany,
    /// It has no memory left for this peer.
    NoMemory,
    /// Its application does not grant it ([`NodeBuilder::decide_leases`](crate::NodeBuilder::decide_leases)).
    Denied,
    /// It knows no such lease, or it has ended.
    Unknown,
    /// It lent the memory unasked, for a time that it chose: it is not renewed.
    Fixed,
    /// No connection for leases was made: one of the two sides does not want any.
    Disabled,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Nothing => f.write_str("its policy lends nothing"),
            Refusal::TooMuch { max } => write!(f, "it lends at most {max} bytes to a peer"),
            Refusal::TooLong { max } => write!(f, "it lends for at most {max:?}"),
            Refusal::Rights => f.write_str("it does not give these rights"),
            Refusal::TooMany => f.write_str("this connection has as many leases as it grants"),
            Refusal::NoMemory => f.write_str("it has no memory left for this peer"),
            Refusal::Denied => f.write_str("its application does not grant it"),
            Refusal::Unknown => f.write_str("it knows no such lease"),
            Refusal::Fixed => f.write_str("it lent this unasked, for a time that it chose"),
            Refusal::Disabled => f.write_str("leases are turned off on this connection"),
        }
    }
}

fn list(addresses: &[SocketAddr]) -> String {
    let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

/// The peer's private data as text, if it is some.
fn words(data: &[u8]) -> String {
    match std::str::from_utf8(data) {
        Ok("") => String::new(),
        Ok(text) if !text.chars().any(char::is_control) => format!(": {text}"),
        _ => format!(" ({} bytes of data)", data.len()),
    }
}

impl From<fabric::Error> for Error {
    fn from(error: fabric::Error) -> Self {
        match error {
            fabric::Error::Rejected(data) => Error::Rejected(data.into_vec()),
            other => Error::Fabric(other),
        }
    }
}

/// An operation that failed, with what it was given: nothing is lost by a failure.
///
/// It becomes an [`Error`] by `?`, which lets the buffer go back to its pool.
///
/// ```
/// use fabric_async::{Buffer, Error, OpError};
///
/// fn retry_with(failed: OpError<Buffer>) -> Result<Buffer, Error> {
///     match failed.error {
///         Error::TooLong { max, .. } => {
///             let mut buffer = failed.buffer;
///             buffer.truncate(max);
///             Ok(buffer)
///         }
///         error => Err(error),
///     }
/// }
/// # let node = fabric_async::Node::shared()?;
/// # let failed = OpError { error: Error::TooLong { len: 100, max: 10 }, buffer: node.pool().alloc(100)? };
/// # assert_eq!(retry_with(failed)?.len(), 10);
/// # Ok::<_, Error>(())
/// ```
pub struct OpError<B> {
    /// Why.
    pub error: Error,
    /// What the operation was given.
    pub buffer: B,
}

impl<B> fmt::Debug for OpError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpError({:?})", self.error)
    }
}

impl<B> fmt::Display for OpError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<B> std::error::Error for OpError<B> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<B> From<OpError<B>> for Error {
    fn from(failed: OpError<B>) -> Self {
        failed.error
    }
}
