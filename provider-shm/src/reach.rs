//! What a peer has of its own that this side reaches by itself: operations without the peer.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use fabric_core::work::total_len;
use fabric_core::{Access, RemoteAddr, Segment, SendOp};
use fabric_util::stream::{IoVec, store_value};

use crate::hazard::Hazard;
use crate::mapping::{Mapping, Mappings};
use crate::pool::{FILES, Place};
use crate::restart::{self, Condition};
use crate::windows::View;

/// Bytes that are copied at a time: so long a peer that closes a window waits.
const BITE: usize = 512 << 10;
/// Looks for files that have not come, after which they are waited for.
const LOOKS: u8 = 64;

/// The peer's files, as far as they have come.
#[derive(Default)]
pub(crate) struct Reach {
    view: Option<View>,
    files: Vec<Arc<Mapping>>,
    /// One did not come, or is not what it should be: those behind it have no place.
    ends: bool,
    looks: u8,
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is executed.
    All,
    /// Nothing is open for it, or not for all of it.
    Nothing,
    /// The file has not come.
    NoFile,
}

impl Reach {
    /// The next file; `mappings`: of the domain.
    pub(crate) fn take(&mut self, file: Option<OwnedFd>, mappings: &Mappings) {
        self.looks = 0;
        let Some(file) = file.filter(|_| !self.ends && self.files.len() < FILES) else {
            self.ends = true;
            return;
        };
        let taken = match self.view {
            None => View::of(file.as_fd()).map(|view| self.view = Some(view)),
            Some(_) => mappings.map(file.as_fd()).map(|mapping| self.files.push(mapping)),
        };
        self.ends = taken.is_err();
    }

    /// Files of memory that have come.
    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    /// Whether there is a window of this key just now.
    #[inline]
    pub(crate) fn shows(&self, key: u64) -> bool {
        self.view.as_ref().is_some_and(|view| view.number(key).is_some())
    }

    /// Whether it is worth a look whether files have come.
    pub(crate) fn wants_files(&mut self) -> bool {
        self.looks = self.looks.saturating_add(1);
        !self.ends && self.looks <= LOOKS
    }

    /// Where bytes of the peer's are in this process. What the windows say is not believed to be within the file.
    #[inline]
    fn resolve(&self, place: Place, len: usize) -> Option<*mut u8> {
        let mapping = self.files.get(place.file as usize)?;
        let end = place.offset.checked_add(len)?;
        (end <= mapping.len() && len > 0).then(|| mapping.at(place.offset).as_ptr())
    }

    /// Reads what the peer has lent; false: it has not, or no more.
    ///
    /// # Safety
    /// As [`Transport::fetch`](fabric_util::stream::Transport::fetch).
    pub(crate) unsafe fn fetch(&self, hazard: &Hazard, from: RemoteAddr, to: &[IoVec]) -> bool {
        let total = to.iter().map(|run| run.1).sum();
        let visit = Visit { reach: self, hazard, need: Access::REMOTE_READ };
        // SAFETY: the caller's promise.
        let found = unsafe { visit.read(from, (total, to.iter().copied())) };
        found == Found::All
    }

    /// Executes an operation, if all of it is open. `hazard`: of the connection.
    ///
    /// # Safety
    /// As [`Transport::reach`](fabric_util::stream::Transport::reach).
    #[inline]
    pub(crate) unsafe fn execute(
        &self,
        hazard: &Hazard,
        op: &SendOp,
        segments: &[Segment],
    ) -> Found {
        let (at, need) = match *op {
            SendOp::Write { to, .. } => (to, Access::REMOTE_WRITE),
            SendOp::Read { from } => (from, Access::REMOTE_READ),
            SendOp::Atomic { at, .. } => (at, Access::REMOTE_ATOMIC),
            _ => return Found::Nothing,
        };
        let visit = Visit { reach: self, hazard, need };
        match *op {
            SendOp::Atomic { call, fetch, .. } => visit.at(at, call.ty.size(), |there, only| {
                if !there.addr().is_multiple_of(call.ty.size()) {
                    return Found::Nothing;
                }
                // SAFETY: within the peer's file, which stays mapped, and aligned.
                let old = unsafe { restart::atomic(there, &call, only) };
                let Some(old) = old else { return Found::Nothing };
                if fetch {
                    // SAFETY: the caller's promise.
                    unsafe { store_value(runs(segments).1, old, call.ty.size()) };
                }
                Found::All
            }),
            // SAFETY: the caller's promise.
            SendOp::Read { .. } => unsafe { visit.read(at, runs(segments)) },
            _ => visit.pass(at, runs(segments), |there, here, len, only| {
                // SAFETY: as for a read.
                unsafe { restart::copy(there, here, len, only) }
            }),
        }
    }
}

