//! One peer is killed with everything outstanding, and restarts where it was.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fabric::{Access, AtomicOp, Domain, Op, Region};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{
    Completion, DeathCause, Endpoint, Peer, PeerEvent, PostError, RdmAttr, Recv, Send, Status,
};
use rustix::process::Signal;

use crate::process::{LONG, Process, domain, heard, own_domain, say};
use crate::variable;
use crate::words::Place;

const LISTEN: &str = "FABRIC_KILLS_LISTEN";
const ROUNDS: u64 = 6;

/// Said instead of a place: another program has that by now.
const TAKEN: &str = "taken";
/// Lengths that go whole, in pieces, and by rendezvous.
const LENGTHS: [usize; 3] = [5, 20_000, 100_000];
/// Those that do not wait at their sender.
const WHOLE_LENGTHS: [usize; 2] = [LENGTHS[0], LENGTHS[1]];
/// Long enough that a kill finds it half way.
const HUGE: usize = 8 << 20;
const MEMORY: usize = HUGE;

// Tags, by what becomes of the messages.
const WHOLE: u64 = 1;
const LEFT_THERE: u64 = 2;
const HALF_WAY: u64 = 3;
const ANYBODY: u64 = 4;
const NO_RECEIVE: u64 = 5;

/// Contexts: of operations to the victim, in the order of their posts; of receives; of other operations.
const FIRST: u64 = 100;
const DIRECTED: u64 = 200;
const OF_ANYBODY: u64 = 300;
const HALF_RECEIVED: u64 = 350;
const OTHER: u64 = 400;

fn listen() -> RdmAttr {
    let mut attr = RdmAttr::default();
    attr.listen = std::env::var(LISTEN).ok().map(|addr| addr.parse::<SocketAddr>().unwrap());
    attr
}

fn patterned(domain: &Domain, len: usize, access: Access) -> Region {
    let region = domain.alloc(len, access).unwrap();
    let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    region.write_at(0, &bytes).unwrap();
    region
}

