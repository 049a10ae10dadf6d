//! Bytes of memory, and what can be in them.
//!
//! Whatever changes memory is an *effect*: a write, a message that lands, a read's result, an atomic, a store of the
//! CPU. An effect has a life:
//! - it *starts* when it can happen (its operation is posted, and nothing holds it back);
//! - it is *done* when it is known to have happened (a completion says so);
//! - it is *public* when nothing of it is to come and everybody finds it: by a receive completion behind it, a
//!   delivery-complete, an end of the connection that was noticed, the closing of the region. What is public
//!   without being done has happened or not, or in part, for good.
//!
//! A look at a byte (by the CPU, or by an operation that takes its bytes from there) finds one of its *candidates*: each
//! effect that has started, unless another one came surely later that is surely there for the one who looks. What
//! "surely" means: [`Order`] within a queue; else only public before the other began. An operation looks at any moment
//! between its post and its end, so what starts meanwhile is a candidate for it as well. Each byte is judged alone,
//! since the contract knows no order among the bytes of one operation.

use std::collections::BTreeMap;
use std::ops::Range;

use fabric::provider::AtomicCall;

use super::order::{OpId, Order};
use super::word::Word;
use crate::check::Outcome;

pub(super) type EffectId = usize;

/// Neighbouring bytes in a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::random) struct ByteRange {
    pub(in crate::random) memory: usize,
    pub(in crate::random) start: usize,
    pub(in crate::random) len: usize,
}

impl ByteRange {
    fn end(&self) -> usize {
        self.start + self.len
    }
}

/// An effect; its byte for the address `a` of a memory is number `a + shift`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) effect: EffectId,
    shift: isize,
}

impl Candidate {
    pub(super) fn at(&self, address: usize) -> usize {
        address.wrapping_add_signed(self.shift)
    }
}

/// What an operation can have found in some of the bytes that it takes.
#[derive(Debug)]
pub(super) struct Seen {
    /// The operation's first of these bytes, and their number.
    pub(super) at: usize,
    pub(super) len: usize,
    /// The address of the first one.
    pub(super) address: usize,
    pub(super) candidates: Vec<Candidate>,
}

#[derive(Debug)]
pub(super) enum Value {
    Known(Vec<u8>),
    Sets(Vec<ByteSet>),
    /// Taken from memory, until the effect is done.
    Taken {
        from: Vec<ByteRange>,
        since: u64,
        seen: Vec<Seen>,
    },
    /// For the outcome to say.
    Any,
    /// Eight bytes.
    Word(Word),
}

#[derive(Debug)]
pub(super) struct Effect {
    op: Option<OpId>,
    started: u64,
    done: Option<u64>,
    pub(super) public: Option<u64>,
    pub(super) never: bool,
    /// Unless it is done, anything may be in its places.
    pub(super) torn: bool,
    pub(super) value: Value,
    places: Vec<ByteRange>,
}

/// Values that a byte can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ByteSet([u64; 4]);

impl ByteSet {
    pub(super) const ANY: ByteSet = ByteSet([u64::MAX; 4]);

    pub(super) fn add(&mut self, byte: u8) {
        self.0[usize::from(byte / 64)] |= 1 << (byte % 64);
    }

    pub(super) fn join(&mut self, other: &ByteSet) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own |= other);
    }

    pub(super) fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte / 64)] >> (byte % 64) & 1 == 1
    }

    pub(super) fn single(&self) -> Option<u8> {
        let bits: u32 = self.0.iter().map(|word| word.count_ones()).sum();
        if bits == 1 { (0..=255).find(|&byte| self.has(byte)) } else { None }
    }
}

impl std::fmt::Display for ByteSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes: Vec<_> = (0..=255).filter(|&byte| self.has(byte)).collect();
        if bytes.len() > 8 {
            return write!(f, "one of {} values", bytes.len());
        }
        let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        f.write_str(&bytes.join(" or "))
    }
}

/// What looks at memory, and since when: an operation, or the CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who {
    pub(super) op: Option<OpId>,
    pub(super) since: u64,
}

/// All memories, and the effects on them.
#[derive(Debug)]
pub(in crate::random) struct Bytes {
    /// By memory: runs of bytes that have the same candidates, by their first address, with their length.
    pub(super) memories: Vec<BTreeMap<usize, (usize, Vec<Candidate>)>>,
    pub(super) effects: Vec<Effect>,
    /// Effects that still take bytes from memory.
    taking: Vec<EffectId>,
    pub(super) order: Order,
}

