//! Making a program smaller that the contract and a provider disagree about.
//!
//! Delta debugging (Zeller and Hildebrandt 2002) over the program's data: parts are left out, larger ones first, then
//! what is left is made simpler, as long as some disagreement remains. Providers are not deterministic, so each
//! candidate has a few tries. What is simpler, each kind of program knows itself.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::testbed::Disagreement;

/// Tries of each candidate.
const TRIES: usize = 3;

/// What can be made smaller: a list of steps, and what else there is.
pub trait Shrink: Clone + PartialEq {
    /// How many steps it has.
    fn count(&self) -> usize;

    /// Leaves out some of the steps.
    fn leave_out(&mut self, steps: Range<usize>);

    /// Tries programs that are simpler otherwise.
    fn simplify<F: FnMut(&Self) -> Result<(), Disagreement>>(search: &mut Search<Self, F>);
}

/// Shrinks a program that `run` disagrees with, for about as long as `time`; gives the smallest that was found, and
/// what it showed.
pub fn shrink<P: Shrink>(
    program: P,
    seen: Disagreement,
    time: Duration,
    run: impl FnMut(&P) -> Result<(), Disagreement>,
) -> (P, Disagreement) {
    let until = Instant::now() + time;
    let mut search = Search { best: program, seen, until, run };
    loop {
        let before = search.best.clone();
        search.steps();
        P::simplify(&mut search);
        if search.best == before || Instant::now() >= until {
            return (search.best, search.seen);
        }
    }
}

/// A search under way.
#[derive(Debug)]
pub struct Search<P, F> {
    /// The smallest program so far.
    pub best: P,
    seen: Disagreement,
    until: Instant,
    run: F,
}

impl<P: Shrink, F: FnMut(&P) -> Result<(), Disagreement>> Search<P, F> {
    /// Takes the candidate if it still shows a disagreement.
    pub fn take(&mut self, candidate: P) -> bool {
        if candidate == self.best {
            return false;
        }
        for _ in 0..TRIES {
            if Instant::now() >= self.until {
                return false;
            }
            if let Err(seen) = (self.run)(&candidate) {
                (self.best, self.seen) = (candidate, seen);
                return true;
            }
        }
        false
    }

    /// The smallest so far, with a change.
    pub fn changed(&self, change: impl FnOnce(&mut P)) -> P {
        let mut program = self.best.clone();
        change(&mut program);
        program
    }

    /// Leaves out steps: halves, quarters, and so on.
    fn steps(&mut self) {
        let mut size = self.best.count().div_ceil(2);
        while size > 0 {
            let mut at = self.best.count();
            while at > 0 {
                at = at.saturating_sub(size);
                let end = (at + size).min(self.best.count());
                let candidate = self.changed(|program| program.leave_out(at..end));
                self.take(candidate);
            }
            size /= 2;
        }
    }
}
