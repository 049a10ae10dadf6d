//! Event queues: they belong to a fabric, and have the events of endpoints and listeners on any of its devices, and what the
//! application writes.
//!
//! For each device there is an event queue of ours, whose descriptor is part of the wait object: no thread carries events over.

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use fabric::{EndpointId, Event, EventQueue, ListenerId};

use super::devices::{Device, Fabric};
use super::event::{Delivery, Entry, EventError, Listening, Owner, entry};
use crate::abi::FidEq;
use crate::abi::flags::{FI_CLASS_EQ, FI_EAVAIL, FI_ETOOSMALL};
use crate::errno::Errno;
use crate::handle::{Name, Object};
use crate::sync::lock;
use crate::wait::{WaitFd, sleep_on};

/// Events that are taken from the queues of ours at a time.
const BATCH: usize = 64;
/// How long the end of a connection waits until the completions before it are read.
const MAX_ENDING: Duration = Duration::from_secs(1);
/// How long requests wait for a connection that is being accepted.
const MAX_ACCEPTING: Duration = Duration::from_secs(1);
/// How often a sleeping reader looks whether what waits may be read.
const TICK: Duration = Duration::from_micros(200);

/// An endpoint whose connection has ended. An application that reads of the end closes it, and would lose what it has not read.
pub(crate) trait Ending: Send + Sync {
    /// Whether the completions of its operations have been read.
    fn has_settled(&self) -> bool;
}

/// An event queue.
pub(crate) struct Events {
    fabric: Arc<Fabric>,
    /// Entries that the application may write before it reads; none where it has not asked for that.
    writes: usize,
    wait: WaitFd,
    state: Mutex<EventState>,
}

// SAFETY: `FidEq` is repr(C) and begins with a fid; the class is of this alone.
unsafe impl Object for Events {
    type C = FidEq;
    const CLASS: usize = FI_CLASS_EQ;
}

#[derive(Default)]
struct EventState {
    sources: Vec<Source>,
    ready: VecDeque<Entry>,
    /// Listeners at which more requests may wait.
    listening: VecDeque<Arc<Listening>>,
    /// Requests that were taken from their listeners, and wait for the connections that are being accepted.
    held: VecDeque<Entry>,
    /// Endpoints that have accepted a request and are not connected yet, and until when requests wait for that. Programs
    /// read one event after `fi_accept`, which is to be `FI_CONNECTED`.
    accepting: Vec<(Name, Instant)>,
    /// Ends of connections, and until when they wait.
    ending: VecDeque<(Owner, Weak<dyn Ending>, Instant)>,
    /// Of the error that was read last: an application may look at it until it reads again.
    error_data: Box<[u8]>,
    is_woken: bool,
}

/// The events of a device.
struct Source {
    device: Arc<Device>,
    queue: EventQueue,
    endpoints: HashMap<EndpointId, (Owner, Weak<dyn Ending>)>,
    listeners: HashMap<ListenerId, Weak<Listening>>,
}

impl Events {
    pub(crate) fn new(fabric: &Arc<Fabric>, writes: usize) -> Result<Self, Errno> {
        let (wait, state) = (WaitFd::new()?, Mutex::default());
        Ok(Events { fabric: fabric.clone(), writes, wait, state })
    }

    /// The version of the interface that the application was written for.
    pub(crate) fn version(&self) -> u32 {
        self.fabric.version
    }

    pub(crate) fn wait(&self) -> &WaitFd {
        &self.wait
    }

    /// The queue of ours for the events of a device.
    pub(crate) fn queue(&self, device: &Arc<Device>) -> Result<EventQueue, Errno> {
        let mut state = lock(&self.state);
        if let Some(source) = state.source(device) {
            return Ok(source.queue.clone());
        }
        let queue = device.domain.event_queue()?;
        self.wait.add(queue.as_fd())?;
        let (device, own) = (device.clone(), queue.clone());
        let (endpoints, listeners) = (HashMap::new(), HashMap::new());
        state.sources.push(Source { device, queue, endpoints, listeners });
        Ok(own)
    }

    pub(crate) fn add_endpoint(
        &self,
        device: &Arc<Device>,
        id: EndpointId,
        owner: Owner,
        ending: Weak<dyn Ending>,
    ) {
        if let Some(source) = lock(&self.state).source(device) {
            source.endpoints.insert(id, (owner, ending));
        }
    }

