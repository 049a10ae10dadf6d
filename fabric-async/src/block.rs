//! Pieces of registered memory: all of this crate's unsafe code, and the argument for it.
//!
//! An [`Extent`] is memory registered once, and cut at once into [`Block`]s that do not overlap. Nothing else in the
//! crate reaches that memory, and each block exists once: it is neither `Clone` nor `Copy` and is made in
//! [`Extent::cut`] alone. So the holder of a `Block` has exclusive access to its bytes, except for three that could
//! interfere:
//!
//! - *A peer.* It never writes: the extent is registered without a right to that, and every provider enforces rights. Nor does
//!   it read, but by a grant on the bytes of one message that is in flight (below): by the extent's own key it reaches nothing
//!   ([`GRANTS_ONLY`](Access::GRANTS_ONLY)). A block that is lent is a
//!   [`Loan`], with registrations of its own; it gives no references, only copies, until those have ended.
//! - *An operation in flight*, whose device writes (a receive, a read, the result of an atomic) or reads. To post, a block
//!   must become an [`InFlight`], which has no access to bytes. It becomes a block again by [`InFlight::reclaim`], which `op_slab.rs`
//!   calls when it has taken the operation's completion, or when the post was refused: the contract of `fabric` is that
//!   then, and not earlier, the memory is not accessed any more. An `InFlight` that is dropped without `reclaim` leaks its
//!   memory, which is safe.
//! - *Another thread of this process.* The methods take `&self` and `&mut self`, so the borrow checker sees to it.
//!
//! What futures do cannot break this, because they own neither blocks nor flights while an operation is under way: the
//! slab of operations does. A future that is dropped or forgotten has no say in when the memory is free.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use fabric::{Access, Capabilities, Domain, Error, Region, RemoteRegion, Result, Slice};

/// What keeps the blocks of extents that are not in use.
pub(crate) trait BlockOwner: Send + Sync {
    /// Takes a block back.
    fn give(&self, block: Block);

    /// An extent of so many bytes is gone. The caller holds no lock.
    fn deregistered(&self, bytes: usize);

    /// A block is lost, since a device may still use its memory.
    fn leaked(&self);
}

/// Memory that was registered once, and that peers reach by grants on messages in flight alone. It is deregistered when its last block is gone.
pub(crate) struct Extent {
    region: Region,
    /// Where unused blocks go.
    owner: Arc<dyn BlockOwner>,
    pub(crate) id: u64,
    pub(crate) class: usize,
}

/// A part of an extent, owned exclusively.
pub(crate) struct Block {
    start: NonNull<u8>,
    len: usize,
    /// Bytes into the extent.
    offset: usize,
    extent: Arc<Extent>,
}

// SAFETY: the block is the only way to its bytes (see the top of this file), and memory has no tie to a thread.
unsafe impl Send for Block {}
// SAFETY: `&Block` only reads.
unsafe impl Sync for Block {}

/// Those of an extent. The target of a long message to a datagram endpoint reads it by a grant, and saves a copy.
fn rights(domain: &Domain) -> Access {
    let has_grants = domain.info().capabilities.contains(Capabilities::GRANTS);
    match cfg!(feature = "rdm") && has_grants {
        true => Access::LOCAL_WRITE | Access::REMOTE_READ | Access::GRANTS_ONLY,
        false => Access::LOCAL_WRITE,
    }
}

impl Extent {
    /// Registers `count` blocks of `len` bytes, a multiple of 64: the first, and the others.
    pub(crate) fn cut(
        domain: &Domain,
        owner: Arc<dyn BlockOwner>,
        (id, class): (u64, usize),
        (len, count): (usize, usize),
    ) -> Result<(Block, Vec<Block>)> {
        let size = len.saturating_mul(count);
        let memory = domain.allocate(size)?;
        let region = domain.register(&memory, rights(domain))?;
        let extent = Arc::new(Extent { region, owner, id, class });
        let base = NonNull::new(memory.as_ptr())
            .ok_or_else(|| Error::state("register", "memory of no length has no address"))?;
        let block = |index: usize| {
            let offset = index * len;
            // SAFETY: `index < count`, so the block lies in the `len * count` bytes of the memory, which its region
            // keeps allocated (`Memory::as_ptr`: valid for `len` bytes while a clone lives).
            let start = unsafe { base.add(offset) };
            Block { start, len, offset, extent: extent.clone() }
        };
        Ok((block(0), (1..count).map(block).collect()))
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        self.owner.deregistered(self.region.len());
    }
}

