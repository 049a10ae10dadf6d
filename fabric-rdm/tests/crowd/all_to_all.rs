//! All to all, each endpoint with few connections: every message arrives, and all connections are parked at the end. In one
//! process over each provider, in several over TCP.

use std::ops::Range;
use std::time::{Duration, Instant};

use fabric::{Access, Domain, Region};
use fabric_exchange::Exchange;
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Address, Completion, Endpoint, Kind, Peer, PostError, RdmAttr, Recv, Send};

use crate::processes::{
    LONG, PATIENCE, Processes, counts, descriptors, open, park, peak_memory, share, variable,
};

#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) processes: usize,
    pub(crate) endpoints: usize,
    /// Connections of each at most.
    pub(crate) open: usize,
    pub(crate) bytes: usize,
}

impl Plan {
    const NAMES: [&str; 4] =
        ["FABRIC_RDM_PROCESSES", "FABRIC_RDM_ENDPOINTS", "FABRIC_RDM_OPEN", "FABRIC_RDM_BYTES"];

    /// As the environment says, or else these.
    fn from_env(defaults: [usize; 4]) -> Self {
        let mut at = 0;
        let [processes, endpoints, open, bytes] = defaults.map(|default| {
            at += 1;
            variable(Self::NAMES[at - 1], default)
        });
        Plan { processes, endpoints, open, bytes: bytes.max(8) }
    }

    fn variables(self) -> Vec<(&'static str, usize)> {
        let Plan { processes, endpoints, open, bytes } = self;
        Self::NAMES.into_iter().zip([processes, endpoints, open, bytes]).collect()
    }

    fn all(self) -> usize {
        self.processes * self.endpoints
    }

    /// What one sends to another.
    fn text(self, from: usize, to: usize) -> Vec<u8> {
        let number = ((from as u64) << 32) | to as u64;
        number.to_le_bytes().into_iter().cycle().take(self.bytes).collect()
    }
}

/// One endpoint, with what it still has to do.
struct Member {
    own: usize,
    endpoint: Endpoint,
    peers: Vec<Peer>,
    inbox: Region,
    sent: usize,
    received: usize,
    ended: usize,
}

impl Member {
    fn new(domain: &Domain, plan: Plan, own: usize) -> Self {
        let mut attr = RdmAttr::default();
        (attr.max_open, attr.slots, attr.slot_len) = (plan.open as u32, 32, 512);
        attr.connection_depth = 16;
        // All of them have the processors of one machine.
        let crowd = plan.all().div_ceil(100) as u32;
        attr.timeouts.connect *= crowd;
        attr.timeouts.attempt *= crowd;
        let endpoint = Endpoint::new(domain, &attr).unwrap();
        let inbox = domain.alloc(plan.bytes * plan.all(), Access::LOCAL_WRITE).unwrap();
        Member { own, endpoint, peers: Vec::new(), inbox, sent: 0, received: 0, ended: 0 }
    }

    fn place(plan: Plan, from: usize) -> Range<usize> {
        plan.bytes * from..plan.bytes * (from + 1)
    }

    /// Knows all of them, and has a receive for each, itself too.
    fn meet(&mut self, plan: Plan, addresses: &[Address]) {
        for (from, address) in addresses.iter().enumerate() {
            let peer = self.endpoint.insert(address).unwrap();
            self.peers.push(peer);
            let into = self.inbox.slice(Self::place(plan, from));
            let recv = Recv::new(Pattern::tagged(1).from(peer), into);
            self.endpoint.post_recv(&recv).unwrap();
        }
    }

    /// Posts what there is room for, and takes what has ended. Whether there was anything.
    fn turn(&mut self, plan: Plan, out: &mut [Completion]) -> bool {
        let (count, own) = (self.peers.len(), self.own);
        let mut is_busy = false;
        while self.sent < count {
            let to = (own + self.sent) % count;
            let text = plan.text(own, to);
            match self.endpoint.post_send(self.peers[to], &Send::inject(&text).tag(1)) {
                Ok(_) => (self.sent, is_busy) = (self.sent + 1, true),
                Err(PostError::Again(_)) => break,
                Err(error) => panic!("{own} to {to}: {error}\n{}", self.endpoint.dump()),
            }
        }
        let taken = self.endpoint.poll(out).unwrap();
        for done in &out[..taken] {
            assert!(done.is_ok(), "{own}: {done:?}\n{}", self.endpoint.dump());
            match done.kind {
                Kind::Recv => self.received += 1,
                _ => self.ended += 1,
            }
        }
        is_busy || taken > 0
    }

    fn is_done(&self) -> bool {
        let count = self.peers.len();
        (self.sent, self.received, self.ended) == (count, count, count)
    }

    /// Every message came whole, and no peer is lost.
    fn check(&self, plan: Plan) {
        for from in 0..self.peers.len() {
            let came = self.inbox.to_vec(Self::place(plan, from)).unwrap();
            assert_eq!(came, plan.text(from, self.own), "of {from} to {}", self.own);
        }
        assert_eq!(self.endpoint.poll_event().unwrap(), None, "{}", self.endpoint.dump());
        let open = self.endpoint.connections().unwrap();
        assert!(open as usize <= plan.open, "at most {} connections, not {open}", plan.open);
    }
}

/// The endpoints of one process.
pub(crate) struct Members {
    plan: Plan,
    all: Vec<Member>,
    descriptors: usize,
}

