//! The receiver's side of one resource: what is granted to whom, so that it is never more than there is.

use std::collections::VecDeque;

use fabric_core::{likely, unlikely};

use super::meter::{Allowance, Notice, WindowError};

/// How much there is of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Resource {
    /// For all peers together.
    pub total: u64,
    /// For one peer at most, used or not.
    pub window: u64,
    /// For each peer at least.
    pub reserved: u64,
}

/// So many peers could still have all that one may: then there is plenty.
const PLENTY: u64 = 64;

/// One peer's part. All numbers count from the beginning.
#[derive(Debug, Default)]
struct Part {
    granted: u64,
    /// What the peer knows of that.
    announced: u64,
    received: u64,
    freed: u64,
    /// What the peer knows of that.
    freed_announced: u64,
    /// As much as it may have at a time: it is granted again what it frees of that.
    level: u64,
    /// It asked for more, and is in that queue.
    waits: bool,
    /// It was granted more than is reserved, and is in that queue.
    holds: bool,
    /// There was something to announce, and it is in that queue.
    changed: bool,
    /// It asked for more, and nothing was announced since.
    asked: bool,
    /// Nothing was announced on this connection, so it does not know where it is.
    fresh: bool,
    /// It is to give back what it does not use.
    recall: bool,
    /// It gets nothing more.
    closed: bool,
}

impl Part {
    fn held(&self) -> u64 {
        self.granted - self.freed
    }

    /// As much as it takes from what there is, where so much is reserved for each.
    fn cost(&self, reserved: u64) -> u64 {
        if self.closed { self.held() } else { self.held().max(reserved) }
    }
}

/// What there is of one resource, and the peers' parts of it, each by a number of the caller's.
#[derive(Debug)]
pub(super) struct Ledger {
    resource: Resource,
    parts: Vec<Part>,
    /// Reserved for peers, or granted to them beyond that.
    taken: u64,
    /// Peers that asked for more, the first one first.
    waiting: VecDeque<u32>,
    /// Peers that were granted more than is reserved, the first one first.
    holders: VecDeque<u32>,
    /// Peers for which there was something to announce.
    changed: VecDeque<u32>,
}

impl Ledger {
    pub(super) fn new(resource: Resource) -> Self {
        let (waiting, holders, changed) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Ledger { resource, parts: Vec::new(), taken: 0, waiting, holders, changed }
    }

    fn free(&self) -> u64 {
        self.resource.total - self.taken
    }

    /// Whether there is enough to reserve for one more peer.
    pub(super) fn has_room(&self) -> bool {
        self.free() >= self.resource.reserved
    }

    /// Where there is not, another peer is to give back what it has and does not use.
    pub(super) fn make_room(&mut self) {
        if !self.has_room() {
            self.recall(None);
        }
    }

    /// A peer comes, at a number that has none, and gets what is reserved for it.
    pub(super) fn open(&mut self, at: u32) {
        let level = self.resource.reserved;
        if self.parts.len() <= at as usize {
            self.parts.resize_with(at as usize + 1, Part::default);
        }
        self.taken += level;
        // The queues may have the number still, from the peer that had it before.
        let Part { waits, holds, changed, .. } = self.parts[at as usize];
        let part = Part { level, granted: level, waits, holds, changed, ..Part::default() };
        self.parts[at as usize] = part;
        self.welcome(at);
    }

    /// A peer that comes gets all that one may have, without asking, as long as there is plenty.
    fn welcome(&mut self, at: u32) {
        self.parts[at as usize].fresh = true;
        self.note(at);
        if self.free() / self.resource.window >= PLENTY {
            self.want(at);
        }
    }

    /// A peer's part has changed: if there is something to announce, the peer is in the queue for that.
    fn note(&mut self, at: u32) {
        if self.is_due(at) && !std::mem::replace(&mut self.parts[at as usize].changed, true) {
            self.changed.push_back(at);
        }
    }

    /// Whether there is a [next one](Self::next_changed).
    pub(super) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The next peer to which there was something to announce when its part changed.
    pub(super) fn next_changed(&mut self) -> Option<u32> {
        let at = self.changed.pop_front()?;
        self.parts[at as usize].changed = false;
        Some(at)
    }

