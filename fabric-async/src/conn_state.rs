//! What completions and events reach of a connection, or of a datagram endpoint: everything but the endpoint itself.
//!
//! Operations in flight point here. They must not keep the endpoint itself alive, or a connection with a receive
//! posted, which is to say every one, would never be dropped.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use fabric::{Completion, DatagramAddress, DisconnectReason, OpKind, Status};
use fabric_util::sync::{Mutex, MutexGuard};

use crate::buffer::Buffer;
use crate::timers::Timers;
use crate::wait_queue::WaitQueue;
use crate::wakers::Wakers;

/// A message that arrived: a buffer of its length, and the sender's 32 bits if it gave some.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// conn.send(conn.node().pool().alloc_from(b"hello")?).await?;
/// let message = peer.recv().await?;
/// assert_eq!(&message[1..], b"ello"); // it is its bytes
/// peer.send(message.buffer).await?; // and a buffer, which can go back
/// assert_eq!(*conn.recv().await?, *b"hello");
/// # Ok(()) });
/// ```
#[derive(Debug)]
pub struct Message {
    /// The bytes, as long as the message.
    pub buffer: Buffer,
    /// What [`Connection::send_with`](crate::Connection::send_with) was given.
    pub immediate: Option<u32>,
}

impl std::ops::Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl From<Message> for Buffer {
    fn from(message: Message) -> Buffer {
        message.buffer
    }
}

/// A datagram that arrived: a buffer of its length, and where it came from.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/datagrams.rs")); }
/// # doc::datagrams(async |client, server| {
/// let to_server = client.resolve(&server.address()).await?;
/// client.inject_to(&to_server, b"question").await?;
/// let datagram = server.recv_from().await?;
/// assert_eq!(*datagram, *b"question"); // it is its bytes
/// assert_eq!((datagram.source, datagram.immediate), (Some(client.address()), None));
/// # Ok(()) });
/// ```
#[derive(Debug)]
pub struct Datagram {
    /// The bytes, as long as the datagram.
    pub buffer: Buffer,
    /// The sender's address, as the network has it; `None` where a device does not say. It proves nothing.
    pub source: Option<DatagramAddress>,
    /// The sender's 32 bits, if it gave some.
    pub immediate: Option<u32>,
}

impl std::ops::Deref for Datagram {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl From<Datagram> for Buffer {
    fn from(datagram: Datagram) -> Buffer {
        datagram.buffer
    }
}

/// The peer has written into memory of this side, with [`Connection::write_notify`](crate::Connection::write_notify);
/// its bytes are visible.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// use fabric_async::Notification;
///
/// let remote = conn.request_lease(4096, std::time::Duration::from_secs(30)).await?;
/// conn.write_notify(conn.alloc(100)?, remote.at(0), 42).await?;
/// assert_eq!(peer.notified().await?, Notification { immediate: 42, len: 100 });
/// # Ok(()) });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The writer's 32 bits.
    pub immediate: u32,
    /// Bytes written.
    pub len: usize,
}

/// What completions leave for the connection's owner.
pub(crate) struct ConnState {
    /// Futures that wait for room in the send queue.
    pub(crate) room: Arc<WaitQueue>,
    inbox: Mutex<Inbox>,
    /// Futures that wait for a message, and for a notification.
    pub(crate) receivers: Arc<WaitQueue>,
    pub(crate) watchers: Arc<WaitQueue>,
    life: Mutex<Life>,
    /// It is of a datagram endpoint.
    is_of_datagrams: bool,
}

#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) messages: VecDeque<Message>,
    pub(crate) notifications: VecDeque<Notification>,
    pub(crate) datagrams: VecDeque<Datagram>,
    /// Datagrams that were longer than their receives.
    pub(crate) too_long: u64,
    /// Receives that are posted.
    pub(crate) posted: usize,
    /// Places of the table that receives had, for the next ones.
    pub(crate) idle: Vec<u32>,
}

