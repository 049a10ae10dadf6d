//! Listening, and peers that ask to be let in.

use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use fabric::{ConnectRequest, ListenerAttr};

use crate::address::{Address, resolve};
use crate::connection::Connection;
use crate::error::Result;
use crate::hello::{Hello, Kind};
use crate::line::{Line, Ticket};
use crate::link::Link;
use crate::node::{Node, NodeInner};

/// Listens for peers that connect.
///
/// ```
/// use fabric_async::{Connection, Listener};
///
/// # fabric_async::block_on(async {
/// let listener = Listener::bind("127.0.0.1:0").await?;
/// let connecting = Connection::connect(listener.local_addr());
/// # let (connecting, accepted) = futures_join(connecting, listener.accept()).await;
/// # let there = connecting?;
/// # /*
/// let here = listener.accept().await?;
/// # */
/// # let here = accepted?;
/// # drop((there, here));
/// # Ok::<_, fabric_async::Error>(()) }).unwrap();
/// # async fn futures_join<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
/// #     use std::task::Poll;
/// #     let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
/// #     let (mut x, mut y) = (None, None);
/// #     std::future::poll_fn(move |cx| {
/// #         if x.is_none() { if let Poll::Ready(v) = a.as_mut().poll(cx) { x = Some(v); } }
/// #         if y.is_none() { if let Poll::Ready(v) = b.as_mut().poll(cx) { y = Some(v); } }
/// #         if x.is_some() && y.is_some() { Poll::Ready((x.take().unwrap(), y.take().unwrap())) } else { Poll::Pending }
/// #     }).await
/// # }
/// ```
///
/// Dropping it refuses the peers that nobody has taken; connections that stand do not mind.
pub struct Listener {
    inner: Arc<ListenerInner>,
}

pub(crate) struct ListenerInner {
    listener: fabric::Listener,
    node: Arc<NodeInner>,
    waiting: Mutex<VecDeque<(ConnectRequest, Hello)>>,
    line: Line,
}

impl Listener {
    /// Listens on `address`, on the [shared node](Node::shared). Port 0 chooses a free port.
    ///
    /// # Errors
    /// Those of [`Node::shared`]; `Address` for a name that cannot be resolved; the fabric's: `AddrInUse`,
    /// `Unreachable` if the address is not this device's.
    pub async fn bind(address: impl Address) -> Result<Listener> {
        let given = address.given();
        Node::shared()?.listen_given(given).await
    }

    /// The address it listens on, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.inner.listener.local_addr()
    }

    /// Lets the next peer in.
    ///
    /// # Errors
    /// Those of making an endpoint: `NoMemory`, `InvalidArgument` if the completion queue has no room for another
    /// connection (then the peer was rejected); what peers do is no error here: who is gone again is passed over.
    pub async fn accept(&self) -> Result<Connection> {
        loop {
            match self.request().await.accept().await {
                Err(error) if is_peers_fault(&error) => {
                    log::info!("fabric-async: a peer went while it was let in: {error}");
                }
                done => return done,
            }
        }
    }

    /// The next peer that asks, to look at before it is let in. Dropping the future loses nothing.
    pub fn request(&self) -> NextRequest {
        NextRequest { listener: self.inner.clone(), ticket: Ticket::default() }
    }
}

/// Whether accepting failed for what the peer did.
fn is_peers_fault(error: &crate::Error) -> bool {
    use crate::Error as E;
    matches!(
        error,
        E::Disconnected(_)
            | E::Protocol(_)
            | E::Rejected(_)
            | E::TimedOut(_)
            | E::Fabric(
                fabric::Error::NotConnected
                    | fabric::Error::TimedOut
                    | fabric::Error::Canceled
                    | fabric::Error::Refused
                    | fabric::Error::Unreachable(_)
            )
    )
}

impl Node {
    /// Listens on `address`.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub async fn listen(&self, address: impl Address) -> Result<Listener> {
        let given = address.given();
        self.listen_given(given).await
    }

    async fn listen_given(&self, given: Result<SocketAddr, String>) -> Result<Listener> {
        let address = resolve(given).await?;
        let mut attr = ListenerAttr::default();
        attr.backlog = self.inner.options.backlog;
        let listener = self.inner.domain.listen_with(address, &attr)?;
        let id = listener.id();
        let (node, waiting, line) = (self.inner.clone(), Mutex::default(), Line::default());
        let inner = Arc::new(ListenerInner { listener, node, waiting, line });
        self.inner.service.enroll(id, &inner);
        // Whoever asked before it was enrolled.
        let mut wakers = Vec::new();
        inner.take_requests(&mut wakers);
        Ok(Listener { inner })
    }
}

