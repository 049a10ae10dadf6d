//! Completion queues: the device's, and a ring for what came out of it before it was polled for.
//!
//! A plain success goes from the device's queue to the caller. Everything else (a failure, or the end of a request of
//! the provider's own) goes to its connection, and may yield several completions or none.
//!
//! The device's channel makes the descriptor readable, or the library itself does: the descriptor watches both.

use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fabric_core::{
    Armed, CqAttr, CqOps, EndpointId, Error, RawCompletion, Result, Side, Status, Token,
};
use fabric_util::sync::{Mutex, MutexGuard};
use fabric_util::wakeup::Wakeup;
use rustix::event::epoll;

use crate::error::{NAME, failed};
use crate::ffi::{ibv_wc, ibv_wc_flags, ibv_wc_opcode, ibv_wc_status};
use crate::handle::Cq;
use crate::open_device::OpenDevice;
use crate::softroce::read_verify::{UnverifiedRead, UnverifiedReads, is_long_read};

/// Connections that may close at the same moment, each with an end marker, or bind a window.
const MAX_END_MARKERS: usize = 256;

/// Completions taken from the device at a time.
const BATCH: usize = 16;

/// A connection, as its completion queues see it. They call it under their own lock.
pub(crate) trait CqMember: Send + Sync {
    fn qp_number(&self) -> u32;
    /// Takes how a request ended, unless it is an operation's plain success.
    fn complete(&self, wr_id: u64, ended: ibv_wc_status::Type, sink: &mut Sink<'_>);
    /// Cancels a read that cannot be proven to have succeeded, as its device says.
    fn cancel_read(&self, read: Token, sink: &mut Sink<'_>);
    /// Cancels what this queue has in flight and a device that is gone will never complete; after everything that the
    /// device did complete.
    fn cancel_in_flight(&self, queue: &Queue, sink: &mut Sink<'_>);
    /// Whether the device has the queue pair in error.
    fn is_broken(&self) -> bool;
}

/// What knows the meaning of receives that ended well, where they are those of datagrams. It is called under the queue's lock.
pub(crate) trait ReceiveMember: Send + Sync {
    /// Completes what is to be said of such a receive: its length, its status, and where the datagram came from.
    fn attribute(&self, wc: &ibv_wc, completion: &mut RawCompletion);
}

/// A completion queue, as connections and the domain's thread know it.
pub(crate) struct Queue {
    cq: Arc<Cq>,
    state: Mutex<QueueState>,
    /// By queue pair number; asked for what is no plain success only.
    conns: Mutex<HashMap<u32, Arc<dyn CqMember>>>,
    wakeup: Wakeup,
    /// Readable while the channel or the wakeup is.
    fd: OwnedFd,
    /// Connections whose soft queue is driven by this queue's completions.
    pub(crate) active_soft_queues: AtomicUsize,
    /// Whether the application polled since the last tick of the domain's thread.
    polled: AtomicBool,
    pub(crate) watched: AtomicBool,
    device: Arc<OpenDevice>,
}

/// A connection that takes its receives from a shared queue.
pub(crate) struct Sharer {
    pub(crate) endpoint: EndpointId,
    /// All that was in flight has been reported, and the device is not listened to any more.
    pub(crate) canceled: Arc<AtomicBool>,
}

/// A connection that asks how far its send queue is.
struct Watched {
    endpoint: EndpointId,
    /// The sequence number of the last operation that has ended; before all numbers while there was none.
    done: u32,
}

#[derive(Default)]
struct QueueState {
    ring: VecDeque<RawCompletion>,
    unverified: UnverifiedReads,
    /// By queue pair number, those whose receives complete here.
    sharers: HashMap<u32, Sharer>,
    /// By queue pair number, those whose send queue is watched.
    watched: HashMap<u32, Watched>,
    /// By queue pair number, those whose receives of datagrams complete here.
    datagrams: HashMap<u32, Arc<dyn ReceiveMember>>,
    armed: bool,
}

/// Where completions go: to the caller as long as there is room and nothing is ahead of them, then to the ring.
pub(crate) struct Sink<'a> {
    out: &'a mut [RawCompletion],
    taken: usize,
    ring: &'a mut VecDeque<RawCompletion>,
    unverified: &'a mut UnverifiedReads,
    sharers: &'a HashMap<u32, Sharer>,
    watched: &'a mut HashMap<u32, Watched>,
    datagrams: &'a HashMap<u32, Arc<dyn ReceiveMember>>,
    /// There are neither sharers nor watched ones nor datagrams.
    plain: bool,
}

impl Sink<'_> {
    #[inline]
    pub(crate) fn push(&mut self, completion: RawCompletion) {
        match self.out.get_mut(self.taken) {
            Some(place) if self.ring.is_empty() => {
                *place = completion;
                self.taken += 1;
            }
            _ => self.ring.push_back(completion),
        }
    }

    /// Passes on what ended well.
    #[inline]
    fn succeed(&mut self, wc: &ibv_wc) {
        let mut completion = success(wc);
        if self.plain || self.attribute(wc, &mut completion) {
            self.push(completion);
        }
    }

    /// Notes how far a send queue is, or names the endpoint whose message took a receive of a shared queue. Gives whether the
    /// completion is still awaited.
    #[inline]
    fn attribute(&mut self, wc: &ibv_wc, completion: &mut RawCompletion) -> bool {
        if completion.token.side() == Side::Send {
            self.note_done(wc.qp_num, completion.token);
            return true;
        }
        if let Some(receiver) = self.datagrams.get(&wc.qp_num) {
            receiver.attribute(wc, completion);
            return true;
        }
        let Some(sharer) = self.sharers.get(&wc.qp_num) else { return true };
        completion.endpoint = Some(sharer.endpoint);
        !sharer.canceled.load(Ordering::Relaxed)
    }

    /// An operation of the send queue has ended.
    pub(crate) fn note_done(&mut self, qp_number: u32, token: Token) {
        if let Some(watched) = self.watched.get_mut(&qp_number) {
            watched.done = token.sequence();
        }
    }
}

impl QueueState {
    /// Behind what is in the ring, and behind `taken` completions that are in `out`.
    #[inline]
    fn sink<'a>(&'a mut self, out: &'a mut [RawCompletion], taken: usize) -> Sink<'a> {
        let QueueState { ring, unverified, sharers, watched, datagrams, .. } = self;
        let plain = sharers.is_empty() && watched.is_empty() && datagrams.is_empty();
        Sink { out, taken, ring, unverified, sharers, watched, datagrams, plain }
    }
}

impl Queue {
    fn new(device: &Arc<OpenDevice>, attr: &CqAttr) -> Result<Arc<Self>> {
        const OP: &str = "make completion queue";
        device.check()?;
        let fail = |cause| Error::system(OP, NAME, cause);
        // An operation of two requests can fail twice; and a probe, where it goes the same way.
        let entries = attr.capacity * if device.quirks.separate_probes { 2 } else { 3 };
        // And the end marker of a closed connection and a window that was bound, for which there is mostly room already.
        let entries = entries + 2 * attr.capacity.min(MAX_END_MARKERS);
        let entries = entries.min(device.attributes.max_cqe as usize);
        let cq = Cq::new(&device.pd.context, entries, device.vector(attr.vector))
            .map_err(|cause| failed(OP, "the queue, or the device has no more of them", cause))?;
        let wakeup = Wakeup::new().map_err(fail)?;
        let fd = watch_both(cq.channel.as_fd(), wakeup.as_fd()).map_err(fail)?;
        Ok(Arc::new(Queue {
            cq: Arc::new(cq),
            state: Mutex::default(),
            conns: Mutex::default(),
            wakeup,
            fd,
            active_soft_queues: AtomicUsize::new(0),
            polled: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            device: device.clone(),
        }))
    }

