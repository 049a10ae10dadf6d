//! Posted receives: which of them an arriving message meets.
//!
//! Each receive is in one class, that of the shape of its pattern: exact ones have four classes, those with bits to ignore
//! share eight. A class finds its oldest receive for a message by one look into its index. A shape has a class while
//! receives of it are posted; where eight shapes have one, receives of a ninth are in a list that messages go through.
//! A message looks into each class that has receives, and into the list as far as that is older than what it has found.

use ahash::RandomState;
use fabric_core::{cold_path, unlikely};

use super::index::Index;
use super::links::{Chain, Link, Links};
use super::pattern::{
    CLASSES, ClassSet, Envelope, FIXED, Key, Pattern, Shape, classes_of_kind, members,
};
use super::slab::Slab;

/// Where a receive is that is in no class, but in the list.
const REST: u8 = CLASSES as u8;
/// Where one is that takes no message any more, or none yet.
const NOWHERE: u8 = REST + 1;

/// A posted receive. In a cache line of its own, with its links: among thousands, one access to memory finds all of it.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct PostedReceive<R> {
    key: Key,
    /// These three are its shape, which would have a word for the last two.
    ignore: u64,
    directed: bool,
    tagged: bool,
    place: u8,
    link: Link,
    /// Its number among the buffers of many messages; without a meaning in a receive of one.
    pub(super) buffer: u32,
    /// Its number among all that were ever posted.
    pub(super) seq: u64,
    pub(super) context: R,
    /// As many bytes as it has room for.
    pub(super) capacity: u64,
}

impl<R> PostedReceive<R> {
    /// One that is not linked yet.
    pub(super) fn new(pattern: &Pattern, seq: u64, context: R, capacity: u64, buffer: u32) -> Self {
        let Shape { ignore, directed, tagged } = pattern.shape();
        let (key, place, link) = (pattern.key(), NOWHERE, Link::default());
        PostedReceive { key, ignore, directed, tagged, place, link, buffer, seq, context, capacity }
    }

    fn shape(&self) -> Shape {
        Shape { ignore: self.ignore, directed: self.directed, tagged: self.tagged }
    }

    pub(super) fn pattern(&self) -> Pattern {
        Pattern::from_parts(self.shape(), self.key)
    }

    /// Whether messages meet it.
    pub(super) fn is_linked(&self) -> bool {
        self.place != NOWHERE
    }
}

impl<R> Links for Slab<PostedReceive<R>> {
    #[inline]
    fn link(&self, at: u32) -> Link {
        self.get(at).map_or_else(Link::default, |receive| receive.link)
    }

    #[inline]
    fn link_mut(&mut self, at: u32) -> Option<&mut Link> {
        self.get_mut(at).map(|receive| &mut receive.link)
    }
}

/// A receive that a message meets, and where it is until something changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) at: u32,
    seq: u64,
    /// [`REST`]: it is in the list.
    class: usize,
    /// In the index of its class.
    bucket: usize,
}

#[derive(Debug)]
struct ReceiveClass {
    shape: Shape,
    index: Index,
    len: u32,
}

/// The posted receives, and those that are no longer met but still have a number.
#[derive(Debug)]
pub(super) struct Posted<R> {
    receives: Slab<PostedReceive<R>>,
    classes: [ReceiveClass; CLASSES],
    /// The classes that have receives.
    active: ClassSet,
    rest: Chain,
}

