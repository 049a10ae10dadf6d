//! Requests that the application has rejected, so that it gets each once.
//!
//! A rejection is one datagram that is not acknowledged. If it is lost, the peer's kernel repeats the request after some four
//! seconds, and this side's has forgotten it: it comes to the listener as if it were new, and would wait for an application
//! that answered long ago. So the answer is kept for as long as it may be asked for again.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A kernel repeats a request 15 times, each 4.3 s (`CMA_MAX_CM_RETRIES`, `CMA_CM_RESPONSE_TIMEOUT` of Linux).
const REPEATS: Duration = Duration::from_secs(16 * 43 / 10);
/// Answers that are kept: peers can ask for no more memory.
const MAX_REJECTED: usize = 1024;

/// The requester: an identifier's address and its queue pair, as long as they last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequesterId {
    pub(crate) peer: SocketAddr,
    pub(crate) queue_pair: u32,
}

/// The answers, oldest first.
#[derive(Default)]
pub(crate) struct RejectCache(VecDeque<(Instant, RequesterId, Vec<u8>)>);

impl RejectCache {
    pub(crate) fn add(&mut self, now: Instant, requester: RequesterId, answer: Vec<u8>) {
        self.forget(now);
        if self.0.len() == MAX_REJECTED {
            self.0.pop_front();
        }
        self.0.push_back((now, requester, answer));
    }

    /// The answer that this one got.
    pub(crate) fn answer(&mut self, now: Instant, requester: RequesterId) -> Option<&[u8]> {
        self.forget(now);
        let mut answers = self.0.iter().rev();
        answers.find(|(_, known, _)| *known == requester).map(|(.., answer)| &**answer)
    }

    fn forget(&mut self, now: Instant) {
        while self.0.front().is_some_and(|(since, ..)| now.duration_since(*since) > REPEATS) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_for_as_long_as_the_request_may_be_repeated() {
        let start = Instant::now();
        let requester =
            |port: u16| RequesterId { peer: ([10, 0, 0, 1], port).into(), queue_pair: 17 };
        let mut cache = RejectCache::default();
        cache.add(start, requester(1), b"no".to_vec());
        cache.add(start + REPEATS / 2, requester(2), b"not you".to_vec());
        assert_eq!(cache.answer(start + REPEATS, requester(1)), Some(&b"no"[..]));
        assert_eq!(cache.answer(start + REPEATS, requester(3)), None);
        let other = RequesterId { queue_pair: 18, ..requester(1) };
        assert_eq!(cache.answer(start, other), None);
        let later = start + REPEATS + Duration::from_secs(1);
        assert_eq!(cache.answer(later, requester(1)), None);
        assert_eq!(cache.answer(later, requester(2)), Some(&b"not you"[..]));
        for port in 0..2 * MAX_REJECTED as u16 {
            cache.add(later, requester(port), Vec::new());
        }
        assert_eq!(cache.0.len(), MAX_REJECTED);
        assert!(cache.answer(later, requester(2 * MAX_REJECTED as u16 - 1)).is_some());
        assert!(cache.answer(later, requester(0)).is_none());
    }
}
