//! How a connection ends, and how its end is reported.
//!
//! First the owner gets its event, then the completions that the end cancels. The event waits in the domain's reports until
//! a thread without locks hands it over; as long, those completions are held here. Unsignaled operations that succeeded
//! right before the end have no completion, so they look like what is in flight: a request of no
//! effect behind them, which the device flushes like everything else, reports the last one.

use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use fabric_core::{DisconnectReason, Error, Event, Failure, RawCompletion, Result, Side, Status};
use fabric_util::log_line;

use crate::conn::{Conn, End, Stage, State};
use crate::cq::{Queue, Sink};
use crate::manager::{After, Timer};
use crate::tokens::{Quiet, later};
use crate::{NAME, ffi};

/// When to look again whether a post has returned, and to try again what a device refused.
const SOON: Duration = Duration::from_millis(2);
const LATER: Duration = Duration::from_millis(100);

pub(crate) fn index(side: Side) -> usize {
    usize::from(side == Side::Recv)
}

impl Conn {
    /// The one way down: reports the end, then flushes what is in flight, then notifies the peer.
    pub(crate) fn end(&self, state: &mut State, end: End) {
        let stage = std::mem::replace(&mut state.stage, Stage::Ended);
        if stage == Stage::Ended {
            return;
        }
        let event = match end {
            End::Quiet => None,
            End::Failed(error) if stage == Stage::Connecting => {
                Some(Event::ConnectFailed { endpoint: self.id, error })
            }
            End::Failed(_) => Some(self.disconnected(DisconnectReason::PeerLost)),
            End::Gone(DisconnectReason::DeviceLost) if stage == Stage::Connecting => {
                Some(Event::ConnectFailed { endpoint: self.id, error: Error::DeviceLost })
            }
            End::Gone(DisconnectReason::Internal) if stage == Stage::Connecting => {
                let error = Failure::new("connect", "the provider has failed").of(NAME);
                Some(Event::ConnectFailed { endpoint: self.id, error: Error::Internal(error) })
            }
            End::Gone(_) if stage == Stage::Connecting => {
                Some(Event::ConnectFailed { endpoint: self.id, error: Error::Canceled })
            }
            End::Gone(reason) => Some(self.disconnected(reason)),
        };
        let quiet = event.is_none();
        if let Some(event) = event {
            // Where the domain's thread has ended, nothing else would report it.
            state.hold = [!self.shared.has_stopped(); 2];
            self.shared.report(event, After::Release(self.name));
        }
        self.dead.store(true, Ordering::SeqCst);
        // Orders the flag before the flush: see `flush_late_receives`.
        fence(Ordering::SeqCst);
        self.flush();
        if !quiet {
            self.mark_the_end(state);
        }
        if let Some(probe) = &self.probe {
            // It fails only if the device is gone.
            let _ = probe.fail();
        }
        if let Some((name, id)) = state.id.take() {
            self.shared.part(name, id, stage == Stage::Linked || stage == Stage::Accepting);
        }
    }

    fn disconnected(&self, reason: DisconnectReason) -> Event {
        Event::Disconnected { endpoint: self.id, reason }
    }

    fn flush(&self) {
        let lost = self.shared.is_lost();
        let failed = if lost && self.shared.poor.no_flush {
            Err(std::io::ErrorKind::Unsupported.into())
        } else {
            self.qp.fail()
        };
        if let Err(cause) = failed {
            self.mute.store(true, Ordering::Release);
            if !lost {
                log_line!(Error, "{}: its queue pair cannot be flushed: {cause}", self.id);
            }
        }
    }

    /// Has the device say that all before the end has ended, if the last of it may have gone without a word. What it has
    /// executed by now is not behind the last unsignaled post, and all that is has a completion: it is flushed.
    pub(crate) fn mark_the_end(&self, state: &mut State) {
        if self.mute.load(Ordering::Acquire) {
            return;
        }
        let posted = match self.tokens.quiet() {
            Quiet::OnItsWay => return self.shared.deadline(SOON, self.name, Timer::Mark),
            Quiet::Never => None,
            Quiet::Posted(token) => Some(token),
        };
        let Some(last) = later(posted, state.line.last_quiet()) else { return };
        state.last_quiet = Some(last);
        if self.post_mark().is_err() {
            self.shared.deadline(LATER, self.name, Timer::Mark);
        }
    }

