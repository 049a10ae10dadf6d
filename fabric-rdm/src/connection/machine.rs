//! What happens to the connection to one peer, as a state machine without I/O and without a clock.

use std::collections::VecDeque;
use std::time::Duration;

use fabric_core::cold_path;

use super::action::{Action, Answer, ConnId, DeathCause, Phase, Timeouts};
use super::hello::{Hello, Refusal};
use crate::identity::EndpointIdentity;

/// A session number may be so much higher than the last one known: more is not honest, and could use the numbers up.
pub(super) const MAX_SESSIONS_AHEAD: u64 = 1 << 32;

#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// Without a connection, and without need.
    Idle,
    /// Until the next attempt.
    Waiting {
        until: Duration,
        force: bool,
    },
    Dialing {
        conn: ConnId,
        session: u64,
        force: bool,
        until: Duration,
    },
    Accepted {
        conn: ConnId,
        session: u64,
        until: Duration,
    },
    /// This side asked and confirmed. Until the peer says something it may have given the connection up, as the confirmation did
    /// not come for long: then this was an attempt that failed.
    Confirmed {
        conn: ConnId,
        session: u64,
    },
    Established {
        conn: ConnId,
        session: u64,
    },
    Draining {
        conn: ConnId,
        session: u64,
        parking: Parking,
    },
    Dead(DeathCause),
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parking {
    /// All is finished, and the peer is to be sent word of it.
    pub(super) asked: bool,
    /// It was.
    pub(super) sent: bool,
    /// That has arrived.
    pub(super) completed: bool,
    /// The peer sent word of the same.
    pub(super) heard: bool,
}

/// The connection to one peer: see the [module](super). All times count from any moment, the same for all calls.
#[derive(Debug)]
pub struct PeerConnection {
    pub(super) me: EndpointIdentity,
    peer: EndpointIdentity,
    pub(super) timeouts: Timeouts,
    pub(super) state: State,
    /// When the connection was wanted for the first time since there was one.
    pub(super) first_wanted: Duration,
    /// When the connection was first wanted that is not there.
    pub(super) wanted: Option<Duration>,
    /// Since when there is no place for it on this side.
    pub(super) no_place_since: Option<Duration>,
    /// The highest number of any attempt that is known, and of a connection that was accepted.
    pub(super) attempts: u64,
    accepted: u64,
    pub(super) life: u32,
    /// The highest life that the peer spoke of.
    pub(super) peer_life: u32,
    pub(super) sent: u64,
    pub(super) received: u64,
    /// There was a connection in this life, and in any.
    has_met: bool,
    has_ever_met: bool,
    pub(super) failures: u32,
    /// The last attempt was refused since the peer does not know this side.
    pub(super) is_stranger: bool,
    next_conn: u64,
    pub(super) actions: VecDeque<Action>,
}

impl PeerConnection {
    /// None yet. `me` and `peer` differ: what an endpoint sends to itself needs no connection.
    pub fn new(me: EndpointIdentity, peer: EndpointIdentity, timeouts: Timeouts) -> Self {
        PeerConnection {
            me,
            peer,
            timeouts,
            state: State::Idle,
            first_wanted: Duration::ZERO,
            wanted: None,
            no_place_since: None,
            attempts: 0,
            accepted: 0,
            life: 0,
            peer_life: 0,
            sent: 0,
            received: 0,
            has_met: false,
            has_ever_met: false,
            failures: 0,
            is_stranger: false,
            next_conn: 0,
            actions: VecDeque::new(),
        }
    }

