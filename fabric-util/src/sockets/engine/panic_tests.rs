//! A panic on the engine's thread, which only a bug can cause: it ends the domain's endpoints, each once, and nothing else.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fabric::{Catalog, Choice, Hints};
use fabric_core::provider::Provider;
use fabric_core::{
    CqAttr, CqOps, DisconnectReason, DomainAttr, DomainOps, EndpointAttr, EndpointId, EndpointOps,
    Event, EventSink, ListenerAttr, ListenerId, ListenerOps, RawCompletion, RecvWork, Side, Status,
    Token,
};

use crate::sockets::testing::{Loopback, until};
use crate::sockets::{SocketCq, SocketDomain, SocketEndpoint, SocketProvider};
use crate::sync::Mutex;

const SOON: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Kept(Mutex<Vec<Event>>);

impl EventSink for Kept {
    fn event(&self, event: Event) {
        self.0.lock().push(event);
    }
}

impl Kept {
    fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().iter().filter(|event| wanted(event)).count()
    }
}

fn open(events: &Arc<Kept>) -> SocketDomain<Loopback> {
    let provider = SocketProvider::<Loopback>::new();
    let info = provider.devices().into_iter().find_map(|device| device.state.ok()).unwrap();
    provider.open(&info, &DomainAttr::default(), events.clone()).unwrap()
}

/// Accepts a connection of a program's.
fn connect(
    domain: &SocketDomain<Loopback>,
    id: EndpointId,
    queue: &SocketCq<Loopback>,
    listener: &impl ListenerOps,
    events: &Kept,
) -> (SocketEndpoint<Loopback>, fabric::Endpoint) {
    let other = Catalog::empty().add(SocketProvider::<Loopback>::new()).unwrap();
    let other = other.open_with(&Choice::Auto, &Hints::default()).unwrap();
    let peer = other.endpoint().build(&other.completion_queue(1024).unwrap()).unwrap();
    peer.connect(listener.local_addr(), b"").unwrap();
    let mut request = None;
    until("no request", || {
        request = listener.next_request();
        request.is_some()
    });
    let endpoint = domain.endpoint(id, &EndpointAttr::default(), queue, queue).unwrap();
    endpoint.accept(request.unwrap().id, b"").unwrap();
    peer.wait_connected(Some(SOON)).unwrap();
    let connected =
        |event: &Event| matches!(event, Event::Connected { endpoint, .. } if *endpoint == id);
    until("no connection", || events.count(connected) == 1);
    (endpoint, peer)
}

#[test]
fn it_ends_the_endpoints_and_the_thread_lives_on() {
    let events = Arc::new(Kept::default());
    let domain = open(&events);
    let queue = domain.completion_queue(&CqAttr::new(64)).unwrap();
    let here = "127.0.0.1:0".parse().unwrap();
    let listener = domain.listen(ListenerId(1), here, &ListenerAttr::default()).unwrap();
    let (endpoint, peer) = connect(&domain, EndpointId(1), &queue, &listener, &events);
    for sequence in 0..3 {
        let token = Token::new(0, 0, Side::Recv, sequence);
        // SAFETY: without segments there is no memory.
        assert_eq!(unsafe { endpoint.post_recv(&[RecvWork::new(token, &[])]) }.accepted, 1);
    }

    for _ in 0..3 {
        domain.engine.panics.store(true, Ordering::Relaxed);
        domain.engine.progress.interrupt();
        until("no panic", || !domain.engine.panics.load(Ordering::Relaxed));
    }
    let ended = |event: &Event| {
        matches!(event, Event::Disconnected { reason: DisconnectReason::Internal, .. })
    };
    until("no end", || events.count(ended) > 0);
    peer.wait_disconnected(Some(SOON)).unwrap();
    let (mut out, mut ends) = ([RawCompletion::default(); 8], Vec::new());
    until("receives are left", || {
        let taken = queue.poll(&mut out);
        ends.extend(out[..taken].iter().map(|completion| completion.status));
        ends.len() >= 3
    });
    assert_eq!(ends, [Status::Canceled; 3], "each completes once");

    let (_endpoint, _peer) = connect(&domain, EndpointId(2), &queue, &listener, &events);
    assert_eq!(events.count(ended), 1, "an endpoint ends once");
}
