//! The completions of a queue: of one of theirs as many of ours as its endpoints need, and what was taken from those and not yet read.
//!
//! A queue of ours has room for every operation of its endpoints, and devices limit how large one is; theirs has the size that the
//! application asks for, of all endpoints that may come. So ours are made when endpoints need them.
//!
//! A reader has the queue locked while it looks where completions come from, so that what it finds for itself takes no other
//! lock. What other threads find for it goes to an inbox, whose lock is taken last of all.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use fabric::{
    Armed, Completion, CompletionQueue, EndpointId, SharedReceiveAttr, SharedReceiveQueue,
};
use rustix::event::{PollFd, PollFlags};

use super::done::{Done, Whose, done};
use super::idle::Idle;
use super::tally::Tally;
use crate::abi::flags::{FI_EAVAIL, FI_RECV};
use crate::errno::Errno;
use crate::sync::lock;
use crate::wait::{WaitFd, sleep_on};

/// Completions that are taken from a queue of ours at a time.
const BATCH: usize = 64;
/// The room of a queue of ours, unless an endpoint needs more.
const ROOM: usize = 1 << 14;
/// Queues of ours behind one of theirs, at most.
const MAX_PARTS: usize = 1 << 10;

/// What completions come from beside queues of ours: an endpoint that has its own, for both of its sides.
pub(crate) trait Feed: Send + Sync {
    /// Takes completions, as long as there is a place for them, and gives them to the queues that they are for; how many. One
    /// of those queues may be locked, by this reader.
    fn feed(&self, reader: Option<&mut Reader<'_>>) -> Result<usize, Errno>;
    /// Makes the descriptor readable for the next completion, unless there is one.
    fn arm(&self) -> Result<Armed, Errno>;
    fn descriptor(&self) -> Result<BorrowedFd<'_>, Errno>;
}

/// See above.
pub(crate) struct Completions {
    domain: fabric::Domain,
    /// Entries that may wait here unread.
    size: usize,
    /// No one reads it: only counters count what is taken.
    is_unread: bool,
    state: Mutex<CompletionState>,
    inbox: Mutex<Inbox>,
    /// Completions that are here, and in the inbox, as of the last change.
    here: AtomicUsize,
    in_inbox: AtomicUsize,
    wait: Option<WaitFd>,
    signaled: AtomicBool,
}

struct CompletionState {
    parts: Vec<Part>,
    feeds: Vec<Arc<dyn Feed>>,
    /// The endpoints that are there. The completions of others are dropped: an application frees their contexts when it has
    /// closed an endpoint (`fi_endpoint(3)`: closing discards what is outstanding).
    live: BTreeMap<EndpointId, Tally>,
    ready: VecDeque<Done>,
    taken: Vec<Completion>,
    idle: Idle,
}

impl CompletionState {
    /// Whether nothing waits where completions come from; then the next one makes a descriptor of those readable.
    fn arm(&self, manual: bool) -> Result<bool, Errno> {
        for part in &self.parts {
            let queue = &part.queue;
            if (if manual { queue.arm_manual()? } else { queue.arm()? }) == Armed::Ready {
                return Ok(false);
            }
        }
        for feed in &self.feeds {
            if feed.arm()? == Armed::Ready {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// What others than the reader have found.
#[derive(Default)]
struct Inbox {
    ready: VecDeque<Done>,
    /// The wait object is readable.
    is_woken: bool,
}

/// A queue that a thread has locked.
pub(crate) struct Reader<'a> {
    queue: &'a Completions,
    ready: &'a mut VecDeque<Done>,
}

impl Reader<'_> {
    /// Whether it has this queue.
    #[inline]
    pub(crate) fn has(&self, queue: &Completions) -> bool {
        std::ptr::eq(self.queue, queue)
    }

    /// What others have found before goes before what this one finds.
    #[inline]
    pub(crate) fn empty_inbox(&mut self) {
        self.queue.empty_inbox(self.ready);
    }

    #[inline]
    pub(crate) fn push(&mut self, done: Done) {
        if !self.queue.is_unread {
            self.ready.push_back(done);
            self.queue.note(self.ready);
        }
    }
}

/// A queue of ours.
#[derive(Clone)]
struct Part {
    queue: CompletionQueue,
    /// The shared receives whose completions are all that come here, of whatever endpoint.
    receives: Option<EndpointId>,
}

impl Completions {
    pub(crate) fn new(domain: &fabric::Domain, size: usize, wait: bool) -> Result<Self, Errno> {
        let state = CompletionState {
            parts: Vec::new(),
            feeds: Vec::new(),
            live: BTreeMap::new(),
            ready: VecDeque::new(),
            taken: vec![Completion::default(); BATCH],
            idle: Idle::default(),
        };
        Ok(Completions {
            domain: domain.clone(),
            size: size.max(1),
            is_unread: false,
            state: Mutex::new(state),
            inbox: Mutex::default(),
            here: AtomicUsize::new(0),
            in_inbox: AtomicUsize::new(0),
            wait: if wait { Some(WaitFd::new()?) } else { None },
            signaled: AtomicBool::new(false),
        })
    }

    /// Of endpoints that have counters only.
    pub(crate) fn unread(domain: &fabric::Domain) -> Result<Self, Errno> {
        Ok(Completions { is_unread: true, ..Self::new(domain, 1, false)? })
    }

    pub(crate) fn wait(&self) -> Option<&WaitFd> {
        self.wait.as_ref()
    }

    /// A queue of ours with room for so many completions. No other thread may bind an endpoint meanwhile.
    pub(crate) fn part(&self, room: usize) -> Result<CompletionQueue, Errno> {
        let mut state = lock(&self.state);
        let has_room = |part: &&Part| part.receives.is_none() && part.queue.room() >= room;
        if let Some(part) = state.parts.iter().find(has_room) {
            return Ok(part.queue.clone());
        }
        let max = self.domain.info().limits.cq_capacity;
        let queue = self.domain.completion_queue(self.size.clamp(1, ROOM).max(room).min(max))?;
        self.add_part(&mut state, Part { queue: queue.clone(), receives: None })?;
        Ok(queue)
    }

    /// Shared receives whose completions come here, by a queue of their own.
    pub(crate) fn shared_part(
        &self,
        attr: &SharedReceiveAttr,
    ) -> Result<SharedReceiveQueue, Errno> {
        let queue = self.domain.completion_queue(attr.depth)?;
        let receives = self.domain.shared_receive_queue_with(attr, &queue)?;
        let part = Part { queue, receives: Some(receives.id()) };
        self.add_part(&mut lock(&self.state), part)?;
        Ok(receives)
    }

    /// The queue of shared receives is gone: what it left is to be read, or else all of it is dropped.
    pub(crate) fn end_shared(&self, receives: EndpointId, reports: bool) {
        let mut state = lock(&self.state);
        if reports {
            while self.take(&mut state).is_ok_and(|taken| taken > 0) {}
            self.settle(&state);
        } else {
            state.ready.retain(|done| !done.endpoint.is_of_shared(receives));
            self.note(&state.ready);
        }
        state.parts.retain(|part| part.receives != Some(receives));
    }

    fn add_part(&self, state: &mut CompletionState, part: Part) -> Result<(), Errno> {
        if state.parts.len() == MAX_PARTS {
            return Err(Errno::NO_MEMORY);
        }
        if let Some(wait) = &self.wait {
            wait.add(part.queue.as_fd())?;
        }
        state.parts.push(part);
        // A thread that sleeps has not armed this one.
        self.wake(&mut lock(&self.inbox));
        Ok(())
    }

    pub(crate) fn add_endpoint(&self, id: EndpointId, tally: Tally) {
        lock(&self.state).live.insert(id, tally);
    }

    /// Drops all that is left of an endpoint, and all that comes.
    pub(crate) fn remove_endpoint(&self, id: EndpointId) {
        let mut state = lock(&self.state);
        state.live.remove(&id);
        state.ready.retain(|done| done.endpoint != Whose::Message(id));
        self.note(&state.ready);
    }

    /// Completions come from there as well.
    pub(crate) fn add_feed(&self, feed: Arc<dyn Feed>) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        if let Some(wait) = &self.wait {
            wait.add(feed.descriptor()?)?;
        }
        state.feeds.push(feed);
        // A thread that sleeps has not armed this one.
        self.wake(&mut lock(&self.inbox));
        Ok(())
    }

    /// No more come from there, and what has come from that endpoint is dropped.
    pub(crate) fn remove_feed(&self, feed: &Arc<dyn Feed>, whose: Whose) {
        let mut state = lock(&self.state);
        state.feeds.retain(|known| !Arc::ptr_eq(known, feed));
        self.empty_inbox(&mut state.ready);
        state.ready.retain(|done| done.endpoint != whose);
        self.note(&state.ready);
    }

    /// Completions that may come before what is here is read.
    pub(crate) fn room(&self) -> usize {
        // Those that no one reads take no place.
        if self.is_unread {
            return BATCH;
        }
        self.size.saturating_sub(self.unread_entries())
    }

    /// Completions beyond its size.
    #[inline]
    pub(crate) fn excess(&self) -> usize {
        self.unread_entries().saturating_sub(self.size)
    }

    #[inline]
    fn unread_entries(&self) -> usize {
        self.here.load(Ordering::Relaxed) + self.in_inbox.load(Ordering::Relaxed)
    }

    /// So much is here, now that it has changed.
    #[inline]
    fn note(&self, ready: &VecDeque<Done>) {
        self.here.store(ready.len(), Ordering::Relaxed);
    }

    /// Puts a completion behind what is here, for a reader that may be another thread.
    pub(crate) fn push(&self, done: Done) {
        if self.is_unread {
            return;
        }
        let mut inbox = lock(&self.inbox);
        inbox.ready.push_back(done);
        self.in_inbox.store(inbox.ready.len(), Ordering::Release);
        self.wake(&mut inbox);
    }

    /// Puts what is in the inbox behind what is here.
    #[inline]
    fn empty_inbox(&self, ready: &mut VecDeque<Done>) {
        if self.in_inbox.load(Ordering::Acquire) > 0 {
            let mut inbox = lock(&self.inbox);
            ready.append(&mut inbox.ready);
            self.note(ready);
            self.in_inbox.store(0, Ordering::Release);
        }
    }

    /// Takes completions from all feeds; how many.
    fn feed(&self, state: &mut CompletionState) -> Result<usize, Errno> {
        let CompletionState { feeds, ready, .. } = state;
        let mut reader = Reader { queue: self, ready };
        feeds.iter().try_fold(0, |count, feed| Ok(count + feed.feed(Some(&mut reader))?))
    }

    /// What is here, after a look at where it comes from if there was nothing.
    fn fill(&self) -> Result<MutexGuard<'_, CompletionState>, Errno> {
        let mut state = lock(&self.state);
        self.empty_inbox(&mut state.ready);
        // A program that sleeps has every read look, and reads until it has found nothing.
        let looks = state.idle.is_worth_a_look() || self.wait.is_some();
        if looks && state.ready.is_empty() {
            if !state.parts.is_empty() {
                self.take(&mut state)?;
            }
            // Whatever was there: endpoints of one kind do not keep those of the other waiting.
            self.feed(&mut state)?;
        }
        Ok(state)
    }

