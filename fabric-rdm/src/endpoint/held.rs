//! Requests for a connection that wait for room.

use std::collections::VecDeque;
use std::time::Duration;

use fabric::ConnectRequest;

use crate::identity::EndpointIdentity;

/// Requests that wait for room at a time; more are refused, and made again later.
const HELD: usize = 64;

/// Requests that are answered when there is room, the first one first, one of each peer.
#[derive(Default)]
pub(super) struct HeldRequests(VecDeque<HeldRequest>);

pub(super) struct HeldRequest {
    pub(super) from: EndpointIdentity,
    pub(super) request: ConnectRequest,
    /// When it is refused at the latest: earlier than the peer gives it up.
    pub(super) until: Duration,
}

impl HeldRequests {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.0.front().map(|held| held.until)
    }

    /// The first one.
    pub(super) fn pop(&mut self) -> Option<HeldRequest> {
        self.0.pop_front()
    }

    /// The first one, if its time has come.
    pub(super) fn pop_late(&mut self, now: Duration) -> Option<HeldRequest> {
        if self.deadline()? <= now { self.pop() } else { None }
    }

    /// Keeps a request in place of an earlier one of that peer. What is to be refused for it: itself, if there are too many.
    pub(super) fn hold(&mut self, held: HeldRequest) -> Option<ConnectRequest> {
        let earlier = self.0.iter().position(|other| other.from == held.from);
        let earlier = earlier.and_then(|at| self.0.remove(at));
        if self.0.len() == HELD {
            return Some(held.request);
        }
        self.0.push_back(held);
        earlier.map(|held| held.request)
    }
}
