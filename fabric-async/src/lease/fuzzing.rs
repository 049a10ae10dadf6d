//! Leases between this side and a peer that says what a fuzzer chooses: as the owner of what the peer borrows, and as the
//! holder of what the peer lends.
//!
//! After each step the books are right and within the policy; at the end all is given back. What the node's thread does, the
//! fuzzer does, so a program always does the same, but for the time that passes.

#![allow(clippy::panic)] // that is how a fuzzer finds something

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use fabric::{
    Access, Catalog, CompletionQueue, Domain, Endpoint, EndpointId, Hints, Listener, Op,
    PendingGrant, Region, RemoteRegion,
};
use fabric_util::choices::Choices;
use fabric_util::splitmix::SplitMix64;

use super::control::{Control, GrantsTo, UserConnection};
use super::local_lease::LocalLease;
use super::message::LeaseMessage;
use super::policy::LeasePolicy;
use super::registry::Leases;
use super::remote_lease::RemoteLease;
use super::terms::whole;
use crate::conn_state::ConnState;
use crate::error::{Refusal, Result};
use crate::options::Options;
use crate::pool::Pool;
use crate::reactor::ReactorHandle;
use crate::router::Router;

/// How long what happens at once may take.
const SOON: Duration = Duration::from_secs(20);
/// Messages of the node that the peer can have before it takes one; and how long one is at most.
const RECEIVES: usize = 8;
const LEN: usize = 128;
/// Things of a kind that one program has at a time.
const MANY: usize = 80;

/// What stays from program to program: for each policy a node, and the peer's domain.
pub struct LeaseFuzzer {
    nodes: Vec<LendingNode>,
    domain: Domain,
    listener: Listener,
}

/// A node that the fuzzer drives.
struct LendingNode {
    policy: LeasePolicy,
    pool: Pool,
    reactor: Arc<ReactorHandle>,
    router: Arc<Router>,
    leases: Arc<Leases>,
}

/// The application's connection, which is not there: leases have the keys of their regions.
struct NoGrants;

impl GrantsTo for NoGrants {
    fn begin_grant(&self, _: &Region, _: Access) -> fabric::Result<PendingGrant> {
        Err(fabric::Error::NotConnected)
    }
}

type Asked = Pin<Box<dyn Future<Output = Result<Option<RemoteLease>>>>>;

/// One program.
struct Play<'a> {
    node: &'a LendingNode,
    control: Arc<Control>,
    peer: Peer,
    /// What the node's application has.
    asked: Vec<Asked>,
    held: Vec<RemoteLease>,
    lent: Vec<LocalLease>,
}

/// The other end.
struct Peer {
    endpoint: Endpoint,
    queue: CompletionQueue,
    memory: Region,
    /// Leases that it has; the node's requests and renewals; as far as it took messages.
    leases: Vec<u64>,
    requests: Vec<(u64, u64, Duration, Access)>,
    renewals: Vec<(u64, Duration)>,
    numbers: u64,
}

fn policies() -> [LeasePolicy; 3] {
    let small = LeasePolicy {
        max_bytes: 10_000,
        max_total_bytes: Some(9_000),
        max_leases: 4,
        max_duration: Duration::from_secs(60),
        max_lifetime: Some(Duration::from_secs(90)),
        ..LeasePolicy::default()
    };
    let readable = LeasePolicy { rights: Access::REMOTE_READ, ..LeasePolicy::default() };
    [LeasePolicy::default(), small, readable]
}

/// Programs to start from.
pub fn leases_seeds() -> Vec<Vec<u8>> {
    let mut numbers = SplitMix64::new(1);
    let program = |number: usize| (0..8 + number * 3).map(|_| numbers.next_u64() as u8).collect();
    (0..96).map(program).collect()
}

impl LendingNode {
    fn new(catalog: &Catalog, policy: LeasePolicy) -> Result<Self> {
        let domain = catalog.open(&Hints::default())?;
        let mut options = Options { leases: true, policy: policy.clone(), ..Options::default() };
        options.pool.bytes = 4 << 20;
        let reactor = ReactorHandle::new()?;
        let pool = Pool::new(&domain, options.pool.clone(), &reactor.timers);
        let router = Router::new(domain.events(), &reactor);
        let log = Arc::default();
        let leases = Leases::new(&domain, &options, &pool, &router, &reactor, &log)?;
        Ok(LendingNode { policy, pool, reactor, router, leases })
    }

