//! Many endpoints in one process, each with few connections, all to all.
//!
//! `FABRIC_RDM_ENDPOINTS` says how many there are, `FABRIC_RDM_OPEN` how many connections each may have at a time.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

use std::time::{Duration, Instant};

use fabric::{Access, Catalog, Choice, Domain, Hints, Region};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Completion, Endpoint, Kind, Peer, PostError, RdmAttr, Recv, Send};

/// Nothing may take longer without progress.
const PATIENCE: Duration = Duration::from_secs(60);

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

fn open(provider: &str) -> Domain {
    let catalog = Catalog::builtin().add(provider_mem::MemProvider::new()).unwrap();
    catalog.open_with(&Choice::parse(provider).unwrap(), &Hints::default()).unwrap()
}

/// One of the endpoints, with what it still has to send.
struct Member {
    endpoint: Endpoint,
    peers: Vec<Peer>,
    inbox: Region,
    sent: usize,
    received: usize,
    ended: usize,
}

impl Member {
    fn new(domain: &Domain, peers: usize, max_open: u32) -> Self {
        let mut attr = RdmAttr::default();
        (attr.max_open, attr.slots, attr.slot_len, attr.connection_depth) = (max_open, 32, 512, 16);
        // All of them have the processors of one machine.
        let crowd = peers.div_ceil(100) as u32;
        attr.timeouts.connect *= crowd;
        attr.timeouts.attempt *= crowd;
        let endpoint = Endpoint::new(domain, &attr).unwrap();
        let inbox = domain.alloc(8 * peers, Access::LOCAL_WRITE).unwrap();
        Member { endpoint, peers: Vec::new(), inbox, sent: 0, received: 0, ended: 0 }
    }

    /// What one of them sends to another one.
    fn text(from: usize, to: usize) -> [u8; 8] {
        (((from as u64) << 32) | to as u64).to_le_bytes()
    }

    /// Posts what there is room for, and takes what has ended. Whether there was anything.
    fn turn(&mut self, own: usize, out: &mut [Completion]) -> bool {
        let count = self.peers.len();
        let mut is_busy = false;
        while self.sent < count {
            let to = (own + self.sent) % count;
            let text = Self::text(own, to);
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
}

/// Each of some endpoints sends one message to each of all, itself among them.
fn all_to_all(provider: &str) {
    let count = variable("FABRIC_RDM_ENDPOINTS", 60) as usize;
    let max_open = variable("FABRIC_RDM_OPEN", 8) as u32;
    let domain = open(provider);
    let mut members: Vec<_> = (0..count).map(|_| Member::new(&domain, count, max_open)).collect();
    for at in 0..count {
        for from in 0..count {
            let address = members[from].endpoint.address().clone();
            let member = &mut members[at];
            let peer = member.endpoint.insert(&address).unwrap();
            member.peers.push(peer);
            let into = member.inbox.slice(8 * from..8 * from + 8);
            member.endpoint.post_recv(&Recv::new(Pattern::tagged(1).from(peer), into)).unwrap();
        }
    }
    let begin = Instant::now();
    let (mut moved, mut left) = (begin, count);
    let mut out = [Completion::default(); 64];
    while left > 0 {
        left = 0;
        for (own, member) in members.iter_mut().enumerate() {
            if member.turn(own, &mut out) {
                moved = Instant::now();
            }
            left += usize::from(!member.is_done());
            assert!(
                moved.elapsed() < PATIENCE,
                "nothing moves: endpoint {own}\n{}",
                member.endpoint.dump()
            );
        }
    }
    eprintln!("{provider}: {} messages in {:?}", count * count, begin.elapsed());
    for (to, member) in members.iter().enumerate() {
        for from in 0..count {
            let mut text = [0; 8];
            member.inbox.read_at(8 * from, &mut text).unwrap();
            assert_eq!(text, Member::text(from, to), "of {from} to {to}");
        }
        let open = member.endpoint.connections().unwrap();
        assert!(open <= max_open, "at most {max_open} connections, not {open}");
    }
}

#[test]
fn all_to_all_over_mem() {
    all_to_all("mem");
}

#[test]
fn all_to_all_over_tcp() {
    all_to_all("tcp");
}

#[test]
fn all_to_all_over_shm() {
    all_to_all("shm");
}
