//! Connecting, accepting, ending: states and outcomes.

use std::time::{Duration, Instant};

use fabric::{DisconnectReason, EndpointState, Error, Event, Status};

use crate::null::Link;
use crate::rig::{NOWHERE, Rig, connect, domain, invalid};

const SOON: Option<Duration> = Some(Duration::from_secs(30));
const NOW: Option<Duration> = Some(Duration::ZERO);

/// An endpoint that is connecting until the test says how it ends.
fn connecting() -> (Rig, fabric::Endpoint, std::sync::Arc<Link>) {
    let rig = Rig::new();
    let endpoint = rig.domain.endpoint().build(&rig.queue).unwrap();
    let link = rig.control.link(endpoint.id());
    link.connect_slowly();
    endpoint.connect(NOWHERE, b"hello").unwrap();
    (rig, endpoint, link)
}

#[track_caller]
fn is_state<T: std::fmt::Debug>(result: fabric::Result<T>) -> String {
    match result {
        Err(Error::InvalidState(failure)) => failure.to_string(),
        other => panic!("expected InvalidState, got {other:?}"),
    }
}

#[test]
fn states_follow_the_connection() {
    let (_rig, endpoint, link) = connecting();
    assert_eq!(endpoint.state(), EndpointState::Connecting);
    link.finish_connect(Ok(b"welcome"));
    assert_eq!(endpoint.state(), EndpointState::Connected);
    assert_eq!(&*endpoint.wait_connected(SOON).unwrap(), b"welcome");
    endpoint.disconnect();
    assert_eq!(endpoint.state(), EndpointState::Dead);
    assert_eq!(endpoint.wait_disconnected(SOON).unwrap(), DisconnectReason::Local);
    endpoint.disconnect();
    assert!(matches!(endpoint.wait_disconnected(NOW), Err(Error::TimedOut(_))));
}

#[test]
fn a_message_says_that_the_connection_stands() {
    let rig = Rig::new();
    let endpoint = rig.domain.endpoint().build(&rig.queue).unwrap();
    let link = rig.control.link(endpoint.id());
    link.connect_slowly();
    let listener = rig.domain.listen(NOWHERE).unwrap();
    rig.control.request(listener.id(), &[]);
    assert!(matches!(rig.domain.events().poll(), Some(Event::ConnectRequest { .. })));
    listener.accept(SOON).unwrap().accept(&endpoint, &[]).unwrap();
    endpoint.recv(&rig.region, 7).unwrap();
    assert_eq!(endpoint.state(), EndpointState::Connecting);
    assert!(link.bring(4, None));
    let completion = rig.queue.poll_one().unwrap().unwrap();
    assert_eq!((completion.context, completion.status), (7, Status::Ok));
    assert_eq!(endpoint.state(), EndpointState::Connected);
    assert!(endpoint.wait_connected(NOW).unwrap().is_empty());
    // What the provider says later is no news.
    link.finish_connect(Ok(&[]));
    assert!(rig.domain.events().poll().is_none());
}

#[test]
fn an_endpoint_connects_once() {
    let rig = Rig::new();
    assert!(is_state(rig.endpoint.connect(NOWHERE, &[])).contains("Connected"));
    let (_rig, endpoint, link) = connecting();
    assert!(is_state(endpoint.connect(NOWHERE, &[])).contains("Connecting"));
    link.finish_connect(Err(Error::Refused(None)));
    assert!(is_state(endpoint.connect(NOWHERE, &[])).contains("Dead"));
}

#[test]
fn each_outcome_is_told_once() {
    let outcomes = || {
        let data: Box<[u8]> = (*b"no").into();
        [
            Error::Refused(None),
            Error::TimedOut(None),
            Error::DeviceLost,
            Error::Rejected(Box::new(data)),
        ]
    };
    for (outcome, same) in outcomes().into_iter().zip(outcomes()) {
        let (rig, endpoint, link) = connecting();
        link.finish_connect(Err(outcome));
        assert_eq!(endpoint.state(), EndpointState::Dead);
        let error = endpoint.wait_connected(SOON).unwrap_err();
        assert_eq!(format!("{error:?}"), format!("{:?}", same.at(NOWHERE)));
        assert!(rig.domain.events().poll().is_none());
        assert!(matches!(endpoint.wait_connected(SOON), Err(Error::NotConnected)));
    }
}

