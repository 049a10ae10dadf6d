//! A connection: a queue pair, the identifier by which it is connected, and what is left to software.
//!
//! Three kinds of threads meet here. Posters, one a queue at a time, go to the device without a lock. Threads that poll
//! a completion queue (holding that queue's lock) brings completions that are not plain successes. The domain's
//! thread brings the connection manager's events and the timers. The latter two, and what posters cannot send
//! directly, take the lock of [`State`]; it is taken under a completion queue's lock, never around one.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fabric_core::{
    DisconnectReason, EndpointAttr, EndpointId, Error, RawCompletion, Result, SendWork, Token,
};
use fabric_util::emulate::Line;
use fabric_util::sync::{Mutex, MutexGuard};

use crate::bounce::Bounce;
use crate::chain::OPERATION_SEGMENTS;
use crate::cq::Queue;
use crate::domain::state::Shared;
use crate::error::failed;
use crate::handle::{CmId, Qp, QpAttributes};
use crate::path;
use crate::scratch::Place;
use crate::tokens::Tokens;

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
    bounce: Option<Bounce>,
    // Last: the device may write to it as long as there are queue pairs.
    pub(crate) place: Place,
}

impl Conn {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        id: EndpointId,
        attr: &EndpointAttr,
        (send_queue, recv_queue): (&Arc<Queue>, &Arc<Queue>),
    ) -> Result<Arc<Self>> {
        const OP: &str = "make endpoint";
        let device = &shared.device;
        device.check()?;
        path::check(device, attr)?;
        let fail = |cause| failed(OP, "the queues, or the device has no more of them", cause);
        let queues = (send_queue.cq(), recv_queue.cq());
        let wanted = QpAttributes {
            // Twice, because a delivery-complete write takes two; and a probe and a mark.
            send_depth: 2 * attr.send_depth as u32 + 2,
            recv_depth: attr.recv_depth as u32,
            send_segments: attr.send_segments.clamp(1, OPERATION_SEGMENTS) as u32,
            recv_segments: attr.recv_segments.max(1) as u32,
            inline: if device.poor.no_inline { 0 } else { attr.inject as u32 },
        };
        let make = |wanted: &QpAttributes| Qp::new(&device.pd, queues, wanted, device.port);
        let qp = make(&wanted)
            // Injects are copied to registered memory then.
            .or_else(|_| make(&QpAttributes { inline: 0, ..wanted }))
            .map_err(fail)?;
        let probe = shared.probes.qp(device).map_err(fail)?;
        let carries_injects = qp.inline() as usize >= attr.inject;
        let bounce = if carries_injects { None } else { Some(Bounce::new(&device.pd, attr)?) };
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
            bounce,
            place: device.scratch.place()?,
        });
        conn.send_queue.add(conn.clone());
        conn.recv_queue.add(conn.clone());
        shared.add_conn(conn.clone());
        if let Err(lost) = device.check() {
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

    /// Copies an inject's bytes to where they can stay.
    pub(crate) fn bounce(&self, work: &SendWork<'_>) -> (u64, u32, u32) {
        let Some(bounce) = &self.bounce else { return (0, 0, 0) };
        let (addr, len, key) = bounce.copy(work);
        self.shared.device.stats.copied_bytes.add(len.into());
        (addr, len, key)
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
