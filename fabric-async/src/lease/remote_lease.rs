//! The holder's handle of a lease.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fabric::{Access, RemoteRegion};

use super::control::Control;
use super::remote_state::{RemoteLeaseState, RemoteTarget};
use super::terms::nanos;
use crate::error::{Error, LeaseEnd, Refusal, Result};

/// Memory of a peer that this side may use for a time: a lease.
///
/// [`at`](RemoteLease::at) says where in it an operation goes. It ends when it is dropped and the operations on it are done, when
/// its time is over, when its owner takes it back, or with the connection over which it came. Operations on a lease
/// that has ended, as far as this side knows, are refused here, with [`Error::LeaseEnded`], and harm nothing. One that
/// reaches the owner later is an [`Error::RemoteAccess`] and ends the connection, as every forbidden access does: so
/// [`renew`](RemoteLease::renew) early.
///
/// Clones are the same lease.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// use fabric_async::{Error, LeaseEnd};
/// use std::time::Duration;
///
/// let remote = conn.request_lease(4096, Duration::from_millis(50)).await?;
/// assert!(remote.time_left() <= Duration::from_millis(50));
/// remote.renew(Duration::from_secs(1)).await?;
/// conn.write(conn.alloc(8)?, remote.at(0)).await?;
/// let kept = remote.clone();
/// remote.release();
/// let failed = conn.write(conn.alloc(8)?, kept.at(0)).await.unwrap_err();
/// assert!(matches!(failed.error, Error::LeaseEnded(LeaseEnd::Released)));
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct RemoteLease {
    held: Arc<RemoteLeaseState>,
    /// The connection that it came over; `None` if a holder passed it on.
    control: Option<Weak<Control>>,
}

impl RemoteLease {
    /// A lease that came over a connection.
    pub(super) fn new(held: Arc<RemoteLeaseState>, control: &Arc<Control>) -> Self {
        let control = held.source.is_some().then(|| Arc::downgrade(control));
        RemoteLease { held, control }
    }

    /// By which the owner finds it: [`Connection::local_lease`](crate::Connection::local_lease). 0 for leases that were passed on.
    pub fn id(&self) -> u64 {
        self.held.lease
    }

    /// Bytes: what was asked for, in whole multiples of 8.
    #[allow(clippy::len_without_is_empty)] // a lease is never empty
    pub fn len(&self) -> u64 {
        self.held.region.len()
    }

    /// What may be done with it.
    pub fn access(&self) -> Access {
        self.held.region.access()
    }

    /// The place `offset` bytes into it, for one operation.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_lease(64, std::time::Duration::from_secs(30)).await?;
    /// conn.write(conn.node().pool().alloc_from(&[7; 8])?, remote.at(56)).await?;
    /// assert_eq!(*conn.read(conn.alloc(8)?, remote.at(56)).await?, [7; 8]);
    /// assert!(conn.read(conn.alloc(8)?, remote.at(57)).await.is_err()); // one byte too far
    /// # Ok(()) });
    /// ```
    #[inline]
    pub fn at(&self, offset: u64) -> RemoteTarget {
        RemoteTarget::of(&self.held, offset)
    }

    /// The descriptor beneath, for the poll API. What is done with it does not know when the lease ends. Where the owner has
    /// [`connection_keys`](crate::NodeBuilder::connection_keys), it opens nothing over other connections.
    pub fn descriptor(&self) -> RemoteRegion {
        self.held.region
    }

    /// How much of its time is left, as far as this side knows; zero when it has ended.
    pub fn time_left(&self) -> Duration {
        if self.end().is_some() {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.until().saturating_sub(nanos(Instant::now())))
    }

    /// When it ends by this side's clock, as far as this side knows.
    pub(super) fn until(&self) -> u64 {
        self.held.until.load(Ordering::Acquire)
    }

    /// How it ended, if it has.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_lease(64, std::time::Duration::from_secs(30)).await?;
    /// assert_eq!(remote.end(), None);
    /// remote.clone().release();
    /// assert_eq!(remote.end(), Some(fabric_async::LeaseEnd::Released));
    /// # Ok(()) });
    /// ```
    pub fn end(&self) -> Option<LeaseEnd> {
        self.held.end()
    }

    fn control(&self) -> Result<Arc<Control>> {
        if let Some(end) = self.end() {
            return Err(Error::LeaseEnded(end));
        }
        match &self.control {
            None => Err(Error::NotGranted(Refusal::Unknown)),
            Some(control) => control.upgrade().ok_or(Error::LeaseEnded(LeaseEnd::Disconnected)),
        }
    }

    /// By which key peers of other connections reach it.
    pub(super) async fn shared(&self) -> Result<RemoteRegion> {
        if self.control.is_none() {
            // It has that one.
            return Ok(self.held.region);
        }
        let region = self.control()?.ask_share(self.held.lease).await?;
        if region.len() != self.len() {
            return Err(Error::Protocol("the peer shares what was not asked for".to_owned()));
        }
        Ok(region)
    }

    /// Has it end `time` from now instead of when it would. Dropping the future may leave either.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// use std::time::Duration;
    ///
    /// let remote = conn.request_lease(64, Duration::from_secs(5)).await?;
    /// remote.renew(Duration::from_secs(60)).await?;
    /// assert!(remote.time_left() > Duration::from_secs(30));
    /// assert!(remote.renew(Duration::from_secs(86_400)).await.is_err()); // the policy has 10 minutes
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// `NotGranted` beyond the owner's policy, or for a lease that was passed on; `LeaseEnded`; `Disconnected`.
    pub async fn renew(&self, time: Duration) -> Result<()> {
        self.control()?.renew(self.held.lease, time).await
    }

    /// Gives it back. Operations that were not begun are refused, on other clones too; when those in flight are done, and the
    /// clones gone, the owner has it again.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_lease(64, std::time::Duration::from_secs(30)).await?;
    /// let place = remote.at(0);
    /// remote.release();
    /// assert!(conn.write(conn.alloc(8)?, place).await.is_err());
    /// # Ok(()) });
    /// ```
    pub fn release(self) {
        self.held.set_end(LeaseEnd::Released);
    }
}

impl std::fmt::Debug for RemoteLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RemoteLease({}: {}, {:?} left)", self.id(), self.held.region, self.time_left())
    }
}
