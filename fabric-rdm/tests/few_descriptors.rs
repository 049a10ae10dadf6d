//! A process without descriptors for more connections: its endpoints wait for some, and take no peer for unreachable.
//!
//! One test: the limit is of the whole process.

#![cfg(not(miri))] // it has no limits to set
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fabric::{Access, Domain, Hints};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Completion, Endpoint, Kind, Peer, PostError, RdmAttr, Recv, Send};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What is slow has to come to an end; what is wrong does not.
const LONG: Duration = Duration::from_secs(120);

/// Counts what the library logs of attempts.
struct Lines;

static SAID: AtomicUsize = AtomicUsize::new(0);

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.target().starts_with("fabric_rdm") {
            SAID.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}

/// Leaves this process so many descriptors, until this is dropped.
struct Few(Rlimit);

impl Few {
    fn leave(free: usize) -> Self {
        let before = getrlimit(Resource::Nofile);
        let max = before.current.unwrap_or(1 << 20);
        // The limit is not of a count but of the numbers, and the lowest free one is always taken.
        let is_free = |fd: &u64| std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_err();
        let limit = (0..max).filter(is_free).nth(free).unwrap();
        let few = Rlimit { current: Some(limit), ..before };
        setrlimit(Resource::Nofile, few).unwrap();
        Few(before)
    }
}

impl Drop for Few {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.0).unwrap();
    }
}

fn endpoint(domain: &Domain, settings: impl FnOnce(&mut RdmAttr)) -> Endpoint {
    let mut attr = RdmAttr::default();
    (attr.slots, attr.slot_len, attr.connection_depth) = (32, 512, 16);
    settings(&mut attr);
    Endpoint::new(domain, &attr).unwrap()
}

fn domain() -> Domain {
    Domain::open(&Hints { provider: Some("tcp".into()), ..Hints::default() }).unwrap()
}

/// No descriptor at all: the peer is not unreachable, and the attempts are few. When there are some the message goes.
fn waits_for_descriptors() {
    let domain = domain();
    let a = endpoint(&domain, |attr| attr.timeouts.connect = Duration::from_millis(300));
    let b = endpoint(&domain, |_| ());
    let to_b = a.insert(b.address()).unwrap();
    b.insert(a.address()).unwrap();
    let inbox = domain.alloc(8, Access::LOCAL_WRITE).unwrap();
    b.post_recv(&Recv::new(Pattern::tagged(1), &inbox)).unwrap();
    let few = Few::leave(0);
    a.post_send(to_b, &Send::inject(b"at last").tag(1)).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(a.down(to_b).unwrap(), None, "{}", a.dump());
    drop(few);
    assert!(b.wait_one(Some(LONG)).unwrap().is_ok());
    assert!(a.wait_one(Some(LONG)).unwrap().is_ok());
}

/// Many endpoints, all to all, with far fewer descriptors than they have connections to make.
fn all_to_all(count: usize, free: usize) {
    struct Member {
        endpoint: Endpoint,
        peers: Vec<Peer>,
        sent: usize,
        ended: [usize; 2],
    }
    let domain = domain();
    let inbox = domain.alloc(8 * count * count, Access::LOCAL_WRITE).unwrap();
    let new = |_| Member {
        endpoint: endpoint(&domain, |_| ()),
        peers: Vec::new(),
        sent: 0,
        ended: [0, 0],
    };
    let mut members: Vec<_> = (0..count).map(new).collect();
    for to in 0..count {
        for from in 0..count {
            let peer = members[to].endpoint.insert(members[from].endpoint.address()).unwrap();
            members[to].peers.push(peer);
            let at = 8 * (to * count + from);
            let recv = Recv::new(Pattern::tagged(1).from(peer), inbox.slice(at..at + 8));
            members[to].endpoint.post_recv(&recv).unwrap();
        }
    }
    let few = Few::leave(free);
    let (begun, mut out) = (Instant::now(), [Completion::default(); 64]);
    while members.iter().any(|member| member.ended != [count, count]) {
        for (own, member) in members.iter_mut().enumerate() {
            while member.sent < count {
                let to = (own + member.sent) % count;
                let text = [own as u32, to as u32].map(u32::to_le_bytes).concat();
                match member.endpoint.post_send(member.peers[to], &Send::inject(&text).tag(1)) {
                    Ok(_) => member.sent += 1,
                    Err(PostError::Again(_)) => break,
                    Err(error) => panic!("{own} to {to}: {error}\n{}", member.endpoint.dump()),
                }
            }
            let taken = member.endpoint.poll(&mut out).unwrap();
            for done in &out[..taken] {
                assert!(done.is_ok(), "{own}: {done:?}\n{}", member.endpoint.dump());
                member.ended[usize::from(done.kind == Kind::Recv)] += 1;
            }
            assert!(begun.elapsed() < LONG, "{own}\n{}", member.endpoint.dump());
        }
    }
    drop(few);
    eprintln!("{} messages with {free} descriptors in {:?}", count * count, begun.elapsed());
    for (at, text) in (0..).zip(inbox.to_vec(..).unwrap().chunks_exact(8)) {
        let said = [at % count, at / count].map(|of| (of as u32).to_le_bytes()).concat();
        assert_eq!(text, said);
    }
}

#[test]
fn a_want_of_descriptors_is_waited_for() {
    static LINES: Lines = Lines;
    log::set_logger(&LINES).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    waits_for_descriptors();
    let said = || SAID.load(Ordering::Relaxed);
    assert!(said() < 10, "{} lines", said());
    for free in [4, 60] {
        all_to_all(24, free);
    }
    assert!(said() < 200, "{} lines", said());
}
