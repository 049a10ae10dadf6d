//! The local memory of an operation: its checks, and the segments for the provider.

use fabric_core::{Access, Error, Result, Segment};
use smallvec::SmallVec;

use crate::domain::DomainInner;
use crate::inflight::RegionRefs;
use crate::op::Slices;
use crate::slice::{OwnedSlice, Slice};

#[cold]
fn too_many(name: &'static str, max: usize) -> Error {
    Error::invalid(name, format!("more than {max} segments, the most that one takes"))
}

impl DomainInner {
    /// Checks local slices as a post does, and holds them for a later one, in `held`, which is empty; gives the sum of the lengths.
    pub(crate) fn hold_slices(
        &self,
        name: &'static str,
        slices: &Slices<'_>,
        need: Access,
        max: usize,
        held: &mut SmallVec<[OwnedSlice; 1]>,
    ) -> Result<usize> {
        let mut total = 0usize;
        for slice in slices.as_slice() {
            self.check_slice(name, slice, need)?;
            if !slice.is_empty() {
                total = total.saturating_add(slice.len());
                held.push(slice.hold()?);
            }
            if held.len() > max {
                return Err(too_many(name, max));
            }
        }
        Ok(total)
    }

    /// Checks local slices and appends them, with a reference to each region; gives the sum of the lengths.
    #[inline(always)]
    pub(crate) fn add_slices(
        &self,
        name: &'static str,
        slices: &Slices<'_>,
        need: Access,
        max: usize,
        segments: &mut Vec<Segment>,
        regions: &mut RegionRefs,
    ) -> Result<usize> {
        match slices.as_slice() {
            // Mostly; and it cannot be too many, for an endpoint takes one at least.
            [one] => self.add_slice(name, one, need, segments, regions),
            all => self.add_several(name, all, need, max, segments, regions),
        }
    }

    #[inline(never)]
    fn add_several(
        &self,
        name: &'static str,
        slices: &[Slice<'_>],
        need: Access,
        max: usize,
        segments: &mut Vec<Segment>,
        regions: &mut RegionRefs,
    ) -> Result<usize> {
        let mut total = 0usize;
        let before = segments.len();
        for slice in slices {
            total = total.saturating_add(self.add_slice(name, slice, need, segments, regions)?);
            if segments.len() - before > max {
                return Err(too_many(name, max));
            }
        }
        Ok(total)
    }

    #[inline]
    fn add_slice(
        &self,
        name: &'static str,
        slice: &Slice<'_>,
        need: Access,
        segments: &mut Vec<Segment>,
        regions: &mut RegionRefs,
    ) -> Result<usize> {
        self.check_slice(name, slice, need)?;
        let core = slice.core;
        if slice.len == 0 {
            return Ok(0);
        }
        if !regions.has(core) {
            regions.add(core.clone());
            if core.is_closed() {
                return Err(Error::state(name, "the region is closed"));
            }
        }
        let (addr, key) = (core.addr_at(slice.offset), core.local_key);
        segments.push(Segment::new(addr, slice.len, key));
        Ok(slice.len)
    }

    /// Checks one slice.
    #[inline]
    pub(crate) fn check_slice(
        &self,
        name: &'static str,
        slice: &Slice<'_>,
        need: Access,
    ) -> Result<()> {
        let core = slice.core;
        let fits = slice.offset.checked_add(slice.len).is_some_and(|end| end <= core.len);
        if !fits || !core.access.contains(need) || !std::ptr::eq(&*core.domain, self) {
            return Err(Self::bad_slice(name, slice, need, fits));
        }
        Ok(())
    }

    #[cold]
    fn bad_slice(name: &'static str, slice: &Slice<'_>, need: Access, fits: bool) -> Error {
        let (offset, len, size) = (slice.offset, slice.len, slice.core.len);
        Error::invalid(
            name,
            if !fits && offset == usize::MAX && len == usize::MAX {
                "the slice's range ends before it starts".to_owned()
            } else if !fits {
                format!("{len} bytes at offset {offset} do not fit a region of {size}")
            } else if !slice.core.access.contains(need) {
                let access = slice.core.access;
                format!("the local region has {access:?}; this needs {need:?}")
            } else {
                "the local region is of another domain".to_owned()
            },
        )
    }
}
