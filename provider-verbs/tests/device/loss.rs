//! The device goes away under a program that uses it.

use std::net::SocketAddr;
use std::process::{Child, Command};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use fabric::{
    Access, Capabilities, CompletionQueue, DatagramEndpoint, DisconnectReason, Domain, Endpoint,
    Error, Listener, Region, SharedReceiveQueue, Status,
};

use crate::calls::every_modify;
use crate::faults;
use crate::held::Held;
use crate::rig::{
    MUTE, Side, address, device_lost_events, end_of, has_strays, join, listen, open, take,
};
use crate::software::{DEVICE, in_child};

/// What the program does in a process of its own.
pub(crate) const ROLE: &str = "lose";
pub(crate) const REFUSING: &str = "lose one that refuses";
/// Within this everybody knows: long before a probe would notice anything.
const KNOWN: Duration = Duration::from_secs(20);
const LIVENESS: Duration = Duration::from_secs(60);

pub(crate) fn ends_everything() {
    // Twice, because the second device of the name is another one.
    for _ in 0..2 {
        in_child(ROLE, &[]).is_gone();
    }
}

/// Some drivers take a lost device away at once, with all that it could report.
pub(crate) fn ends_everything_silently() {
    in_child(ROLE, &[(MUTE, "1")]).is_gone();
}

/// One that is lost, and refuses to stop for a while.
pub(crate) fn is_believed_once_it_has_stopped() {
    in_child(REFUSING, &[]).is_gone();
}

/// Takes the device away. The command returns when no process has the device open any more.
fn delete() -> Child {
    Command::new("rdma").args(["link", "delete", DEVICE]).spawn().unwrap()
}

/// Does something that must not take long.
fn soon<T: Send>(what: &str, act: impl FnOnce() -> T + Send) -> T {
    let start = Instant::now();
    let (done, ended) = channel::<()>();
    std::thread::scope(|scope| {
        let alarm = scope.spawn(move || ended.recv_timeout(Duration::from_secs(20)));
        let result = act();
        drop(done);
        let in_time = alarm.join().unwrap() == Err(RecvTimeoutError::Disconnected);
        assert!(in_time, "{what} took {:?}", start.elapsed());
        println!("{what} took {:.2?}", start.elapsed());
        result
    })
}

fn is_lost<T>(what: &str, result: fabric::Result<T>) {
    let error = result.err();
    assert!(matches!(error, Some(Error::DeviceLost)), "{what}: {error:?}");
}

/// A shared receive queue, an endpoint that takes its receives from it, and the peer's.
struct Sharing {
    peer: Side,
    endpoint: Endpoint,
    receives: SharedReceiveQueue,
    queue: CompletionQueue,
}

impl Sharing {
    /// With three receives; a message has taken the first. `None` where the device has no such queues.
    fn new(domain: &Domain, listener: &Listener, room: &Region) -> Option<Self> {
        if !domain.info().capabilities.contains(Capabilities::SHARED_RECEIVES) {
            return None;
        }
        let queue = domain.completion_queue(1024).unwrap();
        let receives = domain.shared_receive_queue(16, &queue).unwrap();
        let endpoint = domain.endpoint().shared_receives(&receives).build(&queue).unwrap();
        let peer = Side::on(domain, LIVENESS);
        join(listener, &peer.endpoint, &endpoint);
        for context in 200..203 {
            receives.recv(room, context).unwrap();
        }
        peer.endpoint.inject(b"first", 0).unwrap();
        let first = take(&queue, 1)[0];
        assert_eq!((first.context, first.endpoint), (200, endpoint.id()));
        Some(Sharing { peer, endpoint, receives, queue })
    }

    /// The others were taken by none.
    fn ends(&self) {
        let left = take(&self.queue, 2);
        let mut contexts: Vec<_> = left.iter().map(|one| one.context).collect();
        contexts.sort_unstable();
        assert_eq!(contexts, [201, 202]);
        for one in left {
            assert_eq!((one.status, one.endpoint), (Status::Canceled, self.receives.id()));
        }
    }

    fn is_over(&self, room: &Region) {
        is_lost("shared receive", self.receives.recv(room, 0));
        assert!(self.queue.poll_one().unwrap().is_none());
        assert!(!has_strays(&self.queue), "{:?}", self.queue);
        assert_eq!(end_of(&self.endpoint, KNOWN), DisconnectReason::DeviceLost);
        assert_eq!(end_of(&self.peer.endpoint, KNOWN), DisconnectReason::DeviceLost);
    }
}

