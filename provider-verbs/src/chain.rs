//! Work requests on the stack.

use std::mem::MaybeUninit;

use fabric_core::Segment;

use crate::ffi::ibv_sge;

/// Most segments of one operation; discovery declares no more.
pub(crate) const OPERATION_SEGMENTS: usize = 16;
/// Segments of a receive for a datagram that are the provider's own.
pub(crate) const OWN_SEGMENTS: usize = 2;

/// No message is longer. `ibv_sge` has 32 bits for a length (ibv_post_recv(3)), and devices take 31: in the last one mlx5 has a
/// flag, and irdma nothing.
pub(crate) const LONGEST: usize = i32::MAX as usize;

/// Work requests on the stack, on their way to the device in one call: room for so many requests (`R`) and segments
/// (`S`).
pub(crate) struct Chain<W, const R: usize, const S: usize> {
    requests: [MaybeUninit<W>; R],
    /// How many operations are complete with the request at this place.
    complete: [u8; R],
    segments: [MaybeUninit<ibv_sge>; S],
    len: usize,
    segments_len: usize,
    operations: u8,
}

/// One operation, of one or two requests: small, since nearly every post is of one, and each makes its own.
pub(crate) type One<W> = Chain<W, 2, { OPERATION_SEGMENTS + 2 }>;
/// Sixteen operations at least, unless their segments are many.
pub(crate) type Many<W> = Chain<W, 32, 64>;

impl<W, const R: usize, const S: usize> Chain<W, R, S> {
    pub(crate) fn new() -> Self {
        Chain {
            requests: [const { MaybeUninit::uninit() }; R],
            complete: [0; R],
            segments: [const { MaybeUninit::uninit() }; S],
            len: 0,
            segments_len: 0,
            operations: 0,
        }
    }

    /// Whether one more operation surely fits.
    pub(crate) fn has_room(&self) -> bool {
        self.len + 2 <= R && self.segments_len + OPERATION_SEGMENTS < S
    }

    /// Where the next segment will be.
    #[inline]
    pub(crate) fn segments_len(&self) -> usize {
        self.segments_len
    }

    /// How many operations are complete with all requests.
    #[inline]
    pub(crate) fn operations(&self) -> u8 {
        self.operations
    }

    #[inline]
    pub(crate) fn segment(&mut self, addr: u64, length: u32, lkey: u32) {
        self.segments[self.segments_len].write(ibv_sge { addr, length, lkey });
        self.segments_len += 1;
    }

    #[inline]
    pub(crate) fn local(&mut self, segments: &[Segment]) {
        let mut room = LONGEST;
        for segment in segments {
            // Only receives have more. What is beyond the longest message is never reached.
            let len = segment.len.min(room);
            if len > 0 {
                self.segment(segment.addr as u64, len as u32, segment.key as u32);
            }
            room -= len;
        }
    }

    /// The segments from `first` on.
    #[inline]
    pub(crate) fn list(&mut self, first: usize) -> (*mut ibv_sge, i32) {
        let list = &mut self.segments[first..self.segments_len];
        (list.as_mut_ptr().cast(), list.len() as i32)
    }

    #[inline]
    pub(crate) fn push(&mut self, request: W) {
        self.requests[self.len].write(request);
        self.complete[self.len] = self.operations;
        self.len += 1;
    }

    /// The last request ends its operation.
    #[inline]
    pub(crate) fn end_operation(&mut self) {
        self.operations += 1;
        self.complete[self.len - 1] = self.operations;
    }

    /// Has `point` make each request point to the one behind it; gives the first.
    #[inline]
    pub(crate) fn link(&mut self, point: impl Fn(&mut W, *mut W)) -> Option<&mut W> {
        // SAFETY: the first `len` requests are initialized.
        let requests = unsafe {
            std::slice::from_raw_parts_mut(self.requests.as_mut_ptr().cast::<W>(), self.len)
        };
        for i in 1..requests.len() {
            let next: *mut W = &mut requests[i];
            point(&mut requests[i - 1], next);
        }
        requests.first_mut()
    }

    /// How many operations are complete before the request that was not taken.
    #[cold]
    pub(crate) fn taken_before(&self, bad: *const W) -> usize {
        let first = self.requests.as_ptr() as usize;
        let at = (bad as usize).wrapping_sub(first) / size_of::<W>();
        let at = at.min(self.len);
        if at == 0 { 0 } else { self.complete[at - 1].into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::ibv_recv_wr;

    #[test]
    fn receives_of_more_than_any_message_lose_nothing_that_one_reaches() {
        let gib = |gib: usize| Segment::new(std::ptr::dangling_mut(), gib << 30, 7);
        let posted = |segments: &[Segment]| {
            let mut chain = One::<ibv_recv_wr>::new();
            chain.local(segments);
            // SAFETY: so many were filled in.
            let filled =
                chain.segments[..chain.segments_len].iter().map(|one| unsafe { one.assume_init() });
            filled.map(|one| one.length).collect::<Vec<_>>()
        };
        let longest = (2 << 30) - 1;
        assert_eq!(posted(&[gib(1), gib(2)]), [1 << 30, (1 << 30) - 1]);
        assert_eq!(posted(&[gib(2)]), [longest]);
        assert_eq!(posted(&[gib(9)]), [longest]);
        assert_eq!(posted(&[gib(3), gib(3), gib(3)]), [longest]);
    }
}
