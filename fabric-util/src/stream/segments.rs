//! The segments of a queue's operations. Mostly an operation has one, which is kept with it; those of the others are in a ring of
//! their own, in posting order, as they may be many.

use std::collections::VecDeque;

use fabric_core::{Segment, unlikely};
use smallvec::SmallVec;

use super::io_vec::IoVec;

/// The segments of the operations that are in a queue and have several, and of the last one that left it.
#[derive(Default)]
pub(super) struct Segments {
    ring: VecDeque<Segment>,
    /// The number of the first one; numbers wrap around.
    first: u32,
}

/// An operation's segments.
#[derive(Clone, Copy)]
pub(super) struct Span {
    /// The only one.
    one: Option<Segment>,
    /// Of the others: the place of the first in the ring, where that of the next operation's would be too, and how many they are.
    start: u32,
    len: u32,
}

impl Span {
    /// The segment, if it is one.
    #[inline]
    pub(super) fn one(&self) -> Option<&Segment> {
        self.one.as_ref()
    }

    #[inline]
    pub(super) fn one_mut(&mut self) -> Option<&mut Segment> {
        self.one.as_mut()
    }
}

impl Segments {
    /// For tests: counts from here on, as after so many segments.
    #[cfg(any(test, fuzzing))]
    pub(super) fn count_from(&mut self, first: u32) {
        self.first = first;
    }

    #[inline]
    pub(super) fn push(&mut self, segments: &[Segment]) -> Span {
        let start = self.first.wrapping_add(self.ring.len() as u32);
        if let [one] = segments {
            return Span { one: Some(*one), start, len: 0 };
        }
        self.ring.extend(segments);
        Span { one: None, start, len: segments.len() as u32 }
    }

    /// Holds those of one operation of another queue, and no others.
    #[inline]
    pub(super) fn replace(&mut self, from: &Segments, span: Span) -> Span {
        self.first = self.first.wrapping_add(self.ring.len() as u32);
        self.ring.clear();
        self.ring.extend(from.ring_of(span));
        Span { start: self.first, ..span }
    }

    /// Forgets those of the operations before `span`'s.
    #[inline]
    pub(super) fn forget_before(&mut self, span: Span) {
        let count = span.start.wrapping_sub(self.first);
        if unlikely(count > 0) {
            self.ring.drain(..self.ring.len().min(count as usize));
            self.first = span.start;
        }
    }

    pub(super) fn of(&self, span: Span) -> impl Iterator<Item = Segment> {
        span.one.into_iter().chain(self.ring_of(span))
    }

    /// Those that are in the ring.
    fn ring_of(&self, span: Span) -> impl Iterator<Item = Segment> {
        let start = span.start.wrapping_sub(self.first) as usize;
        (start..start + span.len as usize).filter_map(|at| self.ring.get(at).copied())
    }

    /// The runs that hold `len` bytes from `skip` on, at most `max` of them; gives their length.
    pub(super) fn scatter(
        &self,
        span: Span,
        mut skip: usize,
        len: usize,
        max: usize,
        runs: &mut SmallVec<[IoVec; 8]>,
    ) -> usize {
        let mut left = len;
        for segment in self.of(span) {
            if left == 0 || runs.len() >= max {
                break;
            }
            if skip >= segment.len {
                skip -= segment.len;
                continue;
            }
            let part = left.min(segment.len - skip);
            runs.push((segment.addr.wrapping_add(skip), part));
            (skip, left) = (0, left - part);
        }
        len - left
    }
}
