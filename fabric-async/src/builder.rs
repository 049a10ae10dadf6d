//! How a node is made: a setter for every setting. What peers may take is in `peers`.

mod peers;

use std::sync::{Arc, Weak};
use std::time::Duration;

use fabric::{Catalog, Choice, Domain, EndpointAttr, Hints};
use fabric_util::sync::Mutex;

use crate::error::Result;
use crate::node::{Node, NodeInner};
use crate::options::{Options, WaitStrategy};

/// Makes a [`Node`]. Every setting has a default that suits most.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # use fabric_async::{Node, WaitStrategy};
/// let node = Node::builder()
///     .wait(WaitStrategy::Busy)
///     .pool_bytes(256 << 20)
///     .max_message(1 << 20)
///     .receives(8)
///     .build()?;
/// # doc::pair_on(&node, async |conn, peer| {
/// assert_eq!(conn.max_message(), 1 << 20);
/// assert!(node.pool().metrics().registered_bytes >= 2 * 8 << 20); // the receives of both ends
/// assert!(node.pool().alloc(256 << 20).is_err()); // so not as much is left
/// # Ok(()) });
/// # Ok::<(), fabric_async::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is made until `build`"]
pub struct NodeBuilder {
    hints: Hints,
    choice: Option<Choice>,
    options: Options,
}

impl NodeBuilder {
    /// What the device must offer: provider, device, address, limits.
    ///
    /// ```
    /// use fabric::Hints;
    /// use fabric_async::Node;
    ///
    /// let here = [127, 0, 0, 1].into();
    /// let node = Node::builder().hints(Hints { address: Some(here), ..Hints::default() }).build()?;
    /// assert!(node.domain().info().addresses.contains(&here));
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn hints(mut self, hints: Hints) -> Self {
        self.hints = hints;
        self
    }

    /// The providers to choose from, instead of what `FABRIC_PROVIDER` says.
    ///
    /// ```
    /// let node = fabric_async::Node::builder().choice(fabric::Choice::only("tcp")).build()?;
    /// assert_eq!(node.domain().provider(), "tcp");
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn choice(mut self, choice: Choice) -> Self {
        self.choice = Some(choice);
        self
    }

    /// How futures wait; default [`WaitStrategy::Adaptive`].
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// use fabric_async::{Node, WaitStrategy};
    ///
    /// let node = Node::builder().wait(WaitStrategy::Blocking).build()?;
    /// # doc::pair_on(&node, async |conn, peer| {
    /// conn.send(conn.node().pool().alloc_from(b"no hurry")?).await?;
    /// assert_eq!(*peer.recv().await?, *b"no hurry");
    /// # Ok(()) });
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn wait(mut self, wait: WaitStrategy) -> Self {
        self.options.wait = wait;
        self
    }

    /// Whether the tokio runtimes that await its futures have an I/O driver; default yes. Without one (no `enable_io` or
    /// `enable_all`) say no: the node's thread then wakes their tasks. Where nothing was said, the first future that sleeps there
    /// finds out, which tokio reports as a panic, on standard error, in a task of this library that it ends. Programs with `panic = "abort"`
    /// use the node's thread always.
    ///
    /// ```
    /// use fabric_async::Node;
    ///
    /// let runtime = tokio::runtime::Builder::new_current_thread().build()?; // no I/O
    /// let node = Node::builder().tokio_io(false).build()?;
    /// runtime.block_on(async {
    ///     let listener = node.listen("127.0.0.1:0").await?;
    ///     let (conn, peer) = tokio::join!(node.connect(listener.local_addr()), listener.accept());
    ///     let (conn, peer) = (conn?, peer?);
    ///     conn.send(node.pool().alloc_from(b"hello")?).await?;
    ///     assert_eq!(*peer.recv().await?, *b"hello");
    ///     Ok::<(), fabric_async::Error>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "tokio")]
    pub fn tokio_io(mut self, on: bool) -> Self {
        self.options.tokio_io = on;
        self
    }

    /// Most bytes that the pool registers; at least 1 MiB, default 1 GiB.
    ///
    /// ```
    /// let node = fabric_async::Node::builder().pool_bytes(4 << 20).build()?;
    /// let whole = node.pool().alloc(4 << 20)?;
    /// assert!(node.pool().alloc(1).is_err());
    /// # drop(whole);
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn pool_bytes(mut self, bytes: usize) -> Self {
        self.options.pool.bytes = bytes;
        self
    }

    /// Bytes without use that the pool keeps registered; default 64 MiB.
    ///
    /// ```
    /// let node = fabric_async::Node::builder().pool_keep(0).build()?;
    /// drop(node.pool().alloc(1 << 20)?);
    /// assert_eq!(node.pool().metrics().registered_bytes, 0);
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn pool_keep(mut self, bytes: usize) -> Self {
        self.options.pool.keep = bytes;
        self
    }

