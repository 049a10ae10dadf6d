//! Endpoints that are named by where they listen: a peer needs to know no more.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use std::time::{Duration, Instant};

use fabric::{Access, Domain, Hints};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Address, Endpoint, RdmAttr, Recv, Send};

const TIMEOUT: Option<Duration> = Some(Duration::from_secs(30));

fn domain() -> Domain {
    Domain::open(&Hints { provider: Some("tcp".into()), ..Hints::default() }).unwrap()
}

fn endpoint(domain: &Domain, listen: &str) -> fabric::Result<Endpoint> {
    let mut attr = RdmAttr::default();
    attr.listen = Some(listen.parse().unwrap());
    (attr.named_by_place, attr.max_strangers) = (true, 8);
    Endpoint::new(domain, &attr)
}

#[test]
fn a_place_is_enough_to_send_to() {
    let (domain_a, domain_b) = (domain(), domain());
    let a = endpoint(&domain_a, "127.0.0.1:0").unwrap();
    let b = endpoint(&domain_b, "127.0.0.1:0").unwrap();
    let place = b.address().rails().next().unwrap();
    let to_b = a.insert(&Address::of_listener(place).unwrap()).unwrap();
    a.post_send(to_b, &Send::inject(b"a message").tag(7).immediate(5)).unwrap();
    assert!(a.wait_one(TIMEOUT).unwrap().is_ok());

    // A probe has all of it but the bytes.
    let until = Instant::now() + TIMEOUT.unwrap();
    let found = loop {
        if let Some(found) = b.probe(&Pattern::tagged(7)).unwrap() {
            break found;
        }
        assert!(Instant::now() < until, "the message has not come");
    };
    assert_eq!((found.envelope.tag, found.envelope.len, found.immediate), (Some(7), 9, Some(5)));
    // The one that came by itself is the peer that its place names.
    let place = a.address().rails().next().unwrap();
    let from_a = b.insert(&Address::of_listener(place).unwrap()).unwrap();
    assert_eq!(found.envelope.source, from_a);
    let inbox = domain_b.alloc(64, Access::LOCAL_WRITE).unwrap();
    b.post_recv(&Recv::new(Pattern::tagged(7).from(from_a), &inbox)).unwrap();
    assert_eq!(b.wait_one(TIMEOUT).unwrap().immediate, Some(5));
}

#[test]
fn every_address_is_no_place() {
    let error = endpoint(&domain(), "0.0.0.0:0").unwrap_err().to_string();
    assert!(error.contains("named_by_place"), "{error}");
}
