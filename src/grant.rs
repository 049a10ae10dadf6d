//! Grants: part of a region, opened to the peer of one connection.
//!
//! A grant that is open is kept by its region (`region.rs`), whose end revokes it. One that is not open yet
//! (`unopened.rs`) is an operation in flight: it holds the region, and where it is given up it is left to its endpoint,
//! until it can be revoked.

use std::fmt;
use std::ops::{Range, RangeBounds};
use std::sync::{Arc, Weak};

use fabric_core::access::check_grant;
use fabric_core::{Access, Capabilities, EndpointId, Error, RemoteRegion, Result};
use fabric_util::log_line;
use fabric_util::range::bounds;

use crate::endpoint::{Endpoint, EndpointInner};
use crate::region::Region;
use crate::region_core::RegionCore;
use crate::slice::{OwnedSlice, Slice};
use crate::unopened::{Pauses, Unopened};

const OP: &str = "grant";

/// The right of one connection's peer to part of a region, made by [`Region::grant`].
///
/// Its key opens that part to that peer alone: to all others it is a key that was never given out. The region's own key
/// goes on as before. [`revoke`](Grant::revoke) ends it at once; so do dropping it, [`Region::close`], and the end of the
/// connection. Until then the region stays registered, whatever becomes of its handle.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (a, b) = doc::pair()?;
/// # let (domain, endpoint, peer) = (&a.domain, &a.endpoint, &b);
/// # let timeout = doc::TIMEOUT;
/// use fabric::{Access, Capabilities};
///
/// let region = domain.alloc(4096, Access::ALL)?;
/// if domain.info().capabilities.contains(Capabilities::GRANTS) {
///     let grant = region.grant(endpoint, 1024..2048, Access::REMOTE_WRITE)?;
///     // Shipped like the descriptor of a region; offset 0 is the first byte of the part.
///     let remote = grant.remote();
///     # let local = peer.domain.alloc(8, Access::empty())?;
///     # local.write_at(0, b"for you!")?;
///     peer.endpoint.write(&local, remote.at(0), 1)?;
///     assert!(peer.queue.wait_one(timeout)?.is_ok());
///     // From here on the peer changes nothing any more.
///     grant.revoke()?;
/// }
/// # Ok(()) }
/// ```
pub struct Grant {
    core: Arc<RegionCore>,
    /// Among those of its region.
    name: u64,
    endpoint: EndpointId,
    remote: RemoteRegion,
}

