//! Peers that ask to be let in.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use fabric::ConnectRequest;
use fabric_util::fair_table::FairTable;
use fabric_util::sync::Mutex;

use crate::acceptors::Acceptors;
use crate::admission::admit;
use crate::conn::Conn;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::handshake::{Handshake, Kind, reject};
use crate::node::NodeInner;
use crate::peer_log::PeerEvent;
use crate::router::ListenerEvents;
use crate::wait_queue::{WaitQueue, Waiter};
use crate::wakers::Wakers;

/// What listeners and their streams share: with the last of them go the peers that are not in yet.
pub(crate) struct Open(Arc<ListenerInner>);

pub(crate) struct ListenerInner {
    listener: fabric::Listener,
    pub(crate) node: Arc<NodeInner>,
    waiting: Mutex<Waiting>,
    queue: Arc<WaitQueue>,
    pub(crate) acceptors: Arc<Acceptors>,
}

/// Between two looks whether peers that wait have left: each asks the system about all of them.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The requests that wait for a future.
#[derive(Default)]
struct Waiting {
    requests: FairTable<(ConnectRequest, Handshake)>,
    /// The key of the next one.
    next: u64,
    /// When it was last looked whether peers have left.
    looked: Option<Instant>,
}

impl Waiting {
    /// Adds a request, of at most `max`; gives those that leave: for want of room, or since their peers have.
    fn add(
        &mut self,
        request: ConnectRequest,
        handshake: Handshake,
        max: usize,
    ) -> Vec<ConnectRequest> {
        let mut leave = Vec::new();
        if self.requests.len() >= max {
            leave = self.take_left();
        }
        let from = request.peer_addr().ip();
        self.next += 1;
        let added = self.requests.insert_up_to(max, self.next, from, (request, handshake));
        leave.extend(added.unwrap_or_else(Some));
        leave.into_iter().map(|(request, _)| request).collect()
    }

    /// Takes those whose peers have left, unless that was looked for just now.
    fn take_left(&mut self) -> Vec<(ConnectRequest, Handshake)> {
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now < looked + LOOK_EVERY) {
            return Vec::new();
        }
        self.looked = Some(now);
        self.requests.extract_if(|(request, _)| !request.is_waiting())
    }
}

impl ListenerInner {
    pub(crate) fn new(node: &Arc<NodeInner>, listener: fabric::Listener) -> Arc<Self> {
        let queue = WaitQueue::new(&node.reactor.timers);
        let (waiting, acceptors) = (Mutex::default(), Arc::default());
        Arc::new(ListenerInner { listener, node: node.clone(), waiting, queue, acceptors })
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.lock().requests.is_empty()
    }

    /// The oldest request; `admitted`: that there is room to accept.
    fn next(&self, admitted: bool) -> Option<(ConnectRequest, Handshake)> {
        let is_admitted = |from| !admitted || self.acceptors.admit(from);
        self.waiting.lock().requests.pop_oldest_from(is_admitted)
    }
}

impl ListenerEvents for ListenerInner {
    fn take_requests(&self, wakers: &mut Wakers) {
        while let Some(mut request) = self.listener.poll() {
            let peer = request.peer_addr();
            match Handshake::from_bytes(request.private_data()) {
                Err(error) => {
                    self.node.peer_log.warn(
                        PeerEvent::Admission,
                        Some(peer),
                        format_args!("{peer} is refused: {error}"),
                    );
                    reject(&mut request, "this listener is one of fabric-async, version 1");
                }
                Ok(handshake) if handshake.kind == Kind::Control => {
                    self.node.leases.take_control(request, &handshake, wakers);
                }
                Ok(handshake) => {
                    let max = self.node.options.backlog;
                    let leave = self.waiting.lock().add(request, handshake, max);
                    for mut refused in leave {
                        reject(&mut refused, "too many peers wait to be let in");
                    }
                    self.queue.wake_first(wakers);
                    self.acceptors.wake_if_full(wakers);
                }
            }
        }
    }

    fn wake_all(&self, wakers: &mut Wakers) {
        self.queue.wake_all(wakers);
    }
}

