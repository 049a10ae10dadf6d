//! Attempts at a connection: when they are made, how they fail, and when another one follows.

use std::time::Duration;

use fabric_util::splitmix::mix;

use super::action::{Action, ConnId, DeathCause, DialError, Timeouts};
use super::hello::Refusal;
use super::machine::{MAX_SESSIONS_AHEAD, PeerConnection, State};

/// A peer that answers is waited for so many times as long as one that may not be there.
const BUSY: u32 = 10;

impl PeerConnection {
    pub(super) fn dial(&mut self, now: Duration, force: bool) {
        self.found_place(now);
        self.attempts += 1;
        let (conn, session) = (self.conn(), self.attempts);
        let until = now.saturating_add(self.timeouts.attempt);
        self.state = State::Dialing { conn, session, force, until };
        self.actions.push_back(Action::Dial(conn, self.hello(session, force)));
    }

    /// No connection any more: another attempt later, if one is wanted.
    pub(super) fn retry_later(&mut self, now: Duration) {
        let wait = self.timeouts.retry.saturating_mul(1 << self.failures.min(5));
        self.failures = self.failures.saturating_add(1);
        // Those that failed together do not try again together.
        let [.., seed] = self.me.to_bytes();
        let part = mix(self.attempts ^ u64::from(seed)) as u8;
        self.retry_after(now, wait - wait / 512 * part.into());
    }

    fn retry_after(&mut self, now: Duration, wait: Duration) {
        let until = now.saturating_add(wait);
        self.state = match self.wanted {
            None => State::Idle,
            Some(_) => State::Waiting { until, force: false },
        };
    }

    /// The peer has no place now, and says when it may have one: it is asked then, within reason. Zero: it does not know.
    fn retry_at_appointment(&mut self, now: Duration, wait: Duration) {
        if wait.is_zero() {
            return self.retry_later(now);
        }
        let Timeouts { connect, retry, .. } = self.timeouts;
        self.retry_after(now, wait.max(retry).min(connect / 2));
    }

    /// The peer has said something: it is not unreachable, though it may take long until both have a place.
    pub(super) fn is_there(&mut self, now: Duration) {
        let last = self.first_wanted.saturating_add(self.timeouts.connect.saturating_mul(BUSY));
        self.wanted = self.wanted.map(|since| since.max(now.min(last)));
    }

    /// An attempt failed.
    pub fn on_failed(&mut self, now: Duration, conn: ConnId, error: DialError) {
        let State::Dialing { conn: current, .. } = self.state else { return };
        if conn != current {
            return;
        }
        if let DialError::Refused(Refusal::Over(life)) = error {
            self.peer_life = self.peer_life.max(life.saturating_add(1));
        }
        if let DialError::Refused(Refusal::Busy(_) | Refusal::Crossing | Refusal::Stale(_)) = error
        {
            self.is_there(now);
        }
        match error {
            DialError::Refused(Refusal::Crossing) => {
                let until = now.saturating_add(self.timeouts.crossing);
                self.state = State::Waiting { until, force: true };
            }
            DialError::Refused(Refusal::Gone) => {
                self.state = State::Idle;
                self.die(DeathCause::Gone);
            }
            DialError::Refused(Refusal::Over(life)) if life >= self.life => {
                if self.is_new() {
                    // What is over is of before this side forgot the peer: nothing of this side's is lost with it.
                    self.life = life.saturating_add(1);
                    return self.retry_later(now);
                }
                self.state = State::Idle;
                self.die(DeathCause::Lost);
            }
            DialError::Refused(Refusal::Stale(attempts)) => {
                let ahead = attempts.saturating_sub(self.attempts).min(MAX_SESSIONS_AHEAD);
                self.attempts += ahead;
                self.retry_later(now);
            }
            DialError::Refused(Refusal::Busy(wait)) => self.retry_at_appointment(now, wait),
            DialError::Refused(Refusal::Stranger | Refusal::Over(_)) | DialError::Unreachable => {
                self.is_stranger = error == DialError::Refused(Refusal::Stranger);
                self.retry_later(now);
            }
        }
    }

    /// The attempt that is under way is given up, and made again later: its place is needed. Whether there was one.
    pub fn give_way(&mut self, now: Duration) -> bool {
        let State::Dialing { conn, until, .. } = self.state else { return false };
        self.actions.push_back(Action::Close(conn));
        self.no_place(now);
        // Perhaps the peer had no place for it, and was about to say so.
        let begun = until.saturating_sub(self.timeouts.attempt);
        self.no_place_since = self.no_place_since.map(|_| begun);
        true
    }

    /// This side has no place for an attempt now. It is made when there is one, by [`hurry`](Self::hurry), and the time until
    /// then does not count against the peer.
    fn no_place(&mut self, now: Duration) {
        self.retry_later(now);
        self.no_place_since = self.wanted.map(|_| now);
    }

    /// The same of the attempt that this is: it could not be made, or came to its end, for want of something on this side.
    pub fn on_no_place(&mut self, now: Duration, conn: ConnId) {
        if matches!(self.state, State::Dialing { conn: current, .. } if current == conn) {
            self.no_place(now);
        }
    }

    /// There is a place again, if there was none.
    pub(super) fn found_place(&mut self, now: Duration) {
        if let Some(since) = self.no_place_since.take() {
            let without = now.saturating_sub(since);
            self.first_wanted = self.first_wanted.saturating_add(without);
            self.wanted = self.wanted.map(|wanted| wanted.saturating_add(without));
        }
    }

    /// When the peer is unreachable.
    pub(super) fn expires(&self) -> Option<Duration> {
        let counts = self.wanted.filter(|_| self.no_place_since.is_none());
        counts.map(|since| since.saturating_add(self.timeouts.connect))
    }

    /// What kept the next attempt waiting is over: it is made at once. Whether one waited.
    pub fn hurry(&mut self, now: Duration) -> bool {
        let waits = matches!(self.state, State::Waiting { .. });
        if let State::Waiting { force, .. } = self.state {
            self.dial(now, force);
        }
        waits
    }

    /// Time passes. Whether an attempt was given up, as the peer did not answer.
    pub fn tick(&mut self, now: Duration) -> bool {
        let is_under_way = matches!(self.state, State::Dialing { .. });
        if self.expires().is_some_and(|at| at <= now) {
            let cause =
                if self.is_stranger { DeathCause::NotAdmitted } else { DeathCause::Unreachable };
            self.die(cause);
            return is_under_way;
        }
        match self.state {
            State::Waiting { until, force } if until <= now && self.no_place_since.is_none() => {
                self.dial(now, force);
            }
            // One that was accepted and is not confirmed holds a place.
            State::Dialing { conn, until, .. } | State::Accepted { conn, until, .. }
                if until <= now =>
            {
                self.actions.push_back(Action::Close(conn));
                self.retry_later(now);
                return is_under_way;
            }
            _ => {}
        }
        false
    }
}
