//! What an operation carries: buffers on their way through the slab of operations.

use fabric::{Slice, Slices};
use smallvec::SmallVec;

use crate::block::InFlight;
use crate::buffer::{Buffer, BufferSlice, SharedBuffer};
use crate::error::{Error, Result};

/// What an operation sends from: a [`Buffer`], a [`BufferSlice`] of one, several buffers in a row (`Vec<Buffer>`), or
/// a [`SharedBuffer`]. Sealed.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// // A buffer, a part of one, several, one for many.
/// conn.send(conn.alloc(10)?).await?;
/// conn.send(conn.alloc(10)?.slice(..4)).await?;
/// conn.send(vec![conn.alloc(1)?, conn.alloc(2)?]).await?;
/// conn.send(conn.alloc(9)?.share()).await?;
/// for len in [10, 4, 3, 9] {
///     assert_eq!(peer.recv().await?.len(), len);
/// }
/// # Ok(()) });
/// ```
pub trait Payload: sealed::Sealed + Send + Unpin + Sized + 'static {
    /// What comes back: the buffer, or buffers; of a part its whole buffer.
    ///
    /// ```
    /// # use fabric_async::Buffer;
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
    /// # doc::pair(async |conn, peer| {
    /// let whole: Buffer = conn.send(conn.alloc(10)?.slice(..4)).await?;
    /// let all: Vec<Buffer> = conn.send(vec![conn.alloc(1)?, conn.alloc(2)?]).await?;
    /// assert_eq!((whole.len(), all.len()), (10, 2));
    /// # Ok(()) });
    /// ```
    type Back: Send + Unpin + 'static;

    #[doc(hidden)]
    fn load(self) -> Result<OpBuffers, (Self::Back, Error)>;

    #[doc(hidden)]
    fn unload(buffers: OpBuffers) -> Self::Back;
}

/// What an operation can place bytes into: every [`Payload`] but shared memory. Sealed.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # doc::pair(async |conn, peer| {
/// # let remote = conn.request_lease(32, std::time::Duration::from_secs(30)).await?;
/// // Into a part of a buffer; the rest of it stays.
/// let buffer = conn.node().pool().alloc_from(b"....")?;
/// let buffer = conn.read(buffer.slice(1..3), remote.at(0)).await?;
/// assert_eq!(*buffer, *b".\0\0.");
/// // Into several in a row.
/// let parts = conn.read(vec![conn.alloc(8)?, conn.alloc(24)?], remote.at(0)).await?;
/// assert_eq!(*parts[1], [0; 24]);
/// # Ok(()) });
/// ```
pub trait RecvPayload: Payload {}

impl RecvPayload for Buffer {}
impl RecvPayload for BufferSlice {}
impl RecvPayload for Vec<Buffer> {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Buffer {}
    impl Sealed for super::BufferSlice {}
    impl Sealed for Vec<super::Buffer> {}
    impl Sealed for super::SharedBuffer {}
}

/// A buffer whose memory is in flight. As large as a [`Buffer`], so that a `Vec` of the one becomes one of the other where
/// it is.
pub struct InFlightBuffer {
    flight: Option<InFlight>,
    len: usize,
}

impl InFlightBuffer {
    #[inline]
    fn new(buffer: Buffer) -> Self {
        let (block, len) = buffer.into_block();
        InFlightBuffer { flight: block.map(InFlight::new), len }
    }

    #[inline]
    fn slice(&self, start: usize, len: usize) -> Option<Slice<'_>> {
        self.flight.as_ref().map(|flight| flight.slice(start, len))
    }

    /// The buffer again, when the operation has ended.
    #[inline]
    fn reclaim(self) -> Buffer {
        match self.flight {
            Some(flight) => Buffer::new(flight.reclaim(), self.len),
            None => Buffer::empty(),
        }
    }

    fn leak(self) {
        if let Some(flight) = self.flight {
            flight.leak();
        }
    }
}

/// A buffer whose memory is in flight, and the part of it that the operation uses.
pub struct BufferRange {
    whole: InFlightBuffer,
    start: usize,
    len: usize,
}

impl BufferRange {
    #[inline]
    pub(crate) fn new(buffer: Buffer, start: usize, len: usize) -> Self {
        BufferRange { whole: InFlightBuffer::new(buffer), start, len }
    }

    #[inline]
    pub(crate) fn slice(&self) -> Option<Slice<'_>> {
        self.whole.slice(self.start, self.len)
    }

    /// The buffer again, when the operation has ended.
    #[inline]
    pub(crate) fn reclaim(self) -> Buffer {
        self.whole.reclaim()
    }

    /// It is not known whether the operation has ended: the memory is never reused.
    pub(crate) fn leak(self) {
        self.whole.leak();
    }
}

/// The slices of an operation with several buffers.
pub(crate) type SliceVec<'a> = SmallVec<[Slice<'a>; 8]>;