impl Members {
    pub(crate) fn new(domain: &Domain, plan: Plan, own: Range<usize>) -> Self {
        Members {
            plan,
            all: own.map(|own| Member::new(domain, plan, own)).collect(),
            descriptors: 0,
        }
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.all.iter().map(|member| member.endpoint.address())
    }

    pub(crate) fn meet(&mut self, addresses: &[Address]) {
        self.all.iter_mut().for_each(|member| member.meet(self.plan, addresses));
    }

    pub(crate) fn check(&self) {
        self.all.iter().for_each(|member| member.check(self.plan));
    }

    /// Goes on until all are done.
    pub(crate) fn run(&mut self) {
        let (mut moved, mut looked) = (Instant::now(), Instant::now());
        let mut out = [Completion::default(); 64];
        while !self.all.iter().all(Member::is_done) {
            for member in &mut self.all {
                if member.turn(self.plan, &mut out) {
                    moved = Instant::now();
                }
                let lasts = moved.elapsed();
                assert!(lasts < PATIENCE, "{} waits\n{}", member.own, member.endpoint.dump());
            }
            if looked.elapsed() > Duration::from_millis(500) {
                self.count_descriptors();
                looked = Instant::now();
            }
        }
        self.count_descriptors();
    }

    fn count_descriptors(&mut self) {
        self.descriptors = self.descriptors.max(descriptors());
    }

    /// Closes all connections in agreement with the peers.
    fn park(&self) {
        park(self.all.iter().map(|member| &member.endpoint), std::iter::empty());
    }
}

/// One of the processes.
pub(crate) fn rank(others: &Exchange) -> Vec<u64> {
    let plan = Plan::from_env([0; 4]);
    let (domain, rank) = (open("tcp"), others.rank() as usize);
    let own = rank * plan.endpoints..(rank + 1) * plan.endpoints;
    let mut members = Members::new(&domain, plan, own);
    let addresses = share(others, members.addresses());
    members.meet(&addresses);
    let before = peak_memory();
    others.barrier("begin", LONG).unwrap();
    let begun = Instant::now();
    members.run();
    let took = begun.elapsed().as_millis() as u64;
    // The library goes on with what others still have to send.
    others.barrier("done", LONG).unwrap();
    members.check();
    let begun = Instant::now();
    members.park();
    let parked = begun.elapsed().as_millis() as u64;
    others.barrier("parked", LONG).unwrap();
    members.check();
    let all = members.all.iter().map(|member| counts(&member.endpoint.dump()));
    let [connected, attempts] = all.fold([0, 0], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
    vec![before, took, parked, peak_memory(), members.descriptors as u64, connected, attempts]
}

fn run(plan: Plan) {
    let size = plan.processes;
    let all = Processes::start("member", size, size, &plan.variables()).outcomes();
    let max = |at: usize| all.iter().map(|one| one[at]).max().unwrap();
    let sum = |at: usize| all.iter().map(|one| one[at]).sum::<u64>();
    let count = plan.all();
    let pairs = (count * (count - 1) / 2) as f64;
    let connected = sum(5) as f64 / 2.0;
    eprintln!(
        "{} processes of {} endpoints, {} connections each, {} bytes: {} messages in {:.1} s; parked in {:.1} s; {:.2} connections \
         for each pair, {:.2} attempts for each connection; {} MiB of memory in all ({} before the first message), {} \
         descriptors of one process at most",
        plan.processes,
        plan.endpoints,
        plan.open,
        plan.bytes,
        count * count,
        max(1) as f64 / 1e3,
        max(2) as f64 / 1e3,
        connected / pairs,
        sum(6) as f64 / connected,
        sum(3),
        sum(0),
        max(4),
    );
}

fn in_one_process(provider: &str, plan: Plan) {
    let domain = open(provider);
    let mut members = Members::new(&domain, plan, 0..plan.endpoints);
    let addresses: Vec<_> = members.addresses().cloned().collect();
    members.meet(&addresses);
    let begun = Instant::now();
    members.run();
    let took = begun.elapsed();
    eprintln!("{provider}: {} messages in {took:?}", plan.all() * plan.all());
    members.check();
    if plan.open >= plan.all() {
        for member in &members.all {
            let open = member.endpoint.connections().unwrap() as usize;
            assert_eq!(open, plan.all() - 1, "none was parked\n{}", member.endpoint.dump());
        }
    }
    members.park();
    members.check();
}

fn sixty() -> Plan {
    Plan { processes: 1, ..Plan::from_env([1, 60, 8, 8]) }
}

#[test]
fn one_process_over_mem() {
    in_one_process("mem", sixty());
}

#[test]
fn one_process_over_tcp() {
    in_one_process("tcp", sixty());
}

#[test]
fn one_process_over_shm() {
    in_one_process("shm", sixty());
}

/// With places enough no connection is parked, however many attempts wait for their turn.
#[test]
fn places_enough() {
    in_one_process("mem", Plan { processes: 1, endpoints: 50, open: 64, bytes: 8 });
}

#[test]
fn several_processes() {
    run(Plan { processes: 3, endpoints: 10, open: 4, bytes: 8 });
}

#[test]
#[ignore = "it takes minutes"]
fn a_thousand_endpoints() {
    run(Plan::from_env([8, 125, 64, 8]));
}
