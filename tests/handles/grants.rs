//! Grants: what keeps a region, and what ends with it.

use std::time::{Duration, Instant};

use fabric::{Access, EndpointState, Error, Status};

use crate::rig::Rig;

const READ: Access = Access::REMOTE_READ;

#[test]
fn a_region_stays_as_long_as_a_grant_of_it() {
    let rig = Rig::new();
    let region = rig.domain.alloc(64, Access::ALL).unwrap();
    let before = rig.control.registrations();
    let grant = region.grant(&rig.endpoint, 8..24, READ).unwrap();
    let other = region.grant(&rig.endpoint, .., Access::REMOTE).unwrap();
    assert_eq!((grant.remote().len(), grant.remote().access()), (16, READ));
    assert_eq!((grant.endpoint(), other.remote().len()), (rig.endpoint.id(), 64));
    assert_ne!(grant.remote().key(), other.remote().key());
    drop(region);
    grant.revoke().unwrap();
    grant.revoke().unwrap();
    assert_eq!((rig.control.registrations(), rig.control.grants()), (before, 1));
    drop(other);
    assert_eq!((rig.control.registrations(), rig.control.grants()), (before, 0));
    drop(grant);
    assert_eq!(rig.control.registrations(), before - 1);
}

#[test]
fn a_region_that_closes_ends_its_grants() {
    let rig = Rig::new();
    let region = rig.domain.alloc(64, Access::ALL).unwrap();
    let grants = [(); 3].map(|()| region.grant(&rig.endpoint, .., READ).unwrap());
    rig.link.hold();
    rig.endpoint.send(region.slice(..8), 1).unwrap();
    // Refused, it leaves them as they were.
    assert!(matches!(region.close(), Err(Error::Busy)));
    assert_eq!(rig.control.grants(), 3);
    rig.link.release(1);
    assert_eq!(rig.drain(), [(1, Status::Ok)]);
    region.close().unwrap();
    assert_eq!(rig.control.grants(), 0);
    grants.iter().for_each(|grant| grant.revoke().unwrap());
    assert!(matches!(region.grant(&rig.endpoint, .., READ), Err(Error::InvalidState(_))));
}

#[test]
fn a_grant_that_does_not_open_in_time_holds_its_region_until_it_can_go() {
    let rig = Rig::new();
    let [closed, dropped, left] = [(); 3].map(|()| rig.domain.alloc(64, Access::ALL).unwrap());
    let before = rig.control.registrations();
    rig.control.stay_shut(true);
    std::thread::scope(|scope| {
        for region in [&closed, &dropped, &left] {
            scope.spawn(|| {
                let late = region.grant(&rig.endpoint, .., READ);
                assert!(matches!(late, Err(Error::TimedOut(_))), "{late:?}");
            });
        }
    });
    assert!(matches!(closed.close(), Err(Error::Busy)));
    drop(dropped);
    assert_eq!((rig.control.grants(), rig.control.registrations()), (3, before));
    rig.control.stay_shut(false);
    closed.close().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while rig.control.registrations() > before - 2 {
        assert!(Instant::now() < until, "a dropped region is there for ever");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(rig.control.grants(), 0);
    left.close().unwrap();
}

#[test]
fn an_endpoint_that_goes_takes_its_late_grants_along() {
    let rig = Rig::new();
    let region = rig.domain.alloc(64, Access::ALL).unwrap();
    rig.control.stay_shut(true);
    assert!(matches!(region.grant(&rig.endpoint, .., READ), Err(Error::TimedOut(_))));
    rig.control.stay_shut(false);
    let Rig { endpoint, control, .. } = rig;
    drop(endpoint);
    assert_eq!(control.grants(), 0);
    region.close().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "what it shows is a leak")]
