//! What one-sided operations leave and find.
//!
//! Each endpoint has some places for each other one, which alone writes to them. So what is in a place is what the last write
//! left, as far as the order of operations says which one that is: a write is before the reads, writes and messages that are
//! posted behind it. A later write may be there already. Bytes of writes that meet may be mixed.

use super::super::program::RemoteOp;
use super::record::{Initiated, Initiating, RdmModel, Time};
use crate::check::{Failed, Outcome};
use crate::pattern::Pattern;

/// What an operation writes. Its number alone says it.
pub(in super::super) fn written(op: usize, len: usize) -> Vec<u8> {
    Pattern::new(op as u64 ^ 0x5752_4954).bytes(len)
}

impl RdmModel {
    /// Operations of one endpoint on the memory of another, with what they do.
    fn accesses_between(
        &self,
        at: usize,
        to: usize,
    ) -> impl Iterator<Item = (usize, &Initiated, usize)> {
        let access = |(number, op)| match op {
            &Initiated { what: Initiating::Access(access), .. } => Some((number, op, access)),
            _ => None,
        };
        let all = self.ops.iter().enumerate().filter_map(access);
        all.filter(move |(_, op, _)| (op.at, op.to) == (at, to) && !op.canceled)
    }

    /// Whether one-sided operations of an endpoint to itself, posted before this, may not have ended by then.
    pub(super) fn may_be_accessing(&self, at: usize, time: Time) -> bool {
        self.accesses_between(at, at).any(|(_, op, access)| {
            op.posted < time && self.accesses[access].known.is_none_or(|known| known > time)
        })
    }

    /// Whether it was executed for certain, if anything behind it was.
    fn is_certain(&self, op: &Initiated) -> bool {
        match op.ended {
            Some(status) => status == fabric_rdm::Status::Ok,
            None => {
                let life = self.links[op.at][op.to].lives[op.life];
                !(life.is_over || life.is_removed || self.dropped[op.at] || self.dropped[op.to])
            }
        }
    }

    /// The bytes of a place, as what was posted at `time` by the same initiator finds them.
    pub(in super::super) fn check_place(
        &self,
        (at, to): (usize, usize),
        place: usize,
        time: Time,
        bytes: &[u8],
    ) -> Outcome {
        let mut can_be = vec![vec![0; bytes.len()]];
        for (number, op, access) in self.accesses_between(at, to) {
            if self.accesses[access].what != RemoteOp::Write(place) {
                continue;
            }
            if op.posted < time && self.is_certain(op) {
                // What is lost may still come, until its end is known at the target.
                can_be.retain(|_| self.is_lossy(at, to));
            }
            can_be.push(written(number, bytes.len()));
        }
        let is_right = |(index, byte): (usize, &u8)| can_be.iter().any(|one| one[index] == *byte);
        match bytes.iter().enumerate().position(|byte| !is_right(byte)) {
            None => Ok(()),
            Some(index) => {
                let expected = format!(
                    "one of {} writes of e{at} in place {place} of e{to}, as posted by time {time}",
                    can_be.len()
                );
                Err(Failed::new(expected, format!("byte {index} is {:#x}", bytes[index])))
            }
        }
    }

    /// Whether there are any writes behind which that may be.
    pub(in super::super) fn has_writes(&self, at: usize, to: usize) -> bool {
        self.accesses_between(at, to).next().is_some()
    }

    /// When a message was posted.
    pub(in super::super) fn posted_at(&self, op: usize) -> Time {
        self.ops[op].posted
    }

    /// At the end, what is in a counter: each operation added one, at most once.
    pub(in super::super) fn check_counter(&self, at: usize, to: usize, value: u64) -> Outcome {
        let is_add = |access: usize| self.accesses[access].what == RemoteOp::Add;
        let adds: Vec<_> =
            self.accesses_between(at, to).filter(|(.., access)| is_add(*access)).collect();
        let certain = adds.iter().filter(|(_, op, _)| self.is_certain(op)).count() as u64;
        let found = adds.iter().filter_map(|(.., access)| self.accesses[*access].found).max();
        let min = certain.max(found.map_or(0, |found| found + 1));
        if (min..=adds.len() as u64).contains(&value) {
            return Ok(());
        }
        let expected = format!("{min} to {} additions of e{at} at e{to}", adds.len());
        Err(Failed::new(expected, value.to_string()))
    }

    /// A fetch found this value of a counter, to which each operation adds one.
    pub(in super::super) fn fetched(&mut self, op: usize, value: u64) -> Outcome {
        let Initiated { at, to, what: Initiating::Access(access), posted, .. } = self.ops[op]
        else {
            return Ok(());
        };
        let is_fenced = self.accesses[access].fence;
        let (mut min, mut max, mut is_new) = (0, 0, true);
        for (number, other, index) in self.accesses_between(at, to) {
            let one = &self.accesses[index];
            if number == op || one.what != RemoteOp::Add {
                continue;
            }
            max += 1;
            let is_known = other.ended == Some(fabric_rdm::Status::Ok)
                && one.known.is_some_and(|time| time < posted);
            min += u64::from(is_known || is_fenced && number < op && self.is_certain(other));
            is_new &= one.found != Some(value);
        }
        self.accesses[access].found = Some(value);
        if (min..=max).contains(&value) && is_new {
            return Ok(());
        }
        let expected = format!("operation {op} to find a value of {min} to {max}, as no other did");
        Err(Failed::new(expected, value.to_string()))
    }
}