    /// What the node's thread does.
    fn serve(&self) {
        self.router.take_events();
        self.leases.serve();
    }
}

impl LeaseFuzzer {
    /// On a device of this catalog.
    ///
    /// # Errors
    /// There is none.
    pub fn new(catalog: &Catalog) -> Result<Self> {
        let nodes = policies().into_iter().map(|policy| LendingNode::new(catalog, policy));
        let domain = catalog.open(&Hints::default())?;
        let listener = domain.listen(([127, 0, 0, 1], 0).into())?;
        Ok(LeaseFuzzer { nodes: nodes.collect::<Result<_>>()?, domain, listener })
    }

    /// Runs a program.
    pub fn run(&self, bytes: &[u8]) {
        let mut c = Choices::new(bytes);
        let node = &self.nodes[c.below(self.nodes.len())];
        let connected = self.connect(node);
        let (control, peer) = connected.unwrap_or_else(|error| panic!("no connection: {error}"));
        let (asked, held, lent) = Default::default();
        let mut play = Play { node, control, peer, asked, held, lent };
        while !c.are_over() {
            play.step(&mut c);
            play.check();
        }
        play.finish();
    }

    fn connect(&self, node: &LendingNode) -> fabric::Result<(Arc<Control>, Peer)> {
        let conn_state = ConnState::new(&node.reactor.timers);
        let grants_to: Weak<NoGrants> = Weak::new();
        let user = UserConnection { id: EndpointId(u64::MAX), conn_state, grants_to };
        let control = node.leases.add_control(user);
        let Ok(control) = control else { panic!("no endpoint for leases") };
        let queue = self.domain.completion_queue(256)?;
        let builder = self.domain.endpoint().send_depth(64).recv_depth(RECEIVES);
        let endpoint = builder.build(&queue)?;
        control.endpoint.connect(self.listener.local_addr(), b"")?;
        let mut request = self.listener.accept(Some(SOON))?;
        let memory = self.domain.alloc(RECEIVES * LEN, Access::LOCAL_WRITE)?;
        let (leases, requests, renewals) = Default::default();
        let peer = Peer { endpoint, queue, memory, leases, requests, renewals, numbers: 0 };
        (0..RECEIVES).for_each(|place| peer.receive(place));
        request.accept(&peer.endpoint, b"")?;
        control.endpoint.wait_connected(Some(SOON))?;
        peer.endpoint.wait_connected(Some(SOON))?;
        Ok((control, peer))
    }
}

impl Peer {
    fn receive(&self, place: usize) {
        let at = place * LEN;
        // Refused when the connection has ended.
        let _ = self.endpoint.recv(self.memory.slice(at..at + LEN), place as u64);
    }

    fn say(&self, message: &[u8]) {
        // `Again` while the node has not taken enough, or it is over: it is not said.
        let _ = self.endpoint.post(&Op::inject(message).unsignaled());
    }

    /// Takes what the node said. What that grants is within its policy.
    fn hear(&mut self, policy: &LeasePolicy) {
        while let Ok(Some(done)) = self.queue.poll_one() {
            if !done.kind.is_receive() || !done.is_ok() {
                continue;
            }
            let at = done.context as usize * LEN;
            let Ok(bytes) = self.memory.to_vec(at..at + done.len) else { continue };
            self.receive(done.context as usize);
            let Some(message) = LeaseMessage::from_bytes(&bytes) else { panic!("says {bytes:?}") };
            match message {
                LeaseMessage::Grant { lease, time, region, .. } => {
                    assert!(region.len() <= policy.max_bytes && time <= policy.max_duration);
                    assert!(policy.rights.contains(region.access()), "more rights than it gives");
                    self.leases.push(lease);
                }
                LeaseMessage::Lend { lease, .. } => self.leases.push(lease),
                LeaseMessage::Renewed { time, .. } => assert!(time <= policy.max_duration),
                LeaseMessage::Request { id, len, time, rights } => {
                    self.requests.push((id, len, time, rights));
                }
                LeaseMessage::Renew { id, time, .. } => self.renewals.push((id, time)),
                _ => {}
            }
        }
    }

