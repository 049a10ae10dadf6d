//! Listeners.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use crate::accept::{AcceptFuture, Incoming};
use crate::address::{Address, resolve};
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::node::Node;
use crate::request::{ListenerInner, NextRequest, Open};
use crate::router::ListenerEvents;
use crate::wakers::Wakers;

/// Listens for peers that connect.
///
/// ```
/// use fabric_async::{Connection, Listener, block_on};
///
/// let listener = block_on(Listener::bind("127.0.0.1:0"))?;
/// let to = listener.local_addr(); // for clients
/// let client = std::thread::spawn(move || block_on(Connection::connect(to)));
/// let here = block_on(listener.accept())?;
/// let there = client.join().unwrap()?;
/// drop(listener);
/// assert_eq!((here.peer_addr(), here.end()), (there.local_addr(), None)); // still connected
/// # Ok::<(), fabric_async::Error>(())
/// ```
///
/// Dropping it refuses the requests that were not taken; established connections stay.
pub struct Listener {
    inner: Arc<ListenerInner>,
    open: Arc<Open>,
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
    pub fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    /// Accepts the next connection. A peer that does not finish its set-up delays no other: several are accepted at a time,
    /// and the first to finish is returned first. Dropping the future loses nothing.
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
    /// the log. [`request`](Listener::request) and [`Request::accept`](crate::Request::accept) give those errors.
    pub async fn accept(&self) -> Result<Connection> {
        AcceptFuture::new(&self.inner).await
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
        let inner = ListenerInner::new(&self.inner, listener);
        let weak: Weak<ListenerInner> = Arc::downgrade(&inner);
        self.inner.router.register_listener(id, weak);
        // Requests that came before.
        inner.take_requests(&mut Wakers::new());
        let open = Open::new(&inner);
        Ok(Listener { inner, open })
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({})", self.local_addr())
    }
}