impl Bytes {
    pub(super) fn new(initial: Vec<Vec<u8>>, ends: usize) -> Self {
        let mut bytes = Bytes {
            memories: vec![BTreeMap::new(); initial.len()],
            effects: Vec::new(),
            taking: Vec::new(),
            order: Order::new(ends),
        };
        for (memory, initial) in initial.into_iter().enumerate() {
            let len = initial.len();
            let effect = bytes.effect(None, Value::Known(initial));
            (bytes.effects[effect].done, bytes.effects[effect].public) = (Some(0), Some(0));
            bytes.memories[memory].insert(0, (len, vec![Candidate { effect, shift: 0 }]));
        }
        bytes
    }

    fn effect(&mut self, op: Option<OpId>, value: Value) -> EffectId {
        let (started, done, public, places) = (0, None, None, Vec::new());
        let (never, torn) = (false, false);
        self.effects.push(Effect { op, started, done, public, never, torn, value, places });
        self.effects.len() - 1
    }

    /// The effect of an operation with these bytes. Like those that follow, it has no place yet.
    pub(super) fn known(&mut self, op: OpId, bytes: Vec<u8>) -> EffectId {
        self.effect(Some(op), Value::Known(bytes))
    }

    /// The effect of an operation whose bytes are for the outcome to say.
    pub(super) fn any(&mut self, op: OpId) -> EffectId {
        self.effect(Some(op), Value::Any)
    }

    /// From now on anything may be in these places.
    pub(super) fn unknown(&mut self, places: &[ByteRange], now: u64) -> EffectId {
        let effect = self.effect(None, Value::Any);
        self.start(effect, places, now);
        effect
    }

    /// Since when an effect can have happened.
    pub(super) fn started(&self, effect: EffectId) -> u64 {
        self.effects[effect].started
    }

    /// The effect of an operation that takes its bytes from `from`, at any moment from now until it is done.
    pub(super) fn taken(&mut self, op: OpId, from: Vec<ByteRange>, now: u64) -> EffectId {
        let who = Who { op: Some(op), since: now };
        let mut seen = Vec::new();
        let mut at = 0;
        for run in &from {
            for (range, candidates) in self.segments(run) {
                let candidates = self.live(candidates, who);
                let (at, len) = (at + range.start - run.start, range.len());
                seen.push(Seen { at, len, address: range.start, candidates });
            }
            at += run.len;
        }
        let effect = self.effect(Some(op), Value::Taken { from, since: now, seen });
        self.taking.push(effect);
        effect
    }

    /// The runs of equal candidates in `run`.
    pub(super) fn segments(&self, run: &ByteRange) -> Vec<(Range<usize>, &[Candidate])> {
        let map = &self.memories[run.memory];
        let from = map.range(..=run.start).next_back().map_or(run.start, |(at, _)| *at);
        map.range(from..run.end())
            .map(|(&at, (len, candidates))| {
                (at.max(run.start)..(at + len).min(run.end()), candidates.as_slice())
            })
            .filter(|(range, _)| !range.is_empty())
            .collect()
    }

    /// Whether `effect` is surely there for the one who looks.
    fn before(&self, effect: EffectId, who: Who) -> bool {
        let effect = &self.effects[effect];
        let public = effect.public.is_some_and(|at| at <= who.since);
        public
            || matches!((effect.op, who.op), (Some(a), Some(b)) if a.end == b.end
                && (self.order.before(a, b) || effect.done.is_some_and(|at| at <= who.since)))
    }

    /// Whether `effect` surely happens, if what `who` does happens.
    fn sure(&self, effect: EffectId, who: Who) -> bool {
        let effect = &self.effects[effect];
        effect.done.is_some()
            || matches!((effect.op, who.op), (Some(a), Some(b)) if self.order.before(a, b))
    }

    /// Those of the candidates that `who` can find.
    pub(super) fn live(&self, candidates: &[Candidate], who: Who) -> Vec<Candidate> {
        let overwritten = |one: &Candidate| {
            candidates.iter().any(|other| {
                let later = Who {
                    op: self.effects[other.effect].op,
                    since: self.effects[other.effect].started,
                };
                other.effect != one.effect
                    && !self.effects[other.effect].never
                    && self.sure(other.effect, who)
                    && self.before(other.effect, who)
                    && self.before(one.effect, later)
            })
        };
        let behind = |one: &Candidate| matches!((who.op, self.effects[one.effect].op), (Some(a), Some(b)) if self.order.before(a, b));
        let live =
            |one: &&Candidate| !self.effects[one.effect].never && !behind(one) && !overwritten(one);
        candidates.iter().filter(live).copied().collect()
    }

