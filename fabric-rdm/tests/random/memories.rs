//! Whether one-sided operations did what they say.

use crate::executor::{Executor, Outcome, counter_at, place_at};
use crate::memory::payload;
use crate::program::PLACES;
use crate::record::{Access, OneSided};
use fabric_rdm::Status;

impl OneSided {
    fn is_ok(&self) -> bool {
        matches!(self.ended, Some((_, Status::Ok)))
    }

    /// It may have been executed.
    fn may_be(&self) -> bool {
        self.canceled.is_none()
    }
}

impl Executor<'_> {
    /// Checks the memory of all endpoints, and what was read of it.
    pub(crate) fn check_memories(&self) -> Outcome {
        for (to, end) in self.ends.iter().enumerate() {
            let memory = end.memory.bytes()?;
            for at in 0..self.ends.len() {
                let counter = counter_at(at);
                self.check_adds(at, to, &memory[counter..counter + 8])?;
                for (place, len) in PLACES.into_iter().enumerate() {
                    let start = place_at(at, place);
                    let found = &memory[start..start + len];
                    self.check_place(at, to, place, self.record.accesses.len(), found)?;
                }
            }
        }
        for (number, read) in self.record.accesses.iter().enumerate() {
            if let Access::Read(place) = read.access
                && read.is_ok()
            {
                self.check_read(read, number, place)?;
            }
        }
        Ok(())
    }

    /// What was read was there when it was posted, or was written later.
    fn check_read(&self, read: &OneSided, number: usize, place: usize) -> Outcome {
        let found = read.buffer.bytes()?;
        let before = self.check_place(read.at, read.to, place, number, &found);
        let is_later = self.record.accesses.iter().enumerate().skip(number).any(|(at, one)| {
            (one.at, one.to, one.access) == (read.at, read.to, Access::Write(place))
                && one.may_be()
                && found == payload(at as u64 + 1_000_000, found.len())
        });
        if is_later { Ok(()) } else { before }
    }

    /// A place holds the last write before `until`, as far as that is known.
    fn check_place(
        &self,
        at: usize,
        to: usize,
        place: usize,
        until: usize,
        found: &[u8],
    ) -> Outcome {
        let is_write = |one: &OneSided| {
            (one.at, one.to, one.access) == (at, to, Access::Write(place)) && one.may_be()
        };
        let accesses = &self.record.accesses[..until];
        let Some(last) = accesses.iter().rposition(is_write) else {
            return match found.iter().all(|byte| *byte == 0) {
                true => Ok(()),
                false => Err(format!("place {place} of {at} at {to} is as it was")),
            };
        };
        let expected = payload(last as u64 + 1_000_000, found.len());
        if accesses[last].is_ok() && found != expected {
            return Err(format!("place {place} of {at} at {to} has the bytes of write {last}"));
        }
        Ok(())
    }

    fn check_adds(&self, at: usize, to: usize, counter: &[u8]) -> Outcome {
        let is_add = |one: &&OneSided| (one.at, one.to, one.access) == (at, to, Access::Add);
        let adds: Vec<_> = self.record.accesses.iter().filter(is_add).collect();
        let certain = adds.iter().filter(|one| one.is_ok()).count() as u64;
        let posted = adds.iter().filter(|one| one.may_be()).count() as u64;
        let value = crate::memory::number(counter).unwrap_or_default();
        if !(certain..=posted).contains(&value) {
            return Err(format!(
                "{certain} to {posted} additions of {at} at {to}, each at most once, not {value}"
            ));
        }
        // Additions have no order among each other.
        let olds = adds.iter().filter(|one| one.is_ok()).map(|add| add.buffer.bytes());
        let mut olds = olds
            .map(|bytes| bytes.map(|bytes| crate::memory::number(&bytes)))
            .collect::<Outcome<Vec<_>>>()?;
        olds.sort_unstable();
        let is_distinct = olds.windows(2).all(|two| two[0] != two[1]);
        if !is_distinct || olds.iter().any(|old| old.is_none_or(|old| old >= value)) {
            return Err(format!("old values below {value} of {at} at {to}, not {olds:?}"));
        }
        Ok(())
    }
}
