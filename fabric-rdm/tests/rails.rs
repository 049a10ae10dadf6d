//! Addresses with several rails, some of them to other endpoints than the one that is meant.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use std::net::SocketAddr;
use std::time::Duration;

use fabric::{Domain, Hints};
use fabric_rdm::{Address, Endpoint, RdmAttr, Send, Status};

const TIMEOUT: Option<Duration> = Some(Duration::from_secs(20));

fn domain() -> Domain {
    Domain::open(&Hints { provider: Some("tcp".into()), ..Hints::default() }).unwrap()
}

fn endpoint(domain: &Domain, listen: &str) -> Endpoint {
    let mut attr = RdmAttr::default();
    attr.listen = Some(listen.parse().unwrap());
    attr.max_strangers = 8;
    Endpoint::new(domain, &attr).unwrap()
}

fn rail(of: &Endpoint) -> SocketAddr {
    of.address().rails().next().unwrap()
}

/// Sends to what has the identity of `to` at these rails.
fn send(from: &Endpoint, to: &Endpoint, rails: &[SocketAddr]) -> Status {
    let address = Address::new(to.address().identity(), to.address().host(), rails).unwrap();
    let peer = from.insert(&address).unwrap();
    from.post_send(peer, &Send::inject(b"a message")).unwrap();
    from.wait_one(TIMEOUT).unwrap().status
}

#[test]
fn a_peer_is_found_behind_rails_that_lead_to_others() {
    let domains = [domain(), domain(), domain()];
    let [from, other, to] = domains.each_ref().map(|domain| endpoint(domain, "127.0.0.1:0"));
    // By the first one this endpoint reaches another one, and by the second itself.
    let rails = [rail(&other), rail(&from), rail(&to)];
    assert_eq!(send(&from, &to, &rails), Status::Ok);
}

#[test]
fn a_peer_that_is_behind_none_of_its_rails_is_gone() {
    let domains = [domain(), domain(), domain()];
    let [from, other, third] = domains.each_ref().map(|domain| endpoint(domain, "127.0.0.1:0"));
    let to = endpoint(&domains[1], "127.0.0.1:0");
    assert_eq!(send(&from, &to, &[rail(&other), rail(&third)]), Status::PeerGone);
}

#[test]
fn the_loopback_is_no_rail_beside_addresses_that_others_reach() {
    let domain = domain();
    let has_network = domain.info().addresses.iter().any(|ip| !ip.is_loopback());
    let address = endpoint(&domain, "0.0.0.0:0").address().clone();
    assert_ne!(address.rails().any(|rail| rail.ip().is_loopback()), has_network, "{address:?}");
}