/// A datagram endpoint with three receives.
struct Datagrams {
    endpoint: DatagramEndpoint,
    queue: CompletionQueue,
}

impl Datagrams {
    fn new(domain: &Domain, room: &Region) -> Self {
        let queue = domain.completion_queue(1024).unwrap();
        let endpoint = domain.datagram_endpoint(&queue).unwrap();
        for context in 300..304 {
            endpoint.recv(room.slice(..64), context).unwrap();
        }
        let own = endpoint.resolve(&endpoint.address()).unwrap();
        endpoint.inject_to(&own, b"one", 299).unwrap();
        let mut came: Vec<_> = take(&queue, 2).iter().map(|one| one.context).collect();
        came.sort_unstable();
        assert_eq!(came, [299, 300]);
        Datagrams { endpoint, queue }
    }

    /// Sleeps until all that is left has ended.
    fn ends(&self) {
        let left = take(&self.queue, 3);
        assert!(left.iter().map(|one| one.context).eq(301..304), "{left:?}");
        assert!(left.iter().all(|one| one.status == Status::Canceled), "{left:?}");
    }

    fn is_over(&self, room: &Region) {
        is_lost("receive a datagram", self.endpoint.recv(room, 0));
        is_lost("resolve", self.endpoint.resolve(&self.endpoint.address()));
        assert!(self.queue.poll_one().unwrap().is_none());
        assert!(!has_strays(&self.queue), "{:?}", self.queue);
    }
}

pub(crate) fn lose() {
    let before = {
        let (a, b) = (Side::new(LIVENESS), Side::new(LIVENESS));
        join(&listen(&b.domain), &a.endpoint, &b.endpoint);
        drop((a, b));
        Held::settled()
    };
    // Both ends of a pair in one domain: else one end may hear from its peer, which heard before.
    let domain = open();
    let pair = || (Side::on(&domain, LIVENESS), Side::on(&domain, LIVENESS));
    let listener = listen(&domain);
    let (idle, busy) = (pair(), pair());
    join(&listener, &idle.0.endpoint, &idle.1.endpoint);
    join(&listener, &busy.0.endpoint, &busy.1.endpoint);
    let bare = open();
    let (bare_queue, bare_region) =
        (bare.completion_queue(64).unwrap(), bare.alloc(64, Access::ALL).unwrap());
    let unused = busy.1.domain.endpoint().build(&busy.1.queue).unwrap();
    let room = busy.0.domain.alloc(4096, Access::LOCAL_WRITE).unwrap();
    let there = busy.1.domain.alloc(4096, Access::ALL).unwrap();
    // Three receives at the far side; of the sends some wait for ever, and the writes behind them.
    for context in 0..3 {
        busy.1.endpoint.recv(&there, context).unwrap();
        busy.0.endpoint.recv(&room, 100 + context).unwrap();
    }
    for context in 0..6 {
        busy.0.endpoint.send(&room, context).unwrap();
        busy.0.endpoint.write(&room, there.remote().at(0), 10 + context).unwrap();
    }
    // Three sends and three writes pass.
    assert!(take(&busy.0.queue, 6).iter().all(|one| one.status == Status::Ok));
    assert!(take(&busy.1.queue, 3).iter().all(|one| one.status == Status::Ok));

    let sharing = Sharing::new(&domain, &listener, &there);
    let datagrams = Datagrams::new(&domain, &there);
    let sleeper = std::thread::scope(|scope| {
        // Somebody sleeps on a queue.
        let sleeper = scope.spawn(|| take(&busy.0.queue, 9));
        let other = scope.spawn(|| sharing.as_ref().map(Sharing::ends));
        let third = scope.spawn(|| datagrams.ends());
        std::thread::sleep(Duration::from_millis(200));
        let start = Instant::now();
        let mut command = delete();
        for (name, endpoint) in [
            ("idle", &idle.0.endpoint),
            ("its peer", &idle.1.endpoint),
            ("busy", &busy.0.endpoint),
            ("its peer", &busy.1.endpoint),
        ] {
            println!("{name}:");
            assert_eq!(end_of(endpoint, KNOWN), DisconnectReason::DeviceLost, "{name}");
        }
        println!("all knew after {:.2?}", start.elapsed());
        println!("the command has returned: {:?}", command.try_wait().unwrap());
        other.join().unwrap();
        third.join().unwrap();
        sleeper.join().unwrap()
    });
    if let Some(sharing) = &sharing {
        sharing.is_over(&there);
    }
    datagrams.is_over(&there);
    // In order: the sends and writes of the send queue, the receives.
    let contexts = |range: fn(u64) -> bool| -> Vec<u64> {
        sleeper.iter().map(|one| one.context).filter(|context| range(*context)).collect()
    };
    assert_eq!(contexts(|context| context < 100), [3, 13, 4, 14, 5, 15]);
    assert_eq!(contexts(|context| context >= 100), [100, 101, 102]);
    assert!(sleeper.iter().all(|one| one.status == Status::Canceled), "{sleeper:?}");

    for (name, domain) in [("with connections", &domain), ("without", &bare)] {
        let lost = device_lost_events(&domain.events(), Duration::from_millis(300));
        assert_eq!(lost, 1, "how often the domain heard: {name}");
        calls_are_lost(domain);
    }
    is_lost("make endpoint", bare.endpoint().build(&bare_queue));
    is_lost("accept", listener.accept(None));
    is_lost("connect", unused.connect(SocketAddr::new(address(&bare), 1), &[]));
    is_lost("receive", unused.recv(&there, 0));
    is_lost("send", busy.0.endpoint.send(&room, 0));
    is_lost("receive once connected", busy.0.endpoint.recv(&room, 0));
    for queue in [&idle.0.queue, &idle.1.queue, &busy.0.queue, &busy.1.queue, &bare_queue] {
        assert!(queue.poll_one().unwrap().is_none());
        assert!(!has_strays(queue), "{queue:?}");
    }
    costs_no_time();
    soon("dropping endpoints", || drop((idle, busy, unused, sharing, datagrams, listener, domain)));
    soon("dropping what is bare", || drop((bare_queue, bare_region, bare)));
    drop((room, there));
    before.is_all();
}

