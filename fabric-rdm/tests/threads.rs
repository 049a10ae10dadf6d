//! One thread makes progress for all endpoints of a process where the application does not.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use std::sync::Mutex;
use std::time::{Duration, Instant};

use fabric::{Access, Domain, Hints};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Endpoint, Kind, RdmAttr, Recv, Send};

const MEMBERS: usize = 40;
const SOON: Option<Duration> = Some(Duration::from_secs(60));

/// The tests count threads of their process: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Waits until the process has so many: one has its name a little after its start, and is seen a little after its end.
fn has_threads(count: usize) -> bool {
    let until = Instant::now() + Duration::from_secs(60);
    while threads() != count && Instant::now() < until {
        std::thread::yield_now();
    }
    threads() == count
}

fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "fabric-rdm").count()
}

fn domain() -> Domain {
    let hints = Hints { provider: Some("tcp".into()), ..Hints::default() };
    Domain::open(&hints).unwrap()
}

fn endpoint(domain: &Domain) -> Endpoint {
    let mut attr = RdmAttr::default();
    (attr.slots, attr.slot_len) = (16, 512);
    Endpoint::new(domain, &attr).unwrap()
}

#[test]
fn one_for_all_as_long_as_there_is_an_endpoint() {
    let _alone = ALONE.lock().unwrap();
    assert!(has_threads(0));
    let domains = [domain(), domain()];
    for _ in 0..3 {
        let first = endpoint(&domains[0]);
        assert!(has_threads(1));
        let others: Vec<_> = (0..MEMBERS).map(|at| endpoint(&domains[at % 2])).collect();
        assert!(has_threads(1));
        drop(first);
        assert!(has_threads(1), "the others need it");
        drop(others);
        assert!(has_threads(0));
    }
}

#[test]
fn it_serves_all_that_nobody_polls() {
    let _alone = ALONE.lock().unwrap();
    let (domain, others) = (domain(), domain());
    let sender = endpoint(&domain);
    let members: Vec<_> = (0..MEMBERS).map(|_| endpoint(&others)).collect();
    let inbox = others.alloc(8 * MEMBERS, Access::LOCAL_WRITE).unwrap();
    for (at, member) in members.iter().enumerate() {
        member.insert(sender.address()).unwrap();
        let into = inbox.slice(8 * at..8 * at + 8);
        member.post_recv(&Recv::new(Pattern::tagged(1), into)).unwrap();
    }
    // Some go while others are served.
    let (leaving, staying) = members.split_at(MEMBERS / 4);
    for member in staying.iter().chain(leaving) {
        let peer = sender.insert(member.address()).unwrap();
        sender.post_send(peer, &Send::inject(&[7; 8]).tag(1).unsignaled()).unwrap();
    }
    let sent = sender.counter(Kind::Send);
    sent.wait_for(MEMBERS as u64, 0, SOON).unwrap();
    for member in staying {
        member.counter(Kind::Recv).wait_for(1, 0, SOON).unwrap();
    }
    assert_eq!(inbox.to_vec(8 * MEMBERS / 4..).unwrap(), [7; 8 * (MEMBERS - MEMBERS / 4)]);
}

#[test]
fn endpoints_come_and_go_beside_others_that_it_serves() {
    let _alone = ALONE.lock().unwrap();
    let domain = domain();
    let (a, b) = (endpoint(&domain), endpoint(&domain));
    let (to_b, inbox) =
        (a.insert(b.address()).unwrap(), domain.alloc(8, Access::LOCAL_WRITE).unwrap());
    b.insert(a.address()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                drop(endpoint(&domain));
            }
        });
        for round in 1..=200 {
            b.post_recv(&Recv::new(Pattern::tagged(1), &inbox).unsignaled()).unwrap();
            a.post_send(to_b, &Send::inject(&[1; 8]).tag(1).unsignaled()).unwrap();
            b.counter(Kind::Recv).wait_for(round, 0, SOON).unwrap();
        }
    });
}
