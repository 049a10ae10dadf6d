//! How every operation goes: posted at the first poll of its future, done when the completion is there.

use std::task::{Context, Poll, Waker, ready};

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::op_buffers::OpBuffers;
use crate::op_slab::Phase;
use crate::source::Source;

/// Where operations are posted, and wait for room to be: a connection, for one.
pub(crate) trait Port: Unpin {
    type Source: Source;
    /// A place in line for room.
    type Place: Default + Unpin;
    /// What names a posted operation, beside its slot.
    type Posted: Copy + Unpin;

    /// Whether operations are posted under the lock of their slot. No port may do so whose posts run user code, as loggers are.
    const POSTS_UNDER_LOCK: bool;

    fn driver(&self) -> &Driver<Self::Source>;

    /// Somebody is to watch the descriptor for the future that is being polled. Says whether that one arms it; else the
    /// future is to.
    fn watch(&self) -> bool;

    /// Whether it is this one's turn to be posted. With a waker it waits from then on, until it leaves. The caller holds no
    /// lock.
    fn is_turn(&self, place: &mut Self::Place, waker: Option<&Waker>) -> bool;

    /// Gives up the place; the next one then tries. The caller holds no lock.
    fn leave(&self, place: &mut Self::Place);

    /// False: posts fail at once, and so need no turn.
    fn is_alive(&self) -> bool;

    /// Why a post was refused, in other words. The caller holds no lock.
    fn explain(&self, error: Error) -> Error {
        error
    }

    /// The future of a posted operation was dropped. The caller holds no lock.
    fn on_dropped(&self, _posted: Self::Posted) {}
}

/// What ends an operation at a port.
pub(crate) type CompletionOf<E> = <<E as Port>::Source as Source>::Completion;
/// What an operation at a port keeps.
pub(crate) type KeepsOf<E> = <<E as Port>::Source as Source>::Keeps;

/// What an operation does, and what it makes of its end.
pub(crate) trait PostOp<E: Port>: Unpin {
    type Output;

    /// What is wrong already.
    fn validate(&self, port: &E, buffers: &OpBuffers) -> Result<()>;

    /// Posts it with this context. `None`: there is no room now. The caller may hold the lock of its slot.
    fn post(&self, port: &E, buffers: &OpBuffers, context: u64) -> Result<Option<E::Posted>>;

    /// What it keeps while it is under way.
    fn keeps(&self, port: &E) -> KeepsOf<E>;

    /// What comes of it.
    fn end(&self, port: &E, completion: &CompletionOf<E>, buffers: OpBuffers) -> Self::Output;

    fn fail(&self, error: Error, buffers: OpBuffers) -> Self::Output;
}

/// An operation on its way: waits for room, is posted, waits for its completion.
pub(crate) struct OpFuture<E: Port, W: PostOp<E>> {
    pub(crate) port: E,
    pub(crate) stage: OpState<E, W>,
    /// The place in line for room.
    place: E::Place,
    asleep: bool,
}

pub(crate) enum OpState<E: Port, W: PostOp<E>> {
    Ready(W, OpBuffers),
    /// Its buffers are in this slot of the slab.
    InFlight(W, u32, E::Posted),
    /// It could not even be begun.
    Failed(Option<W::Output>),
    Over,
}

impl<E: Port, W: PostOp<E>> OpFuture<E, W> {
    pub(crate) fn new(port: E, stage: OpState<E, W>) -> Self {
        OpFuture { port, stage, place: E::Place::default(), asleep: false }
    }

    /// What it is to do, until it is posted.
    pub(crate) fn work(&mut self) -> Option<&mut W> {
        match &mut self.stage {
            OpState::Ready(work, _) => Some(work),
            _ => None,
        }
    }

    /// Where it is in the slab, once it was posted.
    pub(crate) fn slot(&self) -> Option<u32> {
        match self.stage {
            OpState::InFlight(_, number, _) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<W::Output>
    where
        W::Output: Unpin,
    {
        let mut fresh = matches!(self.stage, OpState::Ready(..));
        ready!(self.poll_posted(cx));
        let OpState::InFlight(_, number, _) = self.stage else {
            return self.failed().map_or(Poll::Pending, Poll::Ready);
        };
        let OpFuture { port, asleep, .. } = self;
        let driver = port.driver();
        let look = |waker: Option<&_>| match std::mem::take(&mut fresh) {
            true if waker.is_none() => None, // posted this moment
            _ => driver.take(number, waker),
        };
        let Poll::Ready((completion, buffers)) = driver.wait(asleep, cx, look, || port.watch())
        else {
            return self.poll_refused(number);
        };
        self.ended(&completion, buffers).map_or(Poll::Pending, Poll::Ready)
    }

    /// In a child made by `fork` the completion never comes: that is the parent's. The child gets its copy back.
    fn poll_refused(&mut self, number: u32) -> Poll<W::Output> {
        let driver = self.port.driver();
        let Some(error) = driver.refusal() else { return Poll::Pending };
        let buffers = driver.reclaim_forked(number);
        match std::mem::replace(&mut self.stage, OpState::Over) {
            OpState::InFlight(work, ..) => Poll::Ready(work.fail(error, buffers)),
            _ => Poll::Pending,
        }
    }

    /// Posts it, or fails; waits its turn for that while there is no room.
    #[inline]
    pub(crate) fn poll_posted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let OpFuture { port, stage, place, asleep } = self;
        let OpState::Ready(work, buffers) = stage else { return Poll::Ready(()) };
        let driver = port.driver();
        let mut posted = match work.validate(port, buffers) {
            Ok(()) if port.is_turn(place, None) => try_post(port, work, buffers),
            Ok(()) => Ok(None),
            Err(error) => Err(error),
        };
        if let Ok(None) = posted {
            let look = |waker: Option<&Waker>| {
                let is_turn = port.is_turn(place, waker);
                if !is_turn && port.is_alive() && driver.refusal().is_none() {
                    return None;
                }
                try_post(port, work, buffers).transpose()
            };
            posted = ready!(driver.wait(asleep, cx, look, || port.watch())).map(Some);
        }
        port.leave(place);
        let over = std::mem::replace(stage, OpState::Over);
        if let OpState::Ready(work, buffers) = over {
            *stage = match posted {
                Ok(Some((number, posted))) => OpState::InFlight(work, number, posted),
                Ok(None) => return Poll::Pending, // it has waited for another outcome
                Err(error) => OpState::Failed(Some(work.fail(error, buffers))),
            };
        }
        Poll::Ready(())
    }

    /// The outcome, if it has ended; registers no waker.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_take(&mut self) -> Option<W::Output> {
        let OpState::InFlight(_, number, _) = self.stage else { return self.failed() };
        let driver = self.port.driver();
        let (completion, buffers) = driver.try_take(number)?;
        driver.awake(&mut self.asleep);
        self.ended(&completion, buffers)
    }

