//! Connections, as the engine and their endpoints share them.

use std::sync::atomic::{AtomicBool, Ordering};

use fabric_core::EndpointAttr;
use fabric_util::fair_table::Network;
use fabric_util::fault::MaybeFaulty;
use fabric_util::progress::{ReadyFlag, Source};
use fabric_util::stream::{self, LinkContext, Protected};

use crate::name::NAME;
use crate::transport::TcpTransport;

/// What carries a connection's bytes.
pub(crate) type Stream = MaybeFaulty<Protected<TcpTransport>>;

/// A connection. The engine has it as long as the socket is open, the endpoint as long as it lives.
pub(crate) struct Conn {
    pub(crate) name: usize,
    pub(crate) stream: stream::Conn<Stream>,
    ready: ReadyFlag,
    /// The selector saw the end of the stream: read until there.
    ended: AtomicBool,
}

impl Conn {
    pub(crate) fn new(name: usize, attr: &EndpointAttr, context: LinkContext) -> Self {
        let stream = stream::Conn::new(NAME, attr, context);
        Conn { name, stream, ready: ReadyFlag::default(), ended: AtomicBool::new(false) }
    }

    /// The selector named it; `ended`: as one whose stream has ended.
    pub(crate) fn note_event(&self, ended: bool) {
        if ended {
            self.ended.store(true, Ordering::Release);
        }
        self.ready.note();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

impl Source for Conn {
    #[inline]
    fn ready_flag(&self) -> &ReadyFlag {
        &self.ready
    }

    fn network(&self) -> Option<Network> {
        let (_, peer) = self.stream.addrs();
        peer.map(|peer| peer.ip().into())
    }
}
