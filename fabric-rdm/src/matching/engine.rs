//! The matcher: receives are posted, messages arrive, and each pair that fits meets once.

use ahash::RandomState;
use fabric_core::{Error, Result, unlikely};

use super::outcome::{Arrived, Ending, Match, MessageId, ReceiveId, ReleaseReason, Released};
use super::pattern::{Envelope, Pattern};
use super::posted::{Found, Posted, PostedReceive};
use super::slab::{MAX_VALUES, Slab};
use super::unexpected::{Message, Unexpected};
use crate::hash::keyed_hasher;
use crate::peers::Peer;

/// A receive of one message has no buffer of many.
const NO_BUFFER: u32 = u32::MAX;
/// A receive that met its message when it was posted has no place.
const NO_PLACE: u32 = u32::MAX;

/// How many there may be at a time: 2^31 - 1 of each, or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchLimits {
    /// Posted receives, with those of many messages that have not been [released](Released).
    pub receives: u32,
    /// Messages without a receive.
    pub messages: u32,
}

impl Default for MatchLimits {
    fn default() -> Self {
        MatchLimits { receives: MAX_VALUES, messages: MAX_VALUES }
    }
}

/// A receive to be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive {
    pattern: Pattern,
    capacity: u64,
    min_free: Option<u64>,
    max_messages: u64,
}

impl Receive {
    /// Takes one message, and has room for `capacity` bytes of it. A longer one is truncated.
    pub const fn new(pattern: Pattern, capacity: u64) -> Self {
        Receive { pattern, capacity, min_free: None, max_messages: u64::MAX }
    }

    /// Takes messages one behind the other, until less than `min_free` bytes are free, or not even one. With a minimum that
    /// no message exceeds, none is truncated.
    pub const fn of_many(self, min_free: u64) -> Self {
        Receive { min_free: Some(if min_free == 0 { 1 } else { min_free }), ..self }
    }

    /// One of many takes no more than so many: empty ones use none of its room. 0 is like 1.
    pub const fn max_messages(self, messages: u64) -> Self {
        Receive { max_messages: messages, ..self }
    }
}

/// What a receive of many messages has beside what each has.
#[derive(Debug)]
struct Buffer {
    min_free: u64,
    used: u64,
    /// Messages that it may take yet.
    left: u64,
    /// Messages that it took and that have not been delivered.
    under_way: u64,
    /// Why it takes no more.
    ended: Option<ReleaseReason>,
}

/// Posted receives with contexts `R`, and messages with payloads `M`: see the [module](super).
#[derive(Debug)]
pub struct Matcher<R, M> {
    posted: Posted<R>,
    unexpected: Unexpected<M>,
    buffers: Slab<Buffer>,
    hasher: RandomState,
    next_seq: u64,
}

impl<R: Copy, M> Matcher<R, M> {
    /// An empty one. Memory is taken as receives and messages come.
    ///
    /// # Errors
    /// [`Error::Internal`]: the system gives no random numbers, by which it is made safe from peers.
    pub fn new(limits: MatchLimits) -> Result<Self> {
        Ok(Matcher {
            posted: Posted::new(limits.receives),
            unexpected: Unexpected::new(limits.messages),
            buffers: Slab::new(limits.receives),
            hasher: keyed_hasher()?,
            next_seq: 0,
        })
    }

    /// Posts a receive. `matched` is called with each message that is there for it: one, or many.
    ///
    /// # Errors
    /// [`Error::Again`]: as many are posted as may be. [`Error::InvalidArgument`]: a buffer for many messages is smaller
    /// than what has to be free in it. Nothing was posted.
    #[inline]
    pub fn post(
        &mut self,
        receive: Receive,
        context: R,
        matched: impl FnMut(Match<R, M>),
    ) -> Result<ReceiveId> {
        if self.posted.is_full() {
            return Err(Error::Again);
        }
        match receive.min_free {
            None => self.post_one(receive, context, matched),
            Some(min_free) => self.post_many(receive, min_free, context, matched),
        }
    }

    #[inline]
    fn post_one(
        &mut self,
        receive: Receive,
        context: R,
        mut matched: impl FnMut(Match<R, M>),
    ) -> Result<ReceiveId> {
        let seq = self.take_seq();
        let Receive { pattern, capacity, .. } = receive;
        if let Some(message) = self.take_message(&pattern) {
            let receive = ReceiveId { seq, at: NO_PLACE };
            matched(match_one(receive, context, capacity, message));
            return Ok(receive);
        }
        let posted = PostedReceive::new(&pattern, seq, context, capacity, NO_BUFFER);
        let at = self.posted.insert(posted).ok_or(Error::Again)?;
        self.posted.link(at, &self.hasher);
        Ok(ReceiveId { seq, at })
    }

