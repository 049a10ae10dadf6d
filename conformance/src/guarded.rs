//! Buffers with guard bytes around the payload.

use std::ops::{Bound, Range, RangeBounds};
use std::panic::Location;
use std::sync::Arc;

use fabric::{Access, AtomicScalar, Domain, Region, RemoteSlice, Slice, Slices};
use fabric_util::fork::ForkEpoch;

use crate::check::{Failed, Outcome, difference};
use crate::element::{element, element_bits};
use crate::forge::forged_key;
use crate::pattern::Pattern;
use crate::remote::case_memory::CaseMemory;
use crate::watch::Watch;

/// Guard bytes before the payload, and at least as many after it.
pub const GUARD: usize = 64;

/// Bytes compared at a time, so that checking a large payload needs little memory.
const STEP: usize = 64 << 10;

/// A region whose payload area has guard bytes before and after it. Offsets and ranges are those of the payload.
///
/// The payload starts at a multiple of 64, and the region ends at a multiple of 8, as remote atomics need.
/// Operations reach the guards only by mistake. A buffer of an [`End`](crate::prelude::End) is checked when it goes, and damage
/// fails the case; [`check_guards`](Guarded::check_guards) is for buffers made by [`new`](Guarded::new), and for a
/// check in the middle of a case.
///
/// Its bytes are where its domain is, be it on another host: cases read and write them by these methods, never by
/// those of the region.
#[derive(Debug)]
pub struct Guarded {
    region: Region,
    home: Arc<CaseMemory>,
    len: usize,
    fork_epoch: ForkEpoch,
    /// Where it was made, and what hears of damage.
    watch: Option<(&'static Location<'static>, Arc<Watch>)>,
}

impl Guarded {
    /// A buffer of `len` zero bytes between guards; `len` may be zero.
    ///
    /// # Errors
    /// If the domain refuses.
    #[track_caller]
    pub fn new(domain: &Domain, len: usize, access: Access) -> Result<Self, Failed> {
        let whole = (GUARD + len + GUARD).next_multiple_of(8);
        let home = CaseMemory::new(domain, whole)?;
        let region = domain.register(home.memory(), access)?;
        home.set_registered();
        let guarded = Guarded { region, home, len, fork_epoch: ForkEpoch::current(), watch: None };
        for area in guarded.guard_areas() {
            guarded.write_at(area.start, &guard_bytes(area))?;
        }
        Ok(guarded)
    }

    /// Its guards are checked when it goes.
    #[track_caller]
    pub(crate) fn watched(mut self, watch: &Arc<Watch>) -> Self {
        self.watch = Some((Location::caller(), watch.clone()));
        self
    }

    /// Bytes of payload.
    #[expect(clippy::len_without_is_empty, reason = "a buffer is not a collection")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The region, guards included.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Ends the registration, as [`Region::close`], wherever its operations are.
    ///
    /// # Errors
    /// As there.
    pub fn close(&self) -> fabric::Result<()> {
        self.home.close()?;
        self.region.close()
    }

    /// Registers a range of the payload once more, in the same domain or another, with rights of its own. What lies
    /// around it then shows whether an operation reached out of it.
    ///
    /// # Errors
    /// If the domain refuses.
    #[track_caller]
    pub fn register(
        &self,
        domain: &Domain,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<Region, Failed> {
        let Range { start, end } = self.resolve(range);
        Ok(domain.register_part(self.home.memory(), GUARD + start..GUARD + end, access)?)
    }

    /// Part of the payload, for an operation: `a.send(source.slice(..8), 1)`. A range beyond the payload reaches
    /// into the guards, or out of the region; that is for cases that mean it.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_> {
        let Range { start, end } = self.resolve(range);
        self.region.slice(GUARD + start..GUARD + end)
    }

    /// The place `offset` bytes into the payload, for the peer's operations.
    pub fn at(&self, offset: usize) -> RemoteSlice {
        self.region.remote().at((GUARD + offset) as u64)
    }

    /// The same place by a key that opens nothing, which only the target can see.
    pub fn by_wrong_key(&self, offset: usize) -> RemoteSlice {
        let honest = self.region.remote();
        forged_key(&honest, !honest.key()).at(self.at(offset).offset())
    }

    /// Writes `bytes` at `offset`.
    ///
    /// # Errors
    /// If the region refuses.
    #[track_caller]
    pub fn put(&self, offset: usize, bytes: &[u8]) -> Outcome {
        Ok(self.write_at(GUARD + offset, bytes)?)
    }

    /// Sets every byte of the payload.
    ///
    /// # Errors
    /// If the region refuses.
    #[track_caller]
    pub fn fill(&self, byte: u8) -> Outcome {
        let block = vec![byte; STEP.min(self.len)];
        for at in (0..self.len).step_by(STEP) {
            self.write_at(GUARD + at, &block[..STEP.min(self.len - at)])?;
        }
        Ok(())
    }

    /// Writes a pattern into a range; its first byte is the pattern's first.
    ///
    /// # Errors
    /// If the region refuses.
    #[track_caller]
    pub fn put_pattern(&self, range: impl RangeBounds<usize>, pattern: Pattern) -> Outcome {
        let Range { start, end } = self.resolve(range);
        let mut block = vec![0; STEP.min(end - start)];
        for at in (start..end).step_by(STEP) {
            let now = &mut block[..STEP.min(end - at)];
            pattern.fill(at - start, now);
            self.write_at(GUARD + at, now)?;
        }
        Ok(())
    }

