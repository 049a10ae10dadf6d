//! Connections that are closed.

use super::flushed::{CLOSED, PEER_CLOSED, check_flushed, ends, take};
use crate::cases::crowd::joined;
use crate::cases::places::{Slots, Staggered};
use crate::prelude::*;

pub(super) fn close_flush(rig: &Rig) -> Outcome {
    const MATCHED: usize = 6;
    const RECEIVES: usize = 8;
    const LEN: usize = 10_000;
    for mode in 0..4 {
        let (a, b) = rig.pair()?;
        let (local, remote) = (a.buffer(LEN)?, b.buffer(LEN)?);
        let (into, sink) = (a.buffer(LEN)?, b.buffer(LEN)?);
        for i in 0..MATCHED {
            b.recv(&sink, i as u64)?;
        }
        for i in 0..RECEIVES {
            a.recv(&into, i as u64)?;
        }
        // The last send finds no receive, nor does what is behind it get on.
        let mut ops: Vec<_> = (0..=MATCHED).map(|_| Op::send(&local)).collect();
        ops.extend([
            Op::write(&local, remote.at(0)),
            Op::read(&into, remote.at(0)),
            Op::fetch_atomic(AtomicOp::Add, 1u64, into.slice(..8), remote.at(0)),
            Op::atomic(AtomicOp::Add, 1u16, remote.at(8)),
            Op::inject(b"unsignaled").unsignaled(),
            Op::send(&local).fence(),
        ]);
        let count = ops.len();
        let ops: Vec<_> = ops.into_iter().zip(0..).map(|(op, i)| op.context(i)).collect();
        a.post_batch(&ops)?;
        // The other direction has an end, too.
        for i in 0..RECEIVES / 2 {
            b.send(&remote, i as u64)?;
        }
        b.read(&sink, local.at(0), RECEIVES as u64 / 2)?;
        let queues = [a.cq().clone(), b.cq().clone()];
        let names = [a.id(), b.id()];
        let mut ends = [Some(a), Some(b)];
        let (closes, drops) = (mode % 2, mode >= 2);
        if drops {
            ends[closes] = None;
        } else if let Some(end) = &ends[closes] {
            end.disconnect();
        }

        let counts = [(count, RECEIVES), (RECEIVES / 2 + 1, MATCHED)];
        for (i, (sends, receives)) in counts.into_iter().enumerate() {
            let (queue, name) = (&queues[i], names[i]);
            let ways = if i == closes { CLOSED } else { PEER_CLOSED };
            let done = take(rig, queue, sends + receives)?;
            let side = |receive| done.iter().filter(move |one| one.kind.is_receive() == receive);
            let good = check_flushed("operations of the send queue", sends, ways, side(false))?;
            // The send without a receive cannot go well, nor can what waits behind it.
            let max = if sends == count { MATCHED } else { sends };
            check!(good <= max, "at most {max} operations Ok, not {good}, mode {mode}");
            check_flushed("receives", receives, CLOSED, side(true))?;
            check!(done.iter().all(|one| one.endpoint == name), "completions of {name} alone");
            check_eq!(queue.poll_one()?, None, "a completion too many");
        }
        for (i, end) in ends.iter().enumerate().filter_map(|(i, end)| Some((i, end.as_ref()?))) {
            let reason = end.expect_disconnected()?;
            let expected =
                if i == closes { DisconnectReason::Local } else { DisconnectReason::Remote };
            check_eq!(reason, expected, "why the connection ended, mode {mode}");
            check_err!(end.send(Slices::none(), 1), Error::NotConnected, "a send on the dead end");
            end.expect_no_event_for(Duration::from_millis(1))?;
        }
        remote.check_filled(.., 0)?;
    }
    Ok(())
}

