//! A peer in a process of its own, which is killed or stopped.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use fabric::{Access, DisconnectReason, Endpoint, EndpointState, Op, Status};

use crate::rig::{SOON, Side, count, end_of, ends_once, has_strays, listen, take};

const ROLE: &str = "FABRIC_TEST_PEER";
const ADDRESS: &str = "FABRIC_TEST_PEER_AT";
/// Within this a peer's death is noticed: long before a probe would notice it.
const DEATH: Duration = Duration::from_secs(20);
const LIVENESS: Duration = Duration::from_secs(60);
/// Receives that the peer posts.
const PEER_RECEIVES: usize = 4;

/// The peer's part, if this process is one.
pub(crate) fn play() -> Option<ExitCode> {
    let role = std::env::var(ROLE).ok()?;
    let address: SocketAddr = std::env::var(ADDRESS).unwrap().parse().unwrap();
    let side = Side::new(Duration::from_secs(10));
    let region = side.domain.alloc(4096, Access::LOCAL_WRITE).unwrap();
    for context in 0..PEER_RECEIVES {
        side.endpoint.recv(region.slice(..1024), context as u64).unwrap();
    }
    side.endpoint.connect(address, &[]).unwrap();
    side.endpoint.wait_connected(SOON).unwrap();
    println!("connected");
    std::io::stdout().flush().unwrap();
    if role == "busy" {
        loop {
            while side.endpoint.send(region.slice(1024..2048), 0).is_ok() {}
            while side.queue.poll_one().unwrap().is_some() {}
        }
    }
    loop {
        std::thread::park();
    }
}

/// A peer process; it dies with its owner.
pub(crate) struct Peer(Child);

