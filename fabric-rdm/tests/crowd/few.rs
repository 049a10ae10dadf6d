//! A process without descriptors for more connections: its endpoints wait for some, and take no peer for unreachable.
//!
//! Each of these is a process of its own: the limit is of the whole process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fabric::{Access, Domain, Op};
use fabric_exchange::Exchange;
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Address, Endpoint, Peer, RdmAttr, Recv, Send};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::all_to_all::{Members, Plan};
use crate::processes::{PATIENCE, Processes, open, variable};

/// A peer that could be asked is waited for so long.
const CONNECT: Duration = Duration::from_secs(3);
const FREE: &str = "FABRIC_RDM_FREE";

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

/// Two that know each other.
fn pair(domain: &Domain, settings: impl FnOnce(&mut RdmAttr)) -> (Endpoint, Endpoint, Peer) {
    let (a, b) = (endpoint(domain, settings), endpoint(domain, |_| ()));
    let to_b = a.insert(b.address()).unwrap();
    b.insert(a.address()).unwrap();
    (a, b, to_b)
}

/// A message of `a` comes to `b`, and is sent while `b` may still lack what it takes.
fn send_while((a, b, to_b): &(Endpoint, Endpoint, Peer), meanwhile: impl FnOnce()) {
    let inbox = b.domain().alloc(8, Access::LOCAL_WRITE).unwrap();
    b.post_recv(&Recv::new(Pattern::tagged(1), &inbox)).unwrap();
    a.post_send(*to_b, &Send::inject(b"at last").tag(1)).unwrap();
    meanwhile();
    for end in [b, a] {
        let done = end.wait_one(Some(2 * PATIENCE));
        assert!(
            done.as_ref().is_ok_and(|done| done.is_ok()),
            "{done:?}\n{}\n{}",
            a.dump(),
            b.dump()
        );
    }
}

/// An endpoint writes to itself, while it may still lack what that takes.
fn write_while(end: &Endpoint, meanwhile: impl FnOnce()) {
    let me = end.insert(end.address()).unwrap();
    let memory = end.domain().alloc(8, Access::ALL).unwrap();
    end.post(me, &Op::inject_write(b"8 bytes!", memory.remote().at(0))).unwrap();
    meanwhile();
    let done = end.wait_one(Some(2 * PATIENCE));
    assert!(done.as_ref().is_ok_and(|done| done.is_ok()), "{done:?}\n{}", end.dump());
    assert_eq!(memory.to_vec(..).unwrap(), b"8 bytes!");
}

/// No descriptor at all: the peer is not unreachable, and the attempts are few. When there are some the message goes.
fn none() {
    let pair = pair(&open("tcp"), |attr| attr.timeouts.connect = CONNECT);
    let few = Few::leave(0);
    send_while(&pair, || {
        std::thread::sleep(2 * CONNECT);
        assert_eq!(pair.0.down(pair.2).unwrap(), None, "{}", pair.0.dump());
        drop(few);
    });
    let few = Few::leave(0);
    write_while(&pair.0, || {
        std::thread::sleep(Duration::from_millis(1500));
        drop(few);
    });
}

/// Endpoints that sleep have connections that they do not use: they park them for others.
fn sleepers() {
    let domain = open("tcp");
    let asleep: Vec<_> = (0..4).map(|_| pair(&domain, |_| ())).collect();
    asleep.iter().for_each(|pair| send_while(pair, || ()));
    let awake = pair(&domain, |_| ());
    // Nothing is left to do, and nothing wakes them by itself.
    std::thread::sleep(Duration::from_millis(500));
    let few = Few::leave(0);
    send_while(&awake, || ());
    drop(few);
    drop((awake, asleep));
    // The same of one that wrote to itself.
    let (asleep, awake) = (endpoint(&domain, |_| ()), pair(&domain, |_| ()));
    write_while(&asleep, || ());
    std::thread::sleep(Duration::from_millis(500));
    let few = Few::leave(0);
    send_while(&awake, || ());
    drop(few);
}

/// Many endpoints, all to all, with far fewer descriptors than they have connections to make.
fn all_to_all(free: usize) {
    let plan = Plan { processes: 1, endpoints: 24, open: 256, bytes: 8 };
    let mut members = Members::new(&open("tcp"), plan, 0..plan.endpoints);
    let addresses: Vec<Address> = members.addresses().cloned().collect();
    members.meet(&addresses);
    let few = Few::leave(free);
    members.run();
    drop(few);
    members.check();
}

/// One of the processes. Says how many lines its library logged.
pub(crate) fn process(role: &str) -> fn(&Exchange) -> Vec<u64> {
    fn run(role: impl FnOnce()) -> Vec<u64> {
        static LINES: Lines = Lines;
        log::set_logger(&LINES).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
        role();
        vec![SAID.load(Ordering::Relaxed) as u64]
    }
    match role {
        "none" => |_| run(none),
        "sleepers" => |_| run(sleepers),
        _ => |_| run(|| all_to_all(variable(FREE, 0))),
    }
}

fn lines_of(role: &str, variables: &[(&'static str, usize)]) -> u64 {
    Processes::start(role, 1, 1, variables).outcomes()[0][0]
}

#[test]
fn a_want_of_descriptors_is_waited_for() {
    let lines = lines_of("none", &[]);
    assert!(lines < 10, "{lines} lines");
    for free in [4, 60] {
        let lines = lines_of("all to all", &[(FREE, free)]);
        assert!(lines < 200, "{lines} lines");
    }
}

#[test]
fn sleepers_give_up_descriptors() {
    let lines = lines_of("sleepers", &[]);
    assert!(lines < 10, "{lines} lines");
}
