//! An endpoint, whose operations end at once or when a test says so, and a test's way to its inside.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use fabric_core::provider::RequestId;
use fabric_core::{
    DisconnectReason, EndpointId, EndpointOps, Error, Event, EventSink, Posted, RawCompletion,
    RecvWork, RemoteAddr, Result, Segment, SendFlags, SendOp, SendWork, Status, Token, memory,
};
use smallvec::SmallVec;

use super::cq::{NullCq, Queue};
use super::{Control, FILL};

pub struct NullEndpoint(pub(super) Arc<Link>);

/// The inside of an endpoint.
pub struct Link {
    id: EndpointId,
    control: Arc<Control>,
    events: Arc<dyn EventSink>,
    send_queue: Arc<Queue>,
    recv_queue: Arc<Queue>,
    /// Locked before a queue's ring.
    state: Mutex<LinkState>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Connecting,
    Connected,
    Dead,
}

#[derive(Default)]
struct LinkState {
    phase: Phase,
    sends: VecDeque<Pending>,
    recvs: VecDeque<Pending>,
    /// Operations wait for [`Link::release`].
    hold: bool,
    /// Connecting waits for [`Link::finish_connect`].
    slow: bool,
    /// How the next operation ends.
    failure: Option<Status>,
    /// Most operations that one post takes.
    max: Option<usize>,
    /// Why the next post is refused.
    refusal: Option<Error>,
    /// Operations taken so far, and how many posts brought them.
    posted: (usize, usize),
    /// The last operation that succeeded without a completion, unless one came behind it.
    last_unsignaled: Option<Token>,
}

/// An operation that was taken and has not ended.
pub(super) struct Pending {
    token: Token,
    /// Operations borrow their segments only for the post.
    segments: SmallVec<[Segment; 8]>,
    places: bool,
    signaled: bool,
    /// The library's own: an empty write that reports how far the queue is.
    own: bool,
}

impl Pending {
    pub(super) fn receive(work: &RecvWork<'_>) -> Self {
        let (token, segments) = (work.token, SmallVec::from_slice(work.segments));
        Pending { token, segments, places: true, signaled: true, own: false }
    }

    pub(super) fn token(&self) -> Token {
        self.token
    }

    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Does to memory what the wire would do: bytes go out, or come in.
    pub(super) fn touch(&self) {
        for segment in &self.segments {
            let mut scratch = [FILL; 64];
            for offset in (0..segment.len).step_by(scratch.len()) {
                let part = &mut scratch[..(segment.len - offset).min(64)];
                let at = segment.addr.wrapping_add(offset);
                // SAFETY: the poster keeps the segment valid until the completion, which comes after this;
                // `at` and the part stay inside it.
                unsafe {
                    if self.places { memory::store(at, part) } else { memory::load(at, part) }
                }
            }
        }
    }
}

