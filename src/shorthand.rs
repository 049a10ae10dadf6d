//! The usual operations in one call each; all are [`Endpoint::post`] of an [`Op`].

use fabric_core::{AtomicOp, AtomicScalar, RemoteSlice, Result};

use crate::endpoint::Endpoint;
use crate::op::{Op, Slices};
use crate::slice::Slice;

impl Endpoint {
    /// Sends the bytes of `from` to the peer's next receive.
    ///
    /// # Errors
    /// As [`post`](Endpoint::post).
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (a, b) = doc::pair()?;
    /// # let (domain, queue, endpoint) = (&a.domain, &a.queue, &a.endpoint);
    /// # let (peer, timeout) = (&b, doc::TIMEOUT);
    /// use fabric::Access;
    ///
    /// # let inbox = peer.domain.alloc(64, Access::LOCAL_WRITE)?;
    /// # peer.endpoint.recv(&inbox, 0)?;
    /// let outbox = domain.alloc(64, Access::empty())?;
    /// outbox.write_at(0, b"a message")?;
    /// endpoint.send(outbox.slice(..9), 5)?;
    ///
    /// // Completes when the peer has the message. Until then the bytes belong to the operation.
    /// let completion = queue.wait_one(timeout)?;
    /// assert!(completion.is_ok() && completion.context == 5);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn send<'a>(&self, from: impl Into<Slices<'a>>, context: u64) -> Result<()> {
        self.post(&Op::send(from).context(context))
    }

    /// Sends `bytes`, which may be reused at once.
    ///
    /// # Errors
    /// As [`post`](Endpoint::post).
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (a, b) = doc::pair()?;
    /// # let (domain, queue, endpoint) = (&a.domain, &a.queue, &a.endpoint);
    /// # let (peer, timeout) = (&b, doc::TIMEOUT);
    /// # let inbox = peer.domain.alloc(64, fabric::Access::LOCAL_WRITE)?;
    /// # peer.endpoint.recv(&inbox, 0)?;
    /// let mut bytes = *b"no registered memory needed";
    /// endpoint.inject(&bytes, 1)?; // at least 128 bytes fit on every provider
    /// bytes.fill(0);
    /// assert!(queue.wait_one(timeout)?.is_ok());
    /// # assert_eq!(inbox.to_vec(..2)?, b"no");
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn inject(&self, bytes: &[u8], context: u64) -> Result<()> {
        self.post(&Op::inject(bytes).context(context))
    }

    /// Writes the bytes of `from` to the peer's memory at `to`.
    ///
    /// # Errors
    /// As [`post`](Endpoint::post).
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (a, b) = doc::pair()?;
    /// # let (domain, queue, endpoint) = (&a.domain, &a.queue, &a.endpoint);
    /// # let (peer, timeout) = (&b, doc::TIMEOUT);
    /// use fabric::{Access, RemoteRegion};
    ///
    /// // The peer sends a descriptor of its memory, in any way.
    /// let theirs = peer.domain.alloc(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// let remote = RemoteRegion::from_bytes(&theirs.remote().to_bytes())?;
    ///
    /// let page = domain.alloc(512, Access::empty())?;
    /// page.fill(7)?;
    /// endpoint.write(&page, remote.at(1024), 1)?;
    /// assert!(queue.wait_one(timeout)?.is_ok());
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn write<'a>(
        &self,
        from: impl Into<Slices<'a>>,
        to: RemoteSlice,
        context: u64,
    ) -> Result<()> {
        self.post(&Op::write(from, to).context(context))
    }

    /// Reads the peer's memory at `from` into `into`.
    ///
    /// # Errors
    /// As [`post`](Endpoint::post).
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (a, b) = doc::pair()?;
    /// # let (domain, queue, endpoint) = (&a.domain, &a.queue, &a.endpoint);
    /// # let (peer, timeout) = (&b, doc::TIMEOUT);
    /// use fabric::Access;
    ///
    /// let theirs = peer.domain.alloc(64, Access::REMOTE_READ)?;
    /// theirs.write_at(32, b"published")?;
    /// let remote = theirs.remote();
    ///
    /// let ours = domain.alloc(9, Access::LOCAL_WRITE)?;
    /// endpoint.read(&ours, remote.at(32), 1)?; // the peer makes no call for this
    /// assert!(queue.wait_one(timeout)?.is_ok());
    /// assert_eq!(ours.to_vec(..)?, b"published");
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn read<'a>(
        &self,
        into: impl Into<Slices<'a>>,
        from: RemoteSlice,
        context: u64,
    ) -> Result<()> {
        self.post(&Op::read(into, from).context(context))
    }

    /// Adds `value` to the element at `at`; its old value goes to `old`.
    ///
    /// # Errors
    /// As [`post`](Endpoint::post).
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (a, b) = doc::pair()?;
    /// # let (domain, queue, endpoint) = (&a.domain, &a.queue, &a.endpoint);
    /// # let (peer, timeout) = (&b, doc::TIMEOUT);
    /// use fabric::Access;
    ///
    /// let counter = peer.domain.alloc(8, Access::ALL)?;
    /// let remote = counter.remote();
    /// let old = domain.alloc(8, Access::LOCAL_WRITE)?;
    /// endpoint.fetch_add(5u64, old.slice(..), remote.at(0), 1)?;
    /// assert!(queue.wait_one(timeout)?.is_ok());
    /// assert_eq!((old.get::<u64>(0)?, counter.get::<u64>(0)?), (0, 5));
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn fetch_add<T: AtomicScalar>(
        &self,
        value: T,
        old: Slice<'_>,
        at: RemoteSlice,
        context: u64,
    ) -> Result<()> {
        self.post(&Op::fetch_atomic(AtomicOp::Add, value, old, at).context(context))
    }

    /// Puts `new` at `at` if the bits there are those of `expected`; the old value goes to `old`.
    ///
    /// # Errors
    /// As [`post`](Endpoint::post).
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (a, b) = doc::pair()?;
    /// # let (domain, queue, endpoint) = (&a.domain, &a.queue, &a.endpoint);
    /// # let (peer, timeout) = (&b, doc::TIMEOUT);
    /// use fabric::Access;
    ///
    /// // A lock in the peer's memory: 0 is free.
    /// let lock = peer.domain.alloc(8, Access::ALL)?;
    /// let remote = lock.remote();
    /// let old = domain.alloc(8, Access::LOCAL_WRITE)?;
    /// endpoint.compare_swap(0u64, 1u64, old.slice(..), remote.at(0), 1)?;
    /// assert!(queue.wait_one(timeout)?.is_ok());
    /// let locked = old.get::<u64>(0)? == 0;
    /// assert!(locked);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn compare_swap<T: AtomicScalar>(
        &self,
        expected: T,
        new: T,
        old: Slice<'_>,
        at: RemoteSlice,
        context: u64,
    ) -> Result<()> {
        self.post(&Op::fetch_compare_swap(expected, new, old, at).context(context))
    }
}
