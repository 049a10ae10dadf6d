//! What a range means in memory of some size: regions and buffers are sliced by the same rule.

use std::ops::{Bound, RangeBounds};

/// The start and end of a range in something of `size`; whether they fit is for the caller to see.
pub fn bounds(range: impl RangeBounds<usize>, size: usize) -> (usize, usize) {
    let start = match range.start_bound() {
        Bound::Included(&at) => at,
        Bound::Excluded(&at) => at.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&at) => at.saturating_add(1),
        Bound::Excluded(&at) => at,
        // What starts behind the end is empty there, and does not fit.
        Bound::Unbounded => size.max(start),
    };
    (start, end)
}
