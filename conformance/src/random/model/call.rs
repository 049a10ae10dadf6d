//! Calls: what each returns.
//!
//! | rule | here |
//! |---|---|
//! | a local mistake is an error of the call, and nothing of it happens later | [`Model::mistakes`] |
//! | a queue holds exactly its depth, one more is `Again` | [`Model::mistakes`] |
//! | `NotConnected` before the connection, and from when its end is known | [`Model::mistakes`] |
//! | `close` is `Busy` exactly while operations of this side use the region | [`Model::close`] |

use fabric::provider::{access::check_registration, atomic};
use fabric::{Access, Error};

use super::queue::QueueSpec;
use super::{Eyes, Life, Model};
use crate::check::{Failed, Outcome};
use crate::random::program::{Lie, Local, OpSpec, Part, What};

/// The errors that calls here can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    Again,
    NotConnected,
    InvalidArgument,
    InvalidState,
    Unsupported,
}

impl Mistake {
    fn is(self, error: &Error) -> bool {
        match self {
            Mistake::Again => matches!(error, Error::Again),
            Mistake::NotConnected => matches!(error, Error::NotConnected),
            Mistake::InvalidArgument => matches!(error, Error::InvalidArgument(_)),
            Mistake::InvalidState => matches!(error, Error::InvalidState(_)),
            Mistake::Unsupported => matches!(error, Error::Unsupported(_)),
        }
    }
}

/// What a post may return: the mistakes in it, each a reason to refuse; and whether it may be taken all the same,
/// since it depends on what this side has noticed or not.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    pub(super) sure: Vec<Mistake>,
    open: Vec<Mistake>,
}

impl Refusals {
    /// Whether the post must be taken.
    pub(super) fn is_none(&self) -> bool {
        self.sure.is_empty() && self.open.is_empty()
    }

    /// Checks the result of a post; says whether it was taken.
    pub(super) fn check(&self, what: &str, result: Result<(), &Error>) -> Result<bool, Failed> {
        let Err(error) = result else {
            if self.sure.is_empty() {
                return Ok(true);
            }
            return Err(Failed::new(
                format!("{what} to be refused: {:?}", self.sure),
                "it was taken",
            ));
        };
        if self.sure.iter().chain(&self.open).any(|mistake| mistake.is(error)) {
            return Ok(false);
        }
        let expected = match (self.sure.as_slice(), self.open.as_slice()) {
            ([], []) => format!("{what} to be taken"),
            ([], open) => format!("{what} to be taken, or refused: {open:?}"),
            (sure, open) => format!("{what} to be refused: {sure:?} {open:?}"),
        };
        Err(Failed::new(expected, format!("{error} ({error:?})")))
    }
}

impl Model {
    /// Whether the contract says what becomes of a post. It does not, or the program makes none, where a handle is
    /// gone, where a key may have come back, and where an element's alignment is a matter of addresses.
    pub(in crate::random) fn can_post(&self, end: usize, op: &OpSpec) -> bool {
        let handles = op.parts().iter().all(|part| self.has_handle(part.region));
        let shape = match (&op.what, &op.local) {
            (What::Send | What::Write(_), _) | (What::Read(_), Local::Parts(_)) => true,
            (What::Atomic { fetch, .. }, Local::Parts(parts)) => !fetch || parts.len() == 1,
            _ => false,
        };
        let remote = op.remote().is_none_or(|to| {
            let Some(region) = self.regions.get(to.region) else { return false };
            let aligned =
                region.spec.start.is_multiple_of(8) || !matches!(op.what, What::Atomic { .. });
            let stale = matches!(region.life, Life::Closed | Life::Leaving | Life::Gone);
            let fresh = self.unique_keys || !stale || !region.key_may_return;
            region.life != Life::Absent && aligned && fresh
        });
        self.ends.get(end).is_some_and(|end| !end.dropped) && handles && shape && remote
    }

    /// As [`can_post`](Model::can_post), for a receive.
    pub(in crate::random) fn can_receive(&self, end: usize, parts: &[Part]) -> bool {
        self.ends.get(end).is_some_and(|end| !end.dropped)
            && parts.iter().all(|part| self.has_handle(part.region))
    }

