//! A hostile process that is not trusted: it is a peer as far as its library makes it one, and writes to its rings and its
//! sockets whatever it likes. It ends its own connections, reads and changes nothing, and other peers do not notice.

#![allow(clippy::unwrap_used)] // helpers of tests too

mod side;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fabric::{Access, Catalog, Choice, Completion, Endpoint, Hints, RemoteRegion};
use fabric_util::splitmix::SplitMix64;
use provider_shm::ShmProvider;
use rustix::mm::MremapFlags;
use rustix::net::SendFlags;
use side::{RINGS, Side};

const SOON: Option<Duration> = Some(Duration::from_secs(20));
/// The address of the listener, for the hostile process, and how many connections it breaks.
const TO: &str = "TEST_CONNECT_TO";
const ROUNDS: &str = "FABRIC_SHM_HOSTILE_ROUNDS";
/// A user that needs no account.
const OTHER: u32 = 54321;

/// The hostile process.
#[test]
fn hostile() {
    let Ok(to) = std::env::var(TO) else { return };
    let rounds: u64 = std::env::var(ROUNDS).unwrap().parse().unwrap();
    let side = Side::new(1 << 16);
    let to = to.parse().unwrap();
    for round in 0..rounds {
        let before = (rings(), sockets());
        let endpoint = side.endpoint();
        (0..4).for_each(|at| endpoint.recv(side.region.slice(..256), at).unwrap());
        endpoint.connect(to, &[]).unwrap();
        let Ok(said) = endpoint.wait_connected(SOON) else { continue };
        let rings = rings().difference(&before.0).copied().next();
        let socket = sockets().difference(&before.1).copied().next();
        let (Some(rings), Some(socket)) = (rings, socket) else { continue };
        let rings = again(rings);
        let remote = RemoteRegion::from_bytes(&said).unwrap();
        let mut numbers = SplitMix64::new(round);
        for _ in 0..200 {
            misbehave(&mut numbers, rings, socket);
            behave(&mut numbers, &side, &endpoint, &remote);
        }
        // SAFETY: the mapping that `again` made, which nothing else uses.
        unsafe { rustix::mm::munmap(rings.cast(), RINGS) }.unwrap();
    }
}

/// Maps the same rings once more, for longer than the connection lives.
fn again(rings: usize) -> *mut u32 {
    // SAFETY: a length of 0 leaves the mapping, which is shared, as it is, and makes another one (mremap(2)). The connection is
    // new, so it has its rings.
    unsafe { rustix::mm::mremap(rings as *mut _, 0, RINGS, MremapFlags::MAYMOVE) }.unwrap().cast()
}

/// Changes words of the rings, mostly few, and says things by the socket.
fn misbehave(numbers: &mut SplitMix64, rings: *mut u32, socket: RawFd) {
    for _ in 0..[0, 1, 1, 2, 300][numbers.below(5)] {
        let word = match numbers.below(3) {
            // What both ends say of the rings is in the page in the middle, and so are their beginnings.
            0 | 1 => (128 << 10) / 4 + numbers.below(1024),
            _ => numbers.below(RINGS / 4),
        };
        // SAFETY: an aligned word of the mapping that `again` made.
        let word = unsafe { AtomicU32::from_ptr(rings.add(word)) };
        let value = match numbers.below(3) {
            0 => word.load(Ordering::Relaxed) ^ 1 << numbers.below(32),
            1 => numbers.below(1 << 18) as u32,
            _ => numbers.next_u64() as u32,
        };
        word.store(value, Ordering::Relaxed);
    }
    if numbers.below(8) == 0 {
        // SAFETY: of an endpoint that lives; should it be closed by now, another of this process's takes the bytes.
        let socket = unsafe { BorrowedFd::borrow_raw(socket) };
        let file = std::fs::File::open("/dev/zero").unwrap();
        let file = (numbers.below(2) == 0).then(|| file.as_fd());
        let bytes = numbers.next_u64().to_ne_bytes();
        let _ = side::say(socket, &bytes, file, SendFlags::DONTWAIT);
    }
}

/// What a peer does; it need not succeed.
fn behave(numbers: &mut SplitMix64, side: &Side, endpoint: &Endpoint, remote: &RemoteRegion) {
    let len = 1 + numbers.below(3000);
    let bytes = side.region.slice(..len);
    let _ = match numbers.below(5) {
        0 | 1 => endpoint.send(side.region.slice(..len.min(256)), 0),
        2 => endpoint.write(bytes, remote.at(0), 0),
        3 => endpoint.read(bytes, remote.at(0), 0),
        _ => endpoint.fetch_add(1_u64, side.region.slice(..8), remote.at(8), 0),
    };
    let mut done = [Completion::default(); 16];
    let _ = side.queue.poll(&mut done);
}

