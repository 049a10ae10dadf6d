//! The domain's thread.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fabric_core::{DisconnectReason, Event};
use fabric_util::wakeup::poll_until;
use fabric_util::{callback, log_line};
use rustix::event::{PollFd, PollFlags};

use super::timers::early;
use super::{After, Member, Shared, Timer};
use crate::conn::Foreign;
use crate::ffi::rdma_cm_event_type as cm;
use crate::handle::{AsyncEvent, CmEvent};

/// How often queues are looked at whose loops wait.
const TICK: Duration = Duration::from_millis(1);

impl Shared {
    /// Runs until the domain stops it. A panic ends the domain's endpoints, not the process: it is a fault of this
    /// provider, as user code has its panics caught where it is called.
    pub(super) fn run(self: Arc<Self>) {
        if callback::caught(|| self.serve()).is_none() {
            // Without the thread nothing new could be served.
            self.lost.store(true, Ordering::Release);
            self.end_all(DisconnectReason::Internal);
            self.flush_reports();
            log_line!(Error, "{}: the domain's thread panicked", self.info.device);
        }
    }

    fn serve(self: &Arc<Self>) {
        self.arm_probes();
        while !self.stop.load(Ordering::Acquire) {
            self.sleep();
            self.wakeup.clear();
            while let Some(event) = self.channel.next(self.fresh_name()) {
                self.cm_event(event);
            }
            while let Some(event) = self.pd.context.next_event() {
                self.async_event(event);
            }
            self.take_probes();
            let now = Instant::now();
            while let Some((name, timer)) = self.due(now) {
                self.expired(name, timer);
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
        if !self.is_lost() {
            fds.push(wait(self.pd.context.events()));
            fds.extend(self.probes.as_ref().map(|probes| wait(probes.channel.as_fd())));
        }
        // Interrupted or out of memory: the loop looks everywhere anyway.
        let _ = poll_until(&mut fds, until);
    }

    fn cm_event(self: &Arc<Self>, event: CmEvent) {
        if event.kind == cm::RDMA_CM_EVENT_DEVICE_REMOVAL {
            return self.lose();
        }
        match self.member(event.name) {
            Some(Member::Conn(conn)) => {
                assert!(!self.poor.faulty, "a test asked for it");
                conn.cm_event(event);
            }
            Some(Member::Door(door)) => door.cm_event(self, event),
            Some(Member::Inbound(inbound)) => {
                inbound.cm_event(&event);
                self.forget_inbound(event.name);
            }
            Some(Member::Guard { .. } | Member::Parting { .. }) | None => {
                let last = [cm::RDMA_CM_EVENT_DISCONNECTED, cm::RDMA_CM_EVENT_TIMEWAIT_EXIT];
                if last.contains(&event.kind) {
                    self.forget_id(event.name);
                }
            }
        }
    }

    /// Unless an endpoint has taken the request in between.
    fn forget_inbound(&self, name: u64) {
        let mut ids = self.ids.lock();
        if matches!(ids.get(&name), Some(Member::Inbound(_))) {
            ids.remove(&name);
        }
    }

    fn member(&self, name: u64) -> Option<Member> {
        match self.ids.lock().get(&name)? {
            Member::Conn(conn) => Some(Member::Conn(conn.clone())),
            Member::Door(door) => Some(Member::Door(door.clone())),
            Member::Inbound(inbound) => Some(Member::Inbound(inbound.clone())),
            Member::Guard { .. } | Member::Parting { .. } => None,
        }
    }

    fn async_event(&self, event: AsyncEvent) {
        let device = &self.info.device;
        match event {
            AsyncEvent::Fatal => self.lose(),
            AsyncEvent::QpError(qpn) => self.with_qp(qpn, |conn| conn.look()),
            AsyncEvent::Established(qpn) => self.with_qp(qpn, |conn| conn.established_early()),
            AsyncEvent::PortActive(port) if port == self.port => {
                log_line!(Info, "{device}: port {port} is active");
                self.report(Event::PortActive, After::Nothing);
            }
            AsyncEvent::PortDown(port) if port == self.port => {
                log_line!(Warn, "{device}: port {port} is down");
                self.report(Event::PortDown, After::Nothing);
            }
            AsyncEvent::PortActive(_) | AsyncEvent::PortDown(_) => {}
            AsyncEvent::Other(number) => log_line!(Debug, "{device}: asynchronous event {number}"),
        }
    }

    fn with_qp(&self, number: u32, act: impl Fn(&crate::conn::Conn)) {
        self.all_conns()
            .iter()
            .filter(|conn| conn.qp.number() == number)
            .for_each(|conn| act(conn));
    }

    fn expired(self: &Arc<Self>, name: u64, timer: Timer) {
        match timer {
            Timer::Parting => self.forget_id(name),
            Timer::Look => self.look(name),
            Timer::Connect | Timer::Retry | Timer::Liveness | Timer::Mark => {
                let conn = self.conns.lock().get(&name).cloned();
                if let Some(conn) = conn {
                    conn.expired(timer);
                }
            }
        }
    }

    fn look(&self, round: u64) {
        let mut looks = self.looks.lock();
        if looks.round != round {
            return;
        }
        // A region that goes from now on wants a look of its own.
        looks.first = false;
        drop(looks);
        for conn in self.all_conns() {
            conn.look();
        }
        let mut looks = self.looks.lock();
        if looks.round == round
            && let Some(next) = looks.pauses.pop_front()
        {
            self.deadline(next, round, Timer::Look);
        }
    }

    fn arm_probes(&self) {
        if let Some(probes) = &self.probes
            // Not for errors only: RXE takes a failed request for no reason to wake.
            && let Err(error) = probes.arm(false)
        {
            log_line!(Error, "{}: lost peers are noticed late: {error}", self.info.device);
        }
    }

    fn take_probes(&self) {
        let Some(probes) = &self.probes else { return };
        probes.channel.clear();
        let mut room = [const { MaybeUninit::uninit() }; 16];
        loop {
            let got = probes.poll(&mut room);
            for wc in got {
                let (_, name) = Foreign::parse(wc.wr_id);
                let conn = self.conns.lock().get(&name).cloned();
                if let Some(conn) = conn {
                    let mut state = conn.lock();
                    conn.probe_ended(&mut state, wc.status);
                }
            }
            if got.len() < 16 {
                break;
            }
        }
        self.arm_probes();
    }

    /// Lets loops go on whose queues no thread polls.
    fn tick(&self) {
        let queues = self.watched.lock().clone();
        for queue in &queues {
            queue.tick();
        }
        self.watched.lock().retain(|queue| {
            if queue.waiting.load(Ordering::Acquire) > 0 {
                return true;
            }
            queue.watched.store(false, Ordering::Release);
            // A loop that began in between found the queue watched.
            let stay = queue.waiting.load(Ordering::Acquire) > 0;
            stay && !queue.watched.swap(true, Ordering::AcqRel)
        });
    }
}
