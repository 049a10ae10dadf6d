//! One end of a connection, with all that a case needs to drive it.

use std::ops::Deref;
use std::panic::Location;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fabric::{
    Access, Completion, CompletionQueue, DisconnectReason, Domain, Endpoint, EndpointAttr,
    EndpointState, Error, Event, Op, SharedReceiveQueue, Status,
};

use crate::check::{Failed, Outcome, show};
use crate::done::Done;
use crate::guarded::Guarded;
use crate::recorded::{RecordedEvents, RecordedQueue};
use crate::recorder::DomainName;
use crate::setup::Setup;
use crate::watch::Watch;

mod shortcuts;

/// How long anything that should happen may take, before scaling.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// An endpoint with its completion queue and its domain. It dereferences to the [`Endpoint`], so operations are
/// posted on it directly: `a.send(source.slice(..8), 1)?`.
///
/// - Waiting polls this end's queue alone, never the peer's.
/// - All durations given here are nominal: they are stretched by the machine's factor.
/// - The queue is the endpoint's own, unless the case gave it one, with exactly the room that its depths need.
pub struct End {
    endpoint: Arc<Endpoint>,
    cq: RecordedQueue,
    events: RecordedEvents,
    domain: Domain,
    watch: Arc<Watch>,
    factor: f64,
    lossy: bool,
}

impl End {
    pub(crate) fn new(
        domain: &Domain,
        cq: &CompletionQueue,
        receives: Option<&SharedReceiveQueue>,
        attr: EndpointAttr,
        setup: &Setup,
        place: DomainName,
    ) -> fabric::Result<Self> {
        let Setup { watch, recorder, factor, lossy, .. } = setup;
        let mut builder = domain.endpoint().attr(attr);
        if let Some(receives) = receives {
            builder = builder.shared_receives(receives);
        }
        let endpoint = Arc::new(builder.build(cq)?);
        recorder.add_endpoint(place, endpoint.id());
        watch.add_endpoint(&format!("domain {place}"), &endpoint);
        let cq = RecordedQueue::new(cq, place, recorder);
        let events = RecordedEvents::new(domain.events(), place, recorder);
        let (domain, watch) = (domain.clone(), watch.clone());
        Ok(End { endpoint, cq, events, domain, watch, factor: *factor, lossy: *lossy })
    }

    /// Its completion queue. A clone of it outlives this end.
    pub fn cq(&self) -> &RecordedQueue {
        &self.cq
    }

    /// Its domain.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// A guarded buffer of `len` zero bytes in its domain, with every right.
    ///
    /// # Errors
    /// If the domain refuses.
    #[track_caller]
    pub fn buffer(&self, len: usize) -> Result<Guarded, Failed> {
        self.buffer_with(len, Access::ALL)
    }

    /// As [`buffer`](End::buffer), with other rights.
    ///
    /// # Errors
    /// If the domain refuses.
    #[track_caller]
    pub fn buffer_with(&self, len: usize, access: Access) -> Result<Guarded, Failed> {
        Ok(Guarded::new(&self.domain, len, access)?.watched(&self.watch))
    }

    /// Posts as soon as there is room.
    ///
    /// # Errors
    /// If there is none within 10 s, or the post is refused for another reason.
    #[track_caller]
    pub fn post_when_room(&self, op: &Op<'_>) -> Outcome {
        let place = Location::caller();
        let mut until = None;
        loop {
            match self.endpoint.post(op) {
                Err(Error::Again) => {}
                result => return Ok(result?),
            }
            let until = until.get_or_insert_with(|| Instant::now() + self.scaled(DEFAULT_TIMEOUT));
            if Instant::now() >= *until {
                self.watch.blocked_at(place);
                return Err(self.failed(
                    place,
                    "room for a post within 10 s",
                    "Again all the time",
                ));
            }
            thread::yield_now();
        }
    }

    /// The next completion.
    ///
    /// # Errors
    /// If none comes within 10 s; with a dump of both sides.
    #[track_caller]
    pub fn next(&self) -> Result<Completion, Failed> {
        self.next_within(DEFAULT_TIMEOUT)
    }

