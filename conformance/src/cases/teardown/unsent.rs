//! Connections that end while much of what is due to the peer has not been sent: more than the transport holds.

use fabric::EndpointId;

use super::flushed::{CLOSED, PEER_CLOSED, check_flushed, take};
use crate::cases::crowd::{Crowd, depths};
use crate::prelude::*;

/// Pairs at a time: what all of them send is more than one domain takes at once.
const PAIRS: usize = 8;
/// Long operations of each pair.
const OPS: usize = 16;
/// Receives of each peer; the first gets a message.
const RECEIVES: usize = 4;
/// How soon the peer knows that the connection is closed.
const BOUND: Duration = Duration::from_secs(5);

pub(super) fn close_unsent(rig: &Rig) -> Outcome {
    for reads in [false, true] {
        for drops in [false, true] {
            let failed = |failed: Failed| failed.of(format!("reads: {reads}, dropped: {drops}"));
            close(rig, reads, drops).map_err(failed)?;
        }
    }
    Ok(())
}

/// Ends close in the middle of their long writes, or of the answers to their peers' long reads.
fn close(rig: &Rig, reads: bool, drops: bool) -> Outcome {
    let len = rig.bulk(rig.info().limits.message.min(1 << 19) as usize);
    let Crowd { ends, peers } = Crowd::new(rig, PAIRS, depths(OPS + 1, RECEIVES))?;
    let (own, far) = (ends[0].patterned(len, rig.pattern(0))?, peers[0].buffer(len)?);
    let names: Vec<_> = ends.iter().zip(&peers).map(|(end, peer)| (end.id(), peer.id())).collect();
    let queues = [ends[0].cq().clone(), peers[0].cq().clone()];

    // One message of each arrives for certain.
    for (end, peer) in ends.iter().zip(&peers) {
        peer.recv_empty(0..RECEIVES)?;
        end.inject(b"", 0)?;
    }
    let mut done = [ends[0].take(PAIRS)?, Vec::new()];
    let first = u64::from(!reads);
    let op =
        |i| if reads { Op::read(&far, own.at(0)) } else { Op::write(&own, far.at(0)) }.context(i);
    let ops: Vec<_> = (first..first + OPS as u64).map(op).collect();
    for (end, peer) in ends.iter().zip(&peers) {
        let busy = if reads { peer } else { end };
        busy.post_batch(&ops)?;
    }
    // When a read has ended, answers are on their way.
    while reads && done[1].iter().all(|one: &Completion| one.kind.is_receive()) {
        done[1].extend(peers[0].take(1)?);
    }

    let start = Instant::now();
    let close = |end: End| {
        if drops {
            return None;
        }
        end.disconnect();
        Some(end)
    };
    let closed: Vec<_> = ends.into_iter().filter_map(close).collect();
    for peer in &peers {
        peer.expect_closed_by_peer()?;
    }
    let (took, limit) = (start.elapsed(), rig.scaled(BOUND));
    check!(took < limit, "all ends known within {limit:?}, not after {took:?}");
    for end in &closed {
        check_eq!(end.expect_disconnected()?, DisconnectReason::Local, "the reason here");
    }

    let counts = if reads { [1, OPS] } else { [1 + OPS, 0] };
    for (side, (queue, done)) in queues.iter().zip(&mut done).enumerate() {
        let total = PAIRS * (counts[side] + side * RECEIVES);
        done.extend(take(rig, queue, total - done.len())?);
        check_eq!(queue.poll_one()?, None, "a completion too many");
    }
    for (end, peer) in names {
        check_pair(&done, [end, peer], counts)?;
    }
    Ok(())
}

/// Checks how the operations of an end and its peer ended; `counts` are those of their send queues.
fn check_pair(done: &[Vec<Completion>; 2], names: [EndpointId; 2], counts: [usize; 2]) -> Outcome {
    let of = |side: usize, receives: bool| {
        let mine = (names[side], receives);
        done[side].iter().filter(move |one| (one.endpoint, one.kind.is_receive()) == mine)
    };
    let sent = check_flushed("operations of the end", counts[0], CLOSED, of(0, false))?;
    check!(sent >= 1, "the message that was Ok to stay so");
    check_flushed("operations of the peer", counts[1], PEER_CLOSED, of(1, false))?;
    let received = check_flushed("receives", RECEIVES, CLOSED, of(1, true))?;
    check_eq!(received, 1, "receives that went well");
    Ok(())
}

