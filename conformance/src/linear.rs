//! Whether recorded atomic operations on one word can have happened one after the other.
//!
//! That is linearizability (Herlihy and Wing 1990): each operation takes effect at one moment between its post and its
//! completion, and what it returned fits the value it found then. The search is that of Wing and Gong with the
//! memory of Lowe ("Testing for linearizability", 2017): which operations have taken effect, and the value they
//! left, is never looked at twice. Operations of all widths on one aligned 8-byte word are one history, since
//! fabric atomics are atomic with each other wherever they meet.

use std::collections::{BTreeSet, HashSet};

use fabric::provider::AtomicCall;

use crate::arithmetic::left_by;
use crate::element::{element, element_bits};

/// One atomic operation on a word.
#[derive(Clone, Debug)]
pub(crate) struct Atomic {
    /// Its place in the word, in bytes.
    pub offset: usize,
    /// What it does.
    pub call: AtomicCall,
    /// A moment before it could take effect.
    pub begun: u64,
    /// A moment when it had; `None` if it is open whether it ever has, or will.
    pub ended: Option<u64>,
    /// The value it found, if that is known.
    pub found: Option<u64>,
    /// Operations that must have taken effect before it, by their place in the history: what a fence waits for.
    pub after: Vec<usize>,
}

impl Atomic {
    /// The bits of the element in the word.
    fn element(&self, word: [u8; 8]) -> u64 {
        let size = self.call.ty.size();
        element_bits(&word[self.offset..self.offset + size], size)
    }

    /// The word that it leaves; `None` if it would have found something else than it did.
    fn step(&self, mut word: [u8; 8]) -> Option<[u8; 8]> {
        let old = self.element(word);
        if self.found.is_some_and(|found| found != old) {
            return None;
        }
        let new = left_by(&self.call, old);
        let size = self.call.ty.size();
        word[self.offset..self.offset + size].copy_from_slice(&element(self.call.ty, new));
        Some(word)
    }
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Linear {
    /// In some order it fits; these are all the words that such orders leave.
    Leaves(BTreeSet<[u8; 8]>),
    /// In no order does it fit.
    Impossible,
    /// The search was given up: so many orders are open that the history says little.
    GivenUp,
}

/// A point of the search: everything before `first` has taken effect, and of what follows the places in `ahead`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Point {
    first: usize,
    ahead: Vec<usize>,
    word: [u8; 8],
}

impl Point {
    fn has(&self, at: usize) -> bool {
        at < self.first || self.ahead.contains(&at)
    }

    fn with(&self, at: usize, word: [u8; 8]) -> Point {
        let mut ahead = self.ahead.clone();
        ahead.push(at);
        ahead.sort_unstable();
        let mut first = self.first;
        while ahead.first() == Some(&first) {
            ahead.remove(0);
            first += 1;
        }
        Point { first, ahead, word }
    }
}

/// Every word that a history can leave which began with `word`, looking at no more than `most` points of the search.
///
/// With `any` the first one found is enough, which is all that a long history needs.
pub(crate) fn linearize(word: [u8; 8], history: &[Atomic], max: usize, any: bool) -> Linear {
    // In the order of their beginning: what begins after another's end is behind it.
    let mut order: Vec<usize> = (0..history.len()).collect();
    order.sort_by_key(|&at| history[at].begun);
    let mut place = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, &name)| place[name] = at);
    let sorted: Vec<&Atomic> = order.iter().map(|&at| &history[at]).collect();

    let start = Point { first: 0, ahead: Vec::new(), word };
    let mut leaves = BTreeSet::new();
    let mut seen = HashSet::from([start.clone()]);
    let mut open = vec![start];
    while let Some(point) = open.pop() {
        if seen.len() > max {
            return Linear::GivenUp;
        }
        // The next one began before the earliest end among those that are left.
        let left = |at: &usize| !point.ahead.contains(at);
        let mut deadline = u64::MAX;
        let mut complete = true;
        let mut next = Vec::new();
        for at in (point.first..sorted.len()).filter(left) {
            if sorted[at].begun >= deadline {
                // All that follow began later still.
                complete &= sorted[at..].iter().all(|one| one.ended.is_none());
                break;
            }
            if let Some(ended) = sorted[at].ended {
                deadline = deadline.min(ended);
                complete = false;
            }
            next.push(at);
        }
        if complete {
            leaves.insert(point.word);
            if any {
                break;
            }
        }
        for at in next {
            if sorted[at].begun < deadline
                && sorted[at].after.iter().all(|&name| point.has(place[name]))
                && let Some(word) = sorted[at].step(point.word)
            {
                let point = point.with(at, word);
                if seen.insert(point.clone()) {
                    open.push(point);
                }
            }
        }
    }
    if leaves.is_empty() { Linear::Impossible } else { Linear::Leaves(leaves) }
}

