//! Completion queues: a ring that the engine fills, and what sleepers wait on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use fabric_core::{Armed, CqOps, Error, RawCompletion, Result};
use rustix::event::epoll;

use super::engine::Engine;
use super::family::SocketFamily;
use crate::completion_ring::{CompletionRing, Outbox};

/// Queues of one domain whose sleepers drive. The kernel lets 500 of its wait sets watch one set that watches sockets, 100 where one
/// more set is between, and 50 where two are: that of a queue which is made of two, and the application's (eventpoll.c, path_limits).
const MAX_DRIVEN: usize = 48;
/// Polls in a row that find something and make no step of progress.
const MAX_FOUND: u8 = 32;

/// How the sleeper on a queue wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum SleepMode {
    /// No sleeper has driven yet: the sockets are not watched.
    New,
    /// One that waits for the ring.
    Waits,
    /// One that drives: the sockets, which are watched, make the descriptor readable.
    Drives,
    /// As `Waits`, and never drives: too many others do.
    OnlyWaits,
}

/// What sleepers watch: readable while the ring's is, and while sockets have changed if a sleeper drives.
struct Sleepers {
    both: OwnedFd,
    sleep: AtomicU8,
}

impl Sleepers {
    fn new(ring: &CompletionRing) -> std::io::Result<Self> {
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&both, ring.as_fd(), data, epoll::EventFlags::IN)?;
        Ok(Sleepers { both, sleep: AtomicU8::new(SleepMode::New as u8) })
    }

    /// Calls are serialized by the queue's lock, as polls and arms are.
    #[inline]
    fn wait<F: SocketFamily>(&self, engine: &Engine<F>) {
        if self.is(SleepMode::Drives) {
            self.set(SleepMode::Waits);
            self.watch(engine, epoll::EventFlags::empty());
        }
    }

    /// As [`wait`](Sleepers::wait), for one that drives from now on; false: it cannot.
    #[inline]
    fn drive<F: SocketFamily>(&self, engine: &Engine<F>) -> bool {
        if self.is(SleepMode::Waits) {
            self.set(SleepMode::Drives);
            self.watch(engine, epoll::EventFlags::IN);
        } else if self.is(SleepMode::New) {
            self.begin_to_drive(engine);
        }
        self.is(SleepMode::Drives)
    }

    #[cold]
    fn begin_to_drive<F: SocketFamily>(&self, engine: &Engine<F>) {
        let more = |count| (count < MAX_DRIVEN).then_some(count + 1);
        let place = engine.driven.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let data = epoll::EventData::new_u64(0);
        let added = place.is_ok()
            && epoll::add(&self.both, &engine.sockets, data, epoll::EventFlags::IN).is_ok();
        if place.is_ok() && !added {
            engine.driven.fetch_sub(1, Ordering::Relaxed);
        }
        self.set(if added { SleepMode::Drives } else { SleepMode::OnlyWaits });
    }

    fn watch<F: SocketFamily>(&self, engine: &Engine<F>, flags: epoll::EventFlags) {
        // It fails only for descriptors that are not there.
        let _ = epoll::modify(&self.both, &engine.sockets, epoll::EventData::new_u64(0), flags);
    }

    #[inline]
    fn is(&self, sleep: SleepMode) -> bool {
        self.sleep.load(Ordering::Relaxed) == sleep as u8
    }

    fn set(&self, sleep: SleepMode) {
        self.sleep.store(sleep as u8, Ordering::Relaxed);
    }
}

/// A completion queue.
pub struct SocketCq<F: SocketFamily> {
    pub(super) ring: Arc<CompletionRing>,
    sleepers: Sleepers,
    /// Polls that found something, since the last step.
    found: AtomicU8,
    engine: Arc<Engine<F>>,
}

impl<F: SocketFamily> SocketCq<F> {
    pub(super) fn new(engine: &Arc<Engine<F>>) -> Result<Self> {
        let fail = |cause| Error::system("make completion queue", F::NAME, cause);
        let ring = CompletionRing::new(engine.stats()).map_err(fail)?;
        let sleepers = Sleepers::new(&ring).map_err(fail)?;
        Ok(SocketCq { ring, sleepers, found: AtomicU8::new(0), engine: engine.clone() })
    }
}

impl<F: SocketFamily> Drop for SocketCq<F> {
    fn drop(&mut self) {
        if self.sleepers.is(SleepMode::Waits) || self.sleepers.is(SleepMode::Drives) {
            self.engine.driven.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

// SAFETY: the ring holds what endpoints pushed, each once, and the descriptor lives in the ring.
unsafe impl<F: SocketFamily> CqOps for SocketCq<F> {
    #[inline]
    fn poll(&self, out: &mut [RawCompletion]) -> usize {
        self.sleepers.wait(&self.engine);
        let taken = self.ring.take(out);
        // Where each poll finds something that needed no step, the others still need one now and then.
        let found = if taken > 0 { self.found.load(Ordering::Relaxed) + 1 } else { 0 };
        self.found.store(found % MAX_FOUND, Ordering::Relaxed);
        if taken == 0 {
            let mut outbox = Outbox::of(&self.ring, out);
            self.engine.progress.poll(&self.engine, &mut outbox);
            let taken = outbox.taken();
            return taken + self.ring.take(&mut out[taken..]);
        }
        // What is held waits for a poll, and this is one.
        if self.engine.progress.has_deferred_posts() || found == MAX_FOUND {
            self.engine.progress.poll(&self.engine, &mut Outbox::none());
        } else {
            self.engine.progress.note_poll();
        }
        taken
    }

    fn collect(&self, out: &mut [RawCompletion]) -> usize {
        // With a poll the thread would leave progress to an application that need not come, for a tick.
        self.ring.take(out)
    }

    fn arm(&self) -> Result<Armed, Error> {
        self.sleepers.wait(&self.engine);
        let armed = self.ring.arm();
        if armed == Armed::Waiting {
            self.engine.progress.stop_polling();
        }
        Ok(armed)
    }

    fn arm_manual(&self) -> Result<Armed, Error> {
        if !self.engine.progress.arm_manual(&self.engine) || !self.sleepers.drive(&self.engine) {
            return self.arm();
        }
        Ok(self.ring.arm())
    }

    fn wake(&self) {
        self.ring.wake();
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.sleepers.both.as_fd()
    }
}
