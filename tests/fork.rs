//! A child made by `fork` owns none of its parent's handles: calls there are refused, drops touch nothing,
//! and the parent does not notice.

#![cfg(not(miri))] // Miri has no fork(2)
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod child;
mod null;
mod rig;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use child::in_child;
use fabric::{Access, Armed, Error, Recv, Status};
use fabric_util::wakeup::wait_readable;
use rig::{NOWHERE, Rig, connect};

#[track_caller]
fn refused<T>(what: &str, result: Result<T, Error>) {
    match result {
        Err(Error::InvalidState(failure)) if failure.detail.contains("fork") => {}
        Err(other) => panic!("{what}: {other:?}"),
        Ok(_) => panic!("{what} went through"),
    }
}

#[test]
fn every_call_is_refused_in_a_child() {
    let rig = Rig::new();
    let fresh = rig.domain.endpoint().send_depth(8).recv_depth(8).build(&rig.queue).unwrap();
    let listener = rig.domain.listen(NOWHERE).unwrap();
    for _ in 0..2 {
        rig.control.request(listener.id(), &[]);
    }
    let mut request = listener.poll().unwrap();
    rig.endpoint.post(&rig.write(1)).unwrap();
    rig.link.lose(fabric::DisconnectReason::PeerLost);
    let events = rig.domain.events();
    in_child(|| {
        refused("post", rig.endpoint.post(&rig.write(2)));
        let batch = rig.endpoint.post_batch(&[rig.write(2)]).unwrap_err();
        assert_eq!(batch.posted, 0);
        refused("post_batch", Err::<(), _>(batch.error));
        refused("recv", rig.endpoint.recv(&rig.region, 2));
        let batch = rig.endpoint.post_recvs(&[Recv::new(&rig.region, 2)]).unwrap_err();
        refused("post_recvs", Err::<(), _>(batch.error));
        refused("connect", fresh.connect(NOWHERE, &[]));
        refused("wait_connected", fresh.wait_connected(None));
        refused("wait_disconnected", rig.endpoint.wait_disconnected(None));
        refused("shutdown", rig.endpoint.shutdown(Duration::ZERO));
        refused("poll", rig.queue.poll_one());
        refused("wait", rig.queue.wait_one(None));
        refused("arm", rig.queue.arm());
        refused("close", rig.region.close());
        refused("alloc", rig.domain.alloc(64, Access::ALL));
        refused("completion_queue", rig.domain.completion_queue(64));
        refused("build", rig.domain.endpoint().build(&rig.queue));
        refused("listen", rig.domain.listen(NOWHERE));
        refused("accept", listener.accept(None));
        refused("answer", request.accept(&fresh, &[]));
        refused("reject", request.reject(&[]));
        refused("events", events.wait(None));
        assert!(listener.poll().is_none() && events.poll().is_none());
        assert_eq!((rig.endpoint.local_addr(), rig.endpoint.peer_addr()), (None, None));
        rig.endpoint.disconnect();
        assert!(rig.endpoint.dump().contains("in a fork"));
        // Its memory may be the parent's, too.
        refused("to_vec", rig.region.to_vec(..8));
        refused("write_at", rig.region.write_at(0, &[1]));
        refused("atomic", rig.region.atomic::<u64>(0).map(drop));
    });
    // Everything is as it was.
    assert_eq!(rig.drain(), [(1, Status::Ok)]);
    assert!(wait_readable(events.as_fd(), Some(Instant::now())).unwrap());
    assert!(events.poll().is_some());
    connect(&fresh);
    rig.region.close().unwrap();
}

#[test]
fn drops_in_a_child_touch_nothing() {
    let rig = Rig::new();
    rig.link.hold();
    rig.endpoint.post(&rig.write(1)).unwrap();
    rig.endpoint.recv(&rig.region, 2).unwrap();
    let listener = rig.domain.listen(NOWHERE).unwrap();
    rig.control.request(listener.id(), &[]);
    let request = listener.poll().unwrap();
    let control = rig.control.clone();
    let link = rig.link.clone();
    let mut handles = Some((rig, listener, request));
    in_child(|| {
        drop(handles.take());
        // The provider's own objects were left alone.
        assert_eq!((control.endpoints(), control.registrations(), control.listeners()), (1, 1, 1));
        assert_eq!(control.rejected(), []);
        assert_eq!(link.held().len(), 1);
    });
    let (rig, ..) = handles.as_ref().unwrap();
    assert_eq!(rig.queue.arm().unwrap(), Armed::Waiting);
    rig.link.release(1);
    assert!(rig.link.bring(8, None));
    assert!(wait_readable(rig.queue.as_fd(), Some(Instant::now())).unwrap());
    assert_eq!(rig.drain(), [(1, Status::Ok), (2, Status::Ok)]);
}

#[test]
fn a_child_may_open_a_domain_of_its_own() {
    in_child(|| {
        let rig = Rig::new();
        rig.endpoint.post(&rig.write(1)).unwrap();
        assert_eq!(rig.drain(), [(1, Status::Ok)]);
        // And a child of the child may not use it.
        in_child(|| refused("post", rig.endpoint.post(&rig.write(2))));
    });
}
