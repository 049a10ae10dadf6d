//! What the holder knows of a lease: where operations go, and when it ends.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use fabric::{RemoteRegion, RemoteSlice};

use super::terms::nanos;
use crate::error::{Error, LeaseEnd, Result};

/// The connection that leases come over.
pub(super) trait LeaseSource: Send + Sync {
    /// The holder's last reference to a lease is gone.
    fn give_back(&self, lease: u64);
}

/// What the holder knows of a lease. The last reference, of an operation in flight perhaps, gives it back.
pub(crate) struct RemoteLeaseState {
    pub(super) region: RemoteRegion,
    pub(super) lease: u64,
    /// When it ends, as far as this side knows: [`nanos`].
    pub(super) until: AtomicU64,
    /// 0, or 1 and more: a [`LeaseEnd`].
    pub(super) ended: AtomicU8,
    /// Where it came from; `None` if a holder passed it on.
    pub(super) source: Option<Weak<dyn LeaseSource>>,
}

const ENDS: [LeaseEnd; 4] =
    [LeaseEnd::Expired, LeaseEnd::Released, LeaseEnd::Revoked, LeaseEnd::Disconnected];

impl RemoteLeaseState {
    pub(super) fn new(
        region: RemoteRegion,
        lease: u64,
        until: u64,
        source: Option<Weak<dyn LeaseSource>>,
    ) -> Self {
        RemoteLeaseState { region, lease, until: until.into(), ended: 0.into(), source }
    }

    /// The peer has ended it: by its time, or earlier.
    pub(super) fn is_ended_by_peer(&self) {
        self.set_end(self.end().unwrap_or(LeaseEnd::Revoked));
    }

    pub(super) fn end(&self) -> Option<LeaseEnd> {
        match self.ended.load(Ordering::Acquire) {
            0 if nanos(Instant::now()) >= self.until.load(Ordering::Acquire) => {
                Some(LeaseEnd::Expired)
            }
            0 => None,
            end => ENDS.get(usize::from(end) - 1).copied(),
        }
    }

    pub(super) fn set_end(&self, end: LeaseEnd) {
        let number = ENDS.iter().position(|known| *known == end).map_or(1, |index| index as u8 + 1);
        // The first reason stays.
        let _ = self.ended.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl Drop for RemoteLeaseState {
    fn drop(&mut self) {
        if let Some(source) = self.source.as_ref().and_then(Weak::upgrade) {
            source.give_back(self.lease);
        }
    }
}

/// A place in a peer's memory, for one operation: of a lease ([`RemoteLease::at`](crate::RemoteLease::at)), or of a descriptor of the poll API that the
/// peer's application shipped by itself ([`fabric::RemoteRegion::at`]).
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// use fabric::Access;
/// use fabric_async::RemoteTarget;
///
/// let region = peer.node().domain().alloc(64, Access::ALL)?; // of the poll API
/// let place = RemoteTarget::from(region.remote().at(8));
/// conn.write(conn.node().pool().alloc_from(b"hello")?, place).delivered().await?;
/// assert_eq!(region.to_vec(8..13)?, b"hello");
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct RemoteTarget {
    slice: RemoteSlice,
    pub(crate) lease: Option<Arc<RemoteLeaseState>>,
}

impl RemoteTarget {
    #[inline]
    pub(super) fn of(held: &Arc<RemoteLeaseState>, offset: u64) -> Self {
        RemoteTarget { slice: held.region.at(offset), lease: Some(held.clone()) }
    }

    #[inline]
    pub(crate) fn slice(&self) -> RemoteSlice {
        self.slice
    }

    /// Whether its lease still stands. The post checks range and rights.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        match self.lease.as_ref().and_then(|lease| lease.end()) {
            None => Ok(()),
            Some(end) => Err(Error::LeaseEnded(end)),
        }
    }
}

impl From<RemoteSlice> for RemoteTarget {
    fn from(slice: RemoteSlice) -> Self {
        RemoteTarget { slice, lease: None }
    }
}

impl std::fmt::Debug for RemoteTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RemoteTarget({} of {})", self.slice.offset(), self.slice.region())
    }
}
