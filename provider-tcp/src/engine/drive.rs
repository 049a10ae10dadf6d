//! Steps over the hot connections.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Engine, lock};
use crate::conn::{Conn, Step};

/// Bytes that are read at a time when they are not read where they belong.
const SCRATCH: usize = 64 << 10;
/// A poller looks at the selector every so many steps.
const LOOK: u32 = 32;
/// Reads without success after which a connection cools, when there are few hot ones and when many.
const PATIENCE_FEW: u32 = 512;
const PATIENCE_MANY: u32 = 2;
const FEW: usize = 4;

/// The hot connections, each with the number of reads that found nothing, and the buffer they share.
pub(super) struct Drive {
    hot: Vec<(Arc<Conn>, u32)>,
    scratch: Box<[u8]>,
    turn: u32,
}

impl Drive {
    pub(super) fn new() -> Self {
        Drive { hot: Vec::new(), scratch: vec![0; SCRATCH].into(), turn: 0 }
    }

    fn absorb(&mut self, engine: &Engine) {
        if engine.has_heated.swap(false, Ordering::AcqRel) {
            self.hot.extend(lock(&engine.heated).drain(..).map(|conn| (conn, 0)));
        }
    }

    /// A step for an application that polls: what came is executed, what is due waits for the next step if it
    /// can, because the application may be about to send something that it can ride on.
    pub(super) fn inline(&mut self, engine: &Engine) {
        self.turn = self.turn.wrapping_add(1);
        if (self.hot.is_empty() || self.turn.is_multiple_of(LOOK))
            && let Ok(mut selector) = engine.selector.try_lock()
        {
            engine.select(&mut selector, Some(Duration::ZERO));
        }
        self.absorb(engine);
        let patience = if self.hot.len() > FEW { PATIENCE_MANY } else { PATIENCE_FEW };
        let mut at = 0;
        while let Some((conn, misses)) = self.hot.get_mut(at) {
            match conn.step(engine, &mut self.scratch, false) {
                Step::Quiet => *misses += 1,
                Step::Dry | Step::More => *misses = 0,
                Step::Over => *misses = u32::MAX,
            }
            if *misses > patience {
                let (conn, _) = self.hot.swap_remove(at);
                cool(engine, &conn);
            } else {
                at += 1;
            }
        }
    }

    /// A step for the thread: everything that is due goes out. Says whether more is to be done at once.
    pub(super) fn background(&mut self, engine: &Engine) -> bool {
        self.absorb(engine);
        let mut at = 0;
        while let Some((conn, _)) = self.hot.get_mut(at) {
            match conn.step(engine, &mut self.scratch, true) {
                Step::More => at += 1,
                _ => {
                    let (conn, _) = self.hot.swap_remove(at);
                    cool(engine, &conn);
                }
            }
        }
        at > 0 || engine.has_heated.load(Ordering::Acquire)
    }
}

/// Takes a connection off the hot list, unless the selector has just named it.
fn cool(engine: &Engine, conn: &Arc<Conn>) {
    if conn.cool() {
        engine.heat(conn);
    }
}