    /// The effect can happen from now on, in these places one after the other.
    pub(super) fn start(&mut self, effect: EffectId, places: &[ByteRange], now: u64) {
        self.effects[effect].started = now;
        let mut at = 0;
        for run in places {
            self.split(run);
            let shift = at as isize - run.start as isize;
            let mut met = Vec::new();
            for (_, (_, candidates)) in self.memories[run.memory].range_mut(run.start..run.end()) {
                met.extend(candidates.iter().map(|candidate| candidate.effect));
                candidates.push(Candidate { effect, shift });
            }
            for met in met {
                self.meet(met);
            }
            self.show(effect, run, shift);
            at += run.len;
        }
        self.effects[effect].places.extend_from_slice(places);
    }

    /// Plain writes meet an effect. If that is of atomics under way, what those leave is not defined.
    fn meet(&mut self, effect: EffectId) {
        let quiet = self.effects[effect].public.is_some();
        if let Value::Word(word) = &mut self.effects[effect].value {
            word.undefined |= !quiet;
        }
    }

    /// What takes bytes from there can find the effect.
    fn show(&mut self, effect: EffectId, run: &ByteRange, shift: isize) {
        let op = self.effects[effect].op;
        for &taker in self.taking.iter().filter(|&&taker| taker != effect) {
            let own = self.effects[taker].op;
            if matches!((own, op), (Some(a), Some(b)) if self.order.before(a, b)) {
                continue;
            }
            let Value::Taken { from, seen, .. } = &mut self.effects[taker].value else { continue };
            let mut at = 0;
            for part in from.iter() {
                let (start, end) = (part.start.max(run.start), part.end().min(run.end()));
                if part.memory == run.memory && start < end {
                    let candidates = vec![Candidate { effect, shift }];
                    let at = at + start - part.start;
                    seen.push(Seen { at, len: end - start, address: start, candidates });
                }
                at += part.len;
            }
        }
    }

    /// Makes runs begin and end where `run` does.
    fn split(&mut self, run: &ByteRange) {
        let map = &mut self.memories[run.memory];
        for cut in [run.start, run.end()] {
            let Some((&at, (len, candidates))) = map.range_mut(..cut).next_back() else { continue };
            if at + *len > cut {
                let rest = (at + *len - cut, candidates.clone());
                *len = cut - at;
                map.insert(cut, rest);
            }
        }
    }

    /// The CPU stores bytes.
    pub(super) fn store(&mut self, run: ByteRange, bytes: Vec<u8>, now: u64) {
        let effect = self.effect(None, Value::Known(bytes));
        self.start(effect, &[run], now);
        self.done(effect, now);
        self.publish(effect, now);
    }

    /// The effect has happened.
    pub(super) fn done(&mut self, effect: EffectId, now: u64) {
        self.effects[effect].torn = false;
        self.settle(effect);
        self.effects[effect].done.get_or_insert(now);
        if self.effects[effect].public.is_some() {
            self.prune(effect);
        }
    }

    /// What it takes its bytes from may be cut off from it under way: what it leaves then is not defined.
    pub(super) fn tear(&mut self, effect: EffectId) {
        self.effects[effect].torn = self.effects[effect].done.is_none();
    }

    /// Nothing of the effect is to come, and everybody finds what there is.
    pub(super) fn publish(&mut self, effect: EffectId, now: u64) {
        self.settle(effect);
        self.effects[effect].public.get_or_insert(now);
        self.prune(effect);
    }

    /// It has not happened, and will not.
    pub(super) fn never(&mut self, effect: EffectId, now: u64) {
        self.effects[effect].never = true;
        self.publish(effect, now);
    }

    /// Forgets candidates that the effect has overwritten for everybody.
    fn prune(&mut self, effect: EffectId) {
        let places = self.effects[effect].places.clone();
        for run in &places {
            let everybody = Who { op: None, since: u64::MAX };
            let starts: Vec<usize> = self.segments(run).iter().map(|part| part.0.start).collect();
            for start in starts {
                let Some((_, candidates)) = self.memories[run.memory].get(&start) else { continue };
                let live = self.live(candidates, everybody);
                if let Some((_, candidates)) = self.memories[run.memory].get_mut(&start) {
                    *candidates = live;
                }
            }
        }
    }

    /// Fixes the bytes of an effect that takes no more of them.
    pub(super) fn settle(&mut self, effect: EffectId) {
        if let Value::Taken { from, .. } = &self.effects[effect].value {
            let len = from.iter().map(|run| run.len).sum();
            let value = self.value(effect, len);
            self.effects[effect].value = value;
            self.taking.retain(|&taking| taking != effect);
        }
    }

