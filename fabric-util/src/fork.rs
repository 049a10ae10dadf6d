//! A child made by `fork` owns none of its parent's connections.
//!
//! Threads do not survive a fork and locks may be held for ever, so handles that a child inherits
//! refuse every call instead. Children that call `exec` never notice.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// How often the process has been forked: an object that remembers it notices that a child inherited it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkEpoch(u32);

impl ForkEpoch {
    /// That of this process.
    pub fn current() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            if !cfg!(miri) {
                // SAFETY: pthread_atfork(3) takes three optional handlers; ours only adds to an atomic,
                // which is async-signal-safe, and lives as long as the program. It fails only for lack
                // of memory, and then forks go unnoticed as they would without this module.
                let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            }
        });
        ForkEpoch(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is still the process that made the object. A load and a compare.
    #[inline]
    pub fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}
