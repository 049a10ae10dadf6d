//! Sleeping until something completes: `wait`, and `arm` with the descriptor.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use fabric::{Armed, Completion, CompletionQueue, Error, Status};
use fabric_util::wakeup::wait_readable;

use crate::rig::{Rig, drain, rounds};

const SOON: Duration = Duration::from_secs(30);

fn readable(queue: &CompletionQueue) -> bool {
    wait_readable(queue.as_fd(), Some(Instant::now())).unwrap()
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn an_armed_descriptor_becomes_readable_with_the_next_completion() {
    let rig = Rig::new();
    rig.link.hold();
    rig.endpoint.post(&rig.write(1)).unwrap();
    assert_eq!(rig.queue.arm().unwrap(), Armed::Waiting);
    assert!(!readable(&rig.queue));
    rig.link.release(1);
    assert!(readable(&rig.queue));
    assert_eq!(rig.drain(), [(1, Status::Ok)]);
    assert_eq!(rig.queue.arm().unwrap(), Armed::Waiting);
    assert!(!readable(&rig.queue), "arming clears it");
}

#[test]
fn arming_says_ready_while_completions_wait() {
    let rig = Rig::with(|b| b.send_depth(1));
    rig.endpoint.post(&rig.write(1)).unwrap();
    assert_eq!(rig.queue.arm().unwrap(), Armed::Ready);
    // Reaped by a full post, it waits above the provider.
    assert!(matches!(rig.endpoint.post(&rig.write(2)), Err(Error::Again)));
    assert_eq!(rig.queue.arm().unwrap(), Armed::Ready);
    assert_eq!(rig.drain(), [(1, Status::Ok)]);
    assert_eq!(rig.queue.arm().unwrap(), Armed::Waiting);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn wait_times_out_on_time() {
    let rig = Rig::new();
    for wait in [Duration::ZERO, Duration::from_micros(300), Duration::from_millis(30)] {
        // Others may have the processors at one time, and not at every time.
        let on_time = (0..10).any(|_| {
            let start = Instant::now();
            assert!(matches!(rig.queue.wait_one(Some(wait)), Err(Error::TimedOut(_))));
            let took = start.elapsed();
            assert!(took >= wait, "{wait:?} took {took:?}");
            took < wait + Duration::from_secs(1)
        });
        assert!(on_time, "{wait:?} takes long");
    }
}

#[test]
fn wait_takes_what_is_there_without_sleeping() {
    let rig = Rig::new();
    (0..3).for_each(|context| rig.endpoint.post(&rig.write(context)).unwrap());
    let mut out = [Completion::default(); 2];
    assert_eq!(rig.queue.wait(&mut out, None).unwrap(), 2);
    assert_eq!(rig.queue.wait_one(Some(Duration::ZERO)).unwrap().context, 2);
    assert!(matches!(rig.queue.wait(&mut [], None), Err(Error::InvalidArgument(_))));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn wait_sleeps_until_a_completion_comes() {
    let rig = Rig::new();
    rig.link.hold();
    for context in 0..rounds(200) as u64 {
        rig.endpoint.post(&rig.write(context)).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| rig.queue.wait_one(Some(SOON)));
            rig.link.release(1);
            assert_eq!(waiter.join().unwrap().unwrap().context, context);
        });
    }
}

/// Many sleepers and few wake-ups: the thread that is woken hands on, so that none sleeps beside a completion.
#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn each_of_many_sleepers_gets_its_completion() {
    let rig = Rig::with(|b| b.send_depth(64));
    rig.link.hold();
    for _ in 0..rounds(200) {
        (0..8).for_each(|context| rig.endpoint.post(&rig.write(context)).unwrap());
        let mut reported: Vec<_> = std::thread::scope(|scope| {
            let wait = || rig.queue.wait_one(Some(SOON)).unwrap().context;
            let waiters: Vec<_> = (0..8).map(|_| scope.spawn(wait)).collect();
            rig.link.release(3);
            std::thread::yield_now();
            rig.link.release(5);
            waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect()
        });
        reported.sort_unstable();
        assert_eq!(reported, (0..8).collect::<Vec<_>>());
    }
}

/// An event loop has armed and is about to sleep; another thread's `wait` arms too, which clears the descriptor
/// just after the completions had set it, and takes only one of them.
#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn wait_does_not_eat_the_wakeup_of_an_event_loop() {
    let rig = Rig::new();
    rig.link.hold();
    (0..2).for_each(|context| rig.endpoint.post(&rig.write(context)).unwrap());
    assert_eq!(rig.queue.arm().unwrap(), Armed::Waiting);
    let link = rig.link.clone();
    rig.link.on_arm(move || link.release(2));
    assert_eq!(rig.queue.wait_one(Some(SOON)).unwrap().context, 0);
    assert!(readable(&rig.queue), "one completion waits, and its event loop sleeps");
    assert_eq!(drain(&rig.queue), [(1, Status::Ok)]);
}

/// The same, when the `wait` takes everything there is: the event loop is armed for what comes later.
#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn wait_does_not_disarm_an_event_loop() {
    let rig = Rig::new();
    rig.link.hold();
    (0..2).for_each(|context| rig.endpoint.post(&rig.write(context)).unwrap());
    assert_eq!(rig.queue.arm().unwrap(), Armed::Waiting);
    let link = rig.link.clone();
    rig.link.on_arm(move || link.release(1));
    assert_eq!(rig.queue.wait_one(Some(SOON)).unwrap().context, 0);
    rig.link.release(1);
    assert!(readable(&rig.queue), "one completion waits, and its event loop sleeps");
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn shutdown_does_not_eat_the_wakeup_of_an_event_loop() {
    for in_time in [true, false] {
        let rig = Rig::new();
        rig.link.hold();
        rig.endpoint.post(&rig.write(1)).unwrap();
        assert_eq!(rig.queue.arm().unwrap(), Armed::Waiting);
        let link = rig.link.clone();
        if in_time {
            rig.link.on_arm(move || link.release(1));
            rig.endpoint.shutdown(SOON).unwrap();
        } else {
            assert!(matches!(rig.endpoint.shutdown(Duration::ZERO), Err(Error::TimedOut(_))));
            rig.link.release(1);
        }
        assert!(readable(&rig.queue));
        assert_eq!(rig.drain(), [(1, Status::Ok)]);
    }
}
