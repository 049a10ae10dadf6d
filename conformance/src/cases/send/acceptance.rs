//! What the completion of a send says of the receive, and what a receive that is missing or too short does.

use crate::prelude::*;

pub(super) fn no_recv_pends(rig: &Rig) -> Outcome {
    // Longer than verbs retries with the settings that programs get by default.
    const WAIT: Duration = Duration::from_secs(20);
    let (a, b, source, sink) = rig.transfer(1000)?;
    a.send(&source, 1)?;
    thread::sleep(WAIT);
    a.expect_none_for(Duration::from_millis(100))?;
    check_eq!(a.state(), EndpointState::Connected, "state of the sender after {WAIT:?}");
    check_eq!(b.state(), EndpointState::Connected, "state of the peer after {WAIT:?}");

    b.recv(&sink, 2)?;
    b.expect(Done::recv(2, 1000))?;
    a.expect_ok(1)?;
    sink.check_pattern(.., rig.pattern(0))
}

pub(super) fn ok_implies_received(rig: &Rig) -> Outcome {
    const SENDS: usize = 12;
    const WRITES: usize = 4;
    const LEN: usize = 150_000;
    // Message i is the pattern from byte 8 i on.
    let bytes = rig.pattern(0).bytes(LEN + 8 * SENDS);
    let sent = |i: usize| 8 * i..8 * i + LEN;
    for round in 0..SENDS {
        let (a, b) = rig.pair()?;
        let source = a.holding(&bytes)?;
        let sink = b.buffer(SENDS * LEN)?;
        for i in 0..SENDS {
            b.recv(sink.slice(i * LEN..(i + 1) * LEN), i as u64)?;
        }
        // The peer writes meanwhile: a stream that is closed with bytes unread is reset, and loses those on their
        // way to the peer.
        let target = a.buffer(LEN)?;
        let answer = b.buffer(LEN)?;
        for i in 0..WRITES {
            b.write(&answer, target.at(0), i as u64)?;
        }
        for i in 0..SENDS {
            a.send(source.slice(sent(i)), i as u64)?;
        }
        // The peer's writes complete at the peer, so all that comes here is of the sends.
        a.expect_each(0..=round)?;
        // Gone, the one or the other; neither lingers.
        if round.is_multiple_of(2) {
            drop(a);
        } else {
            b.disconnect();
        }

        let mut receives = b.take(SENDS + WRITES)?;
        receives.retain(|completion| completion.kind == OpKind::Recv);
        check_eq!(receives.len(), SENDS, "completed receives");
        let mut whole = true;
        for (i, received) in receives.iter().enumerate() {
            check_eq!(received.context, i as u64, "context of receive {i}");
            if i <= round {
                check_eq!(received.status, Status::Ok, "receive {i}, whose send had completed");
            }
            match received.status {
                Status::Ok if whole => {
                    check_eq!(received.len, LEN, "length of receive {i}");
                    let seen = sink.bytes(i * LEN..(i + 1) * LEN)?;
                    check_bytes!(seen, bytes[sent(i)], "receive {i} of round {round}");
                }
                Status::Canceled => whole = false,
                status => fail!(
                    "receives to be Ok up to some point, then Canceled",
                    "{status:?} of receive {i}"
                ),
            }
        }
    }
    Ok(())
}

pub(super) fn bidir_flood(rig: &Rig) -> Outcome {
    let len = rig.info().limits.message.min(1 << 20) as usize;
    // 64 MiB, or 1 GiB.
    let total = rig.bulk(rig.count(64 << 20, 1 << 30));
    let (a, b) = rig.pair()?;
    // Each with a thread of its own, as two programs would.
    thread::scope(|scope| {
        let other = scope.spawn(|| flood(rig, &b, total / len, len));
        let one = flood(rig, &a, total / len, len);
        one.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Sends `count` messages as fast as the queue takes them, and receives as many.
fn flood(rig: &Rig, end: &End, count: usize, len: usize) -> Outcome {
    const RECEIVES: usize = 8;
    // Message i is the pattern from byte 8 i on.
    let bytes = rig.pattern(0).bytes(len + 8 * count);
    let source = end.holding(&bytes)?;
    let sink = end.buffer(RECEIVES * len)?;
    let slot = |i: usize| i % RECEIVES * len..(i % RECEIVES + 1) * len;
    for i in 0..RECEIVES.min(count) {
        end.recv(sink.slice(slot(i)), i as u64)?;
    }
    let (mut posted, mut sent, mut received) = (0, 0, 0);
    while sent < count || received < count {
        while posted < count {
            match end.send(source.slice(8 * posted..8 * posted + len), posted as u64) {
                Ok(()) => posted += 1,
                Err(Error::Again) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let done = end.next()?;
        check_eq!(done.status, Status::Ok, "status of {:?} {}", done.kind, done.context);
        if done.kind == OpKind::Send {
            check_eq!(done.context, sent as u64, "context of completed send {sent}");
            sent += 1;
            continue;
        }
        check_eq!(done.context, received as u64, "context of completed receive {received}");
        check_eq!(done.len, len, "length of receive {received}");
        let seen = sink.bytes(slot(received))?;
        check_bytes!(seen, bytes[8 * received..8 * received + len], "receive {received}");
        if received + RECEIVES < count {
            end.recv(sink.slice(slot(received)), (received + RECEIVES) as u64)?;
        }
        received += 1;
    }
    Ok(())
}

pub(super) fn oversize_fatal(rig: &Rig) -> Outcome {
    for (room, len) in [(8, 9), (0, 1), (4096, 70_000), (5000, 5001)] {
        let (a, b) = rig.pair()?;
        let source = a.patterned(len, rig.pattern(len))?;
        let (before, sink, behind) = (b.buffer(room)?, b.buffer(room)?, b.buffer(len)?);
        b.recv(&before, 1)?;
        b.recv(&sink, 2)?;
        b.recv(&behind, 3)?;
        a.post_batch(&[
            Op::send(source.slice(..room)).context(1),
            Op::send(&source).context(2),
            Op::send(&source).context(3),
        ])?;
        for end in [&a, &b] {
            end.expect_ok(1)?;
            end.expect(Done::failed(2, Status::TooLong))?;
            end.expect(Done::canceled(3))?;
            end.expect_disconnected()?;
            check_eq!(end.state(), EndpointState::Dead, "state after {len} bytes for {room}");
        }
        check_err!(a.send(&source, 4), Error::NotConnected, "a send on the dead endpoint");
        check_err!(b.recv(&sink, 4), Error::NotConnected, "a receive on the dead endpoint");
        before.check_pattern(.., rig.pattern(len))?;
        // Of the receive itself nothing is promised.
        behind.check_filled(.., 0)?;
    }
    Ok(())
}
