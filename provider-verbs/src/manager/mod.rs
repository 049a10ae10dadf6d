//! What the objects of a domain share, and the domain's thread.
//!
//! The thread blocks on the descriptors of the connection manager and of asynchronous events; it copies an event,
//! acknowledges it, then acts on it. It also keeps the timers, asks for liveness, and takes completions where a
//! compare-and-swap loop waits and no thread polls, and before it ends a connection: a completion that was not polled
//! may have the cause. Otherwise it never touches a completion queue.

mod thread;
mod timers;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fabric_core::{DisconnectReason, EndpointId, Error, Event, EventSink, Info, Result};
use fabric_util::backlog::RequestTable;
use fabric_util::reports::Reports;
use fabric_util::service_thread::ServiceThread;
use fabric_util::stats::Stats;
use fabric_util::sync::Mutex;
use fabric_util::timers::Timers;
use fabric_util::wakeup::Wakeup;
use fabric_util::{callback, log_line};

use crate::conn::{Conn, End};
use crate::cq::Queue;
use crate::handle::{CmId, Context, Cq, DeviceAttributes, EventChannel, Pd, Qp, QpAttributes};
use crate::listener::{Door, Inbound};
use crate::provider::Poor;
use crate::quirks::Quirks;
use crate::rejected::Rejected;
use crate::scratch::Scratch;
use crate::{NAME, device};

pub(crate) use timers::Timer;

/// Probes that may be on their way at a time, where they have a completion queue of their own.
const PROBES: usize = 4096;
/// How long an identifier stays so that the peer hears of the end although a message was lost: the kernel repeats it after
/// some four seconds, while the identifier is there.
const PARTING: Duration = Duration::from_secs(6);

/// What waits for an event until it was reported.
#[derive(Clone, Copy, Debug)]
pub(crate) enum After {
    Nothing,
    /// The peer of this connection hears that it is made, and may send.
    Establish(u64),
    /// Completions of this connection are let go.
    Release(u64),
}

/// Whose a connection-manager event is.
pub(crate) enum Member {
    Conn(Arc<Conn>),
    Door(Arc<Door>),
    Inbound(Arc<Inbound>),
    /// Bound to the device, so that the connection manager reports its removal to this domain.
    Guard {
        _id: CmId,
    },
    /// Its endpoint is dead; it stays until the peer knows.
    Parting {
        _id: CmId,
    },
}

/// What the objects of a domain share.
pub(crate) struct Shared {
    pub(crate) info: Info,
    pub(crate) quirks: Quirks,
    pub(crate) poor: Poor,
    pub(crate) attributes: DeviceAttributes,
    pub(crate) port: u8,
    pub(crate) pd: Arc<Pd>,
    pub(crate) scratch: Arc<Scratch>,
    pub(crate) channel: Arc<EventChannel>,
    /// Events for the domain's owner.
    pub(crate) reports: Reports<After>,
    pub(crate) stats: Stats,
    pub(crate) requests: RequestTable<Arc<Inbound>>,
    pub(crate) rejected: Mutex<Rejected>,
    probes: Option<Arc<Cq>>,
    names: AtomicU64,
    vectors: AtomicU32,
    lost: AtomicBool,
    /// Connection-manager identifiers by name.
    ids: Mutex<HashMap<u64, Member>>,
    conns: Mutex<HashMap<u64, Arc<Conn>>>,
    timers: Mutex<Timers<(u64, Timer)>>,
    looks: Mutex<Looks>,
    /// Connections whose probe is on its way, where probes have a completion queue of their own.
    probing: AtomicUsize,
    /// Queues whose loops wait.
    watched: Mutex<Vec<Arc<Queue>>>,
    wakeup: Wakeup,
    stop: AtomicBool,
}

/// Looks at the queue pairs' states that are still to come.
#[derive(Default)]
struct Looks {
    /// The pauses before those that follow the next one.
    pauses: VecDeque<Duration>,
    /// Looks of an earlier round are not due any more.
    round: u64,
    /// The first look of the round is still to come, and sees what happens until then.
    first: bool,
}

