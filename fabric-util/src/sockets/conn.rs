//! Connections, as the engine and their endpoints share them.

use std::sync::atomic::{AtomicBool, Ordering};

use fabric_core::EndpointAttr;

use super::family::SocketFamily;
use crate::fair_table::Network;
use crate::fault::MaybeFaulty;
use crate::progress::{ReadyFlag, Source};
use crate::stream::{self, LinkContext, Protected};

/// What carries a connection's bytes.
pub(super) type SocketStream<F> = MaybeFaulty<Protected<<F as SocketFamily>::Transport>>;

/// A connection. The engine has it as long as the socket is open, the endpoint as long as it lives.
pub(super) struct SocketConn<F: SocketFamily> {
    pub(super) name: usize,
    pub(super) stream: stream::Conn<SocketStream<F>>,
    ready: ReadyFlag,
    /// The selector saw the end of the stream: read until there.
    ended: AtomicBool,
}

impl<F: SocketFamily> SocketConn<F> {
    pub(super) fn new(name: usize, attr: &EndpointAttr, context: LinkContext) -> Self {
        let stream = stream::Conn::new(F::NAME, attr, context);
        SocketConn { name, stream, ready: ReadyFlag::default(), ended: AtomicBool::new(false) }
    }

    /// The selector named it; `ended`: as one whose stream has ended.
    pub(super) fn note_event(&self, ended: bool) {
        if ended {
            self.ended.store(true, Ordering::Release);
        }
        self.ready.note();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

impl<F: SocketFamily> Source for SocketConn<F> {
    #[inline]
    fn ready_flag(&self) -> &ReadyFlag {
        &self.ready
    }

    fn network(&self) -> Option<Network> {
        let (_, peer) = self.stream.addrs();
        peer.map(|peer| peer.ip().into())
    }
}
