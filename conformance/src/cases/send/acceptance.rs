//! What the completion of a send says of the receive, and what a receive that is missing or too short does.

use crate::cases::crowd::joined;
use crate::cases::places::{Slots, Staggered};
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
    for round in 0..SENDS {
        let (a, b) = rig.pair()?;
        completed_are_received(rig, a, &b, round + 1, |a| {
            // Gone, the one or the other; neither lingers.
            if round.is_multiple_of(2) {
                return Ok(None);
            }
            b.disconnect();
            Ok(Some(a))
        })?;
    }
    Ok(())
}

/// Messages of [`completed_are_received`].
pub(in crate::cases) const SENDS: usize = 12;

/// Sends messages, ends the connection when the first `completed` sends have completed, and checks that these have been
/// received, and of the others as many as were whole. `end` gives the sender back if that is still there.
pub(in crate::cases) fn completed_are_received(
    rig: &Rig,
    sender: End,
    receiver: &End,
    completed: usize,
    end: impl FnOnce(End) -> Result<Option<End>, Failed>,
) -> Outcome {
    const WRITES: usize = 4;
    const LEN: usize = 150_000;
    let source = Staggered::new(rig, &sender, LEN, SENDS)?;
    let sink = Slots::new(receiver, SENDS, LEN)?;
    sink.post(receiver, 0..SENDS)?;
    // The receiver writes meanwhile: a stream that is closed with bytes unread is reset, and loses those on their way to
    // the peer. Its writes complete at the receiver, so all that comes to the sender is of the sends.
    let (target, answer) = (sender.buffer(LEN)?, receiver.buffer(LEN)?);
    for i in 0..WRITES {
        receiver.write(&answer, target.at(0), i as u64)?;
    }
    for i in 0..SENDS {
        sender.send(source.slice(i, LEN), i as u64)?;
    }
    sender.expect_each(0..completed)?;
    let _sender = end(sender)?;

    let mut receives = receiver.take(SENDS + WRITES)?;
    receives.retain(|completion| completion.kind == OpKind::Recv);
    check_eq!(receives.len(), SENDS, "completed receives");
    let whole = receives.iter().take_while(|received| received.is_ok()).count();
    check!(whole >= completed, "{completed} receives Ok, as their sends were, not {receives:?}");
    for (i, received) in receives.iter().enumerate() {
        if i < whole {
            Done::recv(i, LEN).check(received)?;
            check_bytes!(sink.seen(i, LEN)?, source.bytes(i, LEN), "message {i}");
        } else {
            Done::canceled(i).check(received)?;
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
        one.and(joined(other))
    })
}

/// Sends `count` messages as fast as the queue takes them, and receives as many.
fn flood(rig: &Rig, end: &End, count: usize, len: usize) -> Outcome {
    const RECEIVES: usize = 8;
    let source = Staggered::new(rig, end, len, count)?;
    let sink = Slots::new(end, RECEIVES, len)?;
    sink.post(end, 0..RECEIVES.min(count))?;
    let (mut posted, mut sent, mut received) = (0, 0, 0);
    while sent < count || received < count {
        while posted < count {
            match end.send(source.slice(posted, len), posted as u64) {
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
        let seen = sink.seen(received, len)?;
        check_bytes!(seen, source.bytes(received, len), "receive {received}");
        if received + RECEIVES < count {
            end.recv(sink.slot(received), (received + RECEIVES) as u64)?;
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
