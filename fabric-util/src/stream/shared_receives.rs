//! A receive queue that the links of several connections take their receives from.
//!
//! A link whose peer sends while it is empty refuses the message for now, and waits here; every post wakes all that wait. So
//! no receive is set aside for a peer, and none can be held up by one that is slow or stopped.

use fabric_core::{EndpointId, RecvWork};

use super::receives::{Receive, Receives};
use super::segments::Segments;
use crate::sync::Mutex;

/// The receives, and the endpoints whose peers wait for one.
#[derive(Default)]
pub struct SharedReceives(Mutex<State>);

#[derive(Default)]
struct State {
    queue: Receives,
    /// Each at most once.
    waiting: Vec<EndpointId>,
}

impl SharedReceives {
    /// Takes receives; gives the endpoints whose links are to be notified by
    /// [`receives_posted`](super::Link::receives_posted), not under a lock of this queue or another link.
    ///
    /// # Safety
    /// As [`SharedReceiveOps::post_recv`](fabric_core::SharedReceiveOps::post_recv), where `quiesce` is
    /// [`clear`](SharedReceives::clear).
    pub unsafe fn post(&self, work: &[RecvWork<'_>]) -> Vec<EndpointId> {
        let mut state = self.0.lock();
        work.iter().for_each(|one| state.queue.push(one));
        std::mem::take(&mut state.waiting)
    }

    /// How many receives no message has taken.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().queue.len()
    }

    /// Forgets all receives.
    pub fn clear(&self) {
        let queue = std::mem::take(&mut self.0.lock().queue);
        drop(queue);
    }

    /// Takes the oldest receive, with its segments alone in `segments`; if there is none, `id` waits.
    pub(super) fn take_or_wait(&self, id: EndpointId, segments: &mut Segments) -> Option<Receive> {
        let mut state = self.0.lock();
        let Some(receive) = state.queue.pop() else {
            state.waiting.push(id);
            return None;
        };
        let span = segments.replace(state.queue.segments.of(receive.span));
        Some(Receive { span, ..receive })
    }

    /// An endpoint waits no more.
    pub(super) fn forget(&self, id: EndpointId) {
        self.0.lock().waiting.retain(|waiting| *waiting != id);
    }
}