    /// Whether there is a region that operations of this side can name; a grant they cannot.
    pub(super) fn has_handle(&self, region: usize) -> bool {
        let named = |life: Life| matches!(life, Life::Open | Life::Closed);
        self.regions.get(region).is_some_and(|r| r.spec.grant.is_none() && named(r.life))
    }

    /// Whether a post cannot be taken.
    pub(in crate::random) fn refuses(&self, at: usize, op: &OpSpec) -> bool {
        !self.send_refusals(at, op).sure.is_empty()
    }

    /// What is wrong with a post to the send queue.
    pub(super) fn send_refusals(&self, at: usize, op: &OpSpec) -> Refusals {
        let end = &self.ends[at];
        let mut refusals = self.state_refusals(at);
        if !end.connected {
            refusals.sure.push(Mistake::NotConnected);
        }
        let (sure, most) = end.send_load();
        if sure >= end.spec.send_depth {
            refusals.sure.push(Mistake::Again);
        } else if most >= end.spec.send_depth {
            refusals.open.push(Mistake::Again);
        }
        refusals.sure.extend(self.mistakes(at, op));
        refusals
    }

    /// What is wrong with a receive.
    pub(super) fn recv_refusals(&self, at: usize, parts: &[Part]) -> Refusals {
        let end = &self.ends[at];
        let mut refusals = self.state_refusals(at);
        if end.shared.is_some() {
            refusals.sure.push(Mistake::InvalidState);
        } else if end.recv_load() >= end.spec.recv_depth {
            refusals.sure.push(Mistake::Again);
        }
        refusals.sure.extend(self.part_mistakes(&end.spec.into(), parts, Access::LOCAL_WRITE));
        refusals
    }

    pub(super) fn state_refusals(&self, at: usize) -> Refusals {
        let mut refusals = Refusals::default();
        if self.ends[at].dead {
            refusals.sure.push(Mistake::NotConnected);
        } else if self.may_end(at) {
            refusals.open.push(Mistake::NotConnected);
        }
        refusals
    }

    fn mistakes(&self, at: usize, op: &OpSpec) -> Vec<Mistake> {
        let lands = matches!(op.what, What::Read(_) | What::Atomic { fetch: true, .. });
        let need = if lands { Access::LOCAL_WRITE } else { Access::empty() };
        let mut mistakes = match (&op.local, &op.what) {
            (_, What::Atomic { fetch: false, .. }) => Vec::new(),
            (Local::Parts(parts), _) => self.part_mistakes(&self.ends[at].spec.into(), parts, need),
            (Local::Inject { len, .. }, _) if *len > self.ends[at].spec.inject => {
                vec![Mistake::InvalidArgument]
            }
            (Local::Inject { .. }, _) => Vec::new(),
        };
        let writes = matches!(op.what, What::Write(_));
        if op.delivery_complete && !writes
            || op.immediate.is_some() && !(writes || op.what == What::Send)
        {
            mistakes.push(Mistake::Unsupported);
        }
        let need = match op.what {
            What::Send => return mistakes,
            What::Write(_) => Access::REMOTE_WRITE,
            What::Read(_) => Access::REMOTE_READ,
            What::Atomic { .. } => Access::REMOTE_ATOMIC,
        };
        if let What::Atomic { call, fetch, .. } = &op.what {
            if !atomic::is_defined(call.op, call.ty) {
                mistakes.push(Mistake::Unsupported);
            }
            if *fetch && op.len() != call.ty.size() {
                mistakes.push(Mistake::InvalidArgument);
            }
        }
        if self.bytes_there(op) > 0 && !self.descriptor_allows(op, need) {
            mistakes.push(Mistake::InvalidArgument);
        }
        mistakes
    }