    pub(crate) fn cq(&self) -> &Arc<Cq> {
        &self.cq
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }

    fn conns(&self) -> MutexGuard<'_, HashMap<u32, Arc<dyn CqMember>>> {
        self.conns.lock()
    }

    fn conn(&self, number: u32) -> Option<Arc<dyn CqMember>> {
        self.conns().get(&number).cloned()
    }

    pub(crate) fn add(&self, conn: Arc<dyn CqMember>) {
        self.conns().insert(conn.qp_number(), conn);
    }

    pub(crate) fn remove(&self, conn: &dyn CqMember) {
        let mut conns = self.conns();
        let number = conn.qp_number();
        // The number may belong to a newer queue pair already.
        let is_it = conns.get(&number).is_some_and(|found| ptr::addr_eq(Arc::as_ptr(found), conn));
        let gone = is_it.then(|| conns.remove(&number));
        drop(conns);
        drop(gone);
    }

    /// Has the receives of a queue pair name its endpoint, which takes them from a shared queue.
    pub(crate) fn add_sharer(&self, number: u32, sharer: Sharer) {
        self.lock().sharers.insert(number, sharer);
    }

    /// Has the receives of a queue pair be those of datagrams.
    pub(crate) fn add_datagrams(&self, number: u32, receiver: Arc<dyn ReceiveMember>) {
        self.lock().datagrams.insert(number, receiver);
    }

