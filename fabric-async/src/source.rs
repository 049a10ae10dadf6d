//! What a driver takes completions from, and what these mean: a completion queue, for connections, or an endpoint that has one of
//! its own.

use std::os::fd::BorrowedFd;

use fabric::Armed;
use fabric_util::sync::MutexGuard;

use crate::deferred::Deferred;
use crate::op_slab::OpSlot;
use crate::wakers::Wakers;

/// The slot of an operation on a source, locked.
pub(crate) type SlotGuard<'a, S> =
    MutexGuard<'a, OpSlot<<S as Source>::Completion, <S as Source>::Keeps>>;

/// See the module.
#[cfg_attr(not(feature = "tokio"), allow(dead_code))] // who watches otherwise needs less
pub(crate) trait Source: Send + Sync + Sized + 'static {
    /// The end of an operation, or of a part of it.
    type Completion: Copy + Default + Send;
    /// What an operation has in its slot beside its buffers.
    type Keeps: Default + Send;

    /// Makes the progress that [`poll`](Source::poll) does not. The caller holds no lock.
    #[inline]
    fn progress(&self) {}

    /// Takes as many completions as `out` holds.
    ///
    /// # Errors
    /// `InvalidState` in a forked child.
    fn poll(&self, out: &mut [Self::Completion]) -> fabric::Result<usize>;

    /// After each poll, without a lock but the poller's: adds the wakers of futures that wait for something else than a
    /// completion, and have it now.
    #[inline]
    fn polled(&self, _wakers: &mut Wakers) {}

    /// Makes the descriptor readable at the next completion; another thread makes progress.
    ///
    /// # Errors
    /// `InvalidState` in a forked child; `Internal`.
    fn arm(&self) -> fabric::Result<Armed>;

    /// The same for one that polls as soon as the descriptor is readable.
    ///
    /// # Errors
    /// As [`arm`](Source::arm).
    fn arm_manual(&self) -> fabric::Result<Armed>;

    /// The descriptor.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// The slot of the operation.
    fn slot_of(completion: &Self::Completion) -> u32;

    /// Deals with a completion that does not end its operation, or none of a future; else gives the slot back.
    fn absorb<'a>(
        slot: SlotGuard<'a, Self>,
        number: u32,
        completion: &Self::Completion,
        deferred: &mut Deferred,
    ) -> Option<SlotGuard<'a, Self>>;

    /// Takes what an operation that ends needs no more out of its slot.
    fn part_with(keeps: &mut Self::Keeps) -> Self::Keeps;

    /// An operation has ended: lets go of what it kept. The slot is not locked.
    fn ended(keeps: Self::Keeps, deferred: &mut Deferred);

    /// Whether a completion proves that the operation's memory is not touched any more.
    #[inline]
    fn is_proof(&self, _completion: &Self::Completion) -> bool {
        true
    }

    /// The end of the driver, after the last poll. Whether that proves it for all operations without a completion.
    fn close(&mut self) -> bool {
        false
    }
}
