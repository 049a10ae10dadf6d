//! Descriptors that lie.
//!
//! What a descriptor itself says (range, rights) is checked when an operation is posted. To see what the *target*
//! checks, a case needs descriptors that claim more than is so.

use fabric::{Access, RemoteRegion};

/// Asks a forging provider to misalign an atomic: a test's provider (see
/// [`Needs::forged_wire`](crate::prelude::Needs::forged_wire)) that wraps the one under test passes an atomic whose remote
/// address has this bit on without the bit and one byte further. The shared checks leave no other way to put a
/// misaligned request on the wire. Case and wrapper agree on it by this constant.
pub const MISALIGN: u64 = 1 << 62;

/// The descriptor with another key.
pub fn forged_key(honest: &RemoteRegion, key: u64) -> RemoteRegion {
    RemoteRegion::from_parts(key, honest.base(), honest.len(), honest.access())
}

/// The descriptor with a range that starts `before` bytes earlier and ends `after` bytes later. The first byte of
/// the real region is at offset `before` of it.
pub fn forged_range(honest: &RemoteRegion, before: u64, after: u64) -> RemoteRegion {
    let base = honest.base().wrapping_sub(before);
    let len = honest.len().saturating_add(before).saturating_add(after);
    RemoteRegion::from_parts(honest.key(), base, len, honest.access())
}

/// The descriptor with rights that it does not have.
pub fn forged_access(honest: &RemoteRegion, access: Access) -> RemoteRegion {
    RemoteRegion::from_parts(honest.key(), honest.base(), honest.len(), access)
}
