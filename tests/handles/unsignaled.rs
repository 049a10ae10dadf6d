//! Unsignaled operations: no completion on success, one on failure, and never a queue that is stuck.

use std::time::{Duration, Instant};

use fabric::{Access, DisconnectReason, Error, Op, Status};

use crate::rig::{Rig, connect, rounds, run};

#[test]
fn success_has_no_completion() {
    let rig = Rig::new();
    rig.endpoint.post(&rig.write(1).unsignaled()).unwrap();
    rig.endpoint.post(&rig.write(2)).unwrap();
    rig.endpoint.post(&rig.write(3).unsignaled()).unwrap();
    assert_eq!(rig.drain(), [(2, Status::Ok)]);
}

#[test]
fn a_queue_that_nobody_polls_takes_any_number() {
    for depth in if cfg!(miri) { vec![1, 5] } else { vec![1, 2, 3, 4, 7, 8, 128, 300] } {
        let rig = Rig::with(|b| b.send_depth(depth));
        for context in 0..rounds(100_000) {
            rig.endpoint.post(&rig.write(context as u64).unsignaled()).unwrap();
        }
        assert_eq!(rig.drain(), [], "depth {depth}");
    }
}

#[test]
fn batches_that_nobody_polls_take_any_number() {
    let rig = Rig::with(|b| b.send_depth(64));
    let ops = [rig.write(1).unsignaled(); 24];
    for _ in 0..rounds(4_000) {
        rig.endpoint.post_batch(&ops).unwrap();
    }
    assert_eq!(rig.drain(), []);
}

#[test]
fn a_queue_is_not_stuck_by_a_provider_that_takes_part_of_each_batch() {
    let rig = Rig::with(|b| b.send_depth(16));
    rig.link.take_up_to(1);
    let ops = [rig.write(1).unsignaled(); 2];
    for _ in 0..rounds(10_000) {
        assert_eq!(rig.endpoint.post_batch(&ops).unwrap_err().posted, 1);
    }
    assert_eq!(rig.drain(), []);
}

#[test]
fn failure_has_a_completion() {
    let rig = Rig::new();
    rig.link.hold();
    (0..3).for_each(|context| rig.endpoint.post(&rig.write(context).unsignaled()).unwrap());
    rig.link.release(1);
    rig.link.fail_next(Status::RemoteAccess);
    rig.link.release(1);
    assert_eq!(rig.drain(), [(1, Status::RemoteAccess), (2, Status::Canceled)]);
}

#[test]
fn an_operation_that_was_signaled_inside_reports_its_failure() {
    // With a depth of 1 each is signaled inside.
    let rig = Rig::with(|b| b.send_depth(1));
    rig.endpoint.post(&rig.write(1).unsignaled()).unwrap();
    rig.link.fail_next(Status::PeerLost);
    rig.endpoint.post(&rig.write(2).unsignaled()).unwrap();
    assert_eq!(rig.drain(), [(2, Status::PeerLost)]);
}

#[test]
fn they_count_against_the_depth_until_known_to_be_done() {
    let rig = Rig::with(|b| b.send_depth(8));
    rig.link.hold();
    (0..8).for_each(|context| rig.endpoint.post(&rig.write(context).unsignaled()).unwrap());
    assert!(matches!(rig.endpoint.post(&rig.write(9)), Err(Error::Again)));
    rig.link.release(8);
    rig.endpoint.post(&rig.write(10)).unwrap();
    rig.link.release(1);
    assert_eq!(rig.drain(), [(10, Status::Ok)]);
}

#[test]
fn the_end_of_the_connection_cancels_them_one_by_one() {
    let rig = Rig::new();
    rig.link.hold();
    (0..5).for_each(|context| rig.endpoint.post(&rig.write(context).unsignaled()).unwrap());
    rig.link.lose(DisconnectReason::PeerLost);
    assert_eq!(rig.drain(), run(0, 5, Status::Canceled));
}

#[test]
fn their_regions_are_free_once_known_to_be_done() {
    let rig = Rig::new();
    rig.link.hold();
    rig.endpoint.post(&rig.write(1).unsignaled()).unwrap();
    assert!(matches!(rig.region.close(), Err(Error::Busy)));
    rig.link.release(1);
    // No thread polls, and none posts.
    rig.region.close().unwrap();
    assert_eq!(rig.drain(), []);
}

