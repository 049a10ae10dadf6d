//! How every operation goes: posted at the first poll of its future, done when the completion is there.

use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use fabric::{Completion, Op};

use crate::conn::Conn;
use crate::error::{Error, Result};
use crate::lease::RemoteTarget;
use crate::op_buffers::{OpBuffers, SliceVec};
use crate::op_slab::Phase;
use crate::wait_queue::Waiter;

/// What an operation does, and what it makes of its end.
pub(crate) trait PostOp: Unpin {
    type Output;

    /// Where it goes, if it is one-sided.
    fn target(&self) -> Option<&RemoteTarget>;

    /// What is wrong already.
    fn validate(&self, conn: &Conn, buffers: &OpBuffers) -> Result<()>;

    /// The operation as the fabric's.
    fn build<'a, 's>(&'a self, buffers: &'a OpBuffers, scratch: &'s mut SliceVec<'a>) -> Op<'s>
    where
        'a: 's;

    fn finish(buffers: OpBuffers) -> Self::Output;

    fn fail(error: Error, buffers: OpBuffers) -> Self::Output;
}

/// An operation on its way: waits for room, is posted, waits for its completion.
pub(crate) struct OpFuture<W: PostOp> {
    conn: Arc<Conn>,
    pub(crate) stage: OpState<W>,
    /// The place in line for room in the send queue.
    waiter: Waiter,
    asleep: bool,
    pub(crate) fence: bool,
}

pub(crate) enum OpState<W: PostOp> {
    Ready(W, OpBuffers),
    /// Its buffers are in this slot of the slab.
    InFlight(u32),
    /// It could not even be begun.
    Failed(Option<W::Output>),
    Over,
}

impl<W: PostOp> OpFuture<W> {
    pub(crate) fn new(conn: &Arc<Conn>, stage: OpState<W>) -> Self {
        let (conn, waiter) = (conn.clone(), Waiter::default());
        OpFuture { conn, stage, waiter, asleep: false, fence: false }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<W::Output>
    where
        W::Output: Unpin,
    {
        let mut fresh = matches!(self.stage, OpState::Ready(..));
        ready!(self.poll_posted(cx));
        let OpState::InFlight(number) = self.stage else {
            return self.failed().map_or(Poll::Pending, Poll::Ready);
        };
        let OpFuture { conn, asleep, .. } = self;
        let driver = &conn.node.driver;
        let look = |waker: Option<&_>| match std::mem::take(&mut fresh) {
            true if waker.is_none() => None, // posted this moment
            _ => driver.take(number, waker),
        };
        let Poll::Ready((completion, buffers)) =
            driver.wait(asleep, cx, look, || conn.node.watch())
        else {
            return self.poll_refused(number);
        };
        self.stage = OpState::Over;
        Poll::Ready(Self::ended(&self.conn, &completion, buffers))
    }

    /// In a child made by `fork` the completion never comes: that is the parent's. The child gets its copy back.
    fn poll_refused(&mut self, number: u32) -> Poll<W::Output> {
        let driver = &self.conn.node.driver;
        let Some(error) = driver.refusal() else { return Poll::Pending };
        let buffers = driver.reclaim_forked(number);
        self.stage = OpState::Over;
        Poll::Ready(W::fail(error, buffers))
    }

    /// Posts it, or fails; waits its turn for that while the send queue is full.
    #[inline]
    pub(crate) fn poll_posted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let OpFuture { conn, stage, waiter, asleep, fence } = self;
        let OpState::Ready(work, buffers) = stage else { return Poll::Ready(()) };
        let (driver, queue) = (&conn.node.driver, &conn.conn_state.room);
        let mut posted = match work.validate(conn, buffers) {
            Ok(()) if queue.is_turn(waiter, None) => try_post(conn, work, *fence, buffers),
            Ok(()) => Ok(None),
            Err(error) => Err(error),
        };
        if let Ok(None) = posted {
            let look = |waker: Option<&Waker>| {
                let is_turn = queue.is_turn(waiter, waker);
                // The post fails once the connection has ended.
                if !is_turn && conn.is_alive() && driver.refusal().is_none() {
                    return None;
                }
                try_post(conn, work, *fence, buffers).transpose()
            };
            posted = ready!(driver.wait(asleep, cx, look, || conn.node.watch())).map(Some);
        }
        queue.leave(waiter);
        *stage = match posted {
            Ok(number) => OpState::InFlight(number.unwrap_or(u32::MAX)),
            Err(error) => OpState::Failed(Some(W::fail(error, std::mem::take(buffers)))),
        };
        Poll::Ready(())
    }

    /// The outcome, if it has ended; registers no waker.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_take(&mut self) -> Option<W::Output> {
        let OpState::InFlight(number) = self.stage else { return self.failed() };
        let driver = &self.conn.node.driver;
        let (completion, buffers) = driver.try_take(number)?;
        driver.awake(&mut self.asleep);
        self.stage = OpState::Over;
        Some(Self::ended(&self.conn, &completion, buffers))
    }

    /// What it carries is not asked for.
    #[cfg(feature = "tokio")]
    pub(crate) fn detach(&self) {
        if let OpState::InFlight(number) = self.stage {
            self.conn.node.driver.detach(number);
        }
    }

    fn failed(&mut self) -> Option<W::Output> {
        let OpState::Failed(output) = &mut self.stage else { return None };
        output.take()
    }

    fn ended(conn: &Conn, completion: &Completion, buffers: OpBuffers) -> W::Output {
        if completion.is_ok() {
            return W::finish(buffers);
        }
        // The event comes before the completions that it causes; it may not have been taken yet.
        conn.node.router.take_events();
        W::fail(Error::of(completion.status, conn.conn_state.end()), buffers)
    }
}

/// Posts an operation whose buffers go to the slab; gives their slot. `None` while the send queue is full: then, and on
/// errors, the buffers are still where they were.
#[inline]
fn try_post<W: PostOp>(
    conn: &Conn,
    work: &W,
    fence: bool,
    buffers: &mut OpBuffers,
) -> Result<Option<u32>> {
    let slab = &conn.node.driver.slab;
    let number = slab.begin()?;
    let Some(mut slot) = slab.lock(number) else { return Ok(None) };
    // The lock is held over the post, so that the thread that takes the completion finds the slot filled.
    slot.buffers = std::mem::take(buffers);
    let posted = {
        let mut scratch = SliceVec::new();
        let op = work.build(&slot.buffers, &mut scratch).context(u64::from(number));
        conn.endpoint.post(&if fence { op.fence() } else { op })
    };
    let Err(error) = posted else {
        slot.phase = Phase::InFlight;
        slot.conn_state = Some(conn.conn_state.clone());
        slot.lease = work.target().and_then(|at| at.lease.clone());
        return Ok(Some(number));
    };
    *buffers = std::mem::take(&mut slot.buffers);
    drop(slot);
    slab.end(number);
    match error {
        fabric::Error::Again => Ok(None),
        fabric::Error::NotConnected => Err(conn.over()),
        other => Err(other.into()),
    }
}

impl<W: PostOp> Drop for OpFuture<W> {
    fn drop(&mut self) {
        let driver = &self.conn.node.driver;
        match std::mem::replace(&mut self.stage, OpState::Over) {
            OpState::Ready(_, buffers) => buffers.reclaim(),
            OpState::InFlight(number) => driver.abandon(number),
            OpState::Failed(_) | OpState::Over => {}
        }
        driver.awake(&mut self.asleep);
        self.conn.conn_state.room.leave(&mut self.waiter);
    }
}
