//! How every operation goes: posted at the first poll of its future, done when the completion is there.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use fabric::{Completion, Op};

use crate::cargo::Cargo;
use crate::error::{Error, Result};
use crate::lease::At;
use crate::line::Ticket;
use crate::link::Link;

/// What an operation does, and what it makes of its end.
pub(crate) trait Work: Unpin {
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
pub(crate) struct Journey<W: Work> {
    link: Arc<Link>,
    pub(crate) stage: Stage<W>,
    /// The place in line for room in the send queue.
    ticket: Ticket,
    asleep: bool,
    pub(crate) fence: bool,
}

pub(crate) enum Stage<W: Work> {
    Ready(W, Cargo),
    /// Its cargo is at this place of the table.
    Flying(u32),
    /// It could not even be begun.
    Failed(Option<W::Output>),
    Over,
}

impl<W: Work> Journey<W> {
    pub(crate) fn new(link: &Arc<Link>, stage: Stage<W>) -> Self {
        let (link, ticket) = (link.clone(), Ticket::default());
        Journey { link, stage, ticket, asleep: false, fence: false }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<W::Output>
    where
        W::Output: Unpin,
    {
        let mut fresh = matches!(self.stage, Stage::Ready(..));
        ready!(self.poll_posted(cx));
        let Stage::Flying(number) = self.stage else {
            return self.failed().map_or(Poll::Pending, Poll::Ready);
        };
        let Journey { link, asleep, .. } = self;
        let driver = &link.node.driver;
        let look = |waker: Option<&_>| match std::mem::take(&mut fresh) {
            true if waker.is_none() => None, // posted this moment
            _ => driver.take(number, waker),
        };
        let Poll::Ready((completion, cargo)) = driver.wait(asleep, cx, look, || link.node.watch())
        else {
            return self.poll_refused(number);
        };
        self.stage = Stage::Over;
        Poll::Ready(Self::ended(&self.link, &completion, cargo))
    }

    /// In a child made by `fork` the completion never comes: that is the parent's. The child gets its copy back.
    fn poll_refused(&mut self, number: u32) -> Poll<W::Output> {
        let driver = &self.link.node.driver;
        let Some(error) = driver.refusal() else { return Poll::Pending };
        let cargo = driver.withdraw(number);
        self.stage = Stage::Over;
        Poll::Ready(W::fail(error, cargo))
    }

    /// Posts it, or sees that it cannot be; waits in line for that while the queue is full.
    #[inline]
    pub(crate) fn poll_posted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
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
    pub(crate) fn try_take(&mut self) -> Option<W::Output> {
        let Stage::Flying(number) = self.stage else { return self.failed() };
        let driver = &self.link.node.driver;
        let (completion, cargo) = driver.try_take(number)?;
        driver.awake(&mut self.asleep);
        self.stage = Stage::Over;
        Some(Self::ended(&self.link, &completion, cargo))
    }

    /// What it carries is not asked for.
    #[cfg(feature = "tokio")]
    pub(crate) fn unburden(&self) {
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
        link.node.router.take_events();
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
        let attempt = |load: &mut Option<Cargo>, is_turn: bool| {
            if is_turn { post(load).transpose() } else { None }
        };
        let mut posted = line.look(ticket, None, |is_turn| attempt(&mut load, is_turn));
        if posted.is_none() {
            let look = |waker: Option<&_>| {
                line.look(ticket, waker, |is_turn| {
                    // The post fails once the connection has ended.
                    let is_over = !link.is_alive() || link.node.driver.refusal().is_some();
                    attempt(&mut load, is_turn || is_over)
                })
            };
            let node = &link.node;
            match node.driver.wait(asleep, cx, look, || node.watch()) {
                Poll::Ready(done) => posted = Some(done),
                Poll::Pending => {
                    self.stage = Stage::Ready(work, load.unwrap_or_default());
                    return Poll::Pending;
                }
            }
        }
        self.stage = match posted {
            Some(Ok(number)) => Stage::Flying(number),
            Some(Err(error)) => Stage::Failed(Some(W::fail(error, load.unwrap_or_default()))),
            None => Stage::Over,
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
