//! Addresses, interfaces, and many of everything in one process.

#![allow(clippy::unwrap_used)] // the helpers are of tests too

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use fabric::{Access, Catalog, Choice, CompletionQueue, Domain, Endpoint, Error, Hints, Slices};
use provider_tcp::TcpProvider;

const SOON: Option<Duration> = Some(Duration::from_secs(30));

fn open(choice: &str) -> Domain {
    let catalog = Catalog::empty().add(TcpProvider::new()).unwrap();
    catalog.open_with(&Choice::parse(choice).unwrap(), &Hints::default()).unwrap()
}

/// A connection from `a` to `b`, whose listener is on `addr`, that carries a write.
fn works(a: &Domain, b: &Domain, addr: SocketAddr) -> (Endpoint, Endpoint) {
    let listener = b.listen(addr).unwrap();
    assert_ne!(listener.local_addr().port(), 0, "the real port");
    let (qa, qb) = (queue(a), queue(b));
    let (ea, eb) = (a.endpoint().build(&qa).unwrap(), b.endpoint().build(&qb).unwrap());
    ea.connect(listener.local_addr(), &[]).unwrap();
    let mut request = listener.accept(SOON).unwrap();
    assert_eq!(Some(request.peer_addr()), ea.local_addr());
    request.accept(&eb, &[]).unwrap();
    ea.wait_connected(SOON).unwrap();
    let (from, to) = (a.alloc(8, Access::LOCAL_WRITE).unwrap(), b.alloc(8, Access::ALL).unwrap());
    from.put(0, &7u64).unwrap();
    ea.write(&from, to.remote().at(0), 1).unwrap();
    assert!(qa.wait_one(SOON).unwrap().is_ok());
    assert_eq!(to.get::<u64>(0).unwrap(), 7);
    (ea, eb)
}

fn queue(domain: &Domain) -> CompletionQueue {
    domain.completion_queue(256).unwrap()
}

#[test]
fn both_families() {
    let (a, b) = (open("tcp"), open("tcp"));
    works(&a, &b, "127.0.0.1:0".parse().unwrap());
    if a.info().addresses.iter().any(|ip| ip.is_ipv6() && ip.is_loopback()) {
        let (end, _peer) = works(&a, &b, "[::1]:0".parse().unwrap());
        assert!(end.peer_addr().unwrap().is_ipv6());
    } else {
        eprintln!("IPv6 NOT TESTED: this machine has no ::1");
    }
}

#[test]
fn an_interface_uses_its_own_addresses_only() {
    let lo = open("tcp:lo");
    assert_eq!(lo.device(), "lo");
    // Any address means any of the interface's.
    let listener = lo.listen((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap();
    assert_eq!(listener.local_addr().ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    let (end, _peer) = works(&lo, &open("tcp:lo"), "127.0.0.1:0".parse().unwrap());
    assert!(end.local_addr().unwrap().ip().is_loopback());
    let elsewhere = lo.listen("198.51.100.1:0".parse().unwrap()).unwrap_err();
    assert!(matches!(elsewhere, Error::InvalidArgument(_)), "{elsewhere}");
    assert!(
        elsewhere.to_string().contains("127.0.0.1"),
        "it says what the interface has: {elsewhere}"
    );
}

#[test]
fn a_source_address_is_used_and_checked() {
    let (a, b) = (open("tcp"), open("tcp"));
    let listener = b.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let source = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let end = a.endpoint().source(source).build(&queue(&a)).unwrap();
    end.connect(listener.local_addr(), &[]).unwrap();
    assert_eq!(listener.accept(SOON).unwrap().peer_addr().ip(), source);
    let foreign =
        a.endpoint().source("198.51.100.1".parse().unwrap()).build(&queue(&a)).unwrap_err();
    assert!(matches!(foreign, Error::InvalidArgument(_)), "{foreign}");
}

#[test]
fn many_domains_and_a_thousand_connections_in_one_process() {
    const DOMAINS: usize = 10;
    const EACH: usize = 100;
    use rustix::process::{Resource, getrlimit, setrlimit};
    // A connection in one process has two sockets; the usual soft limit is 1024 descriptors.
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let server = open("tcp");
    let listener = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let arrivals = server.completion_queue(DOMAINS * EACH * 16).unwrap();
    let (mut clients, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..DOMAINS {
        let domain = open("tcp");
        let queue = domain.completion_queue(EACH * 16).unwrap();
        for _ in 0..EACH {
            let end = domain.endpoint().send_depth(8).recv_depth(8).build(&queue).unwrap();
            let peer = server.endpoint().send_depth(8).recv_depth(8).build(&arrivals).unwrap();
            peer.recv(Slices::none(), 1).unwrap();
            end.connect(listener.local_addr(), &[]).unwrap();
            listener.accept(SOON).unwrap().accept(&peer, &[]).unwrap();
            end.wait_connected(SOON).unwrap();
            clients.push((end, queue.clone()));
            peers.push(peer);
        }
    }
    for (end, _) in &clients {
        end.send(Slices::none(), 2).unwrap();
    }
    for (_, queue) in &clients {
        let sent = queue.wait_one(SOON).unwrap();
        assert!(sent.is_ok() && sent.context == 2, "{sent:?}");
    }
    for _ in 0..clients.len() {
        let received = arrivals.wait_one(SOON).unwrap();
        assert!(received.is_ok() && received.context == 1, "{received:?}");
    }
}
