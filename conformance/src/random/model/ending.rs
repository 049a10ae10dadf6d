//! How a connection ends.
//!
//! | rule | here |
//! |---|---|
//! | a connection ends for a reason: closed from either side, or an operation that the target refuses | [`Model::must_end`], [`Model::may_end`] |
//! | each side hears of it once, by `Disconnected` with a reason that fits; a dropped endpoint does not | [`Model::event`] |
//! | who has noticed the end takes no post, and executes nothing of the peer's any more | [`Model::notice`] |

use fabric::DisconnectReason;

use super::Model;
use super::queue::Fate;
use crate::check::{Failed, Outcome};

impl Model {
    /// Whether the connection of this end ends without anything else happening.
    pub(super) fn must_end(&self, at: usize) -> bool {
        let either = |at: usize| self.ends[at].closed || self.ends[at].culprit.is_some();
        self.ends[at].closed || self.ends[at].connected && (either(at) || either(at ^ 1))
    }

    /// Whether it can have ended.
    pub(super) fn may_end(&self, at: usize) -> bool {
        self.must_end(at) || self.wavers(at) || self.wavers(at ^ 1)
    }

    /// Whether one of the end's operations may have been refused, or not.
    fn wavers(&self, at: usize) -> bool {
        let too_long = self.messages_coming(at ^ 1).any(|op| self.may_be_too_long(at, op));
        too_long
            || self.ends[at].sends.iter().any(|op| {
                let uncertain = op.fate == Fate::Uncertain
                    || matches!(op.early, Some(Fate::Refused | Fate::Uncertain));
                uncertain && !op.done
            })
    }

    /// Whether something but the end's own refused operation may have ended the connection.
    pub(super) fn has_other_cause(&self, at: usize) -> bool {
        let peer = at ^ 1;
        let closed = self.ends[at].closed || self.ends[peer].closed;
        closed || self.ends[peer].culprit.is_some() || self.wavers(at) || self.wavers(peer)
    }

    /// This side has noticed the end: what the peer's operations have not done here they never do.
    pub(super) fn notice(&mut self, at: usize) {
        let now = self.now;
        self.ends[at].dead = true;
        for index in 0..self.ends[at ^ 1].sends.len() {
            self.publish_there(at ^ 1, index, now);
        }
    }

    /// The application ended the connection from this side.
    pub(in crate::random) fn disconnected(&mut self, at: usize) {
        self.tick();
        self.ends[at].closed = true;
        self.notice(at);
    }

    /// The application dropped the endpoint: its memory is left alone from now on.
    pub(in crate::random) fn dropped(&mut self, at: usize) {
        let now = self.tick();
        self.ends[at].closed = true;
        self.ends[at].dropped = true;
        self.notice(at);
        for index in 0..self.ends[at].sends.len() {
            self.leave_alone(at, index, now);
        }
        self.let_go();
    }

    /// Nothing of what an operation does to this side's memory is to come.
    pub(super) fn leave_alone(&mut self, at: usize, index: usize, now: u64) {
        let op = &self.ends[at].sends[index];
        if let Some(effect) = op.effect {
            if op.landing.is_empty() {
                self.bytes.settle(effect);
            } else {
                self.bytes.publish(effect, now);
            }
        }
    }

    /// Whether an end still has to hear that its connection is over.
    pub(in crate::random) fn owes_event(&self, at: usize) -> bool {
        let end = &self.ends[at];
        end.connected && !end.dropped && !end.reported && self.must_end(at)
    }

    /// Whether nothing of the connection is left: this end has heard of its end, or never had any.
    pub(in crate::random) fn is_over(&self, at: usize) -> bool {
        let end = &self.ends[at];
        !end.connected || end.dropped || end.dead || self.may_end(at)
    }

    /// An end heard that its connection is over.
    pub(in crate::random) fn event(&mut self, at: usize, reason: DisconnectReason) -> Outcome {
        self.tick();
        let (end, peer) = (&self.ends[at], &self.ends[at ^ 1]);
        let refusal = end.culprit.is_some()
            || peer.culprit.is_some()
            || self.wavers(at)
            || self.wavers(at ^ 1);
        let fits = match reason {
            DisconnectReason::Local => end.closed,
            DisconnectReason::Remote => peer.closed,
            DisconnectReason::OperationFailed => refusal,
            // Its last word can be lost where it leaves in haste.
            DisconnectReason::PeerLost => peer.closed,
            _ => false,
        };
        if !end.connected || end.dropped || end.reported || !fits {
            let before = if end.reported { ", and it was reported before" } else { "" };
            return Err(Failed::new(
                format!(
                    "no such event: e{at} closed {}, peer closed {}, an operation refused {refusal}{before}",
                    end.closed, peer.closed
                ),
                format!("Disconnected({reason:?}) of e{at}"),
            ));
        }
        self.ends[at].reported = true;
        self.notice(at);
        Ok(())
    }
}
