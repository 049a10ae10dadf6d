//! What a connection offers of leases.

use std::sync::Arc;
use std::time::Duration;

use fabric::Access;

use super::control::Control;
use super::local_lease::LocalLease;
use super::remote_lease::RemoteLease;
use crate::buffer::Buffer;
use crate::connection::Connection;
use crate::error::{Error, OpError, Refusal, Result};

impl Connection {
    fn control(&self) -> Result<&Arc<Control>> {
        self.inner.control.get().ok_or(Error::NotGranted(Refusal::Disabled))
    }

    /// Asks the peer for memory, zeroed, with all rights that its policy gives, for a time. The peer's application need do
    /// nothing for it.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_lease(4096, std::time::Duration::from_secs(30)).await?;
    /// assert_eq!(*conn.read(conn.alloc(4096)?, remote.at(0)).await?, [0; 4096]);
    /// // More than the peer's policy has, which is 64 MiB.
    /// assert!(conn.request_lease(1 << 30, std::time::Duration::from_secs(30)).await.is_err());
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// `NotGranted` with the reason; `Disconnected`.
    pub async fn request_lease(&self, len: usize, time: Duration) -> Result<RemoteLease> {
        self.request_lease_with(len, time, Access::empty()).await
    }

    /// Asks as [`request_lease`](Connection::request_lease), for just these rights.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// use fabric::Access;
    ///
    /// let time = std::time::Duration::from_secs(30);
    /// let remote = conn.request_lease_with(64, time, Access::REMOTE_READ).await?;
    /// assert_eq!(remote.access(), Access::REMOTE_READ);
    /// // What the descriptor does not allow is refused here.
    /// assert!(conn.write(conn.alloc(8)?, remote.at(0)).await.is_err());
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`request_lease`](Connection::request_lease).
    pub async fn request_lease_with(
        &self,
        len: usize,
        time: Duration,
        rights: Access,
    ) -> Result<RemoteLease> {
        let control = self.control()?;
        Ok(RemoteLease::new(control.request(len as u64, time, rights).await?, control))
    }

    /// Lends a buffer to the peer, unasked and whatever the policy says; it gets it from
    /// [`next_lease`](Connection::next_lease). The lease ends after `time`, or by [`LocalLease::take`], or when the peer gives it back.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let text = conn.node().pool().alloc_from(b"borrowed")?;
    /// let lent = conn.lend(text, std::time::Duration::from_secs(30), fabric::Access::REMOTE_READ)?;
    /// let remote = peer.next_lease().await?;
    /// assert_eq!(*peer.read(peer.alloc(8)?, remote.at(0)).await?, *b"borrowed");
    /// # drop(lent);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// `NotGranted` if the connection carries no leases; the fabric's: `InvalidArgument` for an empty buffer, for one
    /// whose length is not a multiple of 8 with the right to atomics, or for rights that are none of a peer's,
    /// `NoMemory`, `Again` while 1024 messages about leases wait for a peer that does not take them; `Disconnected`. The
    /// error has the buffer.
    pub fn lend(
        &self,
        buffer: Buffer,
        time: Duration,
        rights: Access,
    ) -> Result<LocalLease, OpError<Buffer>> {
        match self.control() {
            Ok(control) => control.lend(buffer, time, rights),
            Err(error) => Err(OpError { error, buffer }),
        }
    }

    /// The next lease that the peer lends, or passes on, unasked. Dropping the future loses nothing. It ends here no later than the
    /// peer's clock says, which it is asked for before the lease is given out.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let lent = conn.lend(conn.alloc(64)?, std::time::Duration::from_secs(30), fabric::Access::REMOTE)?;
    /// let remote = peer.next_lease().await?;
    /// assert_eq!((remote.id(), remote.len()), (lent.id(), 64));
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// `NotGranted` if the connection carries no leases; `Disconnected`.
    pub async fn next_lease(&self) -> Result<RemoteLease> {
        let control = self.control()?;
        Ok(RemoteLease::new(control.borrow().await?, control))
    }

    /// Memory of this side that the peer has a lease on, by the lease's [`id`](RemoteLease::id).
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let remote = conn.request_lease(64, std::time::Duration::from_secs(30)).await?;
    /// assert_eq!(peer.local_lease(remote.id()).unwrap().len(), 64);
    /// assert!(peer.local_lease(12345).is_none());
    /// # Ok(()) });
    /// ```
    pub fn local_lease(&self, id: u64) -> Option<LocalLease> {
        self.inner.control.get()?.local_lease(id)
    }
}

impl RemoteLease {
    /// Lets a third peer use it too, until it ends: that peer gets it from [`Connection::next_lease`], and uses it over its own
    /// connection to the owner, which is asked for the key. Keep this handle as long as it is to last; renewals are not seen by the
    /// third peer. Dropping the future passes nothing on, or all.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// # // The peer here is owner and third at once: it borrows its own memory.
    /// let remote = conn.request_lease(64, std::time::Duration::from_secs(30)).await?;
    /// remote.pass_on(&conn).await?; // to whom the connection goes
    /// let passed = peer.next_lease().await?;
    /// assert_eq!(passed.len(), 64);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// `LeaseEnded`; `NotGranted` if `to` carries no leases, or the owner has no memory for a further registration; `Disconnected`; `Again` of the fabric while 1024 messages about
    /// leases wait for a peer that does not take them.
    pub async fn pass_on(&self, to: &Connection) -> Result<()> {
        if let Some(end) = self.end() {
            return Err(Error::LeaseEnded(end));
        }
        let to = to.control()?;
        let region = self.shared().await?;
        to.pass(self.until(), region)
    }
}