impl Open {
    pub(crate) fn new(inner: &Arc<ListenerInner>) -> Arc<Self> {
        Arc::new(Open(inner.clone()))
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

/// The next peer that asks: see [`Listener::request`](crate::Listener::request).
///
/// ```
/// use fabric_async::{Connection, Listener, block_on};
///
/// let listener = block_on(Listener::bind("127.0.0.1:0"))?;
/// let next = listener.request(); // before there is a request
/// let to = listener.local_addr();
/// let client = std::thread::spawn(move || block_on(Connection::connect(to)));
/// let conn = block_on(async { next.await?.accept().await })?;
/// assert_eq!(client.join().unwrap()?.local_addr(), conn.peer_addr());
/// # Ok::<(), fabric_async::Error>(())
/// ```
#[must_use = "it takes a request only when it is awaited"]
pub struct NextRequest {
    listener: Arc<ListenerInner>,
    waiter: Waiter,
    /// Only one that there is room to accept.
    admitted: bool,
}

impl NextRequest {
    pub(crate) fn new(listener: &Arc<ListenerInner>) -> Self {
        NextRequest { listener: listener.clone(), waiter: Waiter::default(), admitted: false }
    }

    /// The next one that there is room to accept.
    pub(crate) fn admitted(listener: &Arc<ListenerInner>) -> Self {
        let mut next = NextRequest::new(listener);
        next.admitted = true;
        next
    }
}

impl Future for NextRequest {
    type Output = Result<Request>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let NextRequest { listener, waiter, admitted } = &mut *self;
        let queue = &listener.queue;
        queue.poll(waiter, cx, |is_turn| {
            let next = if is_turn { listener.next(*admitted) } else { None };
            if let Some((request, handshake)) = next {
                return Some(Ok(Request { listener: listener.clone(), request, handshake }));
            }
            listener.node.refusal().map(Err)
        })
    }
}

impl Drop for NextRequest {
    fn drop(&mut self) {
        self.listener.queue.leave(&mut self.waiter);
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
    handshake: Handshake,
}

impl Request {
    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.request.peer_addr()
    }

    /// The name that the peer has proved by its certificate: see [`fabric::ConnectRequest::identity`].
    pub fn identity(&self) -> Option<&str> {
        self.request.identity()
    }

    /// What its application gave to [`Node::connect_with`](crate::Node::connect_with).
    pub fn data(&self) -> &[u8] {
        &self.handshake.data
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
    /// assert_eq!(conn.end(), None); // connected
    /// # assert_eq!(client.join().unwrap()?.peer_data(), b"");
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TooManyConnections` by [`NodeBuilder::connections`](crate::NodeBuilder::connections). The fabric's: `NotConnected` if
    /// the peer is gone, `NoMemory`, `InvalidArgument` if the completion queue has no room for another connection.
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
        let node = self.listener.node.clone();
        let (from, patience) = (self.peer_addr().ip(), node.connect_timeout());
        // Declared before the connection: the place is free when that is gone.
        let admitted = admit(&node.admission, from, patience, node.reactor.timer()).await;
        let permit = admitted.map_err(|error| self.refuse(error))?;
        let conn = Conn::new(&node, patience).map_err(|error| self.refuse(error))?;
        // The token is the connecting side's.
        let mut handshake = node.handshake(Kind::User, data, 0);
        // Before it can come.
        let wanted = handshake.leases && self.handshake.leases;
        let expected = if wanted { node.leases.expect(self.handshake.token, from) } else { None };
        handshake.leases = expected.is_some();
        self.request.accept(&conn.endpoint, &handshake.to_bytes())?;
        conn.conn_state.outcome().await?;
        if let Some(expected) = expected {
            conn.accept_control(expected).await?;
        }
        let _ = conn.peer.set(self.handshake.clone());
        conn.admitted(permit);
        Ok(Connection::new(conn))
    }

    /// There is no room for it. The reason is logged here, and not sent to the peer.
    fn refuse(&mut self, error: Error) -> Error {
        let peer = self.peer_addr();
        self.listener.node.peer_log.warn(
            PeerEvent::Resources,
            Some(peer),
            format_args!("{peer} is refused: {error}"),
        );
        reject(&mut self.request, "no room for another connection");
        error
    }

    /// Rejects it, with up to 128 bytes of text for the peer ([`Error::Rejected`](crate::Error::Rejected)).
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