    /// Whether there are completions of an endpoint that were not read. Receives that the end of its connection canceled do not
    /// count: they say no more than the event of that, and many programs do not read them.
    pub(crate) fn has_unread(&self, id: EndpointId) -> bool {
        let is_canceled = |done: &Done| {
            done.flags & FI_RECV != 0 && matches!(done.error, Some((Errno::CANCELED, _)))
        };
        lock(&self.state)
            .ready
            .iter()
            .any(|done| done.endpoint.is_message_of(id) && !is_canceled(done))
    }

    /// Reads up to `count` completions; `FI_EAVAIL` if the next one is an error, `FI_EAGAIN` if there is none.
    pub(crate) fn read(
        &self,
        count: usize,
        mut put: impl FnMut(usize, &Done),
    ) -> Result<usize, Errno> {
        let mut state = self.fill()?;
        let is_failed = |done: &Done| done.error.is_some();
        if state.ready.front().is_some_and(is_failed) {
            return Err(Errno(FI_EAVAIL));
        }
        let is_empty = state.ready.is_empty();
        let mut read = 0;
        while read < count
            && let Some(done) = state.ready.front().filter(|done| !is_failed(done))
        {
            put(read, done);
            state.ready.pop_front();
            read += 1;
        }
        self.note(&state.ready);
        self.settle(&state);
        // Where an error is next, there is more.
        let found = if state.ready.is_empty() { read } else { count };
        let yields = state.idle.after_look(count, found);
        drop(state);
        if yields {
            std::thread::yield_now();
        }
        if is_empty { Err(Errno::AGAIN) } else { Ok(read) }
    }

