//! Receives that endpoints share: a test brings the messages, and says whose they are.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use fabric_core::{
    EndpointId, Error, Posted, RawCompletion, RecvWork, Result, SharedReceiveOps, Status, Token,
};

use super::Control;
use super::cq::{NullCq, Queue};
use super::endpoint::Pending;

pub struct NullReceives(pub(super) Arc<Receives>);

/// The inside of a shared receive queue.
pub struct Receives {
    control: Arc<Control>,
    queue: Arc<Queue>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    posted: VecDeque<Pending>,
    /// Most receives that one post takes.
    max: Option<usize>,
}

impl Receives {
    pub(super) fn new(control: &Arc<Control>, cq: &NullCq) -> Arc<Self> {
        let (control, queue) = (control.clone(), cq.0.clone());
        Arc::new(Receives { control, queue, state: Mutex::default() })
    }

    /// A message to an endpoint, for the oldest receive; false if there is none.
    pub fn bring(&self, endpoint: EndpointId, len: usize) -> bool {
        let mut state = self.state.lock().unwrap();
        let Some(pending) = state.posted.pop_front() else { return false };
        self.control.check(pending.segments());
        pending.touch();
        let mut raw = RawCompletion::new(pending.token(), Status::Ok);
        (raw.endpoint, raw.len) = (Some(endpoint), len as u64);
        self.queue.push([raw]);
        true
    }

    /// Delivers a completion as it is, right or wrong.
    pub fn forge(&self, raw: RawCompletion) {
        self.queue.push([raw]);
    }

    /// The tokens of the receives that no message took, and from now on none takes.
    pub fn take_tokens(&self) -> Vec<Token> {
        self.state.lock().unwrap().posted.drain(..).map(|pending| pending.token()).collect()
    }

    /// One post takes `max` receives at most and refuses the rest with `Again`.
    pub fn take_up_to(&self, max: usize) {
        self.state.lock().unwrap().max = Some(max);
    }
}

// SAFETY: each receive taken is in `posted` until it gets its one completion in `bring`, or until `quiesce` forgets it; its
// segments are touched only while it is there.
unsafe impl SharedReceiveOps for NullReceives {
    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        let mut state = self.0.state.lock().unwrap();
        let taken = state.max.unwrap_or(work.len()).min(work.len());
        state.posted.extend(work[..taken].iter().map(Pending::receive));
        if taken < work.len() { Posted::until(taken, Error::Again) } else { Posted::all(taken) }
    }

    fn quiesce(&self) -> Result<()> {
        if self.0.control.goes_on.load(Ordering::Relaxed) {
            return Err(Error::system("quiesce", "null", std::io::ErrorKind::ResourceBusy.into()));
        }
        self.0.state.lock().unwrap().posted.clear();
        Ok(())
    }
}