    /// The value at `offset`, in host order.
    ///
    /// # Errors
    /// If the region refuses.
    #[track_caller]
    pub fn get<T: AtomicScalar>(&self, offset: usize) -> Result<T, Failed> {
        let size = T::TYPE.size();
        Ok(T::from_bits64(element_bits(&self.bytes(offset..offset + size)?, size)))
    }

    /// Writes a value at `offset`, in host order.
    ///
    /// # Errors
    /// If the region refuses.
    #[track_caller]
    pub fn set<T: AtomicScalar>(&self, offset: usize, value: T) -> Outcome {
        self.put(offset, &element(T::TYPE, value.to_bits64()))
    }

    /// A copy of a range of the payload.
    ///
    /// # Errors
    /// If the region refuses.
    #[track_caller]
    pub fn bytes(&self, range: impl RangeBounds<usize>) -> Result<Vec<u8>, Failed> {
        let Range { start, end } = self.resolve(range);
        Ok(self.to_vec(GUARD + start..GUARD + end)?)
    }

    /// Checks that a range holds a pattern, its first byte the pattern's first.
    ///
    /// # Errors
    /// Where they differ.
    #[track_caller]
    pub fn check_pattern(&self, range: impl RangeBounds<usize>, pattern: Pattern) -> Outcome {
        self.compare(self.resolve(range), "the pattern", |from, bytes| pattern.fill(from, bytes))
    }

    /// Checks that every byte of a range is `byte`: that nothing was written there.
    ///
    /// # Errors
    /// Where they differ.
    #[track_caller]
    pub fn check_filled(&self, range: impl RangeBounds<usize>, byte: u8) -> Outcome {
        self.compare(self.resolve(range), "untouched bytes", |_, bytes| bytes.fill(byte))
    }

    /// Checks that no operation touched the guards.
    ///
    /// # Errors
    /// Which guard byte changed.
    #[track_caller]
    pub fn check_guards(&self) -> Outcome {
        self.damage(Location::caller())?.map_or(Ok(()), Err)
    }

    /// What is wrong with the guards; an error where they cannot be read.
    fn damage(&self, place: &'static Location<'static>) -> fabric::Result<Option<Failed>> {
        let [before, after] = self.guard_areas();
        for (area, which) in [(before, "before"), (after, "after")] {
            let seen = self.to_vec(area.clone())?;
            if let Some(seen) = difference(&seen, &guard_bytes(area)) {
                let expected = format!("intact guard bytes {which} {} bytes of payload", self.len);
                return Ok(Some(Failed::at(place, expected, seen)));
            }
        }
        Ok(None)
    }

    #[track_caller]
    fn compare(&self, range: Range<usize>, what: &str, fill: impl Fn(usize, &mut [u8])) -> Outcome {
        let place = Location::caller();
        let Range { start, end } = range;
        let mut seen = vec![0; STEP.min(end - start)];
        let mut expected = seen.clone();
        for at in (start..end).step_by(STEP) {
            let step = STEP.min(end - at);
            self.read_at(GUARD + at, &mut seen[..step])?;
            fill(at - start, &mut expected[..step]);
            if let Some(seen) = difference(&seen[..step], &expected[..step]) {
                let expected = format!("{what} in bytes {start}..{end} of the payload");
                let from =
                    if at == 0 { String::new() } else { format!(" (counted from byte {at})") };
                return Err(Failed::at(place, expected, seen + &from));
            }
        }
        Ok(())
    }

    fn write_at(&self, at: usize, bytes: &[u8]) -> fabric::Result<()> {
        if self.home.store(at, bytes)? { Ok(()) } else { self.region.write_at(at, bytes) }
    }

    fn read_at(&self, at: usize, bytes: &mut [u8]) -> fabric::Result<()> {
        if self.home.load(at, bytes)? { Ok(()) } else { self.region.read_at(at, bytes) }
    }

    fn to_vec(&self, range: Range<usize>) -> fabric::Result<Vec<u8>> {
        let mut bytes = vec![0; range.len()];
        self.read_at(range.start, &mut bytes)?;
        Ok(bytes)
    }

    fn guard_areas(&self) -> [Range<usize>; 2] {
        [0..GUARD, GUARD + self.len..self.region.len()]
    }

    fn resolve(&self, range: impl RangeBounds<usize>) -> Range<usize> {
        let start = match range.start_bound() {
            Bound::Included(&at) => at,
            Bound::Excluded(&at) => at + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&at) => at + 1,
            Bound::Excluded(&at) => at,
            Bound::Unbounded => self.len,
        };
        start..end
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let Some((place, watch)) = self.watch.take() else { return };
        // A child has no copy of memory that a device may reach (MADV_DONTFORK of madvise(2)).
        if !self.fork_epoch.is_current() {
            return;
        }
        // Memory that cannot be read any more, of a process that was killed, shows nothing.
        if let Ok(Some(damage)) = self.damage(place) {
            watch.damaged(damage);
        }
    }
}

/// The whole payload.
impl<'a> From<&'a Guarded> for Slice<'a> {
    fn from(buffer: &'a Guarded) -> Self {
        buffer.slice(..)
    }
}

impl<'a> From<&'a Guarded> for Slices<'a> {
    fn from(guarded: &'a Guarded) -> Self {
        guarded.slice(..).into()
    }
}

/// Differs from byte to byte, so that a guard moved to elsewhere shows too.
fn guard_bytes(area: Range<usize>) -> Vec<u8> {
    area.map(|at| 0xa5 ^ at as u8).collect()
}
