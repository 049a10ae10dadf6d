//! A network of two sides. All that is under way is in queues, one for each direction of each attempt, and a test chooses
//! what is delivered.

use std::collections::VecDeque;
use std::time::Duration;

use crate::connection::{
    Action, Answer, ConnId, DeathCause, DialError, Hello, PeerConnection, Phase, Refusal, Timeouts,
};
use crate::identity::EndpointIdentity;

/// The side with the lower identity, and the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Low,
    High,
}

impl Side {
    fn other(self) -> Side {
        if self == Side::Low { Side::High } else { Side::Low }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packet {
    Request(Hello),
    Connected(Hello),
    Refused(Refusal),
    Confirm,
    /// What each side sends first when there is a connection.
    Word,
    /// The number that it has in its life, and that it has as a post.
    Message(u64, u64),
    /// A message was taken.
    Completed,
    Park,
    ParkCompleted,
    Lost,
}

/// A connection or an attempt at one.
struct Link {
    /// As each side knows it, until it closes or loses it.
    conns: [Option<ConnId>; 2],
    /// What is under way to each side.
    to: [VecDeque<Packet>; 2],
}

struct Host {
    machine: PeerConnection,
    waiting: VecDeque<u64>,
    /// Messages sent and not completed.
    under_way: usize,
    draining: Option<ConnId>,
    posted: u64,
    received: Vec<u64>,
    deaths: Vec<DeathCause>,
    /// Posts that ended by a death.
    failed: Vec<u64>,
    sent: VecDeque<u64>,
    requests_pass: bool,
}

pub(super) struct Net {
    hosts: [Host; 2],
    links: Vec<Link>,
    now: Duration,
    identities: [EndpointIdentity; 2],
    established: Vec<u64>,
}

pub(super) fn identity(number: u8) -> EndpointIdentity {
    EndpointIdentity::from_bytes([number; 16])
}

fn host(me: EndpointIdentity, peer: EndpointIdentity) -> Host {
    // Time passes in tests as nothing is delivered: that alone is no reason to give up.
    let timeouts = Timeouts { connect: Duration::from_secs(1000), ..Timeouts::default() };
    Host {
        machine: PeerConnection::new(me, peer, timeouts),
        waiting: VecDeque::new(),
        under_way: 0,
        draining: None,
        posted: 0,
        received: Vec::new(),
        deaths: Vec::new(),
        failed: Vec::new(),
        sent: VecDeque::new(),
        requests_pass: true,
    }
}

impl Net {
    pub(super) fn new() -> Self {
        let identities = [identity(1), identity(2)];
        let [low, high] = identities;
        let hosts = [host(low, high), host(high, low)];
        let (links, established) = (Vec::new(), Vec::new());
        Net { hosts, links, now: Duration::ZERO, identities, established }
    }

    fn host(&mut self, side: Side) -> &mut Host {
        &mut self.hosts[side as usize]
    }

    pub(super) fn phase(&self, side: Side) -> Phase {
        self.hosts[side as usize].machine.phase()
    }

    pub(super) fn deaths(&self, side: Side) -> &[DeathCause] {
        &self.hosts[side as usize].deaths
    }

    pub(super) fn received(&self, side: Side) -> &[u64] {
        &self.hosts[side as usize].received
    }

    pub(super) fn sessions_ever(&self) -> usize {
        self.established.len()
    }

    /// From now on requests of this side lead nowhere.
    pub(super) fn block_requests_of(&mut self, side: Side) {
        self.host(side).requests_pass = false;
    }

    pub(super) fn unblock(&mut self) {
        self.hosts.iter_mut().for_each(|host| host.requests_pass = true);
    }

    pub(super) fn want(&mut self, side: Side) -> Result<(), DeathCause> {
        let now = self.now;
        self.host(side).machine.want(now)
    }

    pub(super) fn post(&mut self, side: Side) {
        let now = self.now;
        let host = self.host(side);
        let number = host.posted;
        host.posted += 1;
        match host.machine.want(now) {
            Ok(()) => host.waiting.push_back(number),
            Err(_) => host.failed.push(number),
        }
        self.flush(side);
        self.act(side);
    }

    pub(super) fn park(&mut self, side: Side) {
        self.host(side).machine.park();
        self.act(side);
    }

    pub(super) fn revive(&mut self, side: Side) {
        self.host(side).machine.revive();
    }

    /// Another incarnation, which knows the peer.
    pub(super) fn restart(&mut self, side: Side) {
        for link in 0..self.links.len() {
            self.close(side, link);
        }
        self.identities[side as usize] = identity(9);
        let peer = self.identities[side.other() as usize];
        *self.host(side) = host(identity(9), peer);
    }

    /// The application of this side removes the peer, and inserts it again.
    pub(super) fn forget(&mut self, side: Side) {
        self.assert_rules_kept();
        for link in 0..self.links.len() {
            self.close(side, link);
        }
        let (me, peer) = (self.identities[side as usize], self.identities[side.other() as usize]);
        let (attempts, ..) = self.host(side).machine.numbers();
        let fresh = host(me, peer);
        *self.host(side) = Host { machine: fresh.machine.after(attempts), ..fresh };
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
        let now = self.now;
        for side in [Side::Low, Side::High] {
            _ = self.host(side).machine.tick(now);
            self.act(side);
        }
    }

    /// Sends what waits, as far as it may.
    fn flush(&mut self, side: Side) {
        while !self.host(side).waiting.is_empty()
            && let Some(number) = self.host(side).machine.next_number()
        {
            let host = self.host(side);
            let post = host.waiting.pop_front().unwrap();
            host.under_way += 1;
            host.sent.push_back(post);
            let link = self.link_of_messages(side);
            self.send(side, link, Packet::Message(number, post));
        }
    }

    /// The connection that a side has: its last one.
    fn link_of_messages(&self, side: Side) -> usize {
        let has = |link: &Link| link.conns[side as usize];
        let last = self.links.iter().filter_map(has).max().unwrap();
        self.links.iter().position(|link| has(link) == Some(last)).unwrap()
    }

    fn link(&self, side: Side, conn: ConnId) -> Option<usize> {
        self.links.iter().position(|link| link.conns[side as usize] == Some(conn))
    }

    fn send(&mut self, side: Side, link: usize, packet: Packet) {
        let other = side.other();
        let link = &mut self.links[link];
        // What the other side closed takes nothing.
        if link.conns[other as usize].is_some() || matches!(packet, Packet::Request(_)) {
            link.to[other as usize].push_back(packet);
        }
    }

    /// Closing drops what is under way, but for a request: that may arrive much later.
    fn close(&mut self, side: Side, link: usize) {
        let other = side.other();
        let link = &mut self.links[link];
        link.conns[side as usize] = None;
        link.to[side as usize].clear();
        let queue = &mut link.to[other as usize];
        queue.retain(|packet| matches!(packet, Packet::Request(_)));
        if link.conns[other as usize].is_some() {
            queue.push_back(Packet::Lost);
        }
    }

    /// Does what a side's machine asks for.
    fn act(&mut self, side: Side) {
        while let Some(action) = self.host(side).machine.poll_action() {
            let link = |net: &Net, conn| net.link(side, conn);
            match action {
                Action::Dial(conn, hello) => {
                    let mut conns = [None; 2];
                    conns[side as usize] = Some(conn);
                    self.links.push(Link { conns, to: Default::default() });
                    let link = self.links.len() - 1;
                    self.send(side, link, Packet::Request(hello));
                }
                Action::Close(conn) => {
                    if let Some(link) = link(self, conn) {
                        self.close(side, link);
                    }
                }
                Action::Confirm(conn) => {
                    let link = link(self, conn).unwrap();
                    self.send(side, link, Packet::Confirm);
                }
                Action::Ready(conn) => {
                    let link = link(self, conn).unwrap();
                    self.send(side, link, Packet::Word);
                    let session = self.host(side).machine.session().unwrap();
                    if !self.established.contains(&session) {
                        self.established.push(session);
                    }
                    self.flush(side);
                }
                Action::Drain(conn) => {
                    self.host(side).draining = Some(conn);
                    self.drain(side);
                }
                Action::SendPark(conn) => {
                    let link = link(self, conn).unwrap();
                    self.host(side).machine.park_sent(conn);
                    self.send(side, link, Packet::Park);
                }
                Action::Died(cause) => {
                    let host = self.host(side);
                    host.deaths.push(cause);
                    let (sent, waiting) = (host.sent.drain(..), host.waiting.drain(..));
                    host.failed.extend(sent.chain(waiting));
                    (host.under_way, host.draining) = (0, None);
                }
            }
        }
    }

    fn drain(&mut self, side: Side) {
        let host = self.host(side);
        if host.under_way == 0
            && let Some(conn) = host.draining.take()
        {
            host.machine.drained(conn);
        }
    }

    /// Delivers the first packet of one of the queues that have some.
    pub(super) fn deliver_nth(&mut self, which: usize) {
        self.deliver_any(which);
    }

    /// Whether there was any.
    fn deliver_any(&mut self, which: usize) -> bool {
        let queues = (0..self.links.len()).flat_map(|link| [(link, Side::Low), (link, Side::High)]);
        let has = |(link, side): &(usize, Side)| !self.links[*link].to[*side as usize].is_empty();
        let some: Vec<_> = queues.filter(has).collect();
        if some.is_empty() {
            return false;
        }
        let (link, side) = some[which % some.len()];
        let packet = self.links[link].to[side as usize].pop_front().unwrap();
        self.deliver(link, side, packet);
        self.act(side);
        true
    }

    fn deliver(&mut self, link: usize, side: Side, packet: Packet) {
        let now = self.now;
        if let Packet::Request(hello) = packet {
            return self.request(link, side, &hello);
        }
        let Some(conn) = self.links[link].conns[side as usize] else { return };
        let machine = &mut self.host(side).machine;
        match packet {
            Packet::Request(_) => {}
            Packet::Connected(hello) => machine.on_connected(now, conn, &hello),
            Packet::Refused(refusal) => {
                machine.on_failed(now, conn, DialError::Refused(refusal));
                self.links[link].conns[side as usize] = None;
            }
            Packet::Confirm => machine.on_confirm(conn),
            Packet::Word => _ = machine.on_heard(conn),
            Packet::Message(number, post) => {
                if machine.on_message(conn, number) {
                    self.host(side).received.push(post);
                    self.send(side, link, Packet::Completed);
                }
            }
            Packet::Completed => {
                let host = self.host(side);
                host.under_way -= 1;
                host.sent.pop_front();
                self.drain(side);
            }
            Packet::Park => {
                self.send(side, link, Packet::ParkCompleted);
                self.host(side).machine.on_park(now, conn);
            }
            Packet::ParkCompleted => machine.park_completed(now, conn),
            Packet::Lost => {
                self.links[link].conns[side as usize] = None;
                self.host(side).machine.on_lost(now, conn);
            }
        }
    }

    /// A request that the other side did not make.
    pub(super) fn request_to_low(&mut self, hello: &Hello) -> Answer {
        let now = self.now;
        let answer = self.host(Side::Low).machine.on_request(now, hello);
        self.act(Side::Low);
        answer
    }

    fn request(&mut self, link: usize, side: Side, hello: &Hello) {
        let (now, other) = (self.now, side.other());
        if !self.host(other).requests_pass {
            return;
        }
        match self.host(side).machine.on_request(now, hello) {
            Answer::Accept(conn, hello) => {
                self.links[link].conns[side as usize] = Some(conn);
                if self.links[link].conns[other as usize].is_none() {
                    self.links[link].to[side as usize].push_back(Packet::Lost);
                }
                self.send(side, link, Packet::Connected(hello));
            }
            Answer::Refuse(refusal) => self.send(side, link, Packet::Refused(refusal)),
        }
    }

    /// A connection breaks: both sides lose it, in time.
    pub(super) fn cut(&mut self, which: usize) {
        let has_some = |link: &Link| link.conns.iter().any(Option::is_some);
        let some: Vec<_> = (0..self.links.len()).filter(|at| has_some(&self.links[*at])).collect();
        if let Some(at) = some.get(which % some.len().max(1)) {
            let Link { conns, to } = &mut self.links[*at];
            // Of an attempt that is not accepted nothing is reported: it ends by its time.
            let is_connection = conns.iter().all(Option::is_some);
            for (conn, queue) in conns.iter().zip(to) {
                let is_lost = is_connection || queue.contains(&Packet::Lost);
                queue.clear();
                if conn.is_some() && is_lost {
                    queue.push_back(Packet::Lost);
                }
            }
        }
    }

    /// One side alone notices that its connection is lost.
    pub(super) fn lose_at(&mut self, side: Side) {
        let (now, link) = (self.now, self.link_of_messages(side));
        let conn = self.links[link].conns[side as usize].take().unwrap();
        self.host(side).machine.on_lost(now, conn);
        self.act(side);
    }

    /// Delivers all there is, for as long as that takes and so long in time.
    pub(super) fn settle(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            while self.deliver_any(0) {}
            // What is closed on both sides and empty is over.
            let is_over =
                |link: &Link| link.conns == [None; 2] && link.to.iter().all(VecDeque::is_empty);
            self.links.retain(|link| !is_over(link));
            let deadlines = self.hosts.iter().filter_map(|host| host.machine.deadline());
            match deadlines.min() {
                Some(next) if next <= until => self.pass(next.saturating_sub(self.now)),
                _ => return,
            }
        }
    }

    /// Both sides are revived as often as one finds the other's death, and then have one connection.
    pub(super) fn revive_until_connected(&mut self) {
        for _ in 0..4 {
            self.revive(Side::Low);
            self.revive(Side::High);
            self.post(Side::Low);
            self.post(Side::High);
            self.settle(Duration::from_secs(20));
        }
        self.assert_no_silent_gap();
        self.assert_one_session();
    }

    pub(super) fn assert_all_arrived(&self) {
        for (from, to) in [(0, 1), (1, 0)] {
            assert_eq!(self.hosts[from].deaths, [], "of side {from}");
            let expected: Vec<_> = (0..self.hosts[from].posted).collect();
            assert_eq!(self.hosts[to].received, expected, "to side {to}");
        }
    }

    pub(super) fn assert_one_session(&self) {
        let [low, high] = &self.hosts;
        let sessions = (low.machine.session(), high.machine.session());
        assert!(sessions.0.is_some() && sessions.0 == sessions.1, "{sessions:?}");
        let connected = self.links.iter().filter(|link| link.conns.iter().all(Option::is_some));
        assert_eq!(connected.count(), 1);
    }

    /// Both keep the rules, so each loss is one of the connection.
    pub(super) fn assert_rules_kept(&self) {
        for host in &self.hosts {
            assert!(!host.deaths.contains(&DeathCause::Protocol));
        }
    }

    pub(super) fn assert_no_silent_gap(&self) {
        self.assert_rules_kept();
        for (from, to) in [(0, 1), (1, 0)] {
            let (sender, receiver) = (&self.hosts[from], &self.hosts[to]);
            assert!(receiver.received.is_sorted_by(|one, next| one < next));
            for post in 0..sender.posted {
                let arrived = receiver.received.binary_search(&post).is_ok();
                let waits = sender.waiting.contains(&post) || sender.sent.contains(&post);
                assert!(arrived || waits || sender.failed.contains(&post), "{post} is lost");
            }
        }
    }
}
