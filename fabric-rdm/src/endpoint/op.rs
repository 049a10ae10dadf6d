//! Messages and receives as values: what to post, before it is posted.

use fabric::Slice;

use crate::matching::Pattern;

/// The payload of a message.
#[derive(Clone, Copy, Debug)]
pub enum PayloadRef<'a> {
    /// Bytes that are injected.
    Bytes(&'a [u8]),
    /// Part of a region.
    Slice(Slice<'a>),
}

impl PayloadRef<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            PayloadRef::Bytes(bytes) => bytes.len(),
            PayloadRef::Slice(slice) => slice.len(),
        }
    }
}

/// A message to be posted. Untagged, unless it gets a [tag](Send::tag).
///
/// A long message stays in its memory until it has met a receive. Where its region has
/// [`REMOTE_READ`](fabric::Access::REMOTE_READ), best with [`GRANTS_ONLY`](fabric::Access::GRANTS_ONLY), the target then reads it
/// from there, without a copy: exactly these bytes, and it alone. Without that right it is sent in pieces, which are copied.
#[derive(Clone, Copy, Debug)]
#[must_use = "a message is sent when it is posted"]
pub struct Send<'a> {
    pub(super) payload: PayloadRef<'a>,
    pub(super) tag: Option<u64>,
    pub(super) immediate: Option<u32>,
    pub(super) context: u64,
    pub(super) matched: bool,
    pub(super) fence: bool,
    pub(super) signaled: bool,
}

impl<'a> Send<'a> {
    fn with(payload: PayloadRef<'a>) -> Self {
        let (tag, immediate, context) = (None, None, 0);
        Send { payload, tag, immediate, context, matched: false, fence: false, signaled: true }
    }

    /// The bytes of `from`.
    pub fn new(from: impl Into<Slice<'a>>) -> Self {
        Self::with(PayloadRef::Slice(from.into()))
    }

    /// These bytes, which may be reused as soon as the post returns. At most
    /// [`Endpoint::max_inject`](crate::Endpoint::max_inject).
    pub fn inject(bytes: &'a [u8]) -> Self {
        Self::with(PayloadRef::Bytes(bytes))
    }

    /// Gives it a tag, so that only tagged receives take it.
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = Some(tag);
        self
    }

    /// 32 bits that come with the completion of its receive.
    pub fn immediate(mut self, value: u32) -> Self {
        self.immediate = Some(value);
        self
    }

    /// The value that comes back in the completion.
    pub fn context(mut self, context: u64) -> Self {
        self.context = context;
        self
    }

    /// Completes only when it has met a receive. Without this it completes when the target's library has it.
    pub fn matched(mut self) -> Self {
        self.matched = true;
        self
    }

    /// Starts only when the reads and atomics to that peer that were posted before it have finished, as
    /// [`Op::fence`](fabric::Op::fence).
    pub fn fence(mut self) -> Self {
        self.fence = true;
        self
    }

    /// No completion if it succeeds. [Counters](crate::Endpoint::counter) count it all the same.
    pub fn unsignaled(mut self) -> Self {
        self.signaled = false;
        self
    }

    /// What is sent.
    pub fn payload(&self) -> PayloadRef<'a> {
        self.payload
    }

    /// Its tag, if it has one.
    pub fn get_tag(&self) -> Option<u64> {
        self.tag
    }

    /// Its immediate data, if it carries some.
    pub fn get_immediate(&self) -> Option<u32> {
        self.immediate
    }

    /// The value that comes back in the completion.
    pub fn get_context(&self) -> u64 {
        self.context
    }

    /// Whether it completes only when it has met a receive.
    pub fn is_matched(&self) -> bool {
        self.matched
    }

    /// Whether it waits for reads and atomics before it.
    pub fn is_fenced(&self) -> bool {
        self.fence
    }

    /// Whether success has a completion.
    pub fn is_signaled(&self) -> bool {
        self.signaled
    }
}

/// A receive to be posted.
#[derive(Clone, Copy, Debug)]
#[must_use = "a receive takes a message when it is posted"]
pub struct Recv<'a> {
    pub(super) pattern: Pattern,
    pub(super) into: Slice<'a>,
    pub(super) context: u64,
    pub(super) min_free: Option<u64>,
    pub(super) max_messages: u64,
    pub(super) signaled: bool,
}

impl<'a> Recv<'a> {
    /// Takes the first message of the pattern into `into`, whose region needs
    /// [`LOCAL_WRITE`](fabric::Access::LOCAL_WRITE). A longer one is [`Truncated`](crate::Status::Truncated).
    pub fn new(pattern: Pattern, into: impl Into<Slice<'a>>) -> Self {
        let (into, context, min_free) = (into.into(), 0, None);
        Recv { pattern, into, context, min_free, max_messages: u64::MAX, signaled: true }
    }

    /// Takes messages one behind the other, until less than `min_free` bytes are free: each has a completion with its
    /// [offset](crate::Completion::offset), and the last of all is [`Released`](crate::Kind::Released).
    pub fn of_many(mut self, min_free: u64) -> Self {
        self.min_free = Some(min_free);
        self
    }

    /// One of many ends with so many messages at the latest. Without that there is no bound for empty ones, which use none of its
    /// room.
    pub fn max_messages(mut self, messages: u64) -> Self {
        self.max_messages = messages;
        self
    }

    /// The value that comes back in the completions.
    pub fn context(mut self, context: u64) -> Self {
        self.context = context;
        self
    }

    /// No completion if it succeeds. [Counters](crate::Endpoint::counter) count it all the same.
    pub fn unsignaled(mut self) -> Self {
        self.signaled = false;
        self
    }

    /// Which messages it takes.
    pub fn pattern(&self) -> Pattern {
        self.pattern
    }

    /// Where they go.
    pub fn slice(&self) -> Slice<'a> {
        self.into
    }

    /// As long as so many bytes are free, it takes one more message; `None`: it takes one.
    pub fn min_free(&self) -> Option<u64> {
        self.min_free
    }

    /// The most messages that one of many takes.
    pub fn get_max_messages(&self) -> u64 {
        self.max_messages
    }

    /// The value that comes back in the completions.
    pub fn get_context(&self) -> u64 {
        self.context
    }

    /// Whether success has a completion.
    pub fn is_signaled(&self) -> bool {
        self.signaled
    }
}
