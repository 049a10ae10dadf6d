//! Grants of a program: made after the connections, used like regions, ended like regions or while they are used.

use fabric::Access;

use super::Generator;
use crate::random::program::{GrantSpec, Local, OpSpec, RegionSpec, Remote, Step, What};

impl Generator {
    /// Draws parts of some regions, each for one connection of their domain.
    pub(super) fn grants(&mut self) {
        for region in 0..self.program.regions.len() {
            for _ in 0..if self.one_in(3) { 1 + self.rng.below(2) } else { 0 } {
                self.grant(region);
            }
        }
    }

    fn grant(&mut self, region: usize) {
        let of = self.program.regions[region];
        let mut access = of.access.intersection(Access::REMOTE);
        if self.one_in(2) {
            let rights = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
            access = *self.rng.pick(&rights);
        }
        // What the region lacks is refused, which is seldom of interest.
        if !of.access.contains(access) && !self.one_in(8) {
            return;
        }
        let domain = self.program.memories[of.memory].domain;
        let ends = 0..2 * self.program.connections.len();
        let any = self.one_in(30);
        let ends: Vec<_> = ends.filter(|end| any || self.end(*end).domain == domain).collect();
        if ends.is_empty() {
            return;
        }
        let end = *self.rng.pick(&ends);
        let unit = if access.contains(Access::REMOTE_ATOMIC) || self.one_in(2) { 8 } else { 1 };
        let start = unit * self.rng.below(of.len.div_ceil(2 * unit));
        let len = unit * (1 + self.rng.below(((of.len - start) / unit).max(1)));
        let len = if self.one_in(30) { of.len - start + 1 } else { len };
        let grant = Some(GrantSpec { region, end });
        self.region(RegionSpec { memory: of.memory, start: of.start + start, len, access, grant });
    }

    /// As [`region_of`](Generator::region_of), of the peer of an end, which has grants to it as well.
    pub(super) fn region_for(&mut self, end: usize, need: Access) -> Option<usize> {
        let granted = |region: &usize| {
            let RegionSpec { access, grant, .. } = self.program.regions[*region];
            let to_it = grant.is_some_and(|grant| grant.end == end ^ 1);
            to_it && self.live[*region] && access.contains(need)
        };
        let granted: Vec<_> = (0..self.program.regions.len()).filter(granted).collect();
        // Programs have few grants: so lies are about these above all.
        let rather = if need.is_empty() { !self.one_in(5) } else { self.one_in(2) };
        if !granted.is_empty() && rather {
            return Some(*self.rng.pick(&granted));
        }
        self.region_of(self.end(end ^ 1).domain, need)
    }

    /// A grant that opens nothing to the peer of an end, or no more.
    pub(super) fn useless_grant(&mut self, end: usize, need: Access) -> Option<usize> {
        let is_useless = |at: &usize| {
            let spec = &self.program.regions[*at];
            let open = self.live[*at] && spec.grant.is_some_and(|grant| grant.end == end ^ 1);
            spec.grant.is_some() && spec.access.contains(need) && !open
        };
        let useless: Vec<_> = (0..self.program.regions.len()).filter(is_useless).collect();
        if useless.is_empty() { None } else { Some(*self.rng.pick(&useless)) }
    }

    /// Ends a grant, or its region, behind operations that use it, or uses it afterwards.
    pub(super) fn ending_a_grant(&mut self) {
        let grants = |at: &usize| self.live[*at] && self.program.regions[*at].grant.is_some();
        let grants: Vec<_> = (0..self.program.regions.len()).filter(grants).collect();
        if grants.is_empty() {
            return;
        }
        let at = *self.rng.pick(&grants);
        let Some(GrantSpec { region, end }) = self.program.regions[at].grant else { return };
        let user = end ^ 1;
        let count = 1 + self.rng.below(4);
        let ops: Vec<_> = (0..count).filter_map(|_| self.by(user, at)).collect();
        // What is under way may be refused then, and what comes later is.
        if self.faults == 0 {
            self.program.steps.push(Step::Post { end: user, ops });
            self.program.steps.push(Step::Wait(user));
            return;
        }
        self.faults -= 1;
        let later = self.one_in(3);
        let step = match self.rng.below(6) {
            0 => Step::Close(region),
            1 | 2 => Step::Forget(at),
            _ => Step::Close(at),
        };
        let post = Step::Post { end: user, ops };
        self.program.steps.extend(if later { [step, post] } else { [post, step] });
        self.live[at] = false;
    }

    /// An access to a grant; atomics find a place themselves.
    fn by(&mut self, end: usize, at: usize) -> Option<OpSpec> {
        let RegionSpec { len: size, access, .. } = self.program.regions[at];
        let (reads, writes) =
            (access.contains(Access::REMOTE_READ), access.contains(Access::REMOTE_WRITE));
        let len = self.len(size);
        let remote = Remote { region: at, at: self.offset(size - len), lie: None };
        if writes && (!reads || self.one_in(2)) {
            let local = self.local(end, len);
            return Some(OpSpec::plain(What::Write(remote), local));
        }
        if !reads {
            return self.atomic(end);
        }
        let parts = self.parts(end, len, Access::LOCAL_WRITE);
        Some(OpSpec::plain(What::Read(remote), Local::Parts(parts)))
    }
}
