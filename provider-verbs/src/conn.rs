//! A connection: a queue pair, the identifier by which it is connected, and what is left to software.
//!
//! Three kinds of threads meet here. Posters, one a queue at a time, go to the device without a lock. Threads that poll
//! a completion queue (holding that queue's lock) brings completions that are not plain successes. The domain's
//! thread brings the connection manager's events and the timers. The latter two, and what posters cannot send
//! directly, take the lock of [`State`]; it is taken under a completion queue's lock, never around one.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use fabric_core::{
    DisconnectReason, EndpointAttr, EndpointId, Error, RawCompletion, Result, SendWork, Token,
};
use fabric_util::emulate::Line;
use fabric_util::sync::{Mutex, MutexGuard};

use crate::chain::OPERATION_SEGMENTS;
use crate::cq::Queue;
use crate::ffi::ibv_access_flags;
use crate::handle::{CmId, Qp, QpAttributes, State as QpState};
use crate::manager::Shared;
use crate::scratch::{Place, Slab};
use crate::tokens::Tokens;
use crate::windows::Windows;
use crate::{device, path};

/// What a work request of the provider's own is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// A leg of a compare-and-swap loop.
    Leg,
    /// A probe for liveness.
    Probe,
    /// The last request of a connection that ended.
    Mark,
    /// A memory window, to be bound.
    Bind,
}

/// Of a request's id: the connection's name.
const NAME_BITS: u64 = (1 << 40) - 1;

impl Foreign {
    /// The request's id; `conn` is the connection's name.
    pub(crate) fn name(self, conn: u64) -> u64 {
        Token::foreign((self as u64) << 40 | conn & NAME_BITS)
    }