pub(super) fn peer_close(rig: &Rig) -> Outcome {
    const RECEIVES: u64 = 5;
    for mode in 0..5 {
        // A domain of its own, so that all of it can go.
        let domain = rig.target().open()?;
        let queue = domain.completion_queue(256)?;
        let peer = rig.builder(&domain).build(&queue)?;
        let listener = rig.listen(rig.domain_a())?;
        let a = rig.end(rig.domain_a())?;
        peer.connect(listener.local_addr(), &[])?;
        let mut request = listener.accept(Some(rig.connect_timeout()))?;
        a.recv_empty(0..RECEIVES)?;
        request.accept(&a, &[])?;
        a.expect_connected()?;
        peer.wait_connected(Some(rig.connect_timeout()))?;
        drop(listener);
        peer.inject(b"", 1)?;
        a.expect_ok(0)?;
        // It stays in flight to the end.
        a.inject(b"", 9)?;

        let start = Instant::now();
        match mode {
            0 => peer.disconnect(),
            1 => drop(peer),
            2 => peer.shutdown(rig.scaled(Duration::from_secs(5)))?,
            3 => {
                peer.disconnect();
                drop((peer, queue, domain));
            }
            _ => {
                drop((domain, queue));
                drop(peer);
            }
        }
        a.expect_closed_by_peer()?;
        let (took, limit) = (start.elapsed(), rig.scaled(Duration::from_secs(5)));
        check!(took < limit, "the end known within {limit:?}, not after {took:?}");
        check_eq!(a.state(), EndpointState::Dead, "state when the peer has closed");
        let done = a.take(RECEIVES as usize)?;
        let expected: Vec<_> = (1..RECEIVES).map(|i| (i, Status::Canceled)).collect();
        check_eq!(ends(&done, true), expected, "the receives that were left, mode {mode}");
        let in_flight = &ends(&done, false)[..];
        check_matches!(in_flight, [(9, Status::Canceled | Status::PeerLost)], "send, mode {mode}");
        check_err!(a.recv(Slices::none(), 8), Error::NotConnected, "a receive on the dead end");
        check_err!(a.inject(b"", 8), Error::NotConnected, "a send on the dead end");
        a.expect_none_for(Duration::from_millis(20))?;
        a.expect_no_event_for(Duration::from_millis(20))?;
    }
    Ok(())
}

pub(super) fn shutdown_drains(rig: &Rig) -> Outcome {
    const MESSAGES: usize = 32;
    const LEN: usize = 50_000;
    let patience = rig.scaled(Duration::from_secs(10));
    for quiet in [false, true] {
        let (a, b) = rig.pair()?;
        let source = Staggered::new(rig, &a, LEN, MESSAGES)?;
        let sink = Slots::new(&b, MESSAGES, LEN)?;
        let (target, old) = (b.buffer(16)?, a.buffer(8)?);
        a.recv(Slices::none(), 99)?;
        let mut ops: Vec<_> = (0..MESSAGES).map(|i| Op::send(source.slice(i, LEN))).collect();
        ops.push(Op::inject_write(b"written.", target.at(8)));
        ops.push(Op::fetch_atomic(AtomicOp::Add, 7u64, old.slice(..), target.at(0)));
        let count = ops.len();
        for (op, i) in ops.into_iter().zip(0..) {
            let op = op.context(i);
            a.post(&if quiet { op.unsignaled() } else { op })?;
        }
        // There is no receive for the first: it is not done, and the connection stays.
        let refused = a.shutdown(Duration::from_millis(50));
        check_err!(refused, Error::TimedOut(_), "a shutdown while a send waits");
        check_eq!(a.state(), EndpointState::Connected, "state when shutdown gave up");
        a.expect_no_event_for(Duration::from_millis(1))?;
        // The peer's receives come one after the other.
        thread::scope(|scope| -> Outcome {
            let receiver = scope.spawn(|| -> Outcome {
                for i in 0..MESSAGES {
                    b.recv(sink.slot(i), i as u64)?;
                    b.expect(Done::recv(i, LEN))?;
                }
                Ok(())
            });
            let shut = a.shutdown(patience);
            joined(receiver)?;
            Ok(shut?)
        })?;
        check_eq!(a.expect_disconnected()?, DisconnectReason::Local, "the reason here");
        b.expect_closed_by_peer()?;
        let signaled = if quiet { 0 } else { count };
        let done = a.take(1 + signaled)?;
        let sends = done.iter().filter(|one| !one.kind.is_receive());
        let good = check_flushed("operations", signaled, CLOSED, sends)?;
        check_eq!(good, signaled, "operations that went well");
        check_eq!(ends(&done, true), [(99, Status::Canceled)], "the receive that was left");
        check_eq!(a.cq().poll_one()?, None, "a completion too many");
        for i in 0..MESSAGES {
            check_bytes!(sink.seen(i, LEN)?, source.bytes(i, LEN), "message {i}");
        }
        rig.eventually(|| {
            check_eq!(target.get::<u64>(0)?, 7, "the word that was added to");
            check_bytes!(target.bytes(8..)?, b"written.", "what was written");
            Ok(())
        })?;
        check_err!(a.shutdown(patience), Error::NotConnected, "a shutdown of the dead end");
    }
    Ok(())
}

