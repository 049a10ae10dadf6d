//! A receive queue that the links of several connections take their receives from.
//!
//! A link whose peer sends while it is empty refuses the message for now, and waits here; every post wakes all that wait. So
//! no receive is set aside for a peer, and none can be held up by one that is slow or stopped.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use fabric_core::{EndpointId, RecvWork, Token};

use super::receives::{Receive, Receives};
use super::segments::Segments;
use crate::sync::Mutex;

/// A provider's connection, as a shared receive queue knows it.
pub trait TakesReceives: Send + Sync + 'static {
    /// Calls [`Link::receives_posted`](super::Link::receives_posted), and has what that encoded transmitted soon. No lock of
    /// another connection is held.
    fn receives_posted(self: Arc<Self>);
}

/// The receives, and the connections that take them, of any provider.
#[derive(Default)]
pub struct SharedReceives {
    state: Mutex<State>,
    conns: Mutex<HashMap<EndpointId, Weak<dyn TakesReceives>>>,
}

#[derive(Default)]
struct State {
    queue: Receives,
    /// The endpoints whose peers wait for a receive, each at most once.
    waiting: Vec<EndpointId>,
}

impl State {
    #[inline]
    fn take(&mut self, segments: &mut Segments) -> Option<Receive> {
        let receive = self.queue.pop()?;
        let span = segments.replace(&self.queue.segments, receive.span);
        Some(Receive { span, ..receive })
    }
}

impl SharedReceives {
    /// A connection takes its receives from here.
    pub fn add(&self, id: EndpointId, conn: Weak<dyn TakesReceives>) {
        let mut conns = self.conns.lock();
        if conns.len() == conns.capacity() {
            conns.retain(|_, conn| conn.strong_count() > 0);
        }
        conns.insert(id, conn);
    }

    /// Takes receives, and notifies the connections that wait for one. No lock of a link is held.
    ///
    /// # Safety
    /// As [`SharedReceiveOps::post_recv`](fabric_core::SharedReceiveOps::post_recv), where `quiesce` is
    /// [`clear`](SharedReceives::clear).
    pub unsafe fn post(&self, work: &[RecvWork<'_>]) {
        // SAFETY: the caller's promise.
        for id in unsafe { self.push(work) } {
            let conn = self.conns.lock().get(&id).and_then(Weak::upgrade);
            if let Some(conn) = conn {
                conn.receives_posted();
            }
        }
    }

    /// As `post`; gives the endpoints whose links are to be notified by
    /// [`receives_posted`](super::Link::receives_posted), not under a lock of this queue or another link.
    ///
    /// # Safety
    /// As `post`.
    pub(crate) unsafe fn push(&self, work: &[RecvWork<'_>]) -> Vec<EndpointId> {
        let mut state = self.state.lock();
        work.iter().for_each(|one| state.queue.push(one));
        std::mem::take(&mut state.waiting)
    }

    /// How many receives no message has taken.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn len(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// Forgets all receives.
    pub fn clear(&self) {
        let queue = std::mem::take(&mut self.state.lock().queue);
        drop(queue);
    }

    /// Takes the oldest receive, with its segments alone in `segments`; if there is none, `id` waits.
    pub(super) fn take_or_wait(&self, id: EndpointId, segments: &mut Segments) -> Option<Receive> {
        let mut state = self.state.lock();
        let receive = state.take(segments);
        if receive.is_none() {
            state.waiting.push(id);
        }
        receive
    }

    /// Takes the oldest receive if it is one run of memory with room for so many bytes; gives where that begins.
    #[inline(always)] // one place that is executed for each message calls it
    pub(super) fn take_run(&self, len: usize) -> Option<(Token, *mut u8)> {
        self.state.lock().queue.pop_run(len)
    }

    /// An endpoint waits no more.
    pub(super) fn forget(&self, id: EndpointId) {
        self.state.lock().waiting.retain(|waiting| *waiting != id);
    }
}
