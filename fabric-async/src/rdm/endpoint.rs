//! The endpoint as applications have it.

use std::fmt;
use std::sync::Arc;

use fabric::{AtomicOp, AtomicScalar};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Address, Counter, DeathCause, Kind, Peer, RdmAttr};

use super::claim::ClaimNext;
use super::inner::EndpointInner;
use super::many::RecvMany;
use super::message::{MessageInfo, MessagePayload, MessageRoom};
use super::one_sided::{FetchAtomic, OneSided};
use super::recv::RecvMessage;
use super::send::{Inject, SendMessage};
use super::waits::{CounterReached, Idle, NextEvent, NextNotification, NotificationStream};
use crate::buffer::Buffer;
use crate::error::Result;
use crate::fetch::Change;
use crate::lease::RemoteTarget;
use crate::node::Node;
use crate::op_buffers::{Payload, RecvPayload};
use crate::pool::Pool;
use crate::transfer::TransferKind;

/// A reliable datagram endpoint: messages, one-sided operations and atomics to many peers, by their addresses.
///
/// What it promises is what [`fabric_rdm::Endpoint`] does: order, matching, the window, the death of peers. Here operations are
/// futures that own their buffers, which are of the node's [`Pool`]. Any task or thread may use it; clones are the same endpoint.
///
/// When its last handle and future are gone it closes all connections, and its peers find it lost:
/// [`close`](Endpoint::close) first waits until all that was sent has arrived.
///
/// ```
/// use fabric_async::{Node, block_on, rdm::Endpoint};
/// use fabric_rdm::RdmAttr;
/// use fabric_rdm::matching::Pattern;
///
/// # fn main() -> Result<(), fabric_async::Error> {
/// let node = Node::shared()?;
/// // Both are in one process here; nothing would change if they were not.
/// let a = Endpoint::new(&node, &RdmAttr::default())?;
/// let b = Endpoint::new(&node, &RdmAttr::default())?;
/// let (to_b, from_a) = (a.insert(b.address())?, b.insert(a.address())?);
/// block_on(async {
///     a.send(to_b, node.pool().alloc_from(b"a message")?).tag(7).await?;
///     let inbox = node.pool().alloc(4096)?;
///     let (inbox, info) = b.recv(Pattern::tagged(7).from(from_a), inbox).await?;
///     assert_eq!(&inbox[..info.len], b"a message");
///     a.close().await
/// })
/// # }
/// ```
#[derive(Clone)]
pub struct Endpoint {
    inner: Arc<EndpointInner>,
    address: Address,
    node: Node,
}

impl Endpoint {
    /// Makes an endpoint on the node's device, which listens for peers. It has a completion queue of its own; memory, the
    /// node's thread and its [`WaitStrategy`](crate::WaitStrategy) it shares with the connections of the node.
    ///
    /// # Errors
    /// The fabric's `InvalidArgument` that names the setting; what listening, allocating and making queues can fail with.
    pub fn new(node: &Node, attr: &RdmAttr) -> Result<Self> {
        let inner = EndpointInner::new(&node.inner, attr)?;
        let address = inner.endpoint()?.address().clone();
        Ok(Endpoint { inner, address, node: node.clone() })
    }

    /// What peers need to reach it.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The node that it is on.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The registered memory that buffers come from.
    pub fn pool(&self) -> &Pool {
        self.node.pool()
    }

    /// Makes a peer of an address: the same one each time for the same identity. Its own address makes a peer of itself.
    ///
    /// # Errors
    /// The fabric's `NoMemory`: there are as many peers as may be. `InvalidState` in a forked child.
    pub fn insert(&self, address: &Address) -> Result<Peer> {
        Ok(self.inner.endpoint()?.insert(address)?)
    }

    /// Removes a peer: what is pending with it fails as canceled, its messages are dropped, and its handle names no peer any
    /// more.
    ///
    /// # Errors
    /// The fabric's `InvalidArgument`: there is no such peer. `InvalidState` in a forked child.
    pub fn remove(&self, peer: Peer) -> Result<()> {
        self.inner.endpoint()?.remove(peer)?;
        self.inner.settle();
        Ok(())
    }

    /// Takes a peer that is down for alive again: sends connect anew. Nothing of before is repeated.
    ///
    /// # Errors
    /// The fabric's `InvalidArgument`: there is no such peer. `NoMemory`: others have what the receive window would reserve for
    /// it. `InvalidState` in a forked child.
    pub fn revive(&self, peer: Peer) -> Result<()> {
        self.inner.endpoint()?.revive(peer)?;
        self.inner.settle();
        Ok(())
    }

