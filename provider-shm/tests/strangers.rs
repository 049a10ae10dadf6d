//! Processes that reach a listener and are no peers: each ends its own connection, and nothing else notices.

#![allow(clippy::unwrap_used)] // helpers of tests too

mod side;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fabric::{Endpoint, Error, Listener};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::SendFlags;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use side::Side;
use socket2::{Domain, SockAddr, Socket, Type};

const SOON: Option<Duration> = Some(Duration::from_secs(10));
const RINGS: u64 = side::RINGS as u64;
/// Where the initiator's begins in it: behind half a page, the other ring, and seven words of each with lines of their own.
const FIRST: u64 = 2048 + (128 << 10) + 2 * 7 * 64;
/// What is said with the memory of rings.
const WORDS: &[u8] = b"fabric\0\x03";

/// A server with a peer.
struct Scene {
    server: Side,
    client: Side,
    listener: Listener,
    endpoint: Endpoint,
    _peer: Endpoint,
}

impl Scene {
    fn new() -> Self {
        let (server, client) = (Side::new(4096), Side::new(4096));
        let listener = server.domain.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let (endpoint, peer) = (client.endpoint(), server.endpoint());
        endpoint.connect(listener.local_addr(), &[]).unwrap();
        listener.accept(SOON).unwrap().accept(&peer, &[]).unwrap();
        endpoint.wait_connected(SOON).unwrap();
        Scene { server, client, listener, endpoint, _peer: peer }
    }

    fn addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// The peer still does its work, and one more gets in.
    fn check(&self) {
        let remote = self.server.region.remote();
        let target = self.client.region.slice(..8);
        self.endpoint.fetch_add(1u64, target, remote.at(0), 7).unwrap();
        assert!(self.client.queue.wait_one(SOON).unwrap().is_ok());
        let (one, other) = (self.client.endpoint(), self.server.endpoint());
        one.connect(self.addr(), b"a peer").unwrap();
        let mut request = self.listener.accept(SOON).unwrap();
        assert_eq!(request.private_data(), b"a peer");
        request.accept(&other, &[]).unwrap();
        one.wait_connected(SOON).unwrap();
    }

    fn stranger(&self, name: Option<&str>) -> Socket {
        stranger(self.addr(), name)
    }

    fn named(&self, port: u16) -> Socket {
        named(self.addr(), port)
    }
}

/// A socket with this name, connected to the listener there.
fn stranger(to: SocketAddr, name: Option<&str>) -> Socket {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    if let Some(name) = name {
        socket.bind(&SockAddr::unix(format!("\0{name}")).unwrap()).unwrap();
    }
    socket.connect(&SockAddr::unix(format!("\0fabric/{to}")).unwrap()).unwrap();
    // One that is closed at once is so before the time for a hello is over, 5 s.
    socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    socket
}

/// One that is called as a peer would be, but for the port: those of peers begin with 49152.
fn named(to: SocketAddr, port: u16) -> Socket {
    stranger(to, Some(&format!("fabric/127.0.0.1:{port}>{to}")))
}

