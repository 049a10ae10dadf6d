//! Listening, and peers that ask to be let in.

use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use fabric::ConnectRequest;
use fabric_util::sync::{Mutex, MutexGuard};

use crate::accept::{Accepting, Acceptors, Incoming};
use crate::address::{Address, resolve};
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::hello::{Hello, Kind, reject};
use crate::line::{Line, Ticket};
use crate::link::Link;
use crate::node::{Node, NodeInner};
use crate::router::ListenerEvents;
use crate::wakers::Wakers;

/// Listens for peers that connect.
///
/// ```
/// use fabric_async::{Connection, Listener, block_on};
///
/// let listener = block_on(Listener::bind("127.0.0.1:0"))?;
/// let to = listener.local_addr(); // what to tell clients
/// let client = std::thread::spawn(move || block_on(Connection::connect(to)));
/// let here = block_on(listener.accept())?;
/// let there = client.join().unwrap()?;
/// drop(listener);
/// assert_eq!((here.peer_addr(), here.end()), (there.local_addr(), None)); // it stands
/// # Ok::<(), fabric_async::Error>(())
/// ```
///
/// Dropping it refuses the peers that nobody has taken; connections that stand do not mind.
pub struct Listener {
    inner: Arc<ListenerInner>,
    open: Arc<Open>,
}

/// What listeners and their streams share: with the last of them go the peers that are not in yet.
pub(crate) struct Open(Arc<ListenerInner>);

pub(crate) struct ListenerInner {
    listener: fabric::Listener,
    pub(crate) node: Arc<NodeInner>,
    waiting: Mutex<VecDeque<(ConnectRequest, Hello)>>,
    pub(crate) line: Arc<Line>,
    pub(crate) acceptors: Arc<Acceptors>,
}

impl Listener {
    /// Listens on `address`, on the [shared node](Node::shared). Port 0 chooses a free port.
    ///
    /// ```
    /// use fabric_async::{Error, Listener, block_on};
    ///
    /// let listener = block_on(Listener::bind("127.0.0.1:0"))?;
    /// let error = block_on(Listener::bind(listener.local_addr())).unwrap_err();
    /// assert!(matches!(error, Error::Fabric(fabric::Error::AddrInUse(_))), "{error}");
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Node::shared`]; `Address` for a name that cannot be resolved; the fabric's: `AddrInUse`,
    /// `InvalidArgument` if the address is not this device's.
    pub async fn bind(address: impl Address) -> Result<Listener> {
        let given = address.given();
        Node::shared()?.listen_given(given).await
    }

    /// The address it listens on, with the real port.
    ///
    /// ```
    /// let listener = fabric_async::block_on(fabric_async::Listener::bind("127.0.0.1:0"))?;
    /// assert_ne!(listener.local_addr().port(), 0); // what to tell clients
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    /// Lets the next peer in. One that does not finish holds up nobody else: several come in at a time, and who is done
    /// first is first. Dropping the future loses nothing.
    ///
    /// ```
    /// use fabric_async::{Connection, Listener, block_on};
    ///
    /// let listener = block_on(Listener::bind("127.0.0.1:0"))?;
    /// let to = listener.local_addr();
    /// let client = std::thread::spawn(move || block_on(Connection::connect(to)));
    /// let conn = block_on(listener.accept())?;
    /// assert_eq!(conn.local_addr(), Some(to));
    /// # client.join().unwrap()?;
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// `DeviceLost`; `InvalidState` in a forked child. A peer that cannot be let in, because it is gone again, or because
    /// there is no memory or no room in the completion queue for it, is no error here: it is passed over, with a line in
    /// the log. [`request`](Listener::request) and [`Request::accept`] give those errors.
    pub async fn accept(&self) -> Result<Connection> {
        Accepting::new(&self.inner).await
    }

    /// The connections that [`accept`](Listener::accept) would give, as a stream: for servers that take one, and for its
    /// combinators. It ends after an error. It listens on when the listener is dropped.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fabric_async::Error> {
    /// use fabric_async::{Connection, Listener};
    /// use futures_util::{StreamExt, TryStreamExt};
    ///
    /// let listener = Listener::bind("127.0.0.1:0").await?;
    /// let to = listener.local_addr();
    /// let clients = tokio::spawn(async move { tokio::try_join!(Connection::connect(to), Connection::connect(to)) });
    /// let conns: Vec<Connection> = listener.incoming().take(2).try_collect().await?;
    /// assert_eq!(conns.len(), 2);
    /// # clients.await.unwrap()?;
    /// # Ok(()) }
    /// ```
    pub fn incoming(&self) -> Incoming {
        Incoming::new(&self.inner, &self.open)
    }