#[test]
fn errors_of_connecting_name_the_address() {
    let (_rig, endpoint, link) = connecting();
    let waited = endpoint.wait_connected(NOW).unwrap_err();
    assert!(matches!(&waited, Error::TimedOut(Some(addr)) if **addr == NOWHERE), "{waited}");
    link.finish_connect(Err(Error::Refused(None)));
    let refused = endpoint.wait_connected(SOON).unwrap_err();
    assert!(refused.to_string().starts_with(&format!("{NOWHERE}: the peer refused")), "{refused}");

    let rig = Rig::new();
    let listener = rig.domain.listen(NOWHERE).unwrap();
    let waited = listener.accept(NOW).unwrap_err();
    assert!(waited.to_string().starts_with(&listener.local_addr().to_string()), "{waited}");
}

#[test]
fn an_outcome_is_told_though_its_completions_come_first() {
    let (rig, endpoint, link) = connecting();
    endpoint.recv(&rig.region, 1).unwrap();
    link.finish_connect_late(Error::Refused(None), || {
        assert_eq!(rig.drain(), [(1, Status::Canceled)]);
    });
    assert!(matches!(endpoint.wait_connected(SOON), Err(Error::Refused(_))));
}

#[test]
fn waiting_for_the_outcome_takes_time_out_and_goes_on() {
    let (_rig, endpoint, link) = connecting();
    let start = Instant::now();
    let wait = Duration::from_millis(30);
    assert!(matches!(endpoint.wait_connected(Some(wait)), Err(Error::TimedOut(_))));
    assert!(start.elapsed() >= wait);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| endpoint.wait_connected(SOON));
        link.finish_connect(Ok(b"late"));
        assert_eq!(&*waiter.join().unwrap().unwrap(), b"late");
    });
    assert!(is_state(endpoint.wait_connected(SOON)).contains("taken before"));
}

#[test]
fn waiting_when_nobody_connects_is_an_error() {
    let rig = Rig::new();
    let endpoint = rig.domain.endpoint().build(&rig.queue).unwrap();
    assert!(is_state(endpoint.wait_connected(None)).contains("was never connected"));
}

#[test]
fn private_data_has_limits() {
    let rig = Rig::new();
    let endpoint = rig.domain.endpoint().build(&rig.queue).unwrap();
    let text = invalid(endpoint.connect(NOWHERE, &[0; 49]));
    assert!(text.contains("49 bytes") && text.contains("at most 48"), "{text}");
    assert_eq!(endpoint.state(), EndpointState::Idle);
    endpoint.connect(NOWHERE, &[7; 48]).unwrap();
    assert_eq!(&*endpoint.wait_connected(SOON).unwrap(), [7; 48]);
}

#[test]
fn a_request_is_answered_once() {
    let rig = Rig::new();
    let listener = rig.domain.listen(NOWHERE).unwrap();
    let id = rig.control.request(listener.id(), b"hello\0");
    let mut request = listener.accept(SOON).unwrap();
    assert_eq!(request.private_data(), b"hello\0");
    assert!(matches!(listener.accept(NOW), Err(Error::TimedOut(_))));
    // Wrong answers leave it open.
    assert!(invalid(request.reject(&[0; 113])).contains("at most 112"));
    assert!(invalid(request.accept(&rig.endpoint, &[0; 161])).contains("at most 160"));
    assert!(is_state(request.accept(&rig.endpoint, &[])).contains("Connected"));
    let (other, _) = domain();
    let queue = other.completion_queue(256).unwrap();
    let foreign = other.endpoint().build(&queue).unwrap();
    assert!(invalid(request.accept(&foreign, &[])).contains("different domains"));
    let endpoint = rig.domain.endpoint().build(&rig.queue).unwrap();
    request.accept(&endpoint, &[0; 160]).unwrap();
    endpoint.wait_connected(SOON).unwrap();
    assert!(is_state(request.accept(&endpoint, &[])).contains("answered before"));
    assert!(is_state(request.reject(&[])).contains("answered before"));
    drop(request);
    assert_eq!(rig.control.rejected(), []);
    // Dropped unanswered means no.
    let second = rig.control.request(listener.id(), &[]);
    assert_ne!(second, id);
    drop(listener.poll().unwrap());
    assert_eq!(rig.control.rejected(), [(second, vec![])]);
    rig.control.request(listener.id(), &[]);
    listener.poll().unwrap().reject(&[5; 112]).unwrap();
    assert_eq!(rig.control.rejected()[1].1, [5; 112]);
}

