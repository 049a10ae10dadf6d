//! The last message by which a connection is made gets lost.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fabric::{DisconnectReason, Domain, Endpoint, Event, Status};

use crate::calls::UNCONFIRMED;
use crate::rig::{SOON, Side, listen, open, open_region, take};

/// How long the accepting side waits for it.
const TIMEOUT: Duration = Duration::from_secs(4);

/// An endpoint that has accepted, and the peer that has confirmed in vain.
fn accepted(domain: &Domain) -> (Side, Side) {
    let peer = Side::on(domain, Duration::from_secs(10));
    let queue = domain.completion_queue(1024).unwrap();
    let endpoint = domain.endpoint().connect_timeout(TIMEOUT).build(&queue).unwrap();
    let listener = listen(domain);
    peer.endpoint.connect(listener.local_addr(), &[]).unwrap();
    listener.accept(SOON).unwrap().accept(&endpoint, &[]).unwrap();
    peer.endpoint.wait_connected(SOON).unwrap();
    (Side { endpoint, queue, domain: domain.clone() }, peer)
}

fn send(from: &Side, to: &Side) {
    let (room, bytes) = (open_region(&to.domain, 8), open_region(&from.domain, 8));
    to.endpoint.recv(&room, 1).unwrap();
    from.endpoint.send(&bytes, 2).unwrap();
    for queue in [&to.queue, &from.queue] {
        assert_eq!(take(queue, 1)[0].status, Status::Ok);
    }
}

fn has_ended(domain: &Domain, endpoint: &Endpoint) -> Option<DisconnectReason> {
    while let Some(event) = domain.events().poll() {
        match event {
            Event::Disconnected { endpoint: other, reason } if other == endpoint.id() => {
                return Some(reason);
            }
            _ => {}
        }
    }
    None
}

/// Where the peer sends, it has confirmed; where it is silent, it may be gone.
pub(crate) fn ends_no_connection() {
    let domain = open();
    UNCONFIRMED.store(true, Ordering::SeqCst);
    let ((side, peer), (unheard, _silent)) = (accepted(&domain), accepted(&domain));
    send(&peer, &side);
    std::thread::sleep(2 * TIMEOUT);
    UNCONFIRMED.store(false, Ordering::SeqCst);
    assert_eq!(unheard.endpoint.wait_disconnected(SOON).unwrap(), DisconnectReason::PeerLost);
    assert_eq!(has_ended(&domain, &side.endpoint), None);
    send(&peer, &side);
    send(&side, &peer);
    // And its end is heard of at the other.
    side.endpoint.disconnect();
    assert_eq!(peer.endpoint.wait_disconnected(SOON).unwrap(), DisconnectReason::Remote);
}
