//! Acknowledgements: when the initiator asks for one, and when the target owes one that no other frame carries.
//!
//! Every frame says how many requests its sender has accepted, so where messages go both ways acknowledgements cost
//! nothing. A frame that only acknowledges goes after many requests or bytes, or when the initiator asks: the target
//! has no clock, and only the initiator knows whether a caller waits. (What a message asks for may wait for some turns, as
//! messages are answered: `conn/ack_hold`.) Its duty is to ask for everything in the end:
//!
//! - a request that goes while no other is unacknowledged asks itself, as it may stay the only one;
//! - an answer (of a read, or an old value) acknowledges all that was before it;
//! - for the rest, an initiator that waits asks by a question, a frame of its own or behind others; one at a time, so
//!   that polling after each post does not double the frames;
//! - a request that is lazy, since no one waits for it, is left to what follows; after some turns a question asks for it as well.

/// Requests, or bytes, that are acknowledged at the latest, even unasked. (64 KiB would be one acknowledgement for
/// each of the messages for which they matter most.)
const REQUESTS: u32 = 32;
const BYTES: usize = 256 << 10;

/// Whether the count `a` is less than `b`; both wrap around.
fn behind(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) > 0
}

/// The target's side.
#[derive(Default)]
pub(super) struct Debt {
    /// Requests accepted, those of them acknowledged to the peer, and those that it asked for.
    accepted: u32,
    acked: u32,
    asked: u32,
    /// The last of those for which it may be that its application waits, which gets an answer in no other way.
    urgent: u32,
    /// Bytes of those accepted and not acknowledged.
    bytes: usize,
}

impl Debt {
    pub(super) fn accept(&mut self, bytes: usize) {
        self.accepted = self.accepted.wrapping_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// For tests: as after so many requests, all of them acknowledged.
    #[cfg(any(test, fuzzing))]
    pub(super) fn count_from(&mut self, first: u32) {
        (self.accepted, self.acked, self.asked) = (first, first, first);
        self.urgent = first;
    }

    /// The peer asks for the first `count` requests.
    pub(super) fn ask(&mut self, count: u32) {
        if behind(self.asked, count) {
            self.asked = count;
        }
    }

    /// As [`ask`](Debt::ask), where no message of this side is likely to follow that carries the acknowledgement.
    pub(super) fn ask_urgently(&mut self, count: u32) {
        self.ask(count);
        if behind(self.urgent, count) {
            self.urgent = count;
        }
    }

    /// Requests accepted so far, for a frame that acknowledges them to the peer.
    pub(super) fn acknowledge(&mut self) -> u32 {
        (self.acked, self.bytes) = (self.accepted, 0);
        self.ask_urgently(self.acked);
        self.acked
    }

    /// As many as were acknowledged to the peer.
    pub(super) fn acked(&self) -> u32 {
        self.acked
    }

    /// Whether an acknowledgement is due, if need be in a frame of its own.
    pub(super) fn is_due(&self) -> bool {
        let unacked = self.accepted.wrapping_sub(self.acked);
        let asked = behind(self.acked, self.asked);
        unacked > 0 && (asked || unacked >= REQUESTS || self.bytes >= BYTES)
    }

    /// Whether the one that is due may wait a little for a message that carries it.
    pub(super) fn is_patient(&self) -> bool {
        let unacked = self.accepted.wrapping_sub(self.acked);
        !behind(self.acked, self.urgent) && unacked < REQUESTS && self.bytes < BYTES
    }

    pub(super) fn dump(&self) -> String {
        format!(
            "{} requests accepted, {} acknowledged, {} asked",
            self.accepted, self.acked, self.asked
        )
    }
}

/// The initiator's side.
#[derive(Default)]
pub(super) struct Questions {
    /// Requests that the peer will acknowledge without a further question; those of the latest question; and those up to the
    /// last one that someone waits for.
    covered: u32,
    asked: u32,
    wanted: u32,
}

impl Questions {
    /// The first `count` requests are asked for, by the last of them.
    pub(super) fn cover(&mut self, count: u32) {
        self.covered = count;
    }

    /// The requests from `count` on are to be sent again.
    pub(super) fn go_back(&mut self, count: u32) {
        for known in [&mut self.covered, &mut self.asked, &mut self.wanted] {
            if behind(count, *known) {
                *known = count;
            }
        }
    }

