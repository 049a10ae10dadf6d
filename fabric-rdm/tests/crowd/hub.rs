//! One endpoint with thousands of peers that all send to it, and get an answer to each message.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fabric::{Access, Domain, Region};
use fabric_exchange::Exchange;
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Address, Completion, Endpoint, Kind, Peer, PostError, RdmAttr, Recv, Send};

use crate::processes::{
    LONG, PATIENCE, Processes, counts, descriptors, open, park, peak_memory, share, variable,
};

const QUESTION: u64 = 1;
const ANSWER: u64 = 2;
/// Receives of the one that wait at a time, and bytes of each.
const RECEIVES: usize = 512;
const BYTES: usize = 16;

/// What a peer says, and what it is answered.
fn text(tag: u64, peer: usize, round: usize) -> [u8; BYTES] {
    let number = (tag << 56) | peer as u64;
    let mut text = [0; BYTES];
    text[..8].copy_from_slice(&number.to_le_bytes());
    text[8..].copy_from_slice(&(round as u64).to_le_bytes());
    text
}

/// The one.
struct Hub {
    endpoint: Endpoint,
    peers: Vec<Peer>,
    inbox: Region,
    /// Messages of each peer so far.
    rounds: Vec<usize>,
    /// By the number of its handle.
    numbers: std::collections::HashMap<Peer, usize>,
    /// What is to be answered.
    answers: VecDeque<(usize, usize)>,
    answered: usize,
    descriptors: usize,
}

impl Hub {
    fn new(domain: &Domain, open: usize) -> Self {
        let mut attr = RdmAttr::default();
        attr.max_open = open as u32;
        attr.listen = Some(([127, 0, 0, 1], 0).into());
        let endpoint = Endpoint::new(domain, &attr).unwrap();
        let inbox = domain.alloc(BYTES * RECEIVES, Access::LOCAL_WRITE).unwrap();
        let hub = Hub {
            endpoint,
            peers: Vec::new(),
            inbox,
            rounds: Vec::new(),
            numbers: Default::default(),
            answers: VecDeque::new(),
            answered: 0,
            descriptors: 0,
        };
        (0..RECEIVES).for_each(|at| hub.receive(at));
        hub
    }

    fn receive(&self, at: usize) {
        let into = self.inbox.slice(BYTES * at..BYTES * (at + 1));
        let recv = Recv::new(Pattern::tagged(QUESTION), into).context(at as u64);
        self.endpoint.post_recv(&recv).unwrap();
    }

    fn meet(&mut self, address: &Address) {
        let peer = self.endpoint.insert(address).unwrap();
        self.numbers.insert(peer, self.peers.len());
        self.peers.push(peer);
        self.rounds.push(0);
    }

    /// Answers what can be answered, and takes what came. Whether there was anything.
    fn turn(&mut self, out: &mut [Completion]) -> bool {
        let taken = self.endpoint.poll(out).unwrap();
        for done in &out[..taken] {
            assert!(done.is_ok(), "{done:?}\n{}", self.endpoint.dump());
            match done.kind {
                Kind::Recv => self.hear(done),
                _ => self.answered += 1,
            }
        }
        let before = self.answers.len();
        while let Some((peer, round)) = self.answers.front().copied() {
            let said = text(ANSWER, peer, round);
            match self.endpoint.post_send(self.peers[peer], &Send::inject(&said).tag(ANSWER)) {
                Ok(_) => drop(self.answers.pop_front()),
                Err(PostError::Again(_)) => break,
                Err(error) => panic!("{peer}: {error}"),
            }
        }
        taken > 0 || before != self.answers.len()
    }

    /// A message came: it is the next one of its peer, to the byte.
    fn hear(&mut self, done: &Completion) {
        let (peer, at) = (self.numbers[&done.peer.unwrap()], done.context as usize);
        let came = self.inbox.to_vec(BYTES * at..BYTES * (at + 1)).unwrap();
        assert_eq!(came, text(QUESTION, peer, self.rounds[peer]), "of {peer}");
        self.answers.push_back((peer, self.rounds[peer]));
        self.rounds[peer] += 1;
        self.receive(at);
    }

    /// Goes on until so many answers have ended. `others` has its turn meanwhile, and says whether it did anything.
    fn run(&mut self, answers: usize, mut others: impl FnMut() -> bool) {
        let (mut moved, mut looked) = (Instant::now(), Instant::now());
        let mut out = [Completion::default(); 64];
        while self.answered < answers {
            if others() | self.turn(&mut out) {
                moved = Instant::now();
            }
            if looked.elapsed() > Duration::from_millis(500) {
                self.descriptors = self.descriptors.max(descriptors());
                looked = Instant::now();
            }
            let lasts = moved.elapsed();
            assert!(lasts < PATIENCE, "{} of {answers}\n{}", self.answered, self.endpoint.dump());
        }
    }

