//! How many connections there are, and when each has to be looked at: room for one more, and the times of state machines.

use std::time::Duration;

use fabric_core::{likely, unlikely};

use super::core::Core;
use super::link::PeerLink;
use super::shared::Shared;
use crate::connection::{DialError, Phase};
use crate::peers::Peer;

/// So often an attempt gives way: peers that ask again and again keep none from being made.
const MAX_GAVE_WAY: u32 = 8;
/// How long a peer may take to give back places that others wait for, before the next one is asked.
const RECALL: Duration = Duration::from_millis(50);
/// Between looks whether a grant is open.
const GRANT_LOOK: Duration = Duration::from_micros(100);
/// Between looks whether there is room for a post where no completion makes some.
pub(super) const ROOM_LOOK: Duration = Duration::from_millis(1);

/// What is known of the open links when a place is wanted.
#[derive(Default)]
struct Survey {
    /// One whose connection is of no use.
    useless: Option<Peer>,
    /// The one that was used the longest time ago: with nothing under way, if there is one. And until when it stays.
    oldest: Option<(Peer, Duration)>,
    /// Connections that are being parked.
    draining: usize,
}

impl PeerLink {
    /// Whether all that keeps it from being parked is what the library says to a peer that does not take it.
    fn takes_nothing(&self) -> bool {
        self.live == 0 && self.incoming.is_empty() && self.has_posted()
    }

    /// The connection takes a place, and is of no use.
    fn give_up(&mut self, shared: &mut Shared, now: Duration) {
        if !self.connection.abandon(now) {
            match self.current.filter(|_| self.takes_nothing()) {
                Some(id) => self.lose(shared, id),
                // Nothing is granted, and no longer waited for.
                None => (self.has_grant, self.phase_since) = (true, now),
            }
        }
        self.mark(shared);
    }
}

impl Core {
    /// Keeps the list of links with connections or attempts, and the times of their next calls.
    pub(super) fn note_active(&mut self, peer: Peer) {
        let Some((link, shared)) = self.find_link(peer) else { return };
        let is_open = !link.conns.is_empty();
        let is_dialing = is_open && link.connection.phase() == Phase::Dialing;
        // Nothing reports that a grant is open.
        let grants = (!link.granting.is_empty()).then(|| shared.now() + GRANT_LOOK);
        // The loss of a peer without a connection is noticed by the next one alone.
        let look = (link.waits_unconnected()).then_some(link.next_look);
        let room = link.lacks_room.then(|| shared.now() + ROOM_LOOK);
        let times = link.connection.deadline().into_iter().chain(grants);
        let deadline = times.chain(look).chain(room).min();
        let was_open = std::mem::replace(&mut link.is_open, is_open);
        let was_dialing = std::mem::replace(&mut link.is_dialing, is_dialing);
        let before = std::mem::replace(&mut link.deadline, deadline);
        if before != deadline {
            before.into_iter().for_each(|before| _ = self.timers.remove(&(before, peer)));
            self.timers.extend(deadline.map(|deadline| (deadline, peer)));
        }
        match (was_open, is_open) {
            (false, true) => {
                self.open.push(peer);
                if !self.waiting.is_empty() && !self.is_full() {
                    // There was a shortage, which is over: the next one may try.
                    self.next_room = Duration::ZERO;
                }
            }
            (true, false) => self.forget_open(peer),
            _ => {}
        }
        self.attempts.note(was_dialing, is_dialing);
        if was_open && !is_open || was_dialing && !is_dialing {
            self.call_waiting();
        }
    }

    fn forget_open(&mut self, peer: Peer) {
        if let Some(at) = self.open.iter().position(|open| *open == peer) {
            self.open.swap_remove(at);
        }
    }

    /// A peer is being removed, and has no connection any more.
    pub(super) fn forget_active(&mut self, peer: Peer) {
        self.note_active(peer);
        self.waiting.retain(|waiting| *waiting != peer);
        if let Some((PeerLink { deadline: Some(deadline), .. }, _)) = self.find_link(peer) {
            let deadline = *deadline;
            self.timers.remove(&(deadline, peer));
        }
    }

    /// A link has its next attempt when there is room for it.
    pub(super) fn wait_for_room(&mut self, peer: Peer) {
        if let Some((link, _)) = self.find_link(peer)
            && !std::mem::replace(&mut link.waits_for_room, true)
        {
            self.waiting.push_back(peer);
        }
        self.make_room();
    }

    /// Parks as many connections as places are wanted, now and when others can be parked.
    pub(super) fn make_room(&mut self) {
        self.park_for_room(false);
    }