    /// The next completion.
    ///
    /// # Errors
    /// If none comes in time; with a dump of both sides.
    #[track_caller]
    pub fn next_within(&self, time: Duration) -> Result<Completion, Failed> {
        let place = Location::caller();
        match self.poll_for(self.scaled(time), place, thread::yield_now)? {
            Some(completion) => Ok(completion),
            None => {
                let time = self.scaled(time);
                Err(self.failed(place, format!("a completion within {time:?}"), "none"))
            }
        }
    }

    /// The next `count` completions, each within 10 s of the one before.
    ///
    /// # Errors
    /// If one does not come; with a dump of both sides.
    #[track_caller]
    pub fn take(&self, count: usize) -> Result<Vec<Completion>, Failed> {
        let place = Location::caller();
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            match self.poll_for(self.scaled(DEFAULT_TIMEOUT), place, thread::yield_now)? {
                Some(completion) => taken.push(completion),
                None => {
                    let expected = format!("{count} completions");
                    return Err(self.failed(place, expected, format!("only {}", taken.len())));
                }
            }
        }
        Ok(taken)
    }

    /// Expects that the next completion is `Ok` and of this context.
    ///
    /// # Errors
    /// If it is not, or none comes within 10 s; with a dump of both sides.
    #[track_caller]
    pub fn expect_ok(&self, context: impl TryInto<u64>) -> Result<Completion, Failed> {
        self.expect(Done::ok(context))
    }

    /// Expects that the next completion is this one. For a refusal anything [as good](End::is_refusal) will do.
    ///
    /// # Errors
    /// If it is another, or none comes within 10 s; with a dump of both sides.
    #[track_caller]
    pub fn expect(&self, done: Done) -> Result<Completion, Failed> {
        let place = Location::caller();
        match self.poll_for(self.scaled(DEFAULT_TIMEOUT), place, thread::yield_now)? {
            Some(seen) if done.fits(&seen, |status| self.is_refusal(status)) => Ok(seen),
            Some(seen) => Err(self.failed(place, done.to_string(), show(&seen))),
            None => Err(self.failed(
                place,
                done.to_string(),
                format!("none within {DEFAULT_TIMEOUT:?}"),
            )),
        }
    }

    /// Whether this is the status of an operation that the target refused: over a link that loses packets also that of
    /// one whose refusal is lost.
    pub fn is_refusal(&self, status: Status) -> bool {
        let lost = matches!(status, Status::PeerLost | Status::Canceled);
        status == Status::RemoteAccess || self.lossy && lost
    }

    /// Expects that no completion comes for a while.
    ///
    /// # Errors
    /// The completion that came.
    #[track_caller]
    pub fn expect_none_for(&self, time: Duration) -> Outcome {
        let place = Location::caller();
        let nap = || thread::sleep(Duration::from_millis(1));
        match self.poll_for(self.scaled(time), place, nap)? {
            None => Ok(()),
            Some(seen) => {
                Err(self.failed(place, format!("no completion for {time:?}"), show(&seen)))
            }
        }
    }

    /// Waits until it is connected; gives the private data of the peer's `accept`.
    ///
    /// # Errors
    /// How the attempt ended instead, or that it did not within 10 s.
    #[track_caller]
    pub fn expect_connected(&self) -> Result<Box<[u8]>, Failed> {
        let place = Location::caller();
        self.watch.blocked_at(place);
        let patience = self.scaled(DEFAULT_TIMEOUT).max(self.attr().connect_timeout);
        let outcome = self.wait_connected(Some(patience));
        outcome.map_err(|error| self.failed(place, "the connection to stand", show(&error)))
    }

    /// Waits until its connection has ended; says why.
    ///
    /// # Errors
    /// If it has not within 10 s.
    #[track_caller]
    pub fn expect_disconnected(&self) -> Result<DisconnectReason, Failed> {
        let place = Location::caller();
        self.watch.blocked_at(place);
        let outcome = self.wait_disconnected(Some(self.scaled(DEFAULT_TIMEOUT)));
        outcome.map_err(|error| self.failed(place, "the connection to end", show(&error)))
    }

    /// Expects that the peer has closed the connection; over a link that loses packets, that it is lost will do: its last
    /// message may not be repeated when all that it had is gone.
    ///
    /// # Errors
    /// If it has not within 10 s, or the reason is another one.
    #[track_caller]
    pub fn expect_closed_by_peer(&self) -> Outcome {
        match self.expect_disconnected()? {
            DisconnectReason::Remote => Ok(()),
            DisconnectReason::PeerLost if self.lossy => Ok(()),
            other => {
                let expected = "the connection to be closed by the peer".to_owned();
                Err(self.failed(Location::caller(), expected, show(&other)))
            }
        }
    }

    /// As [`Endpoint::wait_connected`]; the outcome that it takes goes into the transcript.
    ///
    /// # Errors
    /// As there.
    pub fn wait_connected(&self, timeout: Option<Duration>) -> fabric::Result<Box<[u8]>> {
        let outcome = self.endpoint.wait_connected(timeout);
        // What is no outcome of the attempt has taken no event: `TimedOut` is one only if the attempt is over.
        match &outcome {
            Ok(data) => {
                self.events.note(&Event::Connected { endpoint: self.id(), data: data.clone() });
            }
            Err(Error::NotConnected | Error::InvalidState(_)) => {}
            Err(Error::TimedOut(_)) if self.state() == EndpointState::Connecting => {}
            Err(error) => self.events.note_failed(self.id(), error),
        }
        outcome
    }

    /// As [`Endpoint::wait_disconnected`]; the event that it takes goes into the transcript.
    ///
    /// # Errors
    /// As there.
    pub fn wait_disconnected(&self, timeout: Option<Duration>) -> fabric::Result<DisconnectReason> {
        self.endpoint.wait_disconnected(timeout).inspect(|&reason| {
            self.events.note(&Event::Disconnected { endpoint: self.id(), reason });
        })
    }

    /// The next event of its domain, whatever endpoint or listener it is of.
    ///
    /// # Errors
    /// If none comes within 10 s.
    #[track_caller]
    pub fn next_event(&self) -> Result<Event, Failed> {
        let place = Location::caller();
        self.watch.blocked_at(place);
        let event = self.events.wait(Some(self.scaled(DEFAULT_TIMEOUT)));
        event.map_err(|error| self.failed(place, "an event", show(&error)))
    }

    /// Expects that no event of its domain comes for a while.
    ///
    /// # Errors
    /// The event that came.
    #[track_caller]
    pub fn expect_no_event_for(&self, time: Duration) -> Outcome {
        let place = Location::caller();
        self.watch.blocked_at(place);
        match self.events.wait(Some(self.scaled(time))) {
            Err(Error::TimedOut(_)) => Ok(()),
            seen => Err(self.failed(place, format!("no event for {time:?}"), show(&seen))),
        }
    }

    fn poll_for(
        &self,
        time: Duration,
        place: &'static Location<'static>,
        idle: impl Fn(),
    ) -> Result<Option<Completion>, Failed> {
        let poll = || {
            let polled = self.cq.poll_one();
            polled.map_err(|error| self.failed(place, "polling to succeed", show(&error)))
        };
        // Most completions are there already; then nothing needs the clock.
        if let Some(completion) = poll()? {
            return Ok(Some(completion));
        }
        self.watch.blocked_at(place);
        let until = Instant::now() + time;
        while Instant::now() < until {
            if let Some(completion) = poll()? {
                return Ok(Some(completion));
            }
            idle();
        }
        // The thread may have slept through the end of its time.
        poll()
    }

    fn scaled(&self, time: Duration) -> Duration {
        time.mul_f64(self.factor)
    }

    #[cold]
    fn failed(
        &self,
        place: &'static Location<'static>,
        expected: impl Into<String>,
        seen: impl Into<String>,
    ) -> Failed {
        let (expected, seen) = (expected.into(), format!("{} by {}", seen.into(), self.id()));
        Failed::at(place, expected, seen).with_dump(self.watch.dump())
    }
}

impl Deref for End {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl std::fmt::Debug for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "End({:?} on {:?})", self.endpoint, self.domain)
    }
}
