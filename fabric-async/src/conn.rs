//! The inside of a connection: its endpoint, and its receives.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use fabric::{DisconnectReason, Endpoint, EndpointState, Recv};
use fabric_util::admission::{Admitted, Permit};
use smallvec::SmallVec;

use crate::admission::is_unused;
use crate::buffer::Buffer;
use crate::conn_state::{ConnState, Inbox};
use crate::error::{Error, Result};
use crate::handshake::Handshake;
use crate::lease::Control;
use crate::node::NodeInner;
use crate::op_buffers::{BufferRange, OpBuffers};
use crate::op_slab::Phase;
use crate::options::ConnSettings;
use crate::peer_log::PeerEvent;

/// Receives that are posted in one call.
const BATCH: usize = 16;

/// Receives that are to be posted.
pub(crate) struct Missing {
    count: usize,
    /// Slots of the slab that earlier receives of the connection had.
    slots: SmallVec<[u32; BATCH]>,
}

pub(crate) struct Conn {
    // Declared first: quiet before anything else goes.
    pub(crate) endpoint: Endpoint,
    pub(crate) conn_state: Arc<ConnState>,
    pub(crate) node: Arc<NodeInner>,
    pub(crate) settings: ConnSettings,
    /// What the peer said when the connection was made.
    pub(crate) peer: OnceLock<Handshake>,
    pub(crate) control: OnceLock<Arc<Control>>,
    // After all that uses room of the queue.
    _drain: DrainOnDrop,
    /// Of one that the peer made. Declared last: the next one has room when this is gone.
    permit: OnceLock<Permit>,
}

/// Takes the completions that dropping an endpoint leaves, so that its buffers return at once, and gives back the slots
/// that its receives had.
struct DrainOnDrop(Arc<NodeInner>, Arc<ConnState>);

impl Drop for DrainOnDrop {
    fn drop(&mut self) {
        let driver = &self.0.driver;
        driver.drain();
        let idle = std::mem::take(&mut self.1.inbox().idle);
        idle.into_iter().for_each(|number| driver.release(number));
    }
}

impl Conn {
    /// One that is not connected, with its receives posted. It connects or accepts within this time.
    pub(crate) fn new(node: &Arc<NodeInner>, connect_timeout: Duration) -> Result<Arc<Conn>> {
        let settings = node.options.conn.clone();
        let endpoint = node.endpoint(connect_timeout)?;
        let conn_state = ConnState::new(&node.reactor.timers);
        node.router.register(endpoint.id(), &conn_state);
        let conn = Conn {
            endpoint,
            _drain: DrainOnDrop(node.clone(), conn_state.clone()),
            conn_state,
            node: node.clone(),
            settings,
            peer: OnceLock::new(),
            control: OnceLock::new(),
            permit: OnceLock::new(),
        };
        conn.refill()?;
        Ok(Arc::new(conn))
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.endpoint.state() == EndpointState::Connected
    }

    /// The peer made it, and it is established.
    pub(crate) fn admitted(self: &Arc<Self>, permit: Permit) {
        let me: Weak<Conn> = Arc::downgrade(self);
        self.permit.get_or_init(|| permit).established(me);
    }

    /// Why it can do nothing more.
    pub(crate) fn over(&self) -> Error {
        self.node.router.take_events();
        Error::Disconnected(self.conn_state.end().unwrap_or(DisconnectReason::Local))
    }

    /// Whether the peer takes a message of this length.
    #[inline]
    pub(crate) fn check_message(&self, len: usize) -> Result<()> {
        match self.peer.get().map_or(usize::MAX, |peer| peer.max_message as usize) {
            max if len <= max => Ok(()),
            max => Err(Error::TooLong { len, max }),
        }
    }

    /// Posts as many receives as there should be. What there is no memory for now is posted later.
    ///
    /// # Errors
    /// The pool's, if not a single receive is posted.
    pub(crate) fn refill(&self) -> Result<()> {
        let missing = self.missing(&mut self.conn_state.inbox());
        self.post_missing(missing)
    }

