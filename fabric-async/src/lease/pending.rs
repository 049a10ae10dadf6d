//! What this side asked the peer and has no answer to.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::Access;

use super::remote_state::RemoteLeaseState;
use super::terms::whole;
use crate::error::Result;
use crate::oneshot::Oneshot;
use crate::wakers::Wakers;

/// From so many questions on, those of which nobody waits for the answer are forgotten, when they have doubled.
const FORGOTTEN: usize = 64;

/// What somebody waits for, until the peer has answered.
pub(super) type Answer<T> = Arc<Oneshot<Result<T>>>;

/// What this side asked for, and when.
pub(super) struct PendingRequest {
    pub(super) sent: Instant,
    pub(super) len: u64,
    pub(super) time: Duration,
    pub(super) rights: Access,
    pub(super) answer: Answer<Arc<RemoteLeaseState>>,
}

impl PendingRequest {
    /// Whether it is given what it asked for.
    pub(super) fn fits(&self, time: Duration, region: &fabric::RemoteRegion) -> bool {
        region.len() == whole(self.len)
            && time <= self.time
            && region.access().contains(self.rights)
    }
}

/// Drops what nobody waits for any more, where a peer does not answer.
pub(super) fn forget<T, A>(
    waiting: &mut HashMap<u64, T>,
    answer: impl Fn(&T) -> &Answer<A>,
    wakers: &mut Wakers,
) {
    if waiting.len() >= FORGOTTEN && waiting.len().is_power_of_two() {
        waiting.retain(|_, one| {
            let answer = answer(one);
            let is_held = Arc::strong_count(answer) > 1;
            if !is_held {
                answer.forget(wakers);
            }
            is_held
        });
    }
}
