//! When a post is transmitted.

use crate::stream::Pending;

/// No more posts are deferred when this many bytes wait.
const MAX_DEFERRED: usize = 2 << 10;
/// Posts that are enough for a system call of their own: an application that posts so many at once has gathered them.
const BATCH: usize = 8;

/// When a post is transmitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// With the next step of its connection, which comes soon.
    Deferred,
    /// Now. An application polls: its next poll reads the answer, and requests acknowledgements that this does not.
    Polled,
    /// Now, with a request for acknowledgements: nothing else would make it.
    Alone,
}

/// Whether posts may wait for others: the peer is busy with earlier ones, and little waits.
pub(super) fn may_defer(pending: &Pending) -> bool {
    pending.posts < BATCH && pending.peer_busy && pending.bytes <= MAX_DEFERRED
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn few_small_posts_behind_unacknowledged_ones_may_be_deferred() {
        let pending = Pending { posts: 1, bytes: 96, peer_busy: true, ack_wanted: true };
        assert!(may_defer(&pending));
        assert!(!may_defer(&Pending { peer_busy: false, ..pending }));
        assert!(!may_defer(&Pending { posts: BATCH, ..pending }));
        assert!(may_defer(&Pending { bytes: MAX_DEFERRED, ..pending }));
        assert!(!may_defer(&Pending { bytes: MAX_DEFERRED + 1, ..pending }));
    }
}
