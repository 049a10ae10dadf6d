//! The numbers of messages: they count within a life of the pair, whatever connections it has.

use super::action::{ConnId, DeathCause};
use super::machine::{Parking, PeerConnection, State};

impl PeerConnection {
    /// The number of the next message to the peer; `None`: none may be sent now.
    pub fn next_number(&mut self) -> Option<u64> {
        match self.state {
            State::Established { .. }
            | State::Draining { parking: Parking { sent: false, .. }, .. } => {
                self.sent += 1;
                Some(self.sent - 1)
            }
            _ => None,
        }
    }

    /// A message with this number came: whether it is to be taken. Not if it came by a connection that was given up; and if
    /// it is not the one behind the last one, that is the peer's death.
    pub fn on_message(&mut self, conn: ConnId, number: u64) -> bool {
        let (State::Established { conn: current, .. } | State::Draining { conn: current, .. }) =
            self.state
        else {
            return false;
        };
        if current != conn {
            return false;
        }
        if number != self.received {
            self.die(DeathCause::Protocol);
            return false;
        }
        self.received += 1;
        true
    }

    /// The number of the session that messages go by: the same on both sides.
    pub fn session(&self) -> Option<u64> {
        match self.state {
            State::Established { session, .. } | State::Draining { session, .. } => Some(session),
            _ => None,
        }
    }
}
