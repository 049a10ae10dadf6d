//! Messages and notifications, as they arrive.
//!
//! Receives are posted ahead, with buffers of the pool, and what arrives waits in the connection's inbox. So a future that
//! is dropped while it waits loses nothing: it only gives up its place in line.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::conn::Conn;
use crate::conn_state::{ConnState, Inbox, Message, Notification};
use crate::error::Result;
use crate::following::poll_following;
use crate::receives::{InboxOwner, missing, post_missing, refill};
use crate::timers::Timer;
use crate::wait_queue::{WaitQueue, Waiter};

/// What can arrive.
pub(crate) trait Inbound: Sized {
    fn queue(conn_state: &ConnState) -> &Arc<WaitQueue>;
    fn take(inbox: &mut Inbox) -> Option<Self>;
}

impl Inbound for Message {
    fn queue(conn_state: &ConnState) -> &Arc<WaitQueue> {
        &conn_state.receivers
    }

    fn take(inbox: &mut Inbox) -> Option<Self> {
        inbox.messages.pop_front()
    }
}

impl Inbound for Notification {
    fn queue(conn_state: &ConnState) -> &Arc<WaitQueue> {
        &conn_state.watchers
    }

    fn take(inbox: &mut Inbox) -> Option<Self> {
        inbox.notifications.pop_front()
    }
}

/// The next message: see [`Connection::recv`](crate::Connection::recv).
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// let next = peer.recv();
/// conn.send(conn.node().pool().alloc_from(b"hello")?).await?;
/// assert_eq!(*next.await?, *b"hello");
/// # Ok(()) });
/// ```
#[must_use = "nothing is received until it is awaited"]
pub struct Receive(RecvFuture<Conn, Message>);

/// The next notification: see [`Connection::notified`](crate::Connection::notified).
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// # let remote = conn.request_lease(64, std::time::Duration::from_secs(30)).await?;
/// let next = peer.notified();
/// conn.write_notify(conn.alloc(8)?, remote.at(0), 3).await?;
/// assert_eq!(next.await?.immediate, 3);
/// # Ok(()) });
/// ```
#[must_use = "nothing is received until it is awaited"]
pub struct Notified(RecvFuture<Conn, Notification>);

/// The notifications, one after the other, as a [`Stream`](futures_core::Stream): see
/// [`Connection::notifications`](crate::Connection::notifications).
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// use futures_util::StreamExt;
///
/// # doc::pair(async |conn, peer| {
/// # let remote = conn.request_lease(64, std::time::Duration::from_secs(30)).await?;
/// let mut notifications = peer.notifications();
/// conn.write_notify(conn.alloc(8)?, remote.at(0), 3).await?;
/// conn.close();
/// assert_eq!(notifications.next().await.expect("one came")?.immediate, 3);
/// assert!(notifications.next().await.expect("the end is reported, once").is_err());
/// assert!(notifications.next().await.is_none());
/// # Ok(()) });
/// ```
#[must_use = "nothing is received until it is polled"]
#[derive(Debug)]
pub struct Notifications {
    /// `None`: the end was said.
    next: Option<Notified>,
}

/// Waits for the next of what arrives at a connection, or a datagram endpoint.
pub(crate) struct RecvFuture<O: InboxOwner, A: Inbound> {
    pub(crate) owner: Arc<O>,
    waiter: Waiter,
    asleep: bool,
    /// Where memory was missing.
    timer: Option<Timer>,
    what: std::marker::PhantomData<fn() -> A>,
}

impl<O: InboxOwner, A: Inbound> RecvFuture<O, A> {
    pub(crate) fn new(owner: &Arc<O>) -> Self {
        let (owner, waiter) = (owner.clone(), Waiter::default());
        RecvFuture { owner, waiter, asleep: false, timer: None, what: std::marker::PhantomData }
    }

    #[inline]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<A>> {
        let RecvFuture { owner, waiter, asleep, timer, .. } = self;
        let owner = &**owner;
        let (node, conn_state) = (owner.node(), &**owner.state());
        let queue = A::queue(conn_state);
        let mut wants_memory = false;
        let mut attempt = |is_turn: bool| {
            if let Some(refusal) = node.driver.refusal() {
                return Some(Err(refusal));
            }
            if !is_turn {
                return None;
            }
            let mut inbox = conn_state.inbox();
            let found = A::take(&mut inbox);
            let dry = inbox.posted <= owner.settings().receives / 2;
            let next = if found.is_some() { missing(owner, &mut inbox) } else { None };
            drop(inbox);
            if let Some(found) = found {
                // Room for the next one. That there is no memory for it is reported when nothing is left to arrive.
                let _ = post_missing(owner, next);
                return Some(Ok(found));
            }
            if !dry {
                return None;
            }
            let filled = refill(owner);
            if !owner.is_alive() {
                let mut inbox = conn_state.inbox();
                if inbox.posted == 0 {
                    // What has come since the first look goes before the end.
                    let found = A::take(&mut inbox);
                    drop(inbox);
                    return Some(found.ok_or_else(|| owner.over()));
                }
            }
            match filled {
                Ok(()) | Err(crate::Error::Disconnected(_)) => None,
                Err(crate::Error::PoolExhausted { .. }) => {
                    wants_memory = true;
                    None
                }
                Err(error) => Some(Err(error)),
            }
        };
        let look = |waker: Option<&_>| queue.look(waiter, waker, &mut attempt);
        let waited = node.driver.wait(asleep, cx, look, || node.watch());
        if wants_memory && waited.is_pending() {
            // Every buffer is in use; this looks again soon, as memory may come back anywhere.
            let soon = std::time::Instant::now() + std::time::Duration::from_millis(1);
            timer.get_or_insert_with(|| node.reactor.timer()).wake_at(soon, cx.waker());
        }
        waited
    }
}

impl<O: InboxOwner, A: Inbound> Drop for RecvFuture<O, A> {
    fn drop(&mut self) {
        self.owner.node().driver.awake(&mut self.asleep);
        A::queue(self.owner.state()).leave(&mut self.waiter);
    }
}

impl Receive {
    pub(crate) fn new(conn: &Arc<Conn>) -> Self {
        Receive(RecvFuture::new(conn))
    }
}

impl Notified {
    pub(crate) fn new(conn: &Arc<Conn>) -> Self {
        Notified(RecvFuture::new(conn))
    }
}

impl Future for Receive {
    type Output = Result<Message>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx)
    }
}

impl Future for Notified {
    type Output = Result<Notification>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx)
    }
}

impl Notifications {
    pub(crate) fn new(conn: &Arc<Conn>) -> Self {
        Notifications { next: Some(Notified::new(conn)) }
    }
}

impl futures_core::Stream for Notifications {
    type Item = Result<Notification>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        poll_following(&mut self.next, cx, |last| Notified::new(&last.0.owner))
    }
}

impl std::fmt::Debug for Receive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receive")
    }
}

impl std::fmt::Debug for Notified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Notified")
    }
}