    /// A peer's address: of a stranger, what it said of itself.
    ///
    /// # Errors
    /// The fabric's `InvalidArgument`: there is no such peer. `InvalidState` in a forked child.
    pub fn address_of(&self, peer: Peer) -> Result<Address> {
        Ok(self.inner.endpoint()?.address_of(peer)?)
    }

    /// Why a peer is down; `None`: it is not.
    ///
    /// # Errors
    /// As [`address_of`](Endpoint::address_of).
    pub fn down(&self, peer: Peer) -> Result<Option<DeathCause>> {
        Ok(self.inner.endpoint()?.down(peer)?)
    }

    /// Sends a message, untagged unless it gets a [tag](SendMessage::tag).
    ///
    /// # Errors
    /// [`PeerDown`](crate::Error::PeerDown): posts fail until the peer is revived. `Disconnected`, `PeerGone` and `Failed`
    /// (canceled) where the peer was lost, or removed, meanwhile. The fabric's `InvalidArgument` for a peer that was removed
    /// before.
    pub fn send<P: MessagePayload>(&self, peer: Peer, payload: P) -> SendMessage<P> {
        SendMessage::new(&self.inner, peer, payload)
    }

    /// [`send`](Endpoint::send), with a tag.
    ///
    /// # Errors
    /// As [`send`](Endpoint::send).
    pub fn send_tagged<P: MessagePayload>(&self, peer: Peer, tag: u64, from: P) -> SendMessage<P> {
        self.send(peer, from).tag(tag)
    }

