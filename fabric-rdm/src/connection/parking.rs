//! Parking: both sides finish what is under way, say so, and close the connection. And what else makes room, or waits for it.

use std::time::Duration;

use super::action::{Action, ConnId, DeathCause};
use super::machine::{Parking, PeerConnection, State};

impl PeerConnection {
    /// Parks the connection, if there is one: whether.
    pub fn park(&mut self) -> bool {
        match self.state {
            State::Established { conn, session } => {
                self.drain(conn, session, Parking::default());
                true
            }
            _ => false,
        }
    }

    /// Gives up a connection that takes a place and is of no use: one that was accepted and is not confirmed, or whose parking
    /// the peer does not answer. Whether there was one. A peer that lives, and comes back later, finds it lost.
    pub fn abandon(&mut self, now: Duration) -> bool {
        match self.state {
            State::Accepted { conn, .. } => {
                self.actions.push_back(Action::Close(conn));
                self.retry_later(now);
            }
            State::Draining { conn, parking: Parking { sent: true, .. }, .. } => {
                self.actions.push_back(Action::Close(conn));
                self.parked(now);
            }
            _ => return false,
        }
        true
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
    pub fn no_place(&mut self, now: Duration) {
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

    fn drain(&mut self, conn: ConnId, session: u64, parking: Parking) {
        self.state = State::Draining { conn, session, parking };
        self.actions.push_back(Action::Drain(conn));
    }

    /// All that was sent is completed, and nothing more was.
    pub fn drained(&mut self, conn: ConnId) {
        if let State::Draining { conn: current, parking, .. } = &mut self.state
            && *current == conn
            && !parking.sent
        {
            parking.sent = true;
            self.actions.push_back(Action::SendPark(conn));
        }
    }

    /// The message of parking is completed: it has arrived.
    pub fn park_completed(&mut self, now: Duration, conn: ConnId) {
        self.change_parking(now, conn, |parking| parking.completed = parking.sent);
    }

    /// The peer's message of parking: nothing comes after it.
    pub fn on_park(&mut self, now: Duration, conn: ConnId) {
        match self.state {
            State::Established { conn: current, session } if current == conn => {
                self.drain(conn, session, Parking { heard: true, ..Parking::default() });
            }
            State::Draining { .. } => {
                self.change_parking(now, conn, |parking| parking.heard = true)
            }
            _ if self.current() == Some(conn) => self.die(DeathCause::Protocol),
            _ => {}
        }
    }

    /// Whether the peer has said that it is done with the connection. If it has not, the loss of the connection may be the end of
    /// what waits there.
    pub fn has_heard_park(&self) -> bool {
        matches!(self.state, State::Draining { parking: Parking { heard: true, .. }, .. })
    }

    fn change_parking(&mut self, now: Duration, conn: ConnId, change: impl FnOnce(&mut Parking)) {
        if let State::Draining { conn: current, parking, .. } = &mut self.state
            && *current == conn
        {
            change(parking);
            if parking.completed && parking.heard {
                self.actions.push_back(Action::Close(conn));
                self.parked(now);
            }
        }
    }

    /// The connection was closed in agreement.
    pub(super) fn parked(&mut self, now: Duration) {
        self.state = State::Idle;
        if self.wanted.is_some() {
            self.dial(now, false);
        }
    }
}
