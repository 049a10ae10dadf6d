//! Steps over the ready connections.
//!
//! A connection's turn is bounded, and may end though there is more to do: then it was a long one. All connections from one
//! network have one of those in a step, so that a peer with many gets no more of the thread than one with a single connection;
//! unless all that are ready are of one network.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric_core::{cold_path, unlikely};

use super::event_loop::{EventLoop, Mode, Progress};
use super::ready_list::{ReadyList, Source};
use super::schedule::{Hold, Schedule};
use crate::completion_ring::Outbox;
use crate::fair_table::Network;
use crate::stream::Deferral;

/// Bytes that are read at a time when they are not read where they belong.
const SCRATCH: usize = 64 << 10;
/// Reads without success after which a connection is no longer ready, when many are.
const PATIENCE_MANY: u32 = 2;
/// The pause of the thread where everything that it has to do is held back.
const HELD_PAUSE: Duration = Duration::from_micros(50);

/// A ready connection.
struct Ready<S> {
    source: Arc<S>,
    /// Reads in a row that found nothing.
    misses: u32,
    /// What the schedule holds back, and until when.
    held: Option<(Hold, Instant)>,
    /// The step in which it had its last long turn.
    last_long: u64,
    /// Turns that pollers had of it, and did not leave it to the selector behind.
    turns: u32,
}

impl<S> Ready<S> {
    fn new(source: Arc<S>) -> Self {
        Ready { source, misses: 0, held: None, last_long: 0, turns: 0 }
    }

    /// What is put off in the next step; `None`: all of it is.
    #[cold]
    fn draw_hold(&mut self, schedule: &dyn Schedule) -> Option<Deferral> {
        if self.held.is_some_and(|(_, until)| until <= Instant::now()) {
            self.held = None;
        }
        if self.held.is_none() && self.misses == 0 {
            self.held = schedule.hold().map(|(what, time)| (what, Instant::now() + time));
        }
        match self.held {
            None => Some(Deferral::default()),
            Some((Hold::Frames(frames), _)) => Some(frames),
            Some((Hold::Connection, _)) => None,
        }
    }
}

/// What became of a step while an application polls.
#[derive(Clone, Copy, Default)]
pub(super) struct Polled {
    /// A connection became ready again that had been taken from the list.
    pub(super) again: bool,
    /// One was left to the thread that has it locked.
    pub(super) left: bool,
}

/// The ready connections, and the buffer they share.
pub(super) struct Stepper<S> {
    ready: Vec<Ready<S>>,
    scratch: Box<[u8]>,
    steps: u64,
    /// Turns since events were taken.
    turns: u64,
    /// The networks that had a long turn in this step.
    busy: HashSet<Network>,
    /// Some connections had no turn in it for that reason.
    put_off: bool,
}

impl<S: Source> Stepper<S> {
    pub(super) fn new() -> Self {
        let scratch = vec![0; SCRATCH].into();
        let busy = HashSet::new();
        Stepper { ready: Vec::new(), scratch, steps: 0, turns: 0, busy, put_off: false }
    }

    /// Drops every connection.
    pub(super) fn clear(&mut self) {
        self.ready.clear();
    }

    /// A poller's step begins; says whether it takes events from the selector first: if there is nothing else, or behind so
    /// many turns of connections. (Behind so many steps one that is not ready would wait the longer the more others are.)
    #[inline]
    pub(super) fn wants_events(&mut self, every: u64) -> bool {
        self.turns += self.ready.len() as u64;
        let wants = self.ready.is_empty() || self.turns >= every;
        if wants {
            self.turns = 0;
        }
        wants
    }

