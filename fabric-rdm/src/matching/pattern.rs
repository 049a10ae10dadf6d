//! What a message says of itself, and which messages a receive takes.

use ahash::RandomState;

use crate::peers::Peer;

/// What is known of a message before its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Envelope {
    /// The peer that sent it.
    pub source: Peer,
    /// Its tag; `None`: it is untagged, which is not the same as tag 0.
    pub tag: Option<u64>,
    /// Its length in bytes.
    pub len: u64,
}

/// Which messages a receive takes. Tagged and untagged ones never meet.
///
/// ```
/// use fabric_rdm::matching::{Envelope, Pattern};
/// use fabric_rdm::Peer;
///
/// let source = Peer::from_bits(3);
/// let message = Envelope { source, tag: Some(0x1234), len: 0 };
/// assert!(Pattern::tagged(0x1234).matches(&message));
/// assert!(Pattern::tagged(0x1200).ignoring(0xff).from(source).matches(&message));
/// assert!(!Pattern::tagged(0x1234).from(Peer::from_bits(4)).matches(&message));
/// assert!(!Pattern::untagged().matches(&message));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Pattern {
    /// Without the bits to ignore; 0 of untagged ones.
    tag: u64,
    source: Peer,
    ignore: u64,
    directed: bool,
    tagged: bool,
}

impl Pattern {
    /// Takes any untagged message.
    pub const fn untagged() -> Self {
        let source = Peer::from_bits(0);
        Pattern { tag: 0, source, ignore: 0, directed: false, tagged: false }
    }

    /// Takes any message with this tag.
    pub const fn tagged(tag: u64) -> Self {
        Pattern { tag, tagged: true, ..Self::untagged() }
    }

    /// Takes messages whose tag differs in the bits of `mask` as well: with all bits any tagged message. Of untagged ones
    /// nothing is ignored.
    pub const fn ignoring(self, mask: u64) -> Self {
        if self.tagged { Pattern { tag: self.tag & !mask, ignore: mask, ..self } } else { self }
    }

    /// Takes messages of this peer only.
    pub const fn from(self, source: Peer) -> Self {
        Pattern { source, directed: true, ..self }
    }

    /// The only peer whose messages it takes; `None`: it takes those of all.
    pub const fn source(&self) -> Option<Peer> {
        if self.directed { Some(self.source) } else { None }
    }

    /// Whether it takes a message with this envelope.
    #[inline]
    pub fn matches(&self, envelope: &Envelope) -> bool {
        let tag = match envelope.tag {
            Some(tag) => self.tagged && tag & !self.ignore == self.tag,
            None => !self.tagged,
        };
        tag && (!self.directed || self.source == envelope.source)
    }

    /// A pattern by its parts.
    #[inline]
    pub(super) fn from_parts(shape: Shape, key: Key) -> Self {
        let Shape { ignore, directed, tagged } = shape;
        Pattern { tag: key.tag, source: Peer::from_bits(key.source), ignore, directed, tagged }
    }

    #[inline]
    pub(super) fn shape(&self) -> Shape {
        Shape { ignore: self.ignore, directed: self.directed, tagged: self.tagged }
    }

    /// What all messages that it takes have in common, and no other of its kind.
    #[inline]
    pub(super) fn key(&self) -> Key {
        Key { tag: self.tag, source: if self.directed { self.source.to_bits() } else { 0 } }
    }
}

/// What patterns have in common that differ in values only: a message has one key for each shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) ignore: u64,
    pub(super) directed: bool,
    pub(super) tagged: bool,
}

/// Tag and source, as far as a shape looks at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    tag: u64,
    source: u64,
}

impl Key {
    #[inline]
    pub(super) fn hash(&self, hasher: &RandomState) -> u64 {
        // One word of 128 bits takes half the time of two of 64.
        hasher.hash_one(u128::from(self.tag) << 64 | u128::from(self.source))
    }
}

/// Shapes that have a class of their own, always.
pub(super) const FIXED: usize = 4;
/// Classes for shapes with bits to ignore.
pub(super) const MASKED: usize = 8;
/// All classes.
pub(super) const CLASSES: usize = FIXED + MASKED;

/// Sets of classes, by a bit for each.
pub(super) type ClassSet = u16;

impl Shape {
    /// The shape that the class has until it gets another, and the fixed ones have always: untagged and tagged, each from
    /// any source and from one.
    pub(super) fn of_class(class: usize) -> Self {
        Shape { ignore: 0, directed: class & 1 != 0, tagged: class & 2 != 0 || class >= FIXED }
    }

    /// The class that it has always; `None`: it has bits to ignore.
    #[inline]
    pub(super) fn fixed_class(&self) -> Option<usize> {
        (self.ignore == 0).then_some(usize::from(self.directed) | usize::from(self.tagged) << 1)
    }

    /// The key of a message, which is of the same kind: tagged or not.
    #[inline]
    pub(super) fn key(&self, envelope: &Envelope) -> Key {
        let tag = envelope.tag.unwrap_or(0) & !self.ignore;
        Key { tag, source: if self.directed { envelope.source.to_bits() } else { 0 } }
    }
}

/// The classes of the message's kind.
#[inline]
pub(super) fn classes_of_kind(envelope: &Envelope) -> ClassSet {
    const UNTAGGED: ClassSet = 0b11;
    if envelope.tag.is_some() { !UNTAGGED } else { UNTAGGED }
}

/// The classes in a set.
#[inline]
pub(super) fn members(mut set: ClassSet) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if set == 0 {
            return None;
        }
        let class = set.trailing_zeros() as usize;
        set &= set - 1;
        Some(class)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fixed_shapes_have_their_classes() {
        for class in 0..FIXED {
            assert_eq!(Shape::of_class(class).fixed_class(), Some(class));
        }
        assert_eq!(Pattern::tagged(7).ignoring(0).shape().fixed_class(), Some(2));
        assert_eq!(Pattern::tagged(7).ignoring(1).shape().fixed_class(), None);
        assert_eq!(Pattern::untagged().ignoring(1), Pattern::untagged());
        assert_eq!(members(0b1010_0001).collect::<Vec<_>>(), [0, 5, 7]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        /// Within a kind, equal keys are what matching means.
        #[test]
        fn keys_are_equal_where_a_pattern_matches(
            tag in 0..8u64, ignore in 0..8u64, from in proptest::option::of(0..2u64),
            message_tag in 0..8u64, source in 0..2u64,
        ) {
            let source = Peer::from_bits(source);
            let message = Envelope { source, tag: Some(message_tag), len: 0 };
            let mut pattern = Pattern::tagged(tag).ignoring(ignore);
            if let Some(from) = from {
                pattern = pattern.from(Peer::from_bits(from));
            }
            let expected = tag & !ignore == message_tag & !ignore
                && from.is_none_or(|from| Peer::from_bits(from) == source);
            prop_assert_eq!(pattern.matches(&message), expected);
            prop_assert_eq!(pattern.key() == pattern.shape().key(&message), expected);
        }
    }
}
