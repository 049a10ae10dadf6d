//! What a node is made with: every setting, its default, and the checks of all of them.

use std::time::Duration;

use fabric::{
    Capabilities, CompletionQueue, CqAttr, Domain, Endpoint, EndpointAttr, EndpointBuilder,
    ListenerAttr,
};
use fabric_util::admission::AdmissionLimits;

use crate::error::Result;
use crate::lease::{LeaseDecision, LeasePolicy};

/// What a node and its connections are made with.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) pool: PoolOptions,
    pub(crate) conn: ConnSettings,
    pub(crate) policy: LeasePolicy,
    pub(crate) lease_decision: LeaseDecision,
    /// Whether connections get a second one, for leases.
    pub(crate) leases: bool,
    /// Whether each lease opens to its connection alone.
    pub(crate) connection_keys: bool,
    pub(crate) backlog: usize,
    /// Most connections that peers make; `None`: as many as there is room for.
    pub(crate) connections: Option<usize>,
    pub(crate) connections_per_address: Option<usize>,
    pub(crate) first_use: Option<Duration>,
    pub(crate) wait: WaitStrategy,
    /// Whether tokio runtimes may be asked to watch the completion queue.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code))]
    pub(crate) tokio_io: bool,
    pub(crate) capacity: Option<usize>,
    pub(crate) send_depth: usize,
    pub(crate) send_segments: usize,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) liveness: Option<Option<Duration>>,
    pub(crate) stall: Option<Option<Duration>>,
    pub(crate) attr: Option<EndpointAttr>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            pool: PoolOptions::default(),
            conn: ConnSettings { receives: 16, max_message: 64 << 10, notifications: 1024 },
            policy: LeasePolicy::default(),
            lease_decision: LeaseDecision::default(),
            leases: true,
            connection_keys: false,
            backlog: 128,
            connections: None,
            connections_per_address: None,
            first_use: Some(Duration::from_secs(10)),
            wait: WaitStrategy::default(),
            tokio_io: true,
            capacity: None,
            send_depth: 128,
            send_segments: 4,
            connect_timeout: None,
            liveness: None,
            stall: None,
            attr: None,
        }
    }
}

/// How a pool is made.
#[derive(Clone, Debug)]
pub(crate) struct PoolOptions {
    /// Most bytes that are registered at a time.
    pub(crate) bytes: usize,
    /// Bytes of extents without use that stay registered.
    pub(crate) keep: usize,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions { bytes: 1 << 30, keep: 64 << 20 }
    }
}

/// What a connection is made with.
#[derive(Clone, Debug)]
pub(crate) struct ConnSettings {
    /// Receives that wait for messages.
    pub(crate) receives: usize,
    /// The longest message that is received.
    pub(crate) max_message: usize,
    /// Notifications that may wait for the application.
    pub(crate) notifications: usize,
}

/// How futures wait for their completion.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// use fabric_async::{Node, WaitStrategy};
///
/// assert_eq!(WaitStrategy::default(), WaitStrategy::Adaptive);
/// let node = Node::builder().wait(WaitStrategy::Busy).build()?;
/// # doc::pair_on(&node, async |conn, peer| {
/// conn.send(conn.node().pool().alloc_from(b"at once")?).await?;
/// assert_eq!(*peer.recv().await?, *b"at once");
/// # Ok(()) });
/// # Ok::<(), fabric_async::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitStrategy {
    /// Looks again and again, up to 20 us in one poll, and then lets other tasks run; never sleeps. The least delay; takes
    /// a whole processor while anything is awaited.
    Busy,
    /// Sleeps at once: the least work.
    Blocking,
    /// Looks for some microseconds first where that has lately been worth it, then sleeps.
    #[default]
    Adaptive,
}

