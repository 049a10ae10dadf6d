//! Completion queues: the device's, and a ring for what came out of it before it was polled for.
//!
//! A plain success goes from the device's queue to the caller. Everything else (a failure, or the end of a request of
//! the provider's own) is sorted in `complete.rs`, and may yield several completions or none. What a device must not be
//! believed is in `doubt.rs`.
//!
//! The device's channel makes the descriptor readable, or the library itself does: the descriptor watches both.

use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fabric_core::{Armed, CqAttr, CqOps, Error, RawCompletion, Result, Status, Token};
use fabric_util::sync::{Mutex, MutexGuard};
use fabric_util::wakeup::Wakeup;
use rustix::event::epoll;

use crate::conn::Conn;
use crate::doubt::{Read, is_doubtful};
use crate::ffi::{ibv_wc, ibv_wc_flags, ibv_wc_opcode, ibv_wc_status};
use crate::handle::Cq;
use crate::manager::Shared;
use crate::{NAME, device};

/// Of so many connections that end at the same moment the marks have room of their own.
const MARKS: usize = 256;

/// Completions taken from the device at a time.
const BATCH: usize = 16;

/// A completion queue, as connections and the domain's thread know it.
pub(crate) struct Queue {
    cq: Arc<Cq>,
    state: Mutex<QueueState>,
    /// By queue pair number; asked for what is no plain success only.
    conns: Mutex<HashMap<u32, Arc<Conn>>>,
    wakeup: Wakeup,
    sleepers: OwnedFd,
    /// Connections that drive compare-and-swap loops by this queue's completions.
    pub(crate) waiting: AtomicUsize,
    /// Whether somebody polled since the domain's thread looked.
    polled: AtomicBool,
    pub(crate) watched: AtomicBool,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct QueueState {
    ring: VecDeque<RawCompletion>,
    doubts: Vec<Read>,
    armed: bool,
}

/// Where completions go: to the caller as long as there is room and nothing is ahead of them, then to the ring.
pub(crate) struct Sink<'a> {
    out: &'a mut [RawCompletion],
    taken: usize,
    ring: &'a mut VecDeque<RawCompletion>,
    /// Reads that may have been refused: of each queue pair one at most.
    pub(crate) doubts: &'a mut Vec<Read>,
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
}

impl Queue {
    fn new(shared: &Arc<Shared>, attr: &CqAttr) -> Result<Arc<Self>> {
        const OP: &str = "make completion queue";
        shared.check_device()?;
        let fail = |cause| Error::system(OP, NAME, cause);
        // An operation of two requests can fail twice; and a probe, where it goes the same way.
        let entries = attr.capacity * if shared.quirks.separate_probes { 2 } else { 3 };
        // And the mark of a connection that ended and a window that was bound, for which there is mostly room without.
        let entries = entries + 2 * attr.capacity.min(MARKS);
        let entries = entries.min(shared.attributes.max_cqe as usize);
        let context = &shared.pd.context;
        let cq = Cq::new(context, entries, shared.vector(attr.vector)).map_err(|cause| {
            device::failed(OP, "the queue, or the device has no more of them", cause)
        })?;
        let wakeup = Wakeup::new().map_err(fail)?;
        let sleepers = watch_both(cq.channel.as_fd(), wakeup.as_fd()).map_err(fail)?;
        Ok(Arc::new(Queue {
            cq: Arc::new(cq),
            state: Mutex::default(),
            conns: Mutex::default(),
            wakeup,
            sleepers,
            waiting: AtomicUsize::new(0),
            polled: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            shared: shared.clone(),
        }))
    }

    pub(crate) fn cq(&self) -> &Arc<Cq> {
        &self.cq
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }

