//! When a post is transmitted.

use crate::stream::Pending;

/// No more posts are deferred when so many bytes wait in the connection's buffer: they are small then, and one system call for
/// so many is cheap enough.
const MAX_COPIED: usize = 4 << 10;
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

/// Whether posts may wait for others: the peer is busy with earlier ones, and little waits, at most `max` bytes.
pub(super) fn may_defer(pending: &Pending, max: usize) -> bool {
    let little = pending.bytes <= max && pending.copied <= MAX_COPIED;
    pending.posts < BATCH && pending.peer_busy && little
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn few_small_posts_behind_unacknowledged_ones_may_be_deferred() {
        const MAX: usize = 64 << 10;
        let pending =
            Pending { posts: 1, bytes: 96, copied: 96, peer_busy: true, ack_wanted: true };
        assert!(may_defer(&pending, MAX));
        assert!(!may_defer(&Pending { peer_busy: false, ..pending }, MAX));
        assert!(!may_defer(&Pending { posts: BATCH, ..pending }, MAX));
        assert!(may_defer(&Pending { bytes: MAX, copied: MAX_COPIED, ..pending }, MAX));
        assert!(!may_defer(&Pending { bytes: MAX + 1, ..pending }, MAX));
        assert!(!may_defer(&Pending { bytes: MAX, copied: MAX_COPIED + 1, ..pending }, MAX));
    }
}