impl<R> Posted<R> {
    pub(super) fn new(max: u32) -> Self {
        let class =
            |class| ReceiveClass { shape: Shape::of_class(class), index: Index::default(), len: 0 };
        Posted {
            receives: Slab::new(max),
            classes: std::array::from_fn(class),
            active: 0,
            rest: Chain::default(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.receives.is_full()
    }

    pub(super) fn len(&self) -> usize {
        self.receives.len()
    }

    /// All receives have numbers below it.
    pub(super) fn end(&self) -> u32 {
        self.receives.end()
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&PostedReceive<R>> {
        self.receives.get(at)
    }

    /// Adds a receive that messages do not meet yet. `None`: it is full.
    #[inline]
    pub(super) fn insert(&mut self, receive: PostedReceive<R>) -> Option<u32> {
        self.receives.insert(receive)
    }

    /// From now on messages meet it. It is younger than all that are linked.
    #[inline]
    pub(super) fn link(&mut self, at: u32, hasher: &RandomState) {
        let Some(receive) = self.receives.get(at) else { return };
        let (key, shape) = (receive.key, receive.shape());
        let place = match self.class_for(shape) {
            Some(number) => {
                let class = &mut self.classes[number];
                let key_of =
                    |receives: &Slab<PostedReceive<R>>, at| receives.get(at).map(|r| r.key);
                class.index.push(
                    &mut self.receives,
                    at,
                    key.hash(hasher),
                    |receives, at| key_of(receives, at) == Some(key),
                    |receives, at| key_of(receives, at).map_or(0, |key| key.hash(hasher)),
                );
                class.len += 1;
                self.active |= 1 << number;
                number as u8
            }
            None => {
                self.rest.push(&mut self.receives, at);
                REST
            }
        };
        if let Some(receive) = self.receives.get_mut(at) {
            receive.place = place;
        }
    }

    /// The class of a shape, made so if one without receives is left.
    #[inline]
    fn class_for(&mut self, shape: Shape) -> Option<usize> {
        if let Some(class) = shape.fixed_class() {
            return Some(class);
        }
        let has_shape = |class: &usize| self.classes[*class].shape == shape;
        let is_free = |class: &usize| self.active & (1 << class) == 0;
        let class = (FIXED..CLASSES)
            .find(|class| has_shape(class))
            .or_else(|| (FIXED..CLASSES).find(is_free))?;
        self.classes[class].shape = shape;
        Some(class)
    }

    /// The oldest receive that takes this message.
    #[inline(always)] // one place that is executed for each message calls it
    pub(super) fn find(&self, envelope: &Envelope, hasher: &RandomState) -> Option<Found> {
        let mut oldest: Option<Found> = None;
        for number in members(self.active & classes_of_kind(envelope)) {
            let class = &self.classes[number];
            let key = class.shape.key(envelope);
            let has_key = |at| self.receives.get(at).is_some_and(|r| r.key == key);
            if let Some((at, bucket)) = class.index.find_first(key.hash(hasher), has_key)
                && let Some(receive) = self.receives.get(at)
                && oldest.is_none_or(|oldest| receive.seq < oldest.seq)
            {
                oldest = Some(Found { at, seq: receive.seq, class: number, bucket });
            }
        }
        if unlikely(self.rest.first().is_some()) {
            oldest = self.find_in_rest(envelope, oldest);
        }
        oldest
    }

    #[inline(never)]
    fn find_in_rest(&self, envelope: &Envelope, found: Option<Found>) -> Option<Found> {
        let rest = self.rest.iter(&self.receives);
        rest.filter_map(|at| Some((at, self.receives.get(at)?)))
            .take_while(|(_, receive)| found.is_none_or(|found| receive.seq < found.seq))
            .find(|(_, receive)| receive.pattern().matches(envelope))
            .map(|(at, receive)| Found { at, seq: receive.seq, class: REST.into(), bucket: 0 })
            .or(found)
    }

    /// Takes a receive out altogether that was found, as long as nothing has changed since.
    #[inline(always)] // as above
    pub(super) fn take(&mut self, found: &Found) -> Option<PostedReceive<R>> {
        match self.classes.get_mut(found.class) {
            Some(class) => {
                class.index.take_first(&mut self.receives, found.at, found.bucket);
                self.leave(found.class);
            }
            None => {
                cold_path();
                self.rest.remove(&mut self.receives, found.at);
            }
        }
        self.receives.remove(found.at)
    }

    /// A class has a receive less.
    #[inline]
    fn leave(&mut self, number: usize) {
        let class = &mut self.classes[number];
        class.len -= 1;
        if class.len == 0 {
            self.active &= !(1 << number);
        }
    }

    /// Messages do not meet it any more. It keeps its number.
    pub(super) fn unlink(&mut self, at: u32, hasher: &RandomState) {
        let Some(receive) = self.receives.get_mut(at) else { return };
        let key = receive.key;
        match std::mem::replace(&mut receive.place, NOWHERE) {
            NOWHERE => cold_path(),
            REST => {
                cold_path();
                self.rest.remove(&mut self.receives, at);
            }
            number => {
                let number = usize::from(number);
                let index = &mut self.classes[number].index;
                index.remove(&mut self.receives, at, key.hash(hasher));
                self.leave(number);
            }
        }
    }

    /// Takes a receive out altogether.
    #[inline]
    pub(super) fn remove(&mut self, at: u32, hasher: &RandomState) -> Option<PostedReceive<R>> {
        self.unlink(at, hasher);
        self.receives.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::super::slab::slot_len;
    use super::*;
    use crate::hash::keyed_hasher;
    use crate::peers::Peer;

    #[test]
    fn a_receive_is_one_cache_line() {
        assert_eq!(slot_len::<PostedReceive<u64>>(), 64);
    }

    fn masked(mask: u64) -> PostedReceive<()> {
        PostedReceive::new(&Pattern::tagged(0).ignoring(mask), mask, (), 0, 0)
    }

    #[test]
    fn a_ninth_shape_is_in_the_list_until_a_class_is_empty() {
        let (mut posted, hasher) = (Posted::new(100), keyed_hasher().unwrap());
        let post = |posted: &mut Posted<()>, mask| {
            let at = posted.insert(masked(mask)).unwrap();
            posted.link(at, &hasher);
            (at, posted.get(at).unwrap().place)
        };
        let places: Vec<_> = (1..=8).map(|mask| post(&mut posted, mask)).collect();
        assert!(places.iter().all(|(_, place)| (4..12).contains(place)), "{places:?}");
        assert_eq!(post(&mut posted, 9).1, REST);
        assert_eq!(post(&mut posted, 3).1, places[2].1, "its class is there");
        let message = Envelope { source: Peer::from_bits(0), tag: Some(8), len: 0 };
        let seq = |posted: &Posted<()>| posted.find(&message, &hasher).map(|found| found.seq);
        assert_eq!(seq(&posted), Some(8), "before the ninth");
        posted.remove(places[7].0, &hasher);
        assert_eq!(seq(&posted), Some(9), "in the list");
        assert_eq!(post(&mut posted, 10).1, places[7].1, "where the eighth was");
        assert_eq!(post(&mut posted, 8).1, REST);
    }
}
