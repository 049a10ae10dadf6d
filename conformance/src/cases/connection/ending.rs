//! Connections that end before they stand, and what is left of those that stood.

use super::steps::{ended, meet, message, next_request};
use crate::end::DEFAULT_TIMEOUT;
use crate::prelude::*;
use crate::sys::Child;
use crate::usage::Usage;

pub(super) fn cancel_connect(rig: &Rig) -> Outcome {
    let listener = rig.listen(rig.domain_b())?;
    let events = rig.events(rig.domain_a());
    let observer = rig.end(rig.domain_a())?;
    for drops in [true, false] {
        let a = rig.end(rig.domain_a())?;
        let (id, cq) = (a.id(), a.cq().clone());
        a.recv(Slices::none(), 1)?;
        a.connect(listener.local_addr(), &[])?;
        // The listener has it and does not answer, so the attempt is under way for certain.
        let request = next_request(rig, &listener)?;
        let rest = if drops {
            drop(a);
            None
        } else {
            a.disconnect();
            check_eq!(a.state(), EndpointState::Dead, "state when canceled");
            Some(a)
        };
        check_matches!(
            // No end may be left to ask.
            events.wait(Some(rig.connect_timeout()))?,
            Event::ConnectFailed { endpoint, error: Error::Canceled } if *endpoint == id,
            "the event, dropped: {drops}"
        );
        Done::canceled(1).check(&cq.wait_one(Some(rig.scaled(DEFAULT_TIMEOUT)))?)?;
        drop(request);
        if let Some(a) = rest {
            a.disconnect();
            check_err!(a.send(Slices::none(), 2), Error::NotConnected, "a send when canceled");
        }
        observer.expect_no_event_for(Duration::from_millis(100))?;
        check_eq!(cq.poll_one()?, None, "completions after the last");
    }
    Ok(())
}

pub(super) fn accept_gone(rig: &Rig) -> Outcome {
    let listener = rig.listen(rig.domain_b())?;
    for answered_late in [true, false] {
        let a = rig.end(rig.domain_a())?;
        let b =
            rig.end_with(rig.domain_b(), |attr| attr.connect_timeout = Duration::from_secs(2))?;
        b.recv(Slices::none(), 1)?;
        a.connect(listener.local_addr(), &[])?;
        let mut request = next_request(rig, &listener)?;
        check_matches!(b.next_event()?, Event::ConnectRequest { .. }, "the event of the request");
        drop(a);
        if answered_late {
            // Long enough for the news of its leaving to be here.
            b.expect_no_event_for(Duration::from_millis(100))?;
        }
        request.accept(&b, b"too late")?;
        ended(&b)?;
        b.expect(Done::canceled(1))?;
        check_eq!(b.state(), EndpointState::Dead, "state when the connector was gone");
        let outcome = b.wait_connected(Some(Duration::from_millis(1)));
        check_err!(outcome, Error::NotConnected, "the outcome of accepting");
        check_err!(b.send(Slices::none(), 2), Error::NotConnected, "a send without a peer");
        b.expect_no_event_for(Duration::from_millis(100))?;
    }
    // Neither does rejecting one that has left fail.
    let a = rig.end(rig.domain_a())?;
    a.connect(listener.local_addr(), &[])?;
    let mut request = next_request(rig, &listener)?;
    drop(a);
    request.reject(b"too late")?;
    Ok(())
}

/// The connection is established all the same, and its end is one that the peer wanted.
pub(super) fn dropped_at_once(rig: &Rig) -> Outcome {
    let listener = rig.listen(rig.domain_b())?;
    for round in 0..rig.count(30, 600) {
        let (a, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
        a.connect(listener.local_addr(), &[])?;
        next_request(rig, &listener)?.accept(&b, &[])?;
        let (left, other) = if round % 3 == 0 { (b, a) } else { (a, b) };
        if round % 3 == 1 {
            // As soon as an event says so; the next time, as soon as it is so.
            event_of(&left, |event| matches!(event, Event::Connected { .. }))?;
        } else if round % 3 == 2 {
            while left.state() == EndpointState::Connecting {
                std::hint::spin_loop();
            }
        }
        let (start, limit) = (Instant::now(), rig.scaled(Duration::from_secs(2)));
        drop(left);
        event_of(&other, |event| matches!(event, Event::Connected { .. }))?;
        event_of(&other, |event| {
            matches!(event, Event::Disconnected { reason: DisconnectReason::Remote, .. })
        })?;
        let taken = start.elapsed();
        check!(taken < limit, "the end within {limit:?}, in round {round} not after {taken:?}");
    }
    Ok(())
}

/// The next event of an endpoint is that. Those of others, which were dropped, may come before it.
fn event_of(end: &End, is_that: impl Fn(&Event) -> bool) -> Outcome {
    loop {
        let event = end.next_event()?;
        if event.endpoint() == Some(end.id()) {
            check!(is_that(&event), "another event than {event:?}");
            return Ok(());
        }
    }
}

pub(super) fn accept_half_open(rig: &Rig) -> Outcome {
    const TIMER: Duration = Duration::from_secs(1);
    let b = rig.end_with(rig.domain_b(), |attr| attr.connect_timeout = TIMER)?;
    b.recv(Slices::none(), 1)?;
    let listener = rig.listen(rig.domain_b())?;
    let (target, at) = (rig.target().clone(), listener.local_addr());
    let connector = Child::run(|| {
        let attempt = || -> fabric::Result<()> {
            let domain = target.open()?;
            let queue = domain.completion_queue(256)?;
            let endpoint = domain.endpoint().build(&queue)?;
            endpoint.connect(at, b"from a child")?;
            endpoint.wait_connected(None)?;
            endpoint.wait_disconnected(None).map(drop)
        };
        // The parent notices whatever goes wrong.
        let _ = attempt();
    })?;
    let mut request = next_request(rig, &listener)?;
    check_bytes!(request.private_data(), b"from a child", "private data of the request");
    check_matches!(b.next_event()?, Event::ConnectRequest { .. }, "the event of the request");
    // Its host is there and its descriptors are open; it just never says anything again.
    connector.stop()?;
    let start = Instant::now();
    request.accept(&b, &[])?;
    ended(&b)?;
    let (taken, limit) = (start.elapsed(), TIMER + rig.scaled(Duration::from_secs(1)));
    check!(taken < limit, "the end within {limit:?}, not after {taken:?}");
    b.expect(Done::canceled(1))?;
    drop(connector);
    b.expect_no_event_for(Duration::from_millis(100))?;

    // The listener is none the worse.
    let (a, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    meet(rig, &listener, &a, &b)?;
    Ok(())
}

pub(super) fn reconnect_1000(rig: &Rig) -> Outcome {
    const WARM_UP: usize = 50;
    const MAX_GROWTH: usize = 16 << 20;
    let once = |i: usize| -> Outcome {
        let (a, b) = rig.pair()?;
        message(&a, &b, rig.pattern(i))?;
        // In all the ways in which a connection ends, both sides at once included.
        match i % 4 {
            0 => a.shutdown(rig.scaled(DEFAULT_TIMEOUT))?,
            1 => a.disconnect(),
            2 => drop(a),
            _ => return Ok(()),
        }
        b.expect_disconnected()?;
        Ok(())
    };
    // Allocators, tables and the like get their size.
    for i in 0..WARM_UP {
        once(i)?;
    }
    let before = Usage::at_rest()?;
    for i in 0..rig.bulk(1000) {
        once(i)?;
    }
    rig.expect_no_more(&before, |held| held.resident_bytes, MAX_GROWTH)
}