    /// Its attempts have higher numbers than this: than those of before the peer was removed, which may still be under way.
    pub fn after(self, attempts: u64) -> Self {
        PeerConnection { attempts, ..self }
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Idle if self.has_met => Phase::Parked,
            State::Idle => Phase::Idle,
            State::Waiting { .. } | State::Dialing { .. } => Phase::Dialing,
            State::Accepted { .. } => Phase::Accepted,
            State::Confirmed { .. } => Phase::Confirmed,
            State::Established { .. } => Phase::Established,
            State::Draining { .. } => Phase::Draining,
            State::Dead(_) => Phase::Dead,
        }
    }

    /// Why the peer is dead, if it is.
    pub fn death(&self) -> Option<DeathCause> {
        if let State::Dead(cause) = self.state {
            cold_path();
            return Some(cause);
        }
        None
    }

    /// The next thing to do. To be asked after each other call.
    pub fn poll_action(&mut self) -> Option<Action> {
        let next = self.actions.pop_front();
        if next.is_none() {
            // They are rare: an empty list takes no memory.
            self.actions = VecDeque::new();
        }
        next
    }

    /// When [`tick`](Self::tick) has to be called at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        let own = match self.state {
            // There is a call when there is a place.
            State::Waiting { .. } if self.no_place_since.is_some() => None,
            State::Waiting { until, .. }
            | State::Dialing { until, .. }
            | State::Accepted { until, .. } => Some(until),
            _ => None,
        };
        own.into_iter().chain(self.expires()).min()
    }

    /// Whether [`poll_action`](Self::poll_action) has one.
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    fn is_dead(&self) -> bool {
        matches!(self.state, State::Dead(_))
    }

    /// A post waits for a connection.
    ///
    /// # Errors
    /// The peer is dead.
    pub fn want(&mut self, now: Duration) -> Result<(), DeathCause> {
        match self.state {
            State::Dead(cause) => return Err(cause),
            State::Established { .. } => {}
            State::Idle => {
                (self.wanted, self.first_wanted) = (Some(now), now);
                self.dial(now, false);
            }
            _ if self.wanted.is_none() => (self.wanted, self.first_wanted) = (Some(now), now),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn conn(&mut self) -> ConnId {
        self.next_conn += 1;
        ConnId(self.next_conn)
    }

    pub(super) fn hello(&self, session: u64, force: bool) -> Hello {
        let PeerConnection { me: from, peer: to, life, sent, received, .. } = *self;
        Hello { from, to, session, life, force, sent, received }
    }

    /// The connection that there is, or is attempted.
    pub(super) fn current(&self) -> Option<ConnId> {
        match self.state {
            State::Dialing { conn, .. }
            | State::Accepted { conn, .. }
            | State::Confirmed { conn, .. }
            | State::Established { conn, .. }
            | State::Draining { conn, .. } => Some(conn),
            State::Idle | State::Waiting { .. } | State::Dead(_) => None,
        }
    }

    pub(super) fn die(&mut self, cause: DeathCause) {
        self.actions.extend(self.current().map(Action::Close));
        self.actions.push_back(Action::Died(cause));
        self.state = State::Dead(cause);
        (self.wanted, self.no_place_since) = (None, None);
    }

    /// The application takes the peer for alive again, which is a new life of the pair.
    pub fn revive(&mut self) {
        if self.is_dead() {
            self.state = State::Idle;
            self.life = self.life.saturating_add(1).max(self.peer_life);
            (self.sent, self.received, self.failures, self.has_met) = (0, 0, 0, false);
        }
    }

    /// The peer asks for a connection. Answers at once: nothing else is to be done for a request that is refused.
    pub fn on_request(&mut self, now: Duration, hello: &Hello) -> Answer {
        if hello.to != self.me || hello.from != self.peer {
            return Answer::Refuse(Refusal::Gone);
        }
        if hello.session <= self.accepted
            || hello.session.saturating_sub(self.attempts) > MAX_SESSIONS_AHEAD
        {
            return Answer::Refuse(Refusal::Stale(self.attempts));
        }
        self.found_place(now);
        self.is_there(now);
        // The peer has no connection any more, or it would not ask. What that means here depends on the state.
        if let State::Established { conn, .. } | State::Draining { conn, .. } = self.state {
            self.actions.push_back(Action::Close(conn));
            self.on_lost(now, conn);
        }
        if let Some(refusal) = self.refuse_life(hello) {
            return Answer::Refuse(refusal);
        }
        match self.state {
            State::Dialing { force, .. } if self.wins(force, hello.force) => {
                return Answer::Refuse(Refusal::Crossing);
            }
            State::Dialing { conn, .. }
            | State::Accepted { conn, .. }
            | State::Confirmed { conn, .. } => self.actions.push_back(Action::Close(conn)),
            _ => {}
        }
        // Requests of this side that were given up may still be under way: with this number, or a lower one, the peer
        // refuses them.
        self.attempts = self.attempts.max(hello.session);
        self.accepted = self.attempts;
        let (conn, session) = (self.conn(), self.accepted);
        // Longer than the initiator waits for this, and a word of it may be under way.
        let until = now.saturating_add(self.timeouts.connect.saturating_mul(2));
        self.state = State::Accepted { conn, session, until };
        Answer::Accept(conn, self.hello(session, hello.force))
    }

    /// Whether the own attempt wins over the peer's. Both sides come to the same result.
    fn wins(&self, mine: bool, theirs: bool) -> bool {
        if mine == theirs { self.me < self.peer } else { mine }
    }

    /// Whether there never was a connection, as far as this side knows. A request that was accepted is none: it may be one that was
    /// given up long ago, before this side forgot the peer.
    pub(super) fn is_new(&self) -> bool {
        !self.has_ever_met
    }

    /// Why a request cannot go on with the pair's life as it is here.
    fn refuse_life(&mut self, hello: &Hello) -> Option<Refusal> {
        self.peer_life = self.peer_life.max(hello.life);
        if self.is_new() && !self.is_dead() {
            // This side may have forgotten the peer, and inserted it again.
            let knows_more = (hello.sent, hello.received) != (0, 0);
            if knows_more && matches!(self.state, State::Dialing { .. }) {
                // The own attempt says which life it is of. Perhaps the peer has forgotten this side too since it asked.
                return Some(Refusal::Over(hello.life));
            }
            self.life = self.life.max(hello.life.saturating_add(u32::from(knows_more)));
        }
        if hello.life < self.life {
            return Some(Refusal::Over(self.life - 1));
        }
        if self.is_dead() {
            return Some(Refusal::Over(self.life));
        }
        if hello.life > self.life {
            self.die(DeathCause::Lost);
            return Some(Refusal::Over(self.life));
        }
        if (hello.sent, hello.received) != (self.received, self.sent) {
            // One that knows of no message has forgotten this side, and inserted it again: no rule is broken.
            let is_forgotten = (hello.sent, hello.received) == (0, 0);
            self.die(if is_forgotten { DeathCause::Lost } else { DeathCause::Protocol });
            return Some(Refusal::Over(self.life));
        }
        None
    }

    /// The peer accepted the attempt, with this.
    pub fn on_connected(&mut self, now: Duration, conn: ConnId, hello: &Hello) {
        let State::Dialing { conn: current, session, .. } = self.state else { return };
        if conn != current {
            return;
        }
        if hello.from != self.peer || hello.to != self.me {
            return self.die(DeathCause::Gone);
        }
        if hello.life < self.life && self.is_new() {
            // The peer has begun a life since the attempt was made, and has asked in that.
            self.actions.push_back(Action::Close(conn));
            return self.retry_later(now);
        }
        let numbers = (hello.life, hello.sent, hello.received);
        let ahead = hello.session.checked_sub(session);
        if numbers != (self.life, self.received, self.sent)
            || ahead.is_none_or(|ahead| ahead > MAX_SESSIONS_AHEAD)
        {
            return self.die(DeathCause::Protocol);
        }
        self.attempts = self.attempts.max(hello.session);
        self.accepted = hello.session;
        self.actions.push_back(Action::Confirm(conn));
        self.state = State::Confirmed { conn, session: hello.session };
    }

    /// Anything came by this connection: so the peer has it. Whether that is new; then there are actions before what came is
    /// looked at.
    pub fn on_heard(&mut self, conn: ConnId) -> bool {
        match self.state {
            State::Confirmed { conn: current, session } if conn == current => {
                cold_path();
                self.establish(conn, session);
                true
            }
            _ => false,
        }
    }

    /// The initiator confirmed the connection: its first message.
    pub fn on_confirm(&mut self, conn: ConnId) {
        match self.state {
            State::Accepted { conn: current, session, .. } if conn == current => {
                self.establish(conn, session);
            }
            _ if self.current() == Some(conn) => self.die(DeathCause::Protocol),
            _ => {}
        }
    }

    fn establish(&mut self, conn: ConnId, session: u64) {
        self.state = State::Established { conn, session };
        (self.wanted, self.failures, self.is_stranger) = (None, 0, false);
        (self.has_met, self.has_ever_met) = (true, true);
        self.actions.push_back(Action::Ready(conn));
    }

    /// A connection that there was is lost, or was closed by the peer.
    pub fn on_lost(&mut self, now: Duration, conn: ConnId) {
        if self.current() != Some(conn) {
            return;
        }
        match self.state {
            // All of this side is finished. If something of the peer is not, that side notices.
            State::Draining { parking: Parking { sent: true, .. }, .. } => self.parked(now),
            State::Established { .. } | State::Draining { .. } => {
                self.state = State::Idle;
                self.die(DeathCause::Lost);
            }
            _ => self.retry_later(now),
        }
    }

    /// There will be no connection any more.
    pub fn on_device_lost(&mut self) {
        if !self.is_dead() {
            self.die(DeathCause::Lost);
        }
    }

    /// The peer broke the protocol on this connection.
    pub fn on_broken(&mut self, conn: ConnId) {
        if self.current() == Some(conn) {
            self.die(DeathCause::Protocol);
        }
    }

    /// The highest number of any attempt that is known, and of messages that were sent and received in this life: what the
    /// peer's next [`Hello`] is near to.
    pub fn numbers(&self) -> (u64, u64, u64) {
        (self.attempts, self.sent, self.received)
    }
}
