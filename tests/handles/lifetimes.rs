//! Dropping an endpoint with work in flight: abortive, at once, and everything is reported.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fabric::{Access, Completion, Error, Op, Status};
use fabric_core::RawCompletion;

use crate::rig::{Rig, connect, drain, run};

#[test]
fn what_is_in_flight_is_canceled_in_order_by_later_polls() {
    let Rig { endpoint, region, queue, remote, link, .. } = Rig::new();
    link.hold();
    for context in 0..3 {
        endpoint.write(region.slice(..8), remote.at(0), context).unwrap();
    }
    endpoint.recv(&region, 10).unwrap();
    endpoint.recv(&region, 11).unwrap();
    let id = endpoint.id();
    drop(endpoint);
    let mut expected = run(0, 3, Status::Canceled);
    expected.extend(run(10, 2, Status::Canceled));
    let mut reported = Vec::new();
    // However few at a time.
    while let Some(completion) = queue.poll_one().unwrap() {
        assert_eq!((completion.endpoint, completion.len), (id, 0));
        reported.push((completion.context, completion.status));
    }
    assert_eq!(reported, expected);
}

#[test]
fn what_had_finished_keeps_its_status() {
    let Rig { endpoint, region, queue, remote, link, .. } = Rig::new();
    link.hold();
    for context in 0..4 {
        endpoint.write(region.slice(..8), remote.at(0), context).unwrap();
    }
    link.release(2);
    drop(endpoint);
    let mut expected = run(0, 2, Status::Ok);
    expected.extend(run(2, 2, Status::Canceled));
    assert_eq!(drain(&queue), expected);
}

#[test]
fn unsignaled_work_in_flight_is_canceled_too() {
    let Rig { endpoint, region, queue, remote, link, .. } = Rig::new();
    link.hold();
    let op = fabric::Op::write(region.slice(..8), remote.at(0)).context(7).unsignaled();
    endpoint.post(&op).unwrap();
    drop(endpoint);
    assert_eq!(drain(&queue), [(7, Status::Canceled)]);
}

#[test]
fn its_regions_are_free_at_once() {
    let Rig { endpoint, region, queue, remote, link, .. } = Rig::with(|b| b.send_depth(4));
    link.hold();
    for context in 0..4 {
        endpoint.write(region.slice(..8), remote.at(0), context).unwrap();
    }
    link.release(2);
    // The full post reaps what has finished, so some of it waits above the provider.
    assert!(matches!(endpoint.write(region.slice(..8), remote.at(0), 9), Err(Error::Again)));
    endpoint.recv(&region, 10).unwrap();
    assert!(matches!(region.close(), Err(Error::Busy)));
    drop(endpoint);
    region.close().unwrap();
    assert_eq!(drain(&queue).len(), 5);
}

#[test]
fn memory_without_a_handle_goes_with_the_endpoint() {
    let Rig { endpoint, queue, remote, link, control, domain, .. } = Rig::new();
    link.hold();
    for context in 0..3 {
        let region = domain.alloc(4096, Access::ALL).unwrap();
        endpoint.read(&region, remote.at(0), context).unwrap();
    }
    let before = control.registrations();
    drop(endpoint);
    assert_eq!(control.registrations(), before - 3);
    assert_eq!(drain(&queue), run(0, 3, Status::Canceled));
}

#[test]
fn with_a_queue_for_each_side_each_tells_its_own() {
    let rig = Rig::new();
    let recvs = rig.domain.completion_queue(64).unwrap();
    let sends = rig.domain.completion_queue(64).unwrap();
    let endpoint =
        rig.domain.endpoint().send_depth(8).recv_depth(8).build_with(&sends, &recvs).unwrap();
    connect(&endpoint);
    rig.control.link(endpoint.id()).hold();
    endpoint.post(&rig.write(1)).unwrap();
    endpoint.recv(&rig.region, 2).unwrap();
    drop(endpoint);
    assert_eq!(drain(&sends), [(1, Status::Canceled)]);
    assert_eq!(drain(&recvs), [(2, Status::Canceled)]);
    assert_eq!((sends.room(), recvs.room()), (64, 64));
}

