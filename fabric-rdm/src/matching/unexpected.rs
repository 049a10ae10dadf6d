//! Messages without a receive: which of them a receive takes that is posted, or a probe finds.
//!
//! All are in a log, by age. A message has a key in each shape that a receive can have, so for a shape to find its oldest
//! message at once, all messages have to be in an index of that shape. An index costs each message that comes, so there is
//! one only for shapes that are looked for:
//!
//! - it is built when a receive of the shape looks for a message among more than a few. That takes as long as going through
//!   the log once, which was the alternative;
//! - it is given up when more messages were put into it without a look than there are messages, and a few hundred. These
//!   pay for building it again, so a message costs constant time, amortised, whatever is looked for and when;
//! - four shapes are exact and can always have one. Shapes with bits to ignore share eight. An index gives way to that of
//!   another shape only if the last 64 looks with bits to ignore were not for it. So a program that uses nine in turn goes
//!   through the log for one of them, and does not build indices all the time.

use ahash::RandomState;

use super::index::Index;
use super::links::LinkTable;
use super::pattern::{
    CLASSES, ClassSet, Envelope, FIXED, Key, Pattern, Shape, classes_of_kind, members,
};
use super::slab::Slab;

/// As many messages are gone through without an index: no look into one is faster.
const FEW: usize = 4;
/// An index is given up at the earliest after so many messages that it was not looked into for. Few in tests, whose
/// programs are short.
const UNUSED: usize = if cfg!(test) { 8 } else { 256 };
/// An index gives way at the earliest after so many looks for other shapes with bits to ignore.
const IDLE: u64 = if cfg!(test) { 8 } else { 64 };

/// A message: its envelope and its payload, or where that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<M> {
    /// What is known of it.
    pub envelope: Envelope,
    /// As it arrived.
    pub payload: M,
}

/// In a cache line of its own: among thousands, one access to memory finds all of it.
#[derive(Debug)]
#[repr(align(64))]
struct Stored<M> {
    message: Message<M>,
}

#[derive(Debug)]
struct MessageClass {
    shape: Shape,
    index: Index,
    links: LinkTable,
    /// Messages that were put into it since it was last looked into.
    unused: usize,
    /// The number of the last look, among those with bits to ignore.
    looked: u64,
}

/// A message that is there, or was: then another one has its place, or none.
#[derive(Clone, Copy, Debug)]
struct Logged {
    seq: u64,
    at: u32,
}

/// Messages without a receive.
#[derive(Debug)]
pub(super) struct Unexpected<M> {
    messages: Slab<Stored<M>>,
    log: Vec<Logged>,
    /// For each place the number of its message among all that were ever stored, from 1; 0: it has none. Apart from the
    /// messages, so that to clean up the log takes a tenth of the memory through the cache.
    seqs: Vec<u64>,
    classes: [MessageClass; CLASSES],
    /// The classes whose index has all messages of its kind; that of the others is empty.
    built: ClassSet,
    /// Looks with bits to ignore, so far.
    looks: u64,
    next_seq: u64,
}

impl<M> Unexpected<M> {
    pub(super) fn new(max: u32) -> Self {
        let class = |class| MessageClass {
            shape: Shape::of_class(class),
            index: Index::default(),
            links: LinkTable::default(),
            unused: 0,
            looked: 0,
        };
        Unexpected {
            messages: Slab::new(max),
            log: Vec::new(),
            seqs: Vec::new(),
            classes: std::array::from_fn(class),
            built: 0,
            looks: 0,
            next_seq: 1,
        }
    }

    /// How many messages there were, ever.
    pub(super) fn arrived(&self) -> u64 {
        self.next_seq - 1
    }

