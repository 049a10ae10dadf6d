//! Completion queues: one of each of the two, and what sleeps on both.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use fabric_core::{Armed, CqAttr, CqOps, DomainOps, Error, RawCompletion, Result};
use provider_shm::ShmCq;
use rustix::event::epoll;

use crate::name::NAME;
use crate::ways::Ways;

/// Looks at the far queue that find nothing, after which it is looked at only now and then: such a look costs a system call, and
/// one at the near queue does not.
const PATIENCE: u8 = 16;
/// One in so many polls is a look then.
const RARELY: u8 = 8;

/// The two queues, whose polls and arms the caller serializes.
pub(crate) struct Queues {
    pub(crate) near: ShmCq,
    pub(crate) far: Box<dyn CqOps>,
    /// Readable while one of the two is.
    both: OwnedFd,
    /// A connection has gone the far way.
    far_used: AtomicBool,
    /// The far queue was armed, and has not been looked at since.
    far_armed: AtomicBool,
    /// Looks at the far queue in a row that found nothing; beyond [`PATIENCE`], polls since the last look.
    idle: AtomicU8,
    /// The next look at the far queue comes before that at the near one, which may always have enough.
    far_first: AtomicBool,
}

/// A completion queue.
pub struct AutoCq {
    pub(crate) queues: Arc<Queues>,
}

impl AutoCq {
    pub(crate) fn new(ways: &Ways, attr: &CqAttr) -> Result<Self> {
        let near = ways.near.completion_queue(attr)?;
        let far = ways.far.completion_queue(attr)?;
        let both = watch([near.fd(), far.fd()])
            .map_err(|cause| Error::system("make completion queue", NAME, cause))?;
        let queues = Queues {
            near,
            far,
            both,
            far_used: AtomicBool::new(false),
            far_armed: AtomicBool::new(false),
            idle: AtomicU8::new(0),
            far_first: AtomicBool::new(false),
        };
        Ok(AutoCq { queues: Arc::new(queues) })
    }
}

fn watch(queues: [BorrowedFd<'_>; 2]) -> std::io::Result<OwnedFd> {
    let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for queue in queues {
        epoll::add(&both, queue, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(both)
}

impl Queues {
    /// A connection goes the far way, from now on.
    pub(crate) fn use_far(&self) {
        self.far_used.store(true, Ordering::Release);
    }

    /// Whether this poll looks at the far queue.
    #[inline]
    fn is_time_for_far(&self) -> bool {
        if !self.far_used.load(Ordering::Acquire) {
            return false;
        }
        let idle = self.idle.load(Ordering::Relaxed);
        if (PATIENCE..PATIENCE + RARELY - 1).contains(&idle) {
            self.idle.store(idle + 1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Polls both, in turns the one first and the other.
    fn poll_both(&self, out: &mut [RawCompletion]) -> usize {
        let far_first = self.far_first.load(Ordering::Relaxed);
        self.far_first.store(!far_first, Ordering::Relaxed);
        let taken = if far_first { self.poll_far(out) } else { self.near.poll(out) };
        let rest = out.get_mut(taken..).unwrap_or_default();
        match (rest.is_empty(), far_first) {
            (true, _) => taken,
            (_, true) => taken + self.near.poll(rest),
            (_, false) => taken + self.poll_far(rest),
        }
    }

    fn poll_far(&self, out: &mut [RawCompletion]) -> usize {
        self.far_armed.store(false, Ordering::Relaxed);
        let taken = self.far.poll(out);
        let idle = self.idle.load(Ordering::Relaxed);
        let idle = if taken > 0 { 0 } else { (idle + 1).min(PATIENCE) };
        self.idle.store(idle, Ordering::Relaxed);
        taken
    }

    /// Both queues; the far one not if it is armed and nothing can have come, nor for one that serves it before it is polled.
    fn arm(&self, manual: bool) -> Result<Armed> {
        let near = if manual { self.near.arm_manual()? } else { self.near.arm()? };
        if near == Armed::Ready {
            return Ok(Armed::Ready);
        }
        let used = self.far_used.load(Ordering::Acquire);
        if !used && self.far_armed.load(Ordering::Relaxed) {
            return Ok(Armed::Waiting);
        }
        let armed = if manual && used { self.far.arm_manual()? } else { self.far.arm()? };
        self.far_armed.store(armed == Armed::Waiting, Ordering::Relaxed);
        // The next poll finds what is there.
        self.idle.store(0, Ordering::Relaxed);
        Ok(armed)
    }
}

// SAFETY: what each of the two promises for its own endpoints holds for all; the descriptor is closed with the queue.
unsafe impl CqOps for AutoCq {
    #[inline]
    fn poll(&self, out: &mut [RawCompletion]) -> usize {
        let queues = &*self.queues;
        if queues.is_time_for_far() {
            return queues.poll_both(out);
        }
        queues.near.poll(out)
    }

    fn collect(&self, out: &mut [RawCompletion]) -> usize {
        let queues = &*self.queues;
        let taken = queues.near.collect(out);
        queues.far_armed.store(false, Ordering::Relaxed);
        taken + queues.far.collect(out.get_mut(taken..).unwrap_or_default())
    }

    fn arm(&self) -> Result<Armed> {
        self.queues.arm(false)
    }

    fn arm_manual(&self) -> Result<Armed> {
        self.queues.arm(true)
    }

    fn wake(&self) {
        self.queues.near.wake();
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.queues.both.as_fd()
    }
}
