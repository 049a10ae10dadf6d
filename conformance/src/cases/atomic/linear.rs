//! Recorded histories of atomics, checked for linearizability.

use fabric::provider::AtomicCall;
use fabric::provider::atomic::is_defined;

use super::contended::{initiators, settle_all};
use crate::cases::crowd::at_once;
use crate::element::{element_bits, operation};
use crate::linear::{Atomic, Linear, linearize};
use crate::prelude::*;

/// The words that all meet on, and the points of the search for each.
const WORDS: usize = 2;
const MAX: usize = 2_000_000;

/// An operation of one initiator, and where.
struct Operation {
    word: usize,
    atomic: Atomic,
}

pub(super) fn linearizable(rig: &Rig) -> Outcome {
    let each = rig.count(400, 5_000);
    let (ends, peers) = initiators(rig, 8)?;
    let target = peers[0].buffer(8 * WORDS)?;
    let begin = Instant::now();
    let histories = at_once(&ends, |i, a| {
        let mut rng = Rng::new(rig.rng().next_u64() ^ i as u64);
        let old = a.buffer(8)?;
        let mut done = Vec::with_capacity(each);
        for context in 0..each as u64 {
            let (word, mut atomic) = draw(&mut rng);
            let size = atomic.call.ty.size();
            let at = target.at(8 * word + atomic.offset);
            let op = operation(&atomic.call, Some(old.slice(..size)), at);
            atomic.begun = begin.elapsed().as_nanos() as u64;
            a.run(op, Done::ok(context))?;
            atomic.ended = Some(begin.elapsed().as_nanos() as u64);
            atomic.found = Some(element_bits(&old.bytes(..size)?, size));
            done.push(Operation { word, atomic });
        }
        Ok(done)
    })?;
    settle_all(&ends, &peers)?;
    let all: Vec<Operation> = histories.into_iter().flatten().collect();
    for word in 0..WORDS {
        let of_it = |done: &Operation| (done.word == word).then(|| done.atomic.clone());
        let mut history: Vec<_> = all.iter().filter_map(of_it).collect();
        // What is left is what one more look finds.
        let seen = target.bytes(8 * word..8 * word + 8)?;
        history.push(look(element_bits(&seen, 8)));
        let outcome = linearize([0; 8], &history, MAX, true);
        check_matches!(
            outcome,
            Linear::Leaves(_),
            "an order of {} atomics on a word",
            history.len()
        );
    }
    Ok(())
}

/// Any operation on any type, somewhere in a word.
fn draw(rng: &mut Rng) -> (usize, Atomic) {
    let (mut op, ty) = (*rng.pick(&AtomicOp::ALL), *rng.pick(&AtomicType::ALL));
    if !is_defined(op, ty) {
        op = AtomicOp::Swap;
    }
    let offset = ty.size() * rng.below(8 / ty.size());
    // Small numbers, so that comparing hits now and then.
    let compare = rng.below(3) as u64;
    let operand = if rng.below(4) == 0 { rng.next_u64() } else { rng.below(3) as u64 };
    let call = AtomicCall { op, ty, operand, compare };
    let atomic = Atomic { offset, call, begun: 0, ended: None, found: None, after: Vec::new() };
    (rng.below(WORDS), atomic)
}

/// Adding nothing to the whole word, when all is over.
fn look(found: u64) -> Atomic {
    let call = AtomicCall { op: AtomicOp::Add, ty: AtomicType::U64, operand: 0, compare: 0 };
    let (begun, ended) = (u64::MAX - 1, Some(u64::MAX));
    Atomic { offset: 0, call, begun, ended, found: Some(found), after: Vec::new() }
}
