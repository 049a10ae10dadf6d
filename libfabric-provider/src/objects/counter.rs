//! Counters: completions, counted when they are taken from the queues of ours. A read takes them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::completions::Completions;
use super::domain::Domain;
use super::tally::Count;
use crate::abi::FidCntr;
use crate::abi::flags::{FI_CLASS_CNTR, FI_EAVAIL};
use crate::errno::Errno;
use crate::handle::Object;
use crate::sync::lock;

/// How often a wait looks.
const TICK: Duration = Duration::from_millis(1);

/// A counter.
pub(crate) struct Counter {
    pub(crate) count: Arc<Count>,
    /// Where its completions come from.
    sources: Mutex<Vec<Weak<Completions>>>,
    _domain: Arc<Domain>,
}

// SAFETY: `FidCntr` is repr(C) and begins with a fid; the class is of this alone.
unsafe impl Object for Counter {
    type C = FidCntr;
    const CLASS: usize = FI_CLASS_CNTR;
}

impl Counter {
    pub(crate) fn new(domain: &Arc<Domain>) -> Self {
        Counter { count: Arc::default(), sources: Mutex::default(), _domain: domain.clone() }
    }

    pub(crate) fn add_source(&self, queue: &Arc<Completions>) {
        let mut sources = lock(&self.sources);
        sources.retain(|known| known.strong_count() > 0);
        let queue = Arc::downgrade(queue);
        if !sources.iter().any(|known| known.ptr_eq(&queue)) {
            sources.push(queue);
        }
    }

    fn sources(&self) -> SmallVec<[Arc<Completions>; 2]> {
        lock(&self.sources).iter().filter_map(Weak::upgrade).collect()
    }

    /// Counts what has come, as far as it can be looked for.
    fn look(&self) -> Result<(), Errno> {
        let mut looked = Ok(());
        for source in self.sources() {
            looked = looked.and(source.drain());
        }
        looked
    }

    /// Its two numbers: of operations that ended well, and of others.
    fn values(&self) -> (u64, u64) {
        let Count { value, errors } = &*self.count;
        (value.load(Ordering::Acquire), errors.load(Ordering::Acquire))
    }

    /// The same after a look. One that fails, as in a forked child, changes nothing of what was counted.
    pub(crate) fn read(&self) -> (u64, u64) {
        if let Err(errno) = self.look() {
            log::debug!("a counter does not see all: {errno:?}");
        }
        self.values()
    }

    /// Waits until it is at `threshold`, until the time has come, or for ever; `FI_EAVAIL` if an operation fails meanwhile.
    pub(crate) fn wait(&self, threshold: u64, until: Option<Instant>) -> Result<(), Errno> {
        self.look()?;
        let (_, failed) = self.values();
        loop {
            self.look()?;
            let (value, errors) = self.values();
            if value >= threshold {
                return Ok(());
            }
            if errors != failed {
                return Err(Errno(FI_EAVAIL));
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Err(Errno(libc::ETIMEDOUT));
            }
            // One that an application adds to wakes nothing, and a queue that is full is not drained: it also looks from time to time.
            let tick = Instant::now() + TICK;
            Completions::sleep_for_more(
                &self.sources(),
                until.map_or(tick, |until| until.min(tick)),
            )?;
        }
    }
}