impl Link {
    pub(super) fn new(
        id: EndpointId,
        control: Arc<Control>,
        events: Arc<dyn EventSink>,
        [send_cq, recv_cq]: [&NullCq; 2],
    ) -> Self {
        let (send_queue, recv_queue) = (send_cq.0.clone(), recv_cq.0.clone());
        Link { id, control, events, send_queue, recv_queue, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap()
    }

    /// Ends up to `max` operations of the send queue, in order.
    fn progress(&self, state: &mut LinkState, max: usize) {
        let mut completions: SmallVec<[RawCompletion; 32]> = SmallVec::new();
        let mut failed = false;
        let mut left = max;
        while state.sends.front().is_some_and(|pending| pending.own || left > 0)
            && let Some(pending) = state.sends.pop_front()
        {
            left -= usize::from(!pending.own);
            let status = state.failure.take().unwrap_or_default();
            failed = status != Status::Ok;
            if !failed {
                pending.touch();
            }
            state.last_unsignaled = None;
            if failed || pending.signaled {
                completions.push(RawCompletion::new(pending.token, status));
            } else {
                state.last_unsignaled = Some(pending.token);
            }
            if failed {
                break;
            }
        }
        self.send_queue.push(completions);
        if failed {
            self.die(state, DisconnectReason::OperationFailed);
        }
    }

    /// Ends the connection: the event first, then everything that it cancels.
    fn die(&self, state: &mut LinkState, reason: DisconnectReason) {
        let was = std::mem::replace(&mut state.phase, Phase::Dead);
        let endpoint = self.id;
        match was {
            Phase::Dead => return,
            Phase::Connecting => {
                self.events.event(Event::ConnectFailed { endpoint, error: Error::Canceled });
            }
            _ => self.events.event(Event::Disconnected { endpoint, reason }),
        }
        if self.control.goes_on.load(Ordering::Relaxed) {
            return; // as a device that does not stop
        }
        let canceled = |pending: Pending| RawCompletion::new(pending.token, Status::Canceled);
        if let Some(token) = state.last_unsignaled.take().filter(|_| state.sends.is_empty()) {
            self.send_queue.push([RawCompletion::new(token, Status::Ok)]);
        }
        self.send_queue.push(state.sends.drain(..).map(canceled));
        self.recv_queue.push(state.recvs.drain(..).map(canceled));
    }

    fn connected(&self, state: &mut LinkState, data: &[u8]) {
        state.phase = Phase::Connected;
        self.events.event(Event::Connected { endpoint: self.id, data: data.into() });
    }

    /// From now on nothing of the send queue ends before it is released.
    pub fn hold(&self) {
        self.lock().hold = true;
    }

    /// Ends up to `max` operations that are held, oldest first.
    pub fn release(&self, max: usize) {
        let mut state = self.lock();
        state.sends.iter().take(max).for_each(|pending| self.control.check(&pending.segments));
        self.progress(&mut state, max);
    }

    /// The next operation of the send queue to end fails, and the connection with it.
    pub fn fail_next(&self, status: Status) {
        self.lock().failure = Some(status);
    }

    /// One post takes `max` operations at most and refuses the rest with `Again`.
    pub fn take_up_to(&self, max: usize) {
        self.lock().max = Some(max);
    }

    /// The next post to the send queue, or the next receive, is refused; those behind it are not.
    pub fn refuse_next(&self, error: Error) {
        self.lock().refusal = Some(error);
    }

    /// Operations taken so far, and the number of posts that brought them.
    pub fn posted(&self) -> (usize, usize) {
        self.lock().posted
    }

    /// A message for the oldest receive; false if there is none.
    pub fn bring(&self, len: usize, immediate: Option<u32>) -> bool {
        let mut state = self.lock();
        let Some(pending) = state.recvs.pop_front() else { return false };
        self.control.check(&pending.segments);
        pending.touch();
        let mut raw = RawCompletion::new(pending.token, Status::Ok);
        (raw.len, raw.immediate) = (len as u64, immediate);
        self.recv_queue.push([raw]);
        true
    }

    /// Connecting takes until [`finish_connect`](Link::finish_connect).
    pub fn connect_slowly(&self) {
        self.lock().slow = true;
    }

    /// The outcome of connecting.
    pub fn finish_connect(&self, outcome: Result<&[u8]>) {
        let mut state = self.lock();
        match outcome {
            Ok(data) => self.connected(&mut state, data),
            Err(error) => {
                state.phase = Phase::Dead;
                self.events.event(Event::ConnectFailed { endpoint: self.id, error });
                let canceled = |p: Pending| RawCompletion::new(p.token, Status::Canceled);
                self.recv_queue.push(state.recvs.drain(..).map(canceled));
            }
        }
    }

    /// Connecting failed, and what that cancels is seen before it is reported.
    pub fn finish_connect_late(&self, error: Error, before: impl FnOnce()) {
        let mut state = self.lock();
        state.phase = Phase::Dead;
        let canceled = |p: Pending| RawCompletion::new(p.token, Status::Canceled);
        self.recv_queue.push(state.recvs.drain(..).map(canceled));
        drop(state);
        before();
        self.events.event(Event::ConnectFailed { endpoint: self.id, error });
    }

    /// The connection ends.
    pub fn lose(&self, reason: DisconnectReason) {
        self.die(&mut self.lock(), reason);
    }

    /// Reports an event, as often and as late as the test likes.
    pub fn report(&self, event: Event) {
        self.events.event(event);
    }

    /// Delivers a completion that no operation has, or had: a provider's mistake.
    pub fn forge(&self, raw: RawCompletion) {
        self.send_queue.push([raw]);
    }

    /// The tokens of the send queue's operations that are held.
    pub fn held(&self) -> Vec<Token> {
        self.lock().sends.iter().map(|pending| pending.token).collect()
    }

    /// How often the queue of its sends was polled.
    pub fn polls(&self) -> u64 {
        self.send_queue.polls()
    }

    /// Has something happen in the middle of the next `arm` of the send queue's completion queue.
    pub fn on_arm(&self, then: impl FnOnce() + Send + 'static) {
        self.send_queue.on_arm(then);
    }
}

// SAFETY: each operation taken is in `sends` or `recvs` until it gets its one completion in `progress`, `bring`
// or `die`, or until `quiesce` forgets it; its segments are touched only while it is there, and written only
// if it is a receive, a read or a fetching atomic.
unsafe impl EndpointOps for NullEndpoint {
    unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted {
        let mut state = self.0.lock();
        if state.phase != Phase::Connected {
            return Posted::until(0, Error::NotConnected);
        }
        if let Some(refusal) = state.refusal.take() {
            return Posted::until(0, refusal);
        }
        let taken = state.max.unwrap_or(work.len()).min(work.len());
        for one in &work[..taken] {
            let mut pending = Pending {
                token: one.token,
                segments: SmallVec::from_slice(one.segments),
                places: matches!(one.op, SendOp::Read { .. } | SendOp::Atomic { fetch: true, .. }),
                signaled: one.flags.contains(SendFlags::SIGNALED),
                own: matches!(one.op, SendOp::Write { to, .. } if to == RemoteAddr::default())
                    && one.segments.is_empty(),
            };
            if one.flags.contains(SendFlags::INJECT) {
                pending.touch();
                pending.segments.clear();
            }
            state.sends.push_back(pending);
        }
        state.posted = (state.posted.0 + taken, state.posted.1 + 1);
        if !state.hold {
            self.0.progress(&mut state, usize::MAX);
        }
        if taken < work.len() { Posted::until(taken, Error::Again) } else { Posted::all(taken) }
    }

    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        let mut state = self.0.lock();
        if state.phase == Phase::Dead {
            return Posted::until(0, Error::NotConnected);
        }
        if let Some(refusal) = state.refusal.take() {
            return Posted::until(0, refusal);
        }
        state.recvs.extend(work.iter().map(Pending::receive));
        Posted::all(work.len())
    }

