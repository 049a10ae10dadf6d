//! Over TCP, shared memory and the memory of one process a probe that begins after a send has ended `Ok` finds its message.
//!
//! `FABRIC_RDM_PROBES` says how many messages are sent. Threads that compute beside them have the provider's threads interrupted
//! anywhere.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fabric::{Catalog, Choice, Hints};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Endpoint, RdmAttr, Send};

const PATIENCE: Duration = Duration::from_secs(60);
/// Threads that compute.
const BUSY: usize = 4;

fn endpoint(provider: &str) -> Endpoint {
    let catalog = Catalog::builtin().add(provider_mem::MemProvider::new()).unwrap();
    let domain = catalog.open_with(&Choice::parse(provider).unwrap(), &Hints::default()).unwrap();
    Endpoint::new(&domain, &RdmAttr::default()).unwrap()
}

/// How many of the messages a probe did not find.
fn missed(provider: &str) -> u64 {
    let count = std::env::var("FABRIC_RDM_PROBES").map_or(2000, |count| count.parse().unwrap());
    let (from, to) = (endpoint(provider), endpoint(provider));
    let peer = from.insert(to.address()).unwrap();
    to.insert(from.address()).unwrap();
    let mut missed = 0;
    for tag in 0..count {
        from.post_send(peer, &Send::inject(b"a message").tag(tag)).unwrap();
        assert!(from.wait_one(Some(PATIENCE)).unwrap().is_ok());
        missed += u64::from(to.probe(&Pattern::tagged(tag)).unwrap().is_none());
        let found = (0..1_000_000).find_map(|_| to.probe(&Pattern::tagged(tag)).unwrap());
        drop(to.claim(&found.unwrap()).unwrap());
    }
    missed
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
        let missed = missed(provider);
        stop.store(true, Ordering::Relaxed);
        missed
    });
    assert_eq!(missed, 0, "probes over {provider} that found nothing");
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