fn what_cannot_be_revoked_keeps_its_region() {
    let rig = Rig::new();
    let region = rig.domain.alloc(64, Access::ALL).unwrap();
    let before = rig.control.registrations();
    let grant = region.grant(&rig.endpoint, .., READ).unwrap();
    rig.control.hold_on(true);
    assert!(matches!(grant.revoke(), Err(Error::Busy)));
    drop((grant, region));
    assert_eq!((rig.control.grants(), rig.control.registrations()), (1, before));
    assert_eq!(rig.domain.counters().leaked_regions, 1);
}

#[test]
fn a_pending_grant_is_polled_until_it_is_open() {
    let rig = Rig::new();
    let region = rig.domain.alloc(64, Access::ALL).unwrap();
    let before = rig.control.registrations();
    rig.control.stay_shut(true);
    let mut pending = region.begin_grant(&rig.endpoint, 8..24, READ).unwrap();
    assert!(pending.poll().unwrap().is_none() && pending.poll().unwrap().is_none());
    assert!(matches!(region.close(), Err(Error::Busy)));
    drop(region);
    rig.control.stay_shut(false);
    let grant = pending.poll().unwrap().unwrap();
    assert_eq!((grant.remote().len(), grant.endpoint()), (16, rig.endpoint.id()));
    assert!(matches!(pending.poll(), Err(Error::InvalidState(_))));
    // The grant alone keeps the region.
    assert_eq!((rig.control.grants(), rig.control.registrations()), (1, before));
    drop(grant);
    assert_eq!((rig.control.grants(), rig.control.registrations()), (0, before - 1));
}

#[test]
fn nothing_is_taken_behind_a_grant_that_found_the_connection_over() {
    let rig = Rig::new();
    let region = rig.domain.alloc(64, Access::ALL).unwrap();
    rig.control.stay_shut(true);
    let mut pending = region.begin_grant(&rig.endpoint, .., READ).unwrap();
    assert!(pending.poll().unwrap().is_none());
    rig.control.never_open();
    assert!(matches!(pending.poll(), Err(Error::NotConnected)));
    assert_eq!(rig.endpoint.state(), EndpointState::Dead);
    assert!(matches!(rig.endpoint.post(&rig.write(1)), Err(Error::NotConnected)));
    assert!(matches!(rig.endpoint.recv(&rig.region, 2), Err(Error::NotConnected)));
    rig.control.stay_shut(false);
}

#[test]
fn a_pending_grant_that_is_dropped_ends_when_it_can() {
    let rig = Rig::new();
    let [closed, dropped, open] = [(); 3].map(|()| rig.domain.alloc(64, Access::ALL).unwrap());
    let before = rig.control.registrations();
    let begin = |region: &fabric::Region| region.begin_grant(&rig.endpoint, .., READ).unwrap();
    drop(begin(&open));
    assert_eq!(rig.control.grants(), 0);
    open.close().unwrap();

    rig.control.stay_shut(true);
    drop(begin(&closed));
    // The handle goes first.
    let pending = begin(&dropped);
    drop(dropped);
    drop(pending);
    assert!(matches!(closed.close(), Err(Error::Busy)));
    assert_eq!((rig.control.grants(), rig.control.registrations()), (2, before - 1));
    rig.control.stay_shut(false);
    let until = Instant::now() + Duration::from_secs(30);
    while rig.control.registrations() > before - 2 {
        assert!(Instant::now() < until, "a dropped region is there for ever");
        std::thread::sleep(Duration::from_millis(1));
    }
    closed.close().unwrap();
    assert_eq!(rig.control.grants(), 0);
}

#[test]
fn a_pending_grant_outlives_its_endpoint() {
    let rig = Rig::new();
    let region = rig.domain.alloc(64, Access::ALL).unwrap();
    rig.control.stay_shut(true);
    let pending = region.begin_grant(&rig.endpoint, .., READ).unwrap();
    let Rig { endpoint, control, .. } = rig;
    drop(endpoint);
    assert_eq!(control.grants(), 1);
    control.stay_shut(false);
    drop(pending);
    assert_eq!(control.grants(), 0);
    region.close().unwrap();
}
