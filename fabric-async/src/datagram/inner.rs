//! What all handles and futures of a datagram endpoint share.

use std::sync::Arc;
use std::task::Waker;

use fabric::{AddressHandle, BatchError, CompletionQueue, DatagramAttr, Recv};

use crate::conn_source::ConnKeeps;
use crate::conn_state::ConnState;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::node::NodeInner;
use crate::op_future::Port;
use crate::options::ConnSettings;
use crate::receives::{DrainOnDrop, InboxOwner, refill};
use crate::wait_queue::Waiter;

pub(crate) struct DatagramInner {
    // Declared first: quiet before anything else goes.
    pub(super) endpoint: fabric::DatagramEndpoint,
    pub(super) state: Arc<ConnState>,
    pub(super) node: Arc<NodeInner>,
    settings: ConnSettings,
    // After all that uses room of the queue.
    _drain: DrainOnDrop,
}

impl DatagramInner {
    /// One on the node's queue, with its receives posted.
    pub(super) fn new(node: &Arc<NodeInner>, attr: &DatagramAttr) -> Result<Arc<Self>> {
        let queue = &node.driver.queue;
        let endpoint = node.domain.datagram_endpoint_with(attr, queue, queue)?;
        let settings = ConnSettings {
            receives: attr.recv_depth,
            max_message: node.options.conn.max_message.min(endpoint.max_len()).max(1),
            notifications: usize::MAX,
        };
        let state = ConnState::of_datagrams(&node.reactor.timers);
        node.router.register(endpoint.id(), &state);
        let inner = DatagramInner {
            endpoint,
            _drain: DrainOnDrop(node.clone(), state.clone()),
            state,
            node: node.clone(),
            settings,
        };
        refill(&inner)?;
        Ok(Arc::new(inner))
    }

    /// What an operation of it keeps.
    pub(super) fn keeps(&self) -> ConnKeeps {
        ConnKeeps { conn_state: Some(self.state.clone()), lease: None }
    }
}

impl InboxOwner for DatagramInner {
    fn node(&self) -> &Arc<NodeInner> {
        &self.node
    }

    fn state(&self) -> &Arc<ConnState> {
        &self.state
    }

    fn settings(&self) -> &ConnSettings {
        &self.settings
    }

    fn post_recvs(&self, recvs: &[Recv<'_>]) -> Result<(), BatchError> {
        self.endpoint.post_recvs(recvs)
    }

    fn is_alive(&self) -> bool {
        !self.node.router.is_device_lost()
    }

    fn over(&self) -> Error {
        fabric::Error::DeviceLost.into()
    }
}

impl Drop for DatagramInner {
    fn drop(&mut self) {
        self.node.router.unregister(self.endpoint.id());
    }
}

/// Where datagrams to an address are posted.
#[derive(Clone)]
pub(crate) struct ToAddress {
    pub(super) inner: Arc<DatagramInner>,
    pub(super) to: AddressHandle,
}

impl Port for ToAddress {
    type Source = CompletionQueue;
    type Place = Waiter;
    type Posted = ();

    // A post may let go of another address, and a device that fails at that is logged.
    const POSTS_UNDER_LOCK: bool = false;

    #[inline]
    fn driver(&self) -> &Driver<CompletionQueue> {
        &self.inner.node.driver
    }

    #[inline]
    fn watch(&self) -> bool {
        self.inner.node.watch()
    }

    #[inline]
    fn is_turn(&self, place: &mut Waiter, waker: Option<&Waker>) -> bool {
        self.inner.state.room.is_turn(place, waker)
    }

    #[inline]
    fn leave(&self, place: &mut Waiter) {
        self.inner.state.room.leave(place);
    }

    fn is_alive(&self) -> bool {
        InboxOwner::is_alive(&*self.inner)
    }
}
