//! Datagrams, as they arrive.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::inner::DatagramInner;
use crate::conn_state::{ConnState, Datagram, Inbox};
use crate::error::Result;
use crate::following::poll_following;
use crate::recv::{Inbound, RecvFuture};
use crate::wait_queue::WaitQueue;

impl Inbound for Datagram {
    fn queue(conn_state: &ConnState) -> &Arc<WaitQueue> {
        &conn_state.receivers
    }

    fn take(inbox: &mut Inbox) -> Option<Self> {
        inbox.datagrams.pop_front()
    }
}

/// The next datagram: see [`DatagramEndpoint::recv_from`](super::DatagramEndpoint::recv_from). Dropping it loses none.
#[must_use = "nothing is received until it is awaited"]
pub struct RecvDatagram(RecvFuture<DatagramInner, Datagram>);

impl RecvDatagram {
    pub(super) fn new(inner: &Arc<DatagramInner>) -> Self {
        RecvDatagram(RecvFuture::new(inner))
    }
}

impl Future for RecvDatagram {
    type Output = Result<Datagram>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx)
    }
}

impl fmt::Debug for RecvDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecvDatagram")
    }
}

/// Datagrams one after the other, as a [`Stream`](futures_core::Stream): see
/// [`DatagramEndpoint::datagrams`](super::DatagramEndpoint::datagrams).
#[must_use = "nothing is received until it is polled"]
#[derive(Debug)]
pub struct DatagramStream {
    /// `None`: it failed, as the last item said.
    next: Option<RecvDatagram>,
}

impl DatagramStream {
    pub(super) fn new(inner: &Arc<DatagramInner>) -> Self {
        DatagramStream { next: Some(RecvDatagram::new(inner)) }
    }
}

impl futures_core::Stream for DatagramStream {
    type Item = Result<Datagram>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        poll_following(&mut self.next, cx, |last| RecvDatagram::new(&last.0.owner))
    }
}