    pub(crate) fn add_listener(&self, listening: &Arc<Listening>) {
        if let Some(source) = lock(&self.state).source(&listening.device) {
            source.listeners.insert(listening.listener.id(), Arc::downgrade(listening));
        }
    }

    /// Holds requests back until this endpoint, which accepts one, is connected.
    pub(crate) fn begin_accept(&self, name: Name) {
        let mut state = lock(&self.state);
        let EventState { ready, held, accepting, .. } = &mut *state;
        accepting.push((name, Instant::now() + MAX_ACCEPTING));
        let is_request =
            |entry: &Entry| matches!(entry, Entry::Request { .. } | Entry::Shown { .. });
        let (requests, others) = std::mem::take(ready).into_iter().partition(is_request);
        *ready = others;
        held.extend::<VecDeque<_>>(requests);
    }

    /// It does not accept any more.
    pub(crate) fn end_accept(&self, name: Name) {
        lock(&self.state).accepting.retain(|(accepting, _)| *accepting != name);
    }

    /// Forgets a handle that is closed, and its events.
    pub(crate) fn remove(&self, name: Name) {
        let mut state = lock(&self.state);
        for source in &mut state.sources {
            source.endpoints.retain(|_, (owner, _)| owner.name != name);
            source.listeners.retain(|_, listening| {
                listening.upgrade().is_some_and(|listening| listening.owner.name != name)
            });
        }
        state.listening.retain(|listening| listening.owner.name != name);
        state.ending.retain(|(owner, ..)| owner.name != name);
        state.accepting.retain(|(accepting, _)| *accepting != name);
        let is_its = |entry: &Entry| entry.owner().is_some_and(|owner| owner.name == name);
        let EventState { ready, held, .. } = &mut *state;
        let gone = [ready, held].map(|entries| {
            let (gone, kept): (VecDeque<_>, _) =
                std::mem::take(entries).into_iter().partition(is_its);
            *entries = kept;
            gone
        });
        self.settle(&mut state);
        drop(state);
        // Requests among them are rejected now, without a lock.
        for entry in gone.into_iter().flatten() {
            if let Entry::Shown { request, .. } = entry {
                drop(self.fabric.requests.take(request));
            }
        }
    }

    /// Writes an event of the application's.
    pub(crate) fn write(&self, event: u32, bytes: &[u8]) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        if self.writes == 0 {
            return Err(Errno::INVALID);
        }
        let written = |entry: &&Entry| matches!(entry, Entry::Written { .. });
        if state.ready.iter().filter(written).count() >= self.writes {
            return Err(Errno::AGAIN);
        }
        state.ready.push_back(Entry::Written { event, bytes: bytes.into() });
        self.wake(&mut state);
        Ok(())
    }

    /// Reads an event into so many bytes; `FI_EAVAIL` if the next one is an error, `FI_EAGAIN` if there is none.
    pub(crate) fn read(&self, space: usize, peek: bool) -> Result<Delivery, Errno> {
        let mut state = lock(&self.state);
        self.fill(&mut state);
        match state.ready.front() {
            None => return Err(Errno::AGAIN),
            Some(Entry::Failed(_)) => return Err(Errno(FI_EAVAIL)),
            Some(entry) if entry.size() > space => return Err(Errno(FI_ETOOSMALL)),
            Some(_) => {}
        }
        if peek {
            let entry = state.ready.pop_front().ok_or(Errno::AGAIN)?;
            let entry = entry.shown(&self.fabric.requests)?;
            let delivery = entry.peek();
            state.ready.push_front(entry);
            return Ok(delivery);
        }
        let entry = state.ready.pop_front();
        state.error_data = Box::default();
        self.settle(&mut state);
        drop(state);
        entry.ok_or(Errno::AGAIN)?.deliver(&self.fabric.requests)
    }

    /// As `read`, and sleeps for an event until the time has come, the thread is signaled, or for ever.
    pub(crate) fn read_or_sleep(
        &self,
        space: usize,
        peek: bool,
        until: Option<Instant>,
    ) -> Result<Delivery, Errno> {
        loop {
            match self.read(space, peek) {
                Err(Errno::AGAIN) if until.is_none_or(|until| until > Instant::now()) => {
                    // What waits here keeps the wait object readable.
                    let is_quiet = lock(&self.state).is_quiet();
                    let is_signaled = match is_quiet {
                        true => self.wait.sleep(until)?,
                        false => sleep_on(&mut [], Some(Instant::now() + TICK))?,
                    };
                    if is_signaled {
                        return self.read(space, peek);
                    }
                }
                read => return read,
            }
        }
    }

    /// Takes the error that is next, if it is one, and gives it to `put`. Its data stays where it is until the next event is read.
    pub(crate) fn read_error(
        &self,
        peek: bool,
        put: impl FnOnce(&EventError),
    ) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        self.fill(&mut state);
        match state.ready.front() {
            Some(Entry::Failed(error)) if peek => put(error),
            Some(Entry::Failed(_)) => {
                let Some(Entry::Failed(error)) = state.ready.pop_front() else {
                    return Err(Errno::AGAIN);
                };
                put(&error);
                state.error_data = error.data;
                self.settle(&mut state);
            }
            _ => return Err(Errno::AGAIN),
        }
        Ok(())
    }

    /// Whether nothing is to be read: a thread may sleep on the wait object.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut state = lock(&self.state);
        self.fill(&mut state);
        state.is_quiet()
    }

    /// Takes events of ours, if none wait here.
    fn fill(&self, state: &mut EventState) {
        if !state.ready.is_empty() {
            return;
        }
        let now = Instant::now();
        state.take_events(now);
        state.take_ends(now);
        state.take_request(now);
        if state.is_quiet() { self.settle(state) } else { self.wake(state) }
    }

    fn wake(&self, state: &mut EventState) {
        if !std::mem::replace(&mut state.is_woken, true) {
            self.wait.set();
        }
    }

    fn settle(&self, state: &mut EventState) {
        if state.is_woken && state.is_quiet() {
            state.is_woken = false;
            self.wait.clear();
        }
    }
}

