//! Completion queues.
//!
//! A queue owns the completing ends of the in-flight rings of the endpoints bound to it: a completion names
//! its operation by token, the ring gives back what the operation holds on to, and that is let go when the
//! application takes the completion. Completions that were reaped before the application asked for them (to find
//! room for a post, or when an endpoint is dropped) wait in the `stash`. Room for all of them is reserved
//! when an endpoint is bound, so nothing here overflows and nothing is counted per post.

mod members;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric_core::{Armed, Completion, CqAttr, Error, RawCompletion, Result, Side, Status, Token};
use fabric_util::inflight::Consumer;
use fabric_util::sync::{Mutex, MutexGuard, assert_none_held};
use fabric_util::wakeup::wait_readable;

use crate::dispatch::{AnyCq, CqDispatch};
use crate::domain::{DomainInner, QueuePlace};
use crate::process::ParentOnly;
use crate::registry::EndpointShared;
use crate::slot::{Fate, Keep, Released, Report, Slot};
use members::{Members, Tenant};

/// A completion that waits for the application.
struct Stashed {
    completion: Completion,
    keep: Keep,
    /// Whom to credit; `None` once its endpoint is gone.
    owner: Option<Token>,
}

struct CqState {
    members: Members,
    reserved: usize,
    stash: VecDeque<Stashed>,
    raw: Box<[RawCompletion]>,
}

pub(crate) struct CqInner {
    state: Mutex<CqState>,
    ops: ParentOnly<AnyCq>,
    capacity: usize,
    pub(crate) domain: Arc<DomainInner>,
    /// Free when the provider's queue is gone.
    _place: QueuePlace,
}

const BATCH: usize = 64;

/// A queue's state, for `Debug`.
struct Snapshot {
    reserved: usize,
    stashed: usize,
    strays: u64,
}

impl CqState {
    fn snapshot(&self) -> Snapshot {
        let (reserved, stashed) = (self.reserved, self.stash.len());
        Snapshot { reserved, stashed, strays: self.members.strays }
    }

    /// Hands the stash out, oldest first.
    #[cold]
    fn take_stashed(&mut self, out: &mut [Completion], released: &mut Released) -> usize {
        let count = out.len().min(self.stash.len());
        for (out, stashed) in out.iter_mut().zip(self.stash.drain(..count)) {
            *out = stashed.completion;
            stashed.keep.release(released);
            let Some(owner) = stashed.owner else {
                // The room was kept for this completion alone.
                self.reserved -= 1;
                continue;
            };
            if let Some(consumer) = self.members.tenant(owner).and_then(|t| t.side(owner.side())) {
                consumer.credit(1);
            }
        }
        count
    }

    /// Moves everything the provider has into the stash.
    fn reap(&mut self, ops: &AnyCq, released: &mut Released) {
        let CqState { members, stash, raw, .. } = self;
        loop {
            let got = ops.poll(raw).min(raw.len());
            for raw in &raw[..got] {
                members.resolve(raw, released, |completion, keep| {
                    stash.push_back(Stashed { completion, keep, owner: Some(raw.token) });
                    None
                });
            }
            if got < raw.len() {
                break;
            }
        }
    }
}

impl CqInner {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, CqState> {
        self.state.lock()
    }

    /// Mostly nothing has ended, and a waiting poller notices the end of its operation the sooner the less that costs:
    /// this finds it out, and `deliver` does the rest.
    #[inline]
    fn poll(&self, out: &mut [Completion]) -> usize {
        let mut state = self.lock();
        if !state.stash.is_empty() {
            return self.deliver(state, 0, 0, out);
        }
        let want = out.len().min(state.raw.len());
        if want == 0 {
            return 0;
        }
        match self.ops.poll(&mut state.raw[..want]).min(want) {
            0 => 0,
            got => self.deliver(state, got, want, out),
        }
    }

