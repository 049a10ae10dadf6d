//! A connection: a queue pair, the identifier by which it is connected, and what is left to software.
//!
//! Three kinds of threads meet here. Posting threads, one a queue at a time, go to the device without a lock. Polling
//! threads, under their completion queue's lock, bring completions that are not plain successes. The domain's thread
//! brings the connection manager's events and the timers. The latter two, and posts that cannot go to the device
//! directly, take the lock of [`State`]; it is taken under a completion queue's lock, never around one.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fabric_core::{
    Capabilities, DisconnectReason, EndpointAttr, EndpointId, Error, RawCompletion, Result,
    SendWork, Token,
};
use fabric_util::emulate::SoftSendQueue;
use fabric_util::stall_watch::StallWatch;
use fabric_util::sync::{Mutex, MutexGuard};

use crate::bounce::Bounce;
use crate::chain::OPERATION_SEGMENTS;
use crate::cq::Queue;
use crate::domain::state::DomainState;
use crate::error::failed;
use crate::handle::{CmId, Qp, QpAttributes};
use crate::handshake::Initiator;
use crate::path;
use crate::scratch::ScratchSlot;
use crate::shared_queue::SharedQueue;
use crate::tokens::Tokens;
use crate::windows::Windows;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnState {
    /// Made; no connection was asked for.
    Idle,
    /// `connect` was called: looking for address, route, and the peer's answer.
    Connecting,
    /// `accept` was called: waiting for the peer's confirmation.
    Accepting,
    Established,
    Closed,
}

/// Why a connection is closed.
#[derive(Debug)]
pub(crate) enum CloseReason {
    Disconnected(DisconnectReason),
    /// An attempt that failed.
    ConnectFailed(Error),
    /// The owner let it go: nothing is reported.
    Quiesced,
}

pub(crate) struct State {
    pub(crate) conn_state: ConnState,
    /// When it was closed.
    pub(crate) closed: Option<Instant>,
    /// When the device took over to flush what is in flight; nothing where it refused that last.
    pub(crate) flushed: Option<Instant>,
    /// Whether the peer's messages could reach the queue pair.
    pub(crate) was_ready: bool,
    /// The number of the first packet that the peer sends.
    pub(crate) first_psn: u32,
    pub(crate) soft_queue: SoftSendQueue,
    /// With its context, by which the domain finds its owner.
    pub(crate) id: Option<(u64, CmId)>,
    /// Private data of the request, sent once the route is known.
    pub(crate) connect_data: Vec<u8>,
    pub(crate) initiator: Initiator,
    /// The acceptor is still to be notified that the connection is established.
    pub(crate) owes_confirmation: bool,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// Whether the other end answers probes.
    pub(crate) peer_answers_probes: bool,
    /// Whether a probe is on its way.
    pub(crate) probing: bool,
    /// The looks at the send queue, if a connection that does not get on is to end.
    pub(crate) stall: Option<StallWatch<1>>,
    /// The oldest pending operation ends with `PeerLost`, because a probe found the peer gone.
    pub(crate) lost: bool,
    /// The last send-queue operation that failed: one of two requests reports its end twice.
    pub(crate) last_failed: Option<Token>,
    /// A read was canceled whose device said that it succeeded: what succeeded behind it, unsignaled, is canceled too.
    pub(crate) doubts_reads: bool,
    /// The last unsignaled operation, once the end marker behind it was posted.
    pub(crate) last_unsignaled: Option<Token>,
    pub(crate) windows: Windows,
    /// For each side: whether completions are held until the end was reported.
    pub(crate) hold_completions: [bool; 2],
    /// The completions that are held.
    pub(crate) held_completions: VecDeque<RawCompletion>,
}

pub(crate) struct Conn {
    /// Its number in the domain.
    pub(crate) number: u64,
    pub(crate) id: EndpointId,
    pub(crate) attr: EndpointAttr,
    pub(crate) domain: Arc<DomainState>,
    pub(crate) send_queue: Arc<Queue>,
    pub(crate) recv_queue: Arc<Queue>,
    /// The queue of its receives, where that is not its own.
    pub(crate) shared: Option<Arc<SharedQueue>>,
    pub(crate) qp: Qp,
    /// The queue pair for probes, on devices that need one.
    pub(crate) probe: Option<Qp>,
    pub(crate) tokens: Tokens,
    /// Whether posts to the send queue go through the soft queue.
    pub(crate) soft_queue_active: AtomicBool,
    /// Whether a send or write was posted since a request of the soft queue ended.
    pub(crate) unacked_send: AtomicBool,
    pub(crate) dead: AtomicBool,
    /// The queue pair holds no receive of a shared queue any more.
    pub(crate) last_receive: AtomicBool,
    state: Mutex<State>,
    bounce: Option<Bounce>,
    // Last: the device may write to it as long as there are queue pairs.
    pub(crate) scratch_slot: ScratchSlot,
}