    /// A step while an application polls.
    pub(super) fn poll<L: EventLoop<Source = S>>(
        &mut self,
        list: &ReadyList<S>,
        schedule: Option<&dyn Schedule>,
        event_loop: &L,
        (mode, outbox): (Mode, &mut Outbox<'_>),
    ) -> Polled {
        self.begin(list);
        let mut polled = Polled::default();
        if schedule.is_some_and(skips_poll) {
            return polled;
        }
        let few = self.ready.len() <= L::FEW;
        let patience = match few {
            false => PATIENCE_MANY,
            true if cfg!(loom) => 0,
            true => L::PATIENCE,
        };
        let mut at = 0;
        while at < self.ready.len() {
            let Some(progress) = self.serve(at, (mode, outbox), schedule, event_loop) else {
                at += 1;
                continue;
            };
            let ready = &mut self.ready[at];
            ready.misses = match progress {
                Progress::Drained | Progress::More => 0,
                Progress::Idle => ready.misses.saturating_add(1),
                Progress::Closed => {
                    cold_path();
                    u32::MAX
                }
                Progress::Locked => {
                    cold_path();
                    (at, polled.left) = (at + 1, true);
                    continue;
                }
            };
            if ready.misses > patience && ready.held.is_none() {
                cold_path();
                polled.again |= self.remove(at, list, event_loop);
                continue;
            }
            ready.turns = ready.turns.wrapping_add(1);
            if unlikely(ready.turns.is_multiple_of(L::DISARMED_AFTER)) && few {
                event_loop.disarm(&ready.source);
            }
            at += 1;
        }
        self.end();
        polled
    }

    /// A step for the thread. Returns whether there is more to do at once.
    pub(super) fn run(
        &mut self,
        list: &ReadyList<S>,
        schedule: Option<&dyn Schedule>,
        event_loop: &impl EventLoop<Source = S>,
    ) -> bool {
        self.begin(list);
        let (mut at, mut all_held) = (0, schedule.is_some());
        while at < self.ready.len() {
            let outbox = &mut Outbox::none();
            match self.serve(at, (Mode::Unattended, outbox), schedule, event_loop) {
                Some(Progress::More) => (at, all_held) = (at + 1, false),
                Some(_) if self.ready[at].held.is_none() => _ = self.remove(at, list, event_loop),
                _ => at += 1,
            }
        }
        self.end();
        if all_held && at > 0 {
            std::thread::sleep(HELD_PAUSE);
        }
        at > 0 || !list.is_empty()
    }

    /// A step begins.
    #[inline]
    fn begin(&mut self, list: &ReadyList<S>) {
        self.steps += 1;
        list.take(|source| self.ready.push(Ready::new(source)));
    }

    /// A step ends. Those that had no turn for the sake of others are the first in the next one.
    #[inline]
    fn end(&mut self) {
        if !self.busy.is_empty() {
            cold_path();
            self.busy.clear();
            if std::mem::take(&mut self.put_off) {
                self.ready.sort_by_key(|ready| ready.last_long);
            }
        }
    }

    /// Serves one connection; `None`: it is left alone.
    #[inline]
    fn serve(
        &mut self,
        at: usize,
        (mode, outbox): (Mode, &mut Outbox<'_>),
        schedule: Option<&dyn Schedule>,
        event_loop: &impl EventLoop<Source = S>,
    ) -> Option<Progress> {
        if schedule.is_some_and(|schedule| !self.choose(at, schedule, event_loop)) {
            return None;
        }
        if !self.busy.is_empty() && self.is_put_off(at) {
            return None;
        }
        let source = &self.ready[at].source;
        source.ready_flag().begin();
        let progress = event_loop.progress(source, &mut self.scratch, mode, outbox);
        if progress == Progress::More && self.ready.len() > 1 {
            self.note_long(at);
        }
        Some(progress)
    }

    /// Whether its network had a long turn in this step.
    #[cold]
    fn is_put_off(&mut self, at: usize) -> bool {
        let put_off = self.ready[at].source.network().is_some_and(|of| self.busy.contains(&of));
        self.put_off |= put_off;
        put_off
    }

    #[cold]
    fn note_long(&mut self, at: usize) {
        let ready = &mut self.ready[at];
        ready.last_long = self.steps;
        let network = ready.source.network();
        if !self.busy.is_empty() || self.ready.iter().any(|other| other.source.network() != network)
        {
            self.busy.extend(network);
        }
    }

    /// Has the schedule choose which connection is served at this place, and what is put off; false: it is left alone.
    #[cold]
    fn choose(
        &mut self,
        at: usize,
        schedule: &dyn Schedule,
        event_loop: &impl EventLoop<Source = S>,
    ) -> bool {
        let other = at + schedule.pick(self.ready.len() - at);
        self.ready.swap(at, other);
        let Some(deferral) = self.ready[at].draw_hold(schedule) else { return false };
        event_loop.defer(&self.ready[at].source, deferral);
        true
    }

    /// Takes a connection from the list. If something came up meanwhile it becomes ready again; says whether it did.
    #[inline(never)]
    fn remove(
        &mut self,
        at: usize,
        list: &ReadyList<S>,
        event_loop: &impl EventLoop<Source = S>,
    ) -> bool {
        let Ready { source, .. } = self.ready.swap_remove(at);
        let noted = source.ready_flag().clear();
        (event_loop.arm(&source) || noted) && list.push(&source)
    }
}

/// Only tests have a schedule.
#[cold]
fn skips_poll(schedule: &dyn Schedule) -> bool {
    schedule.skips_poll()
}
