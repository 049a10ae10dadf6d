//! What an endpoint keeps for one peer, from the first post or request on.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use fabric::Endpoint;
use fabric_core::RemoteRegion;
use fabric_core::cold_path;
use smallvec::SmallVec;

use super::dialed_rail::DialedRail;
use super::ops::Incoming;
use super::shared::Shared;
use super::shortage::Taken;
use super::table::OpKey;
use crate::connection::{ConnId, PeerConnection};
use crate::peers::Peer;
use crate::window::{Account, Grant, SendWindow};

/// A connection, or an attempt at one.
pub(super) struct Conn {
    pub(super) id: ConnId,
    pub(super) endpoint: Endpoint,
    /// The operations of its send queue that have not completed, in the order of their posts, which is that of their ends.
    pub(super) posted: VecDeque<PostedOp>,
    /// The number of the next one, and so of the oldest.
    pub(super) next_post: u64,
    /// It has ended, and what is posted has not.
    pub(super) is_lost: bool,
    /// An operation has failed: so it has ended, and the event that says so is still to come.
    pub(super) has_failed: bool,
    /// What it takes of the process.
    pub(super) taken: Taken<'static>,
}

impl Conn {
    pub(super) fn new(id: ConnId, endpoint: Endpoint, is_attempt: bool) -> Self {
        let taken = Taken::new(is_attempt);
        let (posted, is_lost, has_failed) = (VecDeque::new(), false, false);
        Conn { id, endpoint, posted, next_post: 0, is_lost, has_failed, taken }
    }

    /// The operation with this number has completed, and with it each before.
    pub(super) fn completed(&mut self, number: u64) -> Option<PostedOp> {
        let oldest = self.next_post - self.posted.len() as u64;
        (number == oldest).then(|| self.posted.pop_front()).flatten()
    }
}

/// An operation of a send queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct PostedOp {
    pub(super) what: PostedKind,
    /// The head that went before payload.
    pub(super) head: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PostedKind {
    /// Of this operation of the application.
    Op(OpKey),
    /// A read for this delivery.
    Read(OpKey),
    Control,
    Park,
}

/// What is to be said to the peer, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Fetch(u64),
    Offer(u64, RemoteRegion),
    Done(u64),
    Matched(u64),
}

/// One peer.
pub(super) struct PeerLink {
    pub(super) peer: Peer,
    pub(super) connection: PeerConnection,
    pub(super) conns: SmallVec<[Conn; 1]>,
    /// The one that messages go by.
    pub(super) current: Option<ConnId>,
    /// The peer's part of the receive window; none once it is dead.
    pub(super) account: Option<Account>,
    /// What may be sent; none before the peer's windows are known.
    pub(super) window: Option<SendWindow>,
    /// Operations that wait for the connection, or for room in it.
    pub(super) queue: VecDeque<OpKey>,
    /// Messages in the queue for which the window has no place yet.
    pub(super) uncharged: u64,
    /// One more was refused, and there was no connection by which to hear that there is a place again.
    pub(super) asks: bool,
    /// Operations that have not ended, in the order of their posts, with some that have.
    pub(super) outstanding: VecDeque<OpKey>,
    /// Operations of `outstanding` that have not ended.
    pub(super) live: usize,
    /// Messages that wait for a word of the peer, by their numbers.
    pub(super) awaiting: BTreeMap<u64, OpKey>,
    /// Messages that go in pieces.
    pub(super) serving: VecDeque<OpKey>,
    /// The peer has granted something on this connection, and has been granted something, perhaps nothing.
    pub(super) has_grant: bool,
    pub(super) has_granted: bool,
    /// Messages that were fetched, by their numbers, and whose grants are not open yet.
    pub(super) granting: VecDeque<(u64, OpKey)>,
    /// Deliveries with reads to post.
    pub(super) reading: VecDeque<OpKey>,
    /// Reads that have not completed.
    pub(super) reads: u32,
    pub(super) controls: VecDeque<Control>,
    /// The newest one, where it is not sent.
    pub(super) grant: Option<Grant>,
    /// To be confirmed.
    pub(super) confirm: Option<ConnId>,
    /// A post found no room though none is under way: nothing reports that there is some.
    pub(super) lacks_room: bool,
    pub(super) send_park: bool,
    pub(super) draining: bool,
    /// So many of the queue go before the connection is parked: those that can go at once. So each connection is of use, however
    /// soon its place is needed.
    pub(super) drain_left: usize,
    /// The last message of the connection was sent.
    pub(super) park_sent: bool,
    /// Messages that the peer fetched since then.
    pub(super) late_fetches: Vec<u64>,
    /// Bytes of a frame that the peer takes.
    pub(super) peer_slot: u64,
    /// Messages of the peer whose payload is not all there.
    pub(super) incoming: BTreeMap<u64, Incoming>,
    /// It is to be looked at.
    pub(super) dirty: bool,
    /// When it was used last, by the endpoint's count of uses.
    pub(super) used: u64,
    /// The rail that attempts go by.
    pub(super) rail: DialedRail,
    /// Attempts that gave way to a request, since the last connection.
    pub(super) gave_way: u32,
    /// An operation has ended by the target's refusal: so the end of the connection is no loss of others.
    pub(super) refused: bool,
    /// When its state machine has to be called.
    pub(super) deadline: Option<Duration>,
    /// Since when it is attempted or accepted, or being parked.
    pub(super) phase_since: Duration,
    /// It is not parked earlier than this for another one: so it can be of use.
    pub(super) stays_until: Duration,
    /// When it has to be seen again that the peer lives, since something waits there and there is no connection.
    pub(super) next_look: Duration,
    /// It was not inserted by the application.
    pub(super) is_stranger: bool,
    /// It is in the endpoint's list of open links.
    pub(super) is_open: bool,
    /// It is among the endpoint's attempts under way.
    pub(super) is_dialing: bool,
    /// It is in the endpoint's queue for room.
    pub(super) waits_for_room: bool,
}