    /// Takes the error that is next, if it is one.
    pub(crate) fn read_error(&self) -> Option<Done> {
        let mut state = self.fill().ok()?;
        state.ready.front()?.error?;
        let done = state.ready.pop_front();
        self.note(&state.ready);
        self.settle(&state);
        done
    }

    /// Takes completions from our queues, so that what they hold is let go, as long as there is a place for them here.
    pub(crate) fn drain(&self) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        while state.ready.len() < self.size && self.take(&mut state)? > 0 {}
        let fed = loop {
            match self.feed(&mut state) {
                Ok(1..) => {}
                fed => break fed.map(drop),
            }
        };
        self.settle(&state);
        fed
    }

    /// Prepares to sleep; whether there is nothing to be read. For a thread that reads as soon as it is woken, `manual`.
    pub(crate) fn arm(&self, manual: bool) -> Result<bool, Errno> {
        let state = lock(&self.state);
        if self.has_some(&state, &lock(&self.inbox)) {
            // A program that sleeps on the descriptor hears of a signal here, once.
            if !manual && self.signaled.swap(false, Ordering::AcqRel) {
                self.settle(&state);
            }
            return Ok(false);
        }
        state.arm(manual)
    }

    /// Sleeps until more may have come to one of these queues than what is here already, the time has come, or the thread is
    /// signaled.
    pub(crate) fn sleep_for_more(queues: &[Arc<Completions>], until: Instant) -> Result<(), Errno> {
        let (mut parts, mut feeds) = (Vec::new(), Vec::new());
        let mut is_armed = true;
        for queue in queues {
            let state = lock(&queue.state);
            is_armed &= state.arm(true)?;
            parts.extend(state.parts.iter().cloned());
            feeds.extend(state.feeds.iter().cloned());
        }
        if !is_armed && queues.iter().all(|queue| queue.room() > 0) {
            return Ok(());
        }
        let parts = parts.iter().map(|part| Ok(part.queue.as_fd()));
        // One that is full leaves where it comes from what it has no place for.
        let fds = parts.chain(feeds.iter().map(|feed| feed.descriptor())).filter(|_| is_armed);
        let polled = |fd: Result<_, Errno>| Ok(PollFd::from_borrowed_fd(fd?, PollFlags::IN));
        let mut fds = fds.map(polled).collect::<Result<Vec<_>, Errno>>()?;
        sleep_on(&mut fds, Some(until)).map(drop)
    }