    pub(super) fn is_full(&self) -> bool {
        self.messages.is_full()
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// All messages have numbers below it.
    pub(super) fn end(&self) -> u32 {
        self.messages.end()
    }

    /// A message, and its number among all that were ever stored.
    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<(u64, &Message<M>)> {
        let seq = *self.seqs.get(at as usize)?;
        self.messages.get(at).map(|stored| (seq, &stored.message))
    }

    /// Adds a message, as the youngest. `None`: it is full.
    #[inline]
    pub(super) fn push(&mut self, message: Message<M>, hasher: &RandomState) -> Option<u32> {
        let envelope = message.envelope;
        let at = self.messages.insert(Stored { message })?;
        self.log(at);
        for number in members(self.built & classes_of_kind(&envelope)) {
            let class = &mut self.classes[number];
            class.unused += 1;
            if class.unused > UNUSED + self.messages.len() {
                self.give_up(number);
            } else {
                class.push(at, &envelope, &self.messages, hasher);
            }
        }
        Some(at)
    }

    /// Adds to the log.
    #[inline]
    fn log(&mut self, at: u32) {
        let seq = self.next_seq;
        self.next_seq += 1;
        if self.seqs.len() < self.messages.end() as usize {
            self.seqs.resize(self.messages.end() as usize, 0);
        }
        self.seqs[at as usize] = seq;
        self.log.push(Logged { seq, at });
    }

    /// A message has left. It stays in the log until what has left is most of that: so to leave costs a constant, and the
    /// log is never much longer than what there is.
    #[inline]
    fn left(&mut self, at: u32) {
        self.seqs[at as usize] = 0;
        if self.log.len() > 4 * self.messages.len().max(FEW) {
            let seqs = &self.seqs;
            self.log.retain(|logged| is_there(seqs, logged));
        }
    }

    /// The oldest message that a pattern takes.
    #[inline]
    pub(super) fn find(&mut self, pattern: &Pattern, hasher: &RandomState) -> Option<u32> {
        if self.messages.is_empty() {
            return None;
        }
        match self.class_for(pattern.shape(), hasher) {
            Some(number) => {
                let (key, class) = (pattern.key(), &self.classes[number]);
                let has_key = |at| key_at(&self.messages, class.shape, at) == Some(key);
                class.index.first(key.hash(hasher), has_key)
            }
            None => {
                let takes = |logged: &&Logged| {
                    let stored = self.messages.get(logged.at);
                    is_there(&self.seqs, logged)
                        && stored.is_some_and(|stored| pattern.matches(&stored.message.envelope))
                };
                self.log.iter().find(takes).map(|logged| logged.at)
            }
        }
    }

    /// The class whose index has all messages, for a shape that is looked for. `None`: go through the list.
    #[inline]
    fn class_for(&mut self, shape: Shape, hasher: &RandomState) -> Option<usize> {
        let number = match shape.fixed_class() {
            Some(class) => Some(class),
            None => {
                self.looks += 1;
                self.masked_class(shape)
            }
        }?;
        if self.classes[number].shape != shape {
            self.give_up(number);
        }
        if self.built & (1 << number) == 0 {
            if self.messages.len() <= FEW {
                return None;
            }
            self.build(number, shape, hasher);
        }
        let class = &mut self.classes[number];
        (class.unused, class.looked) = (0, self.looks);
        Some(number)
    }

    /// The class that a shape with bits to ignore has or may take.
    fn masked_class(&self, shape: Shape) -> Option<usize> {
        let is_built = |class: usize| self.built & (1 << class) != 0;
        let has_shape = |class: &usize| is_built(*class) && self.classes[*class].shape == shape;
        let may_give_way =
            |class: &usize| !is_built(*class) || self.looks - self.classes[*class].looked > IDLE;
        (FIXED..CLASSES)
            .find(has_shape)
            .or_else(|| (FIXED..CLASSES).find(|class| !is_built(*class)))
            .or_else(|| (FIXED..CLASSES).find(may_give_way))
    }

    /// The index of a class is not kept any more.
    #[cold]
    fn give_up(&mut self, number: usize) {
        self.classes[number].index.clear();
        self.built &= !(1 << number);
    }

    /// Puts all messages into the index of a class, which is from now on that of this shape.
    #[cold]
    fn build(&mut self, number: usize, shape: Shape, hasher: &RandomState) {
        let class = &mut self.classes[number];
        class.shape = shape;
        for logged in self.log.iter().filter(|logged| is_there(&self.seqs, logged)) {
            let Some(stored) = self.messages.get(logged.at) else { continue };
            let envelope = &stored.message.envelope;
            if classes_of_kind(envelope) & (1 << number) != 0 {
                class.push(logged.at, envelope, &self.messages, hasher);
            }
        }
        self.built |= 1 << number;
    }

    /// Takes a message out.
    #[inline]
    pub(super) fn remove(&mut self, at: u32, hasher: &RandomState) -> Option<Message<M>> {
        let Stored { message } = self.messages.remove(at)?;
        self.left(at);
        let envelope = &message.envelope;
        for number in members(self.built & classes_of_kind(envelope)) {
            let MessageClass { shape, index, links, .. } = &mut self.classes[number];
            index.remove(links, at, shape.key(envelope).hash(hasher));
        }
        Some(message)
    }
}

impl MessageClass {
    #[inline]
    fn push<M>(
        &mut self,
        at: u32,
        envelope: &Envelope,
        messages: &Slab<Stored<M>>,
        hasher: &RandomState,
    ) {
        let (shape, key) = (self.shape, self.shape.key(envelope));
        let key_of = |at| key_at(messages, shape, at);
        self.links.grow(messages.end());
        self.index.push(
            &mut self.links,
            at,
            key.hash(hasher),
            |_, at| key_of(at) == Some(key),
            |_, at| key_of(at).map_or(0, |key| key.hash(hasher)),
        );
    }
}

#[inline]
fn key_at<M>(messages: &Slab<Stored<M>>, shape: Shape, at: u32) -> Option<Key> {
    messages.get(at).map(|stored| shape.key(&stored.message.envelope))
}

/// Whether a message in the log has not left.
#[inline]
fn is_there(seqs: &[u64], logged: &Logged) -> bool {
    seqs.get(logged.at as usize) == Some(&logged.seq)
}

#[cfg(test)]
mod tests {
    use super::super::slab::slot_len;
    use super::*;
    use crate::hash::keyed_hasher;
    use crate::peers::Peer;

    /// Else each look for what is not there would go through all that ever was.
    #[test]
    fn the_log_shrinks_with_the_messages() {
        let (mut unexpected, hasher) = (Unexpected::new(1000), keyed_hasher().unwrap());
        let envelope = Envelope { source: Peer::from_bits(0), tag: Some(0), len: 0 };
        for payload in 0..1000 {
            unexpected.push(Message { envelope, payload }, &hasher);
        }
        for at in 0..998 {
            unexpected.remove(at, &hasher);
            assert!(unexpected.log.len() <= 4 * unexpected.len().max(FEW));
        }
        assert_eq!(unexpected.find(&Pattern::tagged(0), &hasher), Some(998));
        assert_eq!(unexpected.find(&Pattern::tagged(1), &hasher), None);
    }

    #[test]
    fn a_message_is_one_cache_line() {
        assert_eq!(slot_len::<Stored<u64>>(), 64);
    }
}
