//! Receives that are posted ahead, with buffers of the pool: of a connection, or of a datagram endpoint.

use std::sync::Arc;

use fabric::{BatchError, Recv};
use smallvec::SmallVec;

use crate::buffer::Buffer;
use crate::conn_state::{ConnState, Inbox};
use crate::error::{Error, Result};
use crate::node::NodeInner;
use crate::op_buffers::{BufferRange, OpBuffers};
use crate::op_slab::Phase;
use crate::options::ConnSettings;
use crate::wakers::Wakers;

/// Receives that are posted in one call.
const BATCH: usize = 16;

/// What has an inbox, and receives by which messages come into it.
pub(crate) trait InboxOwner {
    fn node(&self) -> &Arc<NodeInner>;

    fn state(&self) -> &Arc<ConnState>;

    /// How many receives there should be, and how long.
    fn settings(&self) -> &ConnSettings;

    /// Posts receives, taken in this order.
    ///
    /// # Errors
    /// With the number that was posted before the first that could not be.
    fn post_recvs(&self, recvs: &[Recv<'_>]) -> Result<(), BatchError>;

    /// False: nothing more arrives but by receives that have ended.
    fn is_alive(&self) -> bool;

    /// Why it is not alive. The caller holds no lock.
    fn over(&self) -> Error;

    /// Why a post was refused, in other words. The caller holds no lock.
    fn explain(&self, error: Error) -> Error {
        match error {
            Error::Fabric(fabric::Error::NotConnected) => self.over(),
            other => other,
        }
    }
}

/// Receives that are to be posted.
pub(crate) struct Missing {
    count: usize,
    /// Slots of the slab that earlier receives of the owner had.
    slots: SmallVec<[u32; BATCH]>,
}

/// Posts as many receives as there should be. What there is no memory for now is posted later.
///
/// # Errors
/// The pool's, if not a single receive is posted.
pub(crate) fn refill(owner: &impl InboxOwner) -> Result<()> {
    let first = missing(owner, &mut owner.state().inbox());
    post_missing(owner, first)
}

/// The next receives that should be posted, which from now on count as posted.
#[inline]
pub(crate) fn missing(owner: &impl InboxOwner, inbox: &mut Inbox) -> Option<Missing> {
    let ConnSettings { receives, notifications, .. } = *owner.settings();
    // Each receive that is posted may become a message, or a notification; so few enough that both have room.
    let unread = inbox.messages.len() + inbox.datagrams.len();
    let room = notifications.saturating_sub(inbox.notifications.len());
    let posted = inbox.posted;
    let want = receives.saturating_sub(posted + unread).min(room.saturating_sub(posted));
    // Not one by one, unless that is all there are.
    if want == 0 || (posted > receives / 2 && want < receives / 4) {
        return None;
    }
    let count = want.min(BATCH);
    inbox.posted += count;
    let kept = inbox.idle.len().saturating_sub(count);
    Some(Missing { count, slots: inbox.idle.drain(kept..).collect() })
}

/// Posts those receives, and what is missing then.
///
/// # Errors
/// As of [`refill`].
pub(crate) fn post_missing(owner: &impl InboxOwner, mut next: Option<Missing>) -> Result<()> {
    while let Some(Missing { count, slots }) = next {
        let done = post_receives(owner, count, slots);
        let mut inbox = owner.state().inbox();
        if let Err((posted, error)) = done {
            inbox.posted -= count - posted;
            if inbox.posted > 0 {
                return Ok(());
            }
            drop(inbox);
            if !owner.is_alive() {
                // The last one that was posted has ended meanwhile, and was not the last as it seemed: nothing else says so.
                owner.state().wake_all(&mut Wakers::new());
            }
            return Err(error);
        }
        next = missing(owner, &mut inbox);
    }
    Ok(())
}

/// Posts some receives in one call, first at those slots; says how many if not all were.
fn post_receives(
    owner: &impl InboxOwner,
    count: usize,
    mut idle: SmallVec<[u32; BATCH]>,
) -> Result<(), (usize, Error)> {
    let node = owner.node();
    let (slab, len) = (&node.driver.slab, owner.settings().max_message);
    // Memory first: to get some may wake those that wait for it, which no lock is held over.
    let mut failure = None;
    let mut buffers: SmallVec<[Buffer; BATCH]> = SmallVec::new();
    while buffers.len() < count && failure.is_none() {
        match node.pool.alloc_dirty(len) {
            Ok(buffer) => buffers.push(buffer),
            Err(error) => failure = Some(error),
        }
    }
    let mut slots: SmallVec<[_; BATCH]> = SmallVec::new();
    while !buffers.is_empty() {
        let number = match idle.pop().map_or_else(|| slab.begin(), Ok) {
            Ok(number) => number,
            Err(error) => {
                failure = Some(error);
                break;
            }
        };
        let Some(mut slot) = slab.lock_beside_others(number) else { break };
        if let Some(buffer) = buffers.pop() {
            slot.buffers = OpBuffers::Receive(BufferRange::new(buffer, 0, len));
        }
        slots.push((number, slot));
    }
    let receives: SmallVec<[Recv<'_>; BATCH]> = slots
        .iter()
        .map(|(number, slot)| {
            let slice = match &slot.buffers {
                OpBuffers::Receive(range) => range.slice(),
                _ => None,
            };
            let into = slice.map_or_else(fabric::Slices::none, Into::into);
            Recv::new(into, u64::from(*number))
        })
        .collect();
    let mut refusal = None;
    let posted = match owner.post_recvs(&receives) {
        Ok(()) => slots.len(),
        Err(batch) => {
            refusal = Some(batch.error);
            batch.posted
        }
    };
    drop(receives);
    let mut refused: SmallVec<[OpBuffers; BATCH]> = SmallVec::new();
    for (index, (number, mut slot)) in slots.into_iter().enumerate() {
        if index < posted {
            slot.phase = Phase::Abandoned;
            slot.keeps.conn_state.get_or_insert_with(|| owner.state().clone());
        } else {
            refused.push(std::mem::take(&mut slot.buffers));
            idle.push(number);
        }
    }
    refused.into_iter().for_each(OpBuffers::reclaim);
    drop(buffers);
    if !idle.is_empty() {
        owner.state().inbox().idle.extend(idle);
    }
    // Asked for here, where no lock is held: it takes events.
    let refusal = refusal.map(|error| owner.explain(error.into()));
    refusal.or(failure).map_or(Ok(()), |error| Err((posted, error)))
}

/// Takes the completions that dropping an endpoint leaves, so that its buffers return at once, and gives back the slots
/// that its receives had. It is declared behind the endpoint.
pub(crate) struct DrainOnDrop(pub(crate) Arc<NodeInner>, pub(crate) Arc<ConnState>);

impl Drop for DrainOnDrop {
    fn drop(&mut self) {
        let driver = &self.0.driver;
        driver.drain();
        let idle = std::mem::take(&mut self.1.inbox().idle);
        idle.into_iter().for_each(|number| driver.release(number));
    }
}
