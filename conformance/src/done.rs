//! What a case expects of a completion.

use std::fmt;
use std::panic::Location;

use fabric::{Completion, OpKind, Status};

use crate::check::{Failed, Outcome, show};

/// How an operation should complete: its context, its status, and of the other fields those that the case names. Cases
/// give it to [`End::expect`](crate::prelude::End::expect): `b.expect(Done::recv(1, 9).immediate(7))?`.
///
/// Cases count in `usize`, contexts are `u64`: any integer will do for a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an expectation checks nothing by itself"]
pub struct Done {
    pub(crate) context: u64,
    status: Status,
    kind: Option<OpKind>,
    len: Option<usize>,
    immediate: Option<Option<u32>>,
}

impl Done {
    /// It succeeds, whatever it is.
    pub fn ok(context: impl TryInto<u64>) -> Self {
        Done::failed(context, Status::Ok)
    }

    /// It ends with this status, whatever it is. `RemoteAccess` is a refusal, see
    /// [`End::is_refusal`](crate::prelude::End::is_refusal).
    pub fn failed(context: impl TryInto<u64>, status: Status) -> Self {
        // No operation has the context that a negative number becomes.
        let context = context.try_into().unwrap_or(u64::MAX);
        Done { context, status, kind: None, len: None, immediate: None }
    }

    /// The target refuses it.
    pub fn refused(context: impl TryInto<u64>) -> Self {
        Done::failed(context, Status::RemoteAccess)
    }

    /// The end of the connection cancels it.
    pub fn canceled(context: impl TryInto<u64>) -> Self {
        Done::failed(context, Status::Canceled)
    }

    /// A receive of a message of `len` bytes succeeds, without immediate data.
    pub fn recv(context: impl TryInto<u64>, len: usize) -> Self {
        Done::ok(context).kind(OpKind::Recv).len(len).immediate(None)
    }

    /// A receive succeeds that a write of `len` bytes with immediate data consumed.
    pub fn recv_write(context: impl TryInto<u64>, len: usize, immediate: u32) -> Self {
        Done::ok(context).kind(OpKind::RecvWrite).len(len).immediate(immediate)
    }

    /// A send of `len` bytes succeeds.
    pub fn send(context: impl TryInto<u64>, len: usize) -> Self {
        Done::ok(context).kind(OpKind::Send).len(len).immediate(None)
    }

    /// A write of `len` bytes succeeds.
    pub fn write(context: impl TryInto<u64>, len: usize) -> Self {
        Done::ok(context).kind(OpKind::Write).len(len).immediate(None)
    }

    /// A read of `len` bytes succeeds.
    pub fn read(context: impl TryInto<u64>, len: usize) -> Self {
        Done::ok(context).kind(OpKind::Read).len(len).immediate(None)
    }

    /// It is of this kind.
    pub fn kind(mut self, kind: OpKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// It is of so many bytes.
    pub fn len(mut self, len: usize) -> Self {
        self.len = Some(len);
        self
    }

    /// It brings this immediate data, or none.
    pub fn immediate(mut self, immediate: impl Into<Option<u32>>) -> Self {
        self.immediate = Some(immediate.into());
        self
    }

    /// Checks a completion that was not taken by [`End::expect`](crate::prelude::End::expect).
    ///
    /// # Errors
    /// What was expected and what was seen.
    #[track_caller]
    pub fn check(&self, seen: &Completion) -> Outcome {
        if self.fits(seen, |status| status == self.status) {
            return Ok(());
        }
        Err(Failed::at(Location::caller(), self.to_string(), show(seen)))
    }

    /// Whether a completion is this one; `is_refusal` decides where a refusal is expected.
    pub(crate) fn fits(&self, seen: &Completion, is_refusal: impl Fn(Status) -> bool) -> bool {
        seen.context == self.context
            && match self.status {
                Status::RemoteAccess => is_refusal(seen.status),
                status => seen.status == status,
            }
            && self.kind.is_none_or(|kind| seen.kind == kind)
            && self.len.is_none_or(|len| seen.len == len)
            && self.immediate.is_none_or(|immediate| seen.immediate == immediate)
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a completion of context {} with {:?}", self.context, self.status)?;
        if let Some(kind) = self.kind {
            write!(f, ", kind {kind:?}")?;
        }
        if let Some(len) = self.len {
            write!(f, ", length {len}")?;
        }
        match self.immediate {
            Some(Some(value)) => write!(f, ", immediate data {value:#x}"),
            Some(None) => f.write_str(", no immediate data"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_that_is_named_counts() {
        let mut seen = Completion::default();
        (seen.context, seen.kind, seen.len, seen.immediate) = (3, OpKind::Recv, 9, Some(7));
        let good = Done::recv(3usize, 9).immediate(7);
        for fits in [good, Done::ok(3), Done::ok(3).len(9), Done::ok(3).immediate(7)] {
            assert!(fits.check(&seen).is_ok(), "{fits}");
        }
        for wrong in [
            Done::ok(4),
            Done::canceled(3),
            Done::refused(3),
            Done::recv(3, 9),
            good.len(8),
            good.kind(OpKind::RecvWrite),
            good.immediate(8),
        ] {
            assert!(wrong.check(&seen).is_err(), "{wrong}");
        }
        let failed = good.len(8).check(&seen).unwrap_err();
        assert_eq!(
            failed.expected(),
            "a completion of context 3 with Ok, kind Recv, length 8, immediate data 0x7"
        );
        assert!(failed.seen().contains("len: 9"), "{failed}");
        assert!(failed.place().is_some_and(|place| place.file().ends_with("done.rs")));
    }
}