    /// Room of the completion queue that all connections share: each takes its send depth and its receives of it, and is
    /// refused if there is not as much. Default: 32768, or what the device has.
    ///
    /// ```
    /// use fabric_async::{Error, Node, block_on};
    ///
    /// let node = Node::builder().completions(100).send_depth(128).build()?;
    /// let listener = block_on(node.listen("127.0.0.1:0"))?;
    /// let error = block_on(node.connect(listener.local_addr())).unwrap_err(); // there is no room for it
    /// assert!(matches!(error, Error::Fabric(fabric::Error::InvalidArgument(_))), "{error}");
    /// assert!(error.to_string().contains("completions(144)")); // as 16 receives need room too
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn completions(mut self, room: usize) -> Self {
        self.options.capacity = Some(room);
        self
    }

    /// Operations of one connection that are under way at a time; more wait their turn. Default 128.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # use fabric_async::Node;
    /// // Room for two connections of 10 operations and 16 receives.
    /// let node = Node::builder().send_depth(10).completions(52).build()?;
    /// # doc::pair_on(&node, async |conn, peer| {
    /// assert_eq!(conn.end(), None);
    /// assert!(conn.node().connect(conn.local_addr().unwrap()).await.is_err()); // but for no third
    /// # Ok(()) });
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn send_depth(mut self, operations: usize) -> Self {
        self.options.send_depth = operations;
        self
    }

    /// Buffers in a row that one operation takes (`Vec<Buffer>`); default 4.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # use fabric_async::Node;
    /// let node = Node::builder().segments(6).build()?;
    /// # doc::pair_on(&node, async |conn, peer| {
    /// let six = (0..6).map(|_| conn.alloc(10)).collect::<Result<Vec<_>, _>>()?;
    /// conn.send(six).await?;
    /// assert_eq!(peer.recv().await?.len(), 60);
    /// # Ok(()) });
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn segments(mut self, segments: usize) -> Self {
        self.options.send_segments = segments;
        self
    }

    /// Messages of one connection that may arrive before the application takes one; more stay with the sender, which waits.
    /// Each takes [`max_message`](NodeBuilder::max_message) bytes of the pool. Default 16.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # use fabric_async::Node;
    /// let node = Node::builder().receives(8).leases(false).build()?;
    /// # doc::pair_on(&node, async |conn, peer| {
    /// // Both ends of a connection are on this node.
    /// assert_eq!(node.pool().metrics().in_use, 2 * 8);
    /// # Ok(()) });
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn receives(mut self, messages: usize) -> Self {
        self.options.conn.receives = messages;
        self
    }

