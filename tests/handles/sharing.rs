//! Handles shared by threads, and queues shared by endpoints.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fabric::{
    Access, Completion, CompletionQueue, Domain, Endpoint, EndpointId, Error, Event, EventQueue,
    Listener, Op, Region, Status,
};

use crate::rig::{Rig, connect, domain, rounds};

#[test]
fn every_handle_is_send_and_sync() {
    fn shared<T: Send + Sync>() {}
    shared::<Domain>();
    shared::<Region>();
    shared::<Endpoint>();
    shared::<CompletionQueue>();
    shared::<Listener>();
    shared::<EventQueue>();
    shared::<fabric::ConnectRequest>();
    shared::<Event>();
    shared::<Error>();
}

#[test]
fn a_completion_names_its_endpoint_on_a_shared_queue() {
    let (domain, _) = domain();
    let queue = domain.completion_queue(1024).unwrap();
    let region = domain.alloc(64, Access::ALL).unwrap();
    let make = || {
        let endpoint = domain.endpoint().send_depth(8).recv_depth(8).build(&queue).unwrap();
        connect(&endpoint);
        endpoint
    };
    let mut endpoints: Vec<_> = (0..20).map(|_| make()).collect();
    // Some places of the queue's table are of their second tenant.
    (0..20).step_by(3).for_each(|i| endpoints[i] = make());
    for context in 0..4u64 {
        for (i, endpoint) in endpoints.iter().enumerate() {
            endpoint.send(&region, context << 8 | i as u64).unwrap();
        }
    }
    let mut next: HashMap<EndpointId, u64> = HashMap::new();
    while let Some(completion) = queue.poll_one().unwrap() {
        let endpoint = &endpoints[completion.context as usize & 0xff];
        assert_eq!(completion.endpoint, endpoint.id());
        let next = next.entry(completion.endpoint).or_default();
        assert_eq!(completion.context >> 8, *next);
        *next += 1;
    }
    assert_eq!(next.len(), 20);
    assert!(next.values().all(|count| *count == 4));
}

/// Posts `each` operations from each of `posters` threads and polls from `pollers` threads, a few at a time;
/// gives what each poller got, in its order. Contexts are `poster << 32 | number`.
fn crowd(posters: u64, pollers: usize, each: u64, endpoints: usize) -> Vec<Vec<Completion>> {
    let rig = Rig::with(|b| b.send_depth(16).recv_depth(4));
    let mut more: Vec<Endpoint> = Vec::new();
    for _ in 1..endpoints {
        let endpoint =
            rig.domain.endpoint().send_depth(16).recv_depth(4).build(&rig.queue).unwrap();
        connect(&endpoint);
        more.push(endpoint);
    }
    let all: Vec<&Endpoint> = std::iter::once(&rig.endpoint).chain(&more).collect();
    let total = (posters * each) as usize;
    let taken = AtomicUsize::new(0);
    let lists = std::thread::scope(|scope| {
        for poster in 0..posters {
            let (endpoint, rig) = (all[poster as usize % endpoints], &rig);
            scope.spawn(move || {
                for number in 0..each {
                    let op = rig.write(poster << 32 | number);
                    while let Err(error) = endpoint.post(&op) {
                        assert!(matches!(error, Error::Again), "{error}");
                        std::thread::yield_now();
                    }
                }
            });
        }
        let poll = || {
            let mut list = Vec::new();
            let mut out = [Completion::default(); 3];
            while taken.load(Ordering::Relaxed) < total {
                let count = rig.queue.poll(&mut out).unwrap();
                list.extend_from_slice(&out[..count]);
                taken.fetch_add(count, Ordering::Relaxed);
                if count == 0 {
                    std::thread::yield_now();
                }
            }
            list
        };
        let pollers: Vec<_> = (0..pollers).map(|_| scope.spawn(poll)).collect();
        pollers.into_iter().map(|poller| poller.join().unwrap()).collect()
    });
    assert_eq!(rig.drain(), []);
    let counters = rig.domain.counters();
    assert_eq!((counters.posted_sends, counters.completed), (total as u64, total as u64));
    lists
}

#[test]
fn each_completion_goes_to_exactly_one_poller() {
    let each = rounds(20_000) as u64;
    for (posters, pollers, endpoints) in [(3, 3, 1), (1, 2, 1), (3, 2, 3)] {
        let lists = crowd(posters, pollers, each, endpoints);
        let mut all: Vec<_> = lists.iter().flatten().map(|c| c.context).collect();
        assert!(lists.iter().flatten().all(Completion::is_ok));
        all.sort_unstable();
        let expected = (0..posters).flat_map(|poster| (0..each).map(move |n| poster << 32 | n));
        assert!(all.into_iter().eq(expected));
    }
}

