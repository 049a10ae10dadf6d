//! Settings of what peers may take: connections, and memory.

use std::time::Duration;

use super::NodeBuilder;
use crate::lease::{LeaseDecision, LeasePolicy, LeaseRequest};

impl NodeBuilder {
    /// Peers that may wait at a listener; default 128.
    ///
    /// ```
    /// use fabric_async::{Node, block_on};
    ///
    /// let node = Node::builder().backlog(1).build()?;
    /// assert!(block_on(node.listen("127.0.0.1:0")).is_ok());
    /// assert!(Node::builder().backlog(usize::MAX).build().is_err()); // no device has as many
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn backlog(mut self, peers: usize) -> Self {
        self.options.backlog = peers;
        self
    }

    /// Connections that peers made and that are not dropped yet; the next peers are refused. Default: as many as the
    /// completion queue has room for ([`completions`](NodeBuilder::completions)); fewer leave room for those that this node makes.
    ///
    /// ```
    /// use fabric_async::{Connection, Error, Node, block_on};
    ///
    /// let node = Node::builder().connections(1).build()?;
    /// let listener = block_on(node.listen("127.0.0.1:0"))?;
    /// let to = listener.local_addr();
    /// let clients = [(), ()].map(|()| std::thread::spawn(move || block_on(Connection::connect(to))));
    /// let let_in = async || listener.request().await?.accept().await;
    /// let conn = block_on(let_in())?;
    /// let error = block_on(let_in()).unwrap_err();
    /// assert!(matches!(error, Error::TooManyConnections { max: 1, .. }), "{error}");
    /// # let connected = clients.map(|client| client.join().unwrap());
    /// # assert_eq!(connected.iter().filter(|client| client.is_ok()).count(), 1);
    /// # drop(conn);
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn connections(mut self, connections: usize) -> Self {
        self.options.connections = Some(connections);
        self
    }

    /// Those of them that come from one address; of IPv6, from one /64. Default: at most three for each place that is free, so
    /// that one address can take three quarters of all, and others get in.
    ///
    /// ```
    /// use fabric_async::Node;
    ///
    /// assert!(Node::builder().connections_per_address(8).build().is_ok());
    /// assert!(Node::builder().connections_per_address(0).build().is_err()); // lets in no peer
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn connections_per_address(mut self, connections: usize) -> Self {
        self.options.connections_per_address = Some(connections);
        self
    }

    /// While no place is free for a peer, a connection over which nothing was sent yet, in either direction, is ended for it: at
    /// once if its address has more such connections than the peer's would, else after this time. Default 10 s; `None` ends
    /// none. A lease, asked for or lent, is a use too.
    ///
    /// ```
    /// use std::time::Duration;
    /// use fabric_async::Node;
    ///
    /// assert!(Node::builder().first_use(Some(Duration::from_secs(2))).build().is_ok());
    /// assert!(Node::builder().first_use(None).build().is_ok());
    /// ```
    pub fn first_use(mut self, time: Option<Duration>) -> Self {
        self.options.first_use = time;
        self
    }

    /// What peers may borrow of this process's memory.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// use fabric_async::{LeasePolicy, Node};
    ///
    /// let mut policy = LeasePolicy::default();
    /// policy.max_bytes = 4096;
    /// let node = Node::builder().lend(policy).build()?;
    /// # doc::pair_on(&node, async |conn, peer| {
    /// # let time = std::time::Duration::from_secs(30);
    /// assert!(conn.request_lease(4097, time).await.is_err());
    /// assert!(conn.request_lease(4096, time).await.is_ok());
    /// # Ok(()) });
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn lend(mut self, policy: LeasePolicy) -> Self {
        self.options.policy = policy;
        self
    }

    /// The application's own decision about what peers ask to borrow, within the [policy](NodeBuilder::lend): whether a
    /// request, or a renewal, is granted. It is called on the node's thread, which ends leases in time, so it must not block;
    /// if it panics, the request is refused.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// use fabric_async::{Access, Error, Node, Refusal};
    ///
    /// let read_only = Access::REMOTE_READ;
    /// let node = Node::builder().decide_leases(move |asked| asked.rights == read_only).build()?;
    /// # doc::pair_on(&node, async |conn, peer| {
    /// # let time = std::time::Duration::from_secs(30);
    /// let refused = conn.request_lease(64, time).await; // with all rights
    /// assert!(matches!(refused, Err(Error::NotGranted(Refusal::Denied))));
    /// assert!(conn.request_lease_with(64, time, read_only).await.is_ok());
    /// # Ok(()) });
    /// # Ok::<(), Error>(())
    /// ```
    pub fn decide_leases(
        mut self,
        decide: impl Fn(&LeaseRequest) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.options.lease_decision = LeaseDecision::new(decide);
        self
    }

    /// Whether what this node lends opens to the peer of the connection that the lease came over, and to no other: a lease's
    /// key is a [grant](fabric::Grant) then. Default no: who knows the key reaches the memory over any connection to the node.
    ///
    /// Where [`Capabilities::GRANTS`](fabric::Capabilities::GRANTS) is declared; elsewhere no node is made. Over verbs a lease is
    /// granted when everything has finished that this side posted over the connection before, and each takes a memory window.
    /// A lease that its holder [passes on](crate::RemoteLease::pass_on) has a further key, for all.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// use fabric_async::{Error, Node};
    ///
    /// # if fabric_async::Node::shared()?.domain().info().capabilities.contains(fabric::Capabilities::GRANTS) {
    /// let node = Node::builder().connection_keys(true).build()?;
    /// # doc::pair_on(&node, async |conn, peer| {
    /// # let time = std::time::Duration::from_secs(30);
    /// let lease = conn.request_lease(64, time).await?;
    /// conn.write(conn.node().pool().alloc_from(&[1; 8])?, lease.at(0)).await?;
    /// // The key of this lease over another connection.
    /// let listener = node.listen("127.0.0.1:0").await?;
    /// let (other, accepted) = (node.connect(listener.local_addr()), listener.accept());
    /// let (other, _accepted) = futures_util::future::join(other, accepted).await;
    /// let failed = other?.read(conn.alloc(8)?, lease.at(0)).await.unwrap_err();
    /// assert!(matches!(failed.error, Error::RemoteAccess));
    /// # Ok(()) });
    /// # }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn connection_keys(mut self, on: bool) -> Self {
        self.options.connection_keys = on;
        self
    }

    /// Whether connections carry leases at all; default yes. Without, one endpoint a connection is enough, and memory is
    /// only reached by descriptors of the poll API that applications ship themselves.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// use fabric_async::{Error, Node, Refusal};
    ///
    /// let node = Node::builder().leases(false).build()?;
    /// # doc::pair_on(&node, async |conn, peer| {
    /// let refused = conn.request_lease(64, std::time::Duration::from_secs(30)).await;
    /// assert!(matches!(refused, Err(Error::NotGranted(Refusal::Disabled))));
    /// # Ok(()) });
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn leases(mut self, on: bool) -> Self {
        self.options.leases = on;
        self
    }
}