/// Where this process has rings.
fn rings() -> BTreeSet<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|line| line.contains("memfd:fabric")).filter_map(|line| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        let (from, to) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16));
        Some((from.ok()?, to.ok()?))
    });
    mapped.filter(|(from, to)| to - from == RINGS).map(|(from, _)| from).collect()
}

fn sockets() -> BTreeSet<RawFd> {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let sockets = all.filter(|entry| {
        std::fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
    });
    sockets.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A server, a peer that behaves, and what no other may reach.
struct Scene {
    server: Side,
    client: Side,
    endpoint: Endpoint,
    _peer: Endpoint,
    counted: u64,
}

impl Scene {
    fn new(trust: &str) -> (Self, fabric::Listener) {
        let provider = fabric::provider::Provider::configure(&ShmProvider::new(), "trust", trust);
        let catalog = Catalog::empty().add(provider.unwrap()).unwrap();
        let domain = catalog.open_with(&Choice::Auto, &Hints::default()).unwrap();
        let queue = domain.completion_queue(1 << 16).unwrap();
        let region = domain.alloc(4096, Access::ALL).unwrap();
        let (server, client) = (Side { domain, queue, region }, Side::new(64));
        let listener = server.domain.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let (endpoint, peer) = (client.endpoint(), server.endpoint());
        endpoint.connect(listener.local_addr(), &[]).unwrap();
        listener.accept(SOON).unwrap().accept(&peer, &[]).unwrap();
        endpoint.wait_connected(SOON).unwrap();
        server.region.fill(7).unwrap();
        server.region.put(0, &0_u64).unwrap();
        (Scene { server, client, endpoint, _peer: peer, counted: 0 }, listener)
    }

    /// The peer's work is done, and nothing else is in its memory.
    fn check(&mut self) {
        let (remote, target) = (self.server.region.remote(), self.client.region.slice(..8));
        self.endpoint.fetch_add(1_u64, target, remote.at(0), 7).unwrap();
        assert!(self.client.queue.wait_one(SOON).unwrap().is_ok());
        assert_eq!(self.client.region.get::<u64>(0).unwrap(), self.counted);
        self.counted += 1;
        assert!(self.server.region.to_vec(8..).unwrap().iter().all(|&byte| byte == 7));
    }
}

fn start(mut command: Command, to: SocketAddr, rounds: u64) -> Option<Child> {
    command.args(["hostile", "--exact", "--nocapture"]).current_dir("/");
    command.env(TO, to.to_string()).env(ROUNDS, rounds.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().inspect_err(|error| println!("not run: {error}")).ok()
}

/// Serves the hostile process until it has ended; says how many of its connections were made.
fn outlive(command: impl Fn() -> Command, trust: &str) -> u64 {
    let rounds = std::env::var(ROUNDS).map_or(200, |rounds| rounds.parse().unwrap());
    let (mut scene, listener) = Scene::new(trust);
    let open = scene.server.domain.alloc(4096, Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap();
    open.fill(9).unwrap();
    let inbox = scene.server.domain.alloc(4096, Access::LOCAL_WRITE).unwrap();
    let Some(mut hostile) = start(command(), listener.local_addr(), rounds) else { return 0 };
    let (mut ends, mut made) = (Vec::new(), 0);
    let mut done = [Completion::default(); 64];
    let deadline = Instant::now() + Duration::from_secs(60 + 2 * rounds);
    while hostile.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the hostile process hangs, after {made} connections");
        if let Ok(mut request) = listener.accept(Some(Duration::from_millis(5))) {
            let end = scene.server.endpoint();
            (0..16).for_each(|at| end.recv(inbox.slice(..256), at).unwrap());
            if request.accept(&end, &open.remote().to_bytes()).is_ok() {
                made += 1;
                ends.push(end);
            }
            // What the application has forgotten is closed.
            if ends.len() > 8 {
                ends.remove(0);
            }
        }
        while scene.server.queue.poll(&mut done).unwrap() > 0 {}
        scene.check();
        assert!(open.to_vec(..).unwrap().iter().all(|&byte| byte == 9));
    }
    drop(ends);
    scene.check();
    // It was at work, and its own library outlived that too.
    assert!(hostile.wait().unwrap().success());
    let noticed = scene.server.domain.counters().provider.protocol_errors;
    println!("{made} connections of a hostile process, {noticed} of them ended as broken");
    assert!(made < 10 || noticed > made / 10, "{noticed} of {made}");
    made
}

#[test]
fn a_hostile_process_of_another_user_ends_its_own_connections_alone() {
    let made = outlive(
        || {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.uid(OTHER);
            command
        },
        "user",
    );
    assert!(made > 10 || made == 0, "{made} connections");
}

#[test]
fn so_does_one_of_the_same_user_where_none_is_trusted() {
    let made = outlive(|| Command::new(std::env::current_exe().unwrap()), "none");
    assert!(made > 10, "{made} connections");
}
