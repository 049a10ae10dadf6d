//! Connections: what an application does with a peer.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use fabric::DisconnectReason;

use crate::buffer::Buffer;
use crate::conn::Conn;
use crate::error::{Error, Result};
use crate::lease::RemoteTarget;
use crate::node::Node;
use crate::op_buffers::{Payload, RecvPayload};
use crate::operation::Operation;
use crate::pool::AllocWait;
use crate::recv::{Notifications, Notified, Receive};
use crate::transfer::TransferKind;

/// A connection to a peer.
///
/// - Clones are the same connection; any number of tasks may use it at once, without locks.
/// - Operations are posted in the order in which their futures are first polled, and take effect at the peer in that
///   order, but for what [`fabric::contract`] says of reads and atomics.
/// - When its last clone and the last future of it are gone it is closed at once: what is under way is canceled. To end in
///   order, [`shutdown`](Connection::shutdown) first.
/// - A failed operation, or the peer's end, ends the connection for good: everything then fails with
///   [`Error::Disconnected`] and the reason. Messages that had arrived can still be taken.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// let text = conn.node().pool().alloc_from(b"hello")?;
/// let text = conn.send(text).await?; // the buffer is ours again
/// assert_eq!(*text, *peer.recv().await?);
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct Connection {
    pub(crate) inner: Arc<Conn>,
}

impl Connection {
    pub(crate) fn new(conn: Arc<Conn>) -> Self {
        Connection { inner: conn }
    }

    /// The node it is on.
    pub fn node(&self) -> Node {
        Node { inner: self.inner.node.clone() }
    }

    /// By which the domain's dumps and counters name it.
    pub fn id(&self) -> fabric::EndpointId {
        self.inner.endpoint.id()
    }

