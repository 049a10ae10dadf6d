//! Receives that ends share.
//!
//! Messages of one end come in their order, those of several in any. So it is open which receive a message takes as long as
//! others compete for it, and known when the receive has ended. Until then anything may be in its memory, if a message may
//! take it, and what is behind the message at its sender may have happened or not. (The model is not as strict as the
//! contract in one thing: that stays so when another message has taken the last receive, and this one waits again.)
//!
//! | rule | here |
//! |---|---|
//! | a message takes the receive that was posted first of those that are left | [`Model::check_turn`] |
//! | whichever end it is of: its completion names that | [`Model::end_shared`] |
//! | a message that finds none waits, and what is behind it; as many are taken as there are receives | [`Model::can_take`], [`Model::surely_takes`] |
//! | the receive that a message has begun ends with the connection, by the end's name; no other does | [`Model::end_shared`] |
//! | what was reported to a sender as received, or too long, ends a receive, though the end was dropped | [`Model::heard_all`] |
//! | depth; no post to an end that shares | [`Model::shared_received`], [`Model::recv_refusals`] |
//! | the queue is there as long as its handle or an end; then what is left is `Canceled`, by its own name | [`Model::end_left`] |

use fabric::{Access, Completion, Error, OpKind, Status};

use super::call::{Mistake, Refusals};
use super::queue::{Fate, QueueSpec, SharedReceive};
use super::target::first;
use super::{CompletionOf, Eyes, Model, Posted};
use crate::check::{Failed, Outcome, show};
use crate::random::program::{Part, SharedSpec, What};

/// What may become of messages.
impl Model {
    /// Messages that may take a shared receive of this end's, or hold one: their numbers in the peer's send queue.
    pub(super) fn messages_coming(&self, at: usize) -> impl Iterator<Item = usize> {
        let (end, peer) = (&self.ends[at], &self.ends[at ^ 1]);
        let none = end.shared.is_none() || end.heard || end.recv_failed;
        let last = peer.culprit.unwrap_or(usize::MAX);
        let comes = move |&index: &usize| {
            let op = &peer.sends[index];
            index <= last && (!end.dead || op.started || op.early.is_some())
        };
        let messages = if none { &[] } else { peer.messages.get(end.arrived..).unwrap_or(&[]) };
        messages.iter().copied().filter(comes)
    }

    /// Of these, those that have surely taken one: their senders know that they were received, or too long.
    fn messages_held(&self, at: usize) -> impl Iterator<Item = usize> {
        let sends = &self.ends[at ^ 1].sends;
        let holds = |index: &usize| sends[*index].done || sends[*index].fate == Fate::TooLong;
        self.messages_coming(at).filter(holds)
    }

    /// Messages of the other ends of the queue that an end shares.
    fn others(&self, at: usize, count: impl Fn(usize) -> usize) -> usize {
        let Some(queue) = self.ends[at].shared else { return 0 };
        self.shared[queue].ends.iter().filter(|end| **end != at).map(|end| count(*end)).sum()
    }

    fn left(&self, at: usize) -> usize {
        self.ends[at].shared.map_or(0, |queue| self.shared[queue].left().count())
    }

    /// Whether a message of an end finds a receive, if each other end of the queue takes so many before.
    fn finds_receive(&self, at: usize, message: usize, before: impl Fn(usize) -> usize) -> bool {
        let peer = &self.ends[at ^ 1];
        if peer.shared.is_none() {
            return message < peer.recvs.len();
        }
        message < peer.arrived + self.left(at ^ 1).saturating_sub(self.others(at ^ 1, before))
    }

    /// Whether a message of an end may take a receive now.
    pub(super) fn can_take(&self, at: usize, message: usize) -> bool {
        self.finds_receive(at, message, |end| self.messages_held(end).count())
    }

    /// Whether it takes one in bounded time, whichever other messages do.
    pub(super) fn surely_takes(&self, at: usize, message: usize) -> bool {
        self.finds_receive(at, message, |end| self.messages_coming(end).count())
    }

