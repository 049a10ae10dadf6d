//! Regions that close in bounded time, though operations without a completion used them.

use std::thread;
use std::time::{Duration, Instant};

use fabric::Access;

use super::Polling;
use crate::check::{Failed, Outcome};
use crate::random::executor::Executor;
use crate::random::program::{Local, OpSpec, Part, Remote, What};

/// How long the library may take to find out that an operation has ended, before scaling.
const BOUND: Duration = Duration::from_secs(3);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(2);
/// Most bytes of an access to a dropped region.
const PROBE: usize = 8;

impl Polling<'_> {
    /// Closes a region, again and again if it must become free.
    pub(super) fn free(&mut self, region: usize) -> Outcome {
        let until = self.bound();
        loop {
            self.run.memories.close(&mut self.run.model, region)?;
            if region >= self.run.program.regions.len() || !self.run.model.must_close(region) {
                return Ok(());
            }
            self.go_on(until, &format!("r{region} to close"))?;
        }
    }

    /// Closes those regions whose closing neither a program's operations nor a peer notices.
    pub(super) fn free_quiet(&mut self) -> Outcome {
        for region in 0..self.run.program.regions.len() {
            if self.run.model.is_held_quietly(region) {
                self.run.note(format!("close r{region}, until it is"));
                self.free(region)?;
            }
        }
        Ok(())
    }

    pub(super) fn free_all(&mut self) -> Outcome {
        (0..self.run.program.regions.len()).try_for_each(|region| self.free(region))
    }

    /// Accesses a dropped region of the peer's until that is refused.
    pub(super) fn probe(&mut self, end: usize, region: usize) -> Outcome {
        let Some(access) = self.access(end, region) else { return Ok(()) };
        let until = self.bound();
        while self.run.model.can_probe(end, region, &access) {
            self.post(end, std::slice::from_ref(&access))?;
            self.wait(end)?;
            if self.run.model.can_probe(end, region, &access) {
                self.go_on(until, &format!("the dropped r{region} to close to its peer"))?;
            }
        }
        Ok(())
    }

    /// Accesses each dropped region that some connection still reaches.
    pub(super) fn probe_all(&mut self) -> Outcome {
        for region in 0..self.run.program.regions.len() {
            for end in 0..self.ends.len() {
                if self.run.model.is_leaving(region) {
                    self.probe(end, region)?;
                }
            }
        }
        Ok(())
    }

    /// The access that a region's rights allow to an end, if any.
    fn access(&self, end: usize, region: usize) -> Option<OpSpec> {
        let spec = self.run.program.regions.get(region)?;
        let ends: Vec<_> = self.run.program.connections.iter().flatten().collect();
        let (memory, own) = self.run.program.memories_of(ends.get(end)?.domain).next()?;
        let len = PROBE.min(spec.len).min(own.len);
        let to = Remote { region, at: 0, lie: None };
        let what = if spec.access.contains(Access::REMOTE_READ) {
            What::Read(to)
        } else if spec.access.contains(Access::REMOTE_WRITE) {
            What::Write(to)
        } else {
            return None;
        };
        let part = Part { region: self.run.memories.whole(memory), at: own.len - len, len };
        (len > 0).then(|| OpSpec::plain(what, Local::Parts(vec![part])))
    }

    fn bound(&self) -> Instant {
        Instant::now() + self.run.bench.scaled(BOUND)
    }

    /// Takes what may hold a region, and lets the library do the rest by itself.
    fn go_on(&mut self, until: Instant, what: &str) -> Outcome {
        if Instant::now() > until {
            let within = self.run.bench.stretched(BOUND);
            return Err(
                Failed::new(format!("{what} within {within}"), "it did not").with_dump(self.dump())
            );
        }
        for end in 0..self.ends.len() {
            if self.run.model.may_be_told(end) {
                self.poll(end, usize::MAX)?;
            }
        }
        thread::sleep(PAUSE);
        Ok(())
    }
}