    fn conns(&self) -> MutexGuard<'_, HashMap<u32, Arc<Conn>>> {
        self.conns.lock()
    }

    pub(crate) fn conn(&self, number: u32) -> Option<Arc<Conn>> {
        self.conns().get(&number).cloned()
    }

    pub(crate) fn add(&self, conn: &Arc<Conn>) {
        self.conns().insert(conn.qp.number(), conn.clone());
    }

    pub(crate) fn remove(&self, conn: &Conn) {
        let mut conns = self.conns();
        // The number may belong to a newer queue pair already.
        let is_it = conns.get(&conn.qp.number()).is_some_and(|found| std::ptr::eq(&**found, conn));
        let gone = is_it.then(|| conns.remove(&conn.qp.number()));
        drop(conns);
        drop(gone);
    }

    #[inline]
    fn poll(&self, out: &mut [RawCompletion]) -> usize {
        let mut state = self.lock();
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.polled.store(true, Ordering::Relaxed);
        }
        let taken = if state.ring.is_empty() { 0 } else { take_from(&mut state.ring, out) };
        if taken == out.len() {
            return taken;
        }
        let QueueState { ring, doubts, .. } = &mut *state;
        let mut sink = Sink { out, taken, ring, doubts };
        self.reap(&mut sink, false);
        sink.taken
    }

    /// Moves everything that the device has into the ring.
    pub(crate) fn take_all(&self) {
        let mut state = self.lock();
        self.fill(&mut state);
        self.wake_sleeper(&mut state);
    }

    fn wake_sleeper(&self, state: &mut QueueState) {
        if !state.ring.is_empty() && std::mem::take(&mut state.armed) {
            self.wakeup.set();
            self.shared.stats.wakeups.add(1);
        }
    }

    /// Lets go of what was held until a connection's end was reported.
    pub(crate) fn release(&self, conn: &Conn) {
        let mut state = self.lock();
        conn.take_held(self, |completion| state.ring.push_back(completion));
        if self.shared.is_lost() {
            // What the device does not complete was put off as well.
            self.fill(&mut state);
        }
        self.wake_sleeper(&mut state);
    }

    fn fill(&self, state: &mut QueueState) {
        let QueueState { ring, doubts, .. } = state;
        self.reap(&mut Sink { out: &mut [], taken: 0, ring, doubts }, true);
    }

    /// A tick of the domain's thread: takes completions so that loops go on, unless the application polls.
    pub(crate) fn tick(&self) {
        if !self.polled.swap(false, Ordering::Relaxed) {
            self.take_all();
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
                    wc.status == ibv_wc_status::IBV_WC_SUCCESS && !Token::is_foreign(wc.wr_id);
                if !plain {
                    self.sort(wc, sink);
                } else if self.shared.quirks.refused_reads_succeed && is_doubtful(wc, sink) {
                    self.believe(wc, sink);
                } else {
                    sink.push(success(wc));
                }
            }
            if got.len() < want {
                if !sink.doubts.is_empty() {
                    self.disbelieve_all(sink);
                }
                if self.shared.is_lost() {
                    self.cancel_unheard(sink);
                }
                return;
            }
        }
    }

    #[cold]
    fn sort(&self, wc: &ibv_wc, sink: &mut Sink<'_>) {
        self.hear(wc, sink);
        if let Some(conn) = self.conn(wc.qp_num) {
            conn.complete(wc.wr_id, wc.status, sink);
        }
    }

    #[cold]
    fn cancel_unheard(&self, sink: &mut Sink<'_>) {
        let conns: Vec<_> = self.conns().values().cloned().collect();
        conns.iter().for_each(|conn| conn.cancel_unheard(self, sink));
    }

    fn arm(&self) -> Result<Armed> {
        let mut state = self.lock();
        self.wakeup.clear();
        self.cq.channel.clear();
        if let Err(cause) = self.cq.arm(false)
            && !self.shared.is_lost()
        {
            return Err(Error::system("arm", NAME, cause));
        }
        // What came before the queue was armed makes no event.
        self.fill(&mut state);
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
pub(crate) fn success(wc: &ibv_wc) -> RawCompletion {
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
    pub(crate) fn new(shared: &Arc<Shared>, attr: &CqAttr) -> Result<Self> {
        Ok(VerbsCq { queue: Queue::new(shared, attr)? })
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
        self.queue.sleepers.as_fd()
    }
}
