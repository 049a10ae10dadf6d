//! What the objects of a domain share: its connections and identifiers, its timers, and the events for its owner.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fabric_core::{
    DisconnectReason, DomainAttr, EndpointId, Error, Event, EventSink, GrantOps, Info, Result,
};
use fabric_util::backlog::RequestTable;
use fabric_util::proof::HandshakeKeys;
use fabric_util::reports::Reports;
use fabric_util::service_thread::ServiceThread;
use fabric_util::sync::Mutex;
use fabric_util::timers::Timers;
use fabric_util::wakeup::Wakeup;
use fabric_util::{callback, log_line};

use super::timers::{DOMAIN, Timer};
use crate::cq::Queue;
use crate::error::NAME;
use crate::ffi::{ibv_wc_status, rdma_cm_event_type as cm};
use crate::handle::{AsyncEvent, CmEvent, CmId, EventChannel};
use crate::handshake::Challenges;
use crate::open_device::{OpenDevice, TestLimits};
use crate::reject_cache::RejectCache;
use crate::request::{Acceptor, PendingConnection};
use crate::shared_queue::SharedQueue;
use crate::softroce::probes::Probes;
use crate::softroce::refusal_scan::RefusalScan;
use crate::windows::GrantedPart;

/// How long an identifier is kept after a disconnect. If the message to the peer is lost, the kernel repeats it after some
/// four seconds, as long as the identifier exists.
const DISCONNECT_LINGER: Duration = Duration::from_secs(6);

/// How long after a refusal the device of the peer may take to end its queue pair, also where it waits for a processor.
const REFUSAL_SETTLES: Duration = Duration::from_millis(10);

/// What to do once an event was reported.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AfterReport {
    Nothing,
    /// Notify the peer of this connection, which may send then.
    Establish(u64),
    /// Release the held completions of this connection.
    Release(u64),
}

/// A queue pair whose owner wants no more of it, as its domain sees it.
pub(crate) trait Stops {
    /// Moves the queue pair to the error state, where the device has refused that, or `anew`; whether the device refuses.
    fn stop(&self, anew: bool) -> bool;
    /// Its completion queues.
    fn queues(&self) -> [&Arc<Queue>; 2];
}

/// A connection, as its domain sees it. No lock is held when these are called.
pub(crate) trait ConnEvents: Stops + Send + Sync {
    /// Its number in the domain.
    fn number(&self) -> u64;
    fn endpoint(&self) -> EndpointId;
    fn qp_number(&self) -> u32;
    /// An event of the connection manager; on the domain's thread.
    fn cm_event(self: Arc<Self>, event: CmEvent);
    /// A timer of this connection is due; on the domain's thread.
    fn expired(self: Arc<Self>, timer: Timer);
    /// A probe that had a queue pair of its own came back, or did not.
    fn probe_ended(&self, status: ibv_wc_status::Type);
    /// What it had taken from a shared receive queue has completed.
    fn last_receive(&self);
    /// Whether its queue pair may still take a receive of a shared queue, or write to one.
    fn may_take_from(&self, shared: &SharedQueue) -> bool;
    /// Closes the connection if the device itself has put the queue pair into the error state.
    fn check_queue_pair(&self);
    /// The first message came before the peer's confirmation, which may be lost.
    fn established_early(&self);
    /// The owner knows of the connection: notifies the peer.
    fn establish(&self);
    /// The end was reported: held completions may be seen.
    fn release(&self);
    /// Ends the connection together with all others.
    fn lose(&self, reason: DisconnectReason);
    /// Begins a grant.
    ///
    /// # Safety
    /// As [`RegistrationOps::grant`](fabric_core::RegistrationOps::grant).
    unsafe fn grant(self: Arc<Self>, part: &GrantedPart) -> Result<Box<dyn GrantOps>>;
}

/// A datagram endpoint, as its domain sees it.
pub(crate) trait DatagramEvents: Stops + Send + Sync {
    /// The device is gone, or nothing serves it: all that is in flight ends.
    fn lose(&self);
}

