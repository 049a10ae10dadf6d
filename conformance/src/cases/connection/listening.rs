//! Listeners, their backlog, and the event queue's descriptor.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use fabric::ListenerAttr;
use fabric_util::wakeup::wait_readable;

use super::steps::{connect_failed, connected, meet, message, next_request};
use crate::end::DEFAULT_TIMEOUT;
use crate::prelude::*;
use crate::sys::in_child;

pub(super) fn refuse(rig: &Rig) -> Outcome {
    let a = rig.end(rig.domain_a())?;
    a.recv(Slices::none(), 1)?;
    a.connect(rig.no_listener(), b"hello?")?;
    check_matches!(connect_failed(&a)?, Error::Refused(_), "why the attempt ended");
    check_eq!(a.state(), EndpointState::Dead, "state when refused");
    a.expect(Done::canceled(1))?;
    let outcome = a.wait_connected(Some(Duration::from_millis(1)));
    check_err!(outcome, Error::NotConnected, "waiting for an outcome that was taken");
    a.expect_no_event_for(Duration::from_millis(100))?;
    a.expect_none_for(Duration::from_millis(1))
}

pub(super) fn listen_unspecified(rig: &Rig) -> Outcome {
    let domain = rig.domain_b();
    let listener = domain.listen((Ipv4Addr::UNSPECIFIED, 0).into())?;
    let at = listener.local_addr();
    check!(at.port() != 0, "a port, not {at}");
    let has = &domain.info().addresses;
    let first = has.iter().find(|ip| ip.is_ipv4());
    if at.ip().is_unspecified() {
        check!(has.len() > 1, "{at} on a device for several interfaces, not {has:?}");
    } else {
        check_eq!(Some(&at.ip()), first, "the device's first address of the family");
    }
    // Either way it is reached at an address of the device.
    let ip = if at.ip().is_unspecified() { rig.ip(domain) } else { at.ip() };
    let (a, b) = (rig.end(rig.domain_a())?, rig.end(domain)?);
    a.connect((ip, at.port()).into(), &[])?;
    next_request(rig, &listener)?.accept(&b, &[])?;
    connected(&a, &b)?;
    a.settle(&b)
}

pub(super) fn listen_twice(rig: &Rig) -> Outcome {
    let listener = rig.listen(rig.domain_a())?;
    let at = listener.local_addr();
    let other = rig.extra_domain()?;
    for (whose, domain) in [("the same", rig.domain_a()), ("another", &other)] {
        check_err!(domain.listen(at), Error::AddrInUse(_), "a second listener of {whose} domain");
    }
    // The first one is unharmed, and the address is free when it is gone.
    let (a, b) = (rig.end(rig.domain_b())?, rig.end(rig.domain_a())?);
    meet(rig, &listener, &a, &b)?;
    drop(listener);
    let listener = other.listen(at)?;
    check_eq!(listener.local_addr(), at, "address of the next listener");
    let (a, b) = (rig.end(rig.domain_b())?, rig.end(&other)?);
    meet(rig, &listener, &a, &b)?;
    Ok(())
}