impl Conn {
    pub(crate) fn new(
        domain: &Arc<DomainState>,
        id: EndpointId,
        attr: &EndpointAttr,
        (send_queue, recv_queue): (&Arc<Queue>, &Arc<Queue>),
        shared: Option<&Arc<SharedQueue>>,
    ) -> Result<Arc<Self>> {
        const OP: &str = "make endpoint";
        let device = &domain.device;
        device.check()?;
        path::check(device, attr)?;
        let fail = |cause| failed(OP, "the queues, or the device has no more of them", cause);
        let queues = (send_queue.cq(), recv_queue.cq());
        let wanted = QpAttributes {
            // Twice, because a delivery-complete write takes two; and a probe, an end marker, and a window to bind.
            send_depth: 2 * attr.send_depth as u32 + 3,
            recv_depth: if shared.is_some() { 0 } else { attr.recv_depth as u32 },
            send_segments: attr.send_segments.clamp(1, OPERATION_SEGMENTS) as u32,
            recv_segments: if shared.is_some() { 0 } else { attr.recv_segments.max(1) as u32 },
            inline: if device.test_limits.no_inline { 0 } else { attr.inject as u32 },
            atomics: device.info.capabilities.contains(Capabilities::ATOMIC),
        };
        let srq = shared.map(|shared| &shared.srq);
        let qp = Qp::new(&device.pd, queues, srq, &wanted, device.port).map_err(fail)?;
        let probe = domain.probes.qp(device).map_err(fail)?;
        // Else they are copied to registered memory.
        let carries_injects = qp.inline() as usize >= attr.inject;
        let bounce = if carries_injects { None } else { Some(Bounce::new(&device.pd, attr)?) };
        let state = State {
            conn_state: ConnState::Idle,
            closed: None,
            flushed: None,
            was_ready: false,
            first_psn: 0,
            soft_queue: SoftSendQueue::default(),
            id: None,
            connect_data: Vec::new(),
            initiator: Initiator::default(),
            owes_confirmation: false,
            local: None,
            peer: None,
            peer_answers_probes: false,
            probing: false,
            stall: attr.stall.map(StallWatch::new),
            lost: false,
            last_failed: None,
            doubts_reads: false,
            last_unsignaled: None,
            windows: Windows::default(),
            hold_completions: [false; 2],
            held_completions: VecDeque::new(),
        };
        let conn = Arc::new(Conn {
            number: domain.next_number(),
            id,
            attr: attr.clone(),
            domain: domain.clone(),
            send_queue: send_queue.clone(),
            recv_queue: recv_queue.clone(),
            shared: shared.cloned(),
            qp,
            probe,
            tokens: Tokens::new(attr.send_depth),
            soft_queue_active: AtomicBool::new(false),
            unacked_send: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            last_receive: AtomicBool::new(false),
            state: Mutex::new(state),
            bounce,
            scratch_slot: device.scratch.slot()?,
        });
        conn.send_queue.add(conn.clone());
        conn.recv_queue.add(conn.clone());
        if let Some(shared) = shared {
            conn.recv_queue.add_sharer(conn.qp.number(), shared.sharer(id));
        }
        if attr.stall.is_some() {
            conn.send_queue.add_watched(conn.qp.number(), id);
        }
        domain.add_conn(conn.clone());
        if let Err(lost) = device.check() {
            // The thread that closed all others may not have seen this one.
            let _ = conn.quiesce(); // nothing was posted
            return Err(lost);
        }
        Ok(conn)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Sets whether posts go through the soft queue; under the lock.
    pub(crate) fn set_soft_queue_active(&self, active: bool) {
        if self.soft_queue_active.swap(active, Ordering::AcqRel) == active {
            return;
        }
        if active {
            self.send_queue.active_soft_queues.fetch_add(1, Ordering::Relaxed);
            self.domain.watch(&self.send_queue);
        } else {
            self.send_queue.active_soft_queues.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Copies an inject's bytes to where they can stay.
    pub(crate) fn bounce(&self, work: &SendWork<'_>) -> (u64, u32, u32) {
        let Some(bounce) = &self.bounce else { return (0, 0, 0) };
        let (addr, len, key) = bounce.copy(work.token, work.segments);
        self.domain.device.stats.copied_bytes.add(len.into());
        (addr, len, key)
    }

    /// In a few words, for a bug report.
    pub(crate) fn dump(&self) -> String {
        let (qpn, number) = (self.qp.number(), self.number);
        match self.state.try_lock() {
            Some(state) => {
                let State { conn_state, peer, local, probing, .. } = &*state;
                let soft_queue =
                    if state.soft_queue.is_idle() { "idle" } else { "waiting behind a loop" };
                format!(
                    "connection {number}, queue pair {qpn:#08x}: {conn_state:?}, {local:?} to {peer:?}, soft queue {soft_queue}, \
                     probing {probing}"
                )
            }
            None => format!("connection {number}, queue pair {qpn:#08x}: busy"),
        }
    }
}