    /// Ends the sleep of a thread, or the next one.
    pub(crate) fn signal(&self) {
        self.signaled.store(true, Ordering::Release);
        self.wake(&mut lock(&self.inbox));
    }

    /// Whether there was a signal; once.
    pub(crate) fn take_signal(&self) -> bool {
        let signaled = self.signaled.swap(false, Ordering::AcqRel);
        if signaled {
            self.settle(&lock(&self.state));
        }
        signaled
    }

    fn wake(&self, inbox: &mut Inbox) {
        if let Some(wait) = &self.wait
            && !std::mem::replace(&mut inbox.is_woken, true)
        {
            wait.set();
        }
    }

    /// Whether there is something to be read, or a signal.
    fn has_some(&self, state: &CompletionState, inbox: &Inbox) -> bool {
        !state.ready.is_empty() || !inbox.ready.is_empty() || self.signaled.load(Ordering::Acquire)
    }

    /// Makes the wait object readable if something is left, and else quiet.
    fn settle(&self, state: &CompletionState) {
        let Some(wait) = &self.wait else { return };
        let mut inbox = lock(&self.inbox);
        match self.has_some(state, &inbox) {
            true => self.wake(&mut inbox),
            false if std::mem::take(&mut inbox.is_woken) => wait.clear(),
            false => {}
        }
    }

    /// Takes a batch from each queue of ours; how many there were.
    fn take(&self, state: &mut CompletionState) -> Result<usize, Errno> {
        let CompletionState { parts, live, ready, taken, .. } = state;
        let mut count = 0;
        for part in parts {
            let here = part.queue.poll(taken)?;
            count += here;
            for completion in &taken[..here] {
                let endpoint = completion.endpoint;
                let (tally, whose) = match (live.get(&endpoint), part.receives) {
                    (tally, Some(receives)) => (tally, Whose::Shared { receives, endpoint }),
                    (Some(tally), None) => (Some(tally), Whose::Message(endpoint)),
                    (None, None) => continue,
                };
                if let Some(tally) = tally {
                    tally.add(completion.kind, completion.is_ok());
                }
                if !self.is_unread {
                    ready.extend(done(completion, whose));
                }
            }
        }
        self.note(ready);
        Ok(count)
    }
}