impl Shared {
    pub(crate) fn open(info: &Info, events: Arc<dyn EventSink>, poor: Poor) -> Result<Arc<Self>> {
        const OP: &str = "open domain";
        let fail = |cause| Error::system(OP, NAME, cause);
        let (name, port) = device::device_and_port(&info.device);
        let context = Arc::new(Context::open(name).map_err(fail)?);
        context.poll_events().map_err(fail)?;
        let attributes = context.attributes().map_err(fail)?;
        let quirks = Quirks::of(&attributes);
        let pd = Arc::new(Pd::new(&context).map_err(fail)?);
        let probes = if quirks.separate_probes {
            // And for those whose connection went in between.
            Some(Arc::new(Cq::new(&context, 2 * PROBES, 0).map_err(fail)?))
        } else {
            None
        };
        let shared = Arc::new(Shared {
            info: info.clone(),
            quirks,
            poor,
            attributes,
            port,
            scratch: Scratch::new(&pd)?,
            pd,
            channel: Arc::new(EventChannel::new().map_err(fail)?),
            reports: Reports::new(events),
            stats: Stats::default(),
            requests: RequestTable::default(),
            rejected: Mutex::default(),
            probes,
            names: AtomicU64::new(1),
            vectors: AtomicU32::new(0),
            lost: AtomicBool::new(false),
            ids: Mutex::default(),
            conns: Mutex::default(),
            timers: Mutex::default(),
            looks: Mutex::default(),
            probing: AtomicUsize::new(0),
            watched: Mutex::default(),
            wakeup: Wakeup::new().map_err(fail)?,
            stop: AtomicBool::new(false),
        });
        if let Err(cause) = shared.stand_guard() {
            log_line!(Warn, "{name}: its removal will be noticed late: {cause}");
        }
        Ok(shared)
    }

    /// Has the connection manager report the device's removal. It does so to the holders of an identifier there, and RXE
    /// has no other way to say so: it does not take contexts away from processes.
    fn stand_guard(&self) -> io::Result<()> {
        let Some(ip) = self.info.addresses.first() else { return Ok(()) };
        let name = self.fresh_name();
        let id = CmId::new(&self.channel, name)?;
        id.bind(SocketAddr::new(*ip, 0))?;
        self.add_id(name, Member::Guard { _id: id });
        Ok(())
    }

    pub(crate) fn start(self: &Arc<Self>) -> Result<ServiceThread> {
        let this = self.clone();
        // Dropping the domain's parts may end up in user code: the event sink is.
        ServiceThread::start("fabric-verbs", move || this.run())
            .map_err(|cause| Error::system("open domain", NAME, cause))
    }

    /// Ends the thread; everything that it kept goes.
    pub(crate) fn stop(&self, thread: &mut ServiceThread) {
        self.stop.store(true, Ordering::Release);
        self.wakeup.set();
        // An event sink may have dropped the domain, on this very thread: then it ends when the sink returns.
        thread.join();
        // Nothing is reported any more; completions that waited for an event do not wait for ever.
        for conn in self.all_conns() {
            drop(self.reports.retract(conn.id));
            conn.release();
        }
        self.requests.clear();
        let ids = std::mem::take(&mut *self.ids.lock());
        let watched = std::mem::take(&mut *self.watched.lock());
        drop((ids, watched));
    }

    pub(crate) fn fresh_name(&self) -> u64 {
        self.names.fetch_add(1, Ordering::Relaxed)
    }

    /// The interrupt of a completion queue: the one asked for, else each in turn.
    pub(crate) fn vector(&self, wanted: Option<u32>) -> u32 {
        let vectors = self.pd.context.completion_vectors().max(1);
        wanted.unwrap_or_else(|| self.vectors.fetch_add(1, Ordering::Relaxed)) % vectors
    }

    pub(crate) fn add_id(&self, name: u64, member: Member) {
        self.ids.lock().insert(name, member);
    }

    pub(crate) fn forget_id(&self, name: u64) {
        let gone = self.ids.lock().remove(&name);
        drop(gone);
    }

    pub(crate) fn add_conn(&self, conn: &Arc<Conn>) {
        self.conns.lock().insert(conn.name, conn.clone());
    }

    pub(crate) fn remove_conn(&self, conn: &Conn) {
        let gone = self.conns.lock().remove(&conn.name);
        drop(gone);
    }

    /// The connection of an endpoint.
    pub(crate) fn conn_of(&self, endpoint: EndpointId) -> Option<Arc<Conn>> {
        self.conns.lock().values().find(|conn| conn.id == endpoint).cloned()
    }

    fn all_conns(&self) -> Vec<Arc<Conn>> {
        self.conns.lock().values().cloned().collect()
    }