    /// The same. Connections of no use are given up where all is taken that came by them.
    fn park_for_room(&mut self, has_taken: bool) {
        if !self.is_room_wanted() {
            return;
        }
        if self.shortage.lasts() || self.is_wanted_by_others() {
            self.rest_own();
        }
        let now = self.shared.now();
        self.next_room = now.saturating_add(self.shared.attr.timeouts.attempt / 4);
        loop {
            let Survey { useless, oldest, draining } = self.survey(now);
            if useless.is_some() && !has_taken {
                self.next_room = now;
                return;
            }
            if let Some((link, shared)) = useless.and_then(|peer| self.find_link(peer)) {
                link.give_up(shared, now);
                continue;
            }
            let Some((peer, until)) = oldest.filter(|_| draining < self.places_wanted()) else {
                return;
            };
            if now < until {
                self.next_room = self.next_room.min(until);
                return;
            }
            if let Some((link, shared)) = self.find_link(peer) {
                link.phase_since = now;
                link.connection.park();
                link.mark(shared);
            }
        }
    }

    /// Looks which connection a place could be had of.
    fn survey(&self, now: Duration) -> Survey {
        let mut found = Survey::default();
        let mut best = None;
        let patience = self.shared.attr.timeouts.attempt;
        for &peer in &self.open {
            let Ok((_, Some(link))) = self.peers.get(peer) else { continue };
            let lasts = now.saturating_sub(link.phase_since);
            match link.connection.phase() {
                Phase::Accepted if lasts >= patience => found.useless = Some(peer),
                Phase::Draining => {
                    // A peer that does not answer holds its place, and keeps no other from being parked. One that is stopped may
                    // come back.
                    found.draining += usize::from(lasts < patience);
                    let is_late = lasts >= patience.saturating_mul(4);
                    let is_stuck = !link.has_grant || link.takes_nothing();
                    if is_late && (link.connection.has_sent_park() || is_stuck) {
                        found.useless = Some(peer);
                    }
                }
                Phase::Established => {
                    let rank = (!link.is_idle(), link.used);
                    if best.is_none_or(|best| rank < best) {
                        best = Some(rank);
                        found.oldest = Some((peer, link.stays_until));
                    }
                }
                _ => {}
            }
        }
        found
    }

    fn is_room_wanted(&self) -> bool {
        !self.waiting.is_empty() || !self.held.is_empty() || self.is_wanted_by_others()
    }

    /// So many connections are to be parked: for requests that wait, for attempts that may begin, and where others want one.
    fn places_wanted(&self) -> usize {
        let free = match self.shortage.lasts() {
            true => 0,
            false => (self.shared.attr.max_open as usize).saturating_sub(self.open.len()),
        };
        // Peers that have connected meanwhile are still in the queue.
        let waits = |peer: &&Peer| match self.peers.get(**peer) {
            Ok((_, Some(link))) => !link.is_open && link.connection.phase() == Phase::Dialing,
            _ => false,
        };
        let attempts = self.waiting.iter().filter(waits).take(self.attempts.left()).count();
        let own = (attempts + self.held.len()).saturating_sub(free);
        own + usize::from(self.is_wanted_by_others())
    }

    /// Whether another endpoint of the process waits for what a connection of this one takes.
    fn is_wanted_by_others(&self) -> bool {
        unlikely(self.shortage.is_of_others()) && (!self.open.is_empty() || self.own.rests())
    }

    /// There is room for one more connection: the first request that waits for it has it, as its peer holds a place for it
    /// already; else the first link.
    pub(super) fn call_waiting(&mut self) {
        if !self.held.is_empty() {
            self.more_requests |= !self.is_full();
            return;
        }
        self.hurry_waiting();
    }

    /// Has the first attempt that waits for a place made, if there is one for it: whose it is. It has the place once the link has
    /// been looked at.
    pub(super) fn hurry_waiting(&mut self) -> Option<Peer> {
        if self.shortage.lasts() || !self.may_dial() {
            return None;
        }
        while let Some(peer) = self.waiting.pop_front() {
            let Some((link, shared)) = self.find_link(peer) else { continue };
            link.waits_for_room = false;
            if link.connection.hurry(shared.now()) {
                link.mark(shared);
                return Some(peer);
            }
        }
        None
    }

    /// Whether one more connection may be made for this peer.
    pub(super) fn has_place(&self, peer: Peer) -> bool {
        self.is_counted(peer) || !self.is_full()
    }

    /// Whether the peer has a place already.
    fn is_counted(&self, peer: Peer) -> bool {
        matches!(self.peers.get(peer), Ok((_, Some(link))) if link.is_open)
    }