#[test]
fn a_region_that_is_closed_behind_them_is_free_at_once_if_they_are_done() {
    let rig = Rig::new();
    for count in 0..5 {
        let region = rig.domain.alloc(64, Access::ALL).unwrap();
        for _ in 0..count {
            let read = Op::read(&region, region.remote().at(0)).unsignaled();
            rig.endpoint.post(&read).unwrap();
        }
        region.close().unwrap();
    }
    assert_eq!(rig.drain(), []);
}

/// Waits until only the rig's own region is registered.
fn only_the_rigs(rig: &Rig) {
    let until = Instant::now() + Duration::from_secs(20);
    while rig.control.registrations() > 1 {
        assert!(Instant::now() < until, "a dropped region stays open");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_region_that_is_dropped_behind_them_goes_without_the_applications_help() {
    let rig = Rig::new();
    rig.link.hold();
    let region = rig.domain.alloc(64, Access::ALL).unwrap();
    for _ in 0..2 {
        rig.endpoint.post(&Op::read(&region, region.remote().at(0)).unsignaled()).unwrap();
    }
    drop(region);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(rig.control.registrations(), 2, "they are in flight");
    rig.link.release(2);
    only_the_rigs(&rig);
    assert_eq!(rig.drain(), []);
}

/// It was an operation of an endpoint that went as well: others have no place of their depth taken for it.
#[test]
fn a_dropped_region_that_is_gone_asks_nothing_of_others() {
    let rig = Rig::with(|b| b.send_depth(8));
    let other = rig.domain.endpoint().build(&rig.queue).unwrap();
    connect(&other);
    rig.control.link(other.id()).hold();
    let region = rig.domain.alloc(64, Access::ALL).unwrap();
    other.post(&Op::read(&region, region.remote().at(0)).unsignaled()).unwrap();
    drop(region);
    // Long enough for the looks after it to be far between.
    std::thread::sleep(Duration::from_millis(50));
    drop(other);
    only_the_rigs(&rig);
    rig.link.hold();
    rig.endpoint.post(&rig.write(1).unsignaled()).unwrap();
    std::thread::sleep(Duration::from_millis(150));
    (2..9).for_each(|context| rig.endpoint.post(&rig.write(context).unsignaled()).unwrap());
    rig.link.release(8);
}

#[test]
fn many_threads_may_drop_regions_behind_them() {
    let rig = Rig::with(|builder| builder.send_depth(128));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..rounds(500) {
                    let region = rig.domain.alloc(64, Access::ALL).unwrap();
                    let read = Op::read(&region, region.remote().at(0)).unsignaled();
                    while rig.endpoint.post(&read).is_err() {}
                }
            });
        }
    });
    only_the_rigs(&rig);
}

#[test]
fn the_end_of_the_connection_lets_their_regions_go() {
    for reason in [DisconnectReason::Local, DisconnectReason::Remote, DisconnectReason::PeerLost] {
        let rig = Rig::new();
        rig.endpoint.post(&rig.write(1).unsignaled()).unwrap();
        if reason == DisconnectReason::Local {
            rig.endpoint.disconnect();
        } else {
            rig.link.lose(reason);
        }
        rig.region.close().unwrap();
        assert_eq!(rig.drain(), [], "it had succeeded");
    }
}

#[test]
fn shutdown_waits_for_them() {
    for depth in [1, 8, 128] {
        let rig = Rig::with(|b| b.send_depth(depth));
        rig.endpoint.post(&rig.write(1).unsignaled()).unwrap();
        rig.endpoint.shutdown(Duration::from_secs(30)).unwrap();
        assert_eq!(rig.drain(), [], "nothing was canceled, and nothing of its own is reported");
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn shutdown_of_a_queue_full_of_them() {
    let rig = Rig::with(|b| b.send_depth(8));
    rig.link.hold();
    (0..8).for_each(|context| rig.endpoint.post(&rig.write(context).unsignaled()).unwrap());
    assert!(matches!(rig.endpoint.shutdown(Duration::from_millis(20)), Err(Error::TimedOut(_))));
    rig.link.release(8);
    std::thread::scope(|scope| {
        let shutdown = scope.spawn(|| rig.endpoint.shutdown(Duration::from_secs(30)));
        while !shutdown.is_finished() {
            rig.link.release(8);
            std::thread::yield_now();
        }
        shutdown.join().unwrap().unwrap();
    });
    assert_eq!(rig.drain(), []);
}