    /// Says what an effect's bytes are that only the outcome could say.
    pub(super) fn set_bytes(&mut self, effect: EffectId, bytes: Vec<u8>) {
        self.effects[effect].value = Value::Known(bytes);
    }

    /// An atomic on the word at `start` can take effect from now on; gives the word.
    pub(super) fn atomic(
        &mut self,
        op: OpId,
        memory: usize,
        address: usize,
        call: AtomicCall,
        now: u64,
    ) -> EffectId {
        let run = ByteRange { memory, start: address & !7, len: 8 };
        let who = Who { op: Some(op), since: now };
        let candidates: Vec<_> =
            self.segments(&run).into_iter().map(|(_, found)| self.live(found, who)).collect();
        let known = match candidates.as_slice() {
            [found] => match found.as_slice() {
                [one] if matches!(self.effects[one.effect].value, Value::Word(_)) => {
                    Some(one.effect)
                }
                _ => None,
            },
            _ => None,
        };
        let effect = known.unwrap_or_else(|| self.word(run, &candidates, who));
        let order = &self.order;
        if let Value::Word(word) = &mut self.effects[effect].value {
            word.begin(order, op, call, address - run.start, now);
        }
        self.effects[effect].public = None;
        self.show(effect, &run, -(run.start as isize));
        effect
    }

    /// A word that begins with what is there.
    fn word(&mut self, run: ByteRange, candidates: &[Vec<Candidate>], who: Who) -> EffectId {
        // Nor is known what an operation under way takes from memory that may change meanwhile.
        let settled = candidates.iter().flatten().all(|one| {
            let taking = matches!(self.effects[one.effect].value, Value::Taken { .. });
            self.before(one.effect, who) && !taking
        });
        let base = if settled { self.single(&run, who) } else { None };
        // What is under way may yet be canceled, and this atomic with it: then older bytes stay.
        let sure = |one: &Candidate| self.effects[one.effect].done.is_some();
        let alone = base.is_some() && candidates.iter().flatten().all(sure);
        let effect = self.effect(None, Value::Word(Word::new(base, alone)));
        self.effects[effect].started = who.since;
        self.effects[effect].places.push(run);
        self.split(&run);
        let shift = -(run.start as isize);
        // Atomics that began from a write which this one meets: what they find is no longer known either.
        for one in candidates.iter().flatten() {
            self.meet(one.effect);
        }
        for (_, (_, candidates)) in self.memories[run.memory].range_mut(run.start..run.end()) {
            if alone {
                candidates.clear();
            }
            candidates.push(Candidate { effect, shift });
        }
        effect
    }

    /// Does something with the record of an atomic.
    pub(super) fn with_word<T>(
        &mut self,
        word: EffectId,
        change: impl FnOnce(&mut Word) -> T,
    ) -> Option<T> {
        match &mut self.effects[word].value {
            Value::Word(word) => Some(change(word)),
            _ => None,
        }
    }

    /// Nothing of this atomic is to come.
    pub(super) fn publish_atomic(&mut self, effect: EffectId, op: OpId, now: u64) {
        let quiet = self.with_word(effect, |word| {
            word.publish(op);
            word.is_quiet().then_some(word.settled)
        });
        if let Some(Some(settled)) = quiet
            && self.effects[effect].public.is_none()
        {
            // Where older bytes may have stayed, none of the atomics need have happened either.
            (self.effects[effect].done, self.effects[effect].public) =
                (settled.then_some(now), Some(now));
        }
    }

    /// What an atomic found.
    pub(super) fn found(&mut self, effect: EffectId, op: OpId, bits: u64) -> Outcome {
        self.with_word(effect, |word| word.found(op, bits)).unwrap_or(Ok(()))
    }
}

impl Bytes {
    /// What is in a run is known, whatever the candidates were.
    pub(super) fn replace(&mut self, run: ByteRange, bytes: Vec<u8>, now: u64) {
        let effect = self.effect(None, Value::Known(bytes));
        let (done, public) = (Some(now), Some(now));
        let old = &mut self.effects[effect];
        (old.started, old.done, old.public, old.places) = (now, done, public, vec![run]);
        self.split(&run);
        let map = &mut self.memories[run.memory];
        let inside: Vec<usize> = map.range(run.start..run.end()).map(|(at, _)| *at).collect();
        inside.iter().for_each(|at| _ = map.remove(at));
        map.insert(run.start, (run.len, vec![Candidate { effect, shift: -(run.start as isize) }]));
    }
}
