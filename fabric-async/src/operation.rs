//! Futures of operations: posted at the first poll, done when the completion is there.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use fabric::{AtomicOp, AtomicScalar, Completion, Op, RemoteSlice};

use crate::cargo::{Cargo, Payload, Piece};
use crate::error::{Error, Failed, Result};
use crate::lease::At;
use crate::line::Ticket;
use crate::link::Link;

/// What an operation does, and what it makes of its end.
trait Work: Unpin {
    type Output;

    /// Where it goes, if it is one-sided.
    fn at(&self) -> Option<&At>;

    /// What is wrong already.
    fn check(&self, link: &Link, cargo: &Cargo) -> Result<()>;

    /// The operation as the fabric's.
    fn with_op<R>(&self, cargo: &Cargo, post: impl FnOnce(Op<'_>) -> R) -> R;

    fn finish(cargo: Cargo) -> Self::Output;

    fn fail(error: Error, cargo: Cargo) -> Self::Output;
}

/// An operation on its way: waits for room, is posted, waits for its completion.
struct Journey<W: Work> {
    link: Arc<Link>,
    stage: Stage<W>,
    /// The place in line for room in the send queue.
    ticket: Ticket,
    asleep: bool,
    fence: bool,
}

enum Stage<W: Work> {
    Ready(W, Cargo),
    /// Its cargo is at this place of the table.
    Flying(u32),
    /// It could not even be begun.
    Failed(Option<W::Output>),
    Over,
}

impl<W: Work> Journey<W> {
    fn new(link: &Arc<Link>, stage: Stage<W>) -> Self {
        let (link, ticket) = (link.clone(), Ticket::default());
        Journey { link, stage, ticket, asleep: false, fence: false }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<W::Output>
    where
        W::Output: Unpin,
    {
        ready!(self.poll_posted(cx));
        let Stage::Flying(number) = self.stage else {
            return self.failed().map_or(Poll::Pending, Poll::Ready);
        };
        let Journey { link, asleep, .. } = self;
        let driver = &link.node.driver;
        let look = |waker: Option<&_>| driver.take(number, waker);
        let (completion, cargo) = ready!(driver.wait(asleep, cx, look, || link.node.watch()));
        self.stage = Stage::Over;
        Poll::Ready(Self::ended(&self.link, &completion, cargo))
    }

    /// Posts it, or sees that it cannot be; waits in line for that while the queue is full.
    #[inline]
    fn poll_posted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !matches!(self.stage, Stage::Ready(..)) {
            return Poll::Ready(());
        }
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Ready(work, cargo) => self.poll_post(work, cargo, cx),
            _ => Poll::Ready(()),
        }
    }

    /// What became of it, if it is over by now; nobody waits for it.
    #[cfg(feature = "tokio")]
    fn try_take(&mut self) -> Option<W::Output> {
        let Stage::Flying(number) = self.stage else { return self.failed() };
        let driver = &self.link.node.driver;
        let (completion, cargo) = driver.try_take(number)?;
        driver.awake(&mut self.asleep);
        self.stage = Stage::Over;
        Some(Self::ended(&self.link, &completion, cargo))
    }

    /// What it carries is not asked for.
    #[cfg(feature = "tokio")]
    fn unburden(&self) {
        if let Stage::Flying(number) = self.stage {
            self.link.node.driver.unburden(number);
        }
    }

    fn failed(&mut self) -> Option<W::Output> {
        let Stage::Failed(output) = &mut self.stage else { return None };
        output.take()
    }

    fn ended(link: &Link, completion: &Completion, cargo: Cargo) -> W::Output {
        if completion.is_ok() {
            return W::finish(cargo);
        }
        // The event comes before the completions that it causes; it may not have been taken yet.
        link.node.take_events();
        W::fail(Error::of(completion.status, link.lane.end()), cargo)
    }

    #[inline]
    fn poll_post(&mut self, work: W, cargo: Cargo, cx: &mut Context<'_>) -> Poll<()> {
        let Journey { link, ticket, asleep, fence, .. } = self;
        let (link, fence) = (&*link, *fence);
        if let Err(error) = work.check(link, &cargo) {
            link.lane.room.leave(ticket);
            self.stage = Stage::Failed(Some(W::fail(error, cargo)));
            return Poll::Ready(());
        }
        let mut load = Some(cargo);
        let post = |load: &mut Option<Cargo>| {
            link.post(load, work.at(), |cargo, context, endpoint| {
                work.with_op(cargo, |op| {
                    let op = op.context(context);
                    endpoint.post(&if fence { op.fence() } else { op })
                })
            })
        };
        let line = &link.lane.room;
        let mut posted = if line.may_pass(ticket) { post(&mut load) } else { Ok(None) };
        if let Ok(None) = posted {
            let look = |waker: Option<&_>| {
                if let Some(waker) = waker {
                    line.join(ticket, waker);
                }
                let may_come = link.is_alive() && link.node.driver.refusal().is_none();
                if !line.may_pass(ticket) && may_come {
                    return None;
                }
                post(&mut load).transpose()
            };
            let node = &link.node;
            match node.driver.wait(asleep, cx, look, || node.watch()) {
                Poll::Ready(done) => posted = done.map(Some),
                Poll::Pending => {
                    self.stage = Stage::Ready(work, load.unwrap_or_default());
                    return Poll::Pending;
                }
            }
        }
        line.leave(ticket);
        self.stage = match posted {
            Ok(number) => Stage::Flying(number.unwrap_or(u32::MAX)),
            Err(error) => Stage::Failed(Some(W::fail(error, load.unwrap_or_default()))),
        };
        Poll::Ready(())
    }
}

impl<W: Work> Drop for Journey<W> {
    fn drop(&mut self) {
        let driver = &self.link.node.driver;
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Ready(_, cargo) => cargo.land(),
            Stage::Flying(number) => driver.abandon(number),
            Stage::Failed(_) | Stage::Over => {}
        }
        driver.awake(&mut self.asleep);
        self.link.lane.room.leave(&mut self.ticket);
    }
}

