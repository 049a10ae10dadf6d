//! What an operation in flight holds on to: its context, and the regions that it keeps alive.

use std::sync::Arc;

use fabric_core::{OpKind, cold_path, unlikely};

use crate::region_core::RegionCore;

/// The regions that an operation in flight keeps alive: mostly one, seldom more than two.
// The order matters, 3 ns a post: the two that are mostly empty are side by side and copied as one. A copy that
// spans `one`, just written, waits for that write.
#[derive(Default)]
#[repr(C)]
pub(crate) struct RegionRefs {
    two: Option<Arc<RegionCore>>,
    #[allow(clippy::box_collection)] // a word where mostly there is nothing
    more: Option<Box<Vec<Arc<RegionCore>>>>,
    one: Option<Arc<RegionCore>>,
}

impl RegionRefs {
    #[inline]
    pub(crate) fn has(&self, core: &Arc<RegionCore>) -> bool {
        let is = |kept: &Option<Arc<_>>| kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, core));
        is(&self.one) || is(&self.two)
    }

    #[inline]
    pub(crate) fn add(&mut self, core: Arc<RegionCore>) {
        if self.one.is_none() {
            self.one = Some(core);
        } else if self.two.is_none() {
            self.two = Some(core);
        } else {
            self.add_more(core);
        }
    }

    #[cold]
    fn add_more(&mut self, core: Arc<RegionCore>) {
        self.more.get_or_insert_default().push(core);
    }

    /// Lets go; the caller drops those without another holder, outside all locks.
    #[inline(always)] // once for each operation; the references then never take the way over memory
    pub(crate) fn release(self, drops: &mut DeferredDrops) {
        let RegionRefs { one, two, more } = self;
        if let Some(one) = one {
            let_go(one, drops);
        }
        if unlikely(two.is_some()) {
            RegionRefs { one: None, two, more }.release_others(drops);
        }
    }

    #[inline(never)]
    fn release_others(self, drops: &mut DeferredDrops) {
        let all = self.two.into_iter().chain(self.more.into_iter().flat_map(|more| *more));
        all.for_each(|core| let_go(core, drops));
    }

    /// Keeps the regions registered, and their memory allocated, for ever; says how many they are.
    pub(crate) fn leak(self) -> u64 {
        let RegionRefs { one, two, more } = self;
        let all = one.into_iter().chain(two).chain(more.into_iter().flat_map(|more| *more));
        all.map(std::mem::forget).count() as u64
    }
}

/// What becomes of the regions of operations that the library cancels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing touches them any more.
    Free,
    /// Something may.
    Leak,
}

#[inline]
fn let_go(core: Arc<RegionCore>, drops: &mut DeferredDrops) {
    if let Some(last) = Arc::into_inner(core) {
        cold_path();
        drops.push(last);
    }
}

/// Regions whose last reference an operation held, to let go after all locks are released: that revokes a
/// registration. Rare, since mostly the application still has its handle.
pub(crate) type DeferredDrops = Vec<RegionCore>;

/// What an operation in flight holds on to.
pub(crate) struct InFlightOp {
    pub(crate) context: u64,
    pub(crate) len: usize,
    pub(crate) kind: OpKind,
    pub(crate) report: ReportMode,
    pub(crate) regions: RegionRefs,
}

/// When to report completion.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportMode {
    Always,
    /// Unsignaled.
    OnError,
    /// The library's own.
    Internal,
}
