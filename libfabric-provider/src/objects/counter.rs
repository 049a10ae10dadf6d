//! Counters: completions, counted when they are taken from the queues of ours. A read takes them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

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
    sources: Mutex<Vec<Arc<Completions>>>,
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
        if !sources.iter().any(|known| Arc::ptr_eq(known, queue)) {
            sources.push(queue.clone());
        }
    }

    /// Its two numbers: of operations that ended well, and of others.
    pub(crate) fn read(&self) -> Result<(u64, u64), Errno> {
        for source in lock(&self.sources).iter() {
            source.drain()?;
        }
        let Count { value, errors } = &*self.count;
        Ok((value.load(Ordering::Acquire), errors.load(Ordering::Acquire)))
    }

    /// Waits until it is at `threshold`, until the time has come, or for ever; `FI_EAVAIL` if an operation fails meanwhile.
    pub(crate) fn wait(&self, threshold: u64, until: Option<Instant>) -> Result<(), Errno> {
        let (_, failed) = self.read()?;
        loop {
            let (value, errors) = self.read()?;
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
            let until = until.map_or(tick, |until| until.min(tick));
            let sources = lock(&self.sources).clone();
            match &sources[..] {
                [one] if one.arm(true)? => drop(one.sleep(Some(until))?),
                [_] | [] => std::thread::sleep(TICK),
                _ => std::thread::yield_now(),
            }
        }
    }
}
