//! Completion queues: the handle, and how an application waits with it. The inside is in `cq/inner.rs`.

mod bound;
mod inner;
mod receives;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric_core::{Armed, Completion, CqAttr, Error, Result};
use fabric_util::sync::assert_none_held;
use fabric_util::wakeup::wait_readable;

use crate::domain::DomainInner;
pub(crate) use inner::CqInner;

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
        Ok(CompletionQueue { inner: Arc::new(CqInner::new(domain, attr)?) })
    }

    /// Completions it has room for.
    pub fn capacity(&self) -> usize {
        self.inner.capacity
    }

    /// Room that no endpoint has reserved.
    pub fn room(&self) -> usize {
        self.inner.room()
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
    /// Where this is the domain's only queue, the thread that sleeps serves what wakes it, as with
    /// [`arm_manual`](CompletionQueue::arm_manual), as long as that is mostly a completion.
    ///
    /// # Errors
    /// `TimedOut` if none came; `InvalidArgument` if `out` is empty; `InvalidState` in a forked child.
    pub fn wait(&self, out: &mut [Completion], timeout: Option<Duration>) -> Result<usize> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        if out.is_empty() {
            return Err(Error::invalid("wait", "there is no room for a completion in `out`"));
        }
        let mut woke = false;
        loop {
            let taken = self.poll(out)?;
            if woke {
                self.inner.note_wake(taken > 0);
            }
            if taken > 0 {
                return Ok(taken);
            }
            woke = false;
            if self.inner.arm(self.inner.wakes_for_all())? == Armed::Ready {
                continue;
            }
            let woken = wait_readable(self.as_fd(), deadline)
                .map_err(|cause| Error::system("wait", self.inner.domain.info.provider, cause))?;
            if !woken {
                let taken = self.poll(out)?;
                return if taken > 0 { Ok(taken) } else { Err(Error::TimedOut(None)) };
            }
            woke = true;
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

    /// As [`arm`](CompletionQueue::arm), for manual progress: an event loop polls as soon as the descriptor is readable.
    ///
    /// The provider's thread stays away, and the descriptor becomes readable whenever the provider has something to do,
    /// which the poll then does: one switch between threads less for what arrives. Progress does not depend on it: if
    /// no thread polls for some milliseconds, the thread takes over. Use [`arm`](CompletionQueue::arm) in a process that is mainly a
    /// target of one-sided operations: it is then woken for messages alone.
    ///
    /// # Errors
    /// As [`arm`](CompletionQueue::arm).
    pub fn arm_manual(&self) -> Result<Armed> {
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
            .field("unknown_tokens", &snapshot.unknown_tokens)
            .finish()
    }
}