/// Owner of a connection-manager identifier, which gets its events.
pub(crate) enum CmIdOwner {
    Conn(Arc<dyn ConnEvents>),
    Acceptor(Arc<Acceptor>),
    Pending(Arc<PendingConnection>),
    /// Bound to the device, so that the connection manager reports its removal to this domain.
    RemovalWatch {
        _id: CmId,
    },
    /// Its endpoint is closed; kept until the peer is notified.
    Disconnecting {
        id: CmId,
    },
}

/// What the objects of a domain share.
pub(crate) struct DomainState {
    pub(crate) device: Arc<OpenDevice>,
    pub(crate) channel: Arc<EventChannel>,
    /// Events for the domain's owner.
    pub(crate) reports: Reports<AfterReport>,
    pub(crate) requests: RequestTable<Arc<PendingConnection>>,
    pub(crate) reject_cache: Mutex<RejectCache>,
    /// To peers that are to prove the domain's secret.
    pub(crate) challenges: Mutex<Challenges>,
    pub(crate) probes: Probes,
    /// The next connection's or identifier's.
    next_number: AtomicU64,
    /// Connection-manager identifiers by context.
    pub(super) ids: Mutex<HashMap<u64, CmIdOwner>>,
    conns: Mutex<HashMap<u64, Arc<dyn ConnEvents>>>,
    pub(crate) shared: Mutex<Vec<Arc<SharedQueue>>>,
    pub(crate) datagrams: Mutex<Vec<Arc<dyn DatagramEvents>>>,
    pub(super) timers: Mutex<Timers<u64, Timer>>,
    pub(super) scan: Mutex<RefusalScan>,
    /// The device is asked again to stop.
    pub(super) seeks_proof: AtomicBool,
    /// Events of the device that wait for the thread.
    async_events: Mutex<VecDeque<AsyncEvent>>,
    /// Queues with active soft queues.
    pub(super) watched: Mutex<Vec<Arc<Queue>>>,
    pub(super) wakeup: Wakeup,
    stop: AtomicBool,
}

impl DomainState {
    pub(crate) fn open(
        info: &Info,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
        test_limits: TestLimits,
    ) -> Result<Arc<Self>> {
        let fail = |cause| Error::system("open domain", NAME, cause);
        let device = OpenDevice::open(info, test_limits)?;
        let domain = Arc::new(DomainState {
            channel: Arc::new(EventChannel::new().map_err(fail)?),
            reports: Reports::new(events),
            requests: RequestTable::default(),
            reject_cache: Mutex::default(),
            challenges: Mutex::new(Challenges::new(attr.secret.as_ref().map(HandshakeKeys::new))),
            probes: Probes::new(&device).map_err(fail)?,
            next_number: AtomicU64::new(1),
            ids: Mutex::default(),
            conns: Mutex::default(),
            shared: Mutex::default(),
            datagrams: Mutex::default(),
            timers: Mutex::default(),
            scan: Mutex::default(),
            seeks_proof: AtomicBool::new(false),
            async_events: Mutex::default(),
            watched: Mutex::default(),
            wakeup: Wakeup::new().map_err(fail)?,
            stop: AtomicBool::new(false),
            device,
        });
        if let Err(cause) = domain.watch_removal() {
            let device = &info.device;
            log_line!(Warn, "{device}: its removal will be noticed late: {cause}");
        }
        Ok(domain)
    }

    /// Has the connection manager report the device's removal. It does so to the holders of an identifier there, and RXE
    /// has no other way to say so: it does not take contexts away from processes.
    fn watch_removal(&self) -> io::Result<()> {
        let Some(ip) = self.device.info.addresses.first() else { return Ok(()) };
        let context = self.next_number();
        let id = CmId::new(&self.channel, context)?;
        id.bind(SocketAddr::new(*ip, 0))?;
        self.add_id(context, CmIdOwner::RemovalWatch { _id: id });
        Ok(())
    }