    fn connect(&self, _to: SocketAddr, data: &[u8]) -> Result<()> {
        let mut state = self.0.lock();
        state.phase = Phase::Connecting;
        if !state.slow {
            // The peer that is not there echoes the private data.
            self.0.connected(&mut state, data);
        }
        Ok(())
    }

    fn accept(&self, _request: RequestId, _data: &[u8]) -> Result<()> {
        let mut state = self.0.lock();
        state.phase = Phase::Connecting;
        if !state.slow {
            self.0.connected(&mut state, &[]);
        }
        Ok(())
    }

    fn disconnect(&self) {
        self.0.die(&mut self.0.lock(), DisconnectReason::Local);
    }

    fn quiesce(&self) -> Result<()> {
        let mut state = self.0.lock();
        state.phase = Phase::Dead;
        if self.0.control.goes_on.load(Ordering::Relaxed) {
            // As a device that does not stop: what is in flight goes on.
            return Err(Error::system("quiesce", "null", std::io::ErrorKind::ResourceBusy.into()));
        }
        state.sends.clear();
        state.recvs.clear();
        Ok(())
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        Some((Ipv4Addr::LOCALHOST, 1).into())
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        Some((Ipv4Addr::LOCALHOST, 2).into())
    }

    fn dump(&self) -> String {
        let state = self.0.lock();
        format!("{} sends and {} receives pending", state.sends.len(), state.recvs.len())
    }
}

impl Drop for NullEndpoint {
    fn drop(&mut self) {
        self.0.control.links.lock().unwrap().remove(&self.0.id);
    }
}