impl ListenerInner {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<(ConnectRequest, Hello)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sorts the requests that there are; adds whom to wake.
    pub(crate) fn take_requests(&self, wakers: &mut Vec<Waker>) {
        while let Some(mut request) = self.listener.poll() {
            let peer = request.peer_addr();
            match Hello::from_bytes(request.private_data()) {
                Err(error) => {
                    log::warn!("fabric-async: {peer} is sent away: {error}");
                    reject(&mut request, "this listener is one of fabric-async, version 1");
                }
                Ok(hello) if hello.kind == Kind::Control => {
                    self.node.take_control(request, &hello);
                }
                Ok(hello) => {
                    let mut waiting = self.waiting();
                    if waiting.len() >= self.node.options.backlog {
                        drop(waiting);
                        reject(&mut request, "too many peers wait to be let in");
                        continue;
                    }
                    waiting.push_back((request, hello));
                    drop(waiting);
                    wakers.extend(self.line.first());
                }
            }
        }
    }
}

/// Sends a peer away with words. If it is gone, nobody is left to be told.
pub(crate) fn reject(request: &mut ConnectRequest, words: &str) {
    let _ = request.reject(words.as_bytes());
}

impl Drop for ListenerInner {
    fn drop(&mut self) {
        self.node.service.strike(self.listener.id());
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({})", self.local_addr())
    }
}

/// The next peer that asks: see [`Listener::request`].
#[must_use = "nobody is let in until it is awaited"]
pub struct NextRequest {
    listener: Arc<ListenerInner>,
    ticket: Ticket,
}

impl Future for NextRequest {
    type Output = Request;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Request> {
        let NextRequest { listener, ticket } = &mut *self;
        let line = &listener.line;
        for wait in [false, true] {
            if wait {
                line.join(ticket, cx.waker());
            }
            if line.may_pass(ticket)
                && let Some((request, hello)) = listener.waiting().pop_front()
            {
                line.leave(ticket);
                return Poll::Ready(Request { listener: listener.clone(), request, hello });
            }
        }
        Poll::Pending
    }
}

impl Drop for NextRequest {
    fn drop(&mut self) {
        self.listener.line.leave(&mut self.ticket);
    }
}

/// A peer that asks to be let in. Dropping it sends the peer away.
pub struct Request {
    listener: Arc<ListenerInner>,
    request: ConnectRequest,
    hello: Hello,
}

impl Request {
    /// Who asks.
    pub fn peer_addr(&self) -> SocketAddr {
        self.request.peer_addr()
    }

    /// What its application gave to [`Node::connect_with`].
    pub fn data(&self) -> &[u8] {
        &self.hello.data
    }

    /// Lets it in.
    ///
    /// # Errors
    /// The fabric's: `NotConnected` if the peer is gone, `NoMemory`, `InvalidArgument` if the completion queue has no
    /// room for another connection.
    pub async fn accept(self) -> Result<Connection> {
        self.accept_with(&[]).await
    }

    /// Lets it in, with up to 176 bytes for its application ([`Connection::peer_data`]).
    ///
    /// # Errors
    /// As [`accept`](Request::accept), and the fabric's `InvalidArgument` for too many bytes.
    pub async fn accept_with(mut self, data: &[u8]) -> Result<Connection> {
        let node = &self.listener.node;
        let link = match Link::new(node) {
            Ok(link) => link,
            Err(error) => {
                reject(&mut self.request, &error.to_string());
                return Err(error);
            }
        };
        let mut hello = node.hello(Kind::User, data);
        // Before it can come.
        let wanted = hello.leases && self.hello.leases;
        let expected = if wanted { node.expect(self.hello.token) } else { None };
        hello.leases = expected.is_some();
        self.request.accept(&link.endpoint, &hello.to_bytes())?;
        link.lane.outcome().await?;
        if let Some(expected) = expected {
            link.accept_control(expected).await?;
        }
        let _ = link.peer.set(self.hello.clone());
        Ok(Connection { link })
    }

    /// Sends it away, with up to 128 bytes of words for it ([`Error::Rejected`](crate::Error::Rejected)).
    ///
    /// ```
    /// use fabric_async::{Error, Listener, Connection, block_on};
    ///
    /// # fn main() -> Result<(), fabric_async::Error> {
    /// let listener = block_on(Listener::bind("127.0.0.1:0"))?;
    /// let to = listener.local_addr();
    /// let client = std::thread::spawn(move || block_on(Connection::connect(to)));
    /// block_on(listener.request()).reject("closed on Sundays")?;
    /// let error = client.join().unwrap().unwrap_err();
    /// assert!(matches!(&error, Error::Rejected(words) if words == b"closed on Sundays"), "{error}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The fabric's `InvalidArgument` for too many bytes.
    pub fn reject(mut self, words: &str) -> Result<()> {
        Ok(self.request.reject(words.as_bytes())?)
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Request(from {})", self.peer_addr())
    }
}

impl std::fmt::Debug for NextRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NextRequest")
    }
}
