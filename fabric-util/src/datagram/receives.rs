//! The receives of a datagram endpoint.

use std::collections::VecDeque;

use fabric_core::work::total_len;
use fabric_core::{RawCompletion, RecvWork, Segment, Status, Token};
use smallvec::SmallVec;

/// A receive that waits for a datagram.
pub struct WaitingReceive {
    token: Token,
    /// Where its bytes go.
    pub segments: SmallVec<[Segment; 4]>,
    len: usize,
}

/// Those that wait, the oldest first. The caller of the contract posts no more than the depth.
#[derive(Default)]
pub struct DatagramReceives(VecDeque<WaitingReceive>);

impl DatagramReceives {
    /// Adds receives.
    pub fn push(&mut self, work: &[RecvWork<'_>]) {
        self.0.extend(work.iter().map(|one| WaitingReceive {
            token: one.token,
            segments: one.segments.into(),
            len: total_len(one.segments),
        }));
    }

    /// The one that the next datagram takes.
    pub fn first(&self) -> Option<&WaitingReceive> {
        self.0.front()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A datagram of `len` bytes has taken the first, as far as it fits: gives its completion.
    pub fn complete(&mut self, len: usize, immediate: Option<u32>) -> Option<RawCompletion> {
        let taken = self.0.pop_front()?;
        if len > taken.len {
            return Some(RawCompletion::new(taken.token, Status::TooLong));
        }
        let mut completion = RawCompletion::new(taken.token, Status::Ok);
        (completion.len, completion.immediate) = (len as u64, immediate);
        Some(completion)
    }

    /// Takes all out, canceled.
    pub fn cancel(&mut self) -> Vec<RawCompletion> {
        let all = self.0.drain(..);
        all.map(|one| RawCompletion::new(one.token, Status::Canceled)).collect()
    }

    /// Takes all out, without a completion.
    pub fn clear(&mut self) {
        self.0 = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric_core::Side;

    #[test]
    fn they_are_taken_in_the_order_of_their_posts_and_too_long_takes_one() {
        let mut receives = DatagramReceives::default();
        assert!(receives.complete(0, None).is_none());
        let token = |sequence| Token::new(0, 0, Side::Recv, sequence);
        let segments = [Segment::new(std::ptr::dangling_mut(), 4, 0); 2];
        let work: Vec<_> = (0..4).map(|n| RecvWork::new(token(n), &segments)).collect();
        receives.push(&work);
        let taken = receives.complete(8, Some(5)).unwrap();
        assert_eq!((taken.token, taken.status, taken.len), (token(0), Status::Ok, 8));
        assert_eq!(taken.immediate, Some(5));
        let taken = receives.complete(9, Some(5)).unwrap();
        assert_eq!((taken.token, taken.status, taken.len), (token(1), Status::TooLong, 0));
        assert_eq!(receives.first().unwrap().segments.len(), 2);
        let canceled = receives.cancel();
        assert_eq!(canceled.iter().map(|one| one.token).collect::<Vec<_>>(), [token(2), token(3)]);
        assert!(canceled.iter().all(|one| one.status == Status::Canceled));
        assert!(receives.is_empty());
    }
}
