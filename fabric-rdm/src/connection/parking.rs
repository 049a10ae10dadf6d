//! Parking: both sides finish what is under way, say so, and close the connection. And what else makes room.

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

    fn drain(&mut self, conn: ConnId, session: u64, parking: Parking) {
        self.state = State::Draining { conn, session, parking };
        self.actions.push_back(Action::Drain(conn));
    }

    /// All that was sent is completed, and nothing more was.
    pub fn drained(&mut self, conn: ConnId) {
        if let State::Draining { conn: current, parking, .. } = &mut self.state
            && *current == conn
            && !parking.asked
        {
            parking.asked = true;
            self.actions.push_back(Action::SendPark(conn));
        }
    }

    /// The message of parking is posted: nothing more is sent.
    pub fn park_sent(&mut self, conn: ConnId) {
        if let State::Draining { conn: current, parking, .. } = &mut self.state
            && *current == conn
        {
            parking.sent = parking.asked;
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

    /// Whether this side has said that it is done with the connection.
    pub fn has_sent_park(&self) -> bool {
        matches!(self.state, State::Draining { parking: Parking { sent: true, .. }, .. })
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
