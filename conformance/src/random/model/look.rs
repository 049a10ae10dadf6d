//! Looking at bytes: which values they can have, and whether those that were seen are among them.

use super::bytes::{ByteRange, ByteSet, Bytes, Candidate, EffectId, Value, Who};
use crate::check::{Failed, Outcome};
use crate::linear::Linear;

/// How deep operations may take bytes from each other until the short way of finding them is given up.
const DEEP: usize = 8;

/// How many bytes of operations are asked for one byte, until it may be anything.
const FAR: usize = 64;

/// Values of a byte, and the bytes of operations that were asked for it.
#[derive(Default)]
struct Found {
    set: ByteSet,
    trail: Vec<(EffectId, usize)>,
}

impl Bytes {
    /// What the bytes of an effect can be, as far as is known by now.
    pub(super) fn value(&self, effect: EffectId, len: usize) -> Value {
        if let Some(bytes) = self.known_bytes(effect, 0, len, DEEP) {
            return Value::Known(bytes);
        }
        let sets: Vec<_> = (0..len).map(|at| self.set(effect, at)).collect();
        let known: Option<Vec<u8>> = sets.iter().map(ByteSet::single).collect();
        known.map_or(Value::Sets(sets), Value::Known)
    }

    /// Whether the CPU can find nothing but this effect in a run.
    pub(super) fn is_alone(&self, effect: EffectId, run: &ByteRange, now: u64) -> bool {
        let cpu = Who { op: None, since: now };
        self.segments(run).into_iter().all(
            |(_, found)| matches!(self.live(found, cpu).as_slice(), [one] if one.effect == effect),
        )
    }

    /// The bytes of a run, if `who` can find only one value in each.
    pub(super) fn single(&self, run: &ByteRange, who: Who) -> Option<[u8; 8]> {
        let mut bytes = [0; 8];
        for (range, candidates) in self.segments(run) {
            let candidates = self.live(candidates, who);
            for address in range {
                bytes[address - run.start] = self.join(&candidates, address).single()?;
            }
        }
        Some(bytes)
    }

    /// Bytes of an effect, if no other values are possible; the short way, for most are.
    fn known_bytes(&self, effect: EffectId, at: usize, len: usize, deep: usize) -> Option<Vec<u8>> {
        match &self.effects[effect].value {
            _ if self.effects[effect].torn => None,
            Value::Known(bytes) => Some(bytes.get(at..at + len)?.to_vec()),
            Value::Taken { seen, .. } if deep > 0 => {
                let overlaps =
                    |one: &&super::bytes::Seen| one.at < at + len && at < one.at + one.len;
                let mut parts: Vec<_> = seen.iter().filter(overlaps).collect();
                parts.sort_by_key(|part| part.at);
                let (mut next, mut bytes) = (at, Vec::with_capacity(len));
                for part in parts {
                    let mut live =
                        part.candidates.iter().filter(|one| !self.effects[one.effect].never);
                    let Some(one) = live.next() else { continue };
                    // The first may begin before, the others follow without gap or overlap.
                    let skip = if next == at { next.checked_sub(part.at)? } else { 0 };
                    let take = (part.len - skip).min(at + len - next);
                    if live.next().is_some() || part.at + skip != next {
                        return None;
                    }
                    let from = one.at(part.address + skip);
                    bytes.extend(self.known_bytes(one.effect, from, take, deep - 1)?);
                    next += take;
                }
                (next == at + len).then_some(bytes)
            }
            _ => None,
        }
    }

    /// The values that one byte of an effect can have.
    fn set(&self, effect: EffectId, at: usize) -> ByteSet {
        let mut found = Found::default();
        self.collect(effect, at, u64::MAX, &mut found);
        found.set
    }

    fn join(&self, candidates: &[Candidate], address: usize) -> ByteSet {
        let mut found = Found::default();
        self.collect_all(candidates, address, u64::MAX, &mut found);
        found.set
    }

    fn collect_all(&self, all: &[Candidate], address: usize, since: u64, found: &mut Found) {
        for one in all.iter().filter(|one| !self.effects[one.effect].never) {
            self.collect(one.effect, one.at(address), since, found);
        }
    }

