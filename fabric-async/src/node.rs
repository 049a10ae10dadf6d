//! Nodes: an open device with everything that connections on it share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fabric::{
    CompletionQueue, ConnectRequest, Domain, Endpoint, EndpointBuilder, EndpointId, Event,
    EventQueue,
};
use fabric_util::sync::{Mutex, MutexGuard};

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::lane::Lane;
use crate::lease::{Controls, Lending, Whose};
use crate::leftover::Leftover;
use crate::listener::ListenerInner;
use crate::oneshot::Promise;
use crate::options::Options;
use crate::peer_log::PeerLines;
use crate::pool::Pool;
use crate::service::Service;
use crate::timers::Timers;
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
    pub(crate) driver: Driver,
    /// The completions of connections for leases, which the service takes.
    pub(crate) control: CompletionQueue,
    pub(crate) pool: Pool,
    pub(crate) domain: Domain,
    pub(crate) options: Options,
    lanes: Mutex<HashMap<EndpointId, Weak<Lane>>>,
    events: Mutex<EventQueue>,
    pub(crate) controls: Mutex<Controls>,
    /// Connections for leases that peers are about to make.
    expected: Mutex<Expected>,
    pub(crate) timers: Arc<Timers>,
    pub(crate) service: Service,
    /// The device is gone.
    lost: AtomicBool,
    pub(crate) lines: Arc<PeerLines>,
    pub(crate) lending: Arc<Lending>,
    #[cfg(feature = "tokio")]
    pub(crate) watchers: crate::watch::Watchers,
}

type Expected = HashMap<Whose, Arc<Promise<ConnectRequest>>>;

impl Node {
    /// A node with settings that were checked.
    pub(crate) fn new(domain: &Domain, options: Options) -> Result<Node> {
        let queue = domain.completion_queue_with(&options.queue(domain))?;
        let endpoints = domain.info().limits.cq_capacity / crate::lease::ROOM;
        let control = match options.leases {
            true => domain.completion_queue(crate::lease::ROOM * endpoints.min(1024))?,
            false => domain.completion_queue(1)?,
        };
        let timers = Timers::new()?;
        let pool = Pool::new(domain, options.pool.clone(), &timers);
        let half = options.pool.bytes as u64 / 2;
        let lending = Lending::new(options.policy.in_all.unwrap_or(half));
        let inner = Arc::new(NodeInner {
            driver: Driver::new(queue, options.wait),
            control,
            pool,
            domain: domain.clone(),
            options,
            lanes: Mutex::default(),
            events: Mutex::new(domain.events()),
            controls: Mutex::default(),
            expected: Mutex::default(),
            service: Service::new(&timers),
            timers,
            lost: AtomicBool::new(false),
            lines: Arc::default(),
            lending,
            #[cfg(feature = "tokio")]
            watchers: crate::watch::Watchers::default(),
        });
        Service::start(&inner)?;
        Ok(Node { inner })
    }