// ----------------------------------------------------------------------------------------- transfers

/// A send, write or read: a future that gives the buffer back, or fails with the buffer in the error.
///
/// - Nothing happens until it is polled. Operations of a connection are posted in the order of their first polls, and
///   take effect in that order, as [`fabric::contract`] says.
/// - While the connection's send queue is full it waits its turn.
/// - Dropping it before it was posted: nothing happens. Dropping it later: the operation finishes or not, and its buffer
///   returns to the pool when it has.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// # let remote = conn.request_remote(64, std::time::Duration::from_secs(30)).await?;
/// // Both are under way at once.
/// let buffer = conn.node().pool().alloc_from(b"hello")?;
/// let (write, send) = (conn.write(buffer, remote.at(0)), conn.send(conn.alloc(8)?));
/// let (write, send) = futures_util::future::join(write, send).await;
/// assert_eq!((&*write?, send?.len()), (&b"hello"[..], 8)); // both buffers are ours again
/// # assert_eq!(peer.recv().await?.len(), 8);
/// # Ok(()) });
/// ```
#[must_use = "nothing is sent until it is awaited"]
pub struct Operation<P: Payload> {
    journey: Journey<Transfer<P>>,
}

pub(crate) enum What {
    Send { immediate: Option<u32> },
    Write { to: At, immediate: Option<u32>, delivered: bool },
    Read { from: At },
}

struct Transfer<P> {
    what: What,
    payload: PhantomData<fn() -> P>,
}

impl<P: Payload> Operation<P> {
    #[inline]
    pub(crate) fn new(link: &Arc<Link>, payload: P, what: What) -> Self {
        let stage = match payload.load() {
            Ok(cargo) => Stage::Ready(Transfer { what, payload: PhantomData }, cargo),
            Err((buffer, error)) => Stage::Failed(Some(Err(Failed { error, buffer }))),
        };
        Operation { journey: Journey::new(link, stage) }
    }

