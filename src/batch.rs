//! Posting several operations at once.

use fabric_core::{Error, Posted, RecvWork, Segment, Token, cold_path};
use smallvec::SmallVec;

use crate::counters::Posts;
use crate::op::Recv;

/// Operations that go to the provider in one call.
pub(crate) const CHUNK: usize = 32;

/// For a chunk, without a trip to the heap.
pub(crate) type Chunk<T> = SmallVec<[T; CHUNK]>;

/// A batch that stopped half-way.
#[derive(Debug)]
pub struct BatchError {
    /// How many operations, from the first on, were posted.
    pub posted: usize,
    /// Why the next one was not. It and all after it had no effect.
    pub error: Error,
}

impl std::fmt::Display for BatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} operations were posted, then: {}", self.posted, self.error)
    }
}

impl std::error::Error for BatchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Receives for the provider: each has a token, and so many of the segments, which follow each other.
pub(crate) fn recv_work(
    mut segments: &[Segment],
    receives: impl Iterator<Item = (usize, Token)>,
) -> Chunk<RecvWork<'_>> {
    let cut = |(count, token)| {
        let (own, others) = segments.split_at(count);
        segments = others;
        RecvWork::new(token, own)
    };
    receives.map(cut).collect()
}

/// Posts receives by chunks, and counts them; `post` hands one to the provider.
pub(crate) fn post_recvs(
    recvs: &[Recv<'_>],
    posts: &Posts,
    mut post: impl FnMut(&[Recv<'_>]) -> Posted,
) -> Result<(), BatchError> {
    let mut posted = 0;
    for chunk in recvs.chunks(CHUNK) {
        let Posted { accepted, refusal } = post(chunk);
        posted += accepted;
        posts.operations.add(accepted as u64);
        if let Some(error) = refusal {
            cold_path();
            posts.again.add(u64::from(matches!(error, Error::Again)));
            return Err(BatchError { posted, error });
        }
    }
    Ok(())
}
