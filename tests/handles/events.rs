//! The event queue: its descriptor, its bounds, and what becomes of the events of handles that are gone.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use fabric::{DisconnectReason, EndpointId, Error, Event, EventQueue, ListenerAttr};
use fabric_util::wakeup::wait_readable;

use crate::rig::{NOWHERE, Rig, domain, invalid};

fn readable(events: &EventQueue) -> bool {
    wait_readable(events.as_fd(), Some(Instant::now())).unwrap()
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn readable_exactly_while_an_event_waits() {
    let rig = Rig::new();
    let events = rig.domain.events();
    assert!(!readable(&events), "the rig took its own");
    let endpoint = rig.domain.endpoint().build(&rig.queue).unwrap();
    assert!(!readable(&events));
    endpoint.connect(NOWHERE, &[]).unwrap();
    assert!(readable(&events));
    endpoint.disconnect();
    assert!(readable(&events));
    assert!(matches!(events.poll(), Some(Event::Connected { .. })));
    assert!(readable(&events), "one is left");
    assert!(matches!(events.poll(), Some(Event::Disconnected { .. })));
    assert!(!readable(&events));
    // Taken by the blocking waits, they are gone as well.
    let other = rig.domain.endpoint().build(&rig.queue).unwrap();
    other.connect(NOWHERE, &[]).unwrap();
    assert!(readable(&events));
    other.wait_connected(None).unwrap();
    assert!(!readable(&events));
    // So they are when the endpoint is.
    rig.control.link(other.id()).lose(DisconnectReason::PeerLost);
    assert!(readable(&events));
    drop(other);
    assert!(!readable(&events));
    // And a listener's when the listener is.
    let listener = rig.domain.listen(NOWHERE).unwrap();
    rig.control.request(listener.id(), &[]);
    assert!(readable(&events));
    drop(listener);
    assert!(!readable(&events));
}

#[test]
fn an_endpoint_dropped_while_connecting_leaves_one_canceled() {
    let rig = Rig::new();
    let endpoint = rig.domain.endpoint().build(&rig.queue).unwrap();
    let link = rig.control.link(endpoint.id());
    link.connect_slowly();
    endpoint.connect(NOWHERE, &[]).unwrap();
    let id = endpoint.id();
    drop(endpoint);
    // The provider was late.
    link.report(Event::ConnectFailed { endpoint: id, error: Error::Refused(None) });
    link.report(Event::Connected { endpoint: id, data: [].into() });
    let events = rig.domain.events();
    assert!(
        matches!(events.poll(), Some(Event::ConnectFailed { endpoint, error: Error::Canceled })
        if endpoint == id)
    );
    assert!(events.poll().is_none());
}

#[test]
fn an_endpoint_dropped_otherwise_leaves_nothing() {
    let rig = Rig::new();
    let idle = rig.domain.endpoint().build(&rig.queue).unwrap();
    let connected = rig.domain.endpoint().build(&rig.queue).unwrap();
    connected.connect(NOWHERE, &[]).unwrap();
    let ended = rig.domain.endpoint().build(&rig.queue).unwrap();
    ended.connect(NOWHERE, &[]).unwrap();
    ended.disconnect();
    drop((idle, connected, ended));
    assert!(rig.domain.events().poll().is_none());
}

#[test]
#[cfg_attr(miri, ignore = "a thousand endpoints take Miri minutes, and show it nothing new")]
fn what_dropped_endpoints_leave_is_bounded() {
    let (domain, control) = domain();
    let queue = domain.completion_queue(256).unwrap();
    let events = domain.events();
    let mut last = EndpointId::default();
    for _ in 0..1030 {
        let endpoint = domain.endpoint().send_depth(1).recv_depth(1).build(&queue).unwrap();
        control.link(endpoint.id()).connect_slowly();
        endpoint.connect(NOWHERE, &[]).unwrap();
        last = endpoint.id();
    }
    let mut left = Vec::new();
    while let Some(Event::ConnectFailed { endpoint, error: Error::Canceled }) = events.poll() {
        left.push(endpoint);
    }
    assert_eq!((left.len(), left.last()), (1024, Some(&last)), "the oldest go first");
}

#[test]
fn requests_of_one_listener_are_one_event() {
    let rig = Rig::new();
    let listener = rig.domain.listen(NOWHERE).unwrap();
    for i in 0..3 {
        rig.control.request(listener.id(), &[i]);
    }
    let events = rig.domain.events();
    assert!(
        matches!(events.poll(), Some(Event::ConnectRequest { listener: l }) if l == listener.id())
    );
    assert!(events.poll().is_none());
    let requests: Vec<_> = std::iter::from_fn(|| listener.poll()).collect();
    assert_eq!(requests.iter().map(|r| r.private_data()[0]).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn waiting_takes_an_event_or_its_time() {
    let rig = Rig::new();
    let events = rig.domain.events();
    let wait = Duration::from_millis(20);
    let start = Instant::now();
    assert!(matches!(events.wait(Some(wait)), Err(Error::TimedOut(_))));
    assert!(start.elapsed() >= wait);
    assert!(matches!(events.wait(Some(Duration::ZERO)), Err(Error::TimedOut(_))));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| events.wait(None));
        std::thread::yield_now();
        rig.endpoint.disconnect();
        assert!(matches!(waiter.join().unwrap(), Ok(Event::Disconnected { .. })));
    });
}

