//! Letting peers in, several at a time: one that does not finish its set-up holds up nobody else.
//!
//! Those that are not in yet belong to the listener, and every future that accepts goes on with all of them: so it does
//! not matter whether the one that began with a peer is polled again, dropped or forgotten.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use fabric_util::sync::Mutex;

use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::listener::{ListenerInner, NextRequest, Open};
use crate::wakers::Wakers;

/// So many come in at a time; the others wait at the listener.
const MOST: usize = 64;

/// A peer that is being let in.
type Settling = Pin<Box<dyn Future<Output = Result<Connection>> + Send>>;

/// The futures that accept at a listener, and the peers that are on their way in.
#[derive(Default)]
pub(crate) struct Acceptors(Mutex<State>);

#[derive(Default)]
struct State {
    /// By name; `None` while it is polled.
    settling: HashMap<u64, Option<Settling>>,
    /// Those that are to be polled, first woken first.
    ready: Vec<u64>,
    asleep: HashMap<u64, Waker>,
    named: u64,
}

impl State {
    fn name(&mut self) -> u64 {
        self.named += 1;
        self.named
    }

    fn wake_all(&mut self, wakers: &mut Wakers) {
        wakers.wake(self.asleep.drain().map(|(_, waker)| waker));
    }
}

/// The waker of a peer that is on its way in.
struct Progress {
    acceptors: Arc<Acceptors>,
    name: u64,
}

impl Wake for Progress {
    fn wake(self: Arc<Self>) {
        let mut wakers = Wakers::new();
        let mut state = self.acceptors.0.lock();
        if !state.ready.contains(&self.name) {
            state.ready.push(self.name);
        }
        // Whichever comes first goes on with it; one of them may be held and not polled.
        state.wake_all(&mut wakers);
    }
}

impl Acceptors {
    /// All that are on their way in.
    pub(crate) fn take_all(&self) -> Vec<Settling> {
        let mut state = self.0.lock();
        state.settling.drain().filter_map(|(_, one)| one).collect()
    }

    fn is_full(&self) -> bool {
        self.0.lock().settling.len() >= MOST
    }

    /// Begins with one.
    fn begin(self: &Arc<Self>, one: Settling) -> Option<Result<Connection>> {
        let mut state = self.0.lock();
        let name = state.name();
        state.settling.insert(name, None);
        drop(state);
        self.poll_one(name, one)
    }

    /// Goes on with those that can go on, until one is done.
    fn poll_ready(self: &Arc<Self>) -> Option<Result<Connection>> {
        while let Some((name, one)) = self.next_ready() {
            if let Some(done) = self.poll_one(name, one) {
                return Some(done);
            }
        }
        None
    }

    fn next_ready(&self) -> Option<(u64, Settling)> {
        let mut state = self.0.lock();
        let State { settling, ready, .. } = &mut *state;
        ready.retain(|name| settling.contains_key(name));
        // One that is being polled is looked at again by the one that polls it.
        let is_here = |name: &u64| matches!(settling.get(name), Some(Some(_)));
        let index = ready.iter().position(is_here)?;
        let name = ready.remove(index);
        Some((name, settling.get_mut(&name)?.take()?))
    }

    fn poll_one(self: &Arc<Self>, name: u64, mut one: Settling) -> Option<Result<Connection>> {
        let waker = Waker::from(Arc::new(Progress { acceptors: self.clone(), name }));
        let polled = one.as_mut().poll(&mut Context::from_waker(&waker));
        let mut wakers = Wakers::new();
        let mut state = self.0.lock();
        match polled {
            Poll::Ready(done) => {
                if state.settling.len() >= MOST {
                    state.wake_all(&mut wakers);
                }
                state.settling.remove(&name);
                drop(state);
                Some(done)
            }
            Poll::Pending => {
                if let Some(place) = state.settling.get_mut(&name) {
                    *place = Some(one);
                }
                None
            }
        }
    }

    fn sleep(&self, name: u64, waker: &Waker) {
        let fresh = waker.clone();
        let mut wakers = Wakers::new();
        wakers.discard(self.0.lock().asleep.insert(name, fresh));
    }
}