#[test]
fn each_thread_sees_its_own_order() {
    let each = rounds(20_000) as u64;
    for list in crowd(3, 1, each, 1) {
        let mut next = [0; 3];
        for completion in list {
            let (poster, number) = (completion.context >> 32, completion.context & 0xffff_ffff);
            assert_eq!(number, next[poster as usize]);
            next[poster as usize] += 1;
        }
        assert_eq!(next, [each; 3]);
    }
}

/// What one poller gets, it gets in order, whatever the others take in between.
#[test]
fn each_poller_sees_an_increasing_order() {
    for list in crowd(1, 3, rounds(20_000) as u64, 1) {
        assert!(list.is_sorted_by_key(|completion| completion.context));
    }
}

#[test]
fn both_sides_at_once_with_a_queue_for_each() {
    let (domain, control) = domain();
    let sends = domain.completion_queue(64).unwrap();
    let recvs = domain.completion_queue(64).unwrap();
    let endpoint =
        domain.endpoint().send_depth(8).recv_depth(8).build_with(&sends, &recvs).unwrap();
    connect(&endpoint);
    let link = control.link(endpoint.id());
    let region = domain.alloc(64, Access::ALL).unwrap();
    let count = rounds(50_000) as u64;
    let again = |post: &dyn Fn() -> fabric::Result<()>| {
        while post().is_err() {
            std::thread::yield_now();
        }
    };
    let take_all = |queue: &CompletionQueue| {
        for context in 0..count {
            let completion = loop {
                match queue.poll_one().unwrap() {
                    Some(completion) => break completion,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!((completion.context, completion.is_ok()), (context, true));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| (0..count).for_each(|context| again(&|| endpoint.send(&region, context))));
        scope.spawn(|| {
            for context in 0..count {
                again(&|| endpoint.recv(&region, context));
                assert!(link.bring(8, None));
            }
        });
        scope.spawn(|| take_all(&sends));
        take_all(&recvs);
    });
    // Two threads counted completions of one endpoint at the same time.
    let counters = endpoint.counters();
    assert_eq!((counters.completed, counters.received), (2 * count, count));
    assert_eq!(counters.received_bytes, 8 * count);
}

#[test]
fn endpoints_come_and_go_while_others_work() {
    let rig = Rig::with(|b| b.send_depth(8).recv_depth(8));
    let done = AtomicBool::new(false);
    let canceled = AtomicUsize::new(0);
    let count = rounds(2_000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut out = [Completion::default(); 8];
            let mut next = 0;
            loop {
                let over = done.load(Ordering::Acquire);
                let taken = rig.queue.poll(&mut out).unwrap();
                for completion in &out[..taken] {
                    if completion.endpoint == rig.endpoint.id() {
                        assert_eq!((completion.context, completion.is_ok()), (next, true));
                        next += 1;
                    } else {
                        assert_eq!(completion.status, Status::Canceled);
                        canceled.fetch_add(1, Ordering::Relaxed);
                    }
                }
                if over && taken == 0 {
                    break;
                }
            }
        });
        scope.spawn(|| {
            for _ in 0..count {
                let region = rig.domain.alloc(64, Access::ALL).unwrap();
                let endpoint = loop {
                    match rig.domain.endpoint().send_depth(4).recv_depth(4).build(&rig.queue) {
                        Ok(endpoint) => break endpoint,
                        // No room until the poller has taken more.
                        Err(_) => std::thread::yield_now(),
                    }
                };
                connect(&endpoint);
                rig.control.link(endpoint.id()).hold();
                endpoint.read(&region, rig.at(0), 1).unwrap();
                endpoint.recv(&region, 2).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        let mut context = 0;
        while !done.load(Ordering::Acquire) {
            let op = Op::write(rig.region.slice(..8), rig.at(0)).context(context);
            match rig.endpoint.post(&op) {
                Ok(()) => context += 1,
                Err(_) => std::thread::yield_now(),
            }
        }
    });
    let late = rig.drain().into_iter().filter(|(_, status)| *status == Status::Canceled).count();
    assert_eq!(canceled.into_inner() + late, 2 * count);
    assert_eq!((rig.control.endpoints(), rig.control.registrations()), (1, 1));
}
