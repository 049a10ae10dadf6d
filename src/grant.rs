//! Grants: part of a region, opened to the peer of one connection.
//!
//! A grant that is open is kept by its region (`region.rs`), whose end revokes it. One that is not open yet
//! (`unopened.rs`) is an operation in flight: it holds the region, and where it takes too long it is left to its endpoint,
//! until it can be revoked.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use fabric_core::access::check_grant;
use fabric_core::{Access, Capabilities, EndpointId, EndpointState, Error, RemoteRegion, Result};
use fabric_util::log_line;
use fabric_util::range::bounds;

use crate::endpoint::Endpoint;
use crate::region::{Region, RegionCore};
use crate::unopened::{Pauses, Unopened};

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
        const OP: &str = "grant";
        let domain = &self.core.domain;
        let (start, end) = bounds(range, self.len());
        domain.ops.check(OP)?;
        if !domain.info.capabilities.contains(Capabilities::GRANTS) {
            let text = format!("the device {} has no grants", domain.info.device);
            return Err(Error::unsupported(OP, domain.info.provider, text));
        }
        if !Arc::ptr_eq(domain, &endpoint.inner.domain) {
            return Err(Error::invalid(OP, "endpoint and region are of different domains"));
        }
        check_grant((self.addr() as u64, self.len(), self.access()), (start, end), access)?;
        // Counts as an operation in flight, so the region cannot close meanwhile.
        let core = self.core.clone();
        if core.is_closed() {
            return Err(Error::state(OP, "the region is closed"));
        }
        if endpoint.state() != EndpointState::Connected {
            return Err(endpoint.not_connected());
        }
        let mut pauses = Pauses::new();
        let id = endpoint.id();
        let grant = loop {
            let begun = core.begin_grant(|ops| {
                let _no_posts = endpoint.lock_send();
                // SAFETY: `Unopened` holds the core until it is revoked; once it is open, the core ends it before itself.
                unsafe { ops.grant(id, start..end, access) }
            });
            match begun {
                Err(Error::Again) if pauses.pause() => {}
                Err(Error::Again) => return Err(domain.hub.timed_out(id)),
                grant => break Unopened::new(core.clone(), grant?),
            }
        };
        while !grant.is_open()? {
            if !pauses.pause() {
                endpoint.inner.keep_until_open(grant);
                return Err(domain.hub.timed_out(id));
            }
        }
        let Some(grant) = grant.take() else { return Err(Error::Canceled) };
        let (key, base, len) = (grant.remote_key(), grant.remote_base(), end - start);
        let remote = RemoteRegion::from_parts(key, base, len as u64, access);
        let name = core.add_grant(grant);
        Ok(Grant { core, name, endpoint: id, remote })
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
