//! Grants over a connection: its peer, and no other, reaches part of a region.

use std::future::poll_fn;
use std::ops::RangeBounds;
use std::task::Poll;
use std::time::Instant;

use fabric::{Access, Grant, PendingGrant, Region};

use crate::backoff::Backoff;
use crate::connection::Connection;
use crate::error::{Error, Result};

impl Connection {
    /// Opens part of a region of the node's domain to the peer of this connection, with rights that the region has, where
    /// the domain has [`Capabilities::GRANTS`](fabric::Capabilities::GRANTS). To all others, other connections of the
    /// same peer among them, its key opens nothing.
    ///
    /// It is done when the peer can use it, which may be when everything has finished that was posted over this connection
    /// before. The [`Grant`] ends by [`revoke`](Grant::revoke), when it is dropped, with its region, and with the
    /// connection: from there on no byte changes. Dropping the future opens nothing; where its turn had not come, the
    /// region can be closed when it would have.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// use fabric::{Access, Capabilities, RemoteRegion};
    ///
    /// let domain = conn.node().domain().clone();
    /// if domain.info().capabilities.contains(Capabilities::GRANTS) {
    ///     let table = domain.alloc(4096, Access::ALL)?;
    ///     let grant = conn.grant(&table, 1024..2048, Access::REMOTE_WRITE).await?;
    ///     // Its 40 bytes go to the peer like those of a region; others have no use for them.
    ///     conn.send(conn.node().pool().alloc_from(&grant.remote().to_bytes())?).await?;
    ///
    ///     let part = RemoteRegion::from_bytes(&peer.recv().await?)?;
    ///     let text = peer.node().pool().alloc_from(b"for you")?;
    ///     peer.write(text, part.at(0)).delivered().await?;
    ///
    ///     grant.revoke()?; // whatever the peer is doing
    ///     assert_eq!(table.to_vec(1024..1031)?, b"for you");
    /// }
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// The fabric's, as of [`Region::grant`], but never `TimedOut`; `Disconnected`.
    pub async fn grant(
        &self,
        region: &Region,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<Grant> {
        let conn = &self.inner;
        let error = |error| match error {
            fabric::Error::NotConnected => conn.over(),
            other => Error::from(other),
        };
        let mut pending = region.begin_grant(&conn.endpoint, range, access).map_err(error)?;
        if let Some(grant) = pending.poll().map_err(error)? {
            return Ok(grant);
        }
        self.opened(pending).await.map_err(error)
    }

    /// Looks from time to time: a device does not say when a grant is open.
    async fn opened(&self, mut pending: PendingGrant) -> fabric::Result<Grant> {
        let mut timer = self.inner.node.reactor.timer();
        let mut backoff = Backoff::new();
        let mut next = Instant::now() + backoff.pause();
        poll_fn(|cx| {
            match pending.poll().transpose() {
                Some(ended) => return Poll::Ready(ended),
                None if next <= Instant::now() => next = Instant::now() + backoff.pause(),
                None => {}
            }
            timer.wake_at(next, cx.waker());
            Poll::Pending
        })
        .await
    }
}