    /// How many operations of a send queue end in bounded time, if nothing more is posted.
    pub(super) fn due(&self, at: usize) -> usize {
        let (end, peer) = (&self.ends[at], &self.ends[at ^ 1]);
        if peer.shared.is_none() || peer.dead || end.culprit.is_some() {
            return end.started;
        }
        for op in &end.sends[end.started..] {
            if op.message.is_some_and(|message| !self.surely_takes(at, message)) {
                return op.id.index;
            }
            if op.early == Some(Fate::Refused) {
                break;
            }
        }
        end.sends.len()
    }

    /// Completions of shared receives that must come by this end's name.
    pub(super) fn owed_shared(&self, at: usize) -> usize {
        if self.may_end(at) {
            return self.messages_held(at).count();
        }
        let due = self.due(at ^ 1);
        self.messages_coming(at).filter(|index| *index < due).count()
    }

    /// Whether the receive that a message takes may be too short for it.
    pub(super) fn may_be_too_long(&self, at: usize, index: usize) -> bool {
        let op = &self.ends[at].sends[index];
        let (Some(queue), Some(message)) = (self.ends[at ^ 1].shared, op.message) else {
            return false;
        };
        let open = op.spec.what == What::Send && !op.started && op.early.is_some();
        let is_short = |recv: &SharedReceive| recv.len() < op.spec.len();
        open && self.can_take(at, message) && self.shared[queue].left().any(is_short)
    }

    /// Whether some receive is long enough for a message.
    pub(super) fn can_fit(&self, at: usize, index: usize) -> bool {
        let op = &self.ends[at].sends[index];
        let Some(queue) = self.ends[at ^ 1].shared else { return true };
        let open = self.messages_coming(at ^ 1).any(|message| message == index);
        let fits = |recv: &SharedReceive| recv.len() >= op.spec.len();
        !open || op.spec.what != What::Send || self.shared[queue].left().any(fits)
    }

    /// A message was too long for the receive that it took.
    pub(super) fn is_too_long(&mut self, at: usize, index: usize) {
        self.ends[at].sends[index].fate = Fate::TooLong;
        self.ends[at].culprit = Some(index);
    }

    /// What messages may leave in the memory of the receives that they may take.
    pub(super) fn cover_shared(&mut self) {
        let now = self.now;
        for queue in 0..self.shared.len() {
            let ends = &self.shared[queue].ends;
            let messages =
                || ends.iter().flat_map(|at| self.messages_coming(*at).map(move |i| (at ^ 1, i)));
            let sends =
                |(at, index): (usize, usize)| self.ends[at].sends[index].spec.what == What::Send;
            let count = if messages().any(sends) { messages().count() } else { 0 };
            let left = self.shared[queue].recvs.iter_mut().filter(|recv| !recv.ended);
            for (place, recv) in left.enumerate() {
                if place < count {
                    let bytes = &mut self.bytes;
                    recv.cover.get_or_insert_with(|| bytes.unknown(&recv.runs, now));
                } else if let Some(cover) = recv.cover.take() {
                    self.bytes.never(cover, now);
                }
            }
        }
    }
}

/// What happens to the queue.
impl Model {
    /// Whether a program posts to the queue.
    pub(in crate::random) fn can_share(&self, queue: usize, parts: &[Part]) -> bool {
        self.shared.get(queue).is_some_and(|queue| !queue.dropped)
            && parts.iter().all(|part| self.has_handle(part.region))
    }

    /// A receive was posted to a shared queue. Says whether it was taken.
    pub(in crate::random) fn shared_received(
        &mut self,
        at: usize,
        parts: &[Part],
        context: u64,
        result: Result<(), &Error>,
    ) -> Result<bool, Failed> {
        self.tick();
        let queue = &self.shared[at];
        let SharedSpec { domain, depth, segments } = queue.spec;
        let mut refusals = Refusals::default();
        if queue.left().count() >= depth {
            refusals.sure.push(Mistake::Again);
        }
        let spec = QueueSpec { domain, segments };
        refusals.sure.extend(self.part_mistakes(&spec, parts, Access::LOCAL_WRITE));
        if !refusals.check(&format!("a receive of s{at}"), result)? {
            return Ok(false);
        }
        let runs = self.runs(parts);
        let regions = parts.iter().filter(|part| part.len > 0).map(|part| part.region).collect();
        let queue = &mut self.shared[at];
        let index = queue.recvs.len();
        queue.recvs.push(SharedReceive { runs, regions, ended: false, cover: None, takers: None });
        self.contexts.insert(context, Posted::Shared { queue: at, index });
        for end in self.shared[at].ends.clone() {
            self.advance(end ^ 1);
        }
        self.cover_shared();
        Ok(true)
    }

