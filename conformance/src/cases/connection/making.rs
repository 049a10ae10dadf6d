//! How connections are established.

use std::net::SocketAddr;

use super::steps::{connect_failed, connected, message, next_request};
use crate::prelude::*;

pub(super) fn connect_basic(rig: &Rig) -> Outcome {
    for ip in [Some(rig.ip(rig.domain_b())), rig.ip_v6()].into_iter().flatten() {
        let (a, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
        let listener = rig.domain_b().listen(SocketAddr::new(ip, 0))?;
        check!(listener.poll().is_none(), "no request yet");
        check_eq!(a.state(), EndpointState::Idle, "state before connecting");
        a.connect(listener.local_addr(), &[])?;
        check_eq!(a.state(), EndpointState::Connecting, "state while connecting");

        let id = listener.id();
        check_matches!(b.next_event()?, Event::ConnectRequest { listener } if *listener == id, "event");
        let Some(mut request) = listener.poll() else { fail!("the request", "none") };
        check!(listener.poll().is_none(), "one request only");
        check_bytes!(request.private_data(), [0; 0], "private data where none was given");
        request.accept(&b, &[])?;
        for end in [&a, &b] {
            check_matches!(
                end.next_event()?,
                Event::Connected { endpoint, data } if *endpoint == end.id() && data.is_empty(),
                "the event of {end:?}"
            );
            check_eq!(end.state(), EndpointState::Connected, "state when connected");
        }

        let again = a.connect(listener.local_addr(), &[]);
        check_err!(again, Error::InvalidState(_), "connecting once more");
        message(&a, &b, rig.pattern(0))?;
        message(&b, &a, rig.pattern(1))?;
        a.expect_no_event_for(Duration::from_millis(50))?;
        b.expect_no_event_for(Duration::from_millis(50))?;
    }
    Ok(())
}

pub(super) fn connect_timeout(rig: &Rig) -> Outcome {
    const TIMER: Duration = Duration::from_secs(1);
    let a = rig.end_with(rig.domain_a(), |attr| attr.connect_timeout = TIMER)?;
    let listener = rig.listen(rig.domain_b())?;
    let start = Instant::now();
    a.connect(listener.local_addr(), b"hello?")?;
    check_matches!(connect_failed(&a)?, Error::TimedOut(_), "why the attempt ended");
    let (taken, range) = (start.elapsed(), TIMER..rig.scaled(2 * TIMER));
    check!(range.contains(&taken), "the end in {range:?}, not after {taken:?}");
    check_eq!(a.state(), EndpointState::Dead, "state when timed out");
    a.expect_no_event_for(Duration::from_millis(200))
}

pub(super) fn accept_late(rig: &Rig) -> Outcome {
    let (a, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    let listener = rig.listen(rig.domain_b())?;
    a.connect(listener.local_addr(), b"patience")?;
    let mut request = next_request(rig, &listener)?;
    // By the clock, not scaled: the connector's time-out is its default of 5 s.
    let waited = a.wait_connected(Some(Duration::from_secs(2)));
    check_err!(waited, Error::TimedOut(_), "waiting for 2 s only");
    check_eq!(a.state(), EndpointState::Connecting, "state after such a wait");
    request.accept(&b, b"at last")?;
    check_bytes!(a.expect_connected()?, b"at last", "private data of the acceptor");
    b.expect_connected()?;
    message(&a, &b, rig.pattern(0))?;
    message(&b, &a, rig.pattern(1))
}

pub(super) fn prepost_recv(rig: &Rig) -> Outcome {
    const COUNT: usize = 10;
    let (a, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    let (near, far) = (a.buffer(2 * COUNT * 64)?, b.buffer(2 * COUNT * 64)?);
    let slot = |i: usize| i * 64..(i + 1) * 64;
    near.put_pattern(..COUNT * 64, rig.pattern(0))?;
    far.put_pattern(..COUNT * 64, rig.pattern(1))?;
    let listener = rig.listen(rig.domain_b())?;
    // Some when idle, some while connecting.
    for i in 0..COUNT / 2 {
        a.recv(near.slice(slot(COUNT + i)), i as u64)?;
        b.recv(far.slice(slot(COUNT + i)), i as u64)?;
    }
    a.connect(listener.local_addr(), &[])?;
    let mut request = next_request(rig, &listener)?;
    for i in COUNT / 2..COUNT {
        a.recv(near.slice(slot(COUNT + i)), i as u64)?;
        b.recv(far.slice(slot(COUNT + i)), i as u64)?;
    }
    request.accept(&b, &[])?;
    // Each side sends as soon as it may.
    for (end, buffer) in [(&a, &near), (&b, &far)] {
        end.expect_connected()?;
        for i in 0..COUNT {
            end.post(&Op::send(buffer.slice(slot(i))).unsignaled())?;
        }
    }
    for (end, buffer, pattern) in [(&a, &near, rig.pattern(1)), (&b, &far, rig.pattern(0))] {
        for i in 0..COUNT {
            end.expect(Done::recv(i, 64))?;
        }
        buffer.check_pattern(COUNT * 64.., pattern)?;
    }
    Ok(())
}

pub(super) fn reply_at_once(rig: &Rig) -> Outcome {
    const CONNECTIONS: usize = 32;
    let listener = rig.listen(rig.domain_b())?;
    for _ in 0..CONNECTIONS {
        let (a, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
        let (near, far) = (a.patterned(64, rig.pattern(0))?, b.buffer(64)?);
        a.connect(listener.local_addr(), &[])?;
        b.recv(&far, 1)?;
        next_request(rig, &listener)?.accept(&b, &[])?;
        a.expect_connected()?;
        a.send(&near, 2)?;
        // This side was not asked yet whether it is connected, too.
        b.expect_ok(1)?;
        a.expect_ok(2)?;
        a.recv(&near, 3)?;
        b.run(Op::send(&far), Done::ok(4))?;
        a.expect(Done::recv(3, 64))?;
        let event = b.wait_connected(Some(Duration::ZERO));
        check!(event.is_ok(), "the event of the connection before the message, not {event:?}");
    }
    Ok(())
}

pub(super) fn post_before_connected(rig: &Rig) -> Outcome {
    let (a, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    let (local, target) = (a.filled(8, 0xee)?, b.buffer(64)?);
    let refused = |end: &End, when: &str| -> Outcome {
        for (what, op) in [
            ("a send", Op::send(&local)),
            ("an empty send", Op::send(Slices::none())),
            ("an inject", Op::inject(b"early")),
            ("a write", Op::write(&local, target.at(0))),
            ("an injected write", Op::inject_write(b"early", target.at(0))),
            ("a write with immediate", Op::write(&local, target.at(0)).immediate(7)),
            ("a read", Op::read(&local, target.at(0))),
            ("an add", Op::atomic(AtomicOp::Add, 1u64, target.at(0))),
        ] {
            let posted = end.post(&op.context(66));
            check_err!(posted, Error::NotConnected, "{what} {when}");
        }
        let batch = end.post_batch(&[Op::send(&local), Op::send(&local)]);
        let batch = batch.map_err(|batch| (batch.posted, batch.error));
        let _ = check_matches!(batch, Err((0, Error::NotConnected)), "a batch {when}");
        Ok(())
    };
    refused(&a, "when idle")?;
    let listener = rig.listen(rig.domain_b())?;
    a.connect(listener.local_addr(), &[])?;
    refused(&a, "while connecting")?;
    let mut request = next_request(rig, &listener)?;
    refused(&a, "while the listener has the request")?;
    request.accept(&b, &[])?;
    connected(&a, &b)?;

    // The peer's receives see what is sent from now on, and its memory stays as it is.
    message(&a, &b, rig.pattern(0))?;
    message(&b, &a, rig.pattern(1))?;
    a.expect_none_for(Duration::from_millis(100))?;
    b.expect_none_for(Duration::from_millis(1))?;
    target.check_filled(.., 0)?;
    local.check_filled(.., 0xee)?;
    check_eq!(a.counters().posted_sends, 1, "sends that the endpoint counted");
    Ok(())
}

pub(super) fn acceptor_sends_first(rig: &Rig) -> Outcome {
    let (a, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    let (near, far) = (a.buffer(300)?, b.patterned(100, rig.pattern(0))?);
    a.recv(near.slice(..100), 1)?;
    a.recv(near.slice(100..200), 2)?;
    let listener = rig.listen(rig.domain_b())?;
    a.connect(listener.local_addr(), &[])?;
    next_request(rig, &listener)?.accept(&b, &[])?;
    b.expect_connected()?;
    b.send(&far, 3)?;
    b.post(&Op::write(&far, near.at(200)).immediate(9).context(4))?;
    b.expect_each([3, 4])?;
    a.expect_connected()?;
    a.expect(Done::recv(1, 100))?;
    check_eq!(a.expect_ok(2)?.immediate, Some(9), "immediate of its write");
    near.check_pattern(..100, rig.pattern(0))?;
    near.check_filled(100..200, 0)?;
    near.check_pattern(200.., rig.pattern(0))?;
    message(&a, &b, rig.pattern(1))
}

pub(super) fn cross_connect(rig: &Rig) -> Outcome {
    let (at_a, at_b) = (rig.listen(rig.domain_a())?, rig.listen(rig.domain_b())?);
    let (a_to_b, b_to_a) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    let (a_from_b, b_from_a) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    a_to_b.connect(at_b.local_addr(), b"from a")?;
    b_to_a.connect(at_a.local_addr(), b"from b")?;
    for (listener, from, end) in [(&at_a, b"from b", &a_from_b), (&at_b, b"from a", &b_from_a)] {
        let mut request = next_request(rig, listener)?;
        check_bytes!(request.private_data(), from, "private data of the request");
        request.accept(end, from)?;
        check!(listener.poll().is_none(), "one request at each listener");
    }
    check_bytes!(a_to_b.expect_connected()?, b"from a", "private data of the answer");
    check_bytes!(b_to_a.expect_connected()?, b"from b", "private data of the answer");
    connected(&a_from_b, &b_from_a)?;
    message(&a_to_b, &b_from_a, rig.pattern(0))?;
    message(&b_to_a, &a_from_b, rig.pattern(1))?;
    // The end of the one is not that of the other.
    a_to_b.disconnect();
    check_eq!(b_from_a.expect_disconnected()?, DisconnectReason::Remote, "why it ended");
    message(&a_from_b, &b_to_a, rig.pattern(2))?;
    message(&b_to_a, &a_from_b, rig.pattern(3))
}

pub(super) fn self_connect(rig: &Rig) -> Outcome {
    let domain = rig.domain_a();
    let (a, b) = rig.pair_on(domain, domain)?;
    // One buffer serves both ends, as they are of one domain.
    let buffer = a.buffer(512)?;
    let (bytes, pattern) = (rig.pattern(0).bytes(64), rig.pattern(0));
    buffer.put_pattern(..64, pattern)?;
    for (from, to) in [(&a, &b), (&b, &a)] {
        to.recv(buffer.slice(64..128), 1)?;
        to.recv(buffer.slice(128..192), 2)?;
        to.recv(Slices::none(), 3)?;
        from.post(&Op::send(buffer.slice(..64)).immediate(5).context(4))?;
        from.inject(&bytes, 5)?;
        from.post(&Op::write(buffer.slice(..64), buffer.at(192)).immediate(6).context(6))?;
        from.read(buffer.slice(256..320), buffer.at(0), 7)?;
        from.post(&Op::write(buffer.slice(..64), buffer.at(320)).delivery_complete().context(8))?;
        from.fetch_add(5u64, buffer.slice(384..392), buffer.at(392), 9)?;
        from.compare_swap(5u64, 1, buffer.slice(400..408), buffer.at(392), 10)?;
        from.expect_each(4..=10)?;
        check_eq!(to.expect_ok(1)?.immediate, Some(5), "immediate of the send");
        to.expect(Done::recv(2, 64))?;
        to.expect(Done::recv_write(3, 64, 6))?;
        from.settle(to)?;
        for at in [64, 128, 192, 256, 320] {
            buffer.check_pattern(at..at + 64, pattern)?;
        }
        let words = [384, 392, 400].map(|at| buffer.get::<u64>(at));
        let _ =
            check_matches!(words, [Ok(0), Ok(1), Ok(5)], "old value, sum swapped, value compared");
        buffer.put(64, &[0; 448])?;
    }
    Ok(())
}

pub(super) fn peer_addr(rig: &Rig) -> Outcome {
    for ip in [Some(rig.ip(rig.domain_b())), rig.ip_v6()].into_iter().flatten() {
        let (a, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
        check_eq!((a.local_addr(), a.peer_addr()), (None, None), "addresses before connecting");
        let listener = rig.domain_b().listen(SocketAddr::new(ip, 0))?;
        let at = listener.local_addr();
        check!(at.ip() == ip && at.port() != 0, "{ip} and a port that was chosen, not {at}");
        a.connect(at, &[])?;
        let mut request = next_request(rig, &listener)?;
        let asks = request.peer_addr();
        request.accept(&b, &[])?;
        connected(&a, &b)?;
        check_eq!((a.local_addr(), a.peer_addr()), (Some(asks), Some(at)), "here and there, of a");
        check_eq!((b.local_addr(), b.peer_addr()), (Some(at), Some(asks)), "here and there, of b");
        check!(rig.info().addresses.contains(&asks.ip()), "{asks} to be an address of the device");
    }
    // The address to connect from, where one is asked for.
    let source = rig.ip(rig.domain_a());
    let a = rig.end_with(rig.domain_a(), |attr| attr.source = Some(source))?;
    let b = rig.end(rig.domain_b())?;
    rig.connect(&a, &b)?;
    check_eq!(a.local_addr().map(|addr| addr.ip()), Some(source), "the source that was asked for");
    check_eq!(b.peer_addr(), a.local_addr(), "the source as the peer sees it");
    Ok(())
}

pub(crate) fn source_port(rig: &Rig) -> Outcome {
    // The port of a listener that goes is one that was free.
    let ip = rig.ip(rig.domain_a());
    let listener = rig.domain_a().listen(SocketAddr::new(ip, 0))?;
    let source = listener.local_addr();
    let to = rig.domain_b().listen(SocketAddr::new(rig.ip(rig.domain_b()), 0))?;
    let end = || {
        rig.end_with(rig.domain_a(), |attr| {
            (attr.source, attr.source_port) = (Some(source.ip()), source.port());
        })
    };
    let (a, b) = (end()?, rig.end(rig.domain_b())?);
    check_err!(a.connect(to.local_addr(), &[]), Error::AddrInUse(_), "from a listener's port");
    drop(listener);
    // The call has failed, and can be repeated.
    a.connect(to.local_addr(), &[])?;
    let mut request = next_request(rig, &to)?;
    check_eq!(request.peer_addr(), source, "who asks");
    request.accept(&b, &[])?;
    connected(&a, &b)?;
    check_eq!((a.local_addr(), b.peer_addr()), (Some(source), Some(source)), "here and there");
    Ok(())
}
