//! What a transport does by itself: operations on the peer's memory, where nothing of the stream is in their way.

use fabric_core::{Result, SendOp, SendWork, unlikely};

use super::{ConnState, Host, Locked};
use crate::stream::link::Pending;
use crate::stream::transport::{Reached, Transport};

/// Long operations that are executed before other connections have their turn.
const REACHED_A_TURN: usize = 4;

impl<T: Transport, H: Host> Locked<'_, T, H> {
    /// Executes what the transport can by itself of the beginning of `work`; says how many, and whether a turn has to follow.
    /// The rest is to be posted.
    ///
    /// # Safety
    /// As [`Link::post_send`](crate::stream::Link::post_send).
    #[inline]
    pub unsafe fn reach(&mut self, work: &[SendWork<'_>]) -> (usize, bool) {
        let state = &mut *self.state;
        let Some(transport) = &mut state.transport else { return (0, false) };
        state.link.complete_finished();
        if !state.link.is_clear() {
            return (0, false);
        }
        let mut looks = false;
        let mut reach = |one: &SendWork<'_>| match one.op {
            SendOp::Write { imm: None, .. } | SendOp::Read { .. } | SendOp::Atomic { .. } => {
                // SAFETY: the caller's promise: the segments are valid until the completion, which follows.
                unsafe { transport.reach(&one.op, one.segments) }
            }
            _ => Reached::No,
        };
        for (at, one) in work.iter().enumerate() {
            let mut reached = reach(one);
            if reached == Reached::Look {
                looks = true;
                reached = reach(one);
            }
            if reached != Reached::Yes {
                return (at, looks);
            }
            state.link.complete_reached(one);
        }
        (work.len(), looks)
    }

    /// Posts a short send and writes it, if nothing is before it; false: it is to be posted as others are.
    ///
    /// # Safety
    /// As [`Link::post_send`](crate::stream::Link::post_send).
    #[inline]
    pub unsafe fn post_short(&mut self, work: &SendWork<'_>) -> bool {
        let state = &mut *self.state;
        let Some(transport) = &mut state.transport else { return false };
        if unlikely(state.full || !state.link.is_short(work) || transport.is_holding()) {
            return false;
        }
        // SAFETY: the caller's promise.
        match unsafe { state.link.send_short(work, transport) } {
            Ok(_) => state.wrote = true,
            // As in `flush`.
            Err(_) => state.full = !transport.gave_up(),
        }
        true
    }

    /// Posts operations, some of them to go beside the stream.
    ///
    /// # Errors
    /// As [`Link::post_send`](crate::stream::Link::post_send).
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn post(&mut self, work: &[SendWork<'_>]) -> Result<Pending> {
        let ConnState { link, transport, .. } = &mut *self.state;
        // SAFETY: the caller's promise.
        unsafe { link.post_beside(work, transport.as_ref()) }
    }
}

impl<T: Transport> ConnState<T> {
    /// Executes what waited for the end of all before it, but not for ever.
    pub(super) fn reach_waiting(&mut self) {
        let Some(transport) = &mut self.transport else { return };
        for _ in 0..REACHED_A_TURN {
            if !self.link.has_to_reach() {
                break;
            }
            self.looks |= self.link.reach_next(transport) == Reached::Look;
        }
    }
}
