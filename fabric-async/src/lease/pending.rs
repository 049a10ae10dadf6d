//! Requests to the peer that have no answer yet.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::Access;

use super::remote_state::RemoteLeaseState;
use super::terms::whole;
use crate::error::Result;
use crate::oneshot::Oneshot;
use crate::wakers::Wakers;

/// From so many requests on, each time the number has doubled, those without a waiting future are dropped.
const DROP_UNAWAITED: usize = 64;

/// Where a future waits for the peer's answer.
pub(super) type Answer<T> = Arc<Oneshot<Result<T>>>;

/// A request for a lease.
pub(super) struct PendingRequest {
    pub(super) sent: Instant,
    pub(super) len: u64,
    pub(super) time: Duration,
    pub(super) rights: Access,
    pub(super) answer: Answer<Arc<RemoteLeaseState>>,
}

impl PendingRequest {
    /// Whether a grant matches the request.
    pub(super) fn fits(&self, time: Duration, region: &fabric::RemoteRegion) -> bool {
        region.len() == whole(self.len)
            && time <= self.time
            && region.access().contains(self.rights)
    }
}

/// A renewal.
pub(super) struct PendingRenewal {
    pub(super) sent: Instant,
    pub(super) lease: u64,
    pub(super) answer: Answer<()>,
}

/// Drops requests without a waiting future, if the peer does not answer.
pub(super) fn forget<T, A>(
    waiting: &mut HashMap<u64, T>,
    answer: impl Fn(&T) -> &Answer<A>,
    wakers: &mut Wakers,
) {
    if waiting.len() >= DROP_UNAWAITED && waiting.len().is_power_of_two() {
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
