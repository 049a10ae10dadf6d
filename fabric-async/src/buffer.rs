//! Buffers: exclusive registered memory, parts of it, and memory shared for reading.

use std::fmt;
use std::ops::{Deref, DerefMut, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;
use fabric_util::range::bounds;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::block::Block;
use crate::error::{Error, Result};

/// Registered memory, owned exclusively: a `[u8]` that operations take and return.
///
/// It is `Send` and `'static`, has no lock and no borrow of anything. Operations take it by value, so it can be neither
/// read nor changed while a device uses it; they return it when they are done, on errors too. Dropping it returns it to its
/// pool. It starts on a cache line (64 bytes), so values of every type can lie in it.
///
/// ```
/// # fn main() -> Result<(), fabric_async::Error> {
/// let node = fabric_async::Node::shared()?;
/// let mut buffer = node.pool().alloc(4096)?;
/// buffer[..5].copy_from_slice(b"hello");
/// assert_eq!(&buffer[..5], b"hello");
/// # Ok(()) }
/// ```
///
/// While an operation has it, it is not there:
///
/// ```compile_fail,E0382
/// # async fn f(conn: fabric_async::Connection, mut buffer: fabric_async::Buffer) {
/// let sending = conn.send(buffer);
/// buffer[0] = 1;
/// # drop(sending);
/// # }
/// ```
///
/// A view of it does not outlast it, and there is no second one of the same memory:
///
/// ```compile_fail,E0505
/// # fn f(conn: fabric_async::Connection, buffer: fabric_async::Buffer) {
/// let word = buffer.view::<u64>().unwrap();
/// let sending = conn.send(buffer);
/// println!("{word}");
/// # drop(sending);
/// # }
/// ```
///
/// ```compile_fail,E0277
/// fn twice<T: Clone>(_: T) {}
/// # fn f(buffer: fabric_async::Buffer) {
/// twice(buffer);
/// # }
/// ```
pub struct Buffer {
    /// `None` has no bytes.
    block: Option<Block>,
    len: usize,
}

impl Buffer {
    #[inline]
    pub(crate) fn new(block: Block, len: usize) -> Self {
        debug_assert!(len <= block.len());
        Buffer { block: Some(block), len }
    }

    /// A buffer of no bytes, of no pool: what an empty message is sent from.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// conn.send(fabric_async::Buffer::empty()).await?;
    /// assert!(peer.recv().await?.is_empty());
    /// # Ok(()) });
    /// ```
    pub fn empty() -> Self {
        Buffer { block: None, len: 0 }
    }

    #[inline]
    pub(crate) fn into_block(mut self) -> (Option<Block>, usize) {
        (self.block.take(), self.len)
    }

    /// Bytes it can have without another allocation: [`resize`](Buffer::resize).
    ///
    /// ```
    /// let buffer = fabric_async::Node::shared()?.pool().alloc(1000)?;
    /// assert_eq!((buffer.len(), buffer.capacity()), (1000, 1024));
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn capacity(&self) -> usize {
        self.block.as_ref().map_or(0, Block::len)
    }

    /// Shortens it to `len` bytes; no effect if it is not longer.
    ///
    /// ```
    /// let mut buffer = fabric_async::Node::shared()?.pool().alloc_from(b"hello, world")?;
    /// buffer.truncate(5);
    /// assert_eq!(*buffer, *b"hello");
    /// buffer.truncate(100);
    /// assert_eq!(buffer.len(), 5);
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes it `len` bytes long, within its capacity. Bytes that come into view are zero.
    ///
    /// ```
    /// let mut buffer = fabric_async::Node::shared()?.pool().alloc(100)?;
    /// assert_eq!(buffer.capacity(), 128);
    /// buffer.truncate(10);
    /// buffer.resize(120)?; // there is room
    /// assert_eq!(buffer[10..], [0; 110]);
    /// assert!(buffer.resize(129).is_err());
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` of the fabric beyond the capacity.
    pub fn resize(&mut self, len: usize) -> Result<()> {
        let capacity = self.capacity();
        if len > capacity {
            let text = format!("{len} bytes; this buffer has room for {capacity}");
            return Err(fabric::Error::invalid("resize", text).into());
        }
        let before = self.len;
        self.len = len;
        if let Some(fresh) = self.get_mut(before..) {
            fresh.fill(0);
        }
        Ok(())
    }

    /// Part of it, for an operation, which gives the whole buffer back.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let buffer = conn.alloc(4096)?;
    /// let buffer = conn.send(buffer.slice(..100)).await?;
    /// assert_eq!((buffer.len(), peer.recv().await?.len()), (4096, 100));
    /// # Ok(()) });
    /// ```
    ///
    /// A range that does not fit makes the operation fail, with the buffer in the error.
    pub fn slice(self, range: impl RangeBounds<usize>) -> BufferSlice {
        let (start, end) = bounds(range, self.len);
        BufferSlice { buffer: self, start, end }
    }

    /// Makes it read-only and shared: what goes to many peers, or is sent while it is read.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let news = conn.node().pool().alloc_from(b"news")?.share();
    /// conn.send(news.clone()).await?;
    /// peer.send(news.clone()).await?; // the same memory, to another one
    /// assert_eq!(*conn.recv().await?, *peer.recv().await?);
    /// # Ok(()) });
    /// ```
    pub fn share(self) -> SharedBuffer {
        SharedBuffer(Arc::new(self))
    }

    /// Its beginning, as a plain value.
    ///
    /// ```
    /// # fn main() -> Result<(), fabric_async::Error> {
    /// # let node = fabric_async::Node::shared()?;
    /// let mut buffer = node.pool().alloc(64)?;
    /// buffer.view_mut::<[u64; 4]>()?[2] = 7;
    /// assert_eq!(buffer.view::<[u64; 4]>()?[2], 7);
    /// # Ok(()) }
    /// ```
    ///
    /// Received bytes are arbitrary, so every bit pattern must be a value of the type:
    ///
    /// ```compile_fail,E0277
    /// # fn f(buffer: fabric_async::Buffer) {
    /// buffer.view::<bool>();
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` of the fabric if it is shorter than the value.
    pub fn view<T: FromBytes + KnownLayout + Immutable>(&self) -> Result<&T> {
        let (len, size) = (self.len, size_of::<T>());
        T::ref_from_prefix(self).map(|(value, _)| value).map_err(|_| misfit::<T>(len, size))
    }

    /// Its beginning, as a plain value that can be changed.
    ///
    /// ```
    /// let mut buffer = fabric_async::Node::shared()?.pool().alloc(16)?;
    /// buffer.view_mut::<[u32; 4]>()?[1] = 7;
    /// assert_eq!(buffer.view_all::<u32>()?, [0, 7, 0, 0]);
    /// assert!(buffer.view_mut::<[u32; 5]>().is_err()); // it is shorter
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`view`](Buffer::view).
    pub fn view_mut<T: FromBytes + IntoBytes + KnownLayout>(&mut self) -> Result<&mut T> {
        let (len, size) = (self.len, size_of::<T>());
        T::mut_from_prefix(self).map(|(value, _)| value).map_err(|_| misfit::<T>(len, size))
    }

    /// All of it as plain values; a rest that is no whole value is an error.
    ///
    /// ```
    /// let buffer = fabric_async::Node::shared()?.pool().alloc_from(&[1, 2, 3, 4, 5, 6])?;
    /// assert_eq!(buffer.view_all::<[u8; 2]>()?, [[1, 2], [3, 4], [5, 6]]);
    /// assert!(buffer.view_all::<[u8; 4]>().is_err()); // 6 is no multiple of 4
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` of the fabric if its length is not a multiple of a value's.
    pub fn view_all<T: FromBytes + Immutable>(&self) -> Result<&[T]> {
        let (len, size) = (self.len, size_of::<T>());
        <[T]>::ref_from_bytes(self).map_err(|_| misfit::<T>(len, size))
    }

    /// All of it as plain values that can be changed; a rest that is no whole value is an error.
    ///
    /// ```
    /// let mut buffer = fabric_async::Node::shared()?.pool().alloc(32)?;
    /// buffer.view_all_mut::<u64>()?[3] = 7;
    /// assert_eq!(buffer.view_all::<u64>()?, [0, 0, 0, 7]);
    /// assert!(buffer.view_all_mut::<[u8; 5]>().is_err()); // 2 would be left
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`view_all`](Buffer::view_all).
    pub fn view_all_mut<T: FromBytes + IntoBytes>(&mut self) -> Result<&mut [T]> {
        let (len, size) = (self.len, size_of::<T>());
        <[T]>::mut_from_bytes(self).map_err(|_| misfit::<T>(len, size))
    }
}