pub(super) fn listen_close_pending(rig: &Rig) -> Outcome {
    let (taken, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    let waiting = [rig.end(rig.domain_a())?, rig.end(rig.domain_a())?];
    let listener = rig.listen(rig.domain_b())?;
    taken.connect(listener.local_addr(), b"first")?;
    let mut request = next_request(rig, &listener)?;
    check_matches!(b.next_event()?, Event::ConnectRequest { .. }, "the first event");
    // The event says that a request waits; it is not taken.
    waiting[0].connect(listener.local_addr(), b"second")?;
    check_matches!(b.next_event()?, Event::ConnectRequest { .. }, "the second event");
    // On its way, wherever that is.
    waiting[1].connect(listener.local_addr(), b"third")?;
    drop(listener);
    for (i, end) in waiting.iter().enumerate() {
        let outcome = end.wait_connected(Some(rig.scaled(DEFAULT_TIMEOUT)));
        check_err!(outcome, Error::Refused(_), "the outcome of waiting end {i}");
    }
    request.accept(&b, b"still")?;
    check_bytes!(taken.expect_connected()?, b"still", "accept data of the request that was taken");
    b.expect_connected()?;
    message(&taken, &b, rig.pattern(0))?;
    b.expect_no_event_for(Duration::from_millis(50))
}

pub(super) fn listen_close_forked(rig: &Rig) -> Outcome {
    let time = rig.scaled(DEFAULT_TIMEOUT);
    let listener = rig.listen(rig.domain_b())?;
    let at = listener.local_addr();
    let ends = [rig.end(rig.domain_a())?, rig.end(rig.domain_a())?];
    let (mut here, child) = UnixStream::pair()?;
    here.set_read_timeout(Some(time))?;
    thread::scope(|scope| {
        // It has a copy of each descriptor until it hears a byte.
        let ended = scope.spawn(|| {
            in_child(time, || match (&child).write(b"1").and_then(|_| (&child).read(&mut [0])) {
                Ok(_) => String::new(),
                Err(error) => error.to_string(),
            })
        });
        here.read_exact(&mut [0])?;
        ends[0].connect(at, b"on its way")?;
        drop(listener);
        ends[1].connect(at, b"late")?;
        for end in &ends {
            // Long before the time for it is over.
            let outcome = end.wait_connected(Some(rig.scaled(DEFAULT_TIMEOUT / 4)));
            check_err!(outcome, Error::Refused(_), "the outcome of connecting");
        }
        here.write_all(b"1")?;
        let said = ended.join().map_err(|_| Failed::new("a child", "a panic"))?;
        check_eq!(said?, "", "what the child says");
        Ok(())
    })
}

/// The backlog that a case wants, and no other setting.
fn backlog(requests: usize) -> ListenerAttr {
    let mut attr = ListenerAttr::default();
    attr.backlog = requests;
    attr
}

pub(super) fn backlog_burst(rig: &Rig) -> Outcome {
    const COUNT: usize = 64;
    let listener = rig.domain_b().listen_with(rig.addr(rig.domain_b()), &backlog(COUNT))?;
    let ends = |domain| (0..COUNT).map(|_| rig.end(domain)).collect::<Result<Vec<_>, _>>();
    let (connecting, accepting) = (ends(rig.domain_a())?, ends(rig.domain_b())?);
    for (i, end) in connecting.iter().enumerate() {
        end.connect(listener.local_addr(), &[i as u8, 1])?;
    }
    let mut seen = [false; COUNT];
    for end in &accepting {
        let mut request = next_request(rig, &listener)?;
        let &[who, 1] = request.private_data() else {
            fail!("two bytes of connect data", "{:?}", request.private_data());
        };
        let new = seen.get_mut(usize::from(who)).is_some_and(|seen| !std::mem::replace(seen, true));
        check!(new, "each connector once, not {who} again");
        request.accept(end, &[who, 2])?;
    }
    for (i, end) in connecting.iter().enumerate() {
        check_bytes!(end.expect_connected()?, [i as u8, 2], "accept data of connector {i}");
    }
    for end in &accepting {
        end.expect_connected()?;
    }
    check!(listener.poll().is_none(), "no request more");
    Ok(())
}

pub(super) fn backlog_full(rig: &Rig) -> Outcome {
    const BACKLOG: usize = 4;
    let listener = rig.domain_b().listen_with(rig.addr(rig.domain_b()), &backlog(BACKLOG))?;
    let connecting: Vec<End> =
        (0..BACKLOG + 1).map(|_| rig.end(rig.domain_a())).collect::<Result<_, _>>()?;
    for end in &connecting {
        end.connect(listener.local_addr(), &[])?;
    }
    let refused = match connecting[0].next_event()? {
        Event::ConnectFailed { endpoint, error: Error::Refused(_) } => endpoint,
        event => fail!("ConnectFailed(Refused)", "{event:?}"),
    };
    connecting[0].expect_no_event_for(Duration::from_millis(200))?;
    let waiting: Vec<&End> = connecting.iter().filter(|end| end.id() != refused).collect();
    check_eq!(waiting.len(), BACKLOG, "ends that wait");
    let accepting: Vec<End> =
        (0..BACKLOG).map(|_| rig.end(rig.domain_b())).collect::<Result<_, _>>()?;
    for end in &accepting {
        next_request(rig, &listener)?.accept(end, &[])?;
    }
    for end in waiting.into_iter().chain(&accepting) {
        end.expect_connected()?;
    }
    // There is room again.
    let (a, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    meet(rig, &listener, &a, &b)?;
    Ok(())
}

/// Whether the request of a connector comes to wait at B's listener, or is refused.
fn waits(rig: &Rig, a: &End, until: Instant) -> Result<bool, Failed> {
    let events = rig.events(rig.domain_b());
    loop {
        match a.wait_connected(Some(Duration::from_millis(10))) {
            Err(Error::Refused(_)) => return Ok(false),
            Err(Error::TimedOut(_)) if events.poll().is_some() => return Ok(true),
            Err(Error::TimedOut(_)) if Instant::now() < until => {}
            outcome => fail!("Refused, or a request", "{outcome:?}"),
        }
    }
}

pub(super) fn backlog_left(rig: &Rig) -> Outcome {
    let listener = rig.domain_b().listen_with(rig.addr(rig.domain_b()), &backlog(1))?;
    let (gone, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    gone.connect(listener.local_addr(), b"gone")?;
    check_matches!(b.next_event()?, Event::ConnectRequest { .. }, "the event of the first request");
    drop(gone);
    // Refused until its leaving is known.
    let until = rig.deadline(DEFAULT_TIMEOUT);
    let a = loop {
        let a = rig.end(rig.domain_a())?;
        a.connect(listener.local_addr(), b"here")?;
        if waits(rig, &a, until)? {
            break a;
        }
    };
    let mut request = next_request(rig, &listener)?;
    check_bytes!(request.private_data(), b"here", "who asks");
    request.accept(&b, &[])?;
    connected(&a, &b)?;
    check!(listener.poll().is_none(), "no other request");
    a.settle(&b)
}

pub(super) fn taken_left(rig: &Rig) -> Outcome {
    let listener = rig.domain_b().listen(rig.addr(rig.domain_b()))?;
    let (gone, a) = (rig.end(rig.domain_a())?, rig.end(rig.domain_a())?);
    gone.connect(listener.local_addr(), b"gone")?;
    let left = next_request(rig, &listener)?;
    a.connect(listener.local_addr(), b"here")?;
    let mut here = next_request(rig, &listener)?;
    check!(left.is_waiting() && here.is_waiting(), "both connectors to wait");
    drop(gone);
    rig.eventually(|| {
        check!(!left.is_waiting(), "it to be known that the first connector has left");
        Ok(())
    })?;
    check!(here.is_waiting(), "the second connector to wait on");
    here.reject(b"no")?;
    check!(!here.is_waiting(), "an answered request not to wait");
    Ok(())
}

/// Whether the queue's descriptor is readable now.
fn is_readable(events: &RecordedEvents) -> Result<bool, Failed> {
    Ok(wait_readable(events.as_fd(), Some(Instant::now()))?)
}

/// Sleeps on the queue's descriptor until it is readable.
#[track_caller]
fn sleep_on(rig: &Rig, events: &RecordedEvents) -> Outcome {
    let readable = wait_readable(events.as_fd(), Some(rig.deadline(DEFAULT_TIMEOUT)))?;
    check!(readable, "a readable descriptor");
    Ok(())
}

pub(super) fn events_pollable(rig: &Rig) -> Outcome {
    let (at_a, at_b) = (rig.events(rig.domain_a()), rig.events(rig.domain_b()));
    let (a, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    let refused = rig.end(rig.domain_a())?;
    let nowhere = rig.no_listener();
    let listener = rig.listen(rig.domain_b())?;
    for events in [&at_a, &at_b] {
        check!(!is_readable(events)?, "a quiet descriptor before anything happens");
        check!(events.poll().is_none(), "no event before anything happens");
    }

    a.connect(listener.local_addr(), &[])?;
    sleep_on(rig, &at_b)?;
    check!(is_readable(&at_b)?, "readable as long as the event is not taken");
    check_matches!(at_b.poll(), Some(Event::ConnectRequest { .. }), "the event");
    check!(!is_readable(&at_b)?, "quiet when it is taken");
    next_request(rig, &listener)?.accept(&b, &[])?;

    sleep_on(rig, &at_a)?;
    sleep_on(rig, &at_b)?;
    check_matches!(at_a.poll(), Some(Event::Connected { .. }), "the event");
    check!(!is_readable(&at_a)?, "quiet when it is taken");
    // The wait of an endpoint takes its event too.
    b.expect_connected()?;
    check!(!is_readable(&at_b)?, "quiet when a wait has taken it");

    // Two events: readable until the second is taken.
    refused.connect(nowhere, &[])?;
    sleep_on(rig, &at_a)?;
    a.disconnect();
    sleep_on(rig, &at_b)?;
    check_matches!(at_b.poll(), Some(Event::Disconnected { .. }), "the event");
    check!(!is_readable(&at_b)?, "quiet when it is taken");
    // Reported by the time that the peer has heard of it, and at once by this side.
    check_matches!(at_a.poll(), Some(Event::ConnectFailed { .. }), "the first of two events");
    check!(is_readable(&at_a)?, "readable while the second waits");
    check_matches!(at_a.poll(), Some(Event::Disconnected { .. }), "the second event");
    check!(!is_readable(&at_a)?, "quiet when both are taken");

    // What is dropped takes its events along.
    let (a, b) = rig.pair()?;
    a.disconnect();
    sleep_on(rig, &at_b)?;
    drop(b);
    check!(!is_readable(&at_b)?, "quiet when the endpoint of the event is gone");
    check!(at_b.poll().is_none(), "no event of an endpoint that is gone");
    Ok(())
}