    /// Ends the thread; everything that it kept goes.
    pub(crate) fn stop(&self, thread: &mut ServiceThread) {
        self.stop.store(true, Ordering::Release);
        self.wakeup.set();
        // An event sink may have dropped the domain, on this very thread: then it ends when the sink returns.
        thread.join();
        // Nothing is reported any more; completions that waited for an event do not wait for ever.
        for conn in self.all_conns() {
            drop(self.reports.retract(conn.endpoint()));
            conn.release();
        }
        self.requests.clear();
        let ids = std::mem::take(&mut *self.ids.lock());
        let watched = std::mem::take(&mut *self.watched.lock());
        drop((ids, watched));
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn add_id(&self, context: u64, owner: CmIdOwner) {
        self.ids.lock().insert(context, owner);
    }

    pub(crate) fn forget_id(&self, context: u64) {
        let gone = self.ids.lock().remove(&context);
        drop(gone);
    }

    pub(crate) fn add_conn(&self, conn: Arc<dyn ConnEvents>) {
        self.conns.lock().insert(conn.number(), conn);
    }

    pub(crate) fn remove_conn(&self, number: u64) {
        let gone = self.conns.lock().remove(&number);
        drop(gone);
        self.timers.lock().cancel(number);
    }

    pub(super) fn conn(&self, number: u64) -> Option<Arc<dyn ConnEvents>> {
        self.conns.lock().get(&number).cloned()
    }

    /// The connection of an endpoint.
    pub(crate) fn conn_of(&self, endpoint: EndpointId) -> Option<Arc<dyn ConnEvents>> {
        self.conns.lock().values().find(|conn| conn.endpoint() == endpoint).cloned()
    }

    /// One, or none; two while an earlier one with the same number is being removed.
    fn conns_of_qp(&self, number: u32) -> Vec<Arc<dyn ConnEvents>> {
        self.conns.lock().values().filter(|conn| conn.qp_number() == number).cloned().collect()
    }

    pub(super) fn all_conns(&self) -> Vec<Arc<dyn ConnEvents>> {
        self.conns.lock().values().cloned().collect()
    }

    /// Notifies the peer of a connection that ended, and takes its identifier.
    pub(crate) fn start_disconnect(&self, context: u64, id: CmId) {
        if id.disconnect().is_err() {
            return self.forget_id(context);
        }
        self.linger(context, id);
    }

    /// The same, a moment later: the device of a peer that has refused an operation says so before it ends its queue pair, and by
    /// that alone the peer knows why the connection ends.
    pub(crate) fn start_disconnect_soon(&self, context: u64, id: CmId) {
        let before = self.ids.lock().insert(context, CmIdOwner::Disconnecting { id });
        drop(before);
        self.deadline(REFUSAL_SETTLES, context, Timer::Disconnect);
    }

    /// Notifies the peer now, unless that has ended it meanwhile.
    pub(super) fn disconnect_late(&self, context: u64) {
        let disconnected = match self.ids.lock().get(&context) {
            Some(CmIdOwner::Disconnecting { id }) => id.disconnect(),
            _ => return,
        };
        match disconnected {
            Ok(()) => self.deadline(DISCONNECT_LINGER, context, Timer::Disconnecting),
            Err(_) => self.forget_id(context),
        }
    }

    /// Keeps the identifier of a connection that ended, until the peer is notified: one that has not confirmed the connection
    /// yet is as soon as it has.
    pub(crate) fn linger(&self, context: u64, id: CmId) {
        let before = self.ids.lock().insert(context, CmIdOwner::Disconnecting { id });
        drop(before);
        self.deadline(DISCONNECT_LINGER, context, Timer::Disconnecting);
    }

    /// An event of an identifier whose connection has ended here.
    pub(crate) fn on_late_event(&self, event: &CmEvent) {
        match event.kind {
            cm::RDMA_CM_EVENT_ESTABLISHED => self.confirmed_late(event.context),
            cm::RDMA_CM_EVENT_DISCONNECTED
            | cm::RDMA_CM_EVENT_TIMEWAIT_EXIT
            | cm::RDMA_CM_EVENT_REJECTED
            | cm::RDMA_CM_EVENT_UNREACHABLE
            | cm::RDMA_CM_EVENT_CONNECT_ERROR => self.forget_id(event.context),
            _ => {}
        }
    }

    /// The peer has confirmed a connection that has ended here.
    fn confirmed_late(&self, context: u64) {
        if let Some(CmIdOwner::Disconnecting { id }) = self.ids.lock().get(&context) {
            // It fails if the peer is gone, too.
            let _ = id.disconnect();
        }
    }

    pub(crate) fn deadline(&self, after: Duration, number: u64, timer: Timer) {
        if self.timers.lock().add(Instant::now() + after, number, timer) {
            self.wakeup.set();
        }
    }

    /// Makes the thread take completions while no other thread polls.
    pub(crate) fn watch(&self, queue: &Arc<Queue>) {
        if !queue.watched.swap(true, Ordering::AcqRel) {
            self.watched.lock().push(queue.clone());
            self.wakeup.set();
        }
    }

    /// A region went. Where the device does not say that it refused an access, the refusal is looked for.
    pub(crate) fn deregistered(&self) {
        if !self.device.quirks.silent_refusals || self.conns.lock().is_empty() {
            return;
        }
        let first = self.scan.lock().restart();
        if let Some((after, round)) = first {
            self.deadline(after, DOMAIN, Timer::RefusalScan { round });
        }
    }

    /// The device is gone, or part of it has failed: everything on it ends.
    pub(super) fn lose(&self, whole: bool) {
        let is_news = if whole { self.device.set_lost() } else { self.device.set_unserved() };
        if is_news {
            self.report(Event::DeviceLost, AfterReport::Nothing);
            self.end_all(DisconnectReason::DeviceLost);
            self.seek_proof();
            log_line!(Error, "{}: the device is gone", self.device.info.device);
        }
    }

    pub(super) fn end_all(&self, reason: DisconnectReason) {
        for conn in self.all_conns() {
            // A panic in one must not keep the others from closing.
            callback::caught(|| conn.lose(reason));
        }
        let datagrams = self.datagrams.lock().clone();
        for pair in datagrams {
            callback::caught(|| pair.lose());
        }
    }

    /// Takes events of the device: any thread that waits for one of a connection may, and leaves the others to the domain's.
    pub(crate) fn take_async_events(&self) {
        while let Some(event) = self.device.pd.context.next_event() {
            if let AsyncEvent::LastReceive(number) = event {
                self.with_qp(number, |conn| conn.last_receive());
            } else {
                self.async_events.lock().push_back(event);
                self.wakeup.set();
            }
        }
    }

    pub(super) fn next_async_event(&self) -> Option<AsyncEvent> {
        self.async_events.lock().pop_front()
    }

    pub(super) fn with_qp(&self, number: u32, act: impl Fn(&dyn ConnEvents)) {
        self.conns_of_qp(number).iter().for_each(|conn| act(&**conn));
    }

    /// Reports an event, by the domain's thread or an earlier flush of the reports. Locks may be held.
    pub(crate) fn report(&self, event: Event, then: AfterReport) {
        self.reports.push(event, then);
        self.wakeup.set();
    }

    /// Hands waiting events to their sink, and goes on with what waits for them; without locks.
    pub(crate) fn flush_reports(&self) {
        self.reports.flush(|then| {
            // A panic in one connection must not keep other events from their sink.
            callback::caught(|| match then {
                AfterReport::Nothing => {}
                AfterReport::Establish(number) => {
                    if let Some(conn) = self.conn(number) {
                        conn.establish();
                    }
                }
                AfterReport::Release(number) => {
                    if let Some(conn) = self.conn(number) {
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
        let (info, port) = (&self.device.info.device, self.device.port);
        let timers = self.timers.lock().len();
        format!("{info}, port {port}: {conns} connections, {ids} identifiers, {timers} timers\n")
    }
}