    /// The registered memory that buffers come from.
    ///
    /// ```
    /// let node = fabric_async::Node::shared()?;
    /// let buffer = node.pool().alloc_from(b"hello")?;
    /// assert_eq!(*buffer, *b"hello");
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// The open device: what it offers, and a way to the poll API beside this one.
    ///
    /// ```
    /// use fabric::Access;
    ///
    /// let node = fabric_async::Node::shared()?;
    /// assert!(node.domain().info().limits.message >= 1 << 20);
    /// let region = node.domain().alloc(4096, Access::ALL)?; // what peers can reach
    /// assert_eq!(region.remote().len(), 4096);
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
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
        self.inner.driver.table.taken()
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
        let (depth, receives) = (self.options.send_depth, self.options.link.receives);
        let (enough, most) = (capacity - room + needed, self.domain.info().limits.cq_capacity);
        let help = match enough <= most {
            true => format!("NodeBuilder::completions({enough}) has room for it"),
            false => format!("the device has {most} at most, so lower these, or make another node"),
        };
        format!(
            "the node's completion queue has {room} of {capacity} places left, and a connection takes {needed} \
             (send_depth {depth}, receives {receives}): {help}"
        )
    }

    /// An endpoint for leases, on a queue of their own.
    pub(crate) fn control_endpoint(&self) -> Result<Endpoint> {
        let builder = crate::lease::endpoint(self.options.any_endpoint(&self.domain));
        build(builder, &self.control, |needed| {
            let most = self.control.capacity() / needed;
            format!(
                "a node carries leases on at most {most} connections here: NodeBuilder::leases(false) takes none, \
                 or make another node"
            )
        })
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<EndpointId, Weak<Lane>>> {
        self.lanes.lock()
    }

    pub(crate) fn expected(&self) -> MutexGuard<'_, Expected> {
        self.expected.lock()
    }

    pub(crate) fn enroll(&self, id: EndpointId, lane: &Arc<Lane>) {
        self.lanes().insert(id, Arc::downgrade(lane));
    }

    pub(crate) fn strike(&self, id: EndpointId) {
        self.lanes().remove(&id);
    }

    pub(crate) fn lane(&self, id: EndpointId) -> Option<Arc<Lane>> {
        self.lanes().get(&id)?.upgrade()
    }

    /// Why nobody will ask to be let in any more.
    pub(crate) fn refusal(&self) -> Option<Error> {
        let lost = self.lost.load(Ordering::Relaxed).then_some(fabric::Error::DeviceLost);
        lost.map(Error::from).or_else(|| self.driver.refusal())
    }

    /// Takes the connection events that there are, and tells whom they concern. When it returns, what was reported
    /// before the call is told, whoever took it.
    pub(crate) fn take_events(&self) {
        let mut leftover = Leftover::new();
        let mut asked = Vec::new();
        let events = self.events.lock();
        while let Some(event) = events.poll() {
            self.event(event, &mut leftover, &mut asked);
        }
        drop(events);
        // A listener may be of a provider of the application's own, so no lock is held.
        for listener in asked {
            listener.take_requests(&mut leftover.wakers);
        }
    }

    /// `asked`: the listeners at which requests wait.
    fn event(&self, event: Event, leftover: &mut Leftover, asked: &mut Vec<Arc<ListenerInner>>) {
        let wakers = &mut leftover.wakers;
        let lane = event.endpoint().and_then(|id| self.lane(id));
        match (event, &lane) {
            (Event::Connected { data, .. }, Some(lane)) => lane.connected(Ok(data), wakers),
            (Event::ConnectFailed { error, .. }, Some(lane)) => lane.connected(Err(error), wakers),
            (Event::Disconnected { reason, .. }, Some(lane)) => {
                lane.ended(reason, wakers);
                // Leases end with their connection, whoever took this event.
                self.service.look_at_leases();
            }
            (Event::ConnectRequest { listener }, _) => {
                asked.extend(self.service.listener(listener));
            }
            (Event::DeviceLost, _) => {
                // Each endpoint is told by an event of its own.
                self.lost.store(true, Ordering::Relaxed);
                self.service.listeners().iter().for_each(|listener| listener.line.call_all(wakers));
            }
            _ => {}
        }
        leftover.lane(lane);
    }

    /// Somebody is to watch the completion queue for the future that is being polled. Says whether that one arms it;
    /// else the future is to.
    pub(crate) fn watch(self: &Arc<Self>) -> bool {
        #[cfg(feature = "tokio")]
        if crate::watch::by_tokio(self) {
            return true;
        }
        self.service.watch_queue();
        false
    }

    /// A watcher is gone.
    #[cfg(feature = "tokio")]
    pub(crate) fn unwatched(&self) {
        let mut wakers = Wakers::new();
        self.driver.unwatched(&mut wakers);
        let lanes: Vec<_> = self.lanes().values().filter_map(Weak::upgrade).collect();
        lanes.iter().for_each(|lane| lane.call_all(&mut wakers));
    }
}

impl Drop for NodeInner {
    fn drop(&mut self) {
        self.service.stop();
        self.end_control();
        #[cfg(feature = "tokio")]
        self.watchers.stop();
    }
}

/// An endpoint on a queue; `full` says what helps where the queue has no room for it.
fn build(
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