    /// Whether there is a place for one more attempt.
    fn may_dial(&self) -> bool {
        !self.is_full() && self.attempts.left() > 0
    }

    /// Whether this peer may be dialed. The place of a connection that was just closed is not its own any more where others
    /// wait for one.
    pub(super) fn has_place_to_dial(&self, peer: Peer) -> bool {
        match self.peers.get(peer) {
            Ok((_, Some(link))) if link.is_open => {
                !link.conns.is_empty() || self.waiting.is_empty() && self.held.is_empty()
            }
            _ => self.may_dial(),
        }
    }

    /// Whether there are as many connections and attempts as there may be.
    pub(super) fn is_full(&self) -> bool {
        self.open.len() >= self.shared.attr.max_open as usize
    }

    /// Gives an attempt up for a request, if all places are taken by attempts: the others come free by themselves. Whether
    /// there was one.
    pub(super) fn give_way_to_request(&mut self) -> bool {
        self.open.len() == self.attempts.under_way() && self.give_way()
    }

    /// Gives an attempt up, whose answer may be long in coming, for a connection that is there if it is accepted. Whether
    /// there was one.
    pub(super) fn give_way(&mut self) -> bool {
        for at in 0..self.open.len() {
            let peer = self.open[at];
            let Some((link, shared)) = self.find_link(peer) else { continue };
            if link.gave_way < MAX_GAVE_WAY && link.connection.give_way(shared.now()) {
                link.gave_way += 1;
                self.act(peer);
                self.note_active(peer);
                self.wait_for_room(peer);
                return true;
            }
        }
        false
    }

    /// Begins to park all connections.
    pub(super) fn park_all(&mut self) {
        self.rest_own();
        for at in 0..self.open.len() {
            if let Some((link, shared)) = self.find_link(self.open[at])
                && link.connection.park()
            {
                link.mark(shared);
            }
        }
        self.pump();
    }

    /// Calls the state machines whose time has come.
    pub(super) fn tick(&mut self) {
        self.refuse_late();
        self.tick_own();
        self.tick_windows();
        if !self.timers.is_empty() || self.is_room_wanted() {
            self.tick_links();
        }
    }

    #[inline(never)] // not to be in the way of each poll
    fn tick_links(&mut self) {
        let now = self.shared.now();
        let may_try = self.shortage.may_try(now);
        if may_try || self.next_room <= now {
            if !self.is_full() {
                // The one that had the place could not use it.
                self.call_waiting();
            }
            self.take_arrived();
            self.park_for_room(true);
        }
        while let Some((_, peer)) = self.timers.first().filter(|(at, _)| *at <= now).copied() {
            self.timers.pop_first();
            let Some((link, shared)) = self.find_link(peer) else { continue };
            // What comes next is known when the link is settled.
            link.deadline = None;
            if link.waits_unconnected() && link.next_look <= now {
                let _ = link.connection.want(now); // it is not dead
            }
            let is_unanswered = link.connection.tick(now);
            link.mark(shared);
            if is_unanswered {
                // Whether it is gone, another one says.
                let _ = link.rail.on_failed(DialError::Unreachable);
                self.attempts.is_unanswered(now, self.shared.attr.timeouts.attempt);
            }
        }
    }

    /// Peers may wait for places of one that does not answer: now and then the next one is asked.
    fn tick_windows(&mut self) {
        if likely(!self.shared.windows.is_short()) {
            self.next_recall = None;
            return;
        }
        let now = self.shared.now();
        if self.next_recall.is_some_and(|at| now < at) {
            return;
        }
        if self.next_recall.is_some() {
            self.shared.windows.recall_more();
        }
        self.next_recall = Some(now.saturating_add(RECALL));
    }

    /// When [`tick`](Self::tick) has to be called at the latest. Mostly at no time, and each poll asks.
    #[inline]
    pub(super) fn deadline(&self) -> Option<Duration> {
        let is_none = self.timers.is_empty()
            && !self.is_room_wanted()
            && self.own.next_try.is_none()
            && self.next_recall.is_none();
        if is_none { None } else { self.first_deadline() }
    }

    #[inline(never)]
    fn first_deadline(&self) -> Option<Duration> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let room = self.is_room_wanted().then_some(self.next_room);
        let try_again = room.and_then(|_| self.shortage.deadline());
        let times = timer.into_iter().chain(room).chain(try_again).chain(self.held.deadline());
        times.chain(self.own.next_try).chain(self.next_recall).min()
    }
}
