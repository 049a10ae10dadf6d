//! Writes with immediate data to an endpoint that has them taken apart from all other completions.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use std::time::{Duration, Instant};

use fabric::{Access, Domain, Error, Hints, Op, RemoteSlice};
use fabric_rdm::{Completion, Endpoint, Full, Kind, Peer, PostError, RdmAttr};

const TIMEOUT: Duration = Duration::from_secs(30);
const WINDOW: u32 = 8;

fn endpoint(apart: bool) -> Endpoint {
    let hints = Hints { provider: Some("tcp".into()), ..Hints::default() };
    let mut attr = RdmAttr::default();
    (attr.writes_apart, attr.window.places.window) = (apart, WINDOW.into());
    Endpoint::new(&Domain::open(&hints).unwrap(), &attr).unwrap()
}

fn write(from: &Endpoint, peer: Peer, to: RemoteSlice, data: u32) -> Result<(), PostError> {
    let op = Op::inject_write(b"8 bytes!", to).immediate(data).unsignaled();
    from.post(peer, &op).map(drop)
}

/// Takes so many, with these data, while nothing else completes.
fn take(at: &Endpoint, from: Peer, count: u32) {
    let (mut taken, until) = (0, Instant::now() + TIMEOUT);
    while taken < count {
        assert!(Instant::now() < until, "{}", at.dump());
        assert_eq!(at.poll_one().unwrap(), None);
        let mut out = [Completion::default(); 3];
        let found = at.take_written(&mut out).unwrap();
        for one in &out[..found] {
            assert_eq!(
                (one.kind, one.peer, one.immediate),
                (Kind::RecvWrite, Some(from), Some(taken))
            );
            taken += 1;
        }
    }
    assert!(!at.has_written());
}

#[test]
fn no_poll_gives_them_and_their_places_are_held() {
    let (a, b) = (endpoint(false), endpoint(true));
    let (to_b, to_a) = (a.insert(b.address()).unwrap(), b.insert(a.address()).unwrap());
    let me = b.insert(b.address()).unwrap();
    let memory = b.domain().alloc(64, Access::ALL).unwrap();
    let at = memory.remote().at(0);
    for (from, to, by) in [(&a, to_b, to_a), (&b, me, me)] {
        for _ in 0..3 {
            let until = Instant::now() + TIMEOUT;
            for data in 0..WINDOW {
                // A peer hears a moment later that its places are free.
                while let Err(error) = write(from, to, at, data) {
                    assert!(matches!(error, PostError::Again(Full::Peer(_))), "{error}");
                    assert!(Instant::now() < until, "{}", b.dump());
                    from.progress().unwrap();
                }
            }
            assert!(b.wait_one(Some(Duration::from_millis(20))).is_err());
            let full = write(from, to, at, 99).unwrap_err();
            assert!(matches!(full, PostError::Again(Full::Peer(_))), "{full}");
            take(&b, by, WINDOW);
        }
    }
    let error = a.take_written(&mut [Completion::default()]).unwrap_err();
    assert!(matches!(error, Error::InvalidState(_)), "{error}");
}
