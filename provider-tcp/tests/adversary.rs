//! The adversary does what it is there for, and nothing that the contract forbids. (The conformance suite passes with
//! it: `make adversary`.)

#![allow(clippy::unwrap_used)] // the helpers are of tests too

use std::time::Duration;

use fabric::{Access, Catalog, Choice, Domain, Hints, Op};
use provider_tcp::TcpProvider;

const SOON: Option<Duration> = Some(Duration::from_secs(30));
const ROUNDS: u64 = 100;
/// Longer than threads look for more before they sleep.
const LATE: Duration = Duration::from_micros(500);

fn open(adversary: Option<u64>) -> Domain {
    let mut catalog = Catalog::empty().add(TcpProvider::new()).unwrap();
    if let Some(seed) = adversary {
        catalog = catalog.configure("tcp", "adversary", &seed.to_string()).unwrap();
    }
    catalog.open_with(&Choice::Auto, &Hints::default()).unwrap()
}

/// What both sides did for the same traffic: a write, a read of it and a send, each behind the other.
fn system_calls(adversary: Option<u64>) -> u64 {
    let (a, b) = (open(adversary), open(adversary));
    let (queue, peer_queue) = (a.completion_queue(512).unwrap(), b.completion_queue(512).unwrap());
    let (endpoint, peer) =
        (a.endpoint().build(&queue).unwrap(), b.endpoint().build(&peer_queue).unwrap());
    let listener = b.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    endpoint.connect(listener.local_addr(), b"hello").unwrap();
    listener.accept(SOON).unwrap().accept(&peer, b"welcome").unwrap();
    assert_eq!(*endpoint.wait_connected(SOON).unwrap(), *b"welcome");
    peer.wait_connected(SOON).unwrap();

    let (local, target) =
        (a.alloc(4096, Access::ALL).unwrap(), b.alloc(4096, Access::ALL).unwrap());
    let remote = target.remote();
    for round in 0..ROUNDS {
        local.put(0, &round).unwrap();
        peer.recv(target.slice(1024..2048), round).unwrap();
        endpoint.post(&Op::write(local.slice(..1024), remote.at(0)).context(1)).unwrap();
        endpoint.read(local.slice(2048..3072), remote.at(0), 2).unwrap();
        endpoint.send(local.slice(..1024), 3).unwrap();
        for context in 1..=3 {
            // A message that comes that late is not waited for by looking again and again, which would count.
            std::thread::sleep(LATE);
            let done = queue.wait_one(SOON).unwrap();
            assert!(done.is_ok() && done.context == context, "{done:?}");
        }
        let received = peer_queue.wait_one(SOON).unwrap();
        assert!(received.is_ok() && received.context == round && received.len == 1024);
        let seen =
            [local.get::<u64>(2048).unwrap(), target.get(0).unwrap(), target.get(1024).unwrap()];
        assert_eq!(seen, [round; 3]);
    }
    a.counters().provider.system_calls + b.counters().provider.system_calls
}

#[test]
fn frames_are_cut_and_nothing_is_lost() {
    // What looks in vain does so as often as it happens; the minimum of some runs is what is needed.
    let fewest = |adversary| (0..5).map(|_| system_calls(adversary)).min().unwrap();
    let (plain, adverse) = (fewest(None), fewest(Some(1)));
    // Each round moves some 3300 bytes in a few calls; cut as the adversary cuts, it takes many more.
    assert!(adverse > plain + 3 * ROUNDS, "{adverse} system calls, {plain} without the adversary");
}

#[test]
fn it_says_that_it_is_on() {
    let info = open(Some(7)).info().clone();
    assert!(info.details.contains(&("adversary".to_owned(), "on, seed 7".to_owned())), "{info:?}");
    assert!(open(None).info().details.iter().all(|(name, _)| name != "adversary"));
}