    /// Whether range and rights that the descriptor itself states allow the operation.
    fn descriptor_allows(&self, op: &OpSpec, need: Access) -> bool {
        let Some(to) = op.remote() else { return true };
        let spec = &self.regions[to.region].spec;
        let longer = match to.lie {
            Some(Lie::Before(bytes) | Lie::After(bytes)) => bytes,
            _ => 0,
        };
        let claims = if to.lie == Some(Lie::Rights) { Access::REMOTE } else { spec.access };
        let aligned = match op.what {
            What::Atomic { call, .. } => to.offset().rem_euclid(call.ty.size() as i64) == 0,
            _ => true,
        };
        to.at + self.bytes_there(op) <= spec.len + longer && claims.contains(need) && aligned
    }

    /// Bytes that the operation reaches on the other side.
    pub(super) fn bytes_there(&self, op: &OpSpec) -> usize {
        match &op.what {
            What::Atomic { call, .. } => call.ty.size(),
            _ => op.len(),
        }
    }

    pub(super) fn part_mistakes(
        &self,
        queue: &QueueSpec,
        parts: &[Part],
        need: Access,
    ) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        for part in parts {
            let region = &self.regions[part.region];
            let fits = part.at + part.len <= region.spec.len;
            if !fits || !region.spec.access.contains(need) || region.domain != queue.domain {
                mistakes.push(Mistake::InvalidArgument);
            }
            if region.life == Life::Closed && part.len > 0 {
                mistakes.push(Mistake::InvalidState);
            }
        }
        if parts.iter().filter(|part| part.len > 0).count() > queue.segments {
            mistakes.push(Mistake::InvalidArgument);
        }
        mistakes
    }

    /// Whether a region of this kind can be registered; its memory starts at a multiple of 8.
    pub(in crate::random) fn registered(
        &mut self,
        at: usize,
        result: Result<(), &Error>,
    ) -> Outcome {
        let spec = self.regions[at].spec;
        // Any address with the same remainder: memories are aligned for everything.
        let fits =
            check_registration(4096 + spec.start as u64, spec.len as u64, spec.access).is_ok();
        match result {
            Ok(()) if fits => {
                self.has_key(at);
                Ok(())
            }
            Ok(()) => Err(Failed::new("the registration to be refused", "it was taken")),
            Err(Error::InvalidArgument(_)) if !fits => Ok(()),
            Err(error) => Err(Failed::new("the region to be registered", format!("{error:?}"))),
        }
    }

    /// A region or grant is open, by a key that may be one of those that have closed.
    pub(super) fn has_key(&mut self, at: usize) {
        let domain = self.regions[at].domain;
        let mates = self.regions.iter_mut().filter(|region| region.domain == domain);
        mates.for_each(|mate| mate.key_may_return |= mate.life != Life::Open);
        self.regions[at].life = Life::Open;
        self.regions[at].key_may_return = false;
    }

    /// A region was closed, or a grant revoked.
    pub(in crate::random) fn close(
        &mut self,
        at: usize,
        result: Result<(), &Error>,
        eyes: Eyes<'_>,
    ) -> Outcome {
        self.tick();
        self.ask(at);
        let (sure, most) = self.uses(at);
        match result {
            Ok(()) if self.regions[at].life == Life::Closed => Ok(()),
            Ok(()) if sure == 0 => {
                self.end_region(at, Life::Closed);
                self.ended_unheard(at, eyes)
            }
            Err(Error::Busy) if most > 0 => Ok(()),
            Ok(()) => {
                Err(Failed::new("Busy: operations of this side use the region", "it was closed"))
            }
            Err(error) => {
                Err(Failed::new("the region, which is not in use, to close", format!("{error:?}")))
            }
        }
    }

    /// The handle of a region or grant was dropped.
    pub(in crate::random) fn forget(&mut self, at: usize) {
        self.tick();
        self.ask(at);
        if self.regions[at].life == Life::Open {
            self.regions[at].life = Life::Leaving;
            self.loosen(at);
            self.let_go();
        } else {
            self.regions[at].life = Life::Gone;
        }
    }

    pub(super) fn uses(&self, region: usize) -> (usize, usize) {
        let sum = |(a, b), (c, d)| (a + c, b + d);
        let shared = self.shared_uses(region);
        self.ends.iter().map(|end| end.uses(region)).fold((shared, shared), sum)
    }
}