    /// What it carries is not asked for.
    #[cfg(feature = "tokio")]
    pub(crate) fn detach(&self) {
        if let OpState::InFlight(_, number, _) = self.stage {
            self.port.driver().detach(number);
        }
    }

    fn failed(&mut self) -> Option<W::Output> {
        let OpState::Failed(output) = &mut self.stage else { return None };
        output.take()
    }

    /// It has ended, once.
    fn ended(&mut self, completion: &CompletionOf<E>, buffers: OpBuffers) -> Option<W::Output> {
        match std::mem::replace(&mut self.stage, OpState::Over) {
            OpState::InFlight(work, ..) => Some(work.end(&self.port, completion, buffers)),
            _ => None,
        }
    }
}

/// Posts an operation whose buffers go to the slab; gives their slot. `None` while there is no room: then, and on errors, the
/// buffers are still where they were.
#[inline]
pub(crate) fn try_post<E: Port, W: PostOp<E>>(
    port: &E,
    work: &W,
    buffers: &mut OpBuffers,
) -> Result<Option<(u32, E::Posted)>> {
    let slab = &port.driver().slab;
    let number = slab.begin()?;
    let posted = match E::POSTS_UNDER_LOCK {
        true => post_under_lock(port, work, buffers, number),
        false => post_unlocked(port, work, buffers, number),
    };
    match posted {
        Ok(Some(posted)) => Ok(Some((number, posted))),
        none => {
            slab.end(number);
            none.map(|_| None).map_err(|error| port.explain(error))
        }
    }
}

#[inline]
fn post_under_lock<E: Port, W: PostOp<E>>(
    port: &E,
    work: &W,
    buffers: &mut OpBuffers,
    number: u32,
) -> Result<Option<E::Posted>> {
    let Some(mut slot) = port.driver().slab.lock(number) else { return Ok(None) };
    // The lock is held over the post, so that the thread that takes the completion finds the slot filled.
    slot.buffers = std::mem::take(buffers);
    let posted = work.post(port, &slot.buffers, u64::from(number));
    if let Ok(Some(_)) = posted {
        slot.phase = Phase::InFlight;
        slot.keeps = work.keeps(port);
    } else {
        *buffers = std::mem::take(&mut slot.buffers);
    }
    posted
}

/// The slot is filled before the post, but for the buffers: no task but this future asks for them, and that later.
fn post_unlocked<E: Port, W: PostOp<E>>(
    port: &E,
    work: &W,
    buffers: &mut OpBuffers,
    number: u32,
) -> Result<Option<E::Posted>> {
    let driver = port.driver();
    let Some(mut slot) = driver.slab.lock(number) else { return Ok(None) };
    slot.phase = Phase::InFlight;
    slot.keeps = work.keeps(port);
    drop(slot);
    // On unwinding this leaks them: it is not known whether the operation was posted.
    let held = std::mem::take(buffers);
    let posted = work.post(port, &held, u64::from(number));
    let Some(mut slot) = driver.slab.lock(number) else { return Ok(None) };
    if let Ok(Some(_)) = posted {
        slot.buffers = held;
        // It has ended already, in a way that does not prove that its memory is not touched any more.
        if slot.phase == Phase::Done && !driver.queue.is_proof(&slot.completion) {
            std::mem::take(&mut slot.buffers).leak();
        }
        return posted;
    }
    *buffers = held;
    slot.phase = Phase::Vacant;
    let kept = std::mem::take(&mut slot.keeps);
    drop(slot);
    drop(kept);
    posted
}

impl<E: Port, W: PostOp<E>> Drop for OpFuture<E, W> {
    fn drop(&mut self) {
        let driver = self.port.driver();
        match std::mem::replace(&mut self.stage, OpState::Over) {
            OpState::Ready(_, buffers) => buffers.reclaim(),
            OpState::InFlight(_, number, posted) => {
                driver.abandon(number);
                self.port.on_dropped(posted);
            }
            OpState::Failed(_) | OpState::Over => {}
        }
        driver.awake(&mut self.asleep);
        self.port.leave(&mut self.place);
    }
}