    /// The next peer that asks, to look at before it is let in. Dropping the future loses nothing.
    ///
    /// ```
    /// use fabric_async::{Connection, Listener, block_on};
    ///
    /// let listener = block_on(Listener::bind("127.0.0.1:0"))?;
    /// let to = listener.local_addr();
    /// let client = std::thread::spawn(move || block_on(Connection::connect(to)));
    /// let request = block_on(listener.request())?;
    /// assert!(request.peer_addr().ip().is_loopback()); // from here: welcome
    /// let conn = block_on(request.accept())?;
    /// assert_eq!(client.join().unwrap()?.local_addr(), conn.peer_addr());
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// `DeviceLost`; `InvalidState` in a forked child.
    pub fn request(&self) -> NextRequest {
        NextRequest::new(&self.inner)
    }
}

impl Node {
    /// Listens on `address`.
    ///
    /// ```
    /// use fabric_async::{Node, block_on};
    ///
    /// let node = Node::builder().receives(8).build()?;
    /// let first = block_on(node.listen("127.0.0.1:0"))?;
    /// let second = block_on(node.listen("localhost:0"))?;
    /// assert_ne!(first.local_addr(), second.local_addr());
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub async fn listen(&self, address: impl Address) -> Result<Listener> {
        let given = address.given();
        self.listen_given(given).await
    }

    async fn listen_given(&self, given: Result<SocketAddr, String>) -> Result<Listener> {
        let (domain, attr) = (&self.inner.domain, self.inner.options.listener());
        let found = resolve(given).await?;
        // Of a name, the first address that will do, or why the last one does not.
        let mut outcome = Err(found.nothing());
        for address in found.addresses {
            outcome = domain.listen_with(address, &attr).map_err(Error::from);
            if outcome.is_ok() {
                break;
            }
        }
        let listener = outcome?;
        let id = listener.id();
        let line = Line::new(&self.inner.reactor.timers);
        let (node, waiting, acceptors) = (self.inner.clone(), Mutex::default(), Arc::default());
        let inner = Arc::new(ListenerInner { listener, node, waiting, line, acceptors });
        let weak: Weak<ListenerInner> = Arc::downgrade(&inner);
        self.inner.router.register_listener(id, weak);
        // Requests that came before.
        inner.take_requests(&mut Wakers::new());
        let open = Arc::new(Open(inner.clone()));
        Ok(Listener { inner, open })
    }
}

impl ListenerInner {
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<(ConnectRequest, Hello)>> {
        self.waiting.lock()
    }
}

impl ListenerEvents for ListenerInner {
    fn take_requests(&self, wakers: &mut Wakers) {
        while let Some(mut request) = self.listener.poll() {
            let peer = request.peer_addr();
            match Hello::from_bytes(request.private_data()) {
                Err(error) => {
                    self.node.lines.tell(format_args!("{peer} is sent away: {error}"));
                    reject(&mut request, "this listener is one of fabric-async, version 1");
                }
                Ok(hello) if hello.kind == Kind::Control => {
                    self.node.leases.take_control(request, &hello, wakers);
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
                    self.line.call(wakers);
                }
            }
        }
    }

    fn wake_all(&self, wakers: &mut Wakers) {
        self.line.call_all(wakers);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Those that are not in yet hold on to what is in here.
        drop(self.0.acceptors.take_all());
    }
}

impl Drop for ListenerInner {
    fn drop(&mut self) {
        self.node.router.unregister_listener(self.listener.id());
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({})", self.local_addr())
    }
}

/// The next peer that asks: see [`Listener::request`].
///
/// ```
/// use fabric_async::{Connection, Listener, block_on};
///
/// let listener = block_on(Listener::bind("127.0.0.1:0"))?;
/// let next = listener.request(); // before anybody asks
/// let to = listener.local_addr();
/// let client = std::thread::spawn(move || block_on(Connection::connect(to)));
/// let conn = block_on(async { next.await?.accept().await })?;
/// assert_eq!(client.join().unwrap()?.local_addr(), conn.peer_addr());
/// # Ok::<(), fabric_async::Error>(())
/// ```
#[must_use = "nobody is let in until it is awaited"]
pub struct NextRequest {
    listener: Arc<ListenerInner>,
    ticket: Ticket,
}

impl NextRequest {
    pub(crate) fn new(listener: &Arc<ListenerInner>) -> Self {
        NextRequest { listener: listener.clone(), ticket: Ticket::default() }
    }
}

