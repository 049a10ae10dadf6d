//! The futures that accept connections.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::following::poll_following;
use crate::peer_log::PeerEvent;
use crate::request::{ListenerInner, NextRequest, Open, Request};
use crate::timers::Timer;

/// The next connection that is established.
pub(crate) struct AcceptFuture {
    name: u64,
    listener: Arc<ListenerInner>,
    next: NextRequest,
    /// When one that takes its time makes room.
    timer: Timer,
}

impl AcceptFuture {
    pub(crate) fn new(listener: &Arc<ListenerInner>) -> Self {
        let name = listener.acceptors.join();
        let (next, timer) = (NextRequest::admitted(listener), listener.node.reactor.timer());
        AcceptFuture { name, listener: listener.clone(), next, timer }
    }

    /// The result of `accept`, if this is one. A peer that cannot be accepted is skipped.
    fn outcome(&self, done: Result<Connection>) -> Option<Result<Connection>> {
        match done {
            Err(error) if !is_fatal(&error) => {
                self.listener.node.peer_log.warn(
                    PeerEvent::Admission,
                    None,
                    format_args!("a peer was not accepted: {error}"),
                );
                None
            }
            done => Some(done),
        }
    }

    fn poll_pending(&self) -> Option<Result<Connection>> {
        let acceptors = &self.listener.acceptors;
        while let Some(done) = acceptors.poll_ready() {
            if let Some(outcome) = self.outcome(done) {
                return Some(outcome);
            }
        }
        None
    }

    /// Starts to accept waiting requests; `Pending` if there are none, or enough are being accepted.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Poll<Result<Connection>> {
        let acceptors = self.listener.acceptors.clone();
        while let Poll::Ready(request) = Pin::new(&mut self.next).poll(cx) {
            let request = request?;
            self.next = NextRequest::admitted(&self.listener);
            if let Some(outcome) = self.begin(request) {
                return Poll::Ready(outcome);
            }
            // The new one may have been woken while it was polled.
            if let Some(outcome) = self.poll_pending() {
                return Poll::Ready(outcome);
            }
        }
        if acceptors.is_full() {
            // Leaves the wait queue, so that other futures get the requests.
            self.next = NextRequest::admitted(&self.listener);
            if self.listener.has_waiting()
                && let Some(late) = acceptors.next_late()
            {
                self.timer.wake_at(late, cx.waker());
            }
        }
        Poll::Pending
    }

    /// Starts to accept a request.
    fn begin(&self, request: Request) -> Option<Result<Connection>> {
        let from = request.peer_addr().ip();
        let accept = Box::pin(request.accept());
        let (displaced, done) = self.listener.acceptors.begin(from, accept);
        if displaced {
            self.listener.node.peer_log.warn(
                PeerEvent::Admission,
                None,
                format_args!("a peer that had not finished its set-up made room for another"),
            );
        }
        done.and_then(|done| self.outcome(done))
    }
}

impl Future for AcceptFuture {
    type Output = Result<Connection>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // Registered first, so that no wake-up is lost.
        this.listener.acceptors.sleep(this.name, cx.waker());
        if let Some(outcome) = this.poll_pending() {
            return Poll::Ready(outcome);
        }
        this.poll_requests(cx)
    }
}

impl Drop for AcceptFuture {
    fn drop(&mut self) {
        self.listener.acceptors.leave(self.name);
    }
}

/// The connections of a listener, one after the other: see [`Listener::incoming`](crate::Listener::incoming).
///
/// ```
/// # use fabric_async::{Connection, Incoming, Listener};
/// use futures_util::TryStreamExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fabric_async::Error> {
/// let mut incoming: Incoming = Listener::bind("127.0.0.1:0").await?.incoming();
/// let client = tokio::spawn(Connection::connect(incoming.local_addr()));
/// let conn = incoming.try_next().await?.expect("it ends only after a fatal error");
/// assert_eq!(client.await.unwrap()?.local_addr(), conn.peer_addr());
/// # Ok(()) }
/// ```
#[must_use = "connections are accepted only while it is polled"]
pub struct Incoming {
    /// None after an error.
    next: Option<AcceptFuture>,
    listener: Arc<ListenerInner>,
    // Declared last: pending accepts are dropped after the future that waits for them.
    _open: Arc<Open>,
}

impl Incoming {
    pub(crate) fn new(listener: &Arc<ListenerInner>, open: &Arc<Open>) -> Self {
        let next = Some(AcceptFuture::new(listener));
        Incoming { next, listener: listener.clone(), _open: open.clone() }
    }

    /// The address of the listener, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }
}

impl futures_core::Stream for Incoming {
    type Item = Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        poll_following(&mut self.next, cx, |last| AcceptFuture::new(&last.listener))
    }
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Incoming({})", self.local_addr())
    }
}

/// Whether no further connection can be accepted.
fn is_fatal(error: &Error) -> bool {
    use fabric::Error as E;
    matches!(error, Error::Fabric(E::DeviceLost | E::InvalidState(_) | E::Internal(_)))
}