#[test]
fn each_event_goes_to_one_of_many_waiters() {
    let rig = Rig::new();
    let endpoints: Vec<_> = (0..4)
        .map(|_| rig.domain.endpoint().send_depth(1).recv_depth(1).build(&rig.queue).unwrap())
        .collect();
    let mut reported: Vec<EndpointId> = std::thread::scope(|scope| {
        let waiters: Vec<_> = endpoints
            .iter()
            .map(|_| {
                scope.spawn(|| match rig.domain.events().wait(None) {
                    Ok(Event::Connected { endpoint, .. }) => endpoint,
                    other => panic!("{other:?}"),
                })
            })
            .collect();
        endpoints.iter().for_each(|endpoint| endpoint.connect(NOWHERE, &[]).unwrap());
        waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect()
    });
    reported.sort();
    assert_eq!(reported, endpoints.iter().map(|e| e.id()).collect::<Vec<_>>());
}

#[test]
fn events_go_to_the_queue_of_their_owner() {
    let rig = Rig::new();
    let (own, events) = (rig.domain.events(), rig.domain.event_queue().unwrap());
    let endpoint = rig.domain.endpoint().events(&events).build(&rig.queue).unwrap();
    let listener = rig.domain.listen_into(NOWHERE, &ListenerAttr::default(), &events).unwrap();
    endpoint.connect(NOWHERE, &[]).unwrap();
    rig.control.request(listener.id(), &[]);
    endpoint.disconnect();
    let taken: Vec<_> = std::iter::from_fn(|| events.poll()).collect();
    assert!(
        matches!(&taken[..], [
            Event::Connected { endpoint: first, .. },
            Event::ConnectRequest { listener: l },
            Event::Disconnected { endpoint: last, .. },
        ] if (*first, *last, *l) == (endpoint.id(), endpoint.id(), listener.id())),
        "{taken:?}"
    );
    assert!(own.poll().is_none());
    // The domain's own have theirs as before.
    rig.endpoint.disconnect();
    assert!(events.poll().is_none());
    assert!(matches!(own.poll(), Some(Event::Disconnected { .. })));
    // What is the domain's: the port in its own queue, the device in all, also in one that is made afterwards.
    let link = rig.control.link(rig.endpoint.id());
    link.report(Event::PortDown);
    link.report(Event::DeviceLost);
    assert!(matches!(events.poll(), Some(Event::DeviceLost)) && events.poll().is_none());
    assert!(matches!(own.poll(), Some(Event::PortDown)));
    assert!(matches!(own.poll(), Some(Event::DeviceLost)));
    let late = rig.domain.event_queue().unwrap();
    assert!(matches!(late.poll(), Some(Event::DeviceLost)));
}

#[test]
fn a_queue_of_another_domain_is_refused() {
    let rig = Rig::new();
    let (other, _) = domain();
    let events = other.event_queue().unwrap();
    invalid(rig.domain.endpoint().events(&events).build(&rig.queue));
    invalid(rig.domain.listen_into(NOWHERE, &ListenerAttr::default(), &events));
}