#[cold]
fn misfit<T>(len: usize, size: usize) -> Error {
    let (name, align) = (std::any::type_name::<T>(), align_of::<T>());
    let text = format!("a buffer of {len} bytes is no {name} ({size} bytes, aligned to {align})");
    fabric::Error::invalid("view", text).into()
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.block {
            Some(block) => &block.bytes()[..self.len],
            None => &[],
        }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.block {
            Some(block) => &mut block.bytes_mut()[..self.len],
            None => &mut [],
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            block.give_back();
        }
    }
}

/// Without a copy: the buffer returns to its pool when the last clone of the `Bytes` is gone.
impl From<Buffer> for Bytes {
    fn from(buffer: Buffer) -> Bytes {
        Bytes::from_owner(buffer)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} of {} bytes)", self.len, self.capacity())
    }
}

/// Part of a buffer, for one operation. Made by [`Buffer::slice`].
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// let part = conn.node().pool().alloc_from(b"hello, world")?.slice(7..);
/// conn.send(part).await?;
/// assert_eq!(*peer.recv().await?, *b"world");
/// # Ok(()) });
/// ```
#[derive(Debug)]
pub struct BufferSlice {
    buffer: Buffer,
    start: usize,
    end: usize,
}

impl BufferSlice {
    /// The whole buffer.
    ///
    /// ```
    /// let part = fabric_async::Node::shared()?.pool().alloc_from(b"hello")?.slice(..2);
    /// assert_eq!(*part.into_buffer(), *b"hello");
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }

    /// The buffer and the range, if it fits.
    #[inline]
    pub(crate) fn into_range(self) -> Result<(Buffer, usize, usize), (Buffer, Error)> {
        let BufferSlice { buffer, start, end } = self;
        if start <= end && end <= buffer.len {
            return Ok((buffer, start, end - start));
        }
        let len = buffer.len;
        let text = format!("{start}..{end} does not lie in a buffer of {len} bytes");
        Err((buffer, fabric::Error::invalid("slice", text).into()))
    }
}