#[cfg(test)]
mod tests {
    use fabric::{AtomicOp, AtomicType};

    use super::*;

    const MAX: usize = 100_000;

    fn add(begun: u64, ended: u64, value: u64, found: Option<u64>) -> Atomic {
        atomic(AtomicOp::Add, AtomicType::U64, value, begun, Some(ended), found)
    }

    fn atomic(
        op: AtomicOp,
        ty: AtomicType,
        operand: u64,
        begun: u64,
        ended: Option<u64>,
        found: Option<u64>,
    ) -> Atomic {
        let call = AtomicCall { op, ty, operand, compare: 0 };
        Atomic { offset: 0, call, begun, ended, found, after: Vec::new() }
    }

    fn word(value: u64) -> [u8; 8] {
        value.to_ne_bytes()
    }

    fn leaves(words: &[u64]) -> Linear {
        Linear::Leaves(words.iter().map(|&value| word(value)).collect())
    }

    #[test]
    fn overlapping_operations_may_come_in_either_order() {
        let swap = |value, begun, ended| {
            atomic(AtomicOp::Swap, AtomicType::U64, value, begun, Some(ended), None)
        };
        let both = [swap(1, 0, 10), swap(2, 5, 15)];
        assert_eq!(linearize(word(0), &both, MAX, false), leaves(&[1, 2]));
        let one_by_one = [swap(1, 0, 4), swap(2, 5, 15)];
        assert_eq!(linearize(word(0), &one_by_one, MAX, false), leaves(&[2]));
    }

    #[test]
    fn results_decide_the_order() {
        let history = [add(0, 10, 1, Some(2)), add(0, 10, 2, Some(0))];
        assert_eq!(linearize(word(0), &history, MAX, false), leaves(&[3]));
        // Both found the same: one of them is lost.
        let history = [add(0, 10, 1, Some(0)), add(0, 10, 2, Some(0))];
        assert_eq!(linearize(word(0), &history, MAX, false), Linear::Impossible);
        // The later one found what was there before the earlier one.
        let history = [add(0, 4, 1, Some(1)), add(5, 10, 1, Some(0))];
        assert_eq!(linearize(word(0), &history, MAX, false), Linear::Impossible);
    }

    #[test]
    fn what_nobody_knows_the_end_of_may_have_happened_or_not() {
        let lost = atomic(AtomicOp::Add, AtomicType::U64, 5, 0, None, None);
        assert_eq!(linearize(word(0), std::slice::from_ref(&lost), MAX, false), leaves(&[0, 5]));
        let history = [lost, add(10, 20, 1, Some(5))];
        assert_eq!(linearize(word(0), &history, MAX, false), leaves(&[6]));
    }

    #[test]
    fn fences_are_kept() {
        let swap = |value| atomic(AtomicOp::Swap, AtomicType::U64, value, 0, Some(10), None);
        let mut fenced = swap(2);
        fenced.after = vec![0];
        assert_eq!(linearize(word(0), &[swap(1), fenced], MAX, false), leaves(&[2]));
    }

    #[test]
    fn widths_meet_in_one_word() {
        let mut low = atomic(AtomicOp::Add, AtomicType::U8, 1, 0, Some(10), Some(0xff));
        low.offset = 3;
        let all = add(0, 10, 0, Some(u64::from_ne_bytes([0, 0, 0, 0xff, 7, 0, 0, 0])));
        let end = u64::from_ne_bytes([0, 0, 0, 0, 7, 0, 0, 0]);
        let start = [0, 0, 0, 0xff, 7, 0, 0, 0];
        assert_eq!(linearize(start, &[low, all], MAX, false), leaves(&[end]));
    }

    #[test]
    fn long_histories_are_quick() {
        // Eight initiators, each waits for its own; results in the order of the beginnings.
        let history: Vec<_> = (0..20_000u64).map(|i| add(i, i + 8, 1, Some(i))).collect();
        assert_eq!(linearize(word(0), &history, 1 << 20, true), leaves(&[20_000]));
        let mut wrong = history;
        wrong[10_000].found = Some(10_001);
        wrong[10_001].found = Some(10_001);
        assert_eq!(linearize(word(0), &wrong, 1 << 20, true), Linear::Impossible);
    }
}
