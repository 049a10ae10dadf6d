//! Atomic operations as values: what is posted, wherever that is.

use fabric::{AtomicOp, AtomicScalar, Op, RemoteSlice};

use crate::buffer::Buffer;
use crate::error::Result;
use crate::lease::RemoteTarget;
use crate::op_buffers::{BufferRange, OpBuffers, Payload};
use crate::pool::Pool;

#[derive(Clone, Copy)]
pub(crate) enum Change<T> {
    Apply(AtomicOp, T),
    CompareSwap { expected: T, new: T },
}

/// An atomic operation that fetches the old value.
pub(crate) struct Fetch<T> {
    change: Change<T>,
    pub(crate) at: RemoteTarget,
    pub(crate) fence: bool,
}

impl<T: AtomicScalar> Fetch<T> {
    /// With memory of the pool, where the old value arrives.
    ///
    /// # Errors
    /// Those of the pool.
    pub(crate) fn load(
        pool: &Pool,
        change: Change<T>,
        at: RemoteTarget,
    ) -> Result<(Self, OpBuffers)> {
        let range = BufferRange::new(pool.alloc(size_of::<u64>())?, 0, size_of::<T>());
        Ok((Fetch { change, at, fence: false }, OpBuffers::One(range)))
    }

    /// The operation as the fabric's.
    #[inline]
    pub(crate) fn build<'a>(&'a self, buffers: &'a OpBuffers) -> Op<'a> {
        let at: RemoteSlice = self.at.slice();
        let word = match buffers {
            OpBuffers::One(range) => range.slice(),
            _ => None,
        };
        // There always is a word.
        let op = match (self.change, word) {
            (Change::Apply(op, value), Some(old)) => Op::fetch_atomic(op, value, old, at),
            (Change::Apply(op, value), None) => Op::atomic(op, value, at),
            (Change::CompareSwap { expected, new }, Some(old)) => {
                Op::fetch_compare_swap(expected, new, old, at)
            }
            (Change::CompareSwap { expected, new }, None) => Op::compare_swap(expected, new, at),
        };
        if self.fence { op.fence() } else { op }
    }

    /// The old value that has arrived.
    pub(crate) fn value(word: OpBuffers) -> T {
        let word = <Buffer as Payload>::unload(word);
        let mut bits = [0; 8];
        let size = size_of::<T>().min(word.len());
        // The low bytes come first on little-endian processors, last on others.
        if cfg!(target_endian = "little") {
            bits[..size].copy_from_slice(&word[..size]);
        } else {
            bits[8 - size..].copy_from_slice(&word[..size]);
        }
        T::from_bits64(u64::from_ne_bytes(bits))
    }
}