    /// Adds the values of a byte for one who looks since a moment, wherever operations that are under way may have
    /// taken it from.
    fn collect(&self, effect: EffectId, at: usize, since: u64, found: &mut Found) {
        match &self.effects[effect].value {
            _ if self.effects[effect].torn => found.set = ByteSet::ANY,
            Value::Known(bytes) => match bytes.get(at) {
                Some(byte) => found.set.add(*byte),
                None => found.set = ByteSet::ANY,
            },
            Value::Sets(sets) => found.set.join(sets.get(at).unwrap_or(&ByteSet::ANY)),
            Value::Any => found.set = ByteSet::ANY,
            Value::Taken { seen, since, .. } => {
                // Operations may take from each other in circles.
                if found.trail.contains(&(effect, at)) {
                    return;
                }
                if found.trail.len() == FAR {
                    found.set = ByteSet::ANY;
                    return;
                }
                found.trail.push((effect, at));
                for one in seen.iter().filter(|one| (one.at..one.at + one.len).contains(&at)) {
                    let address = one.address + at - one.at;
                    self.collect_all(&one.candidates, address, *since, found);
                }
            }
            Value::Word(word) => match word.untouched(at) {
                Some(byte) => found.set.add(byte),
                None => {
                    // Else it may have been any of the values in between.
                    let public = self.effects[effect].public.is_some_and(|public| public <= since);
                    let quiet = public && !word.undefined;
                    match if quiet { word.leaves() } else { Linear::GivenUp } {
                        Linear::Leaves(words) => {
                            words.iter().for_each(|word| found.set.add(word[at]))
                        }
                        _ => found.set = ByteSet::ANY,
                    }
                }
            },
        }
    }

    /// The CPU sees these bytes in a run. What cannot change any more is known from now on.
    pub(super) fn look(&mut self, run: ByteRange, seen: &[u8], now: u64) -> Outcome {
        let cpu = Who { op: None, since: now };
        let mut fixed = Vec::new();
        for (range, all) in self.segments(&run) {
            let candidates = self.live(all, cpu);
            let part = &seen[range.start - run.start..range.end - run.start];
            self.compare(&run, range.start, part, &candidates)?;
            let quiet = |one: &Candidate| self.effects[one.effect].public.is_some();
            if all.iter().all(quiet) {
                fixed.push((range, part.to_vec()));
            }
        }
        // One effect for all that is known to be so.
        if let Some(last) = fixed.last() {
            let start = fixed[0].0.start;
            let whole = last.0.end - start == fixed.iter().map(|part| part.0.len()).sum::<usize>();
            if whole {
                let bytes = seen[start - run.start..last.0.end - run.start].to_vec();
                fixed = vec![(start..last.0.end, bytes)];
            }
        }
        for (range, bytes) in fixed {
            self.replace(
                ByteRange { memory: run.memory, start: range.start, len: range.len() },
                bytes,
                now,
            );
        }
        Ok(())
    }

    fn compare(
        &self,
        run: &ByteRange,
        start: usize,
        seen: &[u8],
        candidates: &[Candidate],
    ) -> Outcome {
        if let [one] = candidates {
            match &self.effects[one.effect].value {
                Value::Known(bytes)
                    if bytes.get(one.at(start)..one.at(start) + seen.len()) == Some(seen) =>
                {
                    return Ok(());
                }
                Value::Word(word) if seen.len() == 8 && one.at(start) == 0 && !word.undefined => {
                    let public = self.effects[one.effect].public.is_some();
                    if let (true, Linear::Leaves(words)) = (public, word.leaves())
                        && !words.iter().any(|word| word == seen)
                    {
                        let place = format!("m{}[{start}..{}]", run.memory, start + 8);
                        return Err(Failed::new(
                            format!("{place} as its atomics can leave it: {words:02x?}"),
                            format!("{seen:02x?}"),
                        ));
                    }
                }
                _ => {}
            }
        }
        for (i, &byte) in seen.iter().enumerate() {
            let set = self.join(candidates, start + i);
            if !set.has(byte) {
                let wrong = seen.len() - i;
                return Err(Failed::new(
                    format!("byte {} of memory m{} to be {set}", start + i, run.memory),
                    format!("{byte:02x} ({} bytes follow in this run)", wrong - 1),
                ));
            }
        }
        Ok(())
    }
}
