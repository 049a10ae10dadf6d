//! The inside of a connection: its endpoint, and what it is by its peer.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use fabric::{BatchError, DisconnectReason, Endpoint, EndpointState, Recv};
use fabric_util::admission::{Admitted, Permit};

use crate::admission::is_unused;
use crate::conn_state::ConnState;
use crate::error::{Error, Result};
use crate::handshake::Handshake;
use crate::lease::Control;
use crate::node::NodeInner;
use crate::options::ConnSettings;
use crate::peer_log::PeerEvent;
use crate::receives::{DrainOnDrop, InboxOwner, refill};

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
        refill(&conn)?;
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
}

impl InboxOwner for Conn {
    #[inline]
    fn node(&self) -> &Arc<NodeInner> {
        &self.node
    }

    #[inline]
    fn state(&self) -> &Arc<ConnState> {
        &self.conn_state
    }

    #[inline]
    fn settings(&self) -> &ConnSettings {
        &self.settings
    }

    fn post_recvs(&self, recvs: &[Recv<'_>]) -> Result<(), BatchError> {
        self.endpoint.post_recvs(recvs)
    }

    fn is_alive(&self) -> bool {
        Conn::is_alive(self)
    }

    fn over(&self) -> Error {
        Conn::over(self)
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
