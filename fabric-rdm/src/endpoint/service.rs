//! The thread that makes progress for endpoints whose application does not: one for all endpoints of the process.
//!
//! It looks now and then whether an endpoint is still polled, sleeps on the descriptors of those that it drives, and on the
//! descriptors by which event loops watch the others: see [`driver`](super::driver). So endpoints without polls cost no
//! wake-up, and a thousand that are polled cost one thread a short look every few milliseconds.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use fabric_core::{Error, Result};
use fabric_util::callback;
use fabric_util::fork::ForkEpoch;
use fabric_util::service_thread::ServiceThread;
use fabric_util::wakeup::poll_until;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};

use super::calls::{Call, Caller, Calls};
use super::driver::Driver;
use super::lock::lock;
use super::seat::Seat;
use super::shortage;

const OP: &str = "make rdm endpoint";
/// The thread's own descriptor among those of endpoints.
const OWN: u64 = u64::MAX;
/// Descriptors that one look finds.
const EVENTS: usize = 64;

/// What the thread and the endpoints share.
struct Service {
    epoll: OwnedFd,
    calls: Arc<Calls>,
    /// Endpoints that the thread has not seen.
    added: Mutex<Vec<Seat>>,
    next: AtomicU64,
}

/// The thread, as long as there is an endpoint.
struct Running {
    service: Arc<Service>,
    thread: Option<ServiceThread>,
    epoch: ForkEpoch,
}

/// The one of this process.
static RUNNING: Mutex<Weak<Running>> = Mutex::new(Weak::new());

impl Running {
    fn start() -> Result<Arc<Self>> {
        let mut running = lock(&RUNNING);
        if let Some(running) = running.upgrade().filter(|running| running.epoch.is_current()) {
            return Ok(running);
        }
        let system = |cause| Error::system(OP, "fabric", cause);
        let service = Arc::new(Service::new().map_err(system)?);
        shortage::call_by(&service.calls);
        let runs = service.clone();
        let thread = ServiceThread::start("fabric-rdm", move || runs.run()).map_err(system)?;
        let (thread, epoch) = (Some(thread), ForkEpoch::current());
        let started = Arc::new(Running { service, thread, epoch });
        *running = Arc::downgrade(&started);
        Ok(started)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if self.epoch.is_current() {
            self.service.calls.call(Call::Stop);
            drop(thread); // joins it
        } else {
            // It is the parent's.
            std::mem::forget(thread);
        }
    }
}

/// An endpoint's place with the thread, until this is dropped.
pub(super) struct Place {
    running: Arc<Running>,
    id: u64,
}

impl Place {
    /// A place for one more endpoint, and what it calls the thread by.
    ///
    /// # Errors
    /// `Internal`: there are no more threads or descriptors.
    pub(super) fn new() -> Result<(Self, Caller)> {
        let running = Running::start()?;
        let id = running.service.next.fetch_add(1, Ordering::Relaxed);
        let caller = Caller::new(&running.service.calls, id);
        Ok((Place { running, id }, caller))
    }

    /// Has the thread look after it.
    pub(super) fn serve(&self, driver: &Arc<Driver>) {
        let service = &self.running.service;
        lock(&service.added).push(Seat::new(driver.clone(), self.id));
        service.calls.call(Call::Look(self.id));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.running.epoch.is_current() {
            return;
        }
        let (said, hear) = sync_channel(1);
        if self.running.service.calls.call(Call::Remove(self.id, said)) {
            // Behind that the endpoint is the caller's alone. An error: the thread is no more.
            let _ = hear.recv();
        }
    }
}

