//! How many connections there are, and when each has to be looked at: room for one more, and the times of state machines.

use std::time::Duration;

use super::core::Core;
use crate::connection::Phase;
use crate::peers::Peer;

/// Between looks whether a grant is open.
const GRANT_LOOK: Duration = Duration::from_micros(100);

impl Core {
    /// Keeps the list of links with connections or attempts, and the time of the next call.
    pub(super) fn note_active(&mut self, peer: Peer) {
        let Some((link, shared)) = self.find_link(peer) else { return };
        let is_open = !link.conns.is_empty();
        // Nothing reports that a grant is open.
        let grants = (!link.granting.is_empty()).then(|| shared.now() + GRANT_LOOK);
        // The loss of a peer without a connection is noticed by the next one alone.
        let look = (link.waits_unconnected()).then_some(link.next_look);
        let deadline = link.connection.deadline().into_iter().chain(grants).chain(look).min();
        let (was_active, is_active) = (link.is_active, is_open || deadline.is_some());
        let was_open = std::mem::replace(&mut link.is_open, is_open);
        link.is_active = is_active;
        let before = std::mem::replace(&mut link.deadline, deadline);
        if is_active && !was_active {
            self.active.push(peer);
        } else if was_active && !is_active {
            self.active.retain(|active| *active != peer);
        }
        self.open = self.open + u32::from(is_open) - u32::from(was_open);
        match deadline {
            Some(deadline) if self.earliest.is_none_or(|earliest| deadline < earliest) => {
                self.earliest = Some(deadline);
            }
            // It may have been the first one.
            deadline if before.is_some() && before != deadline => {
                self.earliest = self.first_deadline();
            }
            _ => {}
        }
        if was_open && !is_open {
            self.call_waiting();
        }
    }

    /// A peer is being removed.
    pub(super) fn forget_active(&mut self, peer: Peer) {
        self.note_active(peer);
        self.active.retain(|active| *active != peer);
        self.waiting.retain(|waiting| *waiting != peer);
    }

    /// There is room for one more connection: the first link that waits for it has it.
    fn call_waiting(&mut self) {
        while let Some(peer) = self.waiting.pop_front() {
            let Some((link, shared)) = self.find_link(peer) else { continue };
            link.waits_for_room = false;
            if link.connection.hurry(shared.now()) {
                return link.mark(shared);
            }
        }
    }

    /// Whether one more connection may be made for this peer; if not, one is parked.
    pub(super) fn make_room(&mut self, peer: Peer) -> bool {
        let is_counted = matches!(self.peers.get(peer), Ok((_, Some(link))) if link.is_open);
        if self.open - u32::from(is_counted) < self.shared.attr.max_open {
            return true;
        }
        self.park_oldest();
        false
    }

    /// Parks the connection that was used the longest time ago: one with nothing under way, if there is one.
    pub(super) fn park_oldest(&mut self) {
        let mut oldest: Option<((bool, u64), Peer)> = None;
        if self.abandon_useless() {
            return;
        }
        let mut draining = 0;
        let (now, patience) = (self.shared.now(), self.shared.attr.timeouts.attempt);
        for &peer in &self.active {
            let Ok((_, Some(link))) = self.peers.get(peer) else { continue };
            // A peer that does not answer holds its place, and keeps no other from being parked.
            let is_prompt = now < link.phase_since.saturating_add(patience);
            draining += usize::from(link.connection.phase() == Phase::Draining && is_prompt);
            let rank = (!link.is_idle(), link.used);
            if link.connection.phase() == Phase::Established
                && oldest.is_none_or(|(best, _)| rank < best)
            {
                oldest = Some((rank, peer));
            }
        }
        // Each that is being parked makes room for one that waits.
        if draining <= self.waiting.len()
            && let Some((_, peer)) = oldest
            && let Some((link, shared)) = self.find_link(peer)
        {
            link.connection.park();
            link.mark(shared);
        }
    }

    /// Gives up the first connection that is of no use. Whether there was one.
    fn abandon_useless(&mut self) -> bool {
        let (now, patience) = (self.shared.now(), self.shared.attr.timeouts.attempt);
        for at in 0..self.active.len() {
            let Some((link, shared)) = self.find_link(self.active[at]) else { continue };
            let patience = match link.connection.phase() {
                Phase::Accepted => patience,
                // A peer that is stopped may come back.
                Phase::Draining => patience.saturating_mul(4),
                _ => continue,
            };
            if now >= link.phase_since.saturating_add(patience) && link.connection.abandon(now) {
                link.mark(shared);
                return true;
            }
        }
        false
    }

    /// Calls the state machines whose time has come.
    pub(super) fn tick(&mut self) {
        let Some(earliest) = self.earliest else { return };
        let now = self.shared.now();
        if now < earliest {
            return;
        }
        for at in 0..self.active.len() {
            let peer = self.active[at];
            let Some((link, shared)) = self.find_link(peer) else { continue };
            if link.deadline.is_some_and(|deadline| deadline <= now) {
                // What comes next is known when the link is settled.
                link.deadline = None;
                if link.waits_unconnected() && link.next_look <= now {
                    let _ = link.connection.want(now); // it is not dead
                }
                link.connection.tick(now);
                link.mark(shared);
            }
        }
        self.earliest = self.first_deadline();
    }

    pub(super) fn first_deadline(&self) -> Option<Duration> {
        let of = |peer: &Peer| self.peers.get(*peer).ok()?.1.as_ref()?.deadline;
        self.active.iter().filter_map(of).min()
    }

    /// When [`tick`](Self::tick) has to be called at the latest.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.earliest
    }
}