impl Options {
    pub(crate) fn check(&self, domain: &Domain) -> Result<()> {
        let bad = |text: String| Err(fabric::Error::invalid("make node", text).into());
        let ConnSettings { receives, max_message, notifications } = self.conn;
        let max = domain.info().limits.message.min(u64::from(u32::MAX)) as usize;
        if self.pool.bytes < 1 << 20 {
            return bad(format!("pool_bytes {} is less than 1 MiB", self.pool.bytes));
        }
        if !(1..=max).contains(&max_message) {
            return bad(format!("max_message {max_message} is not in 1..={max}"));
        }
        if notifications < receives {
            return bad(format!(
                "{receives} receives and {notifications} notifications: there must be as many"
            ));
        }
        if self.connections == Some(0) || self.connections_per_address == Some(0) {
            return bad("connections and connections_per_address are at least 1".to_owned());
        }
        let info = domain.info();
        if self.connection_keys && !info.capabilities.contains(Capabilities::GRANTS) {
            let text = format!("connection_keys: the device {} has no grants", info.device);
            return Err(fabric::Error::unsupported("make node", info.provider, text).into());
        }
        self.endpoint(domain).check().map_err(in_our_words)?;
        self.listener().check(domain.info())?;
        self.queue(domain).check(domain.info()).map_err(in_our_words)?;
        self.policy.check()
    }

    /// What a connection's endpoint is made with.
    pub(crate) fn endpoint<'a>(&self, domain: &'a Domain) -> EndpointBuilder<'a> {
        let builder = self.any_endpoint(domain).send_depth(self.send_depth);
        let builder = builder.recv_depth(self.conn.receives);
        builder.send_segments(self.send_segments).recv_segments(1)
    }

    /// What all endpoints of the node have in common.
    pub(crate) fn any_endpoint<'a>(&self, domain: &'a Domain) -> EndpointBuilder<'a> {
        let mut builder = domain.endpoint();
        if let Some(attr) = &self.attr {
            builder = builder.attr(attr.clone());
        }
        if let Some(timeout) = self.connect_timeout {
            builder = builder.connect_timeout(timeout);
        }
        if let Some(interval) = self.liveness {
            builder = builder.liveness(interval);
        }
        if let Some(limit) = self.stall {
            builder = builder.stall(limit);
        }
        builder
    }

    /// What listeners are made with.
    pub(crate) fn listener(&self) -> ListenerAttr {
        let mut attr = ListenerAttr::default();
        attr.backlog = self.backlog;
        attr
    }

    /// What bounds the connections that peers make; `with_leases`: how many can carry leases.
    pub(crate) fn admission(&self, domain: &Domain, with_leases: usize) -> AdmissionLimits {
        let room = self.queue(domain).capacity / self.endpoint(domain).room().max(1);
        let room = if self.leases { room.min(with_leases) } else { room };
        AdmissionLimits {
            connections: self.connections.unwrap_or(room),
            per_network: self.connections_per_address,
            first_use: self.first_use,
        }
    }

    /// What the completion queue is made with.
    pub(crate) fn queue(&self, domain: &Domain) -> CqAttr {
        CqAttr::new(self.capacity.unwrap_or(32_768.min(domain.info().limits.cq_capacity)))
    }
}

/// A refusal of the fabric's, with the names that the settings have here.
fn in_our_words(error: fabric::Error) -> fabric::Error {
    let fabric::Error::InvalidArgument(mut failure) = error else { return error };
    for (theirs, ours) in
        [("recv_depth", "receives"), ("send_segments", "segments"), ("capacity", "completions")]
    {
        failure.detail = failure.detail.replace(theirs, ours);
    }
    fabric::Error::InvalidArgument(failure)
}

/// An endpoint on a queue; `full` says what helps where the queue has no room for it.
pub(crate) fn build(
    builder: EndpointBuilder<'_>,
    queue: &CompletionQueue,
    full: impl FnOnce(usize) -> String,
) -> Result<Endpoint> {
    let needed = builder.room();
    builder.build(queue).map_err(|error| match error {
        fabric::Error::InvalidArgument(_) if queue.room() < needed => {
            fabric::Error::invalid("make connection", full(needed)).into()
        }
        other => other.into(),
    })
}