    /// The reverse.
    pub(crate) fn forget_datagrams(&self, number: u32, receiver: &dyn ReceiveMember) {
        let mut state = self.lock();
        // The number may belong to a newer queue pair already.
        let is_it = |found: &Arc<_>| ptr::addr_eq(Arc::as_ptr(found), receiver);
        let is_it = state.datagrams.get(&number).is_some_and(is_it);
        let gone = is_it.then(|| state.datagrams.remove(&number));
        drop(state);
        drop(gone);
    }

    /// Notes from now on how far the send queue of a queue pair is.
    pub(crate) fn add_watched(&self, number: u32, endpoint: EndpointId) {
        self.lock().watched.insert(number, Watched { endpoint, done: u32::MAX });
    }

    /// The sequence number of the last operation that has ended of a send queue that is watched, polled for or not; before all
    /// numbers if none has.
    pub(crate) fn done(&self, number: u32) -> Option<u32> {
        let mut state = self.lock();
        self.drain_locked(&mut state);
        self.wake_sleeper(&mut state);
        state.watched.get(&number).map(|watched| watched.done)
    }

    /// Forgets a sharer, and what is watched of it.
    pub(crate) fn forget(&self, number: u32, endpoint: EndpointId) {
        let mut state = self.lock();
        // The number may belong to a newer queue pair already.
        let is_it = state.sharers.get(&number).is_some_and(|found| found.endpoint == endpoint);
        let gone = is_it.then(|| state.sharers.remove(&number));
        if state.watched.get(&number).is_some_and(|found| found.endpoint == endpoint) {
            state.watched.remove(&number);
        }
        drop(state);
        drop(gone);
    }

    #[inline]
    fn poll(&self, out: &mut [RawCompletion]) -> usize {
        let mut state = self.lock();
        if self.active_soft_queues.load(Ordering::Relaxed) > 0 {
            self.polled.store(true, Ordering::Relaxed);
        }
        let taken = if state.ring.is_empty() { 0 } else { take_from(&mut state.ring, out) };
        if taken == out.len() {
            return taken;
        }
        let mut sink = state.sink(out, taken);
        self.reap(&mut sink, false);
        sink.taken
    }

    /// Moves everything that the device has into the ring.
    pub(crate) fn drain(&self) {
        let mut state = self.lock();
        self.drain_locked(&mut state);
        self.wake_sleeper(&mut state);
    }

    fn wake_sleeper(&self, state: &mut QueueState) {
        if !state.ring.is_empty() && std::mem::take(&mut state.armed) {
            self.wakeup.set();
            self.device.stats.wakeups.add(1);
        }
    }

    /// Puts completions into the ring that were held until a connection's end was reported; `put` runs under the lock.
    pub(crate) fn release(&self, put: impl FnOnce(&mut VecDeque<RawCompletion>)) {
        let mut state = self.lock();
        put(&mut state.ring);
        if self.device.is_gone() {
            // The cancellation of operations that the device will not complete was put off as well.
            self.drain_locked(&mut state);
        }
        self.wake_sleeper(&mut state);
    }

    /// Puts a completion behind all that the device has; `put` runs under the lock.
    pub(crate) fn append(&self, put: impl FnOnce() -> Option<RawCompletion>) {
        let mut state = self.lock();
        self.drain_locked(&mut state);
        state.ring.extend(put());
        self.wake_sleeper(&mut state);
    }

    fn drain_locked(&self, state: &mut QueueState) {
        self.reap(&mut state.sink(&mut [], 0), true);
    }

    /// A tick of the domain's thread: takes completions so that soft queues progress, unless the application polls.
    pub(crate) fn tick(&self) {
        if !self.polled.swap(false, Ordering::Relaxed) {
            self.drain();
        }
    }

    /// Takes completions of the device; as many as the sink has room for, or `all`.
    #[inline]
    fn reap(&self, sink: &mut Sink<'_>, all: bool) {
        let mut room = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
        loop {
            let want = if all { BATCH } else { BATCH.min(sink.out.len() - sink.taken) };
            if want == 0 {
                return;
            }
            let got = self.cq.poll(&mut room[..want]);
            for wc in got {
                let plain =
                    wc.status == ibv_wc_status::IBV_WC_SUCCESS && !Token::is_internal(wc.wr_id);
                if !plain {
                    self.handle_error(wc, sink);
                } else if self.device.quirks.refused_reads_succeed && sink.unverified.concern(wc) {
                    self.verify_read(wc, sink);
                } else {
                    sink.succeed(wc);
                }
            }
            if got.len() < want {
                if sink.unverified.ask_again() {
                    continue;
                }
                while let Some(read) = sink.unverified.pop() {
                    self.fail_read(read, sink);
                }
                if self.device.is_gone() {
                    self.cancel_in_flight(sink);
                }
                return;
            }
        }
    }