#[test]
fn a_later_endpoint_on_the_queue_gets_none_of_it() {
    let rig = Rig::new();
    let make = || {
        let endpoint = rig.domain.endpoint().send_depth(4).recv_depth(4).build(&rig.queue).unwrap();
        connect(&endpoint);
        rig.control.link(endpoint.id()).hold();
        endpoint
    };
    let first = make();
    let first_id = first.id();
    first.post(&rig.write(1)).unwrap();
    let stale = rig.control.link(first_id).held()[0];
    drop(first);
    let second = make();
    second.post(&rig.write(2)).unwrap();
    // The first one's place in the queue is the second's now; its token opens nothing.
    rig.control.link(second.id()).forge(RawCompletion::new(stale, Status::Internal));
    rig.control.link(second.id()).release(1);
    let mut out = [Completion::default(); 4];
    assert_eq!(rig.queue.poll(&mut out).unwrap(), 2);
    assert_eq!(
        [(out[0].endpoint, out[0].status), (out[1].endpoint, out[1].status)],
        [(first_id, Status::Canceled), (second.id(), Status::Ok)]
    );
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn a_sleeper_is_woken_for_what_is_canceled() {
    use fabric_util::wakeup::wait_readable;
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    let Rig { endpoint, region, queue, .. } = Rig::new();
    endpoint.recv(&region, 1).unwrap();
    assert_eq!(queue.arm().unwrap(), fabric::Armed::Waiting);
    drop(endpoint);
    let deadline = Instant::now() + Duration::from_secs(30);
    assert!(wait_readable(queue.as_fd(), Some(deadline)).unwrap());
    assert_eq!(drain(&queue), [(1, Status::Canceled)]);
}

#[test]
fn a_panic_with_work_in_flight_drops_like_anything_else() {
    let rig = Rig::new();
    let survivor = rig.queue.clone();
    let (control, link) = (rig.control.clone(), rig.link.clone());
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let rig = rig;
        rig.link.hold();
        rig.endpoint.post(&rig.write(1)).unwrap();
        rig.endpoint.recv(&rig.region, 2).unwrap();
        std::panic::resume_unwind(Box::new("in the middle"));
    }));
    assert!(panicked.is_err());
    assert_eq!((control.endpoints(), control.registrations()), (0, 0));
    assert_eq!(link.held(), []);
    assert_eq!(drain(&survivor), [(1, Status::Canceled), (2, Status::Canceled)]);
}

#[test]
fn a_panic_in_one_thread_leaves_the_handles_usable_in_others() {
    let rig = Rig::new();
    let panicked = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            rig.endpoint.post(&rig.write(1)).unwrap();
            std::panic::resume_unwind(Box::new("in the middle"));
        });
        thread.join()
    });
    assert!(panicked.is_err());
    rig.endpoint.post(&rig.write(2)).unwrap();
    assert_eq!(rig.drain(), run(1, 2, Status::Ok));
}

/// What a device may still touch after its endpoint is gone is never freed, and is counted.
#[test]
#[cfg_attr(miri, ignore = "what it shows is a leak")]
fn what_cannot_be_stopped_keeps_its_memory() {
    let rig = Rig::new();
    let Rig { endpoint, region, queue, domain, control, link, .. } = rig;
    let (read, received) =
        (domain.alloc(64, Access::ALL).unwrap(), domain.alloc(64, Access::ALL).unwrap());
    let (at, remote) = (received.addr() as *mut u8, region.remote());
    link.hold();
    endpoint.post(&Op::read(&read, remote.at(0)).context(1)).unwrap();
    endpoint.recv(&received, 2).unwrap();
    drop((read, received));
    control.go_on(true);
    drop(endpoint);
    // A completion would say that the memory is free. A region that none of its operations uses goes as any other.
    assert_eq!(drain(&queue), []);
    region.close().unwrap();
    assert_eq!(control.registrations(), 2);
    assert_eq!(domain.counters().leaked_regions, 2);
    drop((region, queue, domain));
    // The device goes on; where the memory was freed, the address sanitizer says so.
    link.release(1);
    assert!(link.bring(64, None));
    // SAFETY: it was never freed.
    assert_eq!(unsafe { at.read_volatile() }, crate::null::FILL);
    assert_eq!(control.registrations(), 2);
}
