//! Nodes: an open device with everything that connections on it share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fabric::{
    Catalog, Choice, CompletionQueue, ConnectRequest, Domain, Endpoint, EndpointAttr,
    EndpointBuilder, EndpointId, Event, EventQueue, Hints,
};

use crate::driver::{Driver, Wait};
use crate::error::Result;
use crate::lane::Lane;
use crate::lease::{Control, LeasePolicy};
use crate::link::LinkSettings;
use crate::pool::{Pool, PoolOptions};
use crate::service::Service;

/// This process on the fabric: an open device, a pool of registered memory, and a completion queue with its driver, which
/// all connections of the node share.
///
/// Most programs need none: [`Connection::connect`](crate::Connection::connect) and
/// [`Listener::bind`](crate::Listener::bind) use [`Node::shared`]. Clones are the same node. It ends when its last
/// connection, listener, future and handle are gone.
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
    controls: Mutex<HashMap<EndpointId, Weak<Control>>>,
    /// Connections for leases that peers are about to make, by token.
    expected: Mutex<HashMap<u64, Arc<Promise<ConnectRequest>>>>,
    pub(crate) service: Service,
    #[cfg(feature = "tokio")]
    pub(crate) watchers: crate::watch::Watchers,
}

/// What a node and its connections are made with.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) pool: PoolOptions,
    pub(crate) link: LinkSettings,
    pub(crate) policy: LeasePolicy,
    /// Whether connections get a second one, for leases.
    pub(crate) leases: bool,
    pub(crate) backlog: usize,
    wait: Wait,
    capacity: Option<usize>,
    send_depth: usize,
    send_segments: usize,
    connect_timeout: Option<Duration>,
    liveness: Option<Option<Duration>>,
    attr: Option<EndpointAttr>,
}

/// Makes a [`Node`]. Every setting has a default that suits most.
///
/// ```
/// use fabric_async::{Node, Wait};
///
/// # fn main() -> Result<(), fabric_async::Error> {
/// let node = Node::builder()
///     .wait(Wait::Busy)
///     .pool_bytes(256 << 20)
///     .max_message(1 << 20)
///     .receives(8)
///     .build()?;
/// println!("{:?}", node.domain());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is made until `build`"]
pub struct NodeBuilder {
    hints: Hints,
    choice: Option<Choice>,
    options: Options,
}

impl Default for NodeBuilder {
    fn default() -> Self {
        NodeBuilder {
            hints: Hints::default(),
            choice: None,
            options: Options {
                pool: PoolOptions::default(),
                link: LinkSettings { receives: 16, max_message: 64 << 10, notifications: 1024 },
                policy: LeasePolicy::default(),
                leases: true,
                backlog: 128,
                wait: Wait::default(),
                capacity: None,
                send_depth: 128,
                send_segments: 4,
                connect_timeout: None,
                liveness: None,
                attr: None,
            },
        }
    }
}

impl NodeBuilder {
    /// What the device must offer: provider, device, address, limits.
    pub fn hints(mut self, hints: Hints) -> Self {
        self.hints = hints;
        self
    }

    /// The providers to choose from, instead of what `FABRIC_PROVIDER` says.
    pub fn choice(mut self, choice: Choice) -> Self {
        self.choice = Some(choice);
        self
    }

    /// How futures wait; default [`Wait::Adaptive`].
    pub fn wait(mut self, wait: Wait) -> Self {
        self.options.wait = wait;
        self
    }

    /// Most bytes that the pool registers; at least 1 MiB, default 1 GiB.
    pub fn pool_bytes(mut self, bytes: usize) -> Self {
        self.options.pool.bytes = bytes;
        self
    }

    /// Bytes without use that the pool keeps registered; default 64 MiB.
    pub fn pool_keep(mut self, bytes: usize) -> Self {
        self.options.pool.keep = bytes;
        self
    }

    /// Room of the completion queue that all connections share: each takes its send depth and its receives of it. Default:
    /// 32768, or what the device has.
    pub fn completions(mut self, room: usize) -> Self {
        self.options.capacity = Some(room);
        self
    }

    /// Operations of one connection that are under way at a time; more wait their turn. Default 128.
    pub fn send_depth(mut self, operations: usize) -> Self {
        self.options.send_depth = operations;
        self
    }

    /// Buffers in a row that one operation takes (`Vec<Buffer>`); default 4.
    pub fn segments(mut self, segments: usize) -> Self {
        self.options.send_segments = segments;
        self
    }

