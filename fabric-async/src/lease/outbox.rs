//! What one end has to say to the other about leases, in order, until its endpoint has room for it.
//!
//! A peer that takes nothing does not make it grow without end, and neither does an application in a hurry:
//!
//! - *answers* are caused by the peer, which is cut off if so many of them wait;
//! - *questions* and offers are caused by the application, which waits with more of them, or is told to;
//! - that a lease has ended is said at once; there are no more of these than there were leases.

use std::collections::VecDeque;

use fabric::{Endpoint, Op};

use super::message::LeaseMessage;

/// Answers that wait at most; and messages of any kind, from which on nothing more is asked or offered.
const MAX_QUEUED: usize = 1024;

#[derive(Default)]
pub(super) struct Outbox {
    /// Messages, and which of them are answers.
    messages: VecDeque<(Vec<u8>, bool)>,
    answers: usize,
}

impl Outbox {
    /// Whether something more may be asked, or offered.
    pub(super) fn has_room(&self) -> bool {
        self.messages.len() < MAX_QUEUED
    }

    pub(super) fn send(&mut self, message: &LeaseMessage) {
        self.messages.push_back((message.to_bytes(), false));
    }

    /// False: the peer has not taken enough of those before.
    pub(super) fn answer(&mut self, message: &LeaseMessage) -> bool {
        let fits = self.answers < MAX_QUEUED;
        if fits {
            self.messages.push_back((message.to_bytes(), true));
            self.answers += 1;
        }
        fits
    }

    /// Posts what there is room for.
    pub(super) fn flush(&mut self, endpoint: &Endpoint) {
        while let Some((bytes, answer)) = self.messages.front() {
            // Signaled: each completion is an occasion to go on.
            match endpoint.post(&Op::inject(bytes)) {
                Ok(()) => {
                    self.answers -= usize::from(*answer);
                    self.messages.pop_front();
                }
                Err(fabric::Error::Again) => return,
                // It has ended, which an event tells.
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
        // What has to be said is said all the same.
        outbox.send(&message);
        assert!((0..MAX_QUEUED).all(|_| outbox.answer(&message)));
        assert!(!outbox.answer(&message));
        assert_eq!(outbox.messages.len(), 2 * MAX_QUEUED + 1);
    }
}