/// How far the connection is, by its events.
#[derive(Default)]
struct Life {
    outcome: Option<fabric::Result<Box<[u8]>>>,
    end: Option<DisconnectReason>,
    /// Of futures that wait for either, each by its name.
    wakers: Vec<(u64, Waker)>,
    /// Futures that ever waited.
    named: u64,
}

/// A future that waits for how a connection began or ended. Dropped, it waits no more.
pub(crate) struct LifeWait<'a> {
    of: &'a ConnState,
    name: Option<u64>,
}

impl LifeWait<'_> {
    /// The outcome of connecting, once; until then the waker is called at changes.
    fn poll_outcome(&mut self, cx: &Context<'_>) -> Poll<fabric::Result<Box<[u8]>>> {
        self.poll(cx, |life| match (life.outcome.take(), life.end) {
            (Some(outcome), _) => Some(outcome),
            (None, Some(_)) => Some(Err(fabric::Error::NotConnected)),
            (None, None) => None,
        })
    }

    /// Why it ended; until then the waker is called at changes.
    pub(crate) fn poll_end(&mut self, cx: &Context<'_>) -> Poll<DisconnectReason> {
        self.poll(cx, |life| life.end)
    }

    fn poll<T>(&mut self, cx: &Context<'_>, look: impl FnOnce(&mut Life) -> Option<T>) -> Poll<T> {
        let fresh = cx.waker().clone();
        let mut old = Wakers::new();
        let mut life = self.of.life();
        if let Some(found) = look(&mut life) {
            drop(life);
            old.discard([fresh]);
            return Poll::Ready(found);
        }
        let known = life.wakers.iter_mut().find(|(name, _)| Some(*name) == self.name);
        match known {
            Some((_, waker)) => old.discard([std::mem::replace(waker, fresh)]),
            None => {
                life.named += 1;
                let name = life.named;
                life.wakers.push((name, fresh));
                self.name = Some(name);
            }
        }
        drop(life);
        Poll::Pending
    }
}

impl Drop for LifeWait<'_> {
    fn drop(&mut self) {
        let Some(name) = self.name else { return };
        let mut old = Wakers::new();
        let mut life = self.of.life();
        if let Some(at) = life.wakers.iter().position(|(known, _)| *known == name) {
            old.discard([life.wakers.swap_remove(at).1]);
        }
        drop(life);
    }
}

impl ConnState {
    pub(crate) fn new(timers: &Arc<Timers>) -> Arc<Self> {
        Arc::new(Self::of_any(timers))
    }

    /// That of a datagram endpoint.
    pub(crate) fn of_datagrams(timers: &Arc<Timers>) -> Arc<Self> {
        Arc::new(ConnState { is_of_datagrams: true, ..Self::of_any(timers) })
    }

    fn of_any(timers: &Arc<Timers>) -> Self {
        let queue = || WaitQueue::new(timers);
        let (room, receivers, watchers) = (queue(), queue(), queue());
        let (inbox, life) = (Mutex::default(), Mutex::default());
        ConnState { room, inbox, receivers, watchers, life, is_of_datagrams: false }
    }