impl Block {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn extent(&self) -> &Arc<Extent> {
        &self.extent
    }

    /// Gives it back to its owner.
    #[inline]
    pub(crate) fn give_back(self) {
        // The extent may go with the block.
        let owner = self.extent.owner.clone();
        owner.give(self);
    }

    /// It leaked: no owner is left.
    pub(crate) fn note_leaked(&self) {
        self.extent.owner.leaked();
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the range is allocated as long as the extent's region lives, and initialized (zeroed at first). While
        // the reference lives there is no writer: no peer has that right, no operation is in flight since this is no
        // `InFlight`, and other threads have at most `&self` too.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` excludes other readers: peers read what is in flight alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Block {
    /// Registers its first `len` bytes, at most all, for peers. Its memory is theirs, too, from then on: for a `Loan`.
    fn register(&self, domain: &Domain, len: usize, rights: Access) -> Result<Region> {
        let part = self.offset..self.offset + len.min(self.len);
        match self.extent.region.memory() {
            Some(memory) => domain.register_part(memory, part, rights | Access::LOCAL_WRITE),
            None => Err(Error::state("lend", "the memory is not the pool's")),
        }
    }

    /// For operations that only read it (sends and writes): devices may read while this process reads.
    #[inline]
    pub(crate) fn source(&self, start: usize, len: usize) -> Slice<'_> {
        self.extent.region.slice(self.offset + start..self.offset + start + len)
    }
}

/// A block that an operation in flight may be reading or writing.
pub(crate) struct InFlight(std::mem::ManuallyDrop<Block>);

impl InFlight {
    #[inline]
    pub(crate) fn new(block: Block) -> Self {
        InFlight(std::mem::ManuallyDrop::new(block))
    }

    /// The memory, for a post.
    #[inline]
    pub(crate) fn slice(&self, start: usize, len: usize) -> Slice<'_> {
        self.0.source(start, len)
    }

    /// The operation has ended: its completion was taken, its post refused, or its endpoint dropped.
    #[inline]
    pub(crate) fn reclaim(self) -> Block {
        std::mem::ManuallyDrop::into_inner(self.0)
    }

    /// It is not known whether the operation has ended.
    pub(crate) fn leak(self) {
        self.0.note_leaked();
    }
}

/// A block that peers may reach: it has a registration of its own, with their rights, and no references to its bytes.
///
/// With [`GRANTS_ONLY`](Access::GRANTS_ONLY) among the rights, peers reach it by grants of that registration alone, until it
/// is [shared](Loan::share).
pub(crate) struct Loan {
    // Declared first: the peers' rights end before the memory is released.
    shared: Option<Region>,
    region: Region,
    block: std::mem::ManuallyDrop<Block>,
}

impl Loan {
    /// Registers the first `len` bytes of a block, at most all, for peers.
    pub(crate) fn new(
        domain: &Domain,
        block: Block,
        len: usize,
        rights: Access,
    ) -> Result<Loan, (Block, Error)> {
        match block.register(domain, len, rights) {
            Ok(region) => {
                Ok(Loan { shared: None, region, block: std::mem::ManuallyDrop::new(block) })
            }
            Err(error) => Err((block, error)),
        }
    }

    /// A descriptor by which peers of every connection reach it.
    pub(crate) fn share(&mut self, domain: &Domain) -> Result<RemoteRegion> {
        let rights = self.region.access();
        if !rights.contains(Access::GRANTS_ONLY) {
            return Ok(self.region.remote());
        }
        let region = match self.shared.take() {
            Some(region) => region,
            None => self.block.register(domain, self.region.len(), rights - Access::GRANTS_ONLY)?,
        };
        Ok(self.shared.insert(region).remote())
    }

    /// The memory as its registration has it: its descriptor, and copies in and out. No operation may be posted on it.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Ends the registrations. From then on no peer reads or changes a byte ([`Region::close`]), so the block is exclusive
    /// again. If the device does not let go of it, it is not, and without its loan it leaks.
    pub(crate) fn end(self) -> Result<Block, (Loan, Error)> {
        let shared = self.shared.as_ref().map_or(Ok(()), Region::close);
        match shared.and_then(|()| self.region.close()) {
            Ok(()) => Ok(std::mem::ManuallyDrop::into_inner(self.block)),
            Err(error) => Err((self, error)),
        }
    }
}