    /// Posts it, as the first poll does, and does not wait for its end; its buffer goes back to the pool at that.
    #[cfg(feature = "tokio")]
    pub(crate) fn poll_posted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.journey.poll_posted(cx));
        self.journey.unburden();
        Poll::Ready(())
    }

    /// What became of it, if it is over by now. Who asks is not told later.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_take(&mut self) -> Option<Result<P::Back, Failed<P::Back>>> {
        self.journey.try_take()
    }

    /// Has it start only when every earlier read and atomic operation of the connection has finished.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// use futures_util::future::join;
    ///
    /// let remote = conn.request_remote(8, std::time::Duration::from_secs(30)).await?;
    /// let read = conn.read(conn.alloc(8)?, remote.at(0));
    /// let write = conn.write(conn.node().pool().alloc_from(&[1; 8])?, remote.at(0)).fence();
    /// let (read, write) = join(read, write).await;
    /// write?;
    /// assert_eq!(*read?, [0; 8]); // what was there before the write
    /// # Ok(()) });
    /// ```
    pub fn fence(mut self) -> Self {
        self.journey.fence = true;
        self
    }

    /// Of a write: done only when the target's processor, and every other peer of it, can see the bytes. Other operations
    /// refuse it, with an error of the fabric (`Unsupported`).
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_remote(64, std::time::Duration::from_secs(30)).await?;
    /// conn.write(conn.node().pool().alloc_from(b"hello")?, remote.at(0)).delivered().await?;
    /// assert_eq!(peer.lent(remote.id()).unwrap().get::<[u8; 5]>(0)?, *b"hello");
    /// // A send is done when the peer has it anyway.
    /// assert!(conn.send(conn.alloc(8)?).delivered().await.is_err());
    /// # Ok(()) });
    /// ```
    pub fn delivered(mut self) -> Self {
        match &mut self.journey.stage {
            Stage::Ready(Transfer { what: What::Write { delivered, .. }, .. }, _) => {
                *delivered = true
            }
            Stage::Ready(..) => {
                let over = std::mem::replace(&mut self.journey.stage, Stage::Over);
                if let Stage::Ready(_, cargo) = over {
                    let text = "only writes can be awaited until they are delivered";
                    let error = fabric::Error::unsupported("delivered", "fabric", text).into();
                    let failed = Failed { error, buffer: P::unload(cargo) };
                    self.journey.stage = Stage::Failed(Some(Err(failed)));
                }
            }
            _ => {}
        }
        self
    }
}

impl<P: Payload> Work for Transfer<P> {
    type Output = Result<P::Back, Failed<P::Back>>;

    fn at(&self) -> Option<&At> {
        match &self.what {
            What::Send { .. } => None,
            What::Write { to: at, .. } | What::Read { from: at } => Some(at),
        }
    }

    #[inline]
    fn check(&self, link: &Link, cargo: &Cargo) -> Result<()> {
        match &self.what {
            What::Send { .. } => link.check_message(cargo.len()),
            What::Write { to: at, .. } | What::Read { from: at } => at.check(),
        }
    }

    #[inline]
    fn with_op<R>(&self, cargo: &Cargo, post: impl FnOnce(Op<'_>) -> R) -> R {
        cargo.with_slices(|slices| {
            post(match &self.what {
                What::Send { immediate: None } => Op::send(slices),
                What::Send { immediate: Some(value) } => Op::send(slices).immediate(*value),
                What::Write { to, immediate, delivered } => {
                    let mut op = Op::write(slices, to.slice());
                    if let Some(value) = immediate {
                        op = op.immediate(*value);
                    }
                    if *delivered { op.delivery_complete() } else { op }
                }
                What::Read { from } => Op::read(slices, from.slice()),
            })
        })
    }

    fn finish(cargo: Cargo) -> Self::Output {
        Ok(P::unload(cargo))
    }

    fn fail(error: Error, cargo: Cargo) -> Self::Output {
        Err(Failed { error, buffer: P::unload(cargo) })
    }
}

impl<P: Payload> Future for Operation<P> {
    type Output = Result<P::Back, Failed<P::Back>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.journey.poll(cx)
    }
}

impl<P: Payload> fmt::Debug for Operation<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Operation")
    }
}

// ------------------------------------------------------------------------------------------- atomics