    #[inline]
    pub(crate) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock()
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock()
    }

    /// The receive at a place of the table has ended; adds wakers to call. What is not a message comes back.
    #[inline]
    pub(crate) fn arrived(
        &self,
        completion: &Completion,
        place: u32,
        mut buffer: Buffer,
        wakers: &mut Wakers,
    ) -> Option<Buffer> {
        let mut inbox = self.inbox();
        inbox.posted -= 1;
        inbox.idle.push(place);
        match completion.kind {
            _ if !completion.is_ok() => {
                // The connection has ended. The last receive reports it: until then messages may come that arrived before.
                inbox.too_long += u64::from(completion.status == Status::TooLong);
                let last = inbox.posted == 0;
                drop(inbox);
                if last {
                    self.wake_all(wakers);
                } else if self.is_of_datagrams {
                    // This one alone is lost, and its receive is to be replaced.
                    self.receivers.wake_first(wakers);
                }
                Some(buffer)
            }
            OpKind::RecvWrite => {
                let (immediate, len) = (completion.immediate.unwrap_or(0), completion.len);
                inbox.notifications.push_back(Notification { immediate, len });
                let last = inbox.posted == 0;
                drop(inbox);
                self.watchers.wake_first(wakers);
                if last {
                    // Perhaps no future waits for notifications; those that wait for messages need receives too.
                    self.receivers.wake_first(wakers);
                }
                Some(buffer)
            }
            _ => {
                buffer.truncate(completion.len);
                let Completion { immediate, source, .. } = *completion;
                if self.is_of_datagrams {
                    inbox.datagrams.push_back(Datagram { buffer, source, immediate });
                } else {
                    inbox.messages.push_back(Message { buffer, immediate });
                }
                if inbox.posted == 0 && !self.is_of_datagrams {
                    // If the connection has ended, nothing else says so to those that wait for notifications.
                    self.watchers.wake_first(wakers);
                }
                // A future that joins the queue locks the inbox afterwards.
                if !self.receivers.is_empty() {
                    self.receivers.wake_first(wakers);
                }
                None
            }
        }
    }

    /// How connecting ended; adds wakers to call.
    pub(crate) fn connected(&self, outcome: fabric::Result<Box<[u8]>>, wakers: &mut Wakers) {
        let mut life = self.life();
        life.outcome = Some(outcome);
        wakers.wake(life.wakers.drain(..).map(|(_, waker)| waker));
    }

    /// The connection has ended; adds wakers to call.
    pub(crate) fn ended(&self, reason: DisconnectReason, wakers: &mut Wakers) {
        let mut life = self.life();
        life.end.get_or_insert(reason);
        wakers.wake(life.wakers.drain(..).map(|(_, waker)| waker));
        drop(life);
        self.wake_all(wakers);
    }

    /// Adds the wakers of all futures that wait for something of this connection.
    pub(crate) fn wake_all(&self, wakers: &mut Wakers) {
        for queue in [&self.room, &self.receivers, &self.watchers] {
            queue.wake_all(wakers);
        }
    }

    /// Why it ended, if it has.
    pub(crate) fn end(&self) -> Option<DisconnectReason> {
        self.life().end
    }

    /// A future's wait for how the connection begins or ends.
    pub(crate) fn wait(&self) -> LifeWait<'_> {
        LifeWait { of: self, name: None }
    }

    /// Waits for the outcome of connecting or accepting.
    pub(crate) async fn outcome(&self) -> crate::Result<Box<[u8]>> {
        let mut wait = self.wait();
        Ok(poll_fn(|cx| wait.poll_outcome(cx)).await?)
    }

    /// Waits for the end; why that was.
    pub(crate) async fn closed(&self) -> DisconnectReason {
        let mut wait = self.wait();
        poll_fn(|cx| wait.poll_end(cx)).await
    }
}

#[cfg(test)]
mod tests {
    use fabric::EndpointId;

    use super::*;
    use crate::wait_queue::Waiter;
    use crate::wakers::tests::Count;

    /// A connection's end may be heard of while its last receive is on its way here: who waits looks once more then.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no sockets")]
    fn the_last_receive_wakes_those_who_wait_for_the_end() {
        let node = crate::Node::builder().build().unwrap();
        for kind in [OpKind::Recv, OpKind::RecvWrite] {
            for of in [
                |state: &ConnState| state.receivers.clone(),
                |state: &ConnState| state.watchers.clone(),
            ] {
                let state = ConnState::new(&node.inner.reactor.timers);
                state.inbox().posted = 1;
                state.ended(DisconnectReason::Remote, &mut Wakers::new());
                let (queue, mut waiter, count) =
                    (of(&state), Waiter::default(), Arc::new(Count::default()));
                assert!(queue.is_turn(&mut waiter, Some(&count.clone().into())));
                let done = Completion::new(0, EndpointId(1), kind, Status::Ok);
                let _ = state.arrived(&done, 0, node.pool().alloc(8).unwrap(), &mut Wakers::new());
                assert_eq!(count.get(), 1, "{kind:?}");
                queue.leave(&mut waiter);
            }
        }
    }
}
