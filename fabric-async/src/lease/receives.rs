//! The receives of a connection for leases, which own their buffers until each has ended.
//!
//! The node keeps them beside the connection, and longer: a receive's buffer goes back to the pool when its completion
//! was taken, which may be after the connection is gone. One that has no completion, since its endpoint could not be brought
//! to rest, keeps its buffer for ever.

use fabric::Endpoint;
use fabric_util::sync::Mutex;

use crate::buffer::Buffer;
use crate::error::Result;
use crate::op_buffers::BufferRange;

/// The buffers of the receives that are posted, by context.
#[derive(Default)]
pub(crate) struct Receives(Mutex<Vec<Option<BufferRange>>>);

impl Receives {
    /// Posts a receive into all of a buffer.
    pub(super) fn post(&self, endpoint: &Endpoint, context: usize, buffer: Buffer) -> Result<()> {
        let len = buffer.len();
        let range = BufferRange::new(buffer, 0, len);
        let mut receives = self.0.lock();
        if receives.len() <= context {
            receives.resize_with(context + 1, || None);
        }
        // Held over the post, so that the buffer is there when the completion is taken.
        let posted = match range.slice() {
            Some(slice) => endpoint.recv(slice, context as u64),
            None => Ok(()),
        };
        let refused = match &posted {
            Ok(()) => {
                receives[context] = Some(range);
                None
            }
            Err(_) => Some(range),
        };
        drop(receives);
        refused.into_iter().for_each(|range| drop(range.reclaim()));
        Ok(posted?)
    }

    /// A receive has ended.
    pub(super) fn ended(&self, context: usize) -> Option<Buffer> {
        let range = self.0.lock().get_mut(context)?.take()?;
        Some(range.reclaim())
    }

    pub(super) fn are_over(&self) -> bool {
        self.0.lock().iter().all(Option::is_none)
    }

    /// Gives up those that have not ended, with their buffers; returns how many.
    pub(super) fn leak(&self) -> usize {
        let left = std::mem::take(&mut *self.0.lock());
        left.into_iter().flatten().map(BufferRange::leak).count()
    }
}