#[test]
fn a_request_outlives_its_listener() {
    let rig = Rig::new();
    let listener = rig.domain.listen(NOWHERE).unwrap();
    rig.control.request(listener.id(), &[]);
    let mut request = listener.poll().unwrap();
    drop(listener);
    assert_eq!(rig.control.listeners(), 0);
    let endpoint = rig.domain.endpoint().build(&rig.queue).unwrap();
    request.accept(&endpoint, &[]).unwrap();
    endpoint.wait_connected(SOON).unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn shutdown_lets_what_is_posted_finish() {
    let rig = Rig::new();
    rig.link.hold();
    (0..4).for_each(|context| rig.endpoint.post(&rig.write(context)).unwrap());
    rig.endpoint.recv(&rig.region, 10).unwrap();
    assert!(matches!(rig.endpoint.shutdown(Duration::from_millis(20)), Err(Error::TimedOut(_))));
    assert_eq!(rig.endpoint.state(), EndpointState::Connected);
    std::thread::scope(|scope| {
        let shutdown = scope.spawn(|| rig.endpoint.shutdown(Duration::from_secs(30)));
        std::thread::sleep(Duration::from_millis(5));
        rig.link.release(4);
        shutdown.join().unwrap().unwrap();
    });
    let mut expected = crate::rig::run(0, 4, Status::Ok);
    expected.push((10, Status::Canceled));
    assert_eq!(rig.drain(), expected);
    assert!(matches!(rig.endpoint.shutdown(Duration::ZERO), Err(Error::NotConnected)));
}

#[test]
fn events_come_in_order_and_once() {
    let rig = Rig::new();
    let events = rig.domain.events();
    let endpoint = rig.domain.endpoint().build(&rig.queue).unwrap();
    let id = endpoint.id();
    endpoint.connect(NOWHERE, b"data").unwrap();
    endpoint.disconnect();
    // A provider that repeats itself.
    let link = rig.control.link(id);
    link.report(Event::Connected { endpoint: id, data: [].into() });
    link.report(Event::ConnectFailed { endpoint: id, error: Error::Refused(None) });
    link.report(Event::Disconnected { endpoint: id, reason: DisconnectReason::PeerLost });
    assert!(matches!(events.poll(), Some(Event::Connected { endpoint, data })
        if endpoint == id && &*data == b"data"));
    assert!(matches!(events.poll(), Some(Event::Disconnected { endpoint, reason })
        if endpoint == id && reason == DisconnectReason::Local));
    assert!(events.poll().is_none());
}

#[test]
fn a_lost_device_is_told_once_and_takes_no_more_endpoints() {
    let rig = Rig::new();
    rig.link.report(Event::DeviceLost);
    rig.link.report(Event::DeviceLost);
    let events = rig.domain.events();
    assert!(matches!(events.poll(), Some(Event::DeviceLost)));
    assert!(events.poll().is_none());
    assert!(matches!(rig.domain.endpoint().build(&rig.queue), Err(Error::DeviceLost)));
}

#[test]
fn of_the_port_only_the_newest_event_waits() {
    let rig = Rig::new();
    let events = rig.domain.events();
    for event in [Event::PortDown, Event::PortActive, Event::PortDown] {
        rig.link.report(event);
    }
    assert!(matches!(events.wait(NOW), Ok(Event::PortDown)));
    assert!(events.poll().is_none());
    rig.link.report(Event::PortActive);
    assert!(matches!(events.poll(), Some(Event::PortActive)));
}

#[test]
fn with_the_device_lost_later_calls_say_so() {
    let rig = Rig::new();
    let listener = rig.domain.listen(NOWHERE).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| listener.accept(None).map(drop));
        rig.link.report(Event::DeviceLost);
        assert!(matches!(waiter.join().unwrap(), Err(Error::DeviceLost)));
    });
    rig.link.lose(DisconnectReason::DeviceLost);
    let batch = rig.endpoint.post_batch(&[rig.write(1)]).unwrap_err();
    assert!(matches!(batch.error, Error::DeviceLost), "{batch}");
    let calls = [
        rig.endpoint.post(&rig.write(1)),
        rig.endpoint.recv(&rig.region, 1),
        rig.endpoint.connect(NOWHERE, b""),
        rig.endpoint.wait_connected(None).map(drop),
    ];
    for call in calls {
        assert!(matches!(call, Err(Error::DeviceLost)), "{call:?}");
    }
}

#[test]
fn the_end_of_a_connection_wakes_who_waits_for_it() {
    let rig = Rig::new();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| rig.endpoint.wait_disconnected(None));
        rig.link.lose(DisconnectReason::Remote);
        assert_eq!(waiter.join().unwrap().unwrap(), DisconnectReason::Remote);
    });
    let second = rig.domain.endpoint().build(&rig.queue).unwrap();
    connect(&second);
    assert_eq!(second.state(), EndpointState::Connected, "the others live");
}
