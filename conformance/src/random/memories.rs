//! The memories of a program that runs, and its regions in them; the model hears of all that happens to them.

use std::ops::Range;

use fabric::{Access, Capabilities, Domain, Grant, Region, RemoteRegion, RemoteSlice, Slice};

use super::model::{ByteRange, Model};
use super::program::{GrantSpec, Part, Program, Remote};
use crate::check::{Failed, Outcome};
use crate::pattern::Pattern;

/// The memories and regions.
pub(super) struct Memories<'a> {
    program: &'a Program,
    domains: &'a [Domain],
    /// The program's, and one for the whole of each memory, without remote rights.
    regions: Vec<Option<Region>>,
    /// Those of the program's regions that are grants.
    grants: Vec<Option<Grant>>,
    remotes: Vec<Option<RemoteRegion>>,
}

/// A grant that may be opened now.
pub(super) struct Grantable<'a> {
    pub(super) region: &'a Region,
    pub(super) range: Range<usize>,
    pub(super) access: Access,
    pub(super) end: usize,
}

impl<'a> Memories<'a> {
    /// The memories, and what is in each.
    pub(super) fn new(
        program: &'a Program,
        domains: &'a [Domain],
    ) -> Result<(Self, Vec<Vec<u8>>), Failed> {
        let mut regions: Vec<_> = program.regions.iter().map(|_| None).collect();
        let mut initial = Vec::new();
        for (at, spec) in program.memories.iter().enumerate() {
            let bytes = Pattern::new(at as u64).bytes(spec.len);
            let region = domains[spec.domain].alloc(spec.len, Access::LOCAL_WRITE)?;
            region.write_at(0, &bytes)?;
            regions.push(Some(region));
            initial.push(bytes);
        }
        let remotes = regions.iter().map(|_| None).collect();
        let grants = program.regions.iter().map(|_| None).collect();
        Ok((Memories { program, domains, regions, grants, remotes }, initial))
    }

    /// The region of a whole memory.
    pub(super) fn whole(&self, memory: usize) -> usize {
        self.program.regions.len() + memory
    }

    fn own(&self, memory: usize) -> Option<&Region> {
        self.regions[self.whole(memory)].as_ref()
    }

    pub(super) fn register(&mut self, model: &mut Model, at: usize) -> Outcome {
        let Some(spec) = self.program.regions.get(at) else { return Ok(()) };
        if self.remotes[at].is_some() {
            return Ok(());
        }
        let memory = &self.program.memories[spec.memory];
        let Some(own) = self.own(spec.memory).and_then(Region::memory) else { return Ok(()) };
        let range = spec.start..spec.start + spec.len;
        let region = self.domains[memory.domain].register_part(own, range, spec.access);
        model.registered(at, region.as_ref().map(drop))?;
        if let Ok(region) = region {
            self.remotes[at] = Some(region.remote());
            self.regions[at] = Some(region);
        }
        Ok(())
    }

    /// A grant that may be opened now.
    pub(super) fn grantable(&self, model: &Model, at: usize) -> Option<Grantable<'_>> {
        let spec = self.program.regions.get(at).filter(|_| self.remotes[at].is_none())?;
        let GrantSpec { region, end } = spec.grant.filter(|_| model.can_grant(at))?;
        let of = self.program.regions.get(region)?;
        let start = spec.start.checked_sub(of.start)?;
        let domain = &self.domains[self.program.memories[spec.memory].domain];
        if !domain.info().capabilities.contains(Capabilities::GRANTS) {
            return None;
        }
        let (region, range) = (self.regions[region].as_ref()?, start..start + spec.len);
        Some(Grantable { region, range, access: spec.access, end })
    }

    /// A grant was opened, or not.
    pub(super) fn granted(
        &mut self,
        model: &mut Model,
        at: usize,
        result: fabric::Result<Grant>,
    ) -> Outcome {
        model.granted(at, result.as_ref().map(drop))?;
        if let Ok(grant) = result {
            self.remotes[at] = Some(grant.remote());
            self.grants[at] = Some(grant);
        }
        Ok(())
    }

    pub(super) fn close(&self, model: &mut Model, at: usize) -> Outcome {
        let Some(grant) = self.grants.get(at) else { return Ok(()) };
        let result = match (grant, &self.regions[at]) {
            (Some(grant), _) => grant.revoke(),
            (None, Some(region)) => region.close(),
            (None, None) => return Ok(()),
        };
        model.close(at, result.as_ref().copied(), &|run| self.read(run))
    }

    pub(super) fn close_all(&self, model: &mut Model) -> Outcome {
        (0..self.program.regions.len()).try_for_each(|at| self.close(model, at))
    }

    pub(super) fn forget(&mut self, model: &mut Model, at: usize) {
        let Some(grant) = self.grants.get_mut(at) else { return };
        if grant.take().is_some() || self.regions[at].take().is_some() {
            model.forget(at);
        }
    }

    /// The CPU writes a pattern.
    pub(super) fn store(
        &self,
        model: &mut Model,
        memory: usize,
        at: usize,
        len: usize,
        salt: u64,
    ) -> Outcome {
        let Some(spec) = self.program.memories.get(memory) else { return Ok(()) };
        if at + len > spec.len || len == 0 {
            return Ok(());
        }
        let bytes = Pattern::new(salt).bytes(len);
        self.put(&Part { region: self.whole(memory), at, len }, &bytes)?;
        model.stored(memory, at, bytes);
        Ok(())
    }

    /// The CPU looks at every byte of a memory.
    pub(super) fn look(&self, model: &mut Model, memory: usize) -> Outcome {
        let Some(spec) = self.program.memories.get(memory) else { return Ok(()) };
        let run = ByteRange { memory, start: 0, len: spec.len };
        model.looked(run, &self.read(run))
    }

    pub(super) fn look_at_all(&self, model: &mut Model) -> Outcome {
        (0..self.program.memories.len()).try_for_each(|memory| self.look(model, memory))
    }

    /// As [`look_at_all`](Memories::look_at_all), at those of one domain.
    pub(super) fn look_at_domain(&self, model: &mut Model, domain: usize) -> Outcome {
        let mut all = self.program.memories_of(domain);
        all.try_for_each(|(memory, _)| self.look(model, memory))
    }

    pub(super) fn read(&self, run: ByteRange) -> Vec<u8> {
        // The region of a whole memory is there as long as the program runs, and every run lies in it.
        let own = self.own(run.memory);
        own.and_then(|own| own.to_vec(run.start..run.start + run.len).ok()).unwrap_or_default()
    }

    /// Puts the first bytes of `bytes` where the part says.
    pub(super) fn put(&self, part: &Part, bytes: &[u8]) -> Outcome {
        if let Some(region) = &self.regions[part.region] {
            region.write_at(part.at, &bytes[..part.len.min(bytes.len())])?;
        }
        Ok(())
    }

    pub(super) fn slices(&self, parts: &[Part]) -> Vec<Slice<'_>> {
        let slice = |part: &Part| {
            Some(self.regions[part.region].as_ref()?.slice(part.at..part.at + part.len))
        };
        parts.iter().filter_map(slice).collect()
    }

    /// The place that an operation names, as its descriptor has it.
    pub(super) fn place(&self, to: &Remote) -> RemoteSlice {
        // `can_post` has seen that the region was registered.
        let nowhere = RemoteRegion::from_parts(0, 0, 0, Access::empty());
        to.descriptor(&self.remotes[to.region].unwrap_or(nowhere)).at(to.at as u64)
    }
}
