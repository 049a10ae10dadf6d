//! An endpoint that parks its connections before it goes: its peers miss nothing, and do not find it lost.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use std::time::{Duration, Instant};

use fabric::{Access, Domain, Hints};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Endpoint, RdmAttr, Recv, Send};

const TIMEOUT: Duration = Duration::from_secs(30);

fn endpoint() -> Endpoint {
    let hints = Hints { provider: Some("tcp".into()), ..Hints::default() };
    Endpoint::new(&Domain::open(&hints).unwrap(), &RdmAttr::default()).unwrap()
}

#[test]
fn the_end_of_every_message_is_heard_of() {
    for _ in 0..50 {
        let (a, b) = (endpoint(), endpoint());
        let to_b = a.insert(b.address()).unwrap();
        b.insert(a.address()).unwrap();
        let inbox = b.domain().alloc(64, Access::LOCAL_WRITE).unwrap();
        b.post_recv(&Recv::new(Pattern::untagged(), &inbox)).unwrap();
        a.post_send(to_b, &Send::inject(b"the last one")).unwrap();
        assert!(b.wait_one(Some(TIMEOUT)).unwrap().is_ok());
        b.park_all().unwrap();
        let until = Instant::now() + TIMEOUT;
        while b.connections().unwrap() > 0 {
            b.progress().unwrap();
            assert!(Instant::now() < until, "{}", b.dump());
        }
        drop(b);
        let sent = a.wait_one(Some(TIMEOUT)).unwrap();
        assert!(sent.is_ok(), "{sent:?}");
        assert_eq!(a.down(to_b).unwrap(), None);
    }
}