pub(super) fn double_close(rig: &Rig) -> Outcome {
    // Of both sides at once, and again.
    let (a, b) = rig.pair()?;
    a.recv(Slices::none(), 1)?;
    thread::scope(|scope| {
        scope.spawn(|| b.disconnect());
        a.disconnect();
    });
    for end in [&a, &b] {
        let reason = end.wait_disconnected(Some(rig.scaled(Duration::from_secs(10))));
        check_matches!(
            reason.as_ref().ok(),
            Some(DisconnectReason::Local | DisconnectReason::Remote),
            "why the connection ended"
        );
    }
    a.expect(Done::canceled(1))?;
    for _ in 0..3 {
        a.disconnect();
        b.disconnect();
        let late = a.shutdown(Duration::from_millis(1));
        check_err!(late, Error::NotConnected, "a shutdown of the dead end");
    }
    for end in [&a, &b] {
        check_eq!(end.state(), EndpointState::Dead, "state of a closed end");
        end.expect_none_for(Duration::from_millis(10))?;
        end.expect_no_event_for(Duration::from_millis(10))?;
    }
    drop((a, b));

    // Before there is anything to close.
    let (idle, peer) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    idle.recv(Slices::none(), 1)?;
    idle.disconnect();
    idle.disconnect();
    check_eq!(idle.expect_disconnected()?, DisconnectReason::Local, "the reason before connecting");
    check_eq!(idle.state(), EndpointState::Dead, "state when disconnected before connecting");
    idle.expect(Done::canceled(1))?;
    idle.expect_no_event_for(Duration::from_millis(10))?;
    drop(idle);
    let connected = rig.end(rig.domain_a())?;
    rig.connect(&connected, &peer)?;
    connected.settle(&peer)?;
    // Regions, listeners and requests.
    let region = connected.buffer(8)?;
    for _ in 0..3 {
        region.region().close()?;
    }
    let listener = rig.listen(rig.domain_b())?;
    let late = rig.end(rig.domain_a())?;
    late.connect(listener.local_addr(), &[])?;
    let mut request = listener.accept(Some(rig.connect_timeout()))?;
    request.reject(b"no")?;
    check_err!(request.reject(b"no"), Error::InvalidState(_), "rejecting again");
    drop(request);
    drop(listener);
    let refused = late.wait_connected(Some(rig.connect_timeout()));
    check_err!(refused, Error::Rejected(_), "the outcome of a rejected connect");
    late.disconnect();
    late.expect_no_event_for(Duration::from_millis(10))?;
    connected.settle(&peer)
}

pub(super) fn event_first(rig: &Rig) -> Outcome {
    const ROUNDS: usize = 25;
    const RECEIVES: u64 = 8;
    for round in 0..ROUNDS {
        for mode in 0..4 {
            let (a, b) = rig.pair()?;
            let (source, target) = (a.buffer(8)?, b.buffer(8)?);
            a.recv_empty(0..RECEIVES)?;
            match mode {
                0 => a.disconnect(),
                1 => b.disconnect(),
                2 => drop(b),
                _ => {
                    let lie = target.by_wrong_key(0);
                    a.post(&Op::write(&source, lie).context(RECEIVES))?;
                }
            }
            let count = RECEIVES as usize + usize::from(mode == 3);
            let mut taken = 1;
            let mut canceled = a.next()?;
            while canceled.status != Status::Canceled && taken < count {
                canceled = a.next()?;
                taken += 1;
            }
            check_eq!(canceled.status, Status::Canceled, "status of a receive that was left");
            // Without waiting: it is there.
            let reason = a.wait_disconnected(Some(Duration::ZERO));
            check_matches!(
                &reason,
                Ok(_),
                "the event no later than {canceled:?}, mode {mode}, round {round}"
            );
            check_eq!(a.state(), EndpointState::Dead, "state at a canceled completion");
            a.take(count - taken)?;
        }
    }
    Ok(())
}