impl Peer {
    /// Starts one, which is connected when this returns.
    pub(crate) fn start(role: &str, side: &Side) -> Self {
        let listener = listen(&side.domain);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(ROLE, role).env(ADDRESS, listener.local_addr().to_string());
        command.stdout(Stdio::piped());
        // SAFETY: one system call.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            })
        };
        let mut peer = Peer(command.spawn().unwrap());
        listener.accept(SOON).unwrap().accept(&side.endpoint, &[]).unwrap();
        side.endpoint.wait_connected(SOON).unwrap();
        let mut line = String::new();
        BufReader::new(peer.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "connected\n");
        peer
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: a child of this process that was not waited for.
        assert_eq!(unsafe { libc::kill(self.0.id() as i32, signal) }, 0);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn died(reason: DisconnectReason) {
    let expected = [DisconnectReason::Remote, DisconnectReason::PeerLost];
    assert!(expected.contains(&reason), "{reason}");
}

pub(crate) fn killed_idle() {
    let side = Side::new(LIVENESS);
    let peer = Peer::start("idle", &side);
    let region = side.domain.alloc(64, Access::LOCAL_WRITE).unwrap();
    side.endpoint.recv(&region, 7).unwrap();
    peer.signal(libc::SIGKILL);
    died(end_of(&side.endpoint, DEATH));
    let left = take(&side.queue, 1);
    assert_eq!((left[0].context, left[0].status), (7, Status::Canceled));
    ends_once(&side.domain.events(), side.endpoint.id());
    assert!(side.endpoint.recv(&region, 8).is_err(), "it is dead");
}

pub(crate) fn killed_busy() {
    for round in 0..5 {
        let side = Side::new(LIVENESS);
        let peer = Peer::start("busy", &side);
        let region = side.domain.alloc(64 << 10, Access::LOCAL_WRITE).unwrap();
        let (endpoint, queue) = (&side.endpoint, &side.queue);
        // More sends than the peer ever takes.
        const SENDS: usize = PEER_RECEIVES + 8;
        for context in 0..SENDS {
            endpoint.post(&Op::send(region.slice(..64)).context(context as u64)).unwrap();
        }
        let begun = Instant::now();
        let kill = begun + Duration::from_millis(200 + 70 * round);
        let mut killed = None;
        let (mut posted, mut sends, mut receives) = (0u64, Vec::new(), Vec::new());
        while endpoint.state() == EndpointState::Connected {
            while endpoint.recv(region.slice(1024..2048), 1000 + posted).is_ok() {
                posted += 1;
            }
            while let Some(one) = queue.poll_one().unwrap() {
                if one.context < 1000 { &mut sends } else { &mut receives }.push(one);
            }
            // It is busy, and has taken what it can.
            let at_work = sends.len() >= PEER_RECEIVES && !receives.is_empty();
            assert!(at_work || Some(begun.elapsed()) < SOON, "it does nothing");
            if killed.is_none() && at_work && Instant::now() >= kill {
                peer.signal(libc::SIGKILL);
                killed = Some(Instant::now());
            }
            assert!(killed.is_none_or(|at| at.elapsed() < DEATH), "noticed in time");
        }
        let noticed = killed.map(|at| at.elapsed());
        while sends.len() + receives.len() < SENDS + posted as usize {
            let one = queue.wait_one(SOON).unwrap();
            if one.context < 1000 { &mut sends } else { &mut receives }.push(one);
        }
        died(end_of(endpoint, DEATH));
        println!("noticed after {noticed:?}, {} messages", count(&receives, Status::Ok));
        assert!(count(&receives, Status::Ok) > 0, "it was busy");
        // Each once, in order, the good ones first.
        let order: Vec<u64> = sends.iter().map(|one| one.context).collect();
        assert_eq!(order, (0..SENDS as u64).collect::<Vec<_>>());
        let order: Vec<u64> = receives.iter().map(|one| one.context - 1000).collect();
        assert_eq!(order, (0..posted).collect::<Vec<_>>());
        assert!(sends[..PEER_RECEIVES].iter().all(|one| one.status == Status::Ok), "{sends:?}");
        for one in &sends[PEER_RECEIVES..] {
            assert!(matches!(one.status, Status::Canceled | Status::PeerLost), "{one:?}");
        }
        let ok = receives.iter().take_while(|one| one.status == Status::Ok).count();
        assert!(receives[ok..].iter().all(|one| one.status == Status::Canceled));
        assert_eq!(queue.poll_one().unwrap(), None);
        assert!(!has_strays(queue), "{queue:?}");
        ends_once(&side.domain.events(), endpoint.id());
    }
}

fn outlives(side: &Side, time: Duration) {
    let error = side.endpoint.wait_disconnected(Some(time)).unwrap_err();
    assert!(matches!(error, fabric::Error::TimedOut(_)), "{error}");
    assert_eq!(side.endpoint.state(), EndpointState::Connected);
}

fn send(endpoint: &Endpoint, region: &fabric::Region, context: u64) {
    endpoint.send(region, context).unwrap();
}

/// A process that does not run has a device that does.
pub(crate) fn stopped() {
    let side = Side::new(Duration::from_secs(1));
    let peer = Peer::start("idle", &side);
    let region = side.domain.alloc(64, Access::LOCAL_WRITE).unwrap();
    peer.signal(libc::SIGSTOP);
    outlives(&side, Duration::from_secs(5));
    // Its receives are taken while it is stopped; then one send waits.
    for context in 0..=PEER_RECEIVES {
        send(&side.endpoint, &region, context as u64);
    }
    assert_eq!(count(&take(&side.queue, PEER_RECEIVES), Status::Ok), PEER_RECEIVES);
    outlives(&side, Duration::from_secs(5));
    assert_eq!(side.queue.poll_one().unwrap(), None);
    peer.signal(libc::SIGCONT);
    outlives(&side, Duration::from_secs(1));
    peer.signal(libc::SIGKILL);
    died(end_of(&side.endpoint, DEATH));
    let last = take(&side.queue, 1);
    assert!(matches!(last[0].status, Status::Canceled | Status::PeerLost), "{last:?}");
}

pub(crate) fn takes_nothing() {
    let side = Side::new(Duration::from_secs(1));
    let _peer = Peer::start("idle", &side);
    let region = side.domain.alloc(64, Access::LOCAL_WRITE).unwrap();
    for context in 0..PEER_RECEIVES + 3 {
        send(&side.endpoint, &region, context as u64);
    }
    assert_eq!(count(&take(&side.queue, PEER_RECEIVES), Status::Ok), PEER_RECEIVES);
    outlives(&side, Duration::from_secs(8));
    assert_eq!(side.queue.poll_one().unwrap(), None);
}