    /// Every peer was heard so often, and none is lost.
    fn check(&self, rounds: usize) {
        assert!(self.rounds.iter().all(|heard| *heard == rounds));
        assert_eq!(self.endpoint.poll_event().unwrap(), None);
    }
}

/// A peer of the one.
struct Talker {
    endpoint: Endpoint,
    hub: Peer,
    own: usize,
    inbox: Region,
    has_asked: bool,
    round: usize,
    rounds: usize,
}

impl Talker {
    fn new(domain: &Domain, hub: &Address, own: usize, rounds: usize) -> Self {
        let mut attr = RdmAttr::default();
        (attr.slots, attr.slot_len, attr.connection_depth) = (16, 512, 16);
        attr.recv_depth = 16;
        attr.listen = Some(([127, 0, 0, 1], 0).into());
        let endpoint = Endpoint::new(domain, &attr).unwrap();
        let peer = endpoint.insert(hub).unwrap();
        let inbox = domain.alloc(BYTES, Access::LOCAL_WRITE).unwrap();
        Talker { endpoint, hub: peer, own, inbox, has_asked: true, round: 0, rounds }
    }

    /// Has a receive for the next answer.
    fn begin(&mut self) {
        let recv = Recv::new(Pattern::tagged(ANSWER), &self.inbox);
        self.endpoint.post_recv(&recv).unwrap();
        self.ask();
    }

    /// Asks, as soon as there is a place for it.
    fn ask(&mut self) {
        let said = text(QUESTION, self.own, self.round);
        let send = Send::inject(&said).tag(QUESTION).unsignaled();
        self.has_asked = match self.endpoint.post_send(self.hub, &send) {
            Ok(_) => true,
            Err(PostError::Again(_)) => false,
            Err(error) => panic!("{}: {error}\n{}", self.own, self.endpoint.dump()),
        };
    }

    /// Takes its answer, and asks again. Whether there was one.
    fn turn(&mut self) -> bool {
        if !self.has_asked {
            self.ask();
        }
        // Without a poll: the library's thread makes progress, and only where there is something.
        if !self.has_ended() {
            return false;
        }
        let Some(done) = self.endpoint.poll_one().unwrap() else { return false };
        let is_answer = done.is_ok() && done.kind == Kind::Recv;
        assert!(is_answer, "{}: {done:?}\n{}", self.own, self.endpoint.dump());
        let came = self.inbox.to_vec(..).unwrap();
        assert_eq!(came, text(ANSWER, self.own, self.round), "to {}", self.own);
        self.round += 1;
        if self.round < self.rounds {
            self.begin();
        }
        true
    }

    fn has_ended(&self) -> bool {
        let sends = self.endpoint.counter(Kind::Send).errors();
        let receives = self.endpoint.counter(Kind::Recv);
        sends > 0 || receives.successes() + receives.errors() > self.round as u64
    }

    fn is_done(&self) -> bool {
        self.round == self.rounds
    }
}

/// Has all of them talk, so many at a time.
fn talk(talkers: &mut [Talker], at_a_time: usize) {
    let (mut moved, mut begun, mut done) = (Instant::now(), 0, 0);
    while done < talkers.len() {
        let looked = Instant::now();
        while begun < talkers.len() && begun < done + at_a_time {
            talkers[begun].begin();
            begun += 1;
        }
        for talker in talkers[..begun].iter_mut().filter(|talker| !talker.is_done()) {
            if talker.turn() {
                moved = Instant::now();
                done += usize::from(talker.is_done());
            }
            let lasts = moved.elapsed();
            assert!(lasts < PATIENCE, "{} waits\n{}", talker.own, talker.endpoint.dump());
        }
        // A crowd has the processors for the library's threads, and not for looks.
        std::thread::sleep(looked.elapsed().mul_f32(9.0).max(Duration::from_millis(1)));
    }
}

/// A process of talkers. The last rank is the one's.
pub(crate) fn rank(others: &Exchange) -> Vec<u64> {
    let (count, rounds) = (variable("FABRIC_RDM_ENDPOINTS", 0), variable("FABRIC_RDM_ROUNDS", 0));
    let hub: Address =
        String::from_utf8(others.get("hub", LONG).unwrap()).unwrap().parse().unwrap();
    let (domain, first) = (open("tcp"), others.rank() as usize * count);
    let new = |at| Talker::new(&domain, &hub, first + at, rounds);
    let mut talkers: Vec<_> = (0..count).map(new).collect();
    share(others, talkers.iter().map(|talker| talker.endpoint.address()));
    others.barrier("begin", LONG).unwrap();
    talk(&mut talkers, variable("FABRIC_RDM_AT_A_TIME", 0));
    others.barrier("done", LONG).unwrap();
    let all = talkers.iter().map(|talker| counts(&talker.endpoint.dump())[1]);
    vec![all.sum(), peak_memory(), descriptors() as u64]
}