    /// The handle of a shared queue was dropped.
    pub(in crate::random) fn shared_dropped(&mut self, queue: usize) {
        self.tick();
        self.shared[queue].dropped = true;
        self.let_go();
    }

    /// Whether the queue is gone: its handle and all its ends are.
    fn is_gone(&self, queue: usize) -> bool {
        let queue = &self.shared[queue];
        queue.dropped && queue.ends.iter().all(|end| self.ends[*end].dropped)
    }

    /// How many shared receives use a region.
    pub(super) fn shared_uses(&self, region: usize) -> usize {
        let there = (0..self.shared.len()).filter(|queue| !self.is_gone(*queue));
        let recvs = there.flat_map(|queue| self.shared[queue].left());
        recvs.filter(|recv| recv.regions.contains(&region)).count()
    }

    /// A receive of a shared queue ended.
    pub(super) fn end_shared(
        &mut self,
        queue: usize,
        index: usize,
        done: &Completion,
        name: CompletionOf,
        eyes: Eyes<'_>,
    ) -> Outcome {
        let what = format!("s{queue}, receive {index}");
        let fail = |text: &str| Err(Failed::new(format!("{what}: {text}"), show(done)));
        if self.shared[queue].recvs[index].ended {
            return fail("to end once");
        }
        let at = match name {
            CompletionOf::Shared(named) if named == queue => {
                return self.end_left(queue, index, done);
            }
            CompletionOf::End(at) if self.ends[at].shared == Some(queue) => at,
            _ => return fail("the name of an end that shares it"),
        };
        self.check_turn(queue, index, at)?;
        let Some(sender) = self.messages_coming(at).next() else {
            return fail("no end: no message can have come to the end that it names");
        };
        self.confirm(at ^ 1, sender);
        let recv = &mut self.shared[queue].recvs[index];
        recv.ended = true;
        let (room, runs, cover) = (recv.len(), std::mem::take(&mut recv.runs), recv.cover.take());
        let op = &self.ends[at ^ 1].sends[sender];
        let is_long = op.spec.what == What::Send && op.spec.len() > room;
        let (posted, len, effect) = (op.posted, op.spec.len(), op.effect);
        match done.status {
            Status::Ok if is_long => return fail("TooLong"),
            Status::TooLong if is_long && !op.done && op.started => {
                self.is_too_long(at ^ 1, sender);
            }
            _ => {}
        }
        if let Some(cover) = cover {
            let since = self.bytes.started(cover).max(posted);
            self.bytes.never(cover, self.now);
            if let Some(effect) = effect.filter(|_| self.sends_message(at ^ 1, sender)) {
                self.bytes.start(effect, &first(&runs, len), since);
            }
        }
        (self.ends[at].arrived, self.ends[at].last_shared) =
            (self.ends[at].arrived + 1, Some(index));
        self.end_message(at, &what, Some(sender), &runs, done, eyes)
    }

    fn sends_message(&self, at: usize, index: usize) -> bool {
        self.ends[at].sends[index].spec.what == What::Send
    }

