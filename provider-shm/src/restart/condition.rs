//! What an access depends on.

use std::sync::atomic::Ordering;

use fabric_util::sync::AtomicU64;

/// Words that have to have these values, each time that an access begins.
#[derive(Clone, Copy)]
pub(crate) struct Condition<'a> {
    pub(crate) key: (&'a AtomicU64, u64),
    pub(crate) connection: (&'a AtomicU64, u64),
}

impl Condition<'_> {
    /// Whether they have them now.
    pub(super) fn holds(&self) -> bool {
        let is = |(at, value): (&AtomicU64, u64)| at.load(Ordering::Acquire) == value;
        is(self.key) && is(self.connection)
    }
}