    /// Hands out the stash and then the provider's completions: the first `got`, of `want` that were asked for, are
    /// there already.
    #[inline(never)]
    fn deliver(
        &self,
        mut guard: MutexGuard<'_, CqState>,
        mut got: usize,
        mut want: usize,
        out: &mut [Completion],
    ) -> usize {
        let mut released = Released::new();
        let state = &mut *guard;
        let mut taken = 0;
        if !state.stash.is_empty() {
            taken = state.take_stashed(out, &mut released);
        }
        let CqState { members, stash, raw, .. } = state;
        loop {
            for raw in &raw[..got] {
                members.resolve(raw, &mut released, |completion, keep| {
                    let Some(place) = out.get_mut(taken) else {
                        // One completion of a faulty provider may report several operations.
                        stash.push_back(Stashed { completion, keep, owner: Some(raw.token) });
                        return None;
                    };
                    *place = completion;
                    taken += 1;
                    Some(keep)
                });
            }
            if got < want || taken == out.len() {
                break;
            }
            want = (out.len() - taken).min(raw.len());
            got = self.ops.poll(&mut raw[..want]).min(want);
        }
        drop(guard);
        drop(released);
        taken
    }

    /// Makes room if that can be done without waiting for another poller.
    pub(crate) fn try_reap(&self) {
        let mut released = Released::new();
        let Some(mut state) = self.state.try_lock() else { return };
        state.reap(&self.ops, &mut released);
        drop(state);
    }

    pub(crate) fn reap(&self) {
        let mut released = Released::new();
        let mut state = self.lock();
        state.reap(&self.ops, &mut released);
        let waits = !state.stash.is_empty();
        drop(state);
        if waits {
            self.ops.wake();
        }
    }

    fn snapshot(&self) -> Snapshot {
        self.lock().snapshot()
    }

    pub(crate) fn ops(&self) -> &AnyCq {
        &self.ops
    }

    /// Binds an endpoint's side or sides, reserving room for all they can have in flight.
    pub(crate) fn bind(
        &self,
        shared: &Arc<EndpointShared>,
        send: Option<(Consumer<Slot>, usize)>,
        recv: Option<(Consumer<Slot>, usize)>,
    ) -> Result<Token> {
        const OP: &str = "make endpoint";
        let depth = |side: &Option<(Consumer<Slot>, usize)>| side.as_ref().map_or(0, |s| s.1);
        let room = depth(&send).saturating_add(depth(&recv));
        let mut state = self.lock();
        let free = self.capacity - state.reserved;
        if room > free {
            let capacity = self.capacity;
            return Err(Error::invalid(
                OP,
                format!(
                    "the depths ask for room for {room} completions, the queue has {free} of {capacity} left"
                ),
            ));
        }
        let (send, recv) = (send.map(|side| side.0), recv.map(|side| side.0));
        let token = state.members.add(Tenant { shared: shared.clone(), send, recv, room })?;
        state.reserved += room;
        Ok(token)
    }

    /// Unbinds an endpoint: what finished keeps its real status, what it still had in flight becomes `Canceled`, or has no
    /// completion if it may still be executed. Their regions meet their fate now; says how many leaked. Room stays reserved for the completions that are left.
    pub(crate) fn unbind(&self, token: Token, fate: Fate) -> u64 {
        let (mut released, mut leaked) = (Released::new(), 0);
        let mut guard = self.lock();
        let state = &mut *guard;
        state.reap(&self.ops, &mut released);
        let Some(mut tenant) = state.members.remove(token) else { return 0 };
        let shared = tenant.shared.clone();
        let mut left = 0;
        let is_owner = |owner: &Token| {
            (owner.member(), owner.generation()) == (token.member(), token.generation())
        };
        for stashed in state.stash.iter_mut().filter(|s| s.owner.as_ref().is_some_and(is_owner)) {
            stashed.owner = None;
            std::mem::take(&mut stashed.keep).release(&mut released);
            left += 1;
        }
        for side in [Side::Send, Side::Recv] {
            let Some(consumer) = tenant.side(side) else { continue };
            while let Some((_, slot)) = consumer.pop() {
                match fate {
                    Fate::Free => slot.keep.release(&mut released),
                    Fate::Leak => {
                        // A completion would say that nothing touches its memory any more.
                        leaked += slot.keep.leak();
                        continue;
                    }
                }
                if slot.report == Report::Never {
                    continue;
                }
                let completion =
                    Completion::new(slot.context, shared.id, slot.kind, Status::Canceled);
                shared.counters.side(side).ends.errors.add(1);
                state.stash.push_back(Stashed { completion, keep: Keep::default(), owner: None });
                left += 1;
            }
        }
        state.reserved = state.reserved - tenant.room + left;
        drop(guard);
        drop(released);
        if left > 0 {
            self.ops.wake();
        }
        leaked
    }