/// A member of these tests: its endpoint, its memory, and a peer for each place that it hears.
struct Child {
    endpoint: Endpoint,
    memory: Region,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Child {
    fn new() -> Self {
        let domain = own_domain();
        let attr = listen();
        let endpoint = Endpoint::new(&domain, &attr);
        if endpoint.is_err() && attr.listen.is_some() {
            say(&format!("at {TAKEN}"));
            std::process::exit(0);
        }
        let endpoint = endpoint.unwrap();
        let memory = patterned(&domain, MEMORY, Access::ALL);
        say(&format!("at {}", Place::of(&endpoint, &memory)));
        Child { endpoint, memory, lines: heard() }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(LONG).unwrap()
    }

    fn peer(&self) -> (Peer, Place) {
        let place = Place::parse(&self.line());
        (self.endpoint.insert(&place.address).unwrap(), place)
    }
}

/// The role of the one that is killed: what it sends to the first one is half way, and adds go to the third one.
pub(crate) fn victim() {
    let child = Child::new();
    let ((first, _), (third, at_third)) = (child.peer(), child.peer());
    let endpoint = &child.endpoint;
    let huge = child.endpoint.domain().alloc(HUGE, Access::LOCAL_WRITE).unwrap();
    endpoint.post_recv(&Recv::new(Pattern::tagged(HALF_WAY).from(first), &huge)).unwrap();
    for len in WHOLE_LENGTHS {
        let message = Send::new(child.memory.slice(..len)).tag(WHOLE);
        endpoint.post_send(first, &message.context(WHOLE)).unwrap();
    }
    for tag in [LEFT_THERE, HALF_WAY] {
        endpoint.post_send(first, &Send::new(&child.memory).tag(tag).context(tag)).unwrap();
    }
    let mut whole = 0;
    let sum = endpoint.domain().alloc(8, Access::LOCAL_WRITE).unwrap();
    // Until it is killed: what is said before a post bounds what can be done, what is said behind an end what has to be.
    for add in 1.. {
        say(&format!("add {add}"));
        let op = Op::fetch_atomic(AtomicOp::Add, 1u64, sum.slice(..), at_third.memory.at(0));
        let posted = endpoint.post(third, &op.context(OTHER));
        assert!(posted.is_ok() || matches!(posted, Err(PostError::Again(_))), "{posted:?}");
        while let Some(done) = endpoint.poll_one().unwrap() {
            match done.context {
                OTHER if done.is_ok() => say("added"),
                WHOLE if done.is_ok() => {
                    whole += 1;
                    if whole == WHOLE_LENGTHS.len() {
                        say("sent");
                    }
                }
                _ => {}
            }
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// The role of the one whose memory others add to.
pub(crate) fn third() {
    let child = Child::new();
    let mut first = None;
    loop {
        let line = child.line();
        match line.split_once(' ') {
            Some(("peer", place)) => {
                let address = Place::parse(place).address;
                let peer = child.endpoint.insert(&address).unwrap();
                first.get_or_insert(peer);
            }
            // A message for the first one.
            Some(("send", tag)) => {
                let message = Send::inject(b"of the third").tag(tag.parse().unwrap());
                child.endpoint.post_send(first.unwrap(), &message).unwrap();
                assert!(child.endpoint.wait_one(Some(LONG)).unwrap().is_ok());
            }
            // What the victim added, and the first one.
            None if line == "sums" => {
                let sum = |at| child.memory.get::<u64>(at).unwrap();
                say(&format!("sums {} {}", sum(0), sum(8)));
            }
            None if line == "zero" => {
                child.memory.put(0, &[0_u64; 2]).unwrap();
                say("zeroed");
            }
            _ => return,
        }
    }
}

struct First {
    endpoint: Endpoint,
    source: Region,
    into: Region,
}

impl First {
    fn next(&self) -> Completion {
        self.endpoint.wait_one(Some(LONG)).unwrap_or_else(|error| {
            panic!("a completion: {error}\n{}", self.endpoint.dump());
        })
    }

    /// Until a message waits.
    fn waits(&self, tag: u64) {
        let until = Instant::now() + LONG;
        while self.endpoint.probe(&Pattern::tagged(tag)).unwrap().is_none() {
            assert!(Instant::now() < until, "no message of {tag}: {}", self.endpoint.dump());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Posts messages of all kinds and one-sided operations to the victim. How many.
    fn post_all(&self, victim: Peer, at: &Place) -> u64 {
        let (endpoint, mut context) = (&self.endpoint, FIRST);
        let mut next = || {
            context += 1;
            context - 1
        };
        // The first one never ends by itself.
        for len in LENGTHS {
            let message = Send::new(self.source.slice(..len)).tag(NO_RECEIVE).matched();
            endpoint.post_send(victim, &message.context(next())).unwrap();
        }
        endpoint.post_send(victim, &Send::new(&self.source).tag(HALF_WAY).context(next())).unwrap();
        let memory = &at.memory;
        for round in 0..4 {
            let (len, at) = (4096, 8 + round * 4096);
            let write = Op::write(self.source.slice(..len), memory.at(at as u64));
            endpoint.post(victim, &write.context(next())).unwrap();
            let read = Op::read(self.into.slice(..len), memory.at(at as u64));
            endpoint.post(victim, &read.context(next())).unwrap();
            let add = Op::atomic(AtomicOp::Add, 1u64, memory.at(0));
            endpoint.post(victim, &add.context(next())).unwrap();
        }
        context - FIRST
    }

    /// What is outstanding at a death: the oldest operation is lost, the others are canceled; each has one end.
    fn all_end(&self, victim: Peer, posted: u64, directed: u64) -> u64 {
        let endpoint = &self.endpoint;
        let (mut ended, mut lost, mut half, mut added) =
            (vec![false; posted as usize], None, false, 0);
        let mut directed_ended = vec![false; directed as usize];
        while ended.contains(&false) || directed_ended.contains(&false) || !half {
            let done = self.next();
            let at = done.context;
            let once = match at {
                FIRST..DIRECTED => &mut ended[(at - FIRST) as usize],
                DIRECTED..OF_ANYBODY => &mut directed_ended[(at - DIRECTED) as usize],
                HALF_RECEIVED => &mut half,
                // An add to the third one.
                OTHER => {
                    assert!(done.is_ok(), "{done:?}");
                    added += 1;
                    continue;
                }
                _ => panic!("{done:?} is not expected"),
            };
            assert!(!std::mem::replace(once, true), "{done:?} once");
            match at {
                DIRECTED..OF_ANYBODY => assert_eq!(done.status, Status::PeerLost, "{done:?}"),
                HALF_RECEIVED => {
                    assert!(matches!(done.status, Status::Ok | Status::PeerLost), "{done:?}");
                    assert_eq!(done.peer, Some(victim));
                }
                _ if done.is_ok() => assert!(lost.is_none() && at != FIRST, "{done:?}"),
                _ if lost.is_none() => {
                    assert_eq!((at, done.status), (FIRST, Status::PeerLost), "{done:?}");
                    lost = Some(at);
                }
                _ => assert_eq!(done.status, Status::Canceled, "{done:?}"),
            }
        }
        assert_eq!(endpoint.down(victim).unwrap(), Some(DeathCause::Lost));
        let event = endpoint.poll_event().unwrap();
        assert_eq!(event, Some(PeerEvent::Down(victim, DeathCause::Lost)));
        added
    }

    /// Those that came whole are there, and no others.
    fn whole_ones_stay(&self, victim: Peer) {
        let source = self.source.to_vec(..).unwrap();
        for len in WHOLE_LENGTHS {
            self.into.fill(0).unwrap();
            let recv = Recv::new(Pattern::tagged(WHOLE).from(victim), &self.into);
            self.endpoint.post_recv(&recv.context(WHOLE)).unwrap();
            let done = self.next();
            let said = (done.context, done.status, done.len, done.peer);
            assert_eq!(said, (WHOLE, Status::Ok, len as u64, Some(victim)));
            assert_eq!(self.into.to_vec(..len).unwrap(), source[..len]);
        }
        for tag in [WHOLE, LEFT_THERE, HALF_WAY] {
            let left = self.endpoint.probe(&Pattern::tagged(tag)).unwrap();
            assert!(left.is_none(), "no message of {tag}: {:?}", left.map(|left| left.envelope));
        }
    }

    fn posts_fail(&self, victim: Peer, at: &Place) {
        for _ in 0..3 {
            let sent = self.endpoint.post_send(victim, &Send::inject(b"x"));
            assert!(matches!(sent, Err(PostError::PeerDown(DeathCause::Lost))), "{sent:?}");
            let op = Op::atomic(AtomicOp::Add, 1u64, at.memory.at(0));
            let posted = self.endpoint.post(victim, &op);
            assert!(matches!(posted, Err(PostError::PeerDown(DeathCause::Lost))), "{posted:?}");
            let recv = Recv::new(Pattern::tagged(WHOLE).from(victim), &self.into);
            let posted = self.endpoint.post_recv(&recv);
            assert!(matches!(posted, Err(PostError::PeerDown(DeathCause::Lost))), "{posted:?}");
        }
    }
}

impl Process {
    /// Where it is; `None`: another program is there by now.
    fn place(&mut self) -> Option<Place> {
        let at = self.expect("at");
        (at != TAKEN).then(|| Place::parse(&at))
    }
}

pub(crate) fn killed(provider: &str) {
    let domain = domain(provider);
    let endpoint = Endpoint::new(&domain, &RdmAttr::default()).unwrap();
    let source = patterned(&domain, HUGE, Access::REMOTE_READ | Access::GRANTS_ONLY);
    let into = domain.alloc(HUGE, Access::LOCAL_WRITE).unwrap();
    let own = Place::of(&endpoint, &domain.alloc(64, Access::ALL).unwrap());
    let first = First { endpoint, source, into };
    let mut third = Process::start("the third", "third", provider, &[]);
    let at_third = Place::parse(&third.expect("at"));
    let to_third = first.endpoint.insert(&at_third.address).unwrap();
    third.order(&format!("peer {own}"));

    let (mut listens, mut succeeded) = (Vec::new(), 0);
    let rounds = variable("FABRIC_RDM_KILL_ROUNDS", ROUNDS);
    for round in 0..rounds {
        third.order("zero");
        third.expect("zeroed");
        let mut victim = Process::start("the victim", "victim", provider, &listens);
        let place = victim.place().or_else(|| {
            victim = Process::start("the victim", "victim", provider, &[]);
            victim.place()
        });
        let at_victim = place.unwrap();
        let to_victim = first.endpoint.insert(&at_victim.address).unwrap();
        third.order(&format!("peer {at_victim}"));
        victim.order(&own.to_string());
        victim.order(&at_third.to_string());
        victim.expect("sent");
        first.waits(HALF_WAY);

        // Receives from it alone, and from any peer; and one that is half way, or has ended.
        let endpoint = &first.endpoint;
        let any = Pattern::tagged(ANYBODY);
        let directed = [any.from(to_victim), Pattern::untagged().from(to_victim)];
        for (context, pattern) in (DIRECTED..).zip(directed) {
            let recv = Recv::new(pattern, first.into.slice(..64)).context(context);
            endpoint.post_recv(&recv).unwrap();
        }
        let recv = Recv::new(any, first.into.slice(64..128)).context(OF_ANYBODY);
        endpoint.post_recv(&recv).unwrap();
        let posted = if round % 2 == 0 {
            // It answers nothing any more.
            victim.signal(Signal::STOP);
            first.post_all(to_victim, &at_victim)
        } else {
            first.post_all(to_victim, &at_victim)
        };
        let recv = Recv::new(Pattern::tagged(HALF_WAY), &first.into).context(HALF_RECEIVED);
        endpoint.post_recv(&recv).unwrap();
        let adds = 20;
        for _ in 0..adds {
            let add = Op::atomic(AtomicOp::Add, 1u64, at_third.memory.at(8)).context(OTHER);
            endpoint.post(to_third, &add).unwrap();
        }
        std::thread::sleep(Duration::from_micros(700 * round * round));

        let said = victim.kill();
        let mut added = first.all_end(to_victim, posted, directed.len() as u64);
        while added < adds {
            let done = first.next();
            assert_eq!((done.context, done.status), (OTHER, Status::Ok), "{done:?}");
            added += 1;
        }
        first.whole_ones_stay(to_victim);
        first.posts_fail(to_victim, &at_victim);
        // Each addition at most once, and those that ended exactly; its death repeats nothing.
        let count =
            |word: &str| said.iter().filter(|line| line.split(' ').next() == Some(word)).count();
        third.order("sums");
        let sums = third.expect("sums");
        let sums: Vec<usize> = sums.split(' ').map(|word| word.parse().unwrap()).collect();
        assert!((count("added")..=count("add")).contains(&sums[0]), "{sums:?} of {round}");
        assert_eq!(sums[1], adds as usize);

        // A receive from any peer stays.
        third.order(&format!("send {ANYBODY}"));
        let done = first.next();
        assert_eq!((done.context, done.status), (OF_ANYBODY, Status::Ok), "{done:?}");

        // Another one is where it was.
        let addr = at_victim.address.rails().next().unwrap();
        let again = [(LISTEN, addr.to_string())];
        let mut successor = Process::start("its successor", "third", provider, &again);
        let Some(at_successor) = successor.place() else {
            println!("round {round}: another program is where it was");
            endpoint.remove(to_victim).unwrap();
            while endpoint.poll_event().unwrap().is_some() {}
            continue;
        };
        assert_eq!(at_successor.address.rails().next(), Some(addr));
        if round % 3 == 0 {
            // One that knows the first one does no other than one that does not.
            successor.order(&format!("peer {own}"));
        }
        endpoint.revive(to_victim).unwrap();
        let message = Send::inject(b"for the first").context(OTHER);
        endpoint.post_send(to_victim, &message).unwrap();
        let begun = Instant::now();
        let done = first.next();
        assert_eq!((done.context, done.status), (OTHER, Status::PeerGone), "{done:?}");
        println!("round {round}: gone after {:?}", begun.elapsed());
        drop(successor);
        endpoint.remove(to_victim).unwrap();
        assert_eq!(endpoint.poll_one().unwrap(), None);
        while endpoint.poll_event().unwrap().is_some() {}
        listens = again.to_vec();
        succeeded += 1;
    }
    assert!(2 * succeeded > rounds, "{succeeded} successors of {rounds} are where the killed were");
}
