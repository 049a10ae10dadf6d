//! Nodes: an open device with everything that connections on it share.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fabric::{CompletionQueue, Domain, Endpoint};
use fabric_util::admission::Admission;

use crate::driver::{Driver, WatchedDriver};
use crate::error::{Error, Result};
use crate::lease::Leases;
use crate::options::{Options, build};
use crate::peer_log::PeerLog;
use crate::pool::Pool;
use crate::reactor::{Driven, DriverWatch, ReactorClient, ReactorHandle, ReactorThread};
use crate::router::Router;
#[cfg(feature = "tokio")]
use crate::tokio_driver::{WatchedNode, Watchers};
#[cfg(feature = "tokio")]
use crate::wakers::Wakers;

/// This process on the fabric: an open device, a pool of registered memory, and a completion queue with its driver, which
/// all connections of the node share.
///
/// Most programs need none: [`Connection::connect`](crate::Connection::connect) and
/// [`Listener::bind`](crate::Listener::bind) use [`Node::shared`]. Clones are the same node. It ends when its last
/// connection, listener, future and handle are gone.
///
/// ```
/// use fabric_async::Node;
///
/// let node = Node::builder().build()?;
/// let same = node.clone();
/// let buffer = same.pool().alloc(4096)?;
/// assert_eq!(node.pool().metrics().in_use, 1);
/// # drop(buffer);
/// # Ok::<(), fabric_async::Error>(())
/// ```
#[derive(Clone)]
pub struct Node {
    pub(crate) inner: Arc<NodeInner>,
}

pub(crate) struct NodeInner {
    pub(crate) driver: Driver<CompletionQueue>,
    pub(crate) pool: Pool,
    pub(crate) domain: Domain,
    pub(crate) options: Options,
    pub(crate) router: Arc<Router>,
    pub(crate) reactor: Arc<ReactorHandle>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) admission: Arc<Admission>,
    driver_watch: Arc<DriverWatch>,
    reactor_thread: ReactorThread,
    pub(crate) peer_log: Arc<PeerLog>,
    #[cfg(feature = "tokio")]
    watchers: Watchers,
}

impl Node {
    /// A node with settings that were checked.
    pub(crate) fn new(domain: &Domain, options: Options) -> Result<Node> {
        let queue = domain.completion_queue_with(&options.queue(domain))?;
        let reactor = ReactorHandle::new()?;
        let pool = Pool::new(domain, options.pool.clone(), &reactor.timers);
        let router = Router::new(domain.events(), &reactor);
        let peer_log = Arc::default();
        let leases = Leases::new(domain, &options, &pool, &router, &reactor, &peer_log)?;
        #[cfg(feature = "tokio")]
        let may_use_tokio = options.tokio_io;
        let inner = Arc::new_cyclic(|me: &Weak<NodeInner>| NodeInner {
            driver_watch: reactor.add_watch(me.clone(), Box::new(queue.clone())),
            driver: Driver::new(queue, options.wait),
            pool,
            admission: Admission::new(options.admission(domain, leases.max_connections())),
            domain: domain.clone(),
            options,
            router,
            leases,
            reactor_thread: ReactorThread::new(&reactor),
            reactor,
            peer_log,
            #[cfg(feature = "tokio")]
            watchers: Watchers::new(may_use_tokio),
        });
        let me: Weak<NodeInner> = Arc::downgrade(&inner);
        inner.reactor_thread.start(me, domain.events(), inner.leases.queue().clone())?;
        Ok(Node { inner })
    }

    /// The registered memory that buffers come from.
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// The open device: what it offers, and a way to the poll API beside this one.
    pub fn domain(&self) -> &Domain {
        &self.inner.domain
    }

    /// Operations under way, the receives that are posted ahead included, and those that ended and were not asked for
    /// yet (of futures that were forgotten, too).
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # use fabric_async::Node;
    /// let node = Node::builder().receives(8).build()?;
    /// assert_eq!(node.operations(), 0);
    /// # doc::pair_on(&node, async |conn, peer| {
    /// assert_eq!(node.operations(), 2 * 8); // the receives of both ends
    /// # Ok(()) });
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn operations(&self) -> usize {
        self.inner.driver.slab.taken()
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("domain", &self.inner.domain)
            .field("operations", &self.operations())
            .field("pool", &self.inner.pool.metrics())
            .finish()
    }
}

impl NodeInner {
    /// How long connecting may take.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.options.endpoint(&self.domain).as_attr().connect_timeout
    }

    /// An endpoint on the node's queue, which connects or accepts within this time.
    pub(crate) fn endpoint(&self, connect_timeout: Duration) -> Result<Endpoint> {
        let builder = self.options.endpoint(&self.domain).connect_timeout(connect_timeout);
        build(builder, &self.driver.queue, |needed| self.full(needed))
    }

    /// The completion queue has no room for one more connection: says what helps.
    fn full(&self, needed: usize) -> String {
        let queue = &self.driver.queue;
        let (room, capacity) = (queue.room(), queue.capacity());
        let (depth, receives) = (self.options.send_depth, self.options.conn.receives);
        let (enough, max) = (capacity - room + needed, self.domain.info().limits.cq_capacity);
        let help = match enough <= max {
            true => format!("NodeBuilder::completions({enough}) has room for it"),
            false => format!("the device has {max} at most, so lower these, or make another node"),
        };
        format!(
            "the node's completion queue has {room} of {capacity} places left, and a connection takes {needed} \
             (send_depth {depth}, receives {receives}): {help}"
        )
    }

    /// Why no further connection request can come.
    pub(crate) fn refusal(&self) -> Option<Error> {
        let lost = self.router.is_device_lost().then_some(fabric::Error::DeviceLost);
        lost.map(Error::from).or_else(|| self.driver.refusal())
    }

    /// Somebody is to watch the completion queue for the future that is being polled. Says whether that one arms it;
    /// else the future is to.
    pub(crate) fn watch(self: &Arc<Self>) -> bool {
        #[cfg(feature = "tokio")]
        if crate::tokio_driver::by_tokio(self) {
            return true;
        }
        self.reactor.watch(&self.driver_watch);
        false
    }
}

impl Driven for NodeInner {
    fn driver(&self) -> &dyn WatchedDriver {
        &self.driver
    }
}

impl ReactorClient for NodeInner {
    fn take_events(&self) {
        self.router.take_events();
    }

    fn serve_leases(&self) -> Option<Instant> {
        self.leases.serve()
    }
}

#[cfg(feature = "tokio")]
impl WatchedNode for NodeInner {
    fn driver_watch(&self) -> &DriverWatch {
        &self.driver_watch
    }

    fn reactor(&self) -> &ReactorHandle {
        &self.reactor
    }

    fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    fn watcher_gone(&self) {
        let mut wakers = Wakers::new();
        self.driver.on_watcher_gone(&mut wakers);
        self.router.wake_connections(&mut wakers);
    }
}

impl Drop for NodeInner {
    fn drop(&mut self) {
        self.reactor_thread.stop();
        self.leases.end(self.driver.refusal().is_some());
        #[cfg(feature = "tokio")]
        self.watchers.stop();
    }
}