    /// Sends a short message, of at most [`max_inject`](Endpoint::max_inject) bytes, which are copied. The future is done when
    /// the message is posted.
    ///
    /// # Errors
    /// As [`send`](Endpoint::send) where it cannot be posted; the fabric's `InvalidArgument` for too many bytes.
    pub fn inject<'a>(&self, peer: Peer, bytes: &'a [u8]) -> Inject<'a> {
        Inject::new(&self.inner, peer, bytes)
    }

    /// The most bytes that [`inject`](Endpoint::inject) takes: at least 96.
    ///
    /// # Errors
    /// The fabric's `InvalidState` in a forked child.
    pub fn max_inject(&self) -> Result<usize> {
        Ok(self.inner.endpoint()?.max_inject()?)
    }

    /// Receives the first message of a pattern that meets this receive. See [`RecvMessage`] for what dropping it does.
    ///
    /// # Errors
    /// [`Truncated`](crate::Error::Truncated): the message was longer. `Disconnected`, `PeerGone` and `Failed` (canceled): the
    /// only peer of the pattern was lost or removed, or the peer of a message whose payload had not all come. The fabric's
    /// `InvalidArgument` for an empty buffer, or if the only peer of the pattern was removed before.
    pub fn recv<P: MessageRoom>(&self, pattern: Pattern, into: P) -> RecvMessage<P> {
        RecvMessage::new(&self.inner, pattern, into)
    }

    /// Receives messages of a pattern one behind the other into a buffer, until less than `min_free` bytes of it are free, or it has
    /// taken as many as [`RecvMany`] says.
    ///
    /// # Errors
    /// As [`recv`](Endpoint::recv), each an item of the stream. The loss of the only peer of the pattern ends the stream.
    pub fn recv_many(&self, pattern: Pattern, into: Buffer, min_free: usize) -> RecvMany {
        RecvMany::new(&self.inner, pattern, into, min_free)
    }

    /// Waits for a message of a pattern that meets no receive, and takes it out, so that none does: for those of unknown size.
    ///
    /// # Errors
    /// The fabric's `InvalidState` in a forked child.
    pub fn claim(&self, pattern: Pattern) -> ClaimNext {
        ClaimNext::new(&self.inner, pattern)
    }

    /// Receives a message of a pattern of any length that meets no other receive, into a buffer of the pool as long as it.
    ///
    /// It [claims](Endpoint::claim) it first, and waits for memory and payload then: dropped at that, the message is lost. A peer
    /// chooses the length: where it is not trusted, claim, and look.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/endpoints.rs")); }
    /// # doc::endpoints(async |a, b, to_b, _| {
    /// # use fabric_rdm::matching::Pattern;
    /// let sent = a.send(to_b, a.pool().alloc(100_000)?).tag(5);
    /// let (sent, received) = futures_util::future::join(sent, b.recv_alloc(Pattern::tagged(5))).await;
    /// let (buffer, info) = received?;
    /// assert_eq!((buffer.len(), info.len), (100_000, 100_000));
    /// # drop(sent?);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`recv`](Endpoint::recv); `PoolExhausted`: it is longer than the pool may ever be.
    pub async fn recv_alloc(&self, pattern: Pattern) -> Result<(Buffer, MessageInfo)> {
        self.claim(pattern).await?.receive_alloc().await
    }

    /// Writes into a peer's memory.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/endpoints.rs")); }
    /// # doc::endpoints(async |a, b, to_b, _| {
    /// let memory = b.node().domain().alloc(64, fabric::Access::ALL)?; // and ships `memory.remote()`
    /// let at = memory.remote();
    /// let buffer = a.write(to_b, a.pool().alloc_from(b"hello")?, at.at(8)).await?;
    /// let buffer = a.read(to_b, buffer, at.at(8)).await?;
    /// assert_eq!(*buffer, *b"hello");
    /// assert_eq!(a.fetch_add(to_b, at.at(0), 5).await?, 0);
    /// assert_eq!(a.compare_swap(to_b, at.at(0), 5, 9).await?, 5);
    /// assert_eq!(memory.get::<u64>(0)?, 9);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`send`](Endpoint::send); `RemoteAccess`: the peer does not allow it, and is lost with it; `LeaseEnded`.
    pub fn write<P: Payload>(
        &self,
        peer: Peer,
        from: P,
        to: impl Into<RemoteTarget>,
    ) -> OneSided<P> {
        let what = TransferKind::Write { to: to.into(), immediate: None, delivered: false };
        OneSided::new(&self.inner, peer, from, what)
    }

    /// Writes as [`write`](Endpoint::write), and notifies the peer when the bytes are there, by a [`WriteNotification`](super::WriteNotification)
    /// with these 32 bits, in the order of messages. It takes a place there, as a message does, until the peer takes the
    /// notification: it waits for one, and never fails for that.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/endpoints.rs")); }
    /// # doc::endpoints(async |a, b, to_b, to_a| {
    /// let memory = b.node().domain().alloc(64, fabric::Access::ALL)?;
    /// a.write_notify(to_b, a.pool().alloc_from(b"hello")?, memory.remote().at(8), 7).await?;
    /// let notification = b.notified().await?;
    /// assert_eq!((notification.peer, notification.immediate), (to_a, 7));
    /// assert_eq!(memory.to_vec(8..13)?, b"hello"); // the bytes are there
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`write`](Endpoint::write).
    pub fn write_notify<P: Payload>(
        &self,
        peer: Peer,
        from: P,
        to: impl Into<RemoteTarget>,
        immediate: u32,
    ) -> OneSided<P> {
        let (to, immediate) = (to.into(), Some(immediate));
        let what = TransferKind::Write { to, immediate, delivered: false };
        OneSided::new(&self.inner, peer, from, what)
    }

    /// The next notification of any peer's [`write_notify`](Endpoint::write_notify). Dropping the future loses nothing. A peer
    /// whose notifications are not taken has no places for messages in the end.
    ///
    /// # Errors
    /// The fabric's `InvalidState` in a forked child.
    pub fn notified(&self) -> NextNotification {
        NextNotification::new(&self.inner)
    }

    /// All further notifications as a stream. Dropping it loses nothing.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/endpoints.rs")); }
    /// use futures_util::StreamExt;
    ///
    /// # doc::endpoints(async |a, b, to_b, _| {
    /// let memory = b.node().domain().alloc(64, fabric::Access::ALL)?;
    /// for slot in 0..4 {
    ///     let to = memory.remote().at(16 * u64::from(slot));
    ///     a.write_notify(to_b, a.pool().alloc(16)?, to, slot).await?;
    /// }
    /// let slots: Vec<_> = b.notifications().take(4).map(|one| one.unwrap().immediate).collect().await;
    /// assert_eq!(slots, [0, 1, 2, 3]);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`notified`](Endpoint::notified), as the last item.
    pub fn notifications(&self) -> NotificationStream {
        NotificationStream::new(&self.inner)
    }

    /// Reads a peer's memory.
    ///
    /// # Errors
    /// As [`write`](Endpoint::write).
    pub fn read<P: RecvPayload>(
        &self,
        peer: Peer,
        into: P,
        from: impl Into<RemoteTarget>,
    ) -> OneSided<P> {
        OneSided::new(&self.inner, peer, into, TransferKind::Read { from: from.into() })
    }

    /// Adds to a number in a peer's memory, wrapping; gives the old one.
    ///
    /// # Errors
    /// As [`write`](Endpoint::write); the fabric's `InvalidArgument` if it is not aligned to 8.
    pub fn fetch_add(
        &self,
        peer: Peer,
        at: impl Into<RemoteTarget>,
        value: u64,
    ) -> FetchAtomic<u64> {
        self.fetch(peer, AtomicOp::Add, at, value)
    }

    /// Puts `new` into a peer's memory if `expected` is there; gives what was there. On a number of any of the ten types.
    ///
    /// # Errors
    /// As [`fetch_add`](Endpoint::fetch_add), with the alignment of the type.
    pub fn compare_swap<T: AtomicScalar + Unpin>(
        &self,
        peer: Peer,
        at: impl Into<RemoteTarget>,
        expected: T,
        new: T,
    ) -> FetchAtomic<T> {
        FetchAtomic::new(&self.inner, peer, at.into(), Change::CompareSwap { expected, new })
    }

    /// Any other atomic operation, on a number of any of the ten types; gives the old one.
    ///
    /// # Errors
    /// As [`compare_swap`](Endpoint::compare_swap); the fabric's `Unsupported` for what is not defined on the type.
    pub fn fetch<T: AtomicScalar + Unpin>(
        &self,
        peer: Peer,
        op: AtomicOp,
        at: impl Into<RemoteTarget>,
        value: T,
    ) -> FetchAtomic<T> {
        FetchAtomic::new(&self.inner, peer, at.into(), Change::Apply(op, value))
    }

    /// What counts the operations of a kind that ended.
    ///
    /// # Errors
    /// The fabric's `InvalidState`, which no handle gets.
    pub fn counter(&self, kind: Kind) -> Result<Counter> {
        Ok(self.inner.endpoint()?.counter(kind).clone())
    }

    /// Waits until so many operations of a kind have ended well since the endpoint was made, or more than `known_errors` have
    /// not: those that the caller knows of.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/endpoints.rs")); }
    /// # doc::endpoints(async |a, b, to_b, _| {
    /// use fabric_rdm::Kind;
    ///
    /// for _ in 0..10 {
    ///     a.inject(to_b, b"hello").await?;
    /// }
    /// a.reached(Kind::Send, 10, 0).await?; // all of them have arrived
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// The fabric's `InvalidState`: there are more errors, so that number may never be reached; or in a forked child.
    pub fn reached(
        &self,
        kind: Kind,
        successes: u64,
        known_errors: u64,
    ) -> impl Future<Output = Result<()>> + Send + 'static + use<> {
        let inner = self.inner.clone();
        async move {
            let counter = inner.endpoint()?.counter(kind).clone();
            CounterReached::new(&inner, counter, successes, known_errors).await
        }
    }

    /// Waits for the next thing that happens to a peer: a stranger was admitted, or a peer is down. Each is given once.
    ///
    /// # Errors
    /// The fabric's `InvalidState` in a forked child.
    pub fn next_event(&self) -> NextEvent {
        NextEvent::new(&self.inner)
    }

    /// Waits until all sends and one-sided operations have ended, those of dropped futures and [`inject`](Endpoint::inject) too:
    /// what was sent well then survives this side.
    ///
    /// # Errors
    /// The fabric's `InvalidState` in a forked child.
    pub async fn flush(&self) -> Result<()> {
        Idle::new(&self.inner).await
    }

    /// Closes this handle when all that was sent has ended, as [`flush`](Endpoint::flush) says. The endpoint ends with its last
    /// handle and future; peers then find it lost.
    ///
    /// # Errors
    /// As [`flush`](Endpoint::flush).
    pub async fn close(self) -> Result<()> {
        self.flush().await
    }

    /// Operations of futures that have not ended, or were not asked for yet.
    pub fn operations(&self) -> usize {
        self.inner.driver.slab.taken()
    }

    /// Connections that are open, or being made: never more than [`RdmAttr::max_open`].
    ///
    /// # Errors
    /// The fabric's `InvalidState` in a forked child.
    pub fn connections(&self) -> Result<u32> {
        Ok(self.inner.endpoint()?.connections()?)
    }

    /// Its state as text, for a bug report. Slow; not for the data path.
    pub fn dump(&self) -> String {
        match self.inner.endpoint() {
            Ok(endpoint) => endpoint.dump(),
            Err(error) => error.to_string(),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({:?})", self.address)
    }
}
