//! Whether what is under way at a connection's end gets on.

use std::time::Instant;

use super::{ConnState, Host, Locked, Timer};
use crate::log_limiter::PeerEvent;
use crate::log_line;
use crate::stall_watch::{StallWatch, UnderWay, Verdict};
use crate::stream::link::Link;
use crate::stream::phase::Phase;
use crate::stream::transport::Transport;

/// What is looked at, in the order of `ConnState::under_way`, as a log line names it.
const NAMES: [&str; 3] =
    ["no operation completed", "the peer took nothing", "no more of a message came"];

impl<T: Transport, H: Host> Locked<'_, T, H> {
    /// Has the connection looked at from now on, if there is something to look at.
    #[inline]
    pub(super) fn watch_for_stalls(&mut self) {
        if self.state.stall.as_ref().is_some_and(StallWatch::rests) {
            self.begin_to_look();
        }
    }

    fn begin_to_look(&mut self) {
        // What the transport holds a look finds out, which is not worth its time at every write.
        let mut found = self.state.under_way(0);
        found[1].pending |= self.state.link.outgoing.transmitted() != self.state.taken;
        if found.iter().any(|one| one.pending) {
            self.judge(found);
        }
    }

    /// Looks at what is under way. True: the connection has stalled.
    pub(super) fn has_stalled(&mut self) -> bool {
        if self.state.link.phase() != Phase::Open {
            // What is left for the peer has its own deadline.
            return false;
        }
        let unsent = self.state.transport.as_ref().map_or(0, T::unsent);
        self.judge(self.state.under_way(unsent))
    }

    fn judge(&mut self, found: [UnderWay; 3]) -> bool {
        let state = &mut *self.state;
        let Some(watch) = &mut state.stall else { return false };
        match watch.look(Instant::now(), found) {
            Verdict::Rest => state.taken = state.link.outgoing.transmitted(),
            Verdict::LookAfter(part) => self.host.deadline(part, Timer::Stall),
            Verdict::Stalled(place) => {
                let limit = watch.limit();
                let log = &state.link.stats().peer_log;
                if let Some(suppressed) = log.check(PeerEvent::Liveness, state.peer) {
                    let (id, what) = (state.link.id(), NAMES[place]);
                    log_line!(Warn, "{id}: stalled: {what} for {limit:?}{suppressed}");
                }
                return true;
            }
        }
        false
    }
}

impl<T: Transport> ConnState<T> {
    /// What is under way: operations of this side, what the peer has not taken, `unsent` bytes of it in the transport, and what
    /// the peer has begun to send.
    fn under_way(&self, unsent: usize) -> [UnderWay; 3] {
        let Link { sends, outgoing, answers, incoming, .. } = &self.link;
        let owes = outgoing.has_output() || unsent > 0 || !answers.is_empty();
        [
            UnderWay { pending: !sends.is_empty(), mark: sends.finished().into() },
            UnderWay { pending: owes, mark: outgoing.transmitted().wrapping_sub(unsent as u64) },
            UnderWay { pending: incoming.is_begun(), mark: self.came },
        ]
    }
}