impl PeerLink {
    pub(super) fn new(peer: Peer, connection: PeerConnection, account: Account) -> Self {
        PeerLink {
            peer,
            connection,
            conns: SmallVec::new(),
            current: None,
            account: Some(account),
            window: None,
            queue: VecDeque::new(),
            uncharged: 0,
            asks: false,
            outstanding: VecDeque::new(),
            live: 0,
            awaiting: BTreeMap::new(),
            serving: VecDeque::new(),
            granting: VecDeque::new(),
            reading: VecDeque::new(),
            reads: 0,
            controls: VecDeque::new(),
            grant: None,
            confirm: None,
            lacks_room: false,
            send_park: false,
            draining: false,
            drain_left: 0,
            park_sent: false,
            has_grant: false,
            has_granted: false,
            late_fetches: Vec::new(),
            peer_slot: 0,
            incoming: BTreeMap::new(),
            dirty: false,
            used: 0,
            rail: DialedRail::default(),
            gave_way: 0,
            refused: false,
            deadline: None,
            phase_since: Duration::ZERO,
            stays_until: Duration::ZERO,
            next_look: Duration::ZERO,
            is_stranger: false,
            is_open: false,
            is_dialing: false,
            waits_for_room: false,
        }
    }

    pub(super) fn conn(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.conns.iter_mut().find(|conn| conn.id == id)
    }

    /// The connection that messages go by, if there is one.
    pub(super) fn current(&mut self) -> Option<&mut Conn> {
        let id = self.current?;
        self.conn(id)
    }

    /// It is used now: it is the last one to be parked.
    pub(super) fn touch(&mut self, shared: &mut Shared) {
        shared.uses += 1;
        self.used = shared.uses;
    }

    /// Whether a post goes out at once.
    pub(super) fn is_clear(&self) -> bool {
        self.current.is_some() && !self.draining && self.queue.is_empty()
    }

    /// Whether a message gets its place in the window as it is posted, and not later.
    pub(super) fn charges_at_once(&self) -> bool {
        self.current.is_some() && self.has_grant && !self.draining && self.uncharged == 0
    }

    /// Whether one more message may wait for its place in the window.
    pub(super) fn may_wait(&self, shared: &Shared) -> bool {
        let waiting = self.uncharged + 1;
        match &self.window {
            Some(window) => window.may_wait(waiting),
            None => waiting <= shared.attr.window.places.window,
        }
    }

    /// Whether something is to be done that needs a connection.
    pub(super) fn wants_connection(&self) -> bool {
        self.asks
            || !self.queue.is_empty()
            || !self.serving.is_empty()
            || !self.granting.is_empty()
            || !self.reading.is_empty()
            || !self.controls.is_empty()
            || !self.late_fetches.is_empty()
    }

    /// Whether operations of its connections have not completed.
    pub(super) fn has_posted(&self) -> bool {
        self.conns.iter().any(|conn| !conn.posted.is_empty())
    }

    /// Whether all is done that was begun on the connection, less what is posted.
    pub(super) fn is_finished(&self) -> bool {
        self.reads == 0
            && self.reading.is_empty()
            && self.serving.is_empty()
            && self.granting.is_empty()
            && self.controls.is_empty()
    }

    /// Whether nothing is under way but what may wait at its sender for ever.
    pub(super) fn is_idle(&self) -> bool {
        !self.wants_connection() && self.reads == 0 && !self.has_posted()
    }

    /// An operation was posted.
    pub(super) fn track(&mut self, key: OpKey) {
        self.outstanding.push_back(key);
        self.live += 1;
    }

    /// An operation has ended.
    pub(super) fn untrack(&mut self, is_live: impl Fn(OpKey) -> bool) {
        self.live = self.live.saturating_sub(1);
        if self.outstanding.len() > 2 * self.live + 64 {
            cold_path();
            self.outstanding.retain(|key| is_live(*key));
        }
        while self.outstanding.front().is_some_and(|key| !is_live(*key)) {
            self.outstanding.pop_front();
        }
    }
}