/// Everything that an operation carries. Dropping it without [`reclaim`](OpBuffers::reclaim) leaks memory, for safety.
#[derive(Default)]
pub enum OpBuffers {
    /// Nothing.
    #[default]
    Nothing,
    /// One buffer.
    One(BufferRange),
    /// Buffers in a row.
    Many(Vec<InFlightBuffer>),
    /// Memory that others read meanwhile.
    Shared(SharedBuffer),
    /// A receive's buffer, which goes to the inbox.
    Receive(BufferRange),
}

impl OpBuffers {
    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            OpBuffers::Nothing => 0,
            OpBuffers::One(range) | OpBuffers::Receive(range) => range.len,
            OpBuffers::Many(buffers) => buffers.iter().map(|buffer| buffer.len).sum(),
            OpBuffers::Shared(shared) => shared.len(),
        }
    }

    /// The memory, where it is in one piece.
    #[cfg(feature = "rdm")]
    #[inline]
    pub(crate) fn slice(&self) -> Option<Slice<'_>> {
        match self {
            OpBuffers::One(range) | OpBuffers::Receive(range) => range.slice(),
            OpBuffers::Shared(shared) => shared.block().map(|block| block.source(0, shared.len())),
            OpBuffers::Nothing | OpBuffers::Many(_) => None,
        }
    }

    /// The memory, for a post. `scratch` holds the slices of several buffers.
    #[inline]
    pub(crate) fn slices<'a, 's>(&'a self, scratch: &'s mut SliceVec<'a>) -> Slices<'s>
    where
        'a: 's,
    {
        let slice = match self {
            OpBuffers::Nothing => None,
            OpBuffers::One(range) | OpBuffers::Receive(range) => range.slice(),
            OpBuffers::Many(buffers) => {
                scratch.extend(buffers.iter().filter_map(|buffer| buffer.slice(0, buffer.len)));
                return scratch.as_slice().into();
            }
            OpBuffers::Shared(shared) => shared.block().map(|block| block.source(0, shared.len())),
        };
        slice.map_or_else(Slices::none, Into::into)
    }

    /// It is not known whether the operation has ended: the memory is never reused.
    pub(crate) fn leak(self) {
        match self {
            OpBuffers::Nothing => {}
            OpBuffers::One(range) | OpBuffers::Receive(range) => range.leak(),
            OpBuffers::Many(buffers) => buffers.into_iter().for_each(InFlightBuffer::leak),
            OpBuffers::Shared(shared) => {
                if let Some(block) = shared.block() {
                    block.note_leaked();
                }
                std::mem::forget(shared);
            }
        }
    }

    /// The operation has ended; the buffers return to their pools.
    pub(crate) fn reclaim(self) {
        match self {
            OpBuffers::One(range) | OpBuffers::Receive(range) => drop(range.reclaim()),
            OpBuffers::Many(buffers) => {
                buffers.into_iter().for_each(|buffer| drop(buffer.reclaim()))
            }
            OpBuffers::Nothing | OpBuffers::Shared(_) => {}
        }
    }
}

impl Payload for Buffer {
    type Back = Buffer;

    #[inline]
    fn load(self) -> Result<OpBuffers, (Buffer, Error)> {
        let len = self.len();
        Ok(OpBuffers::One(BufferRange::new(self, 0, len)))
    }

    #[inline]
    fn unload(buffers: OpBuffers) -> Buffer {
        match buffers {
            OpBuffers::One(range) => range.reclaim(),
            _ => Buffer::empty(),
        }
    }
}

impl Payload for BufferSlice {
    type Back = Buffer;

    fn load(self) -> Result<OpBuffers, (Buffer, Error)> {
        let (buffer, start, len) = self.into_range()?;
        Ok(OpBuffers::One(BufferRange::new(buffer, start, len)))
    }

    fn unload(buffers: OpBuffers) -> Buffer {
        <Buffer as Payload>::unload(buffers)
    }
}

impl Payload for Vec<Buffer> {
    type Back = Vec<Buffer>;

    fn load(self) -> Result<OpBuffers, (Vec<Buffer>, Error)> {
        Ok(OpBuffers::Many(self.into_iter().map(InFlightBuffer::new).collect()))
    }

    fn unload(buffers: OpBuffers) -> Vec<Buffer> {
        match buffers {
            OpBuffers::Many(buffers) => buffers.into_iter().map(InFlightBuffer::reclaim).collect(),
            _ => Vec::new(),
        }
    }
}

impl Payload for SharedBuffer {
    type Back = SharedBuffer;

    fn load(self) -> Result<OpBuffers, (SharedBuffer, Error)> {
        Ok(OpBuffers::Shared(self))
    }

    fn unload(buffers: OpBuffers) -> SharedBuffer {
        match buffers {
            OpBuffers::Shared(shared) => shared,
            _ => Buffer::empty().share(),
        }
    }
}