    fn post_many(
        &mut self,
        receive: Receive,
        min_free: u64,
        context: R,
        mut matched: impl FnMut(Match<R, M>),
    ) -> Result<ReceiveId> {
        let Receive { pattern, capacity, max_messages: left, .. } = receive;
        if capacity < min_free {
            let detail = format!(
                "the buffer has {capacity} bytes, and {min_free} have to be free in it: make it larger"
            );
            return Err(Error::invalid("receive", detail));
        }
        let buffer = Buffer { min_free, used: 0, left, under_way: 0, ended: None };
        let buffer = self.buffers.insert(buffer).ok_or(Error::Again)?;
        let seq = self.take_seq();
        let posted = PostedReceive::new(&pattern, seq, context, capacity, buffer);
        let at = self.posted.insert(posted).ok_or(Error::Again)?;
        let mut is_open = true;
        while is_open && let Some(message) = self.take_message(&pattern) {
            match self.meet_of_many(ReceiveId { seq, at }, message) {
                Ok(it) => matched(it),
                Err(_) => break,
            }
            is_open = self.buffers.get(buffer).is_some_and(|buffer| buffer.ended.is_none());
        }
        if is_open {
            self.posted.link(at, &self.hasher);
        }
        Ok(ReceiveId { seq, at })
    }

    /// How many messages had to wait, ever.
    pub(crate) fn arrived(&self) -> u64 {
        self.unexpected.arrived()
    }