impl Service {
    fn new() -> std::io::Result<Self> {
        let calls = Arc::new(Calls::new()?);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &calls, epoll::EventData::new_u64(OWN), epoll::EventFlags::IN)?;
        Ok(Service { epoll, calls, added: Mutex::default(), next: AtomicU64::new(0) })
    }

    fn run(&self) {
        self.calls.begin();
        let (mut seats, mut due) = (Seats::default(), Vec::new());
        // A panic of the library ends the thread, and keeps none waiting.
        callback::caught(|| while self.round(&mut seats, &mut due) {});
        self.calls.end();
    }

    /// Sleeps until there is something to do, and does it. False: the thread is to end. `due` is memory that it uses.
    fn round(&self, seats: &mut Seats, due: &mut Vec<u64>) -> bool {
        due.clear();
        std::mem::swap(due, &mut seats.again);
        let deadline = match due.is_empty() {
            true => seats.timers.first().map(|(at, _)| *at),
            false => Some(Instant::now()),
        };
        if self.sleep(deadline, due) && !self.hear(seats, due) {
            return false;
        }
        let now = Instant::now();
        due.extend(seats.timers.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id));
        due.sort_unstable();
        due.dedup();
        due.iter().for_each(|id| seats.step(&self.epoll, *id));
        true
    }

    /// Sleeps until a descriptor is readable, or `deadline`. Adds those whose it is; says whether there are calls.
    fn sleep(&self, deadline: Option<Instant>, due: &mut Vec<u64>) -> bool {
        let mut timeout = None;
        if deadline.is_some() {
            // More exact than what follows.
            let mut fds = [PollFd::from_borrowed_fd(self.epoll.as_fd(), PollFlags::IN)];
            let _ = poll_until(&mut fds, deadline);
            timeout = Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let (flags, data) = (epoll::EventFlags::empty(), epoll::EventData::new_u64(0));
        let mut events = [epoll::Event { flags, data }; EVENTS];
        // An error: a signal came.
        let found = epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()).unwrap_or(0);
        let ids = events[..found].iter().map(|event| event.data.u64());
        due.extend(ids.clone().filter(|id| *id != OWN));
        ids.clone().any(|id| id == OWN)
    }

    /// Does what it is asked for, or finds out whom to look at. False: the thread is to end.
    fn hear(&self, seats: &mut Seats, due: &mut Vec<u64>) -> bool {
        let mut calls = std::mem::take(&mut seats.calls);
        self.calls.take(&mut calls);
        for seat in std::mem::take(&mut *lock(&self.added)) {
            seats.add_timer(seat.timer, seat.id);
            seats.all.insert(seat.id, seat);
        }
        for call in calls.drain(..) {
            match call {
                Call::Look(id) => due.push(id),
                Call::LookAtAll => seats.all.values().for_each(Seat::look_at_deadline),
                Call::Remove(id, said) => {
                    seats.remove(&self.epoll, id);
                    // The thread itself does not wait for that.
                    let _ = said.try_send(());
                }
                Call::Stop => return false,
            }
        }
        seats.calls = calls;
        true
    }
}

/// The endpoints that the thread looks after.
#[derive(Default)]
struct Seats {
    all: HashMap<u64, Seat>,
    /// Sorted. They come and go all the time: in a tree each that is alone takes memory.
    timers: Vec<(Instant, u64)>,
    /// Those that have more to do at once.
    again: Vec<u64>,
    /// Memory for what is heard.
    calls: Vec<Call>,
}

impl Seats {
    /// One look at an endpoint.
    fn step(&mut self, epoll: &OwnedFd, id: u64) {
        let Some(seat) = self.all.get_mut(&id) else { return };
        let before = seat.timer;
        let is_again = seat.step(epoll);
        let after = seat.timer;
        if before != after {
            self.forget_timer(before, id);
            self.add_timer(after, id);
        }
        if is_again {
            self.again.push(id);
        }
    }

    fn remove(&mut self, epoll: &OwnedFd, id: u64) {
        if let Some(seat) = self.all.remove(&id) {
            self.forget_timer(seat.timer, id);
            seat.leave(epoll);
        }
    }

    fn add_timer(&mut self, timer: Option<Instant>, id: u64) {
        if let Some(at) = timer
            && let Err(place) = self.timers.binary_search(&(at, id))
        {
            self.timers.insert(place, (at, id));
        }
    }

    fn forget_timer(&mut self, timer: Option<Instant>, id: u64) {
        if let Some(at) = timer
            && let Ok(place) = self.timers.binary_search(&(at, id))
        {
            self.timers.remove(place);
        }
    }
}
