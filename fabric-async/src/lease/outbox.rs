//! Messages to the peer about leases, in order, until the endpoint has room for them.
//!
//! Its size is bounded, even if the peer receives nothing or the application is fast:
//!
//! - *answers* are caused by the peer, which is disconnected if too many of them wait;
//! - *requests* and offers are caused by the application, which has to wait or gets `Again`;
//! - that a lease has ended is sent at once; there are no more of these messages than there were leases.

use std::collections::VecDeque;

use fabric::{Endpoint, Op};

use super::message::LeaseMessage;

/// Maximum number of waiting answers; and of messages of any kind before further requests and offers have to wait.
const MAX_QUEUED: usize = 1024;

#[derive(Default)]
pub(super) struct Outbox {
    /// Messages, and which of them are answers.
    messages: VecDeque<(Vec<u8>, bool)>,
    answers: usize,
}

impl Outbox {
    /// Whether another request or offer may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.messages.len() < MAX_QUEUED
    }

    pub(super) fn send(&mut self, message: &LeaseMessage) {
        self.messages.push_back((message.to_bytes(), false));
    }

    /// False: too many earlier answers wait.
    pub(super) fn answer(&mut self, message: &LeaseMessage) -> bool {
        let fits = self.answers < MAX_QUEUED;
        if fits {
            self.messages.push_back((message.to_bytes(), true));
            self.answers += 1;
        }
        fits
    }

    /// Posts messages while the endpoint has room.
    pub(super) fn flush(&mut self, endpoint: &Endpoint) {
        while let Some((bytes, answer)) = self.messages.front() {
            // Signaled: each completion triggers another flush.
            match endpoint.post(&Op::inject(bytes)) {
                Ok(()) => {
                    self.answers -= usize::from(*answer);
                    self.messages.pop_front();
                }
                Err(fabric::Error::Again) => return,
                // The endpoint is closed, which an event reports.
                Err(_) => *self = Outbox::default(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_a_bound_of_their_own() {
        let (mut outbox, message) = (Outbox::default(), LeaseMessage::Ended { lease: 1 });
        for _ in 0..MAX_QUEUED {
            assert!(outbox.has_room());
            outbox.send(&message);
        }
        assert!(!outbox.has_room());
        // Other messages are sent all the same.
        outbox.send(&message);
        assert!((0..MAX_QUEUED).all(|_| outbox.answer(&message)));
        assert!(!outbox.answer(&message));
        assert_eq!(outbox.messages.len(), 2 * MAX_QUEUED + 1);
    }
}