    fn take_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq
    }

    #[inline]
    fn take_message(&mut self, pattern: &Pattern) -> Option<Message<M>> {
        let at = self.unexpected.find(pattern, &self.hasher)?;
        self.unexpected.remove(at, &self.hasher)
    }

    /// A message has arrived: of each peer in the order in which it sent them.
    ///
    /// # Errors
    /// The payload itself: no receive takes it, and as many messages wait as may.
    pub fn arrive(&mut self, envelope: Envelope, payload: M) -> Result<Arrived<R, M>, M> {
        self.arrive_as(envelope, payload, |payload| payload)
    }

    /// The same of a payload that is made what is kept of it if it has to wait.
    #[inline(always)] // one place that is executed for each message calls it
    pub(crate) fn arrive_as<P>(
        &mut self,
        envelope: Envelope,
        payload: P,
        keep: impl FnOnce(P) -> M,
    ) -> Result<Arrived<R, P>, P> {
        let mut message = Message { envelope, payload };
        if let Some(found) = self.posted.find(&envelope, &self.hasher) {
            match self.meet(&found, message) {
                Ok(it) => return Ok(Arrived::Matched(it)),
                Err(unmet) => message = unmet,
            }
        }
        if unlikely(self.unexpected.is_full()) {
            return Err(message.payload);
        }
        let message = Message { envelope, payload: keep(message.payload) };
        let at = self.unexpected.push(message, &self.hasher).unwrap_or(NO_PLACE);
        let seq = self.unexpected.get(at).map_or(0, |(seq, _)| seq);
        Ok(Arrived::Waits(MessageId { seq, at }))
    }

    /// A receive that was found takes a message. `Err`: there is no such receive.
    #[inline(always)] // one place that is executed for each message calls it
    fn meet<P>(&mut self, found: &Found, message: Message<P>) -> Result<Match<R, P>, Message<P>> {
        let Some(receive) = self.posted.get(found.at) else { return Err(message) };
        let id = ReceiveId { seq: receive.seq, at: found.at };
        if unlikely(receive.buffer != NO_BUFFER) {
            return self.meet_of_many(id, message);
        }
        let (context, capacity) = (receive.context, receive.capacity);
        self.posted.take(found);
        Ok(match_one(id, context, capacity, message))
    }

    fn meet_of_many<P>(
        &mut self,
        id: ReceiveId,
        message: Message<P>,
    ) -> Result<Match<R, P>, Message<P>> {
        let receive = self.posted.get(id.at);
        let Some((context, capacity, buffer)) = receive.map(|r| (r.context, r.capacity, r.buffer))
        else {
            return Err(message);
        };
        let Some(buffer) = self.buffers.get_mut(buffer) else { return Err(message) };
        let Message { envelope, payload } = message;
        let (offset, len) = (buffer.used, envelope.len.min(capacity - buffer.used));
        buffer.used += len;
        buffer.left = buffer.left.saturating_sub(1);
        buffer.under_way += 1;
        if capacity - buffer.used < buffer.min_free || buffer.left == 0 {
            buffer.ended = Some(ReleaseReason::Full);
            self.posted.unlink(id.at, &self.hasher);
        }
        Ok(Match { receive: id, context, envelope, payload, offset, len, of_many: true })
    }

    /// The bytes of a message are in the buffer of a receive of many: to be called once for each such
    /// [match](Match::of_many). Gives the receive's end, if that was the last message in it.
    pub fn delivered(&mut self, receive: ReceiveId) -> Option<Released<R>> {
        let number = self.posted.get(receive.at).filter(|r| r.seq == receive.seq)?.buffer;
        let buffer = self.buffers.get_mut(number)?;
        buffer.under_way = buffer.under_way.saturating_sub(1);
        self.release_if_ended(receive)
    }

    /// Ends a receive of many that takes no more, once all is in it.
    fn release_if_ended(&mut self, id: ReceiveId) -> Option<Released<R>> {
        let number = self.posted.get(id.at)?.buffer;
        let buffer = self.buffers.get(number)?;
        let reason = buffer.ended?;
        if buffer.under_way > 0 {
            return None;
        }
        let used = self.buffers.remove(number)?.used;
        let context = self.posted.remove(id.at, &self.hasher)?.context;
        Some(Released { receive: id, context, used, reason })
    }

    /// Ends a receive, unless it has met its message, or is one for many that is full or was ended before. Each receive has
    /// exactly one outcome, whatever the answer.
    pub fn cancel(&mut self, receive: ReceiveId) -> Ending<R> {
        match self.posted.get(receive.at) {
            Some(posted) if posted.seq == receive.seq && posted.is_linked() => {
                self.end(receive, ReleaseReason::Canceled)
            }
            _ => Ending::NotThere,
        }
    }

    /// Ends a receive that is there.
    fn end(&mut self, id: ReceiveId, reason: ReleaseReason) -> Ending<R> {
        let number = self.posted.get(id.at).map_or(NO_BUFFER, |receive| receive.buffer);
        let Some(buffer) = self.buffers.get_mut(number) else {
            let receive = self.posted.remove(id.at, &self.hasher);
            return receive.map_or(Ending::NotThere, |receive| Ending::Ended(receive.context));
        };
        buffer.ended.get_or_insert(reason);
        self.posted.unlink(id.at, &self.hasher);
        self.release_if_ended(id).map_or(Ending::WithLast, Ending::Released)
    }

    /// Finds the oldest message without a receive that a pattern takes. It stays where it is: another call, or a receive
    /// posted next, can find it as well.
    pub fn probe(&mut self, pattern: &Pattern) -> Option<(MessageId, Envelope)> {
        let at = self.unexpected.find(pattern, &self.hasher)?;
        let (seq, message) = self.unexpected.get(at)?;
        Some((MessageId { seq, at }, message.envelope))
    }

    /// What came with a message that [`probe`](Self::probe) or [`arrive`](Self::arrive) named. `None`: it has been taken.
    pub fn payload(&self, message: MessageId) -> Option<&M> {
        let (seq, found) = self.unexpected.get(message.at)?;
        (seq == message.seq).then_some(&found.payload)
    }

    /// Takes out a message that [`probe`](Self::probe) or [`arrive`](Self::arrive) named: no receive meets it now, and
    /// the caller does with it what it likes. `None`: it has been taken before.
    pub fn claim(&mut self, message: MessageId) -> Option<Message<M>> {
        let (seq, _) = self.unexpected.get(message.at)?;
        if seq != message.seq {
            return None;
        }
        self.unexpected.remove(message.at, &self.hasher)
    }

    /// A peer is lost: receives from it alone end. Its messages stay, and receives from any source.
    ///
    /// `ended` is called with each receive that ends, in no order: [`Ending::WithLast`] is not among them, as it is not at
    /// its end yet. Takes time in proportion to all posted receives.
    pub fn end_peer(&mut self, peer: Peer, mut ended: impl FnMut(ReceiveId, Ending<R>)) {
        for at in 0..self.posted.end() {
            let Some(receive) = self.posted.get(at) else { continue };
            if receive.pattern().source() != Some(peer) || !receive.is_linked() {
                continue;
            }
            let id = ReceiveId { seq: receive.seq, at };
            match self.end(id, ReleaseReason::PeerGone) {
                Ending::WithLast | Ending::NotThere => {}
                outcome => ended(id, outcome),
            }
        }
    }

    /// A peer is removed: as [`end_peer`](Self::end_peer), and its messages go, each to `dropped`, in no order. Takes time
    /// in proportion to all posted receives and all messages without a receive.
    pub fn remove_peer(
        &mut self,
        peer: Peer,
        ended: impl FnMut(ReceiveId, Ending<R>),
        mut dropped: impl FnMut(Message<M>),
    ) {
        self.end_peer(peer, ended);
        for at in 0..self.unexpected.end() {
            let source = self.unexpected.get(at).map(|(_, message)| message.envelope.source);
            if source == Some(peer)
                && let Some(message) = self.unexpected.remove(at, &self.hasher)
            {
                dropped(message);
            }
        }
    }

    /// Receives that have not ended.
    pub fn posted_len(&self) -> usize {
        self.posted.len()
    }

    /// Messages without a receive.
    pub fn waiting_len(&self) -> usize {
        self.unexpected.len()
    }
}

#[inline]
fn match_one<R, M>(
    receive: ReceiveId,
    context: R,
    capacity: u64,
    message: Message<M>,
) -> Match<R, M> {
    let Message { envelope, payload } = message;
    let len = envelope.len.min(capacity);
    Match { receive, context, envelope, payload, offset: 0, len, of_many: false }
}