    /// The mark was flushed: what has no completion by now has succeeded.
    pub(crate) fn mark_ended(&self, state: &mut State, sink: &mut Sink<'_>) {
        let Some(last) = state.last_quiet.take() else { return };
        let mut ended = RawCompletion::new(last, Status::Ok);
        ended.and_all_before = true;
        self.deliver(state, ended, sink);
    }

    /// Passes a completion on, or keeps it until the end that it is of was reported.
    pub(crate) fn deliver(
        &self,
        state: &mut State,
        completion: RawCompletion,
        sink: &mut Sink<'_>,
    ) {
        if state.hold[index(completion.token.side())] {
            state.held.push_back(completion);
        } else {
            sink.push(completion);
        }
    }

    /// The end was reported: what it cancels may be seen.
    pub(crate) fn release(&self) {
        let shared = std::ptr::eq(&*self.send_queue, &*self.recv_queue);
        self.send_queue.release(self);
        if !shared {
            self.recv_queue.release(self);
        }
    }

    /// Gives what was held of a queue; under the queue's lock.
    pub(crate) fn take_held(&self, queue: &Queue, mut take: impl FnMut(RawCompletion)) {
        let mut state = self.lock();
        for (side, of) in [(Side::Send, &self.send_queue), (Side::Recv, &self.recv_queue)] {
            if std::ptr::eq(&**of, queue) {
                state.hold[index(side)] = false;
            }
        }
        let State { held, hold, .. } = &mut *state;
        held.retain(|one| {
            let stays = hold[index(one.token.side())];
            if !stays {
                take(*one);
            }
            stays
        });
    }

    /// Cancels what a queue of this connection has in flight and a device that was taken away will never complete;
    /// under the completion queue's lock, after everything that the device did complete.
    pub(crate) fn cancel_unheard(&self, queue: &Queue, sink: &mut Sink<'_>) {
        if !self.mute.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.lock();
        for (side, of) in [(Side::Send, &self.send_queue), (Side::Recv, &self.recv_queue)] {
            // What is held is released with a look at the queue.
            if !std::ptr::eq(&**of, queue) || state.hold[index(side)] {
                continue;
            }
            if let Some(last) = self.tokens.take_last(side) {
                let mut canceled = RawCompletion::new(last, Status::Canceled);
                canceled.and_all_before = true;
                sink.push(canceled);
            }
            if side == Side::Send {
                state.line.cancel(|canceled| sink.push(canceled));
            }
        }
    }

    /// A receive that was posted after the queue pair's flush is flushed again. Either this sees the flag, or the
    /// flush, which comes after the flag, sees the receive.
    #[inline]
    pub(crate) fn flush_late_receives(&self) {
        if !self.shared.quirks.late_receives_stay {
            return;
        }
        fence(Ordering::SeqCst);
        if self.dead.load(Ordering::Relaxed) {
            let _state = self.lock();
            self.flush();
        }
    }

    /// Ends the connection because its owner lets it go. `Ok`: the device touches no segment any more.
    pub(crate) fn quiesce(&self) -> Result<()> {
        let mut state = self.lock();
        self.end(&mut state, End::Quiet);
        drop(state);
        // What ended until now keeps its status: a device may forget the completions of a queue pair that it destroys.
        self.send_queue.take_all();
        self.recv_queue.take_all();
        let mut state = self.lock();
        state.line.cancel(|_| ());
        self.set_waits(false);
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
        // What came in between; from here on nothing comes.
        self.send_queue.take_all();
        self.recv_queue.take_all();
        // No owner is left to be notified of the end.
        drop(self.shared.reports.retract(self.id));
        self.release();
        self.send_queue.remove(self);
        self.recv_queue.remove(self);
        self.shared.remove_conn(self);
        match destroyed {
            // A device that went took its queue pairs along: the kernel has ended them before it answers so.
            Err(cause) if !(self.shared.is_lost() && ffi::code(&cause) == Some(libc::EIO)) => {
                self.place.keep();
                let text = format!("{}: its queue pair stays until the process ends", self.id);
                Err(Error::Internal(Failure::new("end", text).of(NAME).because(cause)))
            }
            _ => Ok(()),
        }
    }
}