/// As long as the device may write to memory, nothing says that it is free.
pub(crate) fn lose_one_that_refuses() {
    let domain = open();
    let listener = listen(&domain);
    let (one, peer) = (Side::on(&domain, LIVENESS), Side::on(&domain, LIVENESS));
    join(&listener, &one.endpoint, &peer.endpoint);
    let room = domain.alloc(4096, Access::ALL).unwrap();
    for context in 0..2 {
        one.endpoint.recv(&room, context).unwrap();
    }
    let sharing = Sharing::new(&domain, &listener, &room);
    let datagrams = Datagrams::new(&domain, &room);
    faults::fail(&every_modify());
    let begun = Instant::now();
    let mut command = delete();
    assert_eq!(end_of(&one.endpoint, KNOWN), DisconnectReason::DeviceLost);
    faults::go_on(Duration::from_secs(1), 5);
    let shared = sharing.as_ref().map(|sharing| &sharing.queue);
    for queue in [&one.queue, &datagrams.queue].into_iter().chain(shared) {
        let early = queue.poll_one().unwrap();
        assert!(early.is_none(), "{early:?}");
    }
    let (refused, start) = (faults::stop(), Instant::now());
    let max = begun.elapsed().as_millis() as usize / 10;
    assert!((5..max).contains(&refused), "refused {refused} times, {max} at most");
    let ended = take(&one.queue, 2);
    assert!(
        ended
            .iter()
            .map(|one| (one.context, one.status))
            .eq([(0, Status::Canceled), (1, Status::Canceled)])
    );
    if let Some(sharing) = &sharing {
        sharing.ends();
    }
    datagrams.ends();
    println!("all had ended {:.2?} after the device stopped", start.elapsed());
    println!("the command has returned: {:?}", command.try_wait().unwrap());
    assert!(start.elapsed() < KNOWN);
}

fn calls_are_lost(domain: &Domain) {
    is_lost("make completion queue", domain.completion_queue(16));
    is_lost("register", domain.alloc(64, Access::ALL));
    is_lost("listen", domain.listen(SocketAddr::new(address(domain), 0)));
}

/// No thread of the library spins.
fn costs_no_time() {
    let used = || {
        // SAFETY: numbers; zero is a value of each.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: it is written.
        assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) }, 0);
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        time(usage.ru_utime) + time(usage.ru_stime)
    };
    let before = used();
    std::thread::sleep(Duration::from_secs(1));
    let spent = used() - before;
    assert!(spent < Duration::from_millis(300), "{spent:?} in a second");
}
