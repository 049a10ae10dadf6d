//! Processes that reach a listener and are no peers: each ends its own connection, and nothing else notices.

#![allow(clippy::unwrap_used)] // helpers of tests too

mod side;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fabric::{Endpoint, Error, Listener};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::SendFlags;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use side::Side;
use socket2::{Domain, SockAddr, Socket, Type};

const SOON: Option<Duration> = Some(Duration::from_secs(30));
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
    socket.set_read_timeout(Some(Duration::from_millis(4500))).unwrap();
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
    let rain = |stranger: &Socket, words: &[u8], file: OwnedFd| {
        side::say(stranger, words, Some(file.as_fd()), SendFlags::empty()).is_ok()
    };
    // The server may have closed one meanwhile, for its time is over.
    let came = strangers.iter().filter(|stranger| {
        rain(stranger, WORDS, file(RINGS, SEALS))
            && (0..10).all(|_| rain(stranger, b"x", file(1, SealFlags::empty())))
    });
    assert!(came.count() > 0, "it does not rain");
    scene.check();
    strangers.clear();
    // Other tests of this program have some, too, until they end.
    let until = std::time::Instant::now() + Duration::from_secs(60);
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
const LINGER: Duration = Duration::from_secs(60);

/// A socket that has sent what is never taken by its peer, and that.
fn slow_to_close() -> (Socket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = slow_to(listener.local_addr().unwrap());
    (socket, listener.accept().unwrap().0)
}

fn slow_to(sink: SocketAddr) -> Socket {
    let mut socket = Socket::from(TcpStream::connect(sink).unwrap());
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 1 << 16]).is_ok() {}
    socket.set_linger(Some(LINGER)).unwrap();
    socket
}

/// A user that needs no account.
const OTHER: u32 = 54321;
/// Set for the process that comes to it.
const COMES: &str = "TEST_COMES_TO";
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

/// Another of this program's processes, which has said this and what is behind it.
struct Process(Child, String);

impl Process {
    /// It runs this test, as the command has it.
    fn run(mut command: Command, test: &str, says: &str) -> std::io::Result<Self> {
        command.args([test, "--exact", "--nocapture"]).current_dir("/");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let said = lines.find_map(|line| Some(line.split_once(says)?.1.to_owned()));
        Ok(Process(child, said.unwrap()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A process that listens, which strangers come to while it is stopped: all copies of what they send are closed but its own. One
/// more is closed soon then.
fn stops_no_listener(strangers: impl FnOnce(SocketAddr) -> Vec<Socket>) {
    let mut listener = Command::new(std::env::current_exe().unwrap());
    listener.env(LISTENS, "");
    let listener = Process::run(listener, "listener", "listens at ").unwrap();
    let (pid, addr) = (Pid::from_child(&listener.0), listener.1.parse().unwrap());
    kill_process(pid, Signal::STOP).unwrap();
    waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
    let mut strangers = strangers(addr);
    strangers.push(named(addr, 3_001));
    (&strangers[strangers.len() - 1]).write_all(b"no words").unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    let begun = Instant::now();
    for stranger in &strangers {
        stranger.set_read_timeout(SOON).unwrap();
        assert!(is_closed(stranger), "after {:?}", begun.elapsed());
    }
    assert!(begun.elapsed() < LINGER / 2, "{:?}", begun.elapsed());
}

#[test]
fn descriptors_whose_close_sleeps_stop_no_listener() {
    let words: [&[u8]; 3] = [WORDS, b"fabric\0\x01", WORDS];
    let peers = words.map(|_| slow_to_close());
    let mut kept = Vec::new();
    stops_no_listener(|addr| {
        let each = words.into_iter().zip(peers).zip(3_010..);
        let strangers = each.map(|((words, (slow, peer)), port)| {
            kept.push(peer);
            let stranger = named(addr, port);
            say(&stranger, words, slow.as_fd());
            stranger
        });
        strangers.collect()
    });
}

/// Comes to the first address by a stranger's socket, with a descriptor that is not read for what is ahead of it; connected to the second.
#[test]
fn stranger_of_another_user() {
    let Ok(addrs) = std::env::var(COMES) else { return };
    let (to, sink) = addrs.split_once(' ').unwrap();
    let mut stranger = named(to.parse().unwrap(), 3_020);
    stranger.write_all(b"no words").unwrap();
    let slow = slow_to(sink.parse().unwrap());
    say(&stranger, b"x", slow.as_fd());
    drop(slow);
    println!("came ");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_socket_of_another_user_with_such_a_descriptor_stops_no_listener() {
    let sink = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut process = None;
    stops_no_listener(|addr| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.uid(OTHER).env(COMES, format!("{addr} {}", sink.local_addr().unwrap()));
        match Process::run(command, "stranger_of_another_user", "came ") {
            Ok(other) => process = Some(other),
            Err(error) => println!("not run: {error}"),
        }
        Vec::new()
    });
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
