//! Over TCP, shared memory and the memory of one process a message has arrived once its send has ended `Ok`: a probe that begins
//! then finds it, its receive is not canceled any more, and a message of the target to itself is behind it.
//!
//! `FABRIC_RDM_PROBES` says how many messages are sent for each. Threads that compute beside them have the provider's threads interrupted
//! anywhere.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fabric::{Access, Catalog, Choice, Hints, Region};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Endpoint, Peer, RdmAttr, Recv, Send};

const PATIENCE: Duration = Duration::from_secs(60);
/// Threads that compute.
const BUSY: usize = 4;

fn endpoint(provider: &str) -> Endpoint {
    let catalog = Catalog::builtin().add(provider_mem::MemProvider::new()).unwrap();
    let domain = catalog.open_with(&Choice::parse(provider).unwrap(), &Hints::default()).unwrap();
    Endpoint::new(&domain, &RdmAttr::default()).unwrap()
}

/// One endpoint that sends, and another one.
struct Pair {
    from: Endpoint,
    to: Endpoint,
    peer: Peer,
}

impl Pair {
    fn new(provider: &str) -> Self {
        let (from, to) = (endpoint(provider), endpoint(provider));
        let peer = from.insert(to.address()).unwrap();
        to.insert(from.address()).unwrap();
        Pair { from, to, peer }
    }

    /// Sends a message, and waits for the end of that.
    fn send(&self, tag: u64) {
        self.from.post_send(self.peer, &Send::inject(b"a message").tag(tag)).unwrap();
        assert!(self.from.wait_one(Some(PATIENCE)).unwrap().is_ok());
    }

    fn is_probed(&self, _: &Region, tag: u64) -> bool {
        self.send(tag);
        let is_there = self.to.probe(&Pattern::tagged(tag)).unwrap().is_some();
        let found = (0..1_000_000).find_map(|_| self.to.probe(&Pattern::tagged(tag)).unwrap());
        drop(self.to.claim(&found.unwrap()).unwrap());
        is_there
    }

    fn is_received(&self, inbox: &Region, tag: u64) -> bool {
        let receive = self.to.post_recv(&Recv::new(Pattern::tagged(tag), inbox)).unwrap();
        self.send(tag);
        let is_canceled = self.to.cancel(receive).unwrap();
        let ended = self.to.wait_one(Some(PATIENCE)).unwrap();
        assert_eq!(ended.is_ok(), !is_canceled);
        if is_canceled {
            let found = (0..1_000_000).find_map(|_| self.to.probe(&Pattern::tagged(tag)).unwrap());
            drop(self.to.claim(&found.unwrap()).unwrap());
        }
        !is_canceled
    }

    fn is_before_own(&self, inbox: &Region, tag: u64) -> bool {
        let own = self.to.insert(self.to.address()).unwrap();
        for _ in 0..2 {
            self.to.post_recv(&Recv::new(Pattern::tagged(tag), inbox)).unwrap();
        }
        self.send(tag);
        self.to.post_send(own, &Send::inject(b"its own").tag(tag).unsignaled()).unwrap();
        let sources = [0, 1].map(|_| self.to.wait_one(Some(PATIENCE)).unwrap().peer);
        sources[1] == Some(own)
    }
}

/// How many messages had not arrived.
fn missed(provider: &str, has_arrived: impl Fn(&Pair, &Region, u64) -> bool) -> u64 {
    let count = std::env::var("FABRIC_RDM_PROBES").map_or(200, |count| count.parse().unwrap());
    let pair = Pair::new(provider);
    let inbox = pair.to.domain().alloc(64, Access::LOCAL_WRITE).unwrap();
    (0..count).map(|tag| u64::from(!has_arrived(&pair, &inbox, tag))).sum()
}

fn nothing_is_missed(provider: &str) {
    let stop = AtomicBool::new(false);
    let missed = thread::scope(|scope| {
        for _ in 0..BUSY {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let missed = [Pair::is_probed, Pair::is_received, Pair::is_before_own]
            .map(|has_arrived| missed(provider, has_arrived));
        stop.store(true, Ordering::Relaxed);
        missed
    });
    assert_eq!(missed, [0; 3], "not there for a probe, a cancel, an own message, over {provider}");
}

#[test]
fn over_tcp() {
    nothing_is_missed("tcp");
}

#[test]
fn over_shm() {
    nothing_is_missed("shm");
}

#[test]
fn over_mem() {
    nothing_is_missed("mem");
}