    /// The next receives that should be posted, which from now on count as posted.
    #[inline]
    pub(crate) fn missing(&self, inbox: &mut Inbox) -> Option<Missing> {
        let ConnSettings { receives, notifications, .. } = self.settings;
        // Each receive that is posted may become a message, or a notification; so few enough that both have room.
        let unread = inbox.messages.len();
        let room = notifications.saturating_sub(inbox.notifications.len());
        let posted = inbox.posted;
        let want = receives.saturating_sub(posted + unread).min(room.saturating_sub(posted));
        let count = want.min(BATCH);
        // Not one by one, unless that is all there are.
        if count == 0 || (posted > receives / 2 && count < receives / 4) {
            return None;
        }
        inbox.posted += count;
        let kept = inbox.idle.len().saturating_sub(count);
        Some(Missing { count, slots: inbox.idle.drain(kept..).collect() })
    }

    /// Posts those receives, and what is missing then.
    ///
    /// # Errors
    /// As of [`refill`](Conn::refill).
    pub(crate) fn post_missing(&self, mut missing: Option<Missing>) -> Result<()> {
        while let Some(Missing { count, slots }) = missing {
            let done = self.post_receives(count, slots);
            let mut inbox = self.conn_state.inbox();
            if let Err((posted, error)) = done {
                inbox.posted -= count - posted;
                let none = inbox.posted == 0 && inbox.messages.is_empty();
                return if none { Err(error) } else { Ok(()) };
            }
            missing = self.missing(&mut inbox);
        }
        Ok(())
    }

    /// Posts some receives in one call, first at those slots; says how many if not all were.
    fn post_receives(
        &self,
        count: usize,
        mut idle: SmallVec<[u32; BATCH]>,
    ) -> Result<(), (usize, Error)> {
        let (slab, len) = (&self.node.driver.slab, self.settings.max_message);
        // Memory first: to get some may wake those that wait for it, which no lock is held over.
        let mut failure = None;
        let mut buffers: SmallVec<[Buffer; BATCH]> = SmallVec::new();
        while buffers.len() < count && failure.is_none() {
            match self.node.pool.alloc_dirty(len) {
                Ok(buffer) => buffers.push(buffer),
                Err(error) => failure = Some(error),
            }
        }
        let mut slots: SmallVec<[_; BATCH]> = SmallVec::new();
        while !buffers.is_empty() {
            let number = match idle.pop().map_or_else(|| slab.begin(), Ok) {
                Ok(number) => number,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            };
            let Some(mut slot) = slab.lock_beside_others(number) else { break };
            if let Some(buffer) = buffers.pop() {
                slot.buffers = OpBuffers::Receive(BufferRange::new(buffer, 0, len));
            }
            slots.push((number, slot));
        }
        let receives: SmallVec<[Recv<'_>; BATCH]> = slots
            .iter()
            .map(|(number, slot)| {
                let slice = match &slot.buffers {
                    OpBuffers::Receive(range) => range.slice(),
                    _ => None,
                };
                let into = slice.map_or_else(fabric::Slices::none, Into::into);
                Recv::new(into, u64::from(*number))
            })
            .collect();
        let mut refusal = None;
        let posted = match self.endpoint.post_recvs(&receives) {
            Ok(()) => slots.len(),
            Err(batch) => {
                refusal = Some(batch.error);
                batch.posted
            }
        };
        drop(receives);
        let mut refused: SmallVec<[OpBuffers; BATCH]> = SmallVec::new();
        for (index, (number, mut slot)) in slots.into_iter().enumerate() {
            if index < posted {
                slot.phase = Phase::Abandoned;
                slot.keeps.conn_state.get_or_insert_with(|| self.conn_state.clone());
            } else {
                refused.push(std::mem::take(&mut slot.buffers));
                idle.push(number);
            }
        }
        refused.into_iter().for_each(OpBuffers::reclaim);
        drop(buffers);
        if !idle.is_empty() {
            self.conn_state.inbox().idle.extend(idle);
        }
        // Asked for here, where no lock is held: it takes events.
        let refusal = refusal.map(|error| match error {
            fabric::Error::NotConnected => self.over(),
            other => other.into(),
        });
        refusal.or(failure).map_or(Ok(()), |error| Err((posted, error)))
    }
}

impl Admitted for Conn {
    fn is_unused(&self) -> bool {
        is_unused(&self.endpoint) && self.control.get().is_none_or(|control| control.is_unused())
    }

    fn displace(&self) {
        let peer = self.endpoint.peer_addr();
        self.node.peer_log.warn(
            PeerEvent::Admission,
            peer,
            format_args!("{}: never used, so it makes room for another peer", self.endpoint.id()),
        );
        self.endpoint.disconnect();
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.node.router.unregister(self.endpoint.id());
    }
}
