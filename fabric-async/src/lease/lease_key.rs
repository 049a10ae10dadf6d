//! By which key the peer reaches what it is lent: the region's own, or that of a grant to its connection.

use fabric::{Error, Grant, PendingGrant, RemoteRegion, Result};

/// The key of a lease.
pub(super) enum LeaseKey {
    /// That of the region.
    OfRegion,
    /// That of a grant which is not open yet.
    Opening(PendingGrant),
    /// That of a grant.
    OfGrant(Grant),
}

impl LeaseKey {
    /// The descriptor for the peer, once it can use it; `own`: the region's.
    ///
    /// # Errors
    /// It will never be open.
    pub(super) fn poll_open(&mut self, own: RemoteRegion) -> Result<Option<RemoteRegion>> {
        self.look()?;
        Ok(match self {
            LeaseKey::OfRegion => Some(own),
            LeaseKey::Opening(_) => None,
            LeaseKey::OfGrant(grant) => Some(grant.remote()),
        })
    }

    /// Whether its region cannot end yet: what was posted before the grant has not finished.
    pub(super) fn is_opening(&mut self) -> bool {
        self.look().is_ok() && matches!(self, LeaseKey::Opening(_))
    }

    /// A grant that is open, or never will be, is not opening any more.
    fn look(&mut self) -> Result<()> {
        let LeaseKey::Opening(pending) = self else { return Ok(()) };
        match pending.poll() {
            // It can be polled again.
            Ok(None) | Err(Error::NoMemory(_)) => {}
            Ok(Some(grant)) => *self = LeaseKey::OfGrant(grant),
            Err(error) => {
                *self = LeaseKey::OfRegion;
                return Err(error);
            }
        }
        Ok(())
    }
}
