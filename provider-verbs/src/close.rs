//! How a connection ends, and how its end is reported.
//!
//! First the owner gets its event, then the completions of cancelled operations. The event waits in the domain's reports
//! until a thread without locks hands it over; until then those completions are held here. Unsignaled operations that
//! succeeded right before the end have no completion, and look like operations in flight. An end marker reports the last
//! of them: a request without effect behind them, which the device flushes like all others.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use fabric_core::{
    DisconnectReason, Error, Event, Failure, RawCompletion, Result, Side, Status, Token,
};
use fabric_util::log_line;

use crate::conn::{CloseReason, Conn, ConnState, State};
use crate::cq::{Queue, Sink};
use crate::domain::state::{AfterReport, Stops};
use crate::domain::timers::Timer;
use crate::error::NAME;
use crate::handle::QpState;
use crate::tokens::{LastUnsignaled, later};

/// When to look again whether a post has returned, and to try again what a device refused.
const SOON: Duration = Duration::from_millis(2);
const LATER: Duration = Duration::from_millis(100);

/// How long a device may take to complete the receive that a failed queue pair had begun.
const LAST_RECEIVE: Duration = Duration::from_secs(1);
/// How often to look whether it has.
const LOOK: Duration = Duration::from_micros(100);
/// How long, and how many times it is looked at, before a device that does not say so counts as done. The second counts where
/// the processors have too much to do: that device is the kernel's software, and has to wait for them as this thread has.
const SILENT_LAST_RECEIVE: Duration = Duration::from_millis(20);
const SILENT_LOOKS: u32 = 200;
/// How long a queue pair of such a device may go on with the packet at hand, once it was moved to the error state.
const SILENT_PACKET: Duration = Duration::from_millis(100);

pub(crate) fn index(side: Side) -> usize {
    usize::from(side == Side::Recv)
}

impl Stops for Conn {
    fn stop(&self, anew: bool) -> bool {
        let mut state = self.lock();
        let asked = state.closed.is_some() && (anew || state.flushed.is_none());
        asked && self.try_flush(&mut state).is_err()
    }

    fn queues(&self) -> [&Arc<Queue>; 2] {
        [&self.send_queue, &self.recv_queue]
    }
}

impl Conn {
    /// Every way to close leads here: reports the end, flushes operations in flight, then notifies the peer.
    pub(crate) fn close(&self, state: &mut State, end: CloseReason) {
        let stage = std::mem::replace(&mut state.conn_state, ConnState::Closed);
        if stage == ConnState::Closed {
            return;
        }
        state.closed = Some(Instant::now());
        let is_refusal =
            matches!(end, CloseReason::Disconnected(DisconnectReason::OperationFailed));
        let peer_is_behind = is_refusal && self.domain.device.quirks.silent_refusals;
        let event = match end {
            CloseReason::Quiesced => None,
            CloseReason::ConnectFailed(error) if stage == ConnState::Connecting => {
                Some(Event::ConnectFailed { endpoint: self.id, error })
            }
            CloseReason::ConnectFailed(_) => Some(self.disconnected(DisconnectReason::PeerLost)),
            CloseReason::Disconnected(DisconnectReason::DeviceLost)
                if stage == ConnState::Connecting =>
            {
                Some(Event::ConnectFailed { endpoint: self.id, error: Error::DeviceLost })
            }
            CloseReason::Disconnected(DisconnectReason::Internal)
                if stage == ConnState::Connecting =>
            {
                let error = Failure::new("connect", "the provider has failed").of(NAME);
                Some(Event::ConnectFailed { endpoint: self.id, error: Error::Internal(error) })
            }
            CloseReason::Disconnected(_) if stage == ConnState::Connecting => {
                Some(Event::ConnectFailed { endpoint: self.id, error: Error::Canceled })
            }
            CloseReason::Disconnected(reason) => Some(self.disconnected(reason)),
        };
        let quiet = event.is_none();
        if let Some(event) = event {
            // Where the domain's thread has ended, nothing else would report it.
            state.hold_completions = [!self.domain.has_stopped(); 2];
            self.domain.report(event, AfterReport::Release(self.number));
        }
        self.dead.store(true, Ordering::SeqCst);
        // Orders the flag before the flush: see `flush_late_receives`.
        fence(Ordering::SeqCst);
        self.flush(state);
        if !quiet {
            self.mark_end(state);
        }
        if let Some(probe) = &self.probe {
            // It has no memory of the owner's.
            let _ = probe.fail();
        }
        if let Some((context, id)) = state.id.take() {
            if std::mem::take(&mut state.owes_confirmation) {
                // The connection manager disconnects only what is confirmed. If the peer is gone, there is none to notify.
                let _ = id.establish();
            }
            match stage {
                ConnState::Established if peer_is_behind => {
                    self.domain.start_disconnect_soon(context, id);
                }
                ConnState::Established => self.domain.start_disconnect(context, id),
                ConnState::Accepting => self.domain.linger(context, id),
                ConnState::Idle | ConnState::Connecting | ConnState::Closed => {
                    drop(id);
                    self.domain.forget_id(context);
                }
            }
        }
    }

