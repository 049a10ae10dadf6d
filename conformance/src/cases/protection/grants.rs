//! Parts of a region that are open to one connection.

use std::ops::Range;

use fabric::{Region, RemoteSlice};

use crate::cases::memory::{REVOKED_LEN, revoke_under_writes};
use crate::prelude::*;

/// The part is a piece of a region, which is a piece of a memory: what changes around it shows.
const AREA: usize = 3 * 4096;
pub(super) const REGION: Range<usize> = 1024..11 * 1024;
pub(super) const PART: Range<usize> = 4096..8192;

/// A memory at `b` that holds a pattern, and its region, which has every right.
fn memory(rig: &Rig, b: &End) -> Result<(Guarded, Region), Failed> {
    let memory = b.buffer_with(AREA, Access::LOCAL_WRITE)?;
    memory.put_pattern(.., rig.pattern(0))?;
    let region = memory.register(b.domain(), REGION, Access::ALL)?;
    Ok((memory, region))
}

/// An operation of each kind that needs a right at the target, of 8 bytes.
pub(super) fn kinds(local: &Guarded, at: RemoteSlice) -> [(Access, Op<'_>); 3] {
    let slice = || local.slice(..8);
    [
        (Access::REMOTE_READ, Op::read(slice(), at)),
        (Access::REMOTE_WRITE, Op::write(slice(), at)),
        (Access::REMOTE_ATOMIC, Op::fetch_atomic(AtomicOp::Add, 1u64, slice(), at)),
    ]
}

/// The target refuses the operation: its connection ends, and the memory is as it was.
#[track_caller]
pub(super) fn is_refused(rig: &Rig, (a, b): (&End, &End), op: Op<'_>, memory: &Guarded) -> Outcome {
    a.post(&op.context(9))?;
    a.expect(Done::refused(9))?;
    b.expect_disconnected()?;
    memory.check_pattern(.., rig.pattern(0))
}

/// A write is accepted, and changes its 8 bytes of the part, and nothing else.
#[track_caller]
fn is_taken((a, b): (&End, &End), to: RemoteSlice, at: usize, memory: &Guarded) -> Outcome {
    let mut expected = memory.bytes(..)?;
    let at = REGION.start + PART.start + at;
    for byte in &mut expected[at..at + 8] {
        *byte = !*byte;
    }
    let local = a.buffer(8)?;
    local.put(0, &expected[at..at + 8])?;
    a.write(&local, to, 8)?;
    a.expect_ok(8)?;
    a.settle(b)?;
    check_bytes!(memory.bytes(..)?, expected, "memory behind a write to the part");
    Ok(())
}

pub(super) fn grant_rights(rig: &Rig) -> Outcome {
    for granted in [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
        for tried in 0..3 {
            let (a, b) = rig.pair()?;
            let (memory, region) = memory(rig, &b)?;
            let local = a.buffer(8)?;
            let grant = region.grant(&b, PART, granted)?;
            let descriptor = grant.remote();
            check_eq!(descriptor.len(), PART.len() as u64, "length of the descriptor");
            check_eq!(descriptor.access(), granted, "its rights");
            let lie = forged_access(&descriptor, Access::ALL);
            let (needed, op) = kinds(&local, lie.at(8))[tried];
            if needed != granted {
                is_refused(rig, (&a, &b), op, &memory)?;
                local.check_filled(.., 0)?;
                continue;
            }
            a.post(&op.context(1))?;
            a.expect_ok(1)?;
            a.settle(&b)?;
            // What it read was there; all around what it wrote is as it was.
            let at = REGION.start + PART.start + 8;
            let mut expected = rig.pattern(0).bytes(AREA);
            if granted == Access::REMOTE_READ {
                check_bytes!(local.bytes(..)?, expected[at..at + 8], "what was read");
            } else {
                let seen = memory.bytes(at..at + 8)?;
                check!(seen != expected[at..at + 8], "8 bytes that changed");
                expected[at..at + 8].copy_from_slice(&seen);
            }
            check_bytes!(memory.bytes(..)?, expected, "the memory");
        }
    }
    Ok(())
}

pub(super) fn grants_only(rig: &Rig) -> Outcome {
    for kind in 0..3 {
        let (a, b) = rig.pair()?;
        let memory = memory(rig, &b)?.0;
        let access = (Access::ALL - Access::REMOTE_READ) | Access::GRANTS_ONLY;
        let region = memory.register(b.domain(), REGION, access)?;
        check_eq!(region.access(), access, "rights of the region");
        check!(!region.remote().access().intersects(Access::REMOTE), "no rights by its own key");
        check_err!(
            region.grant(&b, PART, Access::REMOTE_READ),
            Error::InvalidArgument(_),
            "a grant of a right that it lacks"
        );
        let grant = region.grant(&b, PART, Access::REMOTE_WRITE)?;
        is_taken((&a, &b), grant.remote().at(8), 8, &memory)?;
        memory.put_pattern(.., rig.pattern(0))?;
        let local = a.buffer(8)?;
        let lie = forged_access(&region.remote(), Access::ALL);
        is_refused(rig, (&a, &b), kinds(&local, lie.at(PART.start as u64))[kind].1, &memory)?;
        local.check_filled(.., 0)?;
    }
    Ok(())
}

pub(super) fn grant_range(rig: &Rig) -> Outcome {
    // Of each kind one that ends, and one that starts, a little outside; by the bounds that it has to keep to.
    let outside =
        |start: u64, len: u64| [start.wrapping_sub(1), start.wrapping_sub(8), len - 7, len];
    for which in 0..4 {
        for kind in 0..3 {
            let (a, b) = rig.pair()?;
            let (memory, region) = memory(rig, &b)?;
            let local = a.buffer(8)?;
            let grant = region.grant(&b, PART, Access::REMOTE)?;
            let (before, len) = (64, PART.len() as u64);
            let lie = forged_range(&grant.remote(), before, 64);
            let mut at = outside(before, before + len)[which];
            let atomic = kind == 2;
            if atomic {
                // A misaligned one is refused by this side.
                at = [before - 8, before - 8, before + len, before + len][which];
            }
            is_refused(rig, (&a, &b), kinds(&local, lie.at(at))[kind].1, &memory)?;
            local.check_filled(.., 0)?;
        }
    }
    // To the byte, wherever it starts and ends.
    for part in [PART.start + 3..PART.start + 3 + 9, PART.start..PART.start + 8] {
        for (offset, good) in [(0, true), (part.len() - 8, true), (part.len() - 7, false)] {
            let (a, b) = rig.pair()?;
            let (memory, region) = memory(rig, &b)?;
            let grant = region.grant(&b, part.clone(), Access::REMOTE_WRITE)?;
            let to = forged_range(&grant.remote(), 0, 8).at(offset as u64);
            if good {
                is_taken((&a, &b), to, part.start - PART.start + offset, &memory)?;
            } else {
                let local = a.buffer(8)?;
                is_refused(rig, (&a, &b), Op::write(&local, to), &memory)?;
            }
        }
    }
    Ok(())
}

pub(super) fn grant_whole_region(rig: &Rig) -> Outcome {
    const LEN: usize = 1 << 20;
    let (a, b) = rig.pair()?;
    let (target, local) = (b.buffer(LEN)?, a.buffer(LEN)?);
    local.put_pattern(.., rig.pattern(1))?;
    let receive = b.buffer(8)?;
    let grant = target.region().grant(&b, GUARD..GUARD + LEN, Access::REMOTE)?;
    // Long, with an immediate, and so that all can see it; then back.
    b.recv(&receive, 3)?;
    a.write(&local, grant.remote().at(0), 1)?;
    a.post(&Op::write(local.slice(..8), grant.remote().at(0)).immediate(7).context(2))?;
    let visible = Op::write(local.slice(..16), grant.remote().at(0)).delivery_complete();
    a.post(&visible.context(4))?;
    for context in [1, 2, 4] {
        a.expect_ok(context)?;
    }
    check_eq!(b.expect_ok(3)?.immediate, Some(7), "immediate of a write by a grant");
    target.check_pattern(.., rig.pattern(1))?;
    local.fill(0)?;
    a.read(&local, grant.remote().at(0), 5)?;
    a.expect_ok(5)?;
    local.check_pattern(.., rig.pattern(1))
}

pub(super) fn grant_other_connection(rig: &Rig) -> Outcome {
    for kind in 0..3 {
        let (a, b) = rig.pair()?;
        let (memory, region) = memory(rig, &b)?;
        let grant = region.grant(&b, PART, Access::REMOTE)?;
        // Of the same two domains; of another initiator; and by the way back.
        let (other_a, other_b) = rig.pair()?;
        let local = other_a.buffer(8)?;
        let op = kinds(&local, grant.remote().at(0))[kind].1;
        is_refused(rig, (&other_a, &other_b), op, &memory)?;
        local.check_filled(.., 0)?;

        let stranger = rig.end(&rig.extra_domain()?)?;
        let theirs = rig.end(rig.domain_b())?;
        rig.connect(&stranger, &theirs)?;
        let foreign = stranger.buffer(8)?;
        let op = kinds(&foreign, grant.remote().at(0))[kind].1;
        is_refused(rig, (&stranger, &theirs), op, &memory)?;

        // A grant of the other connection on the same bytes is another grant.
        let (second_a, second_b) = rig.pair()?;
        let second = region.grant(&second_b, PART, Access::REMOTE)?;
        check!(second.remote().key() != grant.remote().key(), "different keys of two grants");
        is_taken((&second_a, &second_b), second.remote().at(8), 8, &memory)?;
        is_taken((&a, &b), grant.remote().at(0), 0, &memory)?;
        memory.put_pattern(.., rig.pattern(0))?;
        let local = second_a.buffer(8)?;
        let op = kinds(&local, grant.remote().at(0))[kind].1;
        is_refused(rig, (&second_a, &second_b), op, &memory)?;
        is_taken((&a, &b), grant.remote().at(0), 0, &memory)?;
    }
    Ok(())
}

pub(super) fn grant_revoked(rig: &Rig) -> Outcome {
    for kind in 0..3 {
        for by_drop in [false, true] {
            let (a, b) = rig.pair()?;
            let (memory, region) = memory(rig, &b)?;
            let grant = region.grant(&b, PART, Access::REMOTE)?;
            let other = region.grant(&b, PART, Access::REMOTE)?;
            let stale = grant.remote();
            is_taken((&a, &b), stale.at(0), 0, &memory)?;
            let kept = if by_drop {
                drop(grant);
                None
            } else {
                grant.revoke()?;
                grant.revoke()?;
                Some(grant)
            };
            // The region's own key and the connection's other grant go on.
            is_taken((&a, &b), other.remote().at(0), 0, &memory)?;
            is_taken((&a, &b), region.remote().at((PART.start + 8) as u64), 8, &memory)?;
            memory.put_pattern(.., rig.pattern(0))?;
            let local = a.buffer(8)?;
            is_refused(rig, (&a, &b), kinds(&local, stale.at(0))[kind].1, &memory)?;
            local.check_filled(.., 0)?;
            let (fresh_a, fresh_b) = rig.pair()?;
            is_taken((&fresh_a, &fresh_b), region.remote().at(PART.start as u64), 0, &memory)?;
            drop(kept);
        }
    }
    Ok(())
}

pub(super) fn grant_revoke_vs_write(rig: &Rig) -> Outcome {
    for round in 0..5 {
        let (a, b) = rig.pair()?;
        let target = b.buffer(REVOKED_LEN)?;
        let part = GUARD..GUARD + REVOKED_LEN;
        let grant = target.region().grant(&b, part, Access::REMOTE_WRITE)?;
        let revoke = || grant.revoke();
        revoke_under_writes(rig, (&a, &b), (&target, grant.remote().at(0)), 2 + round, revoke)?;
    }
    Ok(())
}

pub(super) fn grant_arguments(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let buffer = b.buffer_with(AREA, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
    let region = buffer.region();
    let wider = check_err!(
        region.grant(&b, .., Access::REMOTE),
        Error::InvalidArgument(_),
        "rights that the region lacks"
    );
    let text = wider.to_string();
    check!(text.contains("REMOTE_WRITE") && text.contains("REMOTE_READ"), "both rights in {text}");
    let (whole, read) = (region.len(), Access::REMOTE_READ);
    for range in
        [0..0, whole..whole, 0..whole + 1, whole + 1..whole + 2, usize::MAX - 1..usize::MAX]
    {
        let refused = region.grant(&b, range.clone(), read);
        check_err!(refused, Error::InvalidArgument(_), "a grant of {range:?}");
    }
    for access in [Access::empty(), Access::LOCAL_WRITE, Access::LOCAL_WRITE | read] {
        let refused = region.grant(&b, .., access);
        check_err!(refused, Error::InvalidArgument(_), "a grant of {access:?}");
    }
    let words = b.buffer(64)?;
    let refused = words.region().grant(&b, GUARD + 4..GUARD + 12, Access::REMOTE_ATOMIC);
    check_err!(refused, Error::InvalidArgument(_), "atomics of half a word");
    check_err!(
        region.grant(&a, .., read),
        Error::InvalidArgument(_),
        "a grant to an endpoint of another domain"
    );
    let idle = rig.end(rig.domain_b())?;
    check_err!(region.grant(&idle, .., read), Error::NotConnected, "a grant before connecting");
    let (gone_a, gone_b) = rig.pair()?;
    gone_a.disconnect();
    gone_b.expect_disconnected()?;
    check_err!(region.grant(&gone_b, .., read), Error::NotConnected, "a grant behind the end");
    let closed = buffer.register(b.domain(), .., read)?;
    closed.close()?;
    check_err!(closed.grant(&b, .., read), Error::InvalidState(_), "a grant of a closed region");

    // None of it had an effect.
    b.expect_no_event_for(Duration::from_millis(1))?;
    let grant = region.grant(&b, GUARD.., read)?;
    let local = a.buffer(8)?;
    a.read(&local, grant.remote().at(0), 1)?;
    a.expect_ok(1)?;
    drop(grant);
    region.close()?;
    a.settle(&b)
}

pub(super) fn grant_ends_with_its_region(rig: &Rig) -> Outcome {
    // Closing the region is the end of its grants, and no grant holds that up.
    let (a, b) = rig.pair()?;
    let (memory, region) = memory(rig, &b)?;
    let grants: Vec<_> =
        (0..3).map(|_| region.grant(&b, PART, Access::REMOTE)).collect::<Result<_, _>>()?;
    is_taken((&a, &b), grants[1].remote().at(0), 0, &memory)?;
    memory.put_pattern(.., rig.pattern(0))?;
    region.close()?;
    let local = a.buffer(8)?;
    is_refused(rig, (&a, &b), Op::write(&local, grants[1].remote().at(0)), &memory)?;
    for grant in &grants {
        grant.revoke()?;
    }

    // Without its handle the region is there as long as a grant is.
    let (a, b) = rig.pair()?;
    let region = memory.register(b.domain(), REGION, Access::ALL)?;
    let (grant, other) =
        (region.grant(&b, PART, Access::REMOTE)?, region.grant(&b, PART, Access::REMOTE)?);
    let remote = region.remote();
    drop(region);
    is_taken((&a, &b), grant.remote().at(0), 0, &memory)?;
    is_taken((&a, &b), remote.at(PART.start as u64), 0, &memory)?;
    drop(grant);
    is_taken((&a, &b), other.remote().at(0), 0, &memory)?;
    memory.put_pattern(.., rig.pattern(0))?;
    drop(other);
    let local = a.buffer(8)?;
    is_refused(rig, (&a, &b), Op::write(&local, remote.at(0)), &memory)
}

pub(super) fn grant_ends_with_its_connection(rig: &Rig) -> Outcome {
    for dropped in [false, true] {
        let (a, b) = rig.pair()?;
        let (memory, region) = memory(rig, &b)?;
        let grant = region.grant(&b, PART, Access::REMOTE)?;
        is_taken((&a, &b), grant.remote().at(0), 0, &memory)?;
        memory.put_pattern(.., rig.pattern(0))?;
        if dropped {
            drop(b);
        } else {
            b.disconnect();
            b.expect_disconnected()?;
        }
        a.expect_disconnected()?;
        // The same two domains connect anew, and again: what is behind the names of connections is another one.
        for _ in 0..3 {
            let (a, b) = rig.pair()?;
            let local = a.buffer(8)?;
            is_refused(rig, (&a, &b), Op::write(&local, grant.remote().at(0)), &memory)?;
        }
        grant.revoke()?;
        drop(grant);
        region.close()?;
    }
    Ok(())
}

pub(super) fn grant_many(rig: &Rig) -> Outcome {
    const COUNT: usize = 1000;
    let (a, b) = rig.pair()?;
    let target = b.buffer(8 * COUNT)?;
    let local = a.buffer(8 * COUNT)?;
    local.put_pattern(.., rig.pattern(0))?;
    let word = |i: usize| GUARD + 8 * i..GUARD + 8 * i + 8;
    let mut grants = Vec::new();
    for i in 0..COUNT {
        grants.push(target.region().grant(&b, word(i), Access::REMOTE_WRITE)?);
    }
    let mut keys: Vec<_> = grants.iter().map(|grant| grant.remote().key()).collect();
    keys.sort_unstable();
    keys.dedup();
    check_eq!(keys.len(), COUNT, "different keys of {COUNT} grants");
    let mut rng = rig.rng();
    let mut write_all = |grants: &[(usize, RemoteRegion)]| -> Outcome {
        for _ in 0..grants.len() {
            let (i, remote) = grants[rng.next_u64() as usize % grants.len()];
            a.write(local.slice(8 * i..8 * i + 8), remote.at(0), i as u64)?;
            a.expect_ok(i as u64)?;
        }
        for &(i, remote) in grants {
            a.write(local.slice(8 * i..8 * i + 8), remote.at(0), i as u64)?;
            a.expect_ok(i as u64)?;
        }
        a.settle(&b)
    };
    let all: Vec<_> = grants.iter().map(fabric::Grant::remote).enumerate().collect();
    write_all(&all)?;
    target.check_pattern(.., rig.pattern(0))?;
    // Every other one goes, the others stay.
    let mut kept = Vec::new();
    for (i, grant) in grants.into_iter().enumerate() {
        if i % 2 == 0 {
            kept.push((i, grant));
        }
    }
    local.put_pattern(.., rig.pattern(1))?;
    let left: Vec<_> = kept.iter().map(|(i, grant)| (*i, grant.remote())).collect();
    write_all(&left)?;
    let (old, new) = (rig.pattern(0).bytes(8 * COUNT), rig.pattern(1).bytes(8 * COUNT));
    let expected: Vec<_> =
        (0..8 * COUNT).map(|at| if at / 8 % 2 == 0 { new[at] } else { old[at] }).collect();
    check_bytes!(target.bytes(..)?, expected, "what the grants that are left have written");
    a.write(local.slice(..8), all[COUNT / 2 + 1].1.at(0), 1)?;
    a.expect(Done::refused(1))?;
    b.expect_disconnected()?;
    check_bytes!(target.bytes(..)?, expected, "memory behind a write by a grant that is gone");
    drop(kept);
    target.region().close()?;
    Ok(())
}

pub(super) fn grant_guessed(rig: &Rig) -> Outcome {
    let (_a, b) = rig.pair()?;
    let (memory, region) = memory(rig, &b)?;
    let grants: Vec<_> =
        (0..8).map(|_| region.grant(&b, PART, Access::REMOTE)).collect::<Result<_, _>>()?;
    let honest = grants[4].remote();
    let near = (1..=16)
        .flat_map(|step| [honest.key().wrapping_add(step), honest.key().wrapping_sub(step)]);
    let flipped = (0..64).map(|bit| honest.key() ^ 1 << bit);
    let own = (0..32).chain([region.remote().key() ^ 1, !honest.key()]);
    for guess in near.chain(flipped).chain(own) {
        let (a, b) = rig.pair()?;
        let here = region.grant(&b, PART, Access::REMOTE)?;
        let local = a.buffer(8)?;
        let lie = forged_key(&here.remote(), guess).at(0);
        is_refused(rig, (&a, &b), Op::write(&local, lie), &memory)?;
    }
    Ok(())
}

pub(super) fn grant_behind_send(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let (memory, region) = memory(rig, &b)?;
    let (message, inbox, local) = (b.buffer(64)?, a.buffer(64)?, a.buffer(8)?);
    message.put_pattern(.., rig.pattern(1))?;
    let early = region.grant(&b, PART, Access::REMOTE)?;
    // It waits for its receive.
    b.send(&message, 1)?;
    let begun = Instant::now();
    let late = region.grant(&b, PART, Access::REMOTE);
    let (taken, limit) = (begun.elapsed(), rig.scaled(Duration::from_secs(10)));
    check!(taken < limit, "a grant within {limit:?}, not {taken:?}");
    match late {
        Ok(late) => {
            is_taken_without_settling(&a, late.remote().at(0))?;
            late.revoke()?;
        }
        // It had no effect, but that the region is busy until the send has ended.
        Err(Error::TimedOut(_)) => {}
        Err(error) => return Err(error.into()),
    }
    // What was granted before is revoked at once all the same.
    let begun = Instant::now();
    early.revoke()?;
    let (taken, limit) = (begun.elapsed(), rig.scaled(Duration::from_secs(1)));
    check!(taken < limit, "a revocation within {limit:?}, not {taken:?}");
    a.recv(&inbox, 2)?;
    a.expect_ok(2)?;
    b.expect_ok(1)?;
    inbox.check_pattern(.., rig.pattern(1))?;
    // The next one is not held up.
    let grant = region.grant(&b, PART, Access::REMOTE)?;
    is_taken_without_settling(&a, grant.remote().at(0))?;
    a.settle(&b)?;
    memory.put_pattern(.., rig.pattern(0))?;
    rig.eventually(|| Ok(region.close()?))?;
    is_refused(rig, (&a, &b), Op::write(&local, early.remote().at(0)), &memory)
}

fn is_taken_without_settling(a: &End, to: RemoteSlice) -> Outcome {
    let local = a.buffer(8)?;
    a.write(&local, to, 8)?;
    a.expect_ok(8)?;
    Ok(())
}
