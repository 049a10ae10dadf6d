//! What a domain has, and its thread: it reports events, ends connection attempts in time, and goes on with connections that
//! had more to carry than one call should.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric_core::{EndpointId, Error, Event, EventSink, Info, Result};
use fabric_util::backlog::RequestTable;
use fabric_util::log_line;
use fabric_util::region_table::RegionTable;
use fabric_util::reports::Reports;
use fabric_util::service_thread::{ServiceThread, run_rounds};
use fabric_util::stats::Stats;
use fabric_util::stream::Timer;
use fabric_util::sync::{Condvar, Mutex};
use fabric_util::timers::Timers;

use crate::acceptor::Request;
use crate::conn::{Conn, DomainHost};
use crate::name::NAME;
use crate::network;

/// How often a thread that is to end looks whether anything still lingers.
const TICK: Duration = Duration::from_millis(1);

/// Whose a deadline is, and what for.
type Deadline = (EndpointId, Timer);

/// A domain's state.
pub(crate) struct Engine {
    pub(crate) info: Info,
    pub(crate) regions: Arc<RegionTable>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) requests: RequestTable<Arc<Request>>,
    conns: Mutex<HashMap<EndpointId, Arc<Conn>>>,
    reports: Reports<Option<Arc<Conn>>>,
    work: Mutex<Work>,
    /// There is something for the thread.
    changed: Condvar,
}

/// What the thread has to do.
#[derive(Default)]
struct Work {
    /// Connections to go on with.
    ready: Vec<Arc<Conn>>,
    /// When attempts to connect are over, and what peers did not take.
    timers: Timers<EndpointId, Timer>,
    /// Events may wait.
    events: bool,
    stopped: bool,
}

impl DomainHost for Engine {
    fn deadline(&self, after: Duration, id: EndpointId, timer: Timer) {
        let at = Instant::now() + after;
        self.tell_thread(|work| _ = work.timers.add(at, id, timer));
    }

    fn go_on(&self, conn: Arc<Conn>) {
        self.tell_thread(|work| work.ready.push(conn));
    }

    fn add_report(&self, event: Event, of: Option<&Arc<Conn>>) {
        self.reports.push(event, of.cloned());
        self.tell_thread(|work| work.events = true);
    }

    fn count_refused(&self) {
        self.stats.peers_refused.add(1);
    }

    fn forget(&self, id: EndpointId) {
        let gone = self.conns.lock().remove(&id);
        drop(gone);
        self.work.lock().timers.cancel(id);
    }
}

impl Engine {
    pub(crate) fn new(info: &Info, events: Arc<dyn EventSink>) -> Self {
        Engine {
            info: info.clone(),
            regions: Arc::default(),
            stats: Arc::default(),
            requests: RequestTable::default(),
            conns: Mutex::default(),
            reports: Reports::new(events),
            work: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Starts the domain's thread.
    pub(crate) fn start(self: &Arc<Self>) -> Result<ServiceThread> {
        let engine = self.clone();
        let run = move || {
            run_rounds(|| engine.round(), || engine.panicked());
            engine.report();
            engine.clear();
        };
        ServiceThread::start("fabric-mem", run)
            .map_err(|cause| Error::system("open domain", NAME, cause))
    }

    /// Has the thread end: behind what its connections still owe their peers.
    pub(crate) fn stop(&self) {
        self.tell_thread(|work| work.stopped = true);
    }

    /// Whether a peer has not taken yet what a connection left for it, and has time left for that.
    fn lingers(&self) -> bool {
        let conns: Vec<_> = self.conns.lock().values().cloned().collect();
        conns.iter().any(|conn| conn.stream.lingers())
    }

    /// Closes everything that the domain has.
    fn clear(self: &Arc<Self>) {
        for acceptor in network::all().iter().filter(|acceptor| acceptor.belongs_to(self)) {
            network::close(acceptor);
        }
        self.requests.clear();
        let conns: Vec<_> = self.conns.lock().drain().map(|(_, conn)| conn).collect();
        conns.iter().for_each(|conn| conn.abandon());
        self.work.lock().ready.clear();
    }

    pub(crate) fn add(&self, conn: &Arc<Conn>) {
        self.conns.lock().insert(conn.id, conn.clone());
    }

    /// Reports the events that wait. No lock may be held.
    pub(crate) fn report(&self) {
        self.reports.flush(|conn| {
            if let Some(conn) = conn {
                conn.stream.reported();
            }
        });
    }

    /// Reports no event of an endpoint any more.
    pub(crate) fn retract_reports(&self, id: EndpointId) {
        drop(self.reports.retract(id));
    }

    fn tell_thread(&self, what: impl FnOnce(&mut Work)) {
        what(&mut self.work.lock());
        self.changed.notify_one();
    }

    /// One round of the thread; false: it was stopped, and nothing lingers.
    fn round(&self) -> bool {
        let Some((ready, expired)) = self.next_work() else { return self.await_lingering() };
        ready.iter().for_each(Conn::drive);
        for (id, timer) in expired {
            let conn = self.conns.lock().get(&id).cloned();
            if let Some(conn) = conn {
                conn.lock().expired(timer);
                conn.drive();
            }
        }
        self.report();
        true
    }

    /// The thread was stopped: sleeps for a moment if anything lingers, until the peer's turns have taken it.
    fn await_lingering(&self) -> bool {
        let lingers = self.lingers();
        if lingers {
            std::thread::sleep(TICK);
        }
        lingers
    }

    /// Sleeps until there is work, and takes it; `None`: there is none, and the thread was stopped.
    fn next_work(&self) -> Option<(Vec<Arc<Conn>>, Vec<Deadline>)> {
        let mut work = self.work.lock();
        loop {
            let now = Instant::now();
            let mut expired = Vec::new();
            while let Some(timer) = work.timers.pop_due(now, |_| Duration::ZERO) {
                expired.push(timer);
            }
            let ready = std::mem::take(&mut work.ready);
            if std::mem::take(&mut work.events) || !ready.is_empty() || !expired.is_empty() {
                return Some((ready, expired));
            }
            if work.stopped {
                return None;
            }
            work = match work.timers.next() {
                Some(at) => self.changed.wait_timeout(work, at.saturating_duration_since(now)),
                None => self.changed.wait(work),
            };
        }
    }

    /// The thread panicked: nothing of the domain can be relied on.
    #[cold]
    fn panicked(&self) {
        let conns: Vec<_> = self.conns.lock().values().cloned().collect();
        conns.iter().for_each(|conn| conn.lock().fail());
        let device = &self.info.device;
        log_line!(Error, "the engine of {NAME}:{device} panicked; its endpoints end");
        self.report();
    }

    pub(crate) fn dump(&self) -> String {
        let conns: Vec<_> = self.conns.lock().values().cloned().collect();
        let mut lines: Vec<_> = conns.iter().map(|conn| conn.stream.try_dump()).collect();
        lines.sort();
        let (count, regions) = (lines.len(), self.regions.len());
        format!("engine: {count} endpoints, {regions} regions\n{}", lines.join("\n"))
    }
}