    /// Changes a part, and accounts for what it takes then.
    fn change<T>(&mut self, at: u32, change: impl FnOnce(&mut Part) -> T) -> T {
        let (part, reserved) = (&mut self.parts[at as usize], self.resource.reserved);
        let before = part.cost(reserved);
        let changed = change(part);
        self.taken = self.taken - before + part.cost(reserved);
        changed
    }

    /// Whether the peer may use so much. What was not announced yet it cannot.
    #[inline]
    pub(super) fn admits(&self, at: u32, amount: u64) -> bool {
        let part = &self.parts[at as usize];
        amount <= part.announced - part.received
    }

    /// The peer used so much, and that is free again already: as much as it was [admitted](Self::admits).
    #[inline(always)] // for each message
    pub(super) fn on_passed(&mut self, at: u32, amount: u64) {
        let part = &mut self.parts[at as usize];
        part.received += amount;
        part.freed += amount;
        // As `change` does: what it holds is less by that, but for what is reserved.
        let (held, reserved) = (part.held(), self.resource.reserved);
        if likely(held >= reserved || part.closed) {
            self.taken -= amount;
        } else {
            self.taken -= (held + amount).saturating_sub(reserved);
        }
        self.serve();
        self.refill(at);
    }

    /// The peer used so much.
    pub(super) fn on_received(&mut self, at: u32, amount: u64) -> Result<(), WindowError> {
        if unlikely(!self.admits(at, amount)) {
            return Err(WindowError::Exceeded);
        }
        self.parts[at as usize].received += amount;
        // It will not give that back: so maybe another one.
        self.serve();
        // It has less left now.
        self.refill(at);
        Ok(())
    }

    /// So much of what the peer used is free again. More than it used is not.
    pub(super) fn on_freed(&mut self, at: u32, amount: u64) {
        self.change(at, |part| part.freed += amount.min(part.received - part.freed));
        // First to those that wait: then what is left of its own.
        self.serve();
        self.refill(at);
    }

    /// Grants a peer what it may have again, once it is short of it: not for each message.
    #[inline]
    fn refill(&mut self, at: u32) {
        let part = &self.parts[at as usize];
        let is_short = part.announced - part.received <= part.level / 2;
        if unlikely(is_short || part.asked) && self.grant(at, u64::MAX) == 0 {
            self.note(at);
        }
    }

    pub(super) fn on_notice(&mut self, at: u32, notice: Notice) -> Result<(), WindowError> {
        if notice.unused > 0 {
            self.on_received(at, notice.unused)?;
            self.on_freed(at, notice.unused);
        }
        if notice.wants && !self.parts[at as usize].closed {
            self.parts[at as usize].asked = true;
            self.want(at);
        }
        Ok(())
    }

    /// A peer is to have as much as one may.
    fn want(&mut self, at: u32) {
        let part = &mut self.parts[at as usize];
        part.level = self.resource.window;
        let was_recalled = std::mem::take(&mut part.recall);
        if !std::mem::replace(&mut part.waits, true) {
            self.waiting.push_back(at);
        }
        if was_recalled {
            // It can be asked again.
            self.hold(at);
        }
        self.note(at);
        self.serve();
    }

    /// Grants a peer as much as its level allows, but no more than there is, nor than `max`. How much that was.
    fn grant(&mut self, at: u32, max: u64) -> u64 {
        let (free, reserved) = (self.free(), self.resource.reserved);
        let part = &self.parts[at as usize];
        if part.closed {
            return 0;
        }
        // What is reserved costs nothing more.
        let own = reserved.saturating_sub(part.held());
        let amount = part.level.saturating_sub(part.held()).min(own + free.min(max));
        self.change(at, |part| part.granted += amount);
        if amount > 0 {
            self.note(at);
            self.hold(at);
        }
        amount
    }

    /// If a peer has more than is reserved, it may have to give back some of it.
    fn hold(&mut self, at: u32) {
        let part = &mut self.parts[at as usize];
        if part.held() > self.resource.reserved && !std::mem::replace(&mut part.holds, true) {
            self.holders.push_back(at);
        }
    }

    /// Divides what is free among those that wait; where nothing is, others are to give back.
    #[inline]
    fn serve(&mut self) {
        if !self.waiting.is_empty() {
            self.serve_waiting();
        }
    }