    /// Something about leases, which makes sense or nearly does.
    fn message(&mut self, c: &mut Choices<'_>) -> LeaseMessage {
        self.numbers += 1;
        let number = if c.once_in(8) { c.number() } else { self.numbers };
        let lease = match self.leases.len() {
            0 => number,
            len => self.leases[c.below(len)],
        };
        match c.below(17) {
            0..3 => {
                LeaseMessage::Request { id: number, len: len(c), time: time(c), rights: rights(c) }
            }
            3 | 4 => LeaseMessage::Renew { id: number, lease, time: time(c) },
            5 | 6 => LeaseMessage::Release { lease },
            7 | 8 if !self.requests.is_empty() => {
                let (id, len, time, rights) = self.requests.remove(c.below(self.requests.len()));
                if c.once_in(4) {
                    return LeaseMessage::Refuse { id, why: Refusal::TooMany };
                }
                let region = RemoteRegion::from_parts(number, 0, whole(len), rights);
                LeaseMessage::Grant { id, lease: number, time, region }
            }
            9 if !self.renewals.is_empty() => {
                let (id, time) = self.renewals.remove(c.below(self.renewals.len()));
                LeaseMessage::Renewed { id, time }
            }
            7 | 8 => LeaseMessage::Grant { id: number, lease, time: time(c), region: region(c) },
            9 => LeaseMessage::Refuse { id: number, why: Refusal::Denied },
            10 => LeaseMessage::Lend { lease: number, until: c.number(), region: region(c) },
            11 => LeaseMessage::Pass { until: c.number(), region: region(c) },
            12 => LeaseMessage::Share { id: number, lease },
            13 => LeaseMessage::Shared { id: c.below(64) as u64, region: region(c) },
            14 => LeaseMessage::Clock,
            15 => LeaseMessage::Time { now: c.number() },
            _ => LeaseMessage::Ended { lease: c.below(64) as u64 },
        }
    }

    fn speak(&mut self, c: &mut Choices<'_>) {
        let mut bytes = self.message(c).to_bytes();
        match c.below(16) {
            0 => bytes.truncate(c.below(bytes.len() + 1)),
            1 => {
                let at = c.below(bytes.len());
                bytes[at] ^= 1 << c.below(8);
            }
            2 => {
                let len = c.below(LEN);
                bytes.extend(c.bytes(len));
            }
            3 => {
                let len = c.below(LEN);
                bytes = c.bytes(len).to_vec();
            }
            _ => {}
        }
        if let Some(message) = LeaseMessage::from_bytes(&bytes) {
            assert_eq!(LeaseMessage::from_bytes(&message.to_bytes()), Some(message));
        }
        self.say(&bytes);
    }
}