    /// Messages of one connection that may arrive before the application takes one; more stay with the sender, which waits.
    /// Each takes [`max_message`](NodeBuilder::max_message) bytes of the pool. Default 16.
    pub fn receives(mut self, messages: usize) -> Self {
        self.options.link.receives = messages;
        self
    }

    /// The longest message that connections receive; the peer learns it when it connects. Default 64 KiB.
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.options.link.max_message = bytes;
        self
    }

    /// Notifications of one connection that wait for the application before the peer has to; at least the
    /// [`receives`](NodeBuilder::receives), default 1024.
    pub fn notifications(mut self, notifications: usize) -> Self {
        self.options.link.notifications = notifications;
        self
    }

    /// How long connecting and accepting may take; default 5 s, or `FABRIC_CONNECT_TIMEOUT_MS`.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = Some(timeout);
        self
    }

    /// A dead peer host is noticed within three of these; `None` turns it off. Default 10 s, or `FABRIC_LIVENESS_S`.
    pub fn liveness(mut self, interval: Option<Duration>) -> Self {
        self.options.liveness = Some(interval);
        self
    }

    /// All that endpoints can be told otherwise: source address, traffic class, path. The settings above go before it.
    pub fn endpoint(mut self, attr: EndpointAttr) -> Self {
        self.options.attr = Some(attr);
        self
    }

    /// Peers that may wait at a listener; default 128.
    pub fn backlog(mut self, peers: usize) -> Self {
        self.options.backlog = peers;
        self
    }

    /// What peers may borrow of this process's memory.
    pub fn lend(mut self, policy: LeasePolicy) -> Self {
        self.options.policy = policy;
        self
    }

    /// Whether connections carry leases at all; default yes. Without, one endpoint a connection is enough, and memory is
    /// only reached by descriptors of the poll API that applications ship themselves.
    pub fn leases(mut self, on: bool) -> Self {
        self.options.leases = on;
        self
    }

    /// Opens the device that suits best, and makes the node.
    ///
    /// # Errors
    /// The fabric's: `NoProvider` with the reasons, `InvalidArgument` for a setting beyond the device's limits.
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
    /// # Errors
    /// As [`build`](NodeBuilder::build).
    pub fn build_on(self, domain: &Domain) -> Result<Node> {
        self.options.check(domain)?;
        let limits = &domain.info().limits;
        let capacity = self.options.capacity.unwrap_or(32_768.min(limits.cq_capacity));
        let queue = domain.completion_queue(capacity)?;
        let endpoints = limits.cq_capacity / crate::lease::ROOM;
        let control = match self.options.leases {
            true => domain.completion_queue(crate::lease::ROOM * endpoints.min(1024))?,
            false => domain.completion_queue(1)?,
        };
        let pool = Pool::new(domain, self.options.pool.clone());
        let inner = Arc::new(NodeInner {
            driver: Driver::new(queue, self.options.wait),
            control,
            pool,
            domain: domain.clone(),
            options: self.options,
            lanes: Mutex::default(),
            events: Mutex::new(domain.events()),
            controls: Mutex::default(),
            expected: Mutex::default(),
            service: Service::new()?,
            #[cfg(feature = "tokio")]
            watchers: crate::watch::Watchers::default(),
        });
        Service::start(&inner)?;
        Ok(Node { inner })
    }
}

impl Options {
    fn check(&self, domain: &Domain) -> Result<()> {
        let bad = |text: String| Err(fabric::Error::invalid("make node", text).into());
        let LinkSettings { receives, max_message, notifications } = self.link;
        let most = domain.info().limits.message.min(u64::from(u32::MAX)) as usize;
        if self.pool.bytes < 1 << 20 {
            return bad(format!("pool_bytes {} is less than 1 MiB", self.pool.bytes));
        }
        if !(1..=most).contains(&max_message) {
            return bad(format!("max_message {max_message} is not in 1..={most}"));
        }
        if receives == 0 || notifications < receives {
            return bad(format!(
                "{receives} receives and {notifications} notifications: there must be at least one receive, \
                 and as many notifications"
            ));
        }
        self.policy.check()
    }
}

