//! Locks, and what lock-free parts are made of: the standard library's pieces, or loom's, which then tries every
//! interleaving that the memory model allows (`scripts/loom`).
//!
//! In builds with debug assertions a thread knows which of these locks it holds (`held`). Two mistakes end the process
//! there, with a message and a backtrace: user code called while one is held ([`callback`](crate::callback)), and locks
//! taken in an order that another thread may take the other way round. Other builds pay nothing.
//!
//! loom takes sequentially consistent loads and stores for weaker ones than they are. Where one thread's store must
//! not pass its next load, a `fence` stands between the two, which loom knows, and which says so to the reader as well.
//!
//! Locks here are never poisoned: user code does not run under them, and each state is whole between statements.

mod cell;
mod held;
mod lock;
#[cfg(loom)]
mod modelled;
mod padded;

pub(crate) use cell::Cell;
pub use held::assert_none as assert_none_held;
pub use lock::{Condvar, Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard};
pub(crate) use padded::CachePadded;

#[cfg(not(loom))]
pub use crate::wakeup::Wakeup;
#[cfg(loom)]
pub(crate) use loom::sync::Arc;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
#[cfg(loom)]
pub use modelled::Wakeup;
#[cfg(not(loom))]
pub(crate) use std::sync::Arc;
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