    /// Takes the completions of reads while the queue pair shows that they are what they seem (`softroce/read_verify.rs`):
    /// before it is closed. The lock is not held.
    pub(crate) fn settle_reads(&self) {
        if self.domain.device.quirks.refused_reads_succeed && !self.is_dead() {
            self.send_queue.drain();
        }
    }

    fn disconnected(&self, reason: DisconnectReason) -> Event {
        Event::Disconnected { endpoint: self.id, reason }
    }

    /// Has the device flush what is in flight. Where it refuses, it may go on with all of that: the domain tries again.
    fn flush(&self, state: &mut State) {
        if let Err(cause) = self.try_flush(state) {
            self.domain.seek_proof();
            if !self.domain.device.is_lost() {
                log_line!(Error, "{}: its queue pair cannot be flushed yet: {cause}", self.id);
            }
        }
    }

    fn try_flush(&self, state: &mut State) -> io::Result<()> {
        let failed = self.domain.device.fail(&self.qp);
        match failed {
            Ok(()) => _ = state.flushed.get_or_insert_with(Instant::now),
            Err(_) => state.flushed = None,
        }
        failed
    }

    /// Posts an end marker if the last operation may have succeeded without a completion. Operations that the device has
    /// executed by now are not behind the last unsignaled post; those behind it are flushed, which completes them.
    pub(crate) fn mark_end(&self, state: &mut State) {
        if self.domain.device.is_gone() {
            return;
        }
        if state.flushed.is_none() {
            return self.domain.deadline(LATER, self.number, Timer::EndMarker);
        }
        let posted = match self.tokens.last_unsignaled() {
            LastUnsignaled::Pending => {
                return self.domain.deadline(SOON, self.number, Timer::EndMarker);
            }
            LastUnsignaled::Never => None,
            LastUnsignaled::Posted(token) => Some(token),
        };
        let Some(last) = later(posted, state.soft_queue.last_unsignaled()) else { return };
        state.last_unsignaled = Some(last);
        if self.post_end_marker().is_err() {
            self.domain.deadline(LATER, self.number, Timer::EndMarker);
        }
    }

    /// The end marker was flushed: operations without a completion by now have succeeded.
    pub(crate) fn on_end_marker(&self, state: &mut State, sink: &mut Sink<'_>) {
        if let Some(last) = state.last_unsignaled.take() {
            self.end_unsignaled(state, last, sink);
        }
    }

    /// The connection has ended, and this unsignaled operation and those before it have no completion: they succeeded.
    pub(crate) fn end_unsignaled(&self, state: &mut State, last: Token, sink: &mut Sink<'_>) {
        let status = if state.doubts_reads { Status::Canceled } else { Status::Ok };
        let mut ended = RawCompletion::new(last, status);
        ended.flushes_earlier = true;
        self.deliver(state, ended, sink);
    }

    /// Passes a completion on, or holds it until the end of the connection was reported.
    pub(crate) fn deliver(
        &self,
        state: &mut State,
        completion: RawCompletion,
        sink: &mut Sink<'_>,
    ) {
        if state.hold_completions[index(completion.token.side())] {
            state.held_completions.push_back(completion);
        } else {
            if completion.token.side() == Side::Send {
                sink.note_done(self.qp.number(), completion.token);
            }
            sink.push(completion);
        }
    }

    /// The end was reported: its completions may be seen.
    pub(crate) fn release_held(&self) {
        let is_shared = std::ptr::eq(&*self.send_queue, &*self.recv_queue);
        self.release_queue(&self.send_queue);
        if !is_shared {
            self.release_queue(&self.recv_queue);
        }
    }

    fn release_queue(&self, queue: &Queue) {
        queue.release(|ring| self.take_held(queue, |completion| ring.push_back(completion)));
    }

    /// Gives the completions held for a queue; under the queue's lock.
    fn take_held(&self, queue: &Queue, mut take: impl FnMut(RawCompletion)) {
        let mut state = self.lock();
        for (side, of) in [(Side::Send, &self.send_queue), (Side::Recv, &self.recv_queue)] {
            if std::ptr::eq(&**of, queue) {
                state.hold_completions[index(side)] = false;
            }
        }
        let State { held_completions, hold_completions, .. } = &mut *state;
        held_completions.retain(|one| {
            let side = one.token.side();
            let stays = hold_completions[index(side)];
            let was_reported = side == Side::Recv && self.receives_are_canceled();
            if !stays && !was_reported {
                take(*one);
            }
            stays
        });
    }

