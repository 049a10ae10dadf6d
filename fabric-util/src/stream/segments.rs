//! The segments of a queue's operations, in posting order, in a ring of their own: operations have one or two of
//! them mostly, and may have many, and without them an operation is small enough to be moved around.

use std::collections::VecDeque;

use fabric_core::Segment;
use smallvec::SmallVec;

use super::io_vec::IoVec;

/// The segments of the operations that are in a queue, and of the last one that left it.
#[derive(Default)]
pub(super) struct Segments {
    ring: VecDeque<Segment>,
    /// The number of the first one; numbers wrap around.
    first: u32,
}

/// Which of them are an operation's.
#[derive(Clone, Copy)]
pub(super) struct Span {
    start: u32,
    len: u32,
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
        match segments {
            // Mostly; growing for many costs more than this.
            [one] => self.ring.push_back(*one),
            many => self.ring.extend(many),
        }
        Span { start, len: segments.len() as u32 }
    }

    /// Holds those of one operation of another queue, and no others.
    #[inline]
    pub(super) fn replace(&mut self, from: &Segments, span: Span) -> Span {
        self.first = self.first.wrapping_add(self.ring.len() as u32);
        self.ring.clear();
        match from.only(span) {
            // Mostly.
            Some(one) => self.ring.push_back(*one),
            None => self.ring.extend(from.of(span)),
        }
        Span { start: self.first, len: self.ring.len() as u32 }
    }

    /// Forgets those of the operations before `span`'s.
    #[inline]
    pub(super) fn forget_before(&mut self, span: Span) {
        let count = span.start.wrapping_sub(self.first);
        for _ in 0..count {
            self.ring.pop_front();
        }
        self.first = span.start;
    }

    pub(super) fn of(&self, span: Span) -> impl Iterator<Item = &Segment> {
        let start = span.start.wrapping_sub(self.first) as usize;
        // One by one: for the one or two that there are, a range costs more.
        (start..start + span.len as usize).filter_map(|at| self.ring.get(at))
    }

    /// The segment, if it is one.
    #[inline]
    pub(super) fn only(&self, span: Span) -> Option<&Segment> {
        if span.len != 1 {
            return None;
        }
        self.ring.get(span.start.wrapping_sub(self.first) as usize)
    }

    pub(super) fn first_of(&mut self, span: Span) -> Option<&mut Segment> {
        let at = span.start.wrapping_sub(self.first) as usize;
        self.ring.get_mut(at).filter(|_| span.len > 0)
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
