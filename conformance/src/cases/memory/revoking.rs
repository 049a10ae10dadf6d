//! The end of a registration.

use std::sync::atomic::{AtomicUsize, Ordering};

use fabric::RemoteSlice;

use super::accesses::write_and_read;
use crate::prelude::*;
use crate::usage::Usage;

pub(super) fn dereg_access(rig: &Rig) -> Outcome {
    for closes in [true, false] {
        for attempt in 0..3 {
            let (a, b) = rig.pair()?;
            let local = a.filled(8, 0xee)?;
            let buffer = b.buffer_with(8, Access::LOCAL_WRITE)?;
            buffer.put_pattern(.., rig.pattern(0))?;
            let region = buffer.register(b.domain(), .., Access::ALL)?;
            let at = region.remote().at(0);
            // Without anything in flight, dropping the handle is the end too.
            if closes {
                region.close()?
            } else {
                drop(region)
            }
            let [write, read] = write_and_read(&local, at);
            let add = Op::fetch_atomic(AtomicOp::Add, 1u64, local.slice(..), at);
            let (what, op) = [write, read, ("a fetching add", add)][attempt];
            let refused = a.run_refused(op, 1, &b);
            refused.map_err(|failed| failed.of(format_args!("{what}, closed: {closes}")))?;
            buffer.check_pattern(.., rig.pattern(0))?;
            local.check_filled(.., 0xee)?;
        }
    }
    Ok(())
}

pub(super) fn stale_key(rig: &Rig) -> Outcome {
    let buffer = rig.buffer(rig.domain_b(), 64, Access::LOCAL_WRITE)?;
    let open = buffer.register(rig.domain_b(), .., Access::ALL)?;
    for attempt in 0..2 {
        let (a, b) = rig.pair()?;
        let (bystander, other_b) = rig.pair()?;
        let local = a.buffer(64)?;
        let closed = buffer.register(b.domain(), .., Access::ALL)?;
        let stale = closed.remote();
        // Everybody has used the key, and would have it at hand.
        for (i, end) in [&a, &bystander, &a].into_iter().enumerate() {
            local.put_pattern(.., rig.pattern(i))?;
            end.write(&local, stale.at(0), 2)?;
            end.read(&local, stale.at(0), 3)?;
            end.expect_each([2, 3])?;
        }
        a.settle(&b)?;
        buffer.check_pattern(.., rig.pattern(2))?;

        closed.close()?;
        check_err!(b.send(&closed, 4), Error::InvalidState(_), "sending from a closed region");
        closed.close()?;
        local.fill(0xee)?;
        let (what, op) = write_and_read(&local, stale.at(0))[attempt];
        a.run_refused(op, 1, &b).map_err(|failed| failed.of(what))?;
        buffer.check_pattern(.., rig.pattern(2))?;
        local.check_filled(.., 0xee)?;

        // The memory is as open as its other region says, and so is the other connection.
        bystander.run(Op::read(&local, open.remote().at(0)), Done::ok(5))?;
        local.check_pattern(.., rig.pattern(2))?;
        bystander.settle(&other_b)?;
    }
    Ok(())
}

pub(super) fn dereg_busy(rig: &Rig) -> Outcome {
    let (a, b, source, sink) = rig.transfer(64)?;
    // Without a receive it stays pending.
    a.send(&source, 1)?;
    for _ in 0..3 {
        check_err!(source.region().close(), Error::Busy, "closing the source of a pending send");
    }
    // Refused, it is as usable as before.
    source.check_pattern(.., rig.pattern(0))?;
    b.recv(&sink, 2)?;
    b.expect_ok(2)?;
    sink.check_pattern(.., rig.pattern(0))?;
    a.expect_ok(1)?;

    b.recv(&sink, 3)?;
    check_err!(sink.region().close(), Error::Busy, "closing the sink of a pending receive");
    a.run(Op::send(&source), Done::ok(4))?;
    b.expect_ok(3)?;
    for region in [source.region(), sink.region()] {
        region.close()?;
        region.close()?;
    }
    // The bytes are still their owner's to look at.
    source.check_guards()?;
    sink.check_guards()?;
    check_err!(a.send(&source, 5), Error::InvalidState(_), "sending from a closed region");
    check_err!(b.recv(&sink, 5), Error::InvalidState(_), "receiving into a closed region");
    a.settle(&b)
}

pub(super) fn dereg_vs_write(rig: &Rig) -> Outcome {
    for round in 0..5 {
        let (a, b) = rig.pair()?;
        let buffer = b.buffer_with(REVOKED_LEN, Access::LOCAL_WRITE)?;
        let open = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = buffer.register(b.domain(), .., open)?;
        let revoke = || region.close();
        revoke_under_writes(rig, (&a, &b), (&buffer, region.remote().at(0)), 2 + round, revoke)?;
    }
    Ok(())
}

