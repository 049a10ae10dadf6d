//! Steps over the hot connections.

use std::sync::Arc;
use std::time::Duration;

use super::turns::{Turns, Work};
use crate::adversary::Whims;
use crate::conn::Step;

/// Bytes that are read at a time when they are not read where they belong.
const SCRATCH: usize = 64 << 10;
/// A poller looks at the selector every so many steps.
const LOOK: u32 = 32;
/// Reads without success after which a connection cools, when there are few hot ones and when many.
const PATIENCE_FEW: u32 = if cfg!(loom) { 0 } else { 512 };
const PATIENCE_MANY: u32 = 2;
const FEW: usize = 4;

/// The hot connections, each with the number of reads that found nothing, and the buffer they share.
pub(super) struct Drive<C> {
    hot: Vec<(Arc<C>, u32)>,
    scratch: Box<[u8]>,
    turn: u32,
    /// Tests only: the adversary's choices.
    whims: Option<Whims>,
}

impl<C> Drive<C> {
    pub(super) fn new(whims: Option<Whims>) -> Self {
        Drive { hot: Vec::new(), scratch: vec![0; SCRATCH].into(), turn: 0, whims }
    }

    /// Lets go of every connection.
    pub(super) fn clear(&mut self) {
        self.hot.clear();
    }

    /// Tests only: how long the thread sleeps before it looks whether the application still polls.
    pub(super) fn late(&mut self, tick: Duration) -> Duration {
        let times = self.whims.as_mut().map_or(0, |whims| whims.below(8));
        tick * (1 + times as u32)
    }

    /// Tests only: draws who is served next of those behind `at`; false: nobody, this time.
    #[cold]
    fn draw(&mut self, at: usize) -> bool {
        let Some(whims) = &mut self.whims else { return true };
        if at < self.hot.len() {
            let other = at + whims.below(self.hot.len() - at);
            self.hot.swap(at, other);
        }
        at > 0 || !whims.once_in(3)
    }

    fn absorb(&mut self, turns: &Turns<impl Work<Conn = C>>) {
        turns.take_heated(|conn| self.hot.push((conn, 0)));
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
        let patience = if self.hot.len() > FEW { PATIENCE_MANY } else { PATIENCE_FEW };
        let mut at = 0;
        loop {
            if self.whims.is_some() && !self.draw(at) {
                break;
            }
            let Some((conn, misses)) = self.hot.get_mut(at) else { break };
            W::heat(conn).begin();
            match work.step(conn, &mut self.scratch, false) {
                Step::Quiet => *misses += 1,
                Step::Dry | Step::More => *misses = 0,
                Step::Over => *misses = u32::MAX,
            }
            if *misses > patience {
                let (conn, _) = self.hot.swap_remove(at);
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
        let mut at = 0;
        loop {
            if self.whims.is_some() {
                self.draw(at);
            }
            let Some((conn, _)) = self.hot.get_mut(at) else { break };
            W::heat(conn).begin();
            match work.step(conn, &mut self.scratch, true) {
                Step::More => at += 1,
                _ => {
                    let (conn, _) = self.hot.swap_remove(at);
                    if W::heat(&conn).cool() {
                        turns.heat(&conn);
                    }
                }
            }
        }
        at > 0 || turns.has_heated()
    }
}
