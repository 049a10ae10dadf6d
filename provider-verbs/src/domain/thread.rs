//! The domain's thread.
//!
//! It blocks on the descriptors of the connection manager and of asynchronous events; it copies an event, acknowledges
//! it, then acts on it. It also keeps the timers, asks for liveness, and takes completions where a soft queue
//! is active and no thread polls, and before it closes a connection: a completion that was not polled may have the cause.
//! Otherwise it never touches a completion queue.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fabric_core::{DisconnectReason, Error, Event, Result};
use fabric_util::service_thread::ServiceThread;
use fabric_util::wakeup::poll_until;
use fabric_util::{callback, log_line};
use rustix::event::{PollFd, PollFlags};

use super::state::{AfterReport, CmIdOwner, DomainState};
use super::timers::{DOMAIN, Timer, early};
use crate::error::NAME;
use crate::ffi::rdma_cm_event_type as cm;
use crate::handle::{AsyncEvent, CmEvent};
use crate::listener;

/// How often queues with active soft queues are polled.
const TICK: Duration = Duration::from_millis(1);

/// Starts the thread, which ends by [`DomainState::stop`].
pub(super) fn start(domain: &Arc<DomainState>) -> Result<ServiceThread> {
    let this = domain.clone();
    // Dropping the domain's parts may end up in user code: the event sink is.
    ServiceThread::start("fabric-verbs", move || this.run())
        .map_err(|cause| Error::system("open domain", NAME, cause))
}

impl DomainState {
    /// Runs until the domain stops it. A panic ends the domain's endpoints, not the process: it is a fault of this
    /// provider, as user code has its panics caught where it is called.
    fn run(self: Arc<Self>) {
        if callback::caught(|| self.serve()).is_none() {
            // Without the thread nothing new could be served.
            self.device.set_unserved();
            log_line!(Error, "{}: the domain's thread panicked", self.device.info.device);
            self.end_all(DisconnectReason::Internal);
            self.flush_reports();
            self.prove_all();
        }
    }

    fn serve(self: &Arc<Self>) {
        self.arm_probes();
        while !self.has_stopped() {
            self.sleep();
            self.wakeup.clear();
            while let Some(event) = self.channel.next(self.next_number()) {
                self.cm_event(event);
            }
            self.take_async_events();
            while let Some(event) = self.next_async_event() {
                self.async_event(event);
            }
            self.take_probes();
            let now = Instant::now();
            while let Some((number, timer)) = self.due(now) {
                self.expired(number, timer);
            }
            self.tick();
            self.flush_reports();
        }
    }

    fn due(&self, now: Instant) -> Option<(u64, Timer)> {
        self.timers.lock().pop_due(now, early)
    }

    fn sleep(&self) {
        let mut until = self.timers.lock().next();
        if !self.watched.lock().is_empty() {
            let tick = Instant::now() + TICK;
            until = Some(until.map_or(tick, |until| until.min(tick)));
        }
        let wait = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = vec![wait(self.channel.as_fd()), wait(self.wakeup.as_fd())];
        // The descriptors of a device that is gone may be readable for ever.
        if !self.device.is_lost() {
            fds.push(wait(self.device.pd.context.events()));
            fds.extend(self.probes.fd().map(wait));
        }
        // Interrupted or out of memory: the caller checks every source anyway.
        let _ = poll_until(&mut fds, until);
    }

    fn cm_event(self: &Arc<Self>, event: CmEvent) {
        if event.kind == cm::RDMA_CM_EVENT_DEVICE_REMOVAL {
            return self.lose(true);
        }
        match self.owner(event.context) {
            Some(CmIdOwner::Conn(conn)) => {
                assert!(!self.device.test_limits.thread_panics, "a test asked for it");
                conn.cm_event(event);
            }
            Some(CmIdOwner::Acceptor(acceptor)) => listener::on_event(self, &acceptor, event),
            Some(CmIdOwner::Pending(pending)) => {
                // The peer gave up before it was answered.
                log_line!(Debug, "request from {}: event {}", pending.requester.peer, event.kind);
                drop(pending.take());
                self.forget_pending(event.context);
            }
            Some(CmIdOwner::RemovalWatch { .. } | CmIdOwner::Disconnecting { .. }) | None => {
                self.on_late_event(&event);
            }
        }
    }

