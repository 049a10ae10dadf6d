//! How a connection is made at the side that asks for it.

use std::net::SocketAddr;

use crate::address::{Address, resolve};
use crate::connection::Connection;
use crate::error::Result;
use crate::hello::{Hello, Kind};
use crate::link::Link;
use crate::node::Node;

impl Connection {
    /// Connects to a [`Listener`](crate::Listener), on the [shared node](Node::shared).
    ///
    /// ```
    /// use fabric_async::{Connection, Listener, block_on};
    ///
    /// let listener = block_on(Listener::bind("127.0.0.1:0"))?;
    /// let to = listener.local_addr(); // of another machine, as a rule
    /// let client = std::thread::spawn(move || block_on(Connection::connect(to)));
    /// let peer = block_on(listener.accept())?;
    /// assert_eq!(client.join().unwrap()?.peer_addr(), Some(to));
    /// # drop(peer);
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Node::shared`]; `Address` for a name that cannot be resolved; the fabric's: `Refused`, `Unreachable`,
    /// `TimedOut`, and `InvalidArgument` if the node's completion queue has no room for another connection; `Rejected` with
    /// the peer's words; `Protocol` if the peer does not use this crate.
    pub async fn connect(to: impl Address) -> Result<Connection> {
        let given = to.given();
        Node::shared()?.connect_given(given, &[]).await
    }
}

impl Node {
    /// Connects to a [`Listener`](crate::Listener).
    ///
    /// ```
    /// use fabric_async::{Node, block_on};
    ///
    /// let node = Node::builder().max_message(100).build()?;
    /// let listener = block_on(node.listen("127.0.0.1:0"))?;
    /// let to = listener.local_addr();
    /// let accepting = std::thread::spawn(move || block_on(listener.accept()));
    /// let conn = block_on(node.connect(to))?;
    /// assert_eq!(conn.max_message(), 100);
    /// # assert_eq!(accepting.join().unwrap()?.peer_addr(), conn.local_addr());
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Connection::connect`].
    pub async fn connect(&self, to: impl Address) -> Result<Connection> {
        let given = to.given();
        self.connect_given(given, &[]).await
    }

    /// Connects, with up to 32 bytes for the peer's application, which sees them before it accepts
    /// ([`Request::data`](crate::Request::data)).
    ///
    /// ```
    /// use fabric_async::{Node, block_on};
    ///
    /// # fn main() -> Result<(), fabric_async::Error> {
    /// let node = Node::builder().build()?;
    /// let listener = block_on(node.listen("127.0.0.1:0"))?;
    /// let to = listener.local_addr();
    /// let other = node.clone();
    /// let client = std::thread::spawn(move || block_on(other.connect_with(to, b"who I am")));
    /// let request = block_on(listener.request())?;
    /// assert_eq!(request.data(), b"who I am");
    /// let conn = block_on(request.accept_with(b"welcome"))?;
    /// assert_eq!(conn.peer_data(), b"who I am");
    /// assert_eq!(client.join().unwrap()?.peer_data(), b"welcome");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Connection::connect`], and the fabric's `InvalidArgument` for too many bytes.
    pub async fn connect_with(&self, to: impl Address, data: &[u8]) -> Result<Connection> {
        let given = to.given();
        self.connect_given(given, data).await
    }

    async fn connect_given(
        &self,
        given: Result<SocketAddr, String>,
        data: &[u8],
    ) -> Result<Connection> {
        let to = resolve(given).await?;
        let link = Link::new(&self.inner)?;
        let hello = self.inner.hello(Kind::User, data, crate::random()?);
        link.endpoint.connect(to, &hello.to_bytes())?;
        let peer = Hello::from_bytes(&link.lane.outcome().await?)?;
        if hello.leases && peer.leases {
            link.connect_control(to, hello.token).await?;
        }
        let _ = link.peer.set(peer);
        Ok(Connection::new(link))
    }
}

impl crate::node::NodeInner {
    /// This side's introduction.
    pub(crate) fn hello(&self, kind: Kind, data: &[u8], token: u64) -> Hello {
        Hello {
            kind,
            leases: self.options.leases,
            max_message: self.options.link.max_message as u32,
            token,
            data: data.to_vec(),
        }
    }
}