    fn serve_waiting(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some(&at) = self.waiting.front() else { return };
            let part = &self.parts[at as usize];
            let wants = !part.closed && part.held() < part.level;
            let share = (self.free() / self.waiting.len() as u64).max(1);
            if wants && self.grant(at, share) == 0 {
                self.recall(Some(at));
                return;
            }
            self.waiting.pop_front();
            self.parts[at as usize].waits = false;
            self.hold(at);
        }
    }

    /// Whether peers wait for more, and others have not been asked for what they have.
    pub(super) fn is_short(&self) -> bool {
        !likely(self.waiting.is_empty()) && self.has_other_holders()
    }

    #[cold]
    fn has_other_holders(&self) -> bool {
        let first = self.waiting.front();
        first.is_some_and(|first| self.holders.iter().any(|holder| holder != first))
    }

    /// What was to be given back for those that wait has not been for long: others are asked, too.
    pub(super) fn recall_more(&mut self) {
        if let Some(&first) = self.waiting.front() {
            self.recall(Some(first));
        }
    }

    /// The first peer that has more than is reserved, and some of it not used, is to give that back to another one: also if it
    /// waits for more itself, behind that one. Each is asked once for what it was granted: it leaves the queue.
    fn recall(&mut self, to: Option<u32>) {
        for _ in 0..self.holders.len() {
            let Some(at) = self.holders.pop_front() else { return };
            if to == Some(at) {
                self.holders.push_back(at);
                continue;
            }
            let part = &mut self.parts[at as usize];
            part.holds = false;
            if part.closed {
                continue;
            }
            // What it has used beyond that is not granted again when it is freed.
            part.level = self.resource.reserved;
            if part.held() > part.level && part.granted > part.received {
                part.recall = true;
                self.note(at);
                return;
            }
        }
    }

    /// Whether the peer should be sent an [`Allowance`] now: it has no more left than it has been granted since, which is half of
    /// what it can have.
    pub(super) fn is_due(&self, at: u32) -> bool {
        let part = &self.parts[at as usize];
        if part.closed {
            return false;
        }
        let (more, left) = (part.granted - part.announced, part.announced - part.received);
        let freed = part.freed - part.freed_announced;
        let is_short = left <= more || part.asked;
        part.recall
            || part.fresh
            || (more > 0 && is_short)
            // Without more, for the reason that the sender gives for being blocked.
            || (left == 0 && freed > self.resource.window / 4)
    }

    /// What the peer is to be sent.
    pub(super) fn take_allowance(&mut self, at: u32) -> Allowance {
        let part = &mut self.parts[at as usize];
        (part.announced, part.freed_announced) = (part.granted, part.freed);
        (part.asked, part.fresh) = (false, false);
        let recall = std::mem::take(&mut part.recall);
        Allowance { granted: part.granted, freed: part.freed, recall }
    }

    /// How much of what the peer used is free again: it is to be sent that.
    pub(super) fn take_freed(&mut self, at: u32) -> u64 {
        let part = &mut self.parts[at as usize];
        part.freed_announced = part.freed;
        part.freed
    }

    /// The connection is parked, with nothing under way on it: what the peer did not use it has no more, as it knows.
    pub(super) fn park(&mut self, at: u32) {
        let level = self.resource.reserved;
        self.change(at, |part| {
            (part.granted, part.announced) = (part.received, part.received);
            (part.level, part.recall, part.asked) = (level, false, false);
        });
        self.serve();
    }

    /// There is a connection again: the peer gets what is reserved for it.
    pub(super) fn resume(&mut self, at: u32) {
        self.grant(at, u64::MAX);
        self.welcome(at);
    }

    /// The peer is gone: what it did not use is free. What it used is, once it is freed.
    pub(super) fn close(&mut self, at: u32) {
        self.change(at, |part| {
            part.closed = true;
            part.granted = part.received;
        });
        self.serve();
    }

    /// Whether a peer that is gone has nothing any more.
    pub(super) fn is_settled(&self, at: u32) -> bool {
        self.parts[at as usize].held() == 0
    }

    /// As much as is granted, used or not.
    pub(super) fn granted(&self) -> u64 {
        self.parts.iter().map(Part::held).sum()
    }
}