fn is_closed(mut socket: &Socket) -> bool {
    match socket.read(&mut [0; 64]) {
        Ok(got) => got == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

fn say(socket: &Socket, words: &[u8], file: BorrowedFd<'_>) {
    side::say(socket, words, Some(file), SendFlags::empty()).unwrap();
}

fn file(len: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(c"a stranger's", flags).unwrap();
    rustix::fs::ftruncate(&file, len).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

#[test]
fn names_of_no_peer_are_closed() {
    let scene = Scene::new();
    let addr = scene.addr();
    // Not the address of a listener that it reached, not one of this host's, and none at all.
    for name in [
        None,
        Some("fabric/".to_owned()),
        Some(format!("fabric/127.0.0.1:1>127.0.0.1:{}", addr.port() ^ 1)),
        Some(format!("fabric/192.0.2.1:1>{addr}")),
        Some(format!("fabric/127.0.0.1>{addr}")),
        Some(format!("other/127.0.0.1:1>{addr}")),
    ] {
        assert!(is_closed(&scene.stranger(name.as_deref())), "{name:?}");
    }
    scene.check();
}

#[test]
fn what_is_no_memory_of_rings_is_closed() {
    let scene = Scene::new();
    let (pipe, _writer) = std::io::pipe().unwrap();
    let cases: [(&[u8], OwnedFd); 6] = [
        (b"fabric\0\x01", file(RINGS, SEALS)),
        (b"fabric\0", file(RINGS, SEALS)),
        (WORDS, file(RINGS + 4096, SEALS)),
        (WORDS, file(4096, SEALS)),
        (WORDS, file(RINGS, SealFlags::GROW)),
        (WORDS, pipe.into()),
    ];
    for (at, (words, file)) in cases.into_iter().enumerate() {
        let stranger = scene.named(1_000 + at as u16);
        say(&stranger, words, file.as_fd());
        assert!(is_closed(&stranger), "case {at}");
    }
    let mut without = scene.named(1_100);
    without.write_all(WORDS).unwrap();
    assert!(is_closed(&without));
    scene.check();
}

#[test]
fn a_ring_with_more_than_it_holds_ends_its_connection() {
    let scene = Scene::new();
    let file = file(RINGS, SEALS);
    // The mark of the first record that the initiator writes.
    rustix::io::pwrite(&file, &u32::MAX.to_ne_bytes(), FIRST).unwrap();
    let stranger = scene.named(1_200);
    say(&stranger, WORDS, file.as_fd());
    assert!(is_closed(&stranger));
    scene.check();
}

#[test]
fn silent_ones_and_descriptors_that_rain_keep_no_peer_out() {
    let scene = Scene::new();
    let before = descriptors();
    let mut strangers: Vec<_> = (0..200).map(|port| scene.named(2_000 + port)).collect();
    scene.check();
    // More descriptors than were asked for: with the first words, and later.
    for stranger in &strangers {
        say(stranger, WORDS, file(RINGS, SEALS).as_fd());
        for _ in 0..10 {
            say(stranger, b"x", file(1, SealFlags::empty()).as_fd());
        }
    }
    scene.check();
    strangers.clear();
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while descriptors() > before {
        assert!(std::time::Instant::now() < until, "{} descriptors, not {before}", descriptors());
        std::thread::sleep(Duration::from_millis(5));
    }
    scene.check();
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// How long the close of a socket waits for what it has sent.
const LINGER: Duration = Duration::from_secs(5);

/// A socket that has sent what is never taken by its peer, and that.
fn slow_to_close() -> (Socket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = Socket::from(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    let (peer, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 1 << 16]).is_ok() {}
    socket.set_linger(Some(LINGER)).unwrap();
    (socket, peer)
}

/// Set for the process that listens.
const LISTENS: &str = "TEST_LISTENS";

/// Listens, and waits to be killed.
#[test]
fn listener() {
    if std::env::var_os(LISTENS).is_some() {
        let scene = Scene::new();
        println!("listens at {}", scene.addr());
        std::thread::sleep(Duration::from_secs(60));
    }
}

#[test]
fn descriptors_whose_close_sleeps_stop_no_listener() {
    let mut listener = Command::new(std::env::current_exe().unwrap());
    listener.args(["listener", "--exact", "--nocapture"]).env(LISTENS, "").stdout(Stdio::piped());
    let mut listener = listener.spawn().unwrap();
    let mut lines = BufReader::new(listener.stdout.take().unwrap()).lines().map(Result::unwrap);
    let addr = lines.find_map(|line| Some(line.split_once("listens at ")?.1.parse().unwrap()));
    // While it is stopped all copies but its own are closed.
    let pid = Pid::from_child(&listener);
    kill_process(pid, Signal::STOP).unwrap();
    waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
    let words: [&[u8]; 3] = [WORDS, b"fabric\0\x01", WORDS];
    let strangers = words.map(|words| {
        let (slow, peer) = slow_to_close();
        let stranger = named(addr.unwrap(), peer.local_addr().unwrap().port());
        say(&stranger, words, slow.as_fd());
        (stranger, peer)
    });
    kill_process(pid, Signal::CONT).unwrap();
    let begun = Instant::now();
    assert!(strangers.iter().all(|(stranger, _)| is_closed(stranger)));
    assert!(begun.elapsed() < LINGER / 2, "{:?}", begun.elapsed());
    listener.kill().unwrap();
    listener.wait().unwrap();
}

#[test]
fn addresses_are_those_of_this_host_and_taken_once() {
    let scene = Scene::new();
    let taken = scene.server.domain.listen(scene.addr()).unwrap_err();
    assert!(matches!(taken, Error::AddrInUse(_)), "{taken}");
    let all = SocketAddr::new([0, 0, 0, 0].into(), scene.addr().port());
    let taken = scene.server.domain.listen(all).unwrap_err();
    assert!(matches!(taken, Error::AddrInUse(_)), "{taken}");
    // For documentation (RFC 5737).
    let foreign: SocketAddr = "192.0.2.1:5000".parse().unwrap();
    let away = scene.server.domain.listen(foreign).unwrap_err();
    assert!(matches!(away, Error::InvalidArgument(_)), "{away}");
    let new = || scene.client.domain.endpoint();
    for builder in [new(), new().source([127, 0, 0, 1].into())] {
        let endpoint = builder.build(&scene.client.queue).unwrap();
        let far = endpoint.connect(foreign, &[]).unwrap_err();
        assert!(matches!(far, Error::Unreachable(_)), "{far}");
    }
    scene.check();
}

#[test]
fn a_listener_for_all_addresses_is_reached_by_each() {
    let side = Side::new(4096);
    let listener = side.domain.listen("0.0.0.0:0".parse().unwrap()).unwrap();
    let port = listener.local_addr().port();
    for ip in ["127.0.0.1", "127.0.0.9"] {
        let (one, other) = (side.endpoint(), side.endpoint());
        one.connect(SocketAddr::new(ip.parse().unwrap(), port), &[]).unwrap();
        listener.accept(SOON).unwrap().accept(&other, &[]).unwrap();
        one.wait_connected(SOON).unwrap();
        assert_eq!(one.peer_addr(), other.local_addr());
        assert_eq!(one.local_addr(), other.peer_addr());
        assert_eq!(other.local_addr().unwrap().ip().to_string(), ip);
    }
}
