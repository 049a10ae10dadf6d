//! One-sided operations: the contract of connected endpoints.

use fabric_rdm::matching::Pattern;
use fabric_rdm::{DeathCause, Kind, OpId, PostError, Recv, Send, Status};

use crate::prelude::*;
use crate::rdm::{LENGTHS, RdmPair, expect_refused};

pub(super) fn rma_table(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, .. } = RdmPair::new(rig)?;
    let (source, target, back) = (a.patterned(1 << 20, 0)?, b.buffer(1 << 20)?, a.buffer(1 << 20)?);
    let flag = b.buffer(8)?;
    for (context, len) in (0..).zip(LENGTHS) {
        // The message behind a write finds its bytes there.
        b.post_recv(&Recv::new(Pattern::untagged(), &flag).context(context))?;
        a.post(to_b, &Op::write(source.slice(..len), target.at(0)).context(context))?;
        a.when_room(|| a.post_send(to_b, &Send::inject(b"written").context(context)))?;
        b.received(context, 7)?;
        target.check_pattern(..len, rig.pattern(0))?;
        a.post(to_b, &Op::read(back.slice(..len), target.at(0)).context(context))?;
        a.expect_all(&[
            (Kind::Write, context, Status::Ok),
            (Kind::Send, context, Status::Ok),
            (Kind::Read, context, Status::Ok),
        ])?;
        back.check_pattern(..len, rig.pattern(0))?;
        back.check_guards()?;
        target.fill(0)?;
    }
    let old = a.buffer(8)?;
    a.post(to_b, &Op::fetch_atomic(AtomicOp::Add, 5u64, old.slice(..), target.at(8)).context(1))?;
    a.expect(Kind::Atomic, 1, Status::Ok)?;
    a.post(to_b, &Op::fetch_compare_swap(5u64, 9u64, old.slice(..), target.at(8)).context(2))?;
    a.expect(Kind::Atomic, 2, Status::Ok)?;
    check_eq!((old.get::<u64>(0)?, target.get::<u64>(8)?), (5, 9), "old and new value");
    Ok(())
}

pub(super) fn fence_holds(rig: &Rig) -> Outcome {
    const LEN: usize = 1 << 20;
    let RdmPair { a, b, to_b, .. } = RdmPair::new(rig)?;
    let (sink, target) = (a.buffer(LEN)?, b.buffer(LEN)?);
    // The last word of a long read; in the first round there is no connection yet.
    let word = LEN - 8;
    for round in 0..rig.count(20, 500) as u64 {
        sink.fill(0xdd)?;
        a.post(to_b, &Op::read(sink.slice(..), target.at(0)).context(1))?;
        let add = Op::atomic(AtomicOp::Add, 1u64, target.at(word)).fence();
        a.post(to_b, &add.context(2))?;
        a.expect(Kind::Read, 1, Status::Ok)?;
        a.expect(Kind::Atomic, 2, Status::Ok)?;
        let (found, left) = (sink.get::<u64>(word)?, target.get::<u64>(word)?);
        check_eq!((found, left), (round, round + 1), "what was read, and what is left");
    }
    Ok(())
}

pub(super) fn fenced_messages(rig: &Rig) -> Outcome {
    const LEN: usize = 1 << 20;
    let RdmPair { a, b, to_b, .. } = RdmPair::new(rig)?;
    let (sink, target) = (a.buffer(LEN)?, b.buffer(LEN)?);
    let (source, into) = (a.patterned(1 << 17, 0)?, b.buffer(1 << 17)?);
    let word = LEN - 8;
    for round in 0..rig.count(21, 501) as u64 {
        // Whole, in pieces, and fetched; in the first round there is no connection yet.
        let len = [8, 20_000, 100_000][round as usize % 3];
        b.post_recv(&Recv::new(Pattern::untagged(), &into).context(3))?;
        a.post(to_b, &Op::read(sink.slice(..), target.at(0)).context(1))?;
        a.post_send(to_b, &Send::new(source.slice(..len)).fence().context(2))?;
        b.received(3, len)?;
        // The read has ended by then.
        target.set(word, round + 1)?;
        a.expect_all(&[(Kind::Read, 1, Status::Ok), (Kind::Send, 2, Status::Ok)])?;
        check_eq!(sink.get::<u64>(word)?, round, "what was read before the message came");
        into.check_pattern(..len, rig.pattern(0))?;
    }
    Ok(())
}

pub(super) fn refused_before_connecting(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, .. } = RdmPair::new(rig)?;
    let (local, remote) = (a.buffer(64)?, b.buffer(64)?);
    let invalid = |error: &PostError| matches!(error, PostError::Fabric(Error::InvalidArgument(_)));
    expect_refused(a.post(to_b, &Op::write(local.slice(..), remote.at(1 << 20))), invalid)?;
    expect_refused(a.post(to_b, &Op::send(local.slice(..))), invalid)?;
    expect_refused(a.post(to_b, &Op::atomic(AtomicOp::Add, 1u64, remote.at(4))), invalid)?;
    expect_refused(a.post_send(to_b, &Send::new(remote.slice(..))), invalid)?;
    expect_refused(a.post_recv(&Recv::new(Pattern::untagged(), remote.slice(..))), invalid)?;
    let read_only = a.rig_buffer(64, Access::empty())?;
    expect_refused(a.post_recv(&Recv::new(Pattern::untagged(), &read_only)), invalid)?;
    let with_data = |op: Op<'_>| a.post(to_b, &op.immediate(1));
    expect_refused(with_data(Op::write(local.slice(..), remote.at(1 << 20))), invalid)?;
    check_eq!(a.connections()?, 0, "connections that were made for them");
    a.nothing_at_once()
}

/// Whether what was posted behind an operation that is refused was there first: a thread that is held up meanwhile finds the peer
/// down.
#[track_caller]
pub(super) fn is_posted_in_time(posted: Result<OpId, PostError>) -> Result<bool, Failed> {
    match posted {
        Err(PostError::PeerDown(_)) => Ok(false),
        posted => Ok(posted.map(|_| true)?),
    }
}

pub(super) fn remote_access(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    pair.greet()?;
    let RdmPair { a, b, to_b, .. } = &pair;
    let (local, remote) = (a.patterned(64, 0)?, b.buffer(64)?);
    a.post(*to_b, &Op::write(local.slice(..), remote.by_wrong_key(0)).context(1))?;
    // Of one that waits at its sender nothing was executed: it is not the one that is lost.
    let behind = a.post_send(*to_b, &Send::inject(b"behind it").matched().context(2));
    let is_posted = is_posted_in_time(behind)?;
    a.refused(Kind::Write, 1)?;
    if is_posted {
        a.expect(Kind::Send, 2, Status::Canceled)?;
    }
    a.until("the loss", |a| a.down(*to_b).is_ok_and(|cause| cause.is_some()))?;
    check_eq!(a.down(*to_b)?, Some(DeathCause::Lost), "why it is down");
    remote.check_filled(.., 0)
}