    /// How many operations of the side the provider still works on.
    pub(crate) fn outstanding(&self, token: Token, side: Side) -> usize {
        let mut state = self.lock();
        state.members.tenant(token).and_then(|tenant| tenant.side(side)).map_or(0, |c| c.len())
    }

    pub(crate) fn arm(&self, to_drive: bool) -> Result<Armed> {
        // Under the lock, so that no other thread reaps between the look at the stash and the arming.
        let state = self.lock();
        if !state.stash.is_empty() {
            return Ok(Armed::Ready);
        }
        let armed = if to_drive { self.ops.arm_to_drive()? } else { self.ops.arm()? };
        if armed == Armed::Ready {
            // It may have cleared what was set for another sleeper, and the caller need not take everything.
            self.ops.wake();
        }
        Ok(armed)
    }
}

/// Where operations end: completions of the endpoints bound to it.
///
/// - It never overflows: binding an endpoint reserves its depths.
/// - Polling also drives the domain's progress; but progress does not depend on it.
/// - To sleep, [`wait`](CompletionQueue::wait); or, in an event loop, [`arm`](CompletionQueue::arm) and sleep on
///   the descriptor ([`AsFd`]) only if it says [`Armed::Waiting`].
/// - Any number of threads may use it; each completion goes to one of them. Clones are the same queue.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (a, b) = doc::pair()?;
/// # let (domain, queue, endpoint) = (&a.domain, &a.queue, &a.endpoint);
/// # let (peer, timeout) = (&b, doc::TIMEOUT);
/// use fabric::{Access, Completion, OpKind};
///
/// let inbox = domain.alloc(64, Access::LOCAL_WRITE)?;
/// endpoint.recv(&inbox, 1)?;
/// # peer.endpoint.inject(b"hello", 0)?;
///
/// // Many at a time, for the least cost. `wait` sleeps, `poll` does not.
/// let mut completions = [Completion::default(); 64];
/// let count = queue.wait(&mut completions, timeout)?;
/// for completion in &completions[..count] {
///     // `endpoint` says whose operation it is, `context` which one.
///     assert_eq!((completion.endpoint, completion.context), (endpoint.id(), 1));
///     match completion.kind {
///         OpKind::Recv if completion.is_ok() => println!("{} bytes", completion.len),
///         _ => println!("{completion:?}"),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct CompletionQueue {
    pub(crate) inner: Arc<CqInner>,
}

impl CompletionQueue {
    pub(crate) fn new(domain: &Arc<DomainInner>, attr: &CqAttr) -> Result<Self> {
        const OP: &str = "make completion queue";
        domain.ops.check(OP)?;
        attr.check(&domain.info)?;
        let capacity = attr.capacity;
        let place = domain.place_queue()?;
        let ops = ParentOnly::new(domain.ops.completion_queue(attr)?.into());
        let state = CqState {
            members: Members::new(domain.hub.clone()),
            reserved: 0,
            stash: VecDeque::new(),
            raw: vec![RawCompletion::default(); BATCH.min(capacity)].into(),
        };
        let (state, domain) = (Mutex::new(state), domain.clone());
        let inner = CqInner { state, ops, capacity, domain, _place: place };
        Ok(CompletionQueue { inner: Arc::new(inner) })
    }

    /// Completions it has room for.
    pub fn capacity(&self) -> usize {
        self.inner.capacity
    }

    /// Room that no endpoint has reserved.
    pub fn room(&self) -> usize {
        self.inner.capacity - self.inner.lock().reserved
    }

    /// Takes completions, at most as many as `out` holds, and says how many. Never blocks; none is no error.
    ///
    /// Regions of a completed operation are let go here.
    ///
    /// # Errors
    /// `InvalidState` in a forked child.
    #[inline]
    pub fn poll(&self, out: &mut [Completion]) -> Result<usize> {
        self.inner.ops.check("poll")?;
        Ok(self.inner.poll(out))
    }