/// The next connection that stands.
pub(crate) struct Accepting {
    name: u64,
    listener: Arc<ListenerInner>,
    next: NextRequest,
}

impl Accepting {
    pub(crate) fn new(listener: &Arc<ListenerInner>) -> Self {
        let name = listener.acceptors.0.lock().name();
        Accepting { name, listener: listener.clone(), next: NextRequest::new(listener) }
    }

    /// What `accept` gives, if this is it. Who cannot be let in is passed over.
    fn outcome(&self, done: Result<Connection>) -> Option<Result<Connection>> {
        match done {
            Err(error) if !is_everybodys(&error) => {
                self.listener.node.lines.tell(format_args!("a peer is not let in: {error}"));
                None
            }
            done => Some(done),
        }
    }

    fn poll_settling(&self) -> Option<Result<Connection>> {
        let acceptors = &self.listener.acceptors;
        while let Some(done) = acceptors.poll_ready() {
            if let Some(outcome) = self.outcome(done) {
                return Some(outcome);
            }
        }
        None
    }

    /// Begins with those who ask; `Pending` when nobody does, or enough are under way.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Poll<Result<Connection>> {
        let acceptors = self.listener.acceptors.clone();
        while !acceptors.is_full() {
            let request = std::task::ready!(Pin::new(&mut self.next).poll(cx))?;
            self.next = NextRequest::new(&self.listener);
            if let Some(done) = acceptors.begin(Box::pin(request.accept()))
                && let Some(outcome) = self.outcome(done)
            {
                return Poll::Ready(outcome);
            }
            // It may have been woken while it was polled.
            if let Some(outcome) = self.poll_settling() {
                return Poll::Ready(outcome);
            }
        }
        // Others may go on in its place.
        self.next = NextRequest::new(&self.listener);
        Poll::Pending
    }
}

impl Future for Accepting {
    type Output = Result<Connection>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // First: what can go on from now on is said.
        this.listener.acceptors.sleep(this.name, cx.waker());
        if let Some(outcome) = this.poll_settling() {
            return Poll::Ready(outcome);
        }
        this.poll_requests(cx)
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        let mut wakers = Wakers::new();
        let mut state = self.listener.acceptors.0.lock();
        wakers.discard(state.asleep.remove(&self.name));
        if !state.ready.is_empty() {
            // What this one was woken for is for the others.
            state.wake_all(&mut wakers);
        }
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
/// let conn = incoming.try_next().await?.expect("it goes on until nobody can be let in any more");
/// assert_eq!(client.await.unwrap()?.local_addr(), conn.peer_addr());
/// # Ok(()) }
/// ```
#[must_use = "nobody is let in until it is polled"]
pub struct Incoming {
    /// None after an error.
    next: Option<Accepting>,
    listener: Arc<ListenerInner>,
    // Declared last: those that are on their way in are let go after the one that waits for them.
    _open: Arc<Open>,
}

impl Incoming {
    pub(crate) fn new(listener: &Arc<ListenerInner>, open: &Arc<Open>) -> Self {
        let next = Some(Accepting::new(listener));
        Incoming { next, listener: listener.clone(), _open: open.clone() }
    }

    /// The address of the listener, with the real port.
    ///
    /// ```
    /// let listener = fabric_async::block_on(fabric_async::Listener::bind("127.0.0.1:0"))?;
    /// assert_eq!(listener.incoming().local_addr(), listener.local_addr());
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }
}

impl futures_core::Stream for Incoming {
    type Item = Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(next) = &mut self.next else { return Poll::Ready(None) };
        let item = std::task::ready!(Pin::new(next).poll(cx));
        self.next = item.is_ok().then(|| Accepting::new(&self.listener));
        Poll::Ready(Some(item))
    }
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Incoming({})", self.local_addr())
    }
}

/// Whether nobody at all can be let in.
fn is_everybodys(error: &Error) -> bool {
    use fabric::Error as E;
    matches!(error, Error::Fabric(E::DeviceLost | E::InvalidState(_) | E::Internal(_)))
}