/// Registered memory that is only read: sent to many peers at once, and read meanwhile. Clones are the same memory; it
/// returns to its pool when the last clone and the last operation are gone.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// # let peers = [conn, peer];
/// let mut buffer = peers[0].alloc(5)?;
/// buffer.copy_from_slice(b"hello");
/// let message = buffer.share();
/// for peer in &peers {
///     peer.send(message.clone()).await?;
/// }
/// assert_eq!(&*message, b"hello");
/// # for peer in &peers {
/// #     assert_eq!(*peer.recv().await?, *message);
/// # }
/// # Ok(()) });
/// ```
///
/// It cannot be where bytes arrive:
///
/// ```compile_fail,E0277
/// # async fn f(c: fabric_async::Connection, s: fabric_async::SharedBuffer, at: fabric::RemoteSlice) {
/// c.read(s, at).await;
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SharedBuffer(Arc<Buffer>);

impl SharedBuffer {
    /// The buffer again, if this is the last clone and no operation uses it.
    ///
    /// ```
    /// let shared = fabric_async::Node::shared()?.pool().alloc(8)?.share();
    /// let clone = shared.clone();
    /// let shared = shared.try_into_buffer().unwrap_err(); // there is a clone
    /// drop(clone);
    /// assert_eq!(shared.try_into_buffer().unwrap().len(), 8);
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// Itself, if it is not.
    pub fn try_into_buffer(self) -> Result<Buffer, SharedBuffer> {
        Arc::try_unwrap(self.0).map_err(SharedBuffer)
    }

    #[inline]
    pub(crate) fn block(&self) -> Option<&Block> {
        self.0.block.as_ref()
    }
}

impl Deref for SharedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for SharedBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Without a copy.
impl From<SharedBuffer> for Bytes {
    fn from(shared: SharedBuffer) -> Bytes {
        Bytes::from_owner(shared)
    }
}
