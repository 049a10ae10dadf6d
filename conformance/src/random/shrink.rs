//! Making a program smaller that the contract and a provider disagree about.
//!
//! Delta debugging (Zeller and Hildebrandt 2002) over the program's data: parts are left out, larger ones first, then
//! what is left is made simpler, as long as some disagreement remains. Providers are not deterministic, so each
//! candidate has a few tries.

use std::time::{Duration, Instant};

use super::program::{Local, OpSpec, Part, Program, Step, What};
use super::testbed::Disagreement;

/// Tries of each candidate.
const TRIES: usize = 3;

/// Shrinks a program that `run` disagrees with, for about as long as `time`; gives the smallest that was found, and
/// what it showed.
pub fn shrink(
    program: Program,
    seen: Disagreement,
    time: Duration,
    run: impl FnMut(&Program) -> Result<(), Disagreement>,
) -> (Program, Disagreement) {
    let until = Instant::now() + time;
    let mut search = Search { best: program, seen, until, run };
    loop {
        let before = search.best.clone();
        search.steps();
        search.leave_out_unused();
        search.parts_of_steps();
        search.operations();
        search.ends();
        search.leave_out_unused();
        if search.best == before || Instant::now() >= until {
            return (search.best, search.seen);
        }
    }
}

struct Search<F> {
    best: Program,
    seen: Disagreement,
    until: Instant,
    run: F,
}

impl<F: FnMut(&Program) -> Result<(), Disagreement>> Search<F> {
    /// Takes the candidate if it still shows a disagreement.
    fn take(&mut self, candidate: Program) -> bool {
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

    fn changed(&self, change: impl FnOnce(&mut Program)) -> Program {
        let mut program = self.best.clone();
        change(&mut program);
        program
    }

    /// Leaves out steps: halves, quarters, and so on.
    fn steps(&mut self) {
        let mut size = self.best.steps.len().div_ceil(2);
        while size > 0 {
            let mut at = self.best.steps.len();
            while at > 0 {
                at = at.saturating_sub(size);
                let end = (at + size).min(self.best.steps.len());
                let candidate = self.changed(|program| _ = program.steps.drain(at..end));
                self.take(candidate);
            }
            size /= 2;
        }
    }

    /// Leaves out operations and receives of a step.
    fn parts_of_steps(&mut self) {
        for at in (0..self.best.steps.len()).rev() {
            let count = match &self.best.steps[at] {
                Step::Post { ops, .. } => ops.len(),
                Step::Receive { recvs, .. } | Step::Share { recvs, .. } => recvs.len(),
                _ => 0,
            };
            for part in (0..count).rev().filter(|_| count > 1) {
                let candidate = self.changed(|program| match &mut program.steps[at] {
                    Step::Post { ops, .. } => _ = ops.remove(part),
                    Step::Receive { recvs, .. } | Step::Share { recvs, .. } => {
                        _ = recvs.remove(part)
                    }
                    _ => {}
                });
                self.take(candidate);
            }
        }
    }

    /// Makes operations and receives simpler.
    fn operations(&mut self) {
        for at in 0..self.best.steps.len() {
            let count = match &self.best.steps[at] {
                Step::Post { ops, .. } => ops.len(),
                Step::Receive { recvs, .. } | Step::Share { recvs, .. } => recvs.len(),
                _ => 0,
            };
            for part in 0..count {
                for simpler in SIMPLER {
                    // Until it gets no simpler; halving a length takes a few rounds.
                    for _ in 0..24 {
                        let candidate = self.changed(|program| match &mut program.steps[at] {
                            Step::Post { ops, .. } => simpler(Item::Op(&mut ops[part])),
                            Step::Receive { recvs, .. } | Step::Share { recvs, .. } => {
                                simpler(Item::Recv(&mut recvs[part]))
                            }
                            _ => {}
                        });
                        if !self.take(candidate) {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Gives ends receives of their own.
    fn ends(&mut self) {
        for end in 0..2 * self.best.connections.len() {
            let change =
                |program: &mut Program| program.connections[end / 2][end % 2].shared = None;
            let candidate = self.changed(change);
            self.take(candidate);
        }
    }

    /// Leaves out memories, regions and connections that no step names, all at once.
    fn leave_out_unused(&mut self) {
        let candidate = self.changed(Program::leave_out_unused);
        self.take(candidate);
    }
}

/// What can be made simpler.
enum Item<'a> {
    Op(&'a mut OpSpec),
    Recv(&'a mut Vec<Part>),
}

const SIMPLER: &[fn(Item<'_>)] = &[
    |item| with_op(item, |op| op.fence = false),
    |item| with_op(item, |op| op.unsignaled = false),
    |item| with_op(item, |op| op.delivery_complete = false),
    |item| with_op(item, |op| op.immediate = None),
    |item| with_parts(item, |parts| _ = parts.pop()),
    |item| with_parts(item, |parts| parts.iter_mut().for_each(|part| part.len /= 2)),
    |item| with_parts(item, |parts| parts.iter_mut().for_each(|part| part.at = 0)),
    |item| {
        if let Item::Op(OpSpec { local: Local::Inject { len, .. }, .. }) = item {
            *len /= 2;
        }
    },
    |item| {
        if let Item::Op(OpSpec { what: What::Write(to) | What::Read(to), .. }) = item
            && to.lie.is_none()
        {
            to.at = 0;
        }
    },
];

fn with_op(item: Item<'_>, change: impl FnOnce(&mut OpSpec)) {
    if let Item::Op(op) = item {
        change(op);
    }
}

fn with_parts(item: Item<'_>, change: impl FnOnce(&mut Vec<Part>)) {
    if let Item::Op(OpSpec { local: Local::Parts(parts), .. }) | Item::Recv(parts) = item {
        change(parts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Failed;
    use crate::random::generate;

    /// As if a provider failed at every write that is longer than 100 bytes and has a fence.
    fn judge(program: &Program) -> Result<(), Disagreement> {
        let bad = |op: &OpSpec| matches!(op.what, What::Write(_)) && op.fence && op.len() > 100;
        let fails = |step: &Step| matches!(step, Step::Post { ops, .. } if ops.iter().any(bad));
        if program.steps.iter().any(fails) {
            let failed = Failed::nowhere("a planted mistake", "it");
            return Err(Disagreement { failed, trace: Vec::new() });
        }
        Ok(())
    }

    #[test]
    fn what_matters_is_left() {
        let program =
            (0..).map(|number| generate(1, number)).find(|program| judge(program).is_err());
        let program = program.unwrap();
        let seen = judge(&program).unwrap_err();
        let (small, _) = shrink(program, seen, Duration::from_secs(60), judge);
        let [Step::Post { ops, .. }] = small.steps.as_slice() else { panic!("{small}") };
        let [op] = ops.as_slice() else { panic!("{small}") };
        assert!(op.fence && !op.unsignaled && op.immediate.is_none(), "{small}");
        assert!((101..=202).contains(&op.len()), "{small}");
        assert_eq!(small.connections.len(), 1, "{small}");
        assert!(small.regions.len() <= 2, "{small}");
    }
}