    /// Cancels what a queue of this connection has in flight and a device that is gone will never complete; under the
    /// completion queue's lock, after everything that the device did complete.
    pub(crate) fn cancel_in_flight(&self, queue: &Queue, sink: &mut Sink<'_>) {
        let mut state = self.lock();
        for (side, of) in [(Side::Send, &self.send_queue), (Side::Recv, &self.recv_queue)] {
            // Held completions are released together with the queue's others.
            if !std::ptr::eq(&**of, queue) || state.hold_completions[index(side)] {
                continue;
            }
            if let Some(last) = self.tokens.take_last(side) {
                let mut canceled = RawCompletion::new(last, Status::Canceled);
                canceled.flushes_earlier = true;
                sink.push(canceled);
            }
            if side == Side::Send {
                state.soft_queue.cancel(|canceled| sink.push(canceled));
            }
        }
    }

    /// A receive that was posted after the queue pair's flush is flushed again. Either this sees the flag, or the
    /// flush, which comes after the flag, sees the receive.
    #[inline]
    pub(crate) fn flush_late_receives(&self) {
        if !self.domain.device.quirks.late_receives_stay {
            return;
        }
        fence(Ordering::SeqCst);
        if self.dead.load(Ordering::Relaxed) {
            let mut state = self.lock();
            self.flush(&mut state);
        }
    }

    /// Whether its shared receive queue has reported all that was in flight.
    pub(crate) fn receives_are_canceled(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.is_canceled())
    }

    /// Waits until the device has completed the receive of a shared queue that a message had begun, or is overdue: with the queue
    /// pair it would go, and others wait for it in vain.
    fn await_last_receive(&self) {
        let state = self.lock();
        let (was_ready, closed) = (state.was_ready, state.closed);
        drop(state);
        let Some(closed) = closed.filter(|_| self.shared.is_some() && was_ready) else { return };
        let silent = self.domain.device.quirks.last_receive_is_silent;
        let is_overdue = |looks| {
            let is_quiet = silent && looks >= SILENT_LOOKS;
            closed.elapsed() >= if is_quiet { SILENT_LAST_RECEIVE } else { LAST_RECEIVE }
        };
        let mut looks = 0;
        let is_done = || self.last_receive.load(Ordering::Acquire) || self.domain.device.is_gone();
        while !is_done() && !is_overdue(looks) {
            std::thread::sleep(LOOK);
            self.domain.take_async_events();
            looks += 1;
        }
    }

    /// Whether the queue pair has stopped, and holds no receive of its shared queue any more.
    pub(crate) fn takes_no_more(&self) -> bool {
        let state = self.lock();
        if state.closed.is_some() && !state.was_ready {
            // No message reaches it.
            return true;
        }
        let Some(flushed) = state.flushed else { return false };
        let silent = self.domain.device.quirks.last_receive_is_silent;
        let is_done = self.last_receive.load(Ordering::Acquire)
            || silent && flushed.elapsed() >= SILENT_PACKET;
        is_done && matches!(self.qp.state(), Ok(QpState::Error))
    }

    /// Ends the connection because its owner lets it go. `Ok`: the device touches no segment any more.
    pub(crate) fn quiesce(&self) -> Result<()> {
        self.settle_reads();
        let mut state = self.lock();
        self.close(&mut state, CloseReason::Quiesced);
        drop(state);
        self.await_last_receive();
        // A device may discard the completions of a queue pair that it destroys: take them first.
        self.send_queue.drain();
        self.recv_queue.drain();
        let mut state = self.lock();
        state.soft_queue.cancel(|_| ());
        self.set_soft_queue_active(false);
        self.free_windows(&mut state);
        // SAFETY: posts do not come beside or after `quiesce` (`EndpointOps`), and everything else takes the lock.
        let (destroyed, probe) = unsafe {
            (self.qp.destroy(), self.probe.as_ref().map_or(Ok(()), |probe| probe.destroy()))
        };
        if let Err(cause) = probe {
            // It has no segments.
            log_line!(Error, "{}: {cause}: it stays until the process ends", self.id);
        }
        self.forget_probe(&mut state);
        drop(state);
        let destroyed = self.domain.device.unless_gone(destroyed);
        if destroyed.is_err() {
            self.scratch_slot.keep();
            self.shared.iter().for_each(|shared| shared.keep());
        }
        // Completions that came in between; from here on none comes.
        self.send_queue.drain();
        self.recv_queue.drain();
        // No owner is left to be notified of the end.
        drop(self.domain.reports.retract(self.id));
        self.release_held();
        self.send_queue.remove(self);
        self.recv_queue.remove(self);
        self.send_queue.forget(self.qp.number(), self.id);
        self.recv_queue.forget(self.qp.number(), self.id);
        self.domain.remove_conn(self.number);
        destroyed.map_err(|cause| {
            let text = format!("{}: its queue pair stays until the process ends", self.id);
            Error::Internal(Failure::new("end", text).of(NAME).because(cause))
        })
    }
}
