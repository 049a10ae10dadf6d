//! How every operation goes: posted at the first poll of its future, done when the completion is there.

use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use fabric::{Completion, Op};

use crate::cargo::{Cargo, SliceVec};
use crate::error::{Error, Result};
use crate::lease::At;
use crate::line::Ticket;
use crate::link::Link;
use crate::ops::Phase;

/// What an operation does, and what it makes of its end.
pub(crate) trait Work: Unpin {
    type Output;

    /// Where it goes, if it is one-sided.
    fn at(&self) -> Option<&At>;

    /// What is wrong already.
    fn check(&self, link: &Link, cargo: &Cargo) -> Result<()>;

    /// The operation as the fabric's.
    fn build<'a, 's>(&'a self, cargo: &'a Cargo, scratch: &'s mut SliceVec<'a>) -> Op<'s>
    where
        'a: 's;

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

    /// Posts it, or fails; waits its turn for that while the send queue is full.
    #[inline]
    pub(crate) fn poll_posted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Journey { link, stage, ticket, asleep, fence } = self;
        let Stage::Ready(work, cargo) = stage else { return Poll::Ready(()) };
        let (driver, line) = (&link.node.driver, &link.lane.room);
        let mut posted = match work.check(link, cargo) {
            Ok(()) if line.is_turn(ticket, None) => try_post(link, work, *fence, cargo),
            Ok(()) => Ok(None),
            Err(error) => Err(error),
        };
        if let Ok(None) = posted {
            let look = |waker: Option<&Waker>| {
                let is_turn = line.is_turn(ticket, waker);
                // The post fails once the connection has ended.
                if !is_turn && link.is_alive() && driver.refusal().is_none() {
                    return None;
                }
                try_post(link, work, *fence, cargo).transpose()
            };
            posted = ready!(driver.wait(asleep, cx, look, || link.node.watch())).map(Some);
        }
        line.leave(ticket);
        *stage = match posted {
            Ok(number) => Stage::Flying(number.unwrap_or(u32::MAX)),
            Err(error) => Stage::Failed(Some(W::fail(error, std::mem::take(cargo)))),
        };
        Poll::Ready(())
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
}

/// Posts an operation whose cargo goes to the table; gives its place. `None` while the send queue is full: then, and on
/// errors, the cargo is still where it was.
#[inline]
fn try_post<W: Work>(link: &Link, work: &W, fence: bool, cargo: &mut Cargo) -> Result<Option<u32>> {
    let table = &link.node.driver.table;
    let number = table.begin()?;
    let Some(mut place) = table.lock(number) else { return Ok(None) };
    // The lock is held over the post, so that the thread that takes the completion finds the place filled.
    place.cargo = std::mem::take(cargo);
    let posted = {
        let mut scratch = SliceVec::new();
        let op = work.build(&place.cargo, &mut scratch).context(u64::from(number));
        link.endpoint.post(&if fence { op.fence() } else { op })
    };
    let Err(error) = posted else {
        place.phase = Phase::Flying;
        place.lane = Some(link.lane.clone());
        place.lease = work.at().and_then(|at| at.lease.clone());
        return Ok(Some(number));
    };
    *cargo = std::mem::take(&mut place.cargo);
    drop(place);
    table.end(number);
    match error {
        fabric::Error::Again => Ok(None),
        fabric::Error::NotConnected => Err(link.over()),
        other => Err(other.into()),
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
