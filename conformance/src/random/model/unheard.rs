//! Regions that operations without a completion use: an unsignaled one that succeeded is never heard of, so the library
//! lets its region go by itself.
//!
//! | rule | here |
//! |---|---|
//! | a region is free in bounded time when what uses it is unsignaled and the target has come to it, with no poll and no post; behind it no send waits for a receive, at least not before a signaled operation | [`Model::lets_go`] |
//! | so it is after the end of a connection, when its completions are taken | [`Model::lets_go`], [`Model::may_be_told`] |
//! | a region that closes says that the operations that used it have ended | [`Model::ended_unheard`] |
//! | a dropped region is open to the peer while anything surely uses it, or a grant keeps it | [`Model::gone_for`] |
//! | the peer cannot see when a dropped region goes, but that it does | [`Model::can_probe`] |

use fabric::Status;

use super::queue::{EndModel, Fate};
use super::{Eyes, Life, Model, Sent};
use crate::check::{Failed, Outcome};
use crate::random::program::OpSpec;

impl Model {
    /// A region is to be let go: if operations use it, the library asks on all ends of its domain what has ended.
    pub(super) fn ask(&mut self, region: usize) {
        if self.uses(region).1 > 0 {
            let domain = self.regions[region].domain;
            let ends = self.ends.iter_mut().filter(|end| end.spec.domain == domain);
            ends.for_each(|end| end.asked = true);
        }
    }

    /// Whether whatever uses a region is known to have ended in bounded time, without another post.
    pub(super) fn lets_go(&self, region: usize) -> bool {
        let lets_go = |(at, end): (usize, &EndModel)| {
            let quiet = end.uses(region).0 == 0 && end.tells_of(region, self.due(at));
            end.dropped || quiet || self.must_end(at)
        };
        self.shared_uses(region) == 0 && self.ends.iter().enumerate().all(lets_go)
    }

    /// Whether a region whose `close` was `Busy` must close in bounded time.
    pub(in crate::random) fn must_close(&self, region: usize) -> bool {
        self.regions[region].life == Life::Open && self.lets_go(region)
    }

    /// Whether the handle of a region was dropped, and operations may still use it.
    pub(in crate::random) fn is_leaving(&self, region: usize) -> bool {
        self.regions[region].life == Life::Leaving
    }

    /// Whether operations may have ended at this end that are reported, and hold their regions until then.
    pub(in crate::random) fn may_be_told(&self, at: usize) -> bool {
        !self.ends[at].dropped && self.may_end(at)
    }

    /// Whether only operations without a completion use a region, on connections that stand, and the peers are done with
    /// it: it closes without a poll, and no peer notices.
    pub(in crate::random) fn is_held_quietly(&self, region: usize) -> bool {
        let holds = |at: usize| self.ends[at].uses(region).1 > 0;
        let is_it = |of: usize| {
            of == region || self.regions[of].spec.grant.is_some_and(|grant| grant.region == region)
        };
        let reaches = |op: &Sent| !op.done && op.spec.remote().is_some_and(|to| is_it(to.region));
        self.must_close(region)
            && (0..self.ends.len()).any(holds)
            && (0..self.ends.len()).all(|at| !holds(at) || !self.may_end(at))
            && !self.ends.iter().flat_map(|end| &end.sends).any(reaches)
    }

    /// A region has closed: what used it has ended. On a connection that is there, it has succeeded.
    pub(super) fn ended_unheard(&mut self, region: usize, eyes: Eyes<'_>) -> Outcome {
        let now = self.now;
        for at in 0..self.ends.len() {
            if self.ends[at].dropped {
                continue;
            }
            let sends = self.ends[at].sends.iter().enumerate();
            let using: Vec<usize> =
                sends.filter(|(_, op)| op.uses(region)).map(|(index, _)| index).collect();
            let stands = !self.may_end(at);
            for index in using {
                if stands {
                    self.succeed(at, index, eyes)?;
                } else {
                    self.leave_alone(at, index, now);
                }
            }
        }
        self.let_go();
        Ok(())
    }

    /// An access was refused: if its region was about to go it has gone, and then nothing used it any more.
    pub(super) fn gone_for(&mut self, at: usize, index: usize, status: Status) -> Outcome {
        let op = &self.ends[at].sends[index];
        let Some(to) = op.spec.remote().filter(|_| status == Status::RemoteAccess) else {
            return Ok(());
        };
        let region = to.region;
        if op.fate != Fate::Uncertain || !self.is_leaving(region) {
            return Ok(());
        }
        if self.uses(region).0 > 0 || self.is_kept(region) {
            let open = format!("r{region}, which is still used, to be open to the peer");
            return Err(Failed::new(open, "it was refused"));
        }
        self.end_region(region, Life::Gone);
        Ok(())
    }

    /// Whether an access of this end's to a region of the peer's is refused in bounded time, and all that it has
    /// posted has started, so that the access is not held back.
    pub(in crate::random) fn can_probe(&self, at: usize, region: usize, access: &OpSpec) -> bool {
        let goes = match self.regions[region].life {
            Life::Absent | Life::Open => false,
            Life::Leaving => self.lets_go(region) && !self.has_grants(region),
            Life::Closed | Life::Gone => true,
        };
        goes && self.can_post(at, access)
            && self.regions[region].domain == self.ends[at ^ 1].spec.domain
            && self.due(at) == self.ends[at].sends.len()
            && !self.may_end(at)
            && self.send_refusals(at, access).is_none()
    }
}