    /// The address of this end.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.inner.endpoint.local_addr()
    }

    /// The address of the other end.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.inner.endpoint.peer_addr()
    }

    /// The name that the other end has proved by its certificate: see [`fabric::Endpoint::peer_identity`].
    pub fn peer_identity(&self) -> Option<Arc<str>> {
        self.inner.endpoint.peer_identity()
    }

    /// What the peer's application gave when it connected, or accepted.
    ///
    /// ```
    /// use fabric_async::{Node, block_on};
    ///
    /// let node = Node::shared()?;
    /// let listener = block_on(node.listen("127.0.0.1:0"))?;
    /// let to = listener.local_addr();
    /// let client = std::thread::spawn(move || block_on(node.connect_with(to, b"shard 3")));
    /// let peer = block_on(listener.accept())?;
    /// assert_eq!(peer.peer_data(), b"shard 3");
    /// assert_eq!(client.join().unwrap()?.peer_data(), b""); // it accepted without a word
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn peer_data(&self) -> &[u8] {
        self.inner.peer.get().map_or(&[], |peer| &peer.data)
    }

    /// The longest message that the peer takes.
    pub fn max_message(&self) -> usize {
        self.inner.peer.get().map_or(0, |peer| peer.max_message as usize)
    }

    // ------------------------------------------------------------------------------------ memory

    /// A buffer from the node's pool: see [`Pool::alloc`](crate::Pool::alloc).
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let mut buffer = conn.alloc(4096)?;
    /// buffer[..5].copy_from_slice(b"hello");
    /// conn.send(buffer.slice(..5)).await?;
    /// assert_eq!(*peer.recv().await?, *b"hello");
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`Pool::alloc`](crate::Pool::alloc).
    #[inline]
    pub fn alloc(&self, len: usize) -> Result<Buffer> {
        self.inner.node.pool.alloc(len)
    }

    /// A buffer, once there is memory for it: see [`Pool::alloc_wait`](crate::Pool::alloc_wait).
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let buffer = conn.alloc_wait(4096).await?;
    /// assert_eq!(buffer.len(), 4096);
    /// # Ok(()) });
    /// ```
    pub fn alloc_wait(&self, len: usize) -> AllocWait {
        self.inner.node.pool.alloc_wait(len)
    }

    // ---------------------------------------------------------------------------------- messages

    /// Sends a message; done when the peer has it in a buffer of its own.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let mut buffer = conn.alloc(100)?;
    /// buffer[..5].copy_from_slice(b"hello");
    /// conn.send(buffer.slice(..5)).await?;
    /// assert_eq!(*peer.recv().await?, *b"hello");
    /// // What fails brings the buffer back.
    /// let failed = conn.send(conn.alloc(conn.max_message() + 1)?).await.unwrap_err();
    /// assert!(matches!(failed.error, fabric_async::Error::TooLong { .. }));
    /// assert_eq!(failed.buffer.len(), conn.max_message() + 1);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// `TooLong` if the peer does not take messages of this length; `Disconnected`. The error has the buffer.
    #[inline]
    pub fn send<P: Payload>(&self, message: P) -> Operation<P> {
        Operation::new(&self.inner, message, TransferKind::Send { immediate: None })
    }

    /// Sends a message with 32 bits beside it ([`Message::immediate`](crate::Message::immediate)).
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// conn.send_with(conn.alloc(8)?, 7).await?;
    /// assert_eq!(peer.recv().await?.immediate, Some(7));
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`send`](Connection::send).
    pub fn send_with<P: Payload>(&self, message: P, immediate: u32) -> Operation<P> {
        Operation::new(&self.inner, message, TransferKind::Send { immediate: Some(immediate) })
    }

    /// The next message, in a buffer of its length. Dropping the future loses nothing. Several tasks that wait are served in
    /// turn.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// conn.send(conn.node().pool().alloc_from(b"one")?).await?;
    /// conn.shutdown(std::time::Duration::from_secs(5)).await?;
    /// assert_eq!(*peer.recv().await?, *b"one");
    /// assert!(matches!(peer.recv().await, Err(fabric_async::Error::Disconnected(_))));
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// `Disconnected`, when every message that arrived before has been taken.
    #[inline]
    pub fn recv(&self) -> Receive {
        Receive::new(&self.inner)
    }

    // --------------------------------------------------------------------------------- one-sided

    /// Writes into the peer's memory; the peer's application takes no part in it. Done when the peer's side has accepted the
    /// bytes: every later operation of this connection finds them there.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_lease(4096, std::time::Duration::from_secs(30)).await?;
    /// let buffer = conn.node().pool().alloc_from(b"hello")?;
    /// conn.write(buffer, remote.at(16)).delivered().await?;
    /// // Its owner sees it.
    /// let lent = peer.local_lease(remote.id()).unwrap();
    /// let mut bytes = [0; 5];
    /// lent.read_at(16, &mut bytes)?;
    /// assert_eq!(&bytes, b"hello");
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// `LeaseEnded` if this side knows that; the fabric's `InvalidArgument` if it does not fit, or the right is missing;
    /// `RemoteAccess` if the peer refuses, which ends the connection; `Disconnected`. The error has the buffer.
    #[inline]
    pub fn write<P: Payload>(&self, from: P, to: impl Into<RemoteTarget>) -> Operation<P> {
        let what = TransferKind::Write { to: to.into(), immediate: None, delivered: false };
        Operation::new(&self.inner, from, what)
    }

    /// Writes as [`write`](Connection::write), and notifies the peer when the bytes are there, by a
    /// [`Notification`](crate::Notification) with these 32 bits.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_lease(4096, std::time::Duration::from_secs(30)).await?;
    /// conn.write_notify(conn.alloc(100)?, remote.at(0), 42).await?;
    /// let notification = peer.notified().await?;
    /// assert_eq!((notification.immediate, notification.len), (42, 100));
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`write`](Connection::write).
    pub fn write_notify<P: Payload>(
        &self,
        from: P,
        to: impl Into<RemoteTarget>,
        immediate: u32,
    ) -> Operation<P> {
        let what =
            TransferKind::Write { to: to.into(), immediate: Some(immediate), delivered: false };
        Operation::new(&self.inner, from, what)
    }

    /// The next notification of a peer's [`write_notify`](Connection::write_notify). Dropping the future loses nothing.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_lease(64, std::time::Duration::from_secs(30)).await?;
    /// conn.write_notify(conn.node().pool().alloc_from(b"ready")?, remote.at(0), 7).await?;
    /// assert_eq!(peer.notified().await?.immediate, 7);
    /// assert_eq!(peer.local_lease(remote.id()).unwrap().get::<[u8; 5]>(0)?, *b"ready"); // the bytes are there
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`recv`](Connection::recv).
    pub fn notified(&self) -> Notified {
        Notified::new(&self.inner)
    }

    /// All further notifications as a stream, which ends behind the connection's end. Dropping it loses nothing.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// use futures_util::StreamExt;
    ///
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_lease(64, std::time::Duration::from_secs(30)).await?;
    /// for slot in 0..4 {
    ///     conn.write_notify(conn.alloc(16)?, remote.at(16 * u64::from(slot)), slot).await?;
    /// }
    /// let slots: Vec<_> = peer.notifications().take(4).map(|one| one.unwrap().immediate).collect().await;
    /// assert_eq!(slots, [0, 1, 2, 3]);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// Its last item is the one of [`notified`](Connection::notified).
    pub fn notifications(&self) -> Notifications {
        Notifications::new(&self.inner)
    }

    /// Reads from the peer's memory, as many bytes as the buffer has.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_lease(4096, std::time::Duration::from_secs(30)).await?;
    /// let bytes = conn.read(conn.alloc(64)?, remote.at(0)).await?;
    /// assert_eq!(*bytes, [0; 64]); // lent memory comes zeroed
    /// // Into several buffers at once.
    /// let parts = conn.read(vec![conn.alloc(8)?, conn.alloc(24)?], remote.at(0)).await?;
    /// assert_eq!(parts[1].len(), 24);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`write`](Connection::write).
    #[inline]
    pub fn read<P: RecvPayload>(&self, into: P, from: impl Into<RemoteTarget>) -> Operation<P> {
        Operation::new(&self.inner, into, TransferKind::Read { from: from.into() })
    }

    // ----------------------------------------------------------------------------------- the end

    /// Waits until the connection has ended; says why.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// peer.close();
    /// assert_eq!(conn.closed().await, fabric::DisconnectReason::Remote);
    /// # Ok(()) });
    /// ```
    pub async fn closed(&self) -> DisconnectReason {
        self.inner.conn_state.closed().await
    }

    /// Why the connection has ended, if it has and the node has heard of it, which is a moment after the end:
    /// [`closed`](Connection::closed) waits for that.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// assert_eq!(conn.end(), None);
    /// conn.close();
    /// conn.closed().await;
    /// assert_eq!(conn.end(), Some(fabric::DisconnectReason::Local));
    /// # Ok(()) });
    /// ```
    pub fn end(&self) -> Option<DisconnectReason> {
        self.inner.node.router.take_events();
        self.inner.conn_state.end()
    }

    /// Waits until everything that was posted is done, then ends the connection.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// conn.send(conn.node().pool().alloc_from(b"goodbye")?).await?;
    /// conn.shutdown(std::time::Duration::from_secs(5)).await?;
    /// assert_eq!(conn.closed().await, fabric::DisconnectReason::Local);
    /// assert_eq!(*peer.recv().await?, *b"goodbye");
    /// assert_eq!(peer.closed().await, fabric::DisconnectReason::Remote);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// `TimedOut` if that took longer: then it is still connected. `Disconnected` if it had ended before.
    pub async fn shutdown(&self, timeout: Duration) -> Result<()> {
        let conn = &self.inner;
        // `None`: never.
        let deadline = Instant::now().checked_add(timeout);
        // An empty message would reach the peer's application; an empty write does not, and comes after all others.
        let nowhere = fabric::RemoteRegion::from_parts(0, 0, 0, fabric::Access::REMOTE);
        let mut last = std::pin::pin!(self.write(Buffer::empty(), nowhere.at(0)).fence());
        let mut timer = conn.node.reactor.timer();
        let done = poll_fn(|cx| {
            if let Poll::Ready(done) = last.as_mut().poll(cx) {
                return Poll::Ready(done.map(drop).map_err(Error::from));
            }
            if deadline.is_some_and(|at| at <= Instant::now()) {
                return Poll::Ready(Err(Error::TimedOut(timeout)));
            }
            if let Some(at) = deadline {
                timer.wake_at(at, cx.waker());
            }
            Poll::Pending
        });
        done.await?;
        self.close();
        Ok(())
    }

    /// Ends the connection at once: what is under way is canceled.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// use fabric_async::Error;
    ///
    /// conn.close();
    /// let failed = conn.send(conn.alloc(8)?).await.unwrap_err();
    /// assert!(matches!(failed.error, Error::Disconnected(fabric::DisconnectReason::Local)));
    /// assert!(matches!(peer.recv().await, Err(Error::Disconnected(fabric::DisconnectReason::Remote))));
    /// # Ok(()) });
    /// ```
    pub fn close(&self) {
        self.inner.endpoint.disconnect();
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (endpoint, peer) = (&self.inner.endpoint, self.peer_addr());
        write!(f, "Connection({endpoint:?}, to {peer:?})")
    }
}
