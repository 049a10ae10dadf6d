//! Messages to the peer about leases, in order, until the endpoint has room for them.
//!
//! Its size is bounded, even if the peer receives nothing or the application is fast:
//!
//! - *answers* are caused by the peer, which is disconnected if too many of them wait;
//! - *requests* and offers are caused by the application, which has to wait or gets `Again`;
//! - that a lease has ended, or is given back, is sent at once; there are no more of these messages than there were leases, and
//!   each lease began with an answer: a grant, or the question for the clock of a peer that lends unasked.

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
    /// Too many of them waited.
    is_overrun: bool,
}

impl Outbox {
    /// Whether another request or offer may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.messages.len() < MAX_QUEUED
    }

    pub(super) fn send(&mut self, message: &LeaseMessage) {
        self.messages.push_back((message.to_bytes(), false));
    }

    /// Not if too many earlier answers wait: the peer [has to be disconnected](Outbox::take_overrun) then.
    pub(super) fn answer(&mut self, message: &LeaseMessage) {
        if self.answers < MAX_QUEUED {
            self.messages.push_back((message.to_bytes(), true));
            self.answers += 1;
        } else {
            self.is_overrun = true;
        }
    }

    /// Whether the peer does not take its answers; said once.
    pub(super) fn take_overrun(&mut self) -> bool {
        std::mem::take(&mut self.is_overrun)
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
        (0..MAX_QUEUED).for_each(|_| outbox.answer(&message));
        assert!(!outbox.take_overrun());
        outbox.answer(&message);
        assert!(outbox.take_overrun() && !outbox.take_overrun());
        assert_eq!(outbox.messages.len(), 2 * MAX_QUEUED + 1);
    }
}