impl Play<'_> {
    fn step(&mut self, c: &mut Choices<'_>) {
        match c.below(32) {
            0..14 => {
                self.peer.speak(c);
                self.node.serve();
            }
            14 => (0..c.below(24)).for_each(|_| self.peer.speak(c)),
            15..19 => self.peer.hear(&self.node.policy),
            19..22 => self.ask(c),
            22 => self.borrow(),
            23 => self.renew(c),
            24 => self.lend(c),
            25 => drop(take(&mut self.lent, c).map(|lease| lease.take())),
            26 => drop(take(&mut self.held, c)),
            27 => drop(take(&mut self.asked, c)),
            28 => self.pass(),
            29 if c.once_in(16) => self.peer.endpoint.disconnect(),
            30 if c.once_in(16) => self.control.endpoint.disconnect(),
            _ => self.poll(),
        }
        self.node.serve();
    }

    /// The application asks for a lease.
    fn ask(&mut self, c: &mut Choices<'_>) {
        let (control, len, time, rights) = (self.control.clone(), len(c), time(c), rights(c));
        self.begin(async move {
            let held = control.request(len, time, rights).await?;
            let lease = RemoteLease::new(held, &control);
            assert!(lease.len() == whole(len) && lease.time_left() <= time);
            assert!(lease.access().contains(rights));
            Ok(Some(lease))
        });
    }

    /// It waits for one that is lent unasked.
    fn borrow(&mut self) {
        let control = self.control.clone();
        self.begin(async move { Ok(Some(RemoteLease::new(control.borrow().await?, &control))) });
    }

    fn renew(&mut self, c: &mut Choices<'_>) {
        if let Some(lease) = self.held.last().cloned() {
            let time = time(c);
            self.begin(async move { lease.renew(time).await.map(|()| None) });
        }
    }

    fn begin(&mut self, future: impl Future<Output = Result<Option<RemoteLease>>> + 'static) {
        if self.asked.len() < MANY {
            self.asked.push(Box::pin(future));
            self.poll();
        }
    }

    fn poll(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        let held = &mut self.held;
        self.asked.retain_mut(|future| match future.as_mut().poll(&mut cx) {
            std::task::Poll::Pending => true,
            std::task::Poll::Ready(lease) => {
                held.extend(lease.ok().flatten());
                false
            }
        });
        held.truncate(MANY);
    }

    fn lend(&mut self, c: &mut Choices<'_>) {
        if self.lent.len() < MANY
            && let Ok(buffer) = self.node.pool.alloc(c.below(4096))
        {
            self.lent.extend(self.control.lend(buffer, time(c), rights(c)).ok());
        }
    }

    /// It passes on what it holds.
    fn pass(&mut self) {
        if let Some(lease) = self.held.last().cloned() {
            let (control, until) = (self.control.clone(), lease.until());
            self.begin(async move { control.pass(until, lease.shared().await?).map(|()| None) });
        }
    }

    /// The books are right, within the policy, and hold no more than the application and the policy let them.
    fn check(&self) {
        let state = self.control.state();
        let policy = &self.node.policy;
        let asked: Vec<_> = state.loans.values().filter(|record| record.asked).collect();
        let bytes: u64 = asked.iter().map(|record| record.loan.len as u64).sum();
        assert_eq!((state.asked, state.requested), (asked.len(), bytes), "wrong books");
        assert_eq!(self.control.shared.quota.reserved(), bytes, "a wrong quota");
        assert!(asked.len() <= policy.max_leases && bytes <= policy.max_bytes);
        let total = policy.max_total_bytes.unwrap_or(u64::MAX);
        assert!(bytes <= total && state.loans.len() <= asked.len() + MANY + self.lent.len());
        let offers = state.offers.len() + state.undated.len();
        assert!(offers <= 64, "too many offers");
        let known = self.held.len() + self.asked.len() + offers;
        assert!(state.held.len() <= known, "{} held, {known} known", state.held.len());
        let asked = state.requests.len() + state.renewals.len() + state.shares.len();
        assert!(asked <= 6 * MANY, "too many requests");
    }

    /// Both sides let go of everything.
    fn finish(self) {
        let Play { node, control, peer, asked, held, lent } = self;
        drop((asked, held, lent));
        let quota = control.shared.quota.clone();
        control.endpoint.disconnect();
        let end = Instant::now() + SOON;
        while !control.state().over {
            assert!(Instant::now() < end, "the end of a connection is not heard of");
            node.serve();
        }
        drop((control, peer));
        while node.leases.known() > 0 {
            assert!(Instant::now() < end, "a connection that is gone stays in the books");
            node.serve();
        }
        assert_eq!(quota.reserved(), 0, "bytes are not given back");
        let in_use = node.pool.metrics().in_use;
        assert_eq!(in_use, 0, "memory is not given back");
        let later = Instant::now() + Duration::from_secs(1 << 33);
        assert_eq!(node.reactor.agenda.take_due(later).leases, [], "something is still due");
    }
}

/// Takes one of them.
fn take<T>(all: &mut Vec<T>, c: &mut Choices<'_>) -> Option<T> {
    if all.is_empty() { None } else { Some(all.swap_remove(c.below(all.len()))) }
}

fn len(c: &mut Choices<'_>) -> u64 {
    let len = c.pick(&[0, 1, 64, 4096, 8190, 100_000, 1 << 40, u64::MAX - 8]);
    len.saturating_add(c.below(9) as u64)
}

fn time(c: &mut Choices<'_>) -> Duration {
    let micros = [0, 1, 100, 1_000_000, 60_000_000, 60_000_001, 600_000_000, u64::MAX];
    Duration::from_micros(c.pick(&micros))
}

fn rights(c: &mut Choices<'_>) -> Access {
    Access::from_bits_truncate(c.byte().into())
}

fn region(c: &mut Choices<'_>) -> RemoteRegion {
    RemoteRegion::from_parts(c.number(), 0, len(c), rights(c))
}