    /// Takes the identifier of a connection that ended; the peer is notified if there is one.
    pub(crate) fn part(&self, name: u64, id: CmId, connected: bool) {
        if !connected || id.disconnect().is_err() {
            self.forget_id(name);
            return;
        }
        let before = self.ids.lock().insert(name, Member::Parting { _id: id });
        drop(before);
        self.deadline(PARTING, name, Timer::Parting);
    }

    pub(crate) fn deadline(&self, after: Duration, name: u64, timer: Timer) {
        if self.timers.lock().add(Instant::now() + after, (name, timer)) {
            self.wakeup.set();
        }
    }

    /// Has the thread take completions while no other thread polls.
    pub(crate) fn watch(&self, queue: &Arc<Queue>) {
        if !queue.watched.swap(true, Ordering::AcqRel) {
            self.watched.lock().push(queue.clone());
            self.wakeup.set();
        }
    }

    /// A region went. Where the device does not say that it refused an access, the refusal is looked for: at once,
    /// and for as long as a transfer that was under way may take to notice.
    pub(crate) fn deregistered(&self) {
        if !self.quirks.silent_refusals || self.conns.lock().is_empty() {
            return;
        }
        let mut looks = self.looks.lock();
        looks.pauses = [50, 500, 2000].map(Duration::from_millis).into();
        // Not put off by further ones, however many follow each other.
        if !std::mem::replace(&mut looks.first, true) {
            looks.round += 1;
            self.deadline(Duration::from_millis(5), looks.round, Timer::Look);
        }
    }

    /// A queue pair that only answers and sends probes.
    pub(crate) fn probe_qp(&self) -> io::Result<Qp> {
        let Some(cq) = &self.probes else { return Err(io::ErrorKind::Unsupported.into()) };
        let small = QpAttributes {
            send_depth: 2,
            recv_depth: 1,
            send_segments: 1,
            recv_segments: 1,
            inline: 0,
        };
        Qp::new(&self.pd, (cq, cq), &small, self.port)
    }

    /// Whether one more probe has room, which it then takes until `probe_over`; if not, the next round asks.
    pub(crate) fn may_probe(&self) -> bool {
        let more = |now| (now < PROBES).then_some(now + 1);
        self.probes.is_none()
            || self.probing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// A probe came back, or never will.
    pub(crate) fn probe_over(&self) {
        if self.probes.is_some() {
            self.probing.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    pub(crate) fn check_device(&self) -> Result<()> {
        if self.is_lost() { Err(Error::DeviceLost) } else { Ok(()) }
    }

    /// The device is gone: so is everything on it.
    fn lose(&self) {
        if self.lost.swap(true, Ordering::AcqRel) {
            return;
        }
        self.report(Event::DeviceLost, After::Nothing);
        self.end_all(DisconnectReason::DeviceLost);
        log_line!(Error, "{}: the device is gone", self.info.device);
    }

    fn end_all(&self, reason: DisconnectReason) {
        for conn in self.all_conns() {
            // A fault in one is none of the others'.
            callback::caught(|| {
                conn.end(&mut conn.lock(), End::Gone(reason));
                // Sleepers wake for what the device will not complete.
                conn.send_queue.take_all();
                conn.recv_queue.take_all();
            });
        }
    }

    /// Reports an event, by the domain's thread or an earlier flush of the reports. Locks may be held.
    pub(crate) fn report(&self, event: Event, then: After) {
        self.reports.push(event, then);
        self.wakeup.set();
    }

    /// Hands waiting events to their sink, and goes on with what waits for them; without locks.
    pub(crate) fn flush_reports(&self) {
        self.reports.flush(|then| {
            let find = |name| self.conns.lock().get(&name).cloned();
            // A fault in one connection is not to keep other events from their sink.
            callback::caught(|| match then {
                After::Nothing => {}
                After::Establish(name) => {
                    if let Some(conn) = find(name) {
                        conn.establish();
                    }
                }
                After::Release(name) => {
                    if let Some(conn) = find(name) {
                        conn.release();
                    }
                }
            });
        });
    }

    /// Whether the domain has been dropped: its thread reports nothing.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(crate) fn dump(&self) -> String {
        let (conns, ids) = (self.all_conns().len(), self.ids.lock().len());
        let (info, port) = (&self.info.device, self.port);
        let timers = self.timers.lock().len();
        format!("{info}, port {port}: {conns} connections, {ids} identifiers, {timers} timers\n")
    }
}
