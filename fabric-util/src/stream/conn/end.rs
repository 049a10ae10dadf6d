//! How a connection ends, and its deadlines.

use std::time::{Duration, Instant};

use fabric_core::Error;

use super::{ConnState, Host, Linger, Locked, Stage, Timer};
use crate::log_limiter::PeerEvent;
use crate::log_line;
use crate::stall_watch::StallWatch;
use crate::stream::link::Deferral;
use crate::stream::liveness::Look;
use crate::stream::phase::{End, Phase};
use crate::stream::transport::Transport;

/// How long a peer may take to read the last frame.
const LINGER: Duration = Duration::from_secs(2);

impl<T: Transport, H: Host> Locked<'_, T, H> {
    /// Ends the connection from this side. What the peer must still get is written; if not all of it goes at once, the
    /// connection outlives its endpoint until it has gone, but not for long. True: the connection wants a turn.
    pub fn end(&mut self, end: End) -> bool {
        let end = match end {
            End::Local if self.state.is_connecting() => End::Failed(Error::Canceled),
            end => end,
        };
        self.state.link.end(end);
        self.state.flush_last();
        self.follow_up()
    }

    /// The stream from the peer has ended.
    pub fn lose(&mut self) {
        self.state.link.complete_finished();
        // The peer may still read: what was executed for it just now, or refused, is answered.
        self.state.link.defer(Deferral::default());
        self.state.flush_last();
        self.state.link.end(End::Lost);
        self.settle();
    }

    /// The provider panicked.
    pub fn fail(&mut self) {
        self.state.transport = None;
        self.state.stage = Stage::Closed;
        self.state.link.end(End::Internal);
    }

    /// Behind a flush that was no part of a turn: does what follows from it. True: the connection wants a turn.
    #[inline]
    pub fn follow_up(&mut self) -> bool {
        self.settle();
        self.state.wants_turn()
    }

    /// Does what the link's phase asks of the transport: mostly nothing.
    #[inline]
    pub(super) fn settle(&mut self) {
        if !self.state.is_watched() || self.state.link.phase() != Phase::Open {
            self.settle_now();
        }
    }

    fn settle_now(&mut self) {
        let state = &mut *self.state;
        if matches!(state.link.phase(), Phase::Ending | Phase::Closed)
            && let Some(transport) = &mut state.transport
        {
            transport.close();
        }
        match state.link.phase() {
            Phase::Closed => {
                state.stage = Stage::Closed;
                if state.is_owed() {
                    self.linger();
                } else {
                    state.transport = None;
                    self.host.closed();
                }
            }
            Phase::Ending => {
                if !state.shut && state.link.fully_sent() && !state.is_holding() {
                    state.shut = true;
                    if let Some(transport) = &mut state.transport {
                        transport.shutdown_write();
                    }
                }
                self.linger();
            }
            Phase::Open => {
                if state.wrote && !state.watch.is_on() {
                    self.watch();
                }
                self.watch_for_stalls();
            }
            Phase::Idle => {}
        }
    }

    fn linger(&mut self) {
        if self.state.lingers == Linger::NotYet {
            self.state.lingers = Linger::Runs;
            self.host.deadline(LINGER, Timer::Linger);
        }
    }

    /// A deadline has come. True: the connection wants a turn.
    pub fn expired(&mut self, timer: Timer) -> bool {
        match timer {
            Timer::Connect => self.connect_expired(),
            Timer::Linger => {
                self.state.lingers = Linger::Over;
                self.state.link.close();
                self.settle();
            }
            Timer::Liveness => self.look(),
            Timer::Retry => {
                self.state.retries = false;
                return self.state.is_connecting();
            }
            Timer::Stall => {
                if self.has_stalled() {
                    return self.end(End::Stalled);
                }
            }
        }
        self.state.wants_turn()
    }

    fn connect_expired(&mut self) {
        if self.state.is_connecting() {
            self.fail_connect(Error::TimedOut(None));
        } else if matches!(self.state.stage, Stage::Established) && !self.state.link.is_announced()
        {
            let (log, peer) = (&self.state.link.stats().peer_log, self.state.peer);
            if let Some(suppressed) = log.check(PeerEvent::Admission, peer) {
                let id = self.state.link.id();
                log_line!(Warn, "{id}: the peer did not finish the handshake in time{suppressed}");
            }
            self.lose();
        }
    }

    /// Something was written, so the peer's host owes an answer.
    fn watch(&mut self) {
        let state = &mut *self.state;
        let (Some(interval), Some(transport)) = (state.liveness, &state.transport) else { return };
        if let Some(silence) = transport.silence() {
            let after = state.watch.begin(Instant::now(), silence, interval);
            self.host.deadline(after, Timer::Liveness);
        }
    }

    /// Looks whether the peer's host still answers.
    fn look(&mut self) {
        let state = &mut *self.state;
        let (Some(interval), Some(transport)) = (state.liveness, &state.transport) else { return };
        if state.link.phase() != Phase::Open {
            // What is left for the peer has its own deadline.
            return;
        }
        // A transport without a connection is one whose end the next read finds.
        let Some(silence) = transport.silence() else { return };
        match state.watch.look(Instant::now(), silence, interval) {
            Look::Rest => state.wrote = false,
            Look::Again(after) => self.host.deadline(after, Timer::Liveness),
            Look::Lost => {
                let log = &state.link.stats().peer_log;
                if let Some(suppressed) = log.check(PeerEvent::Liveness, state.peer) {
                    let (id, lasts) = (state.link.id(), silence.lasts);
                    log_line!(
                        Warn,
                        "{id}: the peer's host has not answered for {lasts:?}{suppressed}"
                    );
                }
                self.lose();
            }
        }
    }
}

impl<T: Transport> ConnState<T> {
    /// Whether what has just been posted or written is looked at without more ado.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        self.watch.is_on() && !self.stall.as_ref().is_some_and(StallWatch::rests)
    }

    /// Whether the peer would lose some of the last frames if the transport were dropped now, and has time left.
    pub(super) fn lingers(&self) -> bool {
        self.lingers == Linger::Runs
            && self
                .transport
                .as_ref()
                .is_some_and(|transport| !self.link.fully_sent() || transport.unsent() > 0)
    }

    /// Whether a peer that said all that it had to say has not taken yet what was said to it, and has time left.
    fn is_owed(&self) -> bool {
        self.read_all
            && self.lingers != Linger::Over
            && self.transport.as_ref().is_some_and(|transport| transport.unsent() > 0)
    }
}