    /// What an id that is no token is for.
    pub(crate) fn parse(wr_id: u64) -> (Foreign, u64) {
        let is = |kind: &Foreign| wr_id >> 40 & 0xf == *kind as u64;
        let kind = [Foreign::Leg, Foreign::Mark, Foreign::Bind].into_iter().find(is);
        (kind.unwrap_or(Foreign::Probe), wr_id & NAME_BITS)
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Made; no connection was asked for.
    New,
    /// `connect` was called: looking for address, route, and the peer's answer.
    Connecting,
    /// `accept` was called: waiting for the peer's last word.
    Accepting,
    Linked,
    Ended,
}

/// How a connection ends.
#[derive(Debug)]
pub(crate) enum End {
    Gone(DisconnectReason),
    /// An attempt that failed.
    Failed(Error),
    /// The owner let it go: nothing is reported.
    Quiet,
}

pub(crate) struct State {
    pub(crate) stage: Stage,
    pub(crate) line: Line,
    /// With its name among the domain's identifiers.
    pub(crate) id: Option<(u64, CmId)>,
    /// What is sent with the request, once the route is known.
    pub(crate) greeting: Vec<u8>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// Whether the other end answers probes.
    pub(crate) probed: bool,
    /// Whether a probe is on its way.
    pub(crate) probing: bool,
    /// The oldest pending operation ends with `PeerLost`, because a probe found the peer gone.
    pub(crate) lost: bool,
    /// The last send-queue operation that failed: one of two requests reports its end twice.
    pub(crate) last_failed: Option<Token>,
    /// The last unsignaled operation, once the mark behind it was posted.
    pub(crate) last_quiet: Option<Token>,
    pub(crate) windows: Windows,
    /// Of each side: whether completions wait until the end was reported.
    pub(crate) hold: [bool; 2],
    /// Those that do.
    pub(crate) held: VecDeque<RawCompletion>,
}

pub(crate) struct Conn {
    pub(crate) name: u64,
    pub(crate) id: EndpointId,
    pub(crate) attr: EndpointAttr,
    pub(crate) shared: Arc<Shared>,
    pub(crate) send_queue: Arc<Queue>,
    pub(crate) recv_queue: Arc<Queue>,
    pub(crate) qp: Qp,
    /// The queue pair for probes, on devices that need one.
    pub(crate) probe: Option<Qp>,
    pub(crate) tokens: Tokens,
    /// Whether posts to the send queue go through the line.
    pub(crate) waits: AtomicBool,
    /// Whether a send or write was posted since a leg of the line ended.
    pub(crate) plain: AtomicBool,
    pub(crate) dead: AtomicBool,
    /// The device was taken away: it reports nothing of what is in flight.
    pub(crate) mute: AtomicBool,
    state: Mutex<State>,
    bounce: OnceLock<Bounce>,
    // Last: the device may write to it as long as there are queue pairs.
    pub(crate) place: Place,
}

/// Room for injects, on a device that carries too few bytes in a request.
struct Bounce {
    slab: Slab,
    slot: usize,
}

impl Conn {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        id: EndpointId,
        attr: &EndpointAttr,
        (send_queue, recv_queue): (&Arc<Queue>, &Arc<Queue>),
    ) -> Result<Arc<Self>> {
        const OP: &str = "make endpoint";
        shared.check_device()?;
        path::check(shared, attr)?;
        let fail =
            |cause| device::failed(OP, "the queues, or the device has no more of them", cause);
        let queues = (send_queue.cq(), recv_queue.cq());
        let wanted = QpAttributes {
            // Twice, because a delivery-complete write takes two; and a probe, a mark, and a window to bind.
            send_depth: 2 * attr.send_depth as u32 + 3,
            recv_depth: attr.recv_depth as u32,
            send_segments: attr.send_segments.clamp(1, OPERATION_SEGMENTS) as u32,
            recv_segments: attr.recv_segments.max(1) as u32,
            inline: if shared.poor.no_inline { 0 } else { attr.inject as u32 },
        };
        let make = |wanted: &QpAttributes| Qp::new(&shared.pd, queues, wanted, shared.port);
        let qp = make(&wanted)
            // Injects are copied to registered memory then.
            .or_else(|_| make(&QpAttributes { inline: 0, ..wanted }))
            .map_err(fail)?;
        let probe = if shared.quirks.separate_probes {
            Some(shared.probe_qp().map_err(fail)?)
        } else {
            None
        };
        let state = State {
            stage: Stage::New,
            line: Line::default(),
            id: None,
            greeting: Vec::new(),
            local: None,
            peer: None,
            probed: false,
            probing: false,
            lost: false,
            last_failed: None,
            last_quiet: None,
            windows: Windows::default(),
            hold: [false; 2],
            held: VecDeque::new(),
        };
        let conn = Arc::new(Conn {
            name: shared.fresh_name(),
            id,
            attr: attr.clone(),
            shared: shared.clone(),
            send_queue: send_queue.clone(),
            recv_queue: recv_queue.clone(),
            qp,
            probe,
            tokens: Tokens::new(attr.send_depth),
            waits: AtomicBool::new(false),
            plain: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            mute: AtomicBool::new(false),
            state: Mutex::new(state),
            bounce: OnceLock::new(),
            place: shared.scratch.place()?,
        });
        if (conn.qp.inline() as usize) < attr.inject {
            let bounce = Bounce::new(&conn)?;
            let _ = conn.bounce.set(bounce); // it is empty
        }
        conn.send_queue.add(&conn);
        conn.recv_queue.add(&conn);
        shared.add_conn(&conn);
        if let Err(lost) = shared.check_device() {
            // The thread that ended all the others may not have seen this one.
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

    /// The queue pair that probes go out on.
    pub(crate) fn probed_qp(&self) -> &Qp {
        self.probe.as_ref().unwrap_or(&self.qp)
    }

    /// Says whether posts go through the line; under the lock.
    pub(crate) fn set_waits(&self, waits: bool) {
        if self.waits.swap(waits, Ordering::AcqRel) == waits {
            return;
        }
        if waits {
            self.send_queue.waiting.fetch_add(1, Ordering::Relaxed);
            self.shared.watch(&self.send_queue);
        } else {
            self.send_queue.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The probe that was on its way, if there was one, is not waited for any more.
    pub(crate) fn forget_probe(&self, state: &mut State) {
        if std::mem::take(&mut state.probing) {
            self.shared.probe_over();
        }
    }

    /// Looks whether the device itself ended the queue pair, where it does not say so.
    pub(crate) fn look(&self) {
        if !self.has_failed_alone(&self.lock()) {
            return;
        }
        // A completion that was not polled yet may have the cause, and ends the connection then.
        self.send_queue.take_all();
        self.recv_queue.take_all();
        let mut state = self.lock();
        if self.has_failed_alone(&state) {
            self.end(&mut state, End::Gone(DisconnectReason::OperationFailed));
        }
    }

    fn has_failed_alone(&self, state: &State) -> bool {
        state.stage == Stage::Linked && matches!(self.qp.state(), Ok(QpState::Error))
    }

    /// Whether the device has the queue pair in error.
    pub(crate) fn is_broken(&self) -> bool {
        // Held while the queue pair is asked, so that it is not destroyed meanwhile.
        let _state = self.lock();
        matches!(self.qp.state(), Ok(QpState::Error))
    }

    /// Copies an inject's bytes to where they can stay.
    pub(crate) fn bounce(&self, work: &SendWork<'_>) -> (u64, u32, u32) {
        let Some(bounce) = self.bounce.get() else { return (0, 0, 0) };
        let slots = bounce.slab.memory.len() / bounce.slot;
        let slot = work.token.sequence() as usize & (slots - 1);
        let addr = bounce.slab.memory.as_ptr().wrapping_add(slot * bounce.slot);
        let mut at = 0;
        for segment in work.segments {
            // SAFETY: an inject has at most `slot` bytes; an operation's slot is its own until its completion.
            unsafe {
                fabric_core::memory::copy(addr.wrapping_add(at), segment.addr, segment.len);
            }
            at += segment.len;
        }
        self.shared.stats.copied_bytes.add(at as u64);
        (addr as u64, at as u32, bounce.slab.mr.lkey())
    }

    /// In a few words, for a bug report.
    pub(crate) fn dump(&self) -> String {
        let (qpn, name) = (self.qp.number(), self.name);
        match self.state.try_lock() {
            Some(state) => {
                let State { stage, peer, local, probing, .. } = &*state;
                let line = if state.line.is_idle() { "idle" } else { "waiting behind a loop" };
                format!(
                    "connection {name}, queue pair {qpn:#08x}: {stage:?}, {local:?} to {peer:?}, line {line}, \
                     probing {probing}"
                )
            }
            None => format!("connection {name}, queue pair {qpn:#08x}: busy"),
        }
    }
}

impl Bounce {
    fn new(conn: &Conn) -> Result<Self> {
        let slot = conn.attr.inject.next_multiple_of(64);
        let len = slot * conn.attr.send_depth.next_power_of_two();
        let slab = Slab::new("make endpoint", &conn.shared.pd, len, None, ibv_access_flags(0))?;
        Ok(Bounce { slab, slot })
    }
}
