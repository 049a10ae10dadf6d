//! What one end has to say to the other about leases, in order, until its endpoint has room for it.
//!
//! A peer that takes nothing does not make it grow without end, and neither does an application in a hurry:
//!
//! - *answers* are caused by the peer, which is cut off if so many of them wait;
//! - *questions* and offers are caused by the application, which waits with more of them, or is told to;
//! - that a lease has ended is said at once; there are no more of these than there were leases.

use std::collections::VecDeque;

use fabric::{Endpoint, Op};

use super::wire::Word;

/// Answers that wait at most; and messages of any kind, from which on nothing more is asked or offered.
const MOST: usize = 1024;

#[derive(Default)]
pub(super) struct Outbox {
    /// Messages, and which of them are answers.
    words: VecDeque<(Vec<u8>, bool)>,
    answers: usize,
}

impl Outbox {
    /// Whether something more may be asked, or offered.
    pub(super) fn has_room(&self) -> bool {
        self.words.len() < MOST
    }

    pub(super) fn say(&mut self, word: &Word) {
        self.words.push_back((word.to_bytes(), false));
    }

    /// False: the peer has not taken enough of those before.
    pub(super) fn answer(&mut self, word: &Word) -> bool {
        let fits = self.answers < MOST;
        if fits {
            self.words.push_back((word.to_bytes(), true));
            self.answers += 1;
        }
        fits
    }

    /// Posts what there is room for.
    pub(super) fn flush(&mut self, endpoint: &Endpoint) {
        while let Some((bytes, answer)) = self.words.front() {
            // Signaled: each completion is an occasion to go on.
            match endpoint.post(&Op::inject(bytes)) {
                Ok(()) => {
                    self.answers -= usize::from(*answer);
                    self.words.pop_front();
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
        let (mut outbox, word) = (Outbox::default(), Word::Ended { lease: 1 });
        for _ in 0..MOST {
            assert!(outbox.has_room());
            outbox.say(&word);
        }
        assert!(!outbox.has_room());
        // What has to be said is said all the same.
        outbox.say(&word);
        assert!((0..MOST).all(|_| outbox.answer(&word)));
        assert!(!outbox.answer(&word));
        assert_eq!(outbox.words.len(), 2 * MOST + 1);
    }
}
