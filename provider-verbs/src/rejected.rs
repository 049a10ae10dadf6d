//! Requests that the application has rejected, so that it hears of each once.
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
pub(crate) struct Caller {
    pub(crate) peer: SocketAddr,
    pub(crate) queue_pair: u32,
}

/// The answers, oldest first.
#[derive(Default)]
pub(crate) struct Rejected(VecDeque<(Instant, Caller, Vec<u8>)>);

impl Rejected {
    pub(crate) fn add(&mut self, now: Instant, caller: Caller, answer: Vec<u8>) {
        self.forget(now);
        if self.0.len() == MAX_REJECTED {
            self.0.pop_front();
        }
        self.0.push_back((now, caller, answer));
    }

    /// The answer that this one got.
    pub(crate) fn answer(&mut self, now: Instant, caller: Caller) -> Option<&[u8]> {
        self.forget(now);
        let mut answers = self.0.iter().rev();
        answers.find(|(_, known, _)| *known == caller).map(|(.., answer)| &**answer)
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
        let caller = |port: u16| Caller { peer: ([10, 0, 0, 1], port).into(), queue_pair: 17 };
        let mut rejected = Rejected::default();
        rejected.add(start, caller(1), b"no".to_vec());
        rejected.add(start + REPEATS / 2, caller(2), b"not you".to_vec());
        assert_eq!(rejected.answer(start + REPEATS, caller(1)), Some(&b"no"[..]));
        assert_eq!(rejected.answer(start + REPEATS, caller(3)), None);
        let other = Caller { queue_pair: 18, ..caller(1) };
        assert_eq!(rejected.answer(start, other), None);
        let later = start + REPEATS + Duration::from_secs(1);
        assert_eq!(rejected.answer(later, caller(1)), None);
        assert_eq!(rejected.answer(later, caller(2)), Some(&b"not you"[..]));
        for port in 0..2 * MAX_REJECTED as u16 {
            rejected.add(later, caller(port), Vec::new());
        }
        assert_eq!(rejected.0.len(), MAX_REJECTED);
        assert!(rejected.answer(later, caller(2 * MAX_REJECTED as u16 - 1)).is_some());
        assert!(rejected.answer(later, caller(0)).is_none());
    }
}
