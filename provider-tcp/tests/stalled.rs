//! Peers that shake hands well, ask for much, and read nothing.

#![allow(clippy::unwrap_used)] // the helpers are of tests too

#[path = "hostile/scene.rs"]
mod scene;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use fabric::provider::RemoteAddr;
use fabric::{Access, DisconnectReason, Endpoint, EndpointState, Listener};
use fabric_util::stream::wire::frame::Kind as Frame;
use scene::*;

/// Much more than a kernel keeps for a connection.
const LEN: u32 = 64 << 20;
const INTERVAL: Duration = Duration::from_secs(1);
/// What the last frames may take to leave, and a busy machine.
const LINGER: Duration = Duration::from_secs(30);

/// What the kernel has to send from this port, by connection, after their processes too.
fn untaken(port: u16) -> Vec<usize> {
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let local = format!(":{port:04X}");
    let rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
    let listening = "0A";
    rows.filter(|row| row[1].ends_with(&local) && row[3] != listening)
        .map(|row| usize::from_str_radix(row[4].split(':').next().unwrap(), 16).unwrap())
        .filter(|&bytes| bytes > 0)
        .collect()
}

fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let until = Instant::now() + LINGER;
    while !check() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A peer that reads nothing, and the endpoint that the server gave it.
fn linked(server: &Side, listener: &Listener, liveness: Option<Duration>) -> (TcpStream, Endpoint) {
    let mut stream = TcpStream::connect(listener.local_addr()).unwrap();
    stream.write_all(&hello(0)).unwrap();
    let builder = server.domain.endpoint().liveness(liveness).send_depth(1).recv_depth(1);
    let endpoint = builder.build(&server.queue).unwrap();
    listener.accept(SOON).unwrap().accept(&endpoint, &[]).unwrap();
    stream.write_all(&frame(Frame::Ack, 0, 0)).unwrap();
    endpoint.wait_connected(SOON).unwrap();
    (stream, endpoint)
}

fn stalled(peers: usize) {
    let scene = Scene::new();
    let port = scene.addr().port();
    let region = scene.server.domain.alloc(LEN as usize, Access::REMOTE_READ).unwrap();
    let from = RemoteAddr { key: region.remote().key(), addr: 0 };
    let link = |_| linked(&scene.server, &scene.listener, None);
    let mut linked: Vec<_> = (0..peers).map(link).collect();
    for (stream, _) in &mut linked {
        stream.write_all(&frame(Frame::Read { from }, LEN, 0)).unwrap();
    }
    eventually("all stall", || untaken(port).len() == peers);
    scene.check();
    let max = untaken(port).into_iter().max().unwrap();
    assert!(max < 1 << 20, "{max} bytes wait in the kernel for one that does not read");

    // Each then asks for what it must not have, which ends its connection.
    let nothing = RemoteAddr { key: 3, addr: 0 };
    for (stream, endpoint) in &mut linked {
        stream.write_all(&frame(Frame::Read { from: nothing }, 8, 1)).unwrap();
        let reason = endpoint.wait_disconnected(SOON).unwrap();
        assert_eq!(reason, DisconnectReason::OperationFailed);
    }
    eventually("the kernel lets go of what they did not take", || untaken(port).is_empty());
    scene.check();
}

#[test]
fn what_peers_do_not_read_is_little_and_goes_with_their_connections() {
    stalled(20);
}

#[test]
#[ignore = "long: 300 peers"]
fn what_300_peers_do_not_read_is_little_and_goes_with_their_connections() {
    stalled(300);
}

/// A network of this thread and of those it starts. False where there can be none.
fn network_apart() -> bool {
    // SAFETY: the thread leaves a namespace, no memory is concerned.
    unsafe { libc::unshare(libc::CLONE_NEWNET) == 0 }
}

fn ip(words: &[&str]) {
    assert!(std::process::Command::new("ip").args(words).status().unwrap().success(), "{words:?}");
}

#[test]
fn one_that_takes_no_more_stays_as_long_as_its_host_answers() {
    // Not to take the network away from other tests.
    let apart = std::thread::spawn(|| {
        if !network_apart() {
            eprintln!("NOT RUN: a network of its own needs root");
            return;
        }
        ip(&["link", "set", "lo", "up"]);
        let server = Side::new();
        let listener = server.domain.listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let (mut stream, endpoint) = linked(&server, &listener, Some(INTERVAL));
        let region = server.domain.alloc(LEN as usize, Access::REMOTE_READ).unwrap();
        let from = RemoteAddr { key: region.remote().key(), addr: 0 };
        stream.write_all(&frame(Frame::Read { from }, LEN, 0)).unwrap();
        std::thread::sleep(6 * INTERVAL);
        assert_eq!(endpoint.state(), EndpointState::Connected, "its host is there");
        ip(&["link", "set", "lo", "down"]);
        let cut = Instant::now();
        // Where the kernel asks often, that is noticed in two intervals.
        let patience = if asks_often() { LINGER } else { 4 * INTERVAL };
        let reason = endpoint.wait_disconnected(Some(patience));
        if reason.is_err() && !asks_often() {
            eprintln!("NOT RUN: before Linux 6.15 it is noticed later that such a peer is lost");
            return;
        }
        assert_eq!(reason.unwrap(), DisconnectReason::PeerLost, "after {:?}", cut.elapsed());
    });
    apart.join().unwrap();
}

/// Whether the kernel can be set to ask a peer that takes no more at least so often.
fn asks_often() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 15)
}