/// Bytes of the memory, and of each write, of [`revoke_under_writes`].
pub(in crate::cases) const REVOKED_LEN: usize = 1 << 20;

/// `a` writes on and on, and `revoke` takes the right from it after more than `min` writes: from then on no byte changes, and
/// the next write is refused.
pub(in crate::cases) fn revoke_under_writes(
    rig: &Rig,
    (a, b): (&End, &End),
    (memory, to): (&Guarded, RemoteSlice),
    min: usize,
    revoke: impl FnOnce() -> fabric::Result<()>,
) -> Outcome {
    // In turns, so that a late byte differs from the one it replaces.
    let sources = [a.buffer(REVOKED_LEN)?, a.buffer(REVOKED_LEN)?];
    sources[0].fill(0x11)?;
    sources[1].fill(0xee)?;
    let (sources, accepted) = (&sources, &AtomicUsize::new(0));
    thread::scope(|scope| {
        let enough = rig.scaled(Duration::from_secs(30));
        let writer = scope.spawn(move || write_until_refused(a, sources, to, enough, accepted));
        rig.eventually(|| {
            let seen = accepted.load(Ordering::Relaxed);
            check!(seen > min, "a stream of writes, not {seen} of them");
            Ok(())
        })?;
        revoke()?;
        let before = memory.bytes(..)?;
        check_bytes!(memory.bytes(..)?, before, "memory right after the right was revoked");
        match writer.join() {
            Ok(outcome) => outcome?,
            Err(_) => fail!("the writing thread to end", "its panic"),
        }
        b.expect_disconnected()?;
        check_bytes!(memory.bytes(..)?, before, "memory when the last write has ended");
        memory.check_guards()
    })
}

/// Writes the sources in turns until the target refuses, which is to be within `enough`; `accepted` counts.
fn write_until_refused(
    a: &End,
    sources: &[Guarded; 2],
    to: RemoteSlice,
    enough: Duration,
    accepted: &AtomicUsize,
) -> Outcome {
    const AT_ONCE: u64 = 4;
    let (start, mut posted, mut taken, mut refused) = (Instant::now(), 0, 0, false);
    loop {
        while !refused && posted - taken < AT_ONCE && start.elapsed() < enough {
            match a.write(&sources[(posted % 2) as usize], to, posted) {
                Ok(()) => posted += 1,
                // It is dead, and the failed completion is on its way.
                Err(Error::NotConnected) if posted > taken => break,
                Err(error) => return Err(error.into()),
            }
        }
        if posted == taken {
            check!(refused, "a write to the closed region to be refused");
            return Ok(());
        }
        let done = a.next()?;
        check_eq!(done.context, taken, "context of the next completion");
        taken += 1;
        match done.status {
            Status::Ok if !refused => _ = accepted.fetch_add(1, Ordering::Relaxed),
            // When a region closes during the transfer, the write that met it and those before it that were not
            // acknowledged may end so too.
            Status::RemoteAccess | Status::Canceled | Status::PeerLost => refused = true,
            status => fail!(
                "a status that fits",
                "{status:?} of write {}, refused {refused}",
                done.context
            ),
        }
    }
}

pub(super) fn dereg_vs_read(rig: &Rig) -> Outcome {
    let len = rig.bulk(rig.info().limits.message.min(16 << 20) as usize);
    let (old, new) = (rig.pattern(0).bytes(len), rig.pattern(1).bytes(len));
    for quarter in 0..4 {
        let (a, b) = rig.pair()?;
        let local = a.buffer(len)?;
        let buffer = b.buffer_with(len, Access::LOCAL_WRITE)?;
        buffer.put(0, &old)?;
        let region = buffer.register(b.domain(), .., Access::REMOTE_READ)?;
        a.read(&local, region.remote().at(0), 1)?;
        // Until the read has come so far. Bytes come in any order, and it may be done before
        // the region closes: the rule holds at any moment.
        let mark = quarter * len / 4..quarter * len / 4 + 64;
        let until = rig.deadline(Duration::from_secs(5));
        while quarter > 0 && local.bytes(mark.clone())? == [0; 64] && Instant::now() < until {
            std::hint::spin_loop();
        }
        region.close()?;
        let closed = Instant::now();
        buffer.put(0, &new)?;
        let done = a.next_within(Duration::from_secs(5))?;
        let (taken, limit) = (closed.elapsed(), rig.scaled(Duration::from_secs(5)));
        check!(taken <= limit, "the read to end within {limit:?}, not {taken:?}");

        let seen = local.bytes(..)?;
        match done.status {
            Status::Ok => check_bytes!(seen, old, "what was read"),
            // `PeerLost` where the refusal got lost together with the region.
            Status::RemoteAccess | Status::Canceled | Status::PeerLost => {
                let fits = |(seen, old): (&u8, &u8)| seen == old || *seen == 0;
                let leak = seen.iter().zip(&old).position(|both| !fits(both));
                if let Some(at) = leak {
                    let bytes = (seen[at], old[at], new[at]);
                    fail!(
                        "nothing that was written after the end",
                        "at {at}: (read, old, new) {bytes:?}"
                    );
                }
            }
            status => fail!("Ok, RemoteAccess, Canceled or PeerLost", "{status:?}"),
        }
        check_bytes!(buffer.bytes(..)?, new, "the target's memory");
    }
    Ok(())
}