    /// Takes one completion, if there is one.
    ///
    /// # Errors
    /// As [`poll`](CompletionQueue::poll).
    pub fn poll_one(&self) -> Result<Option<Completion>> {
        let mut one = [Completion::default()];
        Ok((self.poll(&mut one)? == 1).then_some(one[0]))
    }

    /// Takes at least one completion, sleeping for it as long as `timeout` (`None`: for ever).
    ///
    /// # Errors
    /// `TimedOut` if none came; `InvalidState` in a forked child.
    pub fn wait(&self, out: &mut [Completion], timeout: Option<Duration>) -> Result<usize> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        if out.is_empty() {
            return Err(Error::invalid("wait", "there is no room for a completion in `out`"));
        }
        loop {
            let taken = self.poll(out)?;
            if taken > 0 {
                return Ok(taken);
            }
            if self.arm()? == Armed::Ready {
                continue;
            }
            let woken = wait_readable(self.as_fd(), deadline)
                .map_err(|cause| Error::system("wait", self.inner.domain.info.provider, cause))?;
            if !woken {
                let taken = self.poll(out)?;
                return if taken > 0 { Ok(taken) } else { Err(Error::TimedOut(None)) };
            }
        }
    }

    /// Takes one completion, sleeping for it as long as `timeout` (`None`: for ever).
    ///
    /// # Errors
    /// As [`wait`](CompletionQueue::wait).
    pub fn wait_one(&self, timeout: Option<Duration>) -> Result<Completion> {
        let mut one = [Completion::default()];
        self.wait(&mut one, timeout)?;
        Ok(one[0])
    }

    /// Prepares to sleep on the descriptor, which `arm` also clears.
    ///
    /// After [`Armed::Waiting`] the descriptor becomes readable no later than the next completion; one-shot,
    /// and spurious readiness is possible. On [`Armed::Ready`] poll first. It also says "I stop polling": the
    /// provider's thread takes over at once.
    ///
    /// # Errors
    /// `InvalidState` in a forked child; `Internal` if the provider's system call fails.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (a, b) = doc::pair()?;
    /// # let (domain, queue, endpoint) = (&a.domain, &a.queue, &a.endpoint);
    /// # let (peer, timeout) = (&b, doc::TIMEOUT);
    /// use std::os::fd::AsFd;
    /// use fabric::Armed;
    ///
    /// # let inbox = domain.alloc(64, fabric::Access::LOCAL_WRITE)?;
    /// # endpoint.recv(&inbox, 1)?;
    /// # peer.endpoint.inject(b"hello", 0)?;
    /// # fn sleep_until_readable(_: std::os::fd::BorrowedFd<'_>) { std::thread::yield_now() }
    /// let completion = loop {
    ///     if let Some(completion) = queue.poll_one()? {
    ///         break completion;
    ///     }
    ///     if queue.arm()? == Armed::Waiting {
    ///         sleep_until_readable(queue.as_fd()); // epoll, mio, tokio's AsyncFd
    ///     }
    /// };
    /// # assert!(completion.is_ok());
    /// # Ok(()) }
    /// ```
    pub fn arm(&self) -> Result<Armed> {
        self.inner.ops.check("arm")?;
        self.inner.arm(false)
    }

    /// As [`arm`](CompletionQueue::arm), for an event loop that polls as soon as the descriptor is readable.
    ///
    /// The provider's thread stays away, and the descriptor becomes readable whenever the provider has something to do,
    /// which the poll then does: one switch between threads less for what arrives. Progress does not depend on it: if
    /// no thread polls for some milliseconds, the thread takes over. A process that is often a target of one-sided
    /// operations and seldom of messages rather arms by [`arm`](CompletionQueue::arm), and is woken for messages alone.
    ///
    /// # Errors
    /// As [`arm`](CompletionQueue::arm).
    pub fn arm_to_drive(&self) -> Result<Armed> {
        self.inner.ops.check("arm")?;
        self.inner.arm(true)
    }
}

impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.ops.fd()
    }
}

impl std::fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What writes is the user's, so no lock is held.
        let snapshot = self.inner.snapshot();
        assert_none_held("a formatter is called");
        f.debug_struct("CompletionQueue")
            .field("capacity", &self.inner.capacity)
            .field("reserved", &snapshot.reserved)
            .field("stashed", &snapshot.stashed)
            .field("strays", &snapshot.strays)
            .finish()
    }
}