    /// The peer has accepted `count` requests.
    pub(super) fn hear(&mut self, count: u32) {
        // So that neither falls so far behind that it seems ahead.
        for known in [&mut self.covered, &mut self.asked, &mut self.wanted] {
            if behind(*known, count) {
                *known = count;
            }
        }
    }

    /// Someone waits for the first `count` requests.
    #[inline]
    pub(super) fn want(&mut self, count: u32) {
        self.wanted = count;
    }

    /// Whether someone waits for a request that is not among the first `acked`.
    #[inline]
    pub(super) fn awaits(&self, acked: u32) -> bool {
        behind(acked, self.wanted)
    }

    /// Whether any request that someone waits for is not asked for.
    #[inline]
    pub(super) fn are_open(&self) -> bool {
        behind(self.covered, self.wanted)
    }

    /// Whether any of the first `sent` requests is not asked for, and no one waits for those.
    #[inline]
    pub(super) fn are_left(&self, sent: u32) -> bool {
        behind(self.covered, sent) && !self.are_open()
    }

    /// Whether a question is to be asked, when `acked` requests are acknowledged.
    #[inline]
    pub(super) fn wants_to_ask(&self, acked: u32) -> bool {
        self.are_open() && !behind(acked, self.asked)
    }

    /// Whether a question is to be asked, when `sent` requests have gone and `acked` of them are acknowledged. If so,
    /// it is as good as asked.
    pub(super) fn ask(&mut self, sent: u32, acked: u32) -> bool {
        let ask = self.wants_to_ask(acked);
        if ask {
            (self.covered, self.asked) = (sent, sent);
        }
        ask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_acknowledges_when_asked_or_after_much() {
        let mut debt = Debt::default();
        for _ in 0..REQUESTS - 1 {
            debt.accept(64);
            assert!(!debt.is_due());
        }
        debt.accept(64);
        assert!(debt.is_due() && debt.acknowledge() == REQUESTS && !debt.is_due());
        debt.accept(BYTES);
        assert!(debt.is_due() && debt.acknowledge() == REQUESTS + 1);
        // Asked for what it has not accepted yet, it acknowledges every one of them.
        debt.ask(REQUESTS + 3);
        assert!(!debt.is_due());
        debt.accept(0);
        assert!(debt.is_due() && debt.acknowledge() == REQUESTS + 2);
        debt.accept(0);
        assert!(debt.is_due() && debt.acknowledge() == REQUESTS + 3);
        debt.accept(0);
        assert!(!debt.is_due());
    }

    #[test]
    fn what_a_message_asks_for_may_wait_and_nothing_else() {
        let mut debt = Debt::default();
        debt.accept(64);
        debt.ask(1);
        assert!(debt.is_due() && debt.is_patient());
        debt.accept(64);
        debt.ask_urgently(2);
        assert!(debt.is_due() && !debt.is_patient());
        debt.acknowledge();
        for _ in 0..REQUESTS - 1 {
            debt.accept(0);
            debt.ask(debt.accepted);
            assert!(debt.is_due() && debt.is_patient());
        }
        debt.accept(0);
        assert!(debt.is_due() && !debt.is_patient(), "many of them");
        debt.acknowledge();
        debt.accept(BYTES);
        assert!(debt.is_due() && !debt.is_patient(), "much of it");
    }

    #[test]
    fn everything_is_asked_for_one_question_at_a_time_also_when_numbers_wrap() {
        let mut questions = Questions::default();
        let mut debt = Debt::default();
        let (mut sent, mut acked) = (0u32, 0u32);
        // Far on each time, and around in the end.
        for _ in 0..5 {
            sent = sent.wrapping_add(u32::MAX / 3);
            acked = sent;
            questions.hear(sent);
            (debt.accepted, debt.acked, debt.asked) = (sent, sent, sent);
            for round in 0..100u32 {
                for _ in 0..round % 5 + 1 {
                    sent = sent.wrapping_add(1);
                    debt.accept(0);
                }
                assert!(!questions.ask(sent, acked) && questions.are_left(sent), "no one waits");
                questions.want(sent);
                assert!(!questions.are_left(sent) && questions.ask(sent, acked));
                assert!(!questions.ask(sent, acked), "all is asked for");
                questions.want(sent.wrapping_add(1));
                assert!(!questions.ask(sent.wrapping_add(1), acked), "one question at a time");
                questions.want(sent);
                debt.ask(sent);
                assert!(debt.is_due());
                acked = debt.acknowledge();
                questions.hear(acked);
                assert_eq!(acked, sent);
            }
        }
        assert!(!questions.ask(sent, acked));
    }
}
