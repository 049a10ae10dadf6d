//! Connections, as the engine and their endpoints share them.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use fabric_core::EndpointAttr;

use super::family::SocketFamily;
use crate::fair_table::Network;
use crate::fault::MaybeFaulty;
use crate::progress::{ReadyFlag, Source};
use crate::stream::{self, LinkContext, Protected};

/// What carries a connection's bytes.
pub(super) type SocketStream<F> = MaybeFaulty<Protected<<F as SocketFamily>::Transport>>;

/// Its socket.
pub(super) fn socket<F: SocketFamily>(stream: &SocketStream<F>) -> RawFd {
    stream.inner().inner().as_fd().as_raw_fd()
}

/// A connection. The engine has it as long as the socket is open, the endpoint as long as it lives.
pub(super) struct SocketConn<F: SocketFamily> {
    pub(super) name: usize,
    pub(super) stream: stream::Conn<SocketStream<F>>,
    ready: ReadyFlag,
    /// The selector saw the end of the stream: read until there.
    ended: AtomicBool,
    /// The selector does without its events. Changes in steps alone, one at a time.
    disarmed: AtomicBool,
}

impl<F: SocketFamily> SocketConn<F> {
    pub(super) fn new(name: usize, attr: &EndpointAttr, context: LinkContext) -> Self {
        let stream = stream::Conn::new(F::NAME, attr, context);
        let (ready, ended, disarmed) = Default::default();
        SocketConn { name, stream, ready, ended, disarmed }
    }

    /// Whether the selector does without its events.
    #[inline]
    pub(super) fn is_disarmed(&self) -> bool {
        self.disarmed.load(Ordering::Relaxed)
    }

    pub(super) fn set_disarmed(&self, disarmed: bool) {
        self.disarmed.store(disarmed, Ordering::Relaxed);
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
