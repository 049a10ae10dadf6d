//! One element of a region, for this CPU.

use std::marker::PhantomData;

use fabric_core::{AtomicCall, AtomicOp, AtomicScalar, Error, Result, memory};

use crate::region::Region;

impl Region {
    /// One naturally aligned element, for atomic access by this CPU.
    ///
    /// With the atomics of peers it is atomic only where
    /// [`Info::atomic_scope`](fabric_core::Info::atomic_scope) says `Cpu`.
    ///
    /// # Errors
    /// As [`write_at`](Region::write_at), and `InvalidArgument` if it is not naturally aligned.
    pub fn atomic<T: AtomicScalar>(&self, offset: usize) -> Result<AtomicElement<'_, T>> {
        let at = self.core.writable("atomic", offset, size_of::<T>())?;
        if !(at as usize).is_multiple_of(size_of::<T>()) {
            return Err(Error::invalid(
                "atomic",
                format!("offset {offset} is not aligned to {} bytes", size_of::<T>()),
            ));
        }
        Ok(AtomicElement { region: self, at, element: PhantomData })
    }
}

/// One element of a region, accessed atomically by this CPU. In a child made by `fork` it may be the parent's, too.
///
/// It borrows the region's handle:
///
/// ```compile_fail,E0505
/// # fn f(domain: &fabric::Domain) -> fabric::Result<()> {
/// let region = domain.alloc(64, fabric::Access::ALL)?;
/// let counter = region.atomic::<u64>(0)?;
/// drop(region);
/// counter.fetch_add(1);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AtomicElement<'a, T> {
    region: &'a Region,
    at: *mut u8,
    element: PhantomData<T>,
}

// SAFETY: `at` lies in the region, which is `Sync`, and is only reached by atomic accesses.
unsafe impl<T: AtomicScalar> Send for AtomicElement<'_, T> {}
// SAFETY: as above.
unsafe impl<T: AtomicScalar> Sync for AtomicElement<'_, T> {}

impl<T: AtomicScalar> AtomicElement<'_, T> {
    fn call(&self, op: AtomicOp, operand: u64, compare: u64) -> T {
        debug_assert!(self.region.addr() != 0);
        let call = AtomicCall { op, ty: T::TYPE, operand, compare };
        // SAFETY: `Region::atomic` checked range and alignment; the region's core keeps it allocated.
        T::from_bits64(unsafe { memory::atomic(self.at, &call) })
    }

    /// The present value.
    pub fn load(&self) -> T {
        self.call(AtomicOp::CompareSwap, 0, 0)
    }

    /// Replaces the value, returning the old one.
    pub fn swap(&self, value: T) -> T {
        self.call(AtomicOp::Swap, value.to_bits64(), 0)
    }

    /// Adds, wrapping, returning the old value.
    pub fn fetch_add(&self, value: T) -> T {
        self.call(AtomicOp::Add, value.to_bits64(), 0)
    }

    /// Puts `new` there if the bits are those of `expected`; returns the old value.
    pub fn compare_swap(&self, expected: T, new: T) -> T {
        self.call(AtomicOp::CompareSwap, new.to_bits64(), expected.to_bits64())
    }
}