impl Future for NextRequest {
    type Output = Result<Request>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let NextRequest { listener, ticket } = &mut *self;
        let line = &listener.line;
        for wait in [false, true] {
            if wait {
                line.join(ticket, cx.waker());
            }
            let next = if line.may_pass(ticket) { listener.waiting().pop_front() } else { None };
            if let Some((request, hello)) = next {
                line.leave(ticket);
                return Poll::Ready(Ok(Request { listener: listener.clone(), request, hello }));
            }
            if let Some(refusal) = listener.node.refusal() {
                line.leave(ticket);
                return Poll::Ready(Err(refusal));
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
///
/// ```
/// # use fabric_async::{Error, Node, block_on};
/// # let node = Node::shared()?;
/// let listener = block_on(node.listen("127.0.0.1:0"))?;
/// let to = listener.local_addr();
/// let client = std::thread::spawn(move || block_on(node.connect_with(to, b"version 1")));
/// let request = block_on(listener.request())?;
/// assert_eq!(request.data(), b"version 1");
/// drop(request); // not any more
/// assert!(matches!(client.join().unwrap(), Err(Error::Rejected(_))));
/// # Ok::<(), fabric_async::Error>(())
/// ```
pub struct Request {
    listener: Arc<ListenerInner>,
    request: ConnectRequest,
    hello: Hello,
}

impl Request {
    /// Who asks.
    ///
    /// ```
    /// # use fabric_async::{Connection, Listener, block_on};
    /// # let listener = block_on(Listener::bind("127.0.0.1:0"))?;
    /// # let to = listener.local_addr();
    /// # let client = std::thread::spawn(move || block_on(Connection::connect(to)));
    /// let request = block_on(listener.request())?;
    /// let who = request.peer_addr();
    /// let conn = block_on(request.accept())?;
    /// assert_eq!(conn.peer_addr(), Some(who));
    /// # client.join().unwrap()?;
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn peer_addr(&self) -> SocketAddr {
        self.request.peer_addr()
    }

    /// What its application gave to [`Node::connect_with`].
    ///
    /// ```
    /// # use fabric_async::{Node, block_on};
    /// # let node = Node::shared()?;
    /// # let listener = block_on(node.listen("127.0.0.1:0"))?;
    /// # let to = listener.local_addr();
    /// let client = std::thread::spawn(move || block_on(node.connect_with(to, b"shard 3")));
    /// assert_eq!(block_on(listener.request())?.data(), b"shard 3");
    /// # assert!(client.join().unwrap().is_err());
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn data(&self) -> &[u8] {
        &self.hello.data
    }

    /// Lets it in.
    ///
    /// ```
    /// # use fabric_async::{Connection, Listener, block_on};
    /// # let listener = block_on(Listener::bind("127.0.0.1:0"))?;
    /// # let to = listener.local_addr();
    /// # let client = std::thread::spawn(move || block_on(Connection::connect(to)));
    /// let request = block_on(listener.request())?;
    /// let conn = block_on(request.accept())?;
    /// assert_eq!(conn.end(), None); // it stands
    /// # assert_eq!(client.join().unwrap()?.peer_data(), b"");
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The fabric's: `NotConnected` if the peer is gone, `NoMemory`, `InvalidArgument` if the completion queue has no
    /// room for another connection.
    pub async fn accept(self) -> Result<Connection> {
        self.accept_with(&[]).await
    }

    /// Lets it in, with up to 176 bytes for its application ([`Connection::peer_data`]).
    ///
    /// ```
    /// # use fabric_async::{Connection, Listener, block_on};
    /// # let listener = block_on(Listener::bind("127.0.0.1:0"))?;
    /// # let to = listener.local_addr();
    /// let client = std::thread::spawn(move || block_on(Connection::connect(to)));
    /// let request = block_on(listener.request())?;
    /// let conn = block_on(request.accept_with(b"welcome"))?;
    /// assert_eq!(client.join().unwrap()?.peer_data(), b"welcome");
    /// # drop(conn);
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`accept`](Request::accept), and the fabric's `InvalidArgument` for too many bytes.
    pub async fn accept_with(mut self, data: &[u8]) -> Result<Connection> {
        let node = &self.listener.node;
        let link = match Link::new(node, node.connect_timeout()) {
            Ok(link) => link,
            Err(error) => {
                // What this side lacks is none of a stranger's business: it is in the log.
                let peer = self.peer_addr();
                node.lines.tell(format_args!("{peer} is sent away: {error}"));
                reject(&mut self.request, "no room for another connection");
                return Err(error);
            }
        };
        // The token is the connecting side's.
        let mut hello = node.hello(Kind::User, data, 0);
        // Before it can come.
        let wanted = hello.leases && self.hello.leases;
        let from = self.peer_addr().ip();
        let expected = if wanted { node.leases.expect(self.hello.token, from) } else { None };
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
    /// block_on(listener.request())?.reject("closed on Sundays")?;
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
