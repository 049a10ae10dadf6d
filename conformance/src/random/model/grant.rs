//! Grants: each is a region more, part of another one, whose key is for one connection.
//!
//! | rule | here |
//! |---|---|
//! | it is made of an open region, with rights that the region has, for a connection | [`Model::granted`] |
//! | its key opens it to the peer of its connection, and to no other | [`Model::is_for`] |
//! | it ends when it is revoked or dropped, at once | [`Model::close`], [`Model::forget`] |
//! | it ends with its region, whose `close` does not wait for it | [`Model::end_grants`] |
//! | a region whose handle is gone is there as long as a grant of it | [`Model::has_grants`] |

use fabric::{Access, Error};

use super::call::Mistake;
use super::{Life, Model};
use crate::check::Outcome;
use crate::random::program::{GrantSpec, RegionSpec};

impl Model {
    /// Whether a program grants this: of a region with a handle, to an end that is there, and whose posts hold nothing
    /// back.
    pub(in crate::random) fn can_grant(&self, at: usize) -> bool {
        let Some(GrantSpec { region, end }) = self.regions[at].spec.grant else { return false };
        let (at_end, of) = (end, self.regions.get(region));
        let (Some(of), Some(end)) = (of, self.ends.get(end)) else {
            return false;
        };
        let comes_to_it = end.dead || self.due(at_end) == end.sends.len();
        self.has_handle(region)
            && of.spec.memory == self.regions[at].spec.memory
            && !end.dropped
            && comes_to_it
    }

    /// A grant was opened, or not.
    pub(in crate::random) fn granted(&mut self, at: usize, result: Result<(), &Error>) -> Outcome {
        self.tick();
        let spec = self.regions[at].spec;
        let Some(GrantSpec { region, end }) = spec.grant else { return Ok(()) };
        let of = &self.regions[region];
        let mut refusals = self.state_refusals(end);
        if !self.ends[end].connected {
            refusals.sure.push(Mistake::NotConnected);
        }
        if of.life != Life::Open {
            refusals.sure.push(Mistake::InvalidState);
        }
        let is_granted = fits(&of.spec, &spec) && of.domain == self.ends[end].spec.domain;
        if !is_granted {
            refusals.sure.push(Mistake::InvalidArgument);
        }
        if refusals.check(&format!("the grant r{at}"), result)? {
            self.has_key(at);
        } else {
            self.refused(end, result);
        }
        Ok(())
    }

    /// Whether a key opens anything to this end: that of a grant does over its own connection alone.
    pub(super) fn is_for(&self, region: usize, at: usize) -> bool {
        self.regions[region].spec.grant.is_none_or(|grant| grant.end == at ^ 1)
    }

    /// The grants of a region that have handles.
    fn grants_of(&self, region: usize) -> impl Iterator<Item = usize> {
        let is_of = move |at: &usize| {
            let grant = &self.regions[*at];
            grant.spec.grant.is_some_and(|grant| grant.region == region)
                && matches!(grant.life, Life::Open | Life::Closed)
        };
        (0..self.regions.len()).filter(is_of)
    }

    /// Whether grants may keep a region.
    pub(super) fn has_grants(&self, region: usize) -> bool {
        self.grants_of(region).next().is_some()
    }

    /// Whether they surely do: one was not revoked, and its connection has not ended.
    pub(super) fn is_kept(&self, region: usize) -> bool {
        let is_open = |at: usize| {
            let end = self.regions[at].spec.grant.map(|grant| grant.end);
            self.regions[at].life == Life::Open && end.is_some_and(|end| !self.may_end(end))
        };
        self.grants_of(region).any(is_open)
    }

    /// A region has ended, and its grants with it.
    pub(super) fn end_grants(&mut self, region: usize) {
        let open: Vec<_> =
            self.grants_of(region).filter(|at| self.regions[*at].life == Life::Open).collect();
        open.into_iter().for_each(|grant| self.end_region(grant, Life::Closed));
    }
}

/// Whether a grant is part of a region, by range and rights. Memories start at multiples of 8.
fn fits(of: &RegionSpec, grant: &RegionSpec) -> bool {
    let end = grant.start + grant.len;
    let is_part = grant.len > 0 && grant.start >= of.start && end <= of.start + of.len;
    let rights = grant.access;
    let has_rights = !rights.is_empty() && Access::REMOTE.intersection(of.access).contains(rights);
    let whole_words = grant.start.is_multiple_of(8) && grant.len.is_multiple_of(8);
    is_part && has_rights && (whole_words || !rights.contains(Access::REMOTE_ATOMIC))
}