/// The segments' length, and their memory.
#[inline]
fn runs(segments: &[Segment]) -> (usize, impl Iterator<Item = IoVec>) {
    (total_len(segments), segments.iter().map(|segment| (segment.addr, segment.len)))
}

/// One operation.
struct Visit<'a> {
    reach: &'a Reach,
    hazard: &'a Hazard,
    need: Access,
}

impl Visit<'_> {
    /// Goes to a window, and does something to `len` bytes there if they are open.
    #[inline]
    fn at(
        &self,
        at: RemoteAddr,
        len: usize,
        act: impl FnOnce(*mut u8, Condition<'_>) -> Found,
    ) -> Found {
        let Some(view) = &self.reach.view else { return Found::NoFile };
        let Some(number) = view.number(at.key) else { return Found::Nothing };
        let connection = self.hazard.enter(number);
        let found = connection.and_then(|connection| {
            let (place, key) = view.find(number, at, len, self.need, connection)?;
            let Some(there) = self.reach.resolve(place, len) else { return Some(Found::NoFile) };
            let connection = (self.hazard.connection(), connection);
            Some(act(there, Condition { key: (key, at.key), connection }))
        });
        self.hazard.leave();
        found.unwrap_or(Found::Nothing)
    }

    /// Reads into runs of memory.
    ///
    /// # Safety
    /// As [`Transport::recv`](fabric_util::stream::Transport::recv).
    #[inline]
    unsafe fn read(&self, at: RemoteAddr, to: (usize, impl Iterator<Item = IoVec>)) -> Found {
        self.pass(at, to, |there, here, len, only| {
            // SAFETY: within the peer's file, which stays mapped; the caller's promise for the runs.
            unsafe { restart::copy(here, there, len, only) }
        })
    }

    /// Passes the bytes of runs of memory between here and there, a bite at a time, by `copy` (there, here, bytes).
    #[inline]
    fn pass(
        &self,
        at: RemoteAddr,
        (total, mut rest): (usize, impl Iterator<Item = IoVec>),
        copy: impl Fn(*mut u8, *mut u8, usize, Condition<'_>) -> bool,
    ) -> Found {
        if total == 0 {
            return Found::Nothing;
        }
        // All of it is open, or nothing is passed.
        if total > BITE {
            let all = self.at(at, total, |_, _| Found::All);
            if all != Found::All {
                return all;
            }
        }
        let (mut here, mut left) = (std::ptr::null_mut(), 0);
        let mut done = 0;
        while done < total {
            let bite = BITE.min(total - done);
            let now = RemoteAddr { addr: at.addr.wrapping_add(done as u64), ..at };
            let found = self.at(now, bite, |there, only| {
                let mut passed = 0;
                while passed < bite {
                    if left == 0 {
                        let Some(next) = rest.next() else { break };
                        (here, left) = next;
                        continue;
                    }
                    let len = left.min(bite - passed);
                    if !copy(there.wrapping_add(passed), here, len, only) {
                        return Found::Nothing;
                    }
                    (here, left) = (here.wrapping_add(len), left - len);
                    passed += len;
                }
                Found::All
            });
            if found != Found::All {
                return found;
            }
            done += bite;
        }
        Found::All
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
