//! An event sink that panics loses the event at which it did, and nothing else.

#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are of tests too

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fabric::provider::{
    CqOps, DomainAttr, EndpointOps, EventSink, ListenerAttr, ListenerId, RawCompletion, RecvWork,
    Side, Token,
};
use fabric::provider::{DomainOps, ListenerOps, Provider};
use fabric::{
    Catalog, Choice, CqAttr, DisconnectReason, EndpointAttr, EndpointId, Event, Hints, Status,
};
use provider_tcp::TcpProvider;

const SOON: Duration = Duration::from_secs(20);

/// Keeps events, and panics at a connection request once it is asked to.
#[derive(Default)]
struct Trap {
    armed: AtomicBool,
    seen: Mutex<Vec<Event>>,
}

impl EventSink for Trap {
    fn event(&self, event: Event) {
        let request = matches!(event, Event::ConnectRequest { .. });
        if request && self.armed.swap(false, Ordering::SeqCst) {
            panic!("as a bug of the engine would");
        }
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

impl Trap {
    fn wait(&self, what: &str, wanted: impl Fn(&Event) -> bool) {
        let until = Instant::now() + SOON;
        loop {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if seen.iter().any(&wanted) {
                return;
            }
            assert!(Instant::now() < until, "no {what} among {seen:?}");
            drop(seen);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn what_a_sink_that_panics_loses_is_its_own() {
    let provider = TcpProvider::new();
    let info = provider.devices().into_iter().find_map(|device| device.state.ok()).unwrap();
    let trap = Arc::new(Trap::default());
    let domain = provider.open(&info, &DomainAttr::default(), trap.clone()).unwrap();
    let queue = domain.completion_queue(&CqAttr::new(64)).unwrap();
    let mine = EndpointId(1);
    let endpoint = domain.endpoint(mine, &EndpointAttr::default(), &queue, &queue).unwrap();
    let here = "127.0.0.1:0".parse().unwrap();
    let listener = domain.listen(ListenerId(1), here, &ListenerAttr::default()).unwrap();

    let other = Catalog::empty().add(TcpProvider::new()).unwrap();
    let other = other.open_with(&Choice::Auto, &Hints::default()).unwrap();
    let peer = other.endpoint().build(&other.completion_queue(1024).unwrap()).unwrap();
    peer.connect(listener.local_addr(), b"").unwrap();
    trap.wait("request", |event| matches!(event, Event::ConnectRequest { .. }));
    endpoint.accept(listener.next_request().unwrap().id, b"").unwrap();
    peer.wait_connected(Some(SOON)).unwrap();
    trap.wait("connection", |event| matches!(event, Event::Connected { .. }));
    for sequence in 0..3 {
        let token = Token::new(0, 0, Side::Recv, sequence);
        // SAFETY: without segments there is no memory.
        assert_eq!(unsafe { endpoint.post_recv(&[RecvWork::new(token, &[])]) }.accepted, 1);
    }

    trap.armed.store(true, Ordering::SeqCst);
    let stranger = other.endpoint().build(&other.completion_queue(1024).unwrap()).unwrap();
    stranger.connect(listener.local_addr(), b"").unwrap();
    let until = Instant::now() + SOON;
    while trap.armed.load(Ordering::SeqCst) {
        assert!(Instant::now() < until, "the sink was not called");
        std::thread::sleep(Duration::from_millis(1));
    }
    // The connection of before goes on.
    peer.inject(b"", 1).unwrap();
    let mut out = [RawCompletion::default(); 8];
    while queue.poll(&mut out) == 0 {
        assert!(Instant::now() < until, "the message did not come");
    }
    assert_eq!(out[0].status, Status::Ok);
    // So do events of others, and what waits for them: each receive completes once, behind the end.
    endpoint.disconnect();
    trap.wait("end", |event| matches!(event, Event::Disconnected { endpoint, reason: DisconnectReason::Local } if *endpoint == mine));
    let mut left = 0;
    while left < 2 {
        left += queue.poll(&mut out);
        assert!(Instant::now() < until, "{left} receives ended");
    }
    assert!(out[..1].iter().all(|completion| completion.status == Status::Canceled));
    peer.wait_disconnected(Some(SOON)).unwrap();

    // The thread lives on: what is made now works, and the domain closes.
    peer_of_a_new_one(&domain, &trap, &listener, &other);
    drop((endpoint, queue, listener, domain));
}

/// Connects once more, to the domain whose thread has panicked.
fn peer_of_a_new_one(
    domain: &impl DomainOps,
    trap: &Trap,
    listener: &impl ListenerOps,
    other: &fabric::Domain,
) {
    // The stranger's request was in the queue before the sink panicked.
    let _ = listener.next_request();
    let mine = EndpointId(2);
    let queue = domain.completion_queue(&CqAttr::new(64)).unwrap();
    let endpoint = domain.endpoint(mine, &EndpointAttr::default(), &queue, &queue).unwrap();
    let peer = other.endpoint().build(&other.completion_queue(1024).unwrap()).unwrap();
    peer.connect(listener.local_addr(), b"").unwrap();
    let until = Instant::now() + SOON;
    let request = loop {
        assert!(Instant::now() < until, "the listener heard nothing");
        match listener.next_request() {
            Some(request) => break request,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    endpoint.accept(request.id, b"").unwrap();
    peer.wait_connected(Some(SOON)).unwrap();
    let connected =
        |event: &Event| matches!(event, Event::Connected { endpoint, .. } if *endpoint == mine);
    trap.wait("second connection", connected);
}