/// An atomic operation: a future of the old value.
///
/// Dropping it does not take the operation back: it is executed once, or not at all.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// let remote = conn.request_remote(8, std::time::Duration::from_secs(30)).await?;
/// let adds: Vec<_> = (0..4).map(|_| conn.fetch_add(remote.at(0), 1)).collect();
/// for (before, add) in adds.into_iter().enumerate() {
///     assert_eq!(add.await?, before as u64);
/// }
/// # Ok(()) });
/// ```
#[must_use = "nothing is sent until it is awaited"]
pub struct Atomic<T: AtomicScalar + Unpin> {
    journey: Journey<Fetch<T>>,
}

#[derive(Clone, Copy)]
pub(crate) enum Change<T> {
    Apply(AtomicOp, T),
    CompareSwap { expected: T, new: T },
}

struct Fetch<T> {
    change: Change<T>,
    at: At,
}

impl<T: AtomicScalar + Unpin> Atomic<T> {
    pub(crate) fn new(link: &Arc<Link>, at: At, change: Change<T>) -> Self {
        // The old value arrives in memory of the pool.
        let stage = match link.node.pool.alloc(size_of::<u64>()) {
            Ok(word) => {
                let piece = Piece::new(word, 0, size_of::<T>());
                Stage::Ready(Fetch { change, at }, Cargo::One(piece))
            }
            Err(error) => Stage::Failed(Some(Err(error))),
        };
        Atomic { journey: Journey::new(link, stage) }
    }

    /// Has it start only when every earlier read and atomic operation of the connection has finished.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// use futures_util::future::join;
    ///
    /// let remote = conn.request_remote(8, std::time::Duration::from_secs(30)).await?;
    /// let read = conn.read(conn.alloc(8)?, remote.at(0));
    /// let (read, old) = join(read, conn.fetch_add(remote.at(0), 1).fence()).await;
    /// assert_eq!((&*read?, old?), (&[0; 8][..], 0)); // it was read before it was added to
    /// # Ok(()) });
    /// ```
    pub fn fence(mut self) -> Self {
        self.journey.fence = true;
        self
    }
}

impl<T: AtomicScalar + Unpin> Work for Fetch<T> {
    type Output = Result<T>;

    fn at(&self) -> Option<&At> {
        Some(&self.at)
    }

    fn check(&self, _link: &Link, _cargo: &Cargo) -> Result<()> {
        self.at.check()
    }

    #[inline]
    fn with_op<R>(&self, cargo: &Cargo, post: impl FnOnce(Op<'_>) -> R) -> R {
        let at: RemoteSlice = self.at.slice();
        let word = match cargo {
            Cargo::One(piece) => piece.slice(),
            _ => None,
        };
        // There always is a word.
        post(match (self.change, word) {
            (Change::Apply(op, value), Some(old)) => Op::fetch_atomic(op, value, old, at),
            (Change::Apply(op, value), None) => Op::atomic(op, value, at),
            (Change::CompareSwap { expected, new }, Some(old)) => {
                Op::fetch_compare_swap(expected, new, old, at)
            }
            (Change::CompareSwap { expected, new }, None) => Op::compare_swap(expected, new, at),
        })
    }

    fn finish(cargo: Cargo) -> Result<T> {
        let word = <crate::Buffer as Payload>::unload(cargo);
        let mut bits = [0; 8];
        let size = size_of::<T>().min(word.len());
        // The low bytes come first on little-endian processors, last on others.
        if cfg!(target_endian = "little") {
            bits[..size].copy_from_slice(&word[..size]);
        } else {
            bits[8 - size..].copy_from_slice(&word[..size]);
        }
        Ok(T::from_bits64(u64::from_ne_bytes(bits)))
    }

    fn fail(error: Error, cargo: Cargo) -> Result<T> {
        cargo.land();
        Err(error)
    }
}

impl<T: AtomicScalar + Unpin> Future for Atomic<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        self.journey.poll(cx)
    }
}

impl<T: AtomicScalar + Unpin> fmt::Debug for Atomic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Atomic")
    }
}
