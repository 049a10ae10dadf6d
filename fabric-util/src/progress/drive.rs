//! Steps over the hot connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::schedule::{Hold, Schedule};
use super::step::Step;
use super::turns::{Turns, Work};
use crate::stream::PutOff;

/// Bytes that are read at a time when they are not read where they belong.
const SCRATCH: usize = 64 << 10;
/// A poller looks at the selector every so many steps.
const LOOK: u32 = 32;
/// Reads without success after which a connection cools, when there are few hot ones and when many.
const PATIENCE_FEW: u32 = if cfg!(loom) { 0 } else { 512 };
const PATIENCE_MANY: u32 = 2;
const FEW: usize = 4;

/// The pause of the thread where everything that it has to do is held back.
const HELD_PAUSE: Duration = Duration::from_micros(50);

/// A hot connection.
struct Hot<C> {
    conn: Arc<C>,
    /// Reads in a row that found nothing.
    misses: u32,
    /// What the schedule holds back, and until when.
    held: Option<(Hold, Instant)>,
}

impl<C> Hot<C> {
    /// What is put off in the next step; `None`: all of it is.
    #[cold]
    fn draw_hold(&mut self, schedule: &dyn Schedule) -> Option<PutOff> {
        if self.held.is_some_and(|(_, until)| until <= Instant::now()) {
            self.held = None;
        }
        if self.held.is_none() && self.misses == 0 {
            self.held = schedule.hold().map(|(what, time)| (what, Instant::now() + time));
        }
        match self.held {
            None => Some(PutOff::default()),
            Some((Hold::Frames(frames), _)) => Some(frames),
            Some((Hold::Connection, _)) => None,
        }
    }
}

/// The hot connections, and the buffer they share.
pub(super) struct Drive<C> {
    hot: Vec<Hot<C>>,
    scratch: Box<[u8]>,
    turn: u32,
}

impl<C> Drive<C> {
    pub(super) fn new() -> Self {
        Drive { hot: Vec::new(), scratch: vec![0; SCRATCH].into(), turn: 0 }
    }

    /// Lets go of every connection.
    pub(super) fn clear(&mut self) {
        self.hot.clear();
    }

    /// Has the schedule choose the connection that is served next, and what is put off then; `None`: it is left alone, or
    /// there is none.
    #[cold]
    fn choose(&mut self, schedule: &dyn Schedule, at: usize) -> Option<PutOff> {
        if at == self.hot.len() {
            return None;
        }
        let other = at + schedule.pick(self.hot.len() - at);
        self.hot.swap(at, other);
        self.hot[at].draw_hold(schedule)
    }

    fn absorb(&mut self, turns: &Turns<impl Work<Conn = C>>) {
        turns.take_heated(|conn| self.hot.push(Hot { conn, misses: 0, held: None }));
    }

    /// A step for an application that polls: what came is executed, what is due waits for the next step if it
    /// can, because the application may be about to send something that it can ride on.
    pub(super) fn inline<W: Work<Conn = C>>(&mut self, turns: &Turns<W>, work: &W) {
        turns.begin_step();
        self.turn = self.turn.wrapping_add(1);
        if self.hot.is_empty() || self.turn.is_multiple_of(LOOK) {
            turns.look(work);
        }
        self.absorb(turns);
        if turns.schedule().is_some_and(|schedule| schedule.skips_poll()) {
            return;
        }
        let patience = if self.hot.len() > FEW { PATIENCE_MANY } else { PATIENCE_FEW };
        let mut at = 0;
        while at < self.hot.len() {
            let put_off = match turns.schedule() {
                None => PutOff::default(),
                Some(schedule) => match self.choose(schedule, at) {
                    Some(put_off) => put_off,
                    None => {
                        at += 1;
                        continue;
                    }
                },
            };
            let Hot { conn, misses, held } = &mut self.hot[at];
            W::heat(conn).begin();
            match work.step(conn, &mut self.scratch, false, put_off) {
                Step::Quiet => *misses += 1,
                Step::Dry | Step::More => *misses = 0,
                Step::Over => *misses = u32::MAX,
            }
            if *misses > patience && held.is_none() {
                let Hot { conn, .. } = self.hot.swap_remove(at);
                if W::heat(&conn).cool() {
                    turns.heat_from_outside(&conn);
                }
            } else {
                at += 1;
            }
        }
    }

    /// A step for the thread: everything that is due goes out. Says whether more is to be done at once.
    pub(super) fn background<W: Work<Conn = C>>(&mut self, turns: &Turns<W>, work: &W) -> bool {
        turns.begin_step();
        self.absorb(turns);
        let (mut at, mut more) = (0, turns.schedule().is_none());
        while at < self.hot.len() {
            let put_off = match turns.schedule() {
                None => PutOff::default(),
                Some(schedule) => match self.choose(schedule, at) {
                    Some(put_off) => put_off,
                    None => {
                        at += 1;
                        continue;
                    }
                },
            };
            let Hot { conn, held, .. } = &mut self.hot[at];
            W::heat(conn).begin();
            match work.step(conn, &mut self.scratch, true, put_off) {
                Step::More => (at, more) = (at + 1, true),
                _ if held.is_some() => at += 1,
                _ => {
                    let Hot { conn, .. } = self.hot.swap_remove(at);
                    if W::heat(&conn).cool() {
                        turns.heat(&conn);
                    }
                }
            }
        }
        if at > 0 && !more {
            std::thread::sleep(HELD_PAUSE);
        }
        at > 0 || turns.has_heated()
    }
}
