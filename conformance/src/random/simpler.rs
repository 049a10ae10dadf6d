//! What is simpler in a program of connected endpoints, when it is made smaller.

use std::ops::Range;

use super::program::{Local, OpSpec, Part, Program, Step, What};
use super::shrink::{Search, Shrink};
use super::testbed::Disagreement;

impl Shrink for Program {
    fn count(&self) -> usize {
        self.steps.len()
    }

    fn leave_out(&mut self, steps: Range<usize>) {
        self.steps.drain(steps);
    }

    fn simplify<F: FnMut(&Self) -> Result<(), Disagreement>>(search: &mut Search<Self, F>) {
        leave_out_unused(search);
        parts_of_steps(search);
        operations(search);
        ends(search);
        leave_out_unused(search);
    }
}

/// Runs a candidate.
trait Run: FnMut(&Program) -> Result<(), Disagreement> {}

impl<F: FnMut(&Program) -> Result<(), Disagreement>> Run for F {}

/// Leaves out operations and receives of a step.
fn parts_of_steps<F: Run>(search: &mut Search<Program, F>) {
    for at in (0..search.best.steps.len()).rev() {
        let count = match &search.best.steps[at] {
            Step::Post { ops, .. } => ops.len(),
            Step::Receive { recvs, .. } | Step::Share { recvs, .. } => recvs.len(),
            _ => 0,
        };
        for part in (0..count).rev().filter(|_| count > 1) {
            let candidate = search.changed(|program| match &mut program.steps[at] {
                Step::Post { ops, .. } => _ = ops.remove(part),
                Step::Receive { recvs, .. } | Step::Share { recvs, .. } => _ = recvs.remove(part),
                _ => {}
            });
            search.take(candidate);
        }
    }
}

/// Makes operations and receives simpler.
fn operations<F: Run>(search: &mut Search<Program, F>) {
    for at in 0..search.best.steps.len() {
        let count = match &search.best.steps[at] {
            Step::Post { ops, .. } => ops.len(),
            Step::Receive { recvs, .. } | Step::Share { recvs, .. } => recvs.len(),
            _ => 0,
        };
        for part in 0..count {
            for simpler in SIMPLER {
                // Until it gets no simpler; halving a length takes a few rounds.
                for _ in 0..24 {
                    let candidate = search.changed(|program| match &mut program.steps[at] {
                        Step::Post { ops, .. } => simpler(Item::Op(&mut ops[part])),
                        Step::Receive { recvs, .. } | Step::Share { recvs, .. } => {
                            simpler(Item::Recv(&mut recvs[part]))
                        }
                        _ => {}
                    });
                    if !search.take(candidate) {
                        break;
                    }
                }
            }
        }
    }
}

/// Gives ends receives of their own.
fn ends<F: Run>(search: &mut Search<Program, F>) {
    for end in 0..2 * search.best.connections.len() {
        let change = |program: &mut Program| program.connections[end / 2][end % 2].shared = None;
        let candidate = search.changed(change);
        search.take(candidate);
    }
}

/// Leaves out memories, regions and connections that no step names, all at once.
fn leave_out_unused<F: Run>(search: &mut Search<Program, F>) {
    let candidate = search.changed(Program::leave_out_unused);
    search.take(candidate);
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
    use std::time::Duration;

    use super::super::shrink::shrink;
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