/// Over TCP, the peers in other processes.
fn over_tcp([processes, endpoints, at_a_time]: [usize; 3], max_open: usize, rounds: usize) {
    let variables = [
        ("FABRIC_RDM_ENDPOINTS", endpoints),
        ("FABRIC_RDM_ROUNDS", rounds),
        ("FABRIC_RDM_AT_A_TIME", at_a_time),
    ];
    let children = Processes::start("talker", processes, processes + 1, &variables);
    let (domain, others) = (open("tcp"), children.join());
    let mut hub = Hub::new(&domain, max_open);
    others.put("hub", hub.endpoint.address().to_string().as_bytes()).unwrap();
    let addresses = share(&others, std::iter::empty());
    let before = peak_memory();
    addresses.iter().for_each(|address| hub.meet(address));
    let met = peak_memory() - before;
    others.barrier("begin", LONG).unwrap();
    let (begun, count) = (Instant::now(), addresses.len());
    hub.run(count * rounds, || false);
    let took = begun.elapsed();
    others.barrier("done", LONG).unwrap();
    hub.check(rounds);
    others.leave().unwrap();
    let all = children.outcomes();
    let attempts: u64 = all.iter().map(|one| one[0]).sum();
    let [connected, own] = counts(&hub.endpoint.dump());
    eprintln!(
        "{count} peers over TCP in {processes} processes, {at_a_time} of each at a time, {max_open} connections: {} messages each way in {took:?}; {connected} \
         connections, {attempts} attempts of the peers and {own} of the one; {} MiB in its process ({before} before, {met} by \
         their addresses), {} descriptors; {} MiB and {} descriptors in one of theirs",
        count * rounds,
        peak_memory(),
        hub.descriptors,
        all[0][1],
        all[0][2],
    );
}

/// Over the provider of one process, as many peers at a time as it has descriptors for; all stay known.
fn over_mem(count: usize, at_a_time: usize, max_open: usize, rounds: usize) {
    let domain = open("mem");
    let mut hub = Hub::new(&domain, max_open);
    let (begun, before, mut first) = (Instant::now(), peak_memory(), 0);
    while first < count {
        let wave = first..count.min(first + at_a_time);
        let new = |own| Talker::new(&domain, hub.endpoint.address(), own, rounds);
        let mut talkers: Vec<_> = wave.clone().map(new).collect();
        talkers.iter().for_each(|talker| hub.meet(talker.endpoint.address()));
        talkers.iter_mut().for_each(Talker::begin);
        hub.run(wave.end * rounds, || talkers.iter_mut().fold(false, |did, one| did | one.turn()));
        // The last answers were sent, and are taken now.
        let until = Instant::now() + PATIENCE;
        while !talkers.iter().all(Talker::is_done) {
            assert!(Instant::now() < until, "{}", hub.endpoint.dump());
            for talker in &mut talkers {
                talker.turn();
            }
        }
        park(talkers.iter().map(|talker| &talker.endpoint), std::iter::once(&hub.endpoint));
        first = wave.end;
    }
    hub.check(rounds);
    let [connected, attempts] = counts(&hub.endpoint.dump());
    eprintln!(
        "{count} peers over mem, {at_a_time} at a time, {max_open} connections: {} messages each way in {:?}; {connected} \
         connections, {attempts} attempts of the one; {} MiB ({before} before)",
        count * rounds,
        begun.elapsed(),
        peak_memory(),
    );
}

#[test]
fn two_hundred_peers() {
    over_tcp([2, 100, 50], 16, 3);
    over_mem(200, 50, 16, 3);
}

#[test]
#[ignore = "it takes a minute"]
fn ten_thousand_peers_over_mem() {
    let (open, rounds) = (variable("FABRIC_RDM_OPEN", 64), variable("FABRIC_RDM_ROUNDS", 3));
    over_mem(10_000, 2000, open, rounds);
}

#[test]
#[ignore = "it takes a minute"]
fn ten_thousand_peers_over_tcp() {
    let (open, rounds) = (variable("FABRIC_RDM_OPEN", 64), variable("FABRIC_RDM_ROUNDS", 3));
    let processes = variable("FABRIC_RDM_PROCESSES", 8);
    let endpoints = variable("FABRIC_RDM_ENDPOINTS", 1250);
    let at_a_time = variable("FABRIC_RDM_AT_A_TIME", endpoints);
    over_tcp([processes, endpoints, at_a_time], open, rounds);
}