pub(super) fn rereg_same_address(rig: &Rig) -> Outcome {
    const TIMES: usize = 1000;
    let (a, b) = rig.pair()?;
    let local = a.patterned(64, rig.pattern(0))?;
    let buffer = b.buffer_with(64, Access::LOCAL_WRITE)?;
    let mut stale: Vec<RemoteRegion> = Vec::new();
    for _ in 0..TIMES {
        let region = buffer.register(b.domain(), .., Access::ALL)?;
        stale.push(region.remote());
        region.close()?;
    }
    let mut keys: Vec<u64> = stale.iter().map(RemoteRegion::key).collect();
    keys.sort_unstable();
    keys.dedup();
    check_eq!(keys.len(), TIMES, "different keys of {TIMES} registrations");

    // The same address, length and rights once more: what is stale stays so.
    let region = buffer.register(b.domain(), .., Access::ALL)?;
    a.run(Op::write(&local, region.remote().at(0)), Done::ok(1))?;
    a.settle(&b)?;
    buffer.check_pattern(.., rig.pattern(0))?;
    for at in [0, TIMES / 2, TIMES - 1] {
        let (a, b) = rig.pair()?;
        local.fill(0xee)?;
        a.run_refused(Op::write(&local, stale[at].at(0)), 1, &b)?;
        buffer.check_pattern(.., rig.pattern(0))?;
    }
    a.run(Op::read(&local, region.remote().at(0)), Done::ok(2))?;
    local.check_pattern(.., rig.pattern(0))
}

pub(super) fn drop_region_in_flight(rig: &Rig) -> Outcome {
    const TIMES: usize = 24;
    let longest = rig.info().limits.message.min(16 << 20) as usize;
    // Where bytes take long fewer of them go, but as much memory is to be freed.
    let (times, len) = (rig.bulk(TIMES), rig.bulk(longest));
    let piece = longest * (TIMES / times);
    let (a, b) = rig.pair()?;
    let word = b.buffer(8)?;
    word.put(0, b"in write")?;
    let sink = b.buffer(len)?;
    let local = a.patterned(64, rig.pattern(99))?;
    let before = Usage::now()?.resident_bytes;
    let mut last = None;
    for i in 0..times {
        // The send names memory without any other owner.
        let source = a.domain().alloc(piece, Access::ALL)?;
        let remote = source.remote();
        source.write_at(0, &rig.pattern(i).bytes(64))?;
        source.write_at(len - 64, &rig.pattern(i).bytes(64))?;
        a.send(source.slice(..len), 1)?;
        drop(source);
        // Still unmatched, so the memory is there, for peers as well.
        b.write(&word, remote.at(64), 2)?;
        b.read(sink.slice(..8), remote.at(64), 3)?;
        b.expect_each([2, 3])?;
        check_bytes!(sink.bytes(..8)?, b"in write", "memory whose handle is gone");

        b.recv(&sink, 4)?;
        b.expect(Done::recv(4, len))?;
        check_bytes!(sink.bytes(..64)?, rig.pattern(i).bytes(64), "its first bytes");
        check_bytes!(sink.bytes(len - 64..)?, rig.pattern(i).bytes(64), "its last bytes");
        a.expect_ok(1)?;
        last = Some(remote);
    }
    // Each piece is freed by now: together they would be far more than what cases beside this one need.
    rig.eventually(|| {
        let grown = Usage::now()?.resident_bytes.saturating_sub(before);
        check!(grown < times * piece / 2, "memory to be freed, not {grown} bytes more than before");
        Ok(())
    })?;

    // A receive whose only handle is gone: the bytes arrive in the memory, which is kept alive here.
    let inbox = b.buffer_with(64, Access::LOCAL_WRITE)?;
    b.recv(&inbox.register(b.domain(), .., Access::LOCAL_WRITE)?, 5)?;
    a.send(&local, 6)?;
    b.expect(Done::recv(5, 64))?;
    a.expect_ok(6)?;
    inbox.check_pattern(.., rig.pattern(99))?;

    // With the completion the rights have ended. (Nothing was registered there since.)
    if let Some(remote) = last {
        b.run_refused(Op::write(&word, remote.at(0)), 7, &a)?;
    }
    Ok(())
}
