//! What all handles and futures of an endpoint share.

use std::sync::{Arc, Weak};
use std::task::Waker;

use fabric_rdm::{OpId, Peer, RdmAttr};

use super::room::RoomPlace;
use super::source::RdmSource;
use crate::driver::{Driver, WatchedDriver};
use crate::error::Result;
use crate::node::NodeInner;
use crate::op_future::Port;
#[cfg(feature = "tokio")]
use crate::reactor::ReactorHandle;
use crate::reactor::{Descriptor, Driven, DriverWatch};
use crate::source::Source;
#[cfg(feature = "tokio")]
use crate::tokio_driver::{WatchedNode, Watchers};
#[cfg(feature = "tokio")]
use crate::wakers::Wakers;

pub(crate) struct EndpointInner {
    // Declared first: the endpoint is closed before the node, whose pool its buffers are of.
    pub(super) driver: Driver<RdmSource>,
    driver_watch: Arc<DriverWatch>,
    #[cfg(feature = "tokio")]
    watchers: Watchers,
    pub(super) node: Arc<NodeInner>,
}

impl EndpointInner {
    pub(super) fn new(node: &Arc<NodeInner>, attr: &RdmAttr) -> Result<Arc<Self>> {
        let mut attr = attr.clone();
        // Futures take them one by one, so that no more wait than their peers have places for.
        attr.writes_apart = true;
        let endpoint = fabric_rdm::Endpoint::new(&node.domain, &attr)?;
        let source = RdmSource::new(endpoint, &node.reactor.timers)?;
        let own = duplicate(&source)?;
        let driver = Driver::new(source, node.options.wait);
        Ok(Arc::new_cyclic(|me: &Weak<EndpointInner>| EndpointInner {
            driver,
            driver_watch: node.reactor.add_watch(me.clone(), own),
            #[cfg(feature = "tokio")]
            watchers: Watchers::new(node.options.tokio_io),
            node: node.clone(),
        }))
    }

    /// The endpoint below.
    pub(super) fn endpoint(&self) -> Result<&Arc<fabric_rdm::Endpoint>> {
        Ok(self.driver.queue.endpoint()?)
    }

    /// Somebody is to watch the descriptor for the future that is being polled: as of [`NodeInner::watch`].
    pub(super) fn watch(self: &Arc<Self>) -> bool {
        #[cfg(feature = "tokio")]
        if crate::tokio_driver::by_tokio(self) {
            return true;
        }
        self.node.reactor.watch(&self.driver_watch);
        false
    }

    /// A call has changed something for which other futures may wait. The caller holds no lock.
    pub(super) fn settle(&self) {
        self.driver.drain();
    }

    /// The same, where only futures that wait for room may wait for it.
    pub(super) fn settle_if_room_is_awaited(&self) {
        if self.driver.queue.rooms.are_awaited() {
            self.settle();
        }
    }

    /// The same, where only futures that wait for no operation may wait for it.
    pub(super) fn settle_if_awaited(&self) {
        if self.driver.queue.conditions.are_awaited() {
            self.settle();
        }
    }
}

/// A descriptor for the node's thread, which may close it later than the endpoint its own.
fn duplicate(source: &RdmSource) -> Result<Descriptor> {
    let own = source.descriptor().try_clone_to_owned();
    let system = |cause| fabric::Error::system("make rdm endpoint", "fabric-async", cause);
    Ok(Box::new(own.map_err(system)?))
}

impl Driven for EndpointInner {
    fn driver(&self) -> &dyn WatchedDriver {
        &self.driver
    }
}

#[cfg(feature = "tokio")]
impl WatchedNode for EndpointInner {
    fn driver_watch(&self) -> &DriverWatch {
        &self.driver_watch
    }

    fn reactor(&self) -> &ReactorHandle {
        &self.node.reactor
    }

    fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    fn watcher_gone(&self) {
        let mut wakers = Wakers::new();
        self.driver.on_watcher_gone(&mut wakers);
        self.driver.queue.wake_all(&mut wakers);
    }
}

impl Drop for EndpointInner {
    fn drop(&mut self) {
        self.node.reactor.remove_watch(&self.driver_watch);
        #[cfg(feature = "tokio")]
        self.watchers.stop();
    }
}

/// Where operations to a peer are posted.
#[derive(Clone)]
pub(crate) struct ToPeer {
    pub(super) inner: Arc<EndpointInner>,
    pub(super) peer: Peer,
}

impl Port for ToPeer {
    type Source = RdmSource;
    type Place = RoomPlace;
    type Posted = OpId;

    // A post may connect, or log.
    const POSTS_UNDER_LOCK: bool = false;

    #[inline]
    fn driver(&self) -> &Driver<RdmSource> {
        &self.inner.driver
    }

    fn watch(&self) -> bool {
        self.inner.watch()
    }

    #[inline]
    fn is_turn(&self, place: &mut RoomPlace, waker: Option<&Waker>) -> bool {
        self.driver().queue.rooms.is_turn(Some(self.peer), place, waker)
    }

    #[inline]
    fn leave(&self, place: &mut RoomPlace) {
        self.driver().queue.rooms.leave(Some(self.peer), place);
    }

    /// Those that wait for their turn are woken one after the other when it is not.
    fn is_alive(&self) -> bool {
        true
    }
}

/// Where receives are posted.
#[derive(Clone)]
pub(crate) struct RecvPort(pub(super) Arc<EndpointInner>);

impl Port for RecvPort {
    type Source = RdmSource;
    type Place = RoomPlace;
    type Posted = OpId;

    // A post may connect, or log.
    const POSTS_UNDER_LOCK: bool = false;

    #[inline]
    fn driver(&self) -> &Driver<RdmSource> {
        &self.0.driver
    }

    fn watch(&self) -> bool {
        self.0.watch()
    }

    #[inline]
    fn is_turn(&self, place: &mut RoomPlace, waker: Option<&Waker>) -> bool {
        self.driver().queue.rooms.is_turn(None, place, waker)
    }

    #[inline]
    fn leave(&self, place: &mut RoomPlace) {
        self.driver().queue.rooms.leave(None, place);
    }

    fn is_alive(&self) -> bool {
        true
    }

    /// Cancels a receive that has not met a message, so that it takes none; its buffer comes back at once.
    fn on_dropped(&self, posted: OpId) {
        if let Ok(endpoint) = self.0.endpoint()
            && endpoint.cancel(posted).is_ok_and(|canceled| canceled)
        {
            self.0.settle();
        }
    }
}
