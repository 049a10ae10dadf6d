//! Operations that have not ended, and what the application is to read of them then.

use std::collections::HashMap;

use fabric_rdm::{Claimed, OpId};

use super::copies::Copied;

/// Messages that were claimed, by the context that the application gave.
pub(super) type Claims = HashMap<u64, Claimed<'static>>;

/// When an operation has a completion for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    Completion,
    /// Only if it fails.
    Error,
    Nothing,
}

/// An operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// The application's.
    pub(super) context: u64,
    /// Those of its completion.
    pub(super) flags: u64,
    pub(super) wants: Wants,
    /// Where its messages go, where a completion says so.
    pub(super) buffer: usize,
    /// The region that a receive goes to; 0 for none.
    pub(super) region: u64,
    /// Where its message is instead, if it is copied.
    pub(super) copied: Option<Copied>,
    /// Once it is posted.
    op: Option<OpId>,
}

impl Pending {
    pub(super) fn new(context: u64, flags: u64, wants: Wants) -> Self {
        Pending { context, flags, wants, buffer: 0, region: 0, copied: None, op: None }
    }
}

/// All of an endpoint, by the context that operations of ours have. As many as its depths allow.
#[derive(Default)]
pub(super) struct PendingTable {
    places: Vec<(u32, Option<Pending>)>,
    free: Vec<u32>,
}

/// A place, and how many operations had it before: no two have the same.
fn key(at: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(at)
}

impl PendingTable {
    /// A context for an operation that is about to be posted.
    pub(super) fn add(&mut self, pending: Pending) -> u64 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            (self.places.len() - 1) as u32
        });
        let place = &mut self.places[at as usize];
        place.1 = Some(pending);
        key(at, place.0)
    }

    /// It was posted.
    pub(super) fn set_op(&mut self, context: u64, op: OpId) {
        if let Some(pending) = self.find(context) {
            pending.op = Some(op);
        }
    }

    fn find(&mut self, context: u64) -> Option<&mut Pending> {
        let (generation, pending) = self.places.get_mut(context as u32 as usize)?;
        if u64::from(*generation) == context >> 32 { pending.as_mut() } else { None }
    }

    pub(super) fn get(&mut self, context: u64) -> Option<Pending> {
        self.find(context).copied()
    }

    /// It has ended, or was not posted.
    pub(super) fn remove(&mut self, context: u64) -> Option<Pending> {
        let pending = self.get(context)?;
        let at = context as u32;
        let place = &mut self.places[at as usize];
        *place = (place.0.wrapping_add(1), None);
        self.free.push(at);
        Some(pending)
    }

    /// The receives into a region.
    pub(super) fn of_region(&self, region: u64) -> Vec<OpId> {
        let all = self.places.iter().filter_map(|(_, pending)| pending.as_ref());
        all.filter(|pending| pending.region == region).filter_map(|pending| pending.op).collect()
    }

    /// The operation that the application gave this context, to be canceled. What is injected has none.
    pub(super) fn find_op(&self, context: u64) -> Option<OpId> {
        let all = self.places.iter().filter_map(|(_, pending)| pending.as_ref());
        all.filter(|pending| pending.wants != Wants::Nothing && pending.context == context)
            .find_map(|pending| pending.op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_names_one_operation_only() {
        let mut table = PendingTable::default();
        let first = table.add(Pending::new(7, 0, Wants::Completion));
        assert_eq!(table.remove(first).map(|pending| pending.context), Some(7));
        let second = table.add(Pending::new(8, 0, Wants::Error));
        assert_ne!(first, second);
        assert!(table.get(first).is_none() && table.remove(first).is_none());
        assert_eq!(table.get(second).map(|pending| pending.context), Some(8));
        assert!(table.find_op(8).is_none(), "it is not posted");
    }
}
