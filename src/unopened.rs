//! Grants that are not open yet, and how long to wait for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric_core::Result;
use fabric_core::provider::GrantOps;
use fabric_util::{callback, log_line};

use crate::process::ForkChecked;

/// How long a grant may wait until it is open.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two looks whether it is: at first, and at most.
const FIRST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(1);

/// What the provider keeps of a grant.
pub(crate) type ProviderGrant = ForkChecked<Box<dyn GrantOps>>;

/// What a grant holds as long as it may be there.
pub(crate) trait Held: Send + Sync {
    /// It stays for ever.
    fn count_leaked(&self);
}

/// A grant that may not be open yet. Its region goes only when it has been revoked; where that fails, the region leaks.
pub(crate) struct Unopened(Option<(Arc<dyn Held>, ProviderGrant)>);

impl Unopened {
    pub(crate) fn new(held: Arc<dyn Held>, grant: ProviderGrant) -> Self {
        Unopened(Some((held, grant)))
    }

    /// Once it is open.
    pub(crate) fn take(mut self) -> Option<ProviderGrant> {
        self.0.take().map(|(_, grant)| grant)
    }

    pub(crate) fn is_open(&self) -> Result<bool> {
        self.0.as_ref().map_or(Ok(true), |(_, grant)| grant.is_open())
    }

    /// Whether it is gone.
    pub(crate) fn is_revoked(&mut self) -> bool {
        self.0.as_mut().is_none_or(|(_, grant)| grant.revoke().is_ok())
    }
}

impl Drop for Unopened {
    fn drop(&mut self) {
        let Some((held, mut grant)) = self.0.take() else { return };
        if !grant.is_current_process()
            || matches!(callback::caught(|| grant.revoke()), Some(Ok(())))
        {
            return;
        }
        held.count_leaked();
        log_line!(Error, "a grant could not be ended; its region stays until the process ends");
        std::mem::forget((held, grant));
    }
}

/// The pauses between looks at something that takes its time, until patience is over.
pub(crate) struct Pauses {
    until: Instant,
    next: Duration,
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Pauses { until: Instant::now() + PATIENCE, next: FIRST }
    }

    /// Sleeps; false if it is time to give up.
    pub(crate) fn pause(&mut self) -> bool {
        let goes_on = Instant::now() < self.until;
        if goes_on {
            std::thread::sleep(self.next);
            self.next = (self.next * 2).min(LONGEST);
        }
        goes_on
    }
}