impl Region {
    /// Opens part of the region to the peer of one connection, with rights that the region has: one or more of
    /// [`Access::REMOTE`].
    ///
    /// It waits until the peer can use it. That may be when everything has finished that was posted to the endpoint's
    /// send queue before.
    ///
    /// # Errors
    /// `Unsupported` without [`GRANTS`](Capabilities::GRANTS). `InvalidArgument` for a range that is empty or does not fit,
    /// rights that the region lacks or that are no peer's, a range for atomics that does not start and end on multiples of
    /// 8, and an endpoint of another domain. `InvalidState` once the region is closed, `NotConnected` before the endpoint is
    /// connected and after. `TimedOut` if an earlier send of the endpoint still waits for a receive after five seconds; the
    /// region can be closed when that has ended. `NoMemory`.
    pub fn grant(
        &self,
        endpoint: &Endpoint,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<Grant> {
        let mut pending = self.begin_grant(endpoint, range, access)?;
        let mut pauses = Pauses::new();
        loop {
            match pending.poll()? {
                Some(grant) => return Ok(grant),
                None if pauses.pause() => {}
                None => return Err(endpoint.inner.hub.timed_out(endpoint.id())),
            }
        }
    }

    /// Begins a grant as [`grant`](Region::grant), and does not wait: for an event loop, or a future.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (a, b) = doc::pair()?;
    /// # let (domain, endpoint) = (&a.domain, &a.endpoint);
    /// use fabric::{Access, Capabilities};
    ///
    /// let region = domain.alloc(4096, Access::ALL)?;
    /// if domain.info().capabilities.contains(Capabilities::GRANTS) {
    ///     let mut pending = region.begin_grant(endpoint, ..64, Access::REMOTE_READ)?;
    ///     let grant = loop {
    ///         match pending.poll()? {
    ///             Some(grant) => break grant,
    ///             None => {} // time for something else
    ///         }
    ///     };
    ///     assert_eq!(grant.remote().len(), 64);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`grant`](Region::grant), never `TimedOut`.
    pub fn begin_grant(
        &self,
        endpoint: &Endpoint,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<PendingGrant> {
        begin(&self.core, endpoint, bounds(range, self.len()), access)
    }
}

impl OwnedSlice {
    /// Begins a grant of the part, as [`Region::begin_grant`].
    ///
    /// # Errors
    /// As [`Region::begin_grant`].
    pub fn begin_grant(&self, endpoint: &Endpoint, access: Access) -> Result<PendingGrant> {
        let Slice { core, offset, len } = self.as_slice();
        begin(core, endpoint, (offset, offset + len), access)
    }
}

fn begin(
    core: &Arc<RegionCore>,
    endpoint: &Endpoint,
    (start, end): (usize, usize),
    access: Access,
) -> Result<PendingGrant> {
    let domain = &core.domain;
    domain.ops.check(OP)?;
    if !domain.info.capabilities.contains(Capabilities::GRANTS) {
        let text = format!("the device {} has no grants", domain.info.device);
        return Err(Error::unsupported(OP, domain.info.provider, text));
    }
    if !Arc::ptr_eq(domain, &endpoint.inner.domain) {
        return Err(Error::invalid(OP, "endpoint and region are of different domains"));
    }
    check_grant((core.addr_at(0) as u64, core.len, core.access), (start, end), access)?;
    // Counts as an operation in flight, so the region cannot close meanwhile.
    let core = core.clone();
    if core.is_closed() {
        return Err(Error::state(OP, "the region is closed"));
    }
    let (range, id) = (start..end, endpoint.id());
    let (endpoint, begun) = (Arc::downgrade(&endpoint.inner), None);
    let mut pending = PendingGrant { core: Some(core.clone()), endpoint, id, range, access, begun };
    pending.begin(&core)?;
    Ok(pending)
}

/// A grant that the peer cannot use yet, made by [`Region::begin_grant`].
///
/// It uses its region as an operation in flight does. Dropped before it is open, it opens nothing: it ends at once, or when
/// what was posted before it has finished, and until then the region cannot be closed.
pub struct PendingGrant {
    /// Nothing once it was given out.
    core: Option<Arc<RegionCore>>,
    endpoint: Weak<EndpointInner>,
    id: EndpointId,
    range: Range<usize>,
    access: Access,
    /// Nothing while it waits for an earlier grant of the connection.
    begun: Option<Unopened>,
}

impl PendingGrant {
    /// The grant, if the peer can use it by now. It needs no poll of the endpoint's completion queue.
    ///
    /// # Errors
    /// `NotConnected` when the connection has ended; `NoMemory`, after which it can be polled again; `InvalidState` once
    /// the grant was given out.
    pub fn poll(&mut self) -> Result<Option<Grant>> {
        let Some(core) = self.core.clone() else {
            return Err(Error::state(OP, "it was given out"));
        };
        core.domain.ops.check(OP)?;
        let is_open = self.begin(&core).and_then(|()| match &self.begun {
            Some(grant) => grant.is_open(),
            None => Ok(false),
        });
        if let (Err(refusal), Some(endpoint)) = (&is_open, self.endpoint.upgrade()) {
            endpoint.shared.note_refusal(refusal);
        }
        if !is_open? {
            return Ok(None);
        }
        let Some(grant) = self.begun.take().and_then(Unopened::take) else { return Ok(None) };
        self.core = None;
        let (key, base, len) = (grant.remote_key(), grant.remote_base(), self.range.len());
        let remote = RemoteRegion::from_parts(key, base, len as u64, self.access);
        let name = core.add_grant(grant);
        Ok(Some(Grant { core, name, endpoint: self.id, remote }))
    }

    /// Has the provider begin, if it has not.
    fn begin(&mut self, core: &Arc<RegionCore>) -> Result<()> {
        if self.begun.is_some() {
            return Ok(());
        }
        let (id, range, access) = (self.id, self.range.clone(), self.access);
        let endpoint = self.endpoint.upgrade().ok_or(Error::NotConnected)?;
        endpoint.check_connected()?;
        let begun = core.begin_grant(|ops| {
            let _no_posts = endpoint.lock_send();
            // SAFETY: `Unopened` holds the core until it is revoked; once it is open, the core ends it before itself.
            unsafe { ops.grant(id, range, access) }
        });
        match begun {
            Err(Error::Again) => {}
            begun => self.begun = Some(Unopened::new(core.clone(), begun?)),
        }
        Ok(())
    }
}

impl Drop for PendingGrant {
    fn drop(&mut self) {
        let (Some(core), Some(mut grant)) = (self.core.take(), self.begun.take()) else { return };
        if core.domain.ops.is_current_process()
            && !grant.is_revoked()
            && let Some(endpoint) = self.endpoint.upgrade()
        {
            endpoint.keep_until_open(grant);
            core.look_after();
        }
    }
}

impl fmt::Debug for PendingGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (PendingGrant { id, access, .. }, len) = (self, self.range.len());
        write!(f, "PendingGrant({len} bytes to the peer of {id}, {access:?})")
    }
}

impl Grant {
    /// The descriptor by which the peer reaches the part; ship its bytes to it. It opens nothing to others.
    pub fn remote(&self) -> RemoteRegion {
        self.remote
    }

    /// The endpoint at whose other end the peer is.
    pub fn endpoint(&self) -> EndpointId {
        self.endpoint
    }

    /// Ends it now, whatever the connection is doing. When it has returned, the peer reads and changes nothing by it, and
    /// its key opens nothing; an access under way ends as it does where a region closes. Repeating it is harmless.
    ///
    /// # Errors
    /// `InvalidState` in a forked child. The system's error if the device did not let go, and then it may still be open; it
    /// can be tried again.
    pub fn revoke(&self) -> Result<()> {
        self.core.domain.ops.check("revoke")?;
        self.core.revoke_grant(self.name)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if let Err(error) = self.revoke()
            && self.core.domain.ops.is_current_process()
        {
            log_line!(Error, "a grant: {error}; it may be open until its region ends");
        }
        self.core.drop_handle();
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, access) = (self.remote.len(), self.remote.access());
        write!(f, "Grant({len} bytes to the peer of {}, {access:?})", self.endpoint)
    }
}
