//! Buffers of the application as operations of ours take them: parts of regions, or memory that is registered for one operation.

use fabric::{Access, Region, Slice};

use super::copies::{Copied, Place};
use super::enabled::RdmEnabled;
use crate::errno::Errno;
use crate::objects::completions::Feed;
use crate::objects::region::MemoryRegion;
use crate::objects::transfer::Buffer;

/// The memory of one operation.
pub(super) enum Memory<'a> {
    Part(&'a MemoryRegion, Buffer<'a>),
    /// The operation holds it beyond this handle, until it has ended.
    Own(Region),
    /// The message is copied.
    Copied(Copied, Place),
    /// No bytes, which are in some region all the same.
    Nothing(&'a Region),
}

impl<'a> Memory<'a> {
    /// That of a buffer. One without a region gets these rights.
    pub(super) fn of(
        enabled: &'a RdmEnabled,
        buffers: &'a [Buffer<'a>],
        access: Access,
    ) -> Result<Self, Errno> {
        let buffer = match buffers {
            [] => Buffer { address: 0, len: 0, region: None },
            [one] => *one,
            // The info's `iov_limit`.
            _ => return Err(Errno::INVALID),
        };
        match buffer.region {
            _ if buffer.len == 0 => Ok(Memory::Nothing(&enabled.nothing)),
            Some(region) if region.contains(buffer.address, buffer.len) => {
                Ok(Memory::Part(region, buffer))
            }
            // Programs name a region that is near: others than this library do not look at it.
            _ => {
                let place = (buffer.address as *mut u8, buffer.len);
                // SAFETY: `fi_msg(3)` and its kin: the application keeps the buffer as it is until the operation's completion, and
                // the operation alone holds the registration when this handle is gone. What is outstanding when an endpoint is
                // closed is given up before that returns. A buffer of an operation is the application's memory, and writable where
                // it receives.
                let region = unsafe {
                    enabled.domain.device.domain.register_raw_unchecked(place.0, place.1, access)?
                };
                Ok(Memory::Own(region))
            }
        }
    }

    /// As [`of`](Self::of), of a message: a short one of a buffer without a region is copied.
    pub(super) fn of_message(
        enabled: &'a RdmEnabled,
        buffers: &'a [Buffer<'a>],
        access: Access,
    ) -> Result<Self, Errno> {
        if let [Buffer { address, len: len @ 1.., region: None }] = *buffers
            && let Some((copied, place)) = enabled.copies.take_for(address, len)
        {
            return Ok(Memory::Copied(copied, place));
        }
        Self::of(enabled, buffers, access)
    }

    /// That of a copy of bytes that are the caller's again after the post.
    pub(super) fn of_bytes(enabled: &RdmEnabled, bytes: &[u8]) -> Result<Self, Errno> {
        let mut taken = enabled.copies.take_to_inject(bytes);
        if taken.is_none() {
            // The places of what has ended are free once that is known.
            enabled.feed(None)?;
            taken = enabled.copies.take_to_inject(bytes);
        }
        let (copied, place) = taken.ok_or(Errno::AGAIN)?;
        Ok(Memory::Copied(copied, place))
    }

    /// Copies its bytes, if it is a copy.
    ///
    /// # Safety
    /// The buffer must be the operation's own, and is not written to meanwhile.
    pub(super) unsafe fn load(&self) -> Result<(), Errno> {
        match self {
            // SAFETY: the caller's promise.
            Memory::Copied(copied, place) => unsafe { place.load(*copied) },
            _ => Ok(()),
        }
    }

    /// Where its message is copied to or from.
    pub(super) fn copied(&self) -> Option<Copied> {
        if let Memory::Copied(copied, _) = self { Some(*copied) } else { None }
    }

    /// The region of the application's, by its number; 0 for none.
    pub(super) fn region(&self) -> u64 {
        if let Memory::Part(region, _) = self { region.number } else { 0 }
    }

    pub(super) fn slice(&self) -> Result<Slice<'_>, Errno> {
        match self {
            Memory::Part(region, buffer) => region.slice(buffer.address, buffer.len),
            Memory::Own(region) => Ok(region.into()),
            Memory::Copied(_, place) => Ok(place.slice()),
            Memory::Nothing(region) => Ok(region.slice(..0)),
        }
    }
}
