//! Atomics on one aligned word.
//!
//! They are linearizable, whatever their widths and initiators, from the moment each is posted to its
//! completion, and kept in order by fences. A word remembers its atomics since its bytes were known, and asks the
//! checker of histories which words can be left. What it does not say: the value while plain writes and atomics
//! meet on the word, which the contract leaves undefined.

use fabric::provider::AtomicCall;

use super::order::{OpId, Order};
use crate::check::{Failed, Outcome, show};
use crate::linear::{Atomic, Linear, linearize};

/// Points of the search after which a history is taken to say nothing.
const MAX_STEPS: usize = 20_000;

/// The atomics on a word since its bytes were known.
#[derive(Debug)]
pub(super) struct Word {
    base: [u8; 8],
    history: Vec<Record>,
    /// Plain writes met atomics: any value is allowed.
    pub(super) undefined: bool,
    /// What was there before surely was: nothing of that was still under way.
    pub(super) settled: bool,
}

#[derive(Debug)]
struct Record {
    op: OpId,
    atomic: Atomic,
    /// Everybody finds it, or the lack of it: nothing of it is to come.
    public: bool,
    /// It did not happen.
    never: bool,
}

impl Word {
    pub(super) fn new(base: Option<[u8; 8]>, settled: bool) -> Self {
        let undefined = base.is_none();
        Word { base: base.unwrap_or_default(), history: Vec::new(), undefined, settled }
    }

    /// An operation that can take effect from now on.
    pub(super) fn begin(
        &mut self,
        order: &Order,
        op: OpId,
        call: AtomicCall,
        offset: usize,
        now: u64,
    ) {
        let earlier = |(at, one): (usize, &Record)| order.before(one.op, op).then_some(at);
        let after = self.history.iter().enumerate().filter_map(earlier).collect();
        let atomic = Atomic { offset, call, begun: now, ended: None, found: None, after };
        self.history.push(Record { op, atomic, public: false, never: false });
    }

    fn record(&mut self, op: OpId) -> Option<&mut Record> {
        self.history.iter_mut().find(|record| record.op == op)
    }

    /// It has taken effect.
    pub(super) fn end(&mut self, op: OpId, now: u64) {
        if let Some(record) = self.record(op) {
            record.atomic.ended.get_or_insert(now);
        }
    }

    /// Nothing of it is to come.
    pub(super) fn publish(&mut self, op: OpId) {
        if let Some(record) = self.record(op) {
            record.public = true;
        }
    }

    /// It has not happened and will not.
    pub(super) fn never(&mut self, op: OpId) {
        if let Some(record) = self.record(op) {
            (record.never, record.public) = (true, true);
        }
    }

    /// Whether nothing on it is to come.
    pub(super) fn is_quiet(&self) -> bool {
        self.history.iter().all(|record| record.public)
    }

    /// What an operation found. Checks that all that is known fits.
    pub(super) fn found(&mut self, op: OpId, bits: u64) -> Outcome {
        if let Some(record) = self.record(op) {
            record.atomic.found = Some(bits);
        }
        if !self.undefined && self.leaves() == Linear::Impossible {
            let history: Vec<_> = self.atomics();
            return Err(Failed::new(
                "atomics on one word that can have happened one after the other",
                format!("from {:02x?}: {}", self.base, show(&history)),
            ));
        }
        Ok(())
    }

    /// Every word that can be left.
    pub(super) fn leaves(&self) -> Linear {
        linearize(self.base, &self.atomics(), MAX_STEPS, false)
    }

    /// A byte that no atomic reaches, and so keeps its value.
    pub(super) fn untouched(&self, at: usize) -> Option<u8> {
        let reaches = |one: &Record| {
            let start = one.atomic.offset;
            (start..start + one.atomic.call.ty.size()).contains(&at)
        };
        (!self.undefined && !self.history.iter().any(reaches)).then(|| self.base[at])
    }

    fn atomics(&self) -> Vec<Atomic> {
        // Places change where operations that did not happen are left out.
        let mut places = vec![None; self.history.len()];
        let live: Vec<usize> =
            (0..self.history.len()).filter(|&at| !self.history[at].never).collect();
        live.iter().enumerate().for_each(|(place, &at)| places[at] = Some(place));
        let renamed = |&at: &usize| {
            let mut atomic = self.history[at].atomic.clone();
            atomic.after = atomic.after.iter().filter_map(|&at| places[at]).collect();
            atomic
        };
        live.iter().map(renamed).collect()
    }
}