    /// Unless an endpoint has taken the request in between.
    fn forget_pending(&self, context: u64) {
        let mut ids = self.ids.lock();
        if matches!(ids.get(&context), Some(CmIdOwner::Pending(_))) {
            ids.remove(&context);
        }
    }

    fn owner(&self, context: u64) -> Option<CmIdOwner> {
        match self.ids.lock().get(&context)? {
            CmIdOwner::Conn(conn) => Some(CmIdOwner::Conn(conn.clone())),
            CmIdOwner::Acceptor(acceptor) => Some(CmIdOwner::Acceptor(acceptor.clone())),
            CmIdOwner::Pending(pending) => Some(CmIdOwner::Pending(pending.clone())),
            CmIdOwner::RemovalWatch { .. } | CmIdOwner::Disconnecting { .. } => None,
        }
    }

    fn async_event(&self, event: AsyncEvent) {
        let device = &self.device.info.device;
        match event {
            AsyncEvent::Fatal => self.lose(true),
            AsyncEvent::QueueError => self.lose(false),
            AsyncEvent::QpError(qpn) => self.with_qp(qpn, |conn| conn.check_queue_pair()),
            AsyncEvent::Established(qpn) => self.with_qp(qpn, |conn| conn.established_early()),
            AsyncEvent::PortActive(port) if port == self.device.port => {
                log_line!(Info, "{device}: port {port} is active");
                self.report(Event::PortActive, AfterReport::Nothing);
            }
            AsyncEvent::PortDown(port) if port == self.device.port => {
                log_line!(Warn, "{device}: port {port} is down");
                self.report(Event::PortDown, AfterReport::Nothing);
            }
            AsyncEvent::PortActive(_) | AsyncEvent::PortDown(_) => {}
            // It is acted on where it is taken.
            AsyncEvent::LastReceive(_) => {}
            AsyncEvent::Other(number) => log_line!(Debug, "{device}: asynchronous event {number}"),
        }
    }

    fn expired(&self, number: u64, timer: Timer) {
        match timer {
            Timer::Disconnect => self.disconnect_late(number),
            Timer::Disconnecting => self.forget_id(number),
            Timer::Proof { round } => self.proof_is_due(round),
            Timer::RefusalScan { round } => self.scan_for_refusals(round),
            Timer::Connect | Timer::Retry | Timer::Liveness | Timer::Stall | Timer::EndMarker => {
                if let Some(conn) = self.conn(number) {
                    conn.expired(timer);
                }
            }
        }
    }

    fn scan_for_refusals(&self, round: u64) {
        if !self.scan.lock().begin(round) {
            return;
        }
        for conn in self.all_conns() {
            conn.check_queue_pair();
        }
        let next = self.scan.lock().next(round);
        if let Some(pause) = next {
            self.deadline(pause, DOMAIN, Timer::RefusalScan { round });
        }
    }

    fn arm_probes(&self) {
        if let Err(error) = self.probes.arm() {
            let device = &self.device.info.device;
            log_line!(Error, "{device}: lost peers are noticed late: {error}");
        }
    }

    fn take_probes(&self) {
        self.probes.take(|number, status| {
            if let Some(conn) = self.conn(number) {
                conn.probe_ended(status);
            }
        });
        self.arm_probes();
    }

    /// Drives soft queues whose completion queues no thread polls.
    fn tick(&self) {
        let queues = self.watched.lock().clone();
        for queue in &queues {
            queue.tick();
        }
        self.watched.lock().retain(|queue| {
            if queue.active_soft_queues.load(Ordering::Acquire) > 0 {
                return true;
            }
            queue.watched.store(false, Ordering::Release);
            // A soft queue that became active in between found the queue watched.
            let stay = queue.active_soft_queues.load(Ordering::Acquire) > 0;
            stay && !queue.watched.swap(true, Ordering::AcqRel)
        });
    }
}