impl Node {
    /// The node that everything uses which is given no other: opened at first use with default settings, as
    /// `FABRIC_PROVIDER` says, and shared for as long as anything of it is in use.
    ///
    /// # Errors
    /// As [`NodeBuilder::build`].
    pub fn shared() -> Result<Node> {
        static SHARED: Mutex<Weak<NodeInner>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inner) = shared.upgrade() {
            return Ok(Node { inner });
        }
        let node = Node::builder().build()?;
        *shared = Arc::downgrade(&node.inner);
        Ok(node)
    }

    /// Begins to make a node.
    pub fn builder() -> NodeBuilder {
        NodeBuilder::default()
    }

    /// The registered memory that buffers come from.
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// The open device: what it offers, and a way to the poll API beside this one.
    pub fn domain(&self) -> &Domain {
        &self.inner.domain
    }

    /// Operations under way, and those that ended and were not asked for yet (of futures that were forgotten, too).
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
    /// An endpoint on the node's queue.
    pub(crate) fn endpoint(&self, receives: usize) -> Result<Endpoint> {
        let Options { send_depth, send_segments, .. } = self.options;
        let builder = self.endpoint_builder().send_depth(send_depth).recv_depth(receives);
        let builder = builder.send_segments(send_segments.max(1)).recv_segments(1);
        Ok(builder.build(&self.driver.queue)?)
    }

    /// What all endpoints of the node have in common.
    pub(crate) fn endpoint_builder(&self) -> EndpointBuilder<'_> {
        let Options { attr, connect_timeout, liveness, .. } = &self.options;
        let mut builder = self.domain.endpoint();
        if let Some(attr) = attr {
            builder = builder.attr(attr.clone());
        }
        if let Some(timeout) = connect_timeout {
            builder = builder.connect_timeout(*timeout);
        }
        if let Some(interval) = liveness {
            builder = builder.liveness(*interval);
        }
        builder
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<EndpointId, Weak<Lane>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn controls(&self) -> MutexGuard<'_, HashMap<EndpointId, Weak<Control>>> {
        self.controls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn expected(&self) -> MutexGuard<'_, HashMap<u64, Arc<Promise<ConnectRequest>>>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Takes the connection events that there are, and tells whom they concern. When it returns, what was reported
    /// before the call is told, whoever took it.
    pub(crate) fn take_events(&self) {
        let mut wakers = Vec::new();
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(event) = events.poll() {
            self.event(event, &mut wakers);
        }
        drop(events);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn event(&self, event: Event, wakers: &mut Vec<Waker>) {
        let lane = event.endpoint().and_then(|id| self.lane(id));
        match (event, lane) {
            (Event::Connected { data, .. }, Some(lane)) => lane.connected(Ok(data), wakers),
            (Event::ConnectFailed { error, .. }, Some(lane)) => lane.connected(Err(error), wakers),
            (Event::Disconnected { reason, .. }, Some(lane)) => {
                lane.ended(reason, wakers);
                // Leases end with their connection, whoever took this event.
                self.service.look_again();
            }
            (Event::ConnectRequest { listener }, _) => {
                if let Some(listener) = self.service.listener(listener) {
                    listener.take_requests(wakers);
                }
            }
            // That the device is lost, each endpoint is told by an event of its own.
            _ => {}
        }
    }

    /// Somebody is to watch the completion queue's descriptor for the future that is being polled.
    pub(crate) fn watch(self: &Arc<Self>) {
        #[cfg(feature = "tokio")]
        if crate::watch::by_tokio(self) {
            return;
        }
        self.service.watch_queue();
    }

    /// A watcher is gone.
    #[cfg(feature = "tokio")]
    pub(crate) fn unwatched(&self) {
        let mut wakers = Vec::new();
        self.driver.unwatched(&mut wakers);
        let lanes: Vec<_> = self.lanes().values().filter_map(Weak::upgrade).collect();
        lanes.iter().for_each(|lane| lane.all(&mut wakers));
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for NodeInner {
    fn drop(&mut self) {
        self.service.stop();
        #[cfg(feature = "tokio")]
        self.watchers.stop();
    }
}

/// A value that somebody else brings.
pub(crate) struct Promise<T>(Mutex<(Option<T>, Option<Waker>)>);

impl<T> Promise<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Promise(Mutex::new((None, None))))
    }

    pub(crate) fn keep(&self, value: T) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = Some(value);
        let waker = state.1.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.0.take() {
            Some(value) => Poll::Ready(value),
            None => {
                state.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    pub(crate) async fn value(&self) -> T {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }
}