    /// The longest message that connections receive; the peer learns it when it connects. Default 64 KiB.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # use fabric_async::Node;
    /// let node = Node::builder().max_message(1 << 20).build()?;
    /// # doc::pair_on(&node, async |conn, peer| {
    /// assert_eq!(conn.max_message(), 1 << 20);
    /// conn.send(conn.alloc(1 << 20)?).await?;
    /// assert_eq!(peer.recv().await?.len(), 1 << 20);
    /// # Ok(()) });
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.options.conn.max_message = bytes;
        self
    }

    /// Notifications of one connection that wait for the application before the peer has to; at least the
    /// [`receives`](NodeBuilder::receives), default 1024.
    ///
    /// ```
    /// use fabric_async::Node;
    ///
    /// assert!(Node::builder().receives(16).notifications(16).build().is_ok());
    /// assert!(Node::builder().receives(16).notifications(15).build().is_err());
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn notifications(mut self, notifications: usize) -> Self {
        self.options.conn.notifications = notifications;
        self
    }

    /// How long connecting and accepting may take, at most 1 h; default 5 s, or `FABRIC_CONNECT_TIMEOUT_MS`.
    ///
    /// ```
    /// use fabric_async::{Error, Node, block_on};
    /// use std::time::Duration;
    ///
    /// let node = Node::builder().connect_timeout(Duration::from_millis(5)).build()?;
    /// let listener = block_on(node.listen("127.0.0.1:0"))?; // without an accept
    /// let error = block_on(node.connect(listener.local_addr())).unwrap_err();
    /// assert!(matches!(error, Error::Fabric(fabric::Error::TimedOut(_))), "{error}");
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = Some(timeout);
        self
    }

    /// A dead peer host is noticed within three of these, 1 s to 1 h; `None` turns it off. Default 10 s, or
    /// `FABRIC_LIVENESS_S`.
    ///
    /// ```
    /// use fabric_async::{Error, Node};
    /// use std::time::Duration;
    ///
    /// assert!(Node::builder().liveness(Some(Duration::from_secs(1))).build().is_ok());
    /// let error = Node::builder().liveness(Some(Duration::from_millis(999))).build().unwrap_err();
    /// assert!(matches!(error, Error::Fabric(fabric::Error::InvalidArgument(_))), "{error}");
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn liveness(mut self, interval: Option<Duration>) -> Self {
        self.options.liveness = Some(interval);
        self
    }

    /// While something is under way at this end, and nothing of it got on for this long, 1 s to 1 h, a connection ends with
    /// `Stalled`: its peer lives, and takes nothing. It has to be longer than any single operation takes; `None` turns it off.
    /// Default off, or `FABRIC_STALL_S`. See [`EndpointAttr::stall`](fabric::EndpointAttr::stall).
    ///
    /// ```
    /// use fabric_async::{Error, Node};
    /// use std::time::Duration;
    ///
    /// assert!(Node::builder().stall(Some(Duration::from_secs(30))).build().is_ok());
    /// let error = Node::builder().stall(Some(Duration::from_millis(999))).build().unwrap_err();
    /// assert!(matches!(error, Error::Fabric(fabric::Error::InvalidArgument(_))), "{error}");
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn stall(mut self, limit: Option<Duration>) -> Self {
        self.options.stall = Some(limit);
        self
    }

    /// All other endpoint attributes: source address, traffic class, path. The settings above take precedence.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # use fabric_async::Node;
    /// let mut attr = fabric::EndpointAttr::default();
    /// attr.source = Some([127, 0, 0, 1].into());
    /// let node = Node::builder().endpoint(attr).build()?;
    /// # doc::pair_on(&node, async |conn, peer| {
    /// assert_eq!(peer.peer_addr().unwrap().ip().to_string(), "127.0.0.1");
    /// # Ok(()) });
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn endpoint(mut self, attr: EndpointAttr) -> Self {
        self.options.attr = Some(attr);
        self
    }

    /// Opens the device that suits best, and makes the node.
    ///
    /// ```
    /// use fabric_async::{Error, Node};
    ///
    /// assert!(Node::builder().receives(4).build().is_ok());
    /// let error = Node::builder().receives(0).build().unwrap_err();
    /// assert!(matches!(error, Error::Fabric(fabric::Error::InvalidArgument(_))), "{error}");
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The fabric's: `NoProvider` with the reasons; `InvalidArgument` for a setting beyond the device's limits, which it
    /// names, and `Unsupported` for one that the device does not take.
    pub fn build(self) -> Result<Node> {
        let catalog = Catalog::builtin();
        let domain = match &self.choice {
            Some(choice) => catalog.open_with(choice, &self.hints)?,
            None => catalog.open(&self.hints)?,
        };
        self.build_on(&domain)
    }

    /// Makes the node on a domain that is open already.
    ///
    /// ```
    /// use fabric::{Domain, Hints};
    ///
    /// let domain = Domain::open(&Hints::default())?;
    /// let node = fabric_async::Node::builder().build_on(&domain)?;
    /// assert_eq!(node.domain().device(), domain.device());
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`build`](NodeBuilder::build).
    pub fn build_on(self, domain: &Domain) -> Result<Node> {
        self.options.check(domain)?;
        Node::new(domain, self.options)
    }
}

impl Node {
    /// The node that everything uses which is given no other: opened at first use with default settings, as
    /// `FABRIC_PROVIDER` says, and shared for as long as anything of it is in use.
    ///
    /// ```
    /// use fabric_async::Node;
    ///
    /// let node = Node::shared()?;
    /// let before = node.pool().metrics().allocations;
    /// drop(Node::shared()?.pool().alloc(64)?); // the same
    /// assert!(node.pool().metrics().allocations > before);
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`NodeBuilder::build`].
    pub fn shared() -> Result<Node> {
        static SHARED: Mutex<Weak<NodeInner>> = Mutex::new(Weak::new());
        let known = SHARED.lock().upgrade();
        if let Some(inner) = known {
            return Ok(Node { inner });
        }
        // Not under the lock: this opens providers. Of several threads that come here at once one is first, and the others'
        // nodes go.
        let node = Node::builder().build()?;
        let mut shared = SHARED.lock();
        match shared.upgrade() {
            Some(inner) => {
                drop(shared);
                Ok(Node { inner })
            }
            None => {
                *shared = Arc::downgrade(&node.inner);
                Ok(node)
            }
        }
    }

    /// Begins to make a node.
    ///
    /// ```
    /// let node = fabric_async::Node::builder().pool_bytes(1 << 20).build()?;
    /// assert_eq!(node.pool().alloc(1 << 20)?.len(), 1 << 20);
    /// assert!(node.pool().alloc(2 << 20).is_err());
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn builder() -> NodeBuilder {
        NodeBuilder::default()
    }
}