    /// Whether it is a receive's turn to end by the name of an end: those posted before it that are left have been taken by
    /// messages of other ends.
    fn check_turn(&mut self, queue: usize, index: usize, at: usize) -> Outcome {
        let what = format!("s{queue}, receive {index}");
        let end = &self.ends[at];
        if end.last_shared.is_some_and(|last| last > index) {
            let before = format!("{what}, to end before a later one of e{at}");
            return Err(Failed::new(before, "it did not"));
        }
        let takers = self.shared[queue].recvs[index].takers.as_ref();
        if takers.is_some_and(|takers| end.arrived >= takers[at]) {
            let text = format!(
                "{what}, to be taken by a message that was sent before a later one was taken"
            );
            return Err(Failed::new(text, format!("message {} of e{}", end.arrived, at ^ 1)));
        }
        let others = self.others(at, |end| self.messages_coming(end).count());
        let sent: Vec<_> =
            (0..self.ends.len()).map(|end| self.ends[end ^ 1].messages.len()).collect();
        let left = self.shared[queue].recvs[..index].iter_mut().filter(|recv| !recv.ended);
        let mut skipped = 0;
        for recv in left {
            recv.takers.get_or_insert_with(|| sent.clone());
            skipped += 1;
        }
        if skipped > others {
            let text = format!("{skipped} receives before {what} to be taken first");
            return Err(Failed::new(text, format!("{others} messages of other ends")));
        }
        Ok(())
    }

    /// A receive ended that no message took: the queue is gone.
    fn end_left(&mut self, queue: usize, index: usize, done: &Completion) -> Outcome {
        let what = format!("s{queue}, receive {index}");
        let held = self.shared[queue].ends.iter().map(|end| self.messages_held(*end).count());
        if !self.is_gone(queue) || self.shared[queue].left().count() <= held.sum() {
            return Err(Failed::new(format!("{what}, to be there for a message"), show(done)));
        }
        if (done.status, done.kind, done.len) != (Status::Canceled, OpKind::Recv, 0)
            || done.immediate.is_some()
        {
            return Err(Failed::new(format!("{what}, to be canceled"), show(done)));
        }
        let recv = &mut self.shared[queue].recvs[index];
        recv.ended = true;
        if let Some(cover) = recv.cover.take() {
            self.bytes.never(cover, self.now);
        }
        Ok(())
    }

    /// Every completion of a domain was taken: no more come by the names of ends that were dropped.
    pub(in crate::random) fn heard_all(&mut self, domain: usize) -> Outcome {
        for at in 0..self.ends.len() {
            let end = &self.ends[at];
            if end.spec.domain != domain || !end.dropped || end.heard {
                continue;
            }
            if let Some(index) = self.messages_held(at).next() {
                let op = &self.ends[at ^ 1].sends[index];
                let what = format!("e{}, operation {index} ({})", at ^ 1, op.spec);
                let text =
                    format!("{what}, which its sender knows to have taken a receive, to end that");
                return Err(Failed::new(text, "nothing more comes"));
            }
            self.ends[at].heard = true;
        }
        self.cover_shared();
        Ok(())
    }

    /// Whether messages come to a shared queue that have no receive, and how many receives it has.
    fn is_wanted(&self, queue: usize) -> bool {
        let waits =
            |at: &usize| !self.ends[*at].reported && self.messages_coming(*at).next().is_some();
        self.shared[queue].ends.iter().any(waits)
    }

    /// Whether nothing more happens at a shared queue: it has no receive left, or no message comes.
    pub(in crate::random) fn is_at_rest(&self, queue: usize) -> bool {
        self.shared[queue].left().next().is_none() || !self.is_wanted(queue)
    }

    /// Whether messages wait for receives of a shared queue that is at rest.
    pub(in crate::random) fn wants_shared(&self, queue: usize) -> bool {
        self.is_wanted(queue) && !self.shared[queue].dropped
    }

    /// The shared queue that an end takes receives from.
    pub(in crate::random) fn shared_by(&self, at: usize) -> Option<usize> {
        self.ends[at].shared
    }

    /// Whether a shared queue takes another receive.
    pub(in crate::random) fn has_place(&self, queue: usize) -> bool {
        let queue = &self.shared[queue];
        !queue.dropped && queue.left().count() < queue.spec.depth
    }

    /// How many completions must come by the queue's own name, at most.
    pub(in crate::random) fn owed_left(&self, queue: usize) -> usize {
        if self.is_gone(queue) { self.shared[queue].left().count() } else { 0 }
    }
}
