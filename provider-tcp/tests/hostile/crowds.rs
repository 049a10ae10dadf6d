//! Crowds from one address: they displace themselves, and a client from elsewhere gets in at once.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use fabric::ListenerAttr;
use fabric_util::stream::wire::handshake::{Handshake, HandshakeKind};
use socket2::{Domain, Socket, Type};

use crate::scene::*;

/// An honest client has so long to get in: less than a hello is waited for.
const AT_ONCE: Duration = Duration::from_secs(4);

/// A connection from an address of this host.
fn from(host: u8, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, host], 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.set_read_timeout(SOON).unwrap();
    socket.into()
}

/// As [`from`], and a hello, with which so many requests have come.
fn asking_from(host: u8, scene: &Scene, to: SocketAddr, count: u64) -> TcpStream {
    let mut stream = from(host, to);
    stream.write_all(&hello(0)).unwrap();
    let deadline = Instant::now() + SOON.unwrap();
    while requests(scene) < count {
        assert!(Instant::now() < deadline, "{}", scene.server.domain.dump());
        std::thread::sleep(Duration::from_millis(1));
    }
    stream
}

/// Requests that came so far, where the application takes none.
fn requests(scene: &Scene) -> u64 {
    let dump = scene.server.domain.dump();
    let waiting = dump.split_once(" requests,").unwrap().0.rsplit(' ').next().unwrap();
    scene.server.domain.counters().provider.peers_refused + waiting.parse::<u64>().unwrap()
}

fn is_refused(stream: &mut TcpStream) -> bool {
    let mut answer = Vec::new();
    std::io::Read::read_to_end(stream, &mut answer).unwrap();
    let decoded = Handshake::decode(&answer).unwrap();
    decoded.is_some_and(|decoded| decoded.frame.kind == HandshakeKind::Refuse)
}

#[test]
fn a_silent_crowd_from_one_address_keeps_nobody_out() {
    let scene = Scene::new();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap();
    // More than half-open connections have room.
    let count = (limit / 8).min(1024) + 100;
    let crowd: Vec<_> = (0..count).map(|_| from(2, scene.addr())).collect();
    for _ in 0..4 {
        let builder = scene.client.domain.endpoint().connect_timeout(AT_ONCE);
        let endpoint = builder.build(&scene.client.queue).unwrap();
        endpoint.connect(scene.addr(), &[]).unwrap();
        let peer = scene.server.endpoint();
        scene.listener.accept(Some(AT_ONCE)).unwrap().accept(&peer, &[]).unwrap();
        endpoint.wait_connected(SOON).unwrap();
    }
    scene.check();
    let refused = scene.server.domain.counters().provider.peers_refused;
    assert!((1..=crowd.len() as u64).contains(&refused), "{refused} of {}", crowd.len());
}

#[test]
fn in_a_full_backlog_the_address_that_has_most_makes_room() {
    let scene = Scene::new();
    let mut attr = ListenerAttr::default();
    attr.backlog = 3;
    let listener = scene.server.domain.listen_with("127.0.0.1:0".parse().unwrap(), &attr).unwrap();
    let ask = |host, count| asking_from(host, &scene, listener.local_addr(), count);
    let [mut oldest, _second, _third] = [1, 2, 3].map(|count| ask(1, count));
    let mut own = ask(1, 4);
    assert!(is_refused(&mut own), "one more of them");
    let _other = ask(2, 4);
    assert!(is_refused(&mut oldest), "for the first from elsewhere");
    let hosts = || {
        let requests = std::iter::from_fn(|| listener.poll());
        requests.map(|request| request.peer_addr().ip().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(hosts(), ["127.0.0.1", "127.0.0.1", "127.0.0.2"]);
    assert_eq!(scene.server.domain.counters().provider.peers_refused, 2);
    scene.check();
}

/// Nothing comes behind a hello until it is answered.
#[test]
fn whoever_says_more_while_it_waits_is_not_asked_about() {
    let scene = Scene::new();
    for says_more in [true, false] {
        let mut stream = asking_from(1, &scene, scene.addr(), 1);
        if says_more {
            stream.write_all(b"well?").unwrap();
            assert!(is_cut_off(&mut stream));
        } else {
            drop(stream);
        }
        let deadline = Instant::now() + SOON.unwrap();
        while !scene.server.domain.dump().contains("half-open, 0 requests,") {
            assert!(Instant::now() < deadline, "{}", scene.server.domain.dump());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(scene.listener.poll().is_none());
    }
    scene.check();
}