impl EventState {
    /// Whether nothing is left here.
    fn is_quiet(&self) -> bool {
        let EventState { ready, listening, held, ending, .. } = self;
        ready.is_empty() && listening.is_empty() && held.is_empty() && ending.is_empty()
    }

    /// Takes events of ours.
    fn take_events(&mut self, now: Instant) {
        let EventState { sources, ready, listening, accepting, ending, .. } = self;
        for source in sources {
            while ready.len() + listening.len() + ending.len() < BATCH {
                let Some(event) = source.queue.poll() else { break };
                if let Event::ConnectRequest { listener } = event {
                    listening.extend(source.listeners.get(&listener).and_then(Weak::upgrade));
                    continue;
                }
                let Some((owner, of)) = source.owner(&event) else { continue };
                accepting.retain(|(name, _)| *name != owner.name);
                if let Event::Disconnected { .. } = event {
                    ending.push_back((owner, of, now + MAX_ENDING));
                } else {
                    ready.extend(entry(owner, event));
                }
            }
        }
    }

    /// Makes ready the ends of connections whose completions have been read.
    fn take_ends(&mut self, now: Instant) {
        let EventState { ready, ending, .. } = self;
        ending.retain(|(owner, of, until)| {
            let is_over = *until <= now || of.upgrade().is_none_or(|of| of.has_settled());
            if is_over {
                ready.push_back(Entry::Shutdown { owner: *owner });
            }
            !is_over
        });
    }

    /// Makes one request ready, if nothing else is, and no connection is being accepted. The others wait where there is room for them,
    /// in the backlog.
    fn take_request(&mut self, now: Instant) {
        let EventState { ready, listening, held, accepting, .. } = self;
        accepting.retain(|(_, until)| *until > now);
        if !ready.is_empty() || !accepting.is_empty() {
            return;
        }
        ready.extend(held.pop_front());
        while let (true, Some(first)) = (ready.is_empty(), listening.front()) {
            match first.listener.poll() {
                Some(request) => {
                    ready.push_back(Entry::Request { listening: first.clone(), request });
                }
                None => drop(listening.pop_front()),
            }
        }
    }

    fn source(&mut self, device: &Arc<Device>) -> Option<&mut Source> {
        self.sources.iter_mut().find(|source| Arc::ptr_eq(&source.device, device))
    }
}

impl Source {
    /// Whose event it is; nothing for an endpoint that the application has closed.
    fn owner(&self, event: &Event) -> Option<(Owner, Weak<dyn Ending>)> {
        self.endpoints.get(&event.endpoint()?).cloned()
    }
}
