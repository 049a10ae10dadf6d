//! The memories of a program that runs, and its regions in them; the model hears of all that happens to them.

use fabric::{Access, Domain, Memory, Region, RemoteRegion, RemoteSlice, Slice};

use super::model::{ByteRange, Model};
use super::program::{Part, Program, Remote};
use crate::check::{Failed, Outcome};
use crate::pattern::Pattern;

/// The memories and regions.
pub(super) struct Memories<'a> {
    program: &'a Program,
    domains: &'a [Domain],
    /// The program's, and one for the whole of each memory, without remote rights.
    regions: Vec<Option<Region>>,
    remotes: Vec<Option<RemoteRegion>>,
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
            let memory = Memory::zeroed(spec.len)?;
            let region = domains[spec.domain].register(&memory, Access::LOCAL_WRITE)?;
            region.write_at(0, &bytes)?;
            regions.push(Some(region));
            initial.push(bytes);
        }
        let remotes = regions.iter().map(|_| None).collect();
        Ok((Memories { program, domains, regions, remotes }, initial))
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

    pub(super) fn close(&self, model: &mut Model, at: usize) -> Outcome {
        match self.regions.get(at).and_then(Option::as_ref) {
            Some(region) if at < self.program.regions.len() => {
                let result = region.close();
                model.close(at, result.as_ref().copied(), &|run| self.read(run))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn close_all(&self, model: &mut Model) -> Outcome {
        (0..self.program.regions.len()).try_for_each(|at| self.close(model, at))
    }

    pub(super) fn forget(&mut self, model: &mut Model, at: usize) {
        if at < self.program.regions.len() && self.regions[at].take().is_some() {
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