pub(super) fn domain_unsent(rig: &Rig) -> Outcome {
    let rounds = rig.count(4, 40);
    for round in 0..rounds {
        for reads in [false, true] {
            let failed = |failed: Failed| failed.of(format!("reads: {reads}, round {round}"));
            drop_domain(rig, reads).map_err(failed)?;
        }
    }
    Ok(())
}

/// All that is on a domain is dropped in the middle of its long writes, or of the answers to its peers' long reads, and the
/// domain at once behind it.
fn drop_domain(rig: &Rig, reads: bool) -> Outcome {
    let len = rig.bulk(rig.info().limits.message.min(1 << 19) as usize);
    let domain = rig.target().open()?;
    let Crowd { ends, peers } = Crowd::on(rig, &domain, PAIRS, depths(OPS, RECEIVES))?;
    let (own, far) = (ends[0].patterned(len, rig.pattern(0))?, peers[0].buffer(len)?);
    let op =
        |i| if reads { Op::read(&far, own.at(0)) } else { Op::write(&own, far.at(0)) }.context(i);
    let ops: Vec<_> = (0..OPS as u64).map(op).collect();
    for (end, peer) in ends.iter().zip(&peers) {
        peer.recv_empty(0..RECEIVES)?;
        let busy = if reads { peer } else { end };
        busy.post_batch(&ops)?;
    }

    let start = Instant::now();
    drop((ends, own, domain));
    for peer in &peers {
        peer.expect_closed_by_peer()?;
    }
    let (took, limit) = (start.elapsed(), rig.scaled(BOUND));
    check!(took < limit, "all ends known within {limit:?}, not after {took:?}");
    let count = RECEIVES + if reads { OPS } else { 0 };
    let done = peers[0].take(PAIRS * count)?;
    for peer in &peers {
        let of = |receives: bool| {
            let mine = (peer.id(), receives);
            done.iter().filter(move |one| (one.endpoint, one.kind.is_receive()) == mine)
        };
        check_flushed("operations of the peer", count - RECEIVES, PEER_CLOSED, of(false))?;
        check_flushed("receives", RECEIVES, CLOSED, of(true))?;
    }
    Ok(())
}

/// Takes the ends of reads before one that is refused: all are answered. How many were: where the refusal is lost, so are those
/// that were not acknowledged before it.
fn answers(rig: &Rig, end: &End, reads: usize) -> Result<usize, Failed> {
    let mut answered = reads;
    for i in 0..reads {
        let done = end.next()?;
        check_eq!(done.context, i as u64, "the context of an answer");
        if i > answered || done.status != Status::Ok {
            answered = answered.min(i);
            let is_lost = matches!(done.status, Status::Canceled | Status::PeerLost);
            check!(rig.is_lossy() && is_lost, "read {i} Ok, and not {:?}", done.status);
        }
    }
    Ok(answered)
}

pub(super) fn refused_unsent(rig: &Rig) -> Outcome {
    const READS: usize = 16;
    let len = rig.bulk(rig.info().limits.message.min(1 << 20) as usize);
    let place = |i: usize| i * len..(i + 1) * len;
    for drops in [false, true] {
        let (a, b) = rig.pair()?;
        let (into, source) = (a.buffer(READS * len)?, b.patterned(len, rig.pattern(0))?);
        let target = b.buffer(8)?;
        b.recv_empty(0..2)?;
        let read = |i| Op::read(into.slice(place(i)), source.at(0)).context(i as u64);
        let write = |to, i| Op::inject_write(b"refused.", to).context(i as u64);
        let mut ops: Vec<_> = (0..READS).map(read).collect();
        ops.extend([write(target.by_wrong_key(0), READS), write(target.at(0), READS + 1)]);
        a.post_batch(&ops)?;

        // The target may know before the first answer is sent, and leaves then.
        b.expect_disconnected()?;
        b.expect_canceled(0..2)?;
        if drops {
            drop(b);
        } else {
            b.disconnect();
        }
        let answered = answers(rig, &a, READS)?;
        a.expect(Done::refused(READS))?;
        a.expect_canceled([READS + 1])?;
        a.expect_disconnected()?;
        let expected = source.bytes(..)?;
        for i in 0..answered {
            check_bytes!(into.bytes(place(i))?, expected, "what read {i} brought");
        }
        target.check_filled(.., 0)?;
    }
    Ok(())
}