    #[cold]
    fn handle_error(&self, wc: &ibv_wc, sink: &mut Sink<'_>) {
        self.settle_read(wc, sink);
        if let Some(conn) = self.conn(wc.qp_num) {
            conn.complete(wc.wr_id, wc.status, sink);
        }
    }

    /// A success that may be a refusal, or comes behind one that may.
    #[cold]
    fn verify_read(&self, wc: &ibv_wc, sink: &mut Sink<'_>) {
        self.settle_read(wc, sink);
        let is_broken = || self.conn(wc.qp_num).is_some_and(|conn| conn.is_broken());
        if is_long_read(wc) && is_broken() {
            sink.unverified.add(wc);
        } else {
            sink.succeed(wc);
        }
    }

    /// Ends the unverified read that this completion of its queue pair decides.
    fn settle_read(&self, wc: &ibv_wc, sink: &mut Sink<'_>) {
        match sink.unverified.settle(wc) {
            Some((read, true)) => {
                sink.note_done(read.qp_number, read.token);
                sink.push(RawCompletion::new(read.token, Status::Ok));
            }
            Some((read, false)) => self.fail_read(read, sink),
            None => {}
        }
    }

    #[cold]
    fn fail_read(&self, read: UnverifiedRead, sink: &mut Sink<'_>) {
        match self.conn(read.qp_number) {
            Some(conn) => conn.cancel_read(read.token, sink),
            None => sink.push(RawCompletion::new(read.token, Status::Canceled)),
        }
    }

    #[cold]
    fn cancel_in_flight(&self, sink: &mut Sink<'_>) {
        let conns: Vec<_> = self.conns().values().cloned().collect();
        conns.iter().for_each(|conn| conn.cancel_in_flight(self, sink));
    }

    fn arm(&self) -> Result<Armed> {
        let mut state = self.lock();
        self.wakeup.clear();
        self.cq.channel.clear();
        if let Err(cause) = self.cq.arm(false)
            && !self.device.is_lost()
        {
            return Err(Error::system("arm", NAME, cause));
        }
        // A completion that came before the queue was armed makes no event.
        self.drain_locked(&mut state);
        if !state.ring.is_empty() {
            return Ok(Armed::Ready);
        }
        state.armed = true;
        Ok(Armed::Waiting)
    }
}

#[cold]
fn take_from(ring: &mut VecDeque<RawCompletion>, out: &mut [RawCompletion]) -> usize {
    let taken = out.len().min(ring.len());
    out.iter_mut().zip(ring.drain(..taken)).for_each(|(out, completion)| *out = completion);
    taken
}

/// The completion of what ended well.
#[inline]
fn success(wc: &ibv_wc) -> RawCompletion {
    let mut completion = RawCompletion::new(Token::from_bits(wc.wr_id), Status::Ok);
    if wc.opcode & ibv_wc_opcode::IBV_WC_RECV != 0 {
        completion.len = wc.byte_len.into();
        completion.remote_write = wc.opcode == ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;
        if wc.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0 {
            // SAFETY: with this flag the union holds an immediate (ibv_poll_cq(3)).
            let imm = unsafe { wc.imm_data_invalidated_rkey_union.imm_data };
            completion.immediate = Some(u32::from_be(imm));
        }
    }
    completion
}

/// A descriptor that is readable while one of two is.
fn watch_both(one: BorrowedFd<'_>, two: BorrowedFd<'_>) -> std::io::Result<OwnedFd> {
    let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, fd) in [one, two].into_iter().enumerate() {
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&both, fd, data, epoll::EventFlags::IN)?;
    }
    Ok(both)
}

/// A completion queue.
pub struct VerbsCq {
    pub(crate) queue: Arc<Queue>,
}

impl VerbsCq {
    pub(crate) fn new(device: &Arc<OpenDevice>, attr: &CqAttr) -> Result<Self> {
        Ok(VerbsCq { queue: Queue::new(device, attr)? })
    }
}

// SAFETY: the device and the ring hold each completion once, and the descriptor lives in the queue.
unsafe impl CqOps for VerbsCq {
    #[inline]
    fn poll(&self, out: &mut [RawCompletion]) -> usize {
        self.queue.poll(out)
    }

    fn arm(&self) -> Result<Armed, Error> {
        self.queue.arm()
    }

    fn wake(&self) {
        self.queue.wakeup.set();
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.queue.fd.as_fd()
    }
}
