//! Proof that a device has stopped, where it does not give that at once.
//!
//! A queue pair that was moved to the error state completes what it had in flight, and each completion is proof. A device may
//! refuse that move, for want of memory or while it is busy, and be at work all the same: so it is asked again, and until
//! then nothing is given back. One that is lost may say that it has moved the queue pair, and complete nothing (mlx5 does so while it
//! is in error: `mlx5_internal_err_ret_value` in Linux): so it is asked again too, until the kernel has taken it from the process
//! (`OpenDevice::fail`). What was on it ends then.
//!
//! A receive of a shared queue may be reached by every queue pair of the queue. Where the device is not served any more, each
//! receive ends when each of these has gone, or has stopped: the device has it in error, and has said that it takes no
//! receive any more.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fabric_util::callback;
use fabric_util::wakeup::poll_until;
use rustix::event::{PollFd, PollFlags};

use super::state::{DomainState, Stops};
use super::timers::{DOMAIN, Timer};
use crate::handle::AsyncEvent;
use crate::shared_queue::SharedQueue;

/// The pause before a device is asked again, which doubles as often.
const PAUSE: Duration = Duration::from_millis(100);
const DOUBLINGS: u32 = 4;

fn pause(round: u32) -> Duration {
    PAUSE * (1 << round.min(DOUBLINGS))
}

impl DomainState {
    /// Has the thread ask the device again, a moment later.
    pub(crate) fn seek_proof(&self) {
        self.ask_again(0);
    }

    fn ask_again(&self, round: u32) {
        if !self.seeks_proof.swap(true, Ordering::AcqRel) {
            self.deadline(pause(round), DOMAIN, Timer::Proof { round });
        }
    }

    /// The moment has come.
    pub(super) fn proof_is_due(&self, round: u32) {
        self.seeks_proof.store(false, Ordering::Release);
        if !self.ask() {
            self.ask_again(round.saturating_add(1));
        }
    }

    /// In the end of a thread that has failed: goes on until nothing is left to prove, or the domain is dropped.
    pub(super) fn prove_all(&self) {
        for round in 0.. {
            self.wait_until(Instant::now() + pause(round));
            if self.has_stopped() || self.ask() {
                return;
            }
            while let Some(event) = self.next_async_event() {
                if event == AsyncEvent::Fatal {
                    self.device.set_lost();
                }
            }
        }
    }

    /// Sleeps until then, or until the domain is dropped.
    fn wait_until(&self, then: Instant) {
        loop {
            self.wakeup.clear();
            if self.has_stopped() || Instant::now() >= then {
                return;
            }
            let mut fds = [PollFd::from_borrowed_fd(self.wakeup.as_fd(), PollFlags::IN)];
            let _ = poll_until(&mut fds, Some(then));
        }
    }

    /// Asks the device; whether nothing is left to prove.
    fn ask(&self) -> bool {
        self.take_async_events();
        let conns = self.all_conns();
        let datagrams = self.datagrams.lock().clone();
        let pairs: Vec<&dyn Stops> = (conns.iter().map(|conn| &**conn as &dyn Stops))
            .chain(datagrams.iter().map(|pair| &**pair as &dyn Stops))
            .collect();
        let (lost, mut refused) = (self.device.is_lost(), false);
        for (at, pair) in pairs.iter().enumerate() {
            // On a lost device, one speaks for all that were moved.
            let stop = || !self.device.is_gone() && pair.stop(lost && at == 0);
            refused |= callback::caught(stop).unwrap_or(false);
        }
        if !lost {
            return !refused;
        }
        if self.device.is_gone() {
            drain(&pairs);
            self.cancel_shared_receives(|_| true);
            return true;
        }
        self.cancel_shared_receives(|shared| {
            !shared.stays() && !conns.iter().any(|conn| conn.may_take_from(shared))
        });
        pairs.is_empty()
    }

    /// Cancels what is in flight of shared receive queues that are free of queue pairs.
    fn cancel_shared_receives(&self, is_free: impl Fn(&SharedQueue) -> bool) {
        let all = self.shared.lock().clone();
        for shared in all.iter().filter(|shared| !shared.is_canceled() && is_free(shared)) {
            let listed = self.shared.lock();
            // Under the lock, so that a queue that goes is not canceled afterwards.
            if listed.iter().any(|one| Arc::ptr_eq(one, shared)) {
                shared.cancel();
            }
        }
    }
}

/// Takes all completions, each queue's once.
fn drain(pairs: &[&dyn Stops]) {
    let mut queues: Vec<_> = pairs.iter().flat_map(|pair| pair.queues()).collect();
    queues.sort_by_key(|queue| Arc::as_ptr(queue));
    queues.dedup_by_key(|queue| Arc::as_ptr(queue));
    queues.iter().for_each(|queue| queue.drain());
}
