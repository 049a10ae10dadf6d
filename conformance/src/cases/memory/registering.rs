//! What can be registered, and what cannot.

use fabric::{Memory, Region};

use crate::prelude::*;
use crate::sys::{self, Pages, Protection, page_size};

pub(super) fn reg_zero(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let domain = b.domain();
    let memory = Memory::zeroed(64)?;
    let mapped = domain.register(&memory, Access::ALL)?.addr();
    for (what, registered) in [
        ("zero bytes to allocate", domain.alloc(0, Access::ALL)),
        ("an empty part", domain.register_part(&memory, 8..8, Access::ALL)),
        ("the empty end", domain.register_part(&memory, 64.., Access::ALL)),
        ("zero bytes of mapped memory", sys::register_nowhere(domain, mapped, 0, Access::ALL)),
    ] {
        check_err!(registered, Error::InvalidArgument(_), "registering {what}");
    }

    // The least that a region can be, in the midst of others.
    let around = b.buffer(9)?;
    let one = around.register(domain, 4..5, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let source = a.filled(1, 0x7e)?;
    a.run(Op::write(&source, one.remote().at(0)), Done::ok(1))?;
    a.settle(&b)?;
    check_bytes!(around.bytes(..)?, [0, 0, 0, 0, 0x7e, 0, 0, 0, 0], "memory around a byte written");
    Ok(())
}

pub(super) fn reg_overflow(rig: &Rig) -> Outcome {
    let domain = rig.domain_a();
    let page = page_size();
    let last = usize::MAX - page + 1;
    for (start, len) in [
        (last, page),
        (last, 2 * page),
        (page, usize::MAX),
        (page, usize::MAX - page + 1),
        (2 * page, isize::MAX as usize + 1),
        (usize::MAX, 1),
        (usize::MAX, usize::MAX),
    ] {
        for access in [Access::empty(), Access::ALL] {
            let registered = sys::register_nowhere(domain, start, len, access);
            check_err!(registered, Error::InvalidArgument(_), "{len:#x} bytes at {start:#x}");
        }
    }

    let memory = Memory::zeroed(100)?;
    let beyond = [(0, 101), (1, 101), (100, 101), (101, 101), (101, usize::MAX), (60, 40)];
    for (start, end) in beyond {
        let registered = domain.register_part(&memory, start..end, Access::LOCAL_WRITE);
        check_err!(registered, Error::InvalidArgument(_), "bytes {start}..{end} of 100");
    }
    let registered = domain.register_part(&memory, ..=usize::MAX, Access::LOCAL_WRITE);
    check_err!(registered, Error::InvalidArgument(_), "bytes ..={} of 100", usize::MAX);
    domain.register_part(&memory, 99..100, Access::LOCAL_WRITE)?;
    Ok(())
}

pub(super) fn reg_unmapped(rig: &Rig) -> Outcome {
    let domain = rig.domain_a();
    // The upper half of the address space is the kernel's.
    let kernel = 0xffff_8000_0000_0000_u64 as usize;
    for access in [Access::empty(), Access::LOCAL_WRITE, Access::REMOTE_READ, Access::ALL] {
        let registered = sys::register_unmapped(domain, access);
        check_err!(registered, Error::InvalidArgument(_), "memory that is not mapped, {access:?}");
        let registered = sys::register_nowhere(domain, kernel, 4096, access);
        check_err!(registered, Error::InvalidArgument(_), "memory of the kernel's, {access:?}");
    }
    // Both ends are good; only who looks at every page finds the hole.
    let page = page_size();
    for hole in 0..3 {
        let pages = Pages::map(3 * page, Protection::ReadWrite)?;
        pages.protect(hole * page, page, Protection::Nothing)?;
        let registered = pages.register(domain, Access::ALL);
        check_err!(registered, Error::InvalidArgument(_), "3 pages, page {hole} without access");
        pages.protect(hole * page, page, Protection::ReadWrite)?;
        pages.register(domain, Access::ALL)?;
    }
    Ok(())
}

pub(super) fn reg_readonly(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let page = page_size();
    let pages = Pages::map(2 * page, Protection::ReadWrite)?;
    let writable = pages.register(b.domain(), Access::LOCAL_WRITE)?;
    let contents = rig.pattern(0).bytes(2 * page);
    writable.write_at(0, &contents)?;
    writable.close()?;

    // The second page alone, then both.
    for first in [page, 0] {
        pages.protect(first, 2 * page - first, Protection::Read)?;
        for more in [Access::empty(), Access::REMOTE_READ, Access::REMOTE_WRITE, Access::ALL] {
            let registered = pages.register(b.domain(), Access::LOCAL_WRITE | more);
            check_err!(
                registered,
                Error::InvalidArgument(_),
                "read-only pages for writing, {more:?}"
            );
        }
    }

    // To be read by peers they are good enough.
    let readable = pages.register(b.domain(), Access::REMOTE_READ)?;
    let local = a.buffer(2 * page)?;
    a.run(Op::read(&local, readable.remote().at(0)), Done::ok(1))?;
    check_bytes!(local.bytes(..)?, contents, "what was read");
    // A descriptor that lies does not make them writable.
    let lie = forged_access(&readable.remote(), Access::REMOTE_READ | Access::REMOTE_WRITE);
    local.fill(0)?;
    a.run_refused(Op::write(&local, lie.at(0)), 2, &b)?;
    check_bytes!(readable.to_vec(..)?, contents, "the read-only pages");
    Ok(())
}

pub(super) fn reg_access_rule(rig: &Rig) -> Outcome {
    let domain = rig.domain_a();
    let memory = Memory::zeroed(64)?;
    let changing = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    for bits in 0..=Access::ALL.bits() {
        let access = Access::from_bits_truncate(bits);
        let registered = domain.register(&memory, access);
        if access.intersects(changing) && !access.contains(Access::LOCAL_WRITE) {
            let error = check_err!(registered, Error::InvalidArgument(_), "{access:?}");
            let text = error.to_string();
            check!(text.contains("LOCAL_WRITE"), "an error that names LOCAL_WRITE, not {text:?}");
        } else {
            check_eq!(registered?.access(), access, "rights of the region");
        }
    }
    let by_grants = domain.register(&memory, Access::ALL | Access::GRANTS_ONLY);
    if !rig.info().capabilities.contains(Capabilities::GRANTS) {
        check_err!(by_grants, Error::Unsupported(_), "GRANTS_ONLY where there are no grants");
    }
    let unknown = Access::from_bits_retain(1 << 20);
    let registered = domain.register(&memory, unknown);
    check_err!(registered, Error::InvalidArgument(_), "a right that does not exist");
    for (start, end) in [(1, 9), (4, 16), (8, 15), (0, 4), (7, 64)] {
        let registered = domain.register_part(&memory, start..end, Access::ALL);
        check_err!(registered, Error::InvalidArgument(_), "atomics on bytes {start}..{end}");
        domain.register_part(&memory, start..end, Access::ALL - Access::REMOTE_ATOMIC)?;
    }
    domain.register_part(&memory, 8..16, Access::ALL)?;
    Ok(())
}

pub(super) fn reg_overlap(rig: &Rig) -> Outcome {
    let writable = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let both = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let buffer = rig.buffer(rig.domain_b(), 300, Access::LOCAL_WRITE)?;
    // For writing bytes 0..200, for reading 100..300.
    let left = buffer.register(rig.domain_b(), ..200, writable)?;
    let right = buffer.register(rig.domain_b(), 100.., Access::REMOTE_READ)?;
    let (written, read) = (left.remote(), right.remote());
    check!(written.key() != read.key(), "keys that differ");

    let (a, b) = rig.pair()?;
    let source = a.patterned(200, rig.pattern(0))?;
    let sink = a.buffer(200)?;
    a.write(&source, written.at(0), 1)?;
    a.read(&sink, read.at(0), 2)?;
    a.expect_each([1, 2])?;
    let (seen, written_there) = (sink.bytes(..100)?, source.bytes(100..)?);
    check_bytes!(seen, written_there, "bytes written by one key, read by the other");
    sink.check_filled(100.., 0)?;
    a.settle(&b)?;
    let contents = buffer.bytes(..)?;
    check_bytes!(contents[..200], source.bytes(..)?, "bytes written");

    // The rights of the one are not those of the other, and neither are the ranges.
    let stray = a.filled(8, 0xee)?;
    let [right_written, left_read] = [read, written].map(|region| forged_access(&region, both));
    let (far_written, far_read) = (forged_range(&written, 0, 100), forged_range(&read, 100, 0));
    for (what, op) in [
        ("a write by the readable key", Op::write(&stray, right_written.at(0))),
        ("a read by the writable key", Op::read(&stray, left_read.at(0))),
        ("a write of what is only readable", Op::write(&stray, far_written.at(200))),
        ("a read of what is only writable", Op::read(&stray, far_read.at(92))),
    ] {
        let (a, b) = rig.pair()?;
        a.run_refused(op, 1, &b).map_err(|failed| failed.of(what))?;
        check_bytes!(buffer.bytes(..)?, contents, "the buffer after {what}");
        stray.check_filled(.., 0xee)?;
    }

    // The end of the one is not that of the other.
    left.close()?;
    a.run(Op::read(&sink, read.at(0)), Done::ok(3))?;
    check_bytes!(sink.bytes(..)?, contents[100..], "bytes read when the other region is closed");
    a.run_refused(Op::write(&stray, written.at(0)), 4, &b)?;
    check_bytes!(buffer.bytes(..)?, contents, "the buffer after a write by the closed key");
    Ok(())
}

pub(super) fn reg_10k(rig: &Rig) -> Outcome {
    const REGIONS: usize = 10_000;
    const EACH: usize = 56;
    const AT_ONCE: usize = 50;
    let (a, b) = rig.pair()?;
    let mut rng = rig.rng();
    let buffer = b.buffer(REGIONS * EACH)?;
    let rights = Access::ALL - Access::REMOTE_ATOMIC;
    let part = |i: usize| buffer.register(b.domain(), i * EACH..(i + 1) * EACH, rights);
    let regions: Vec<Region> = (0..REGIONS).map(part).collect::<Result<_, _>>()?;
    let mut model = vec![0; REGIONS * EACH];
    let (source, sink) = (a.buffer(AT_ONCE * EACH)?, a.buffer(AT_ONCE * EACH)?);

    let mut order: Vec<usize> = (0..REGIONS).collect();
    rng.shuffle(&mut order);
    for written in order.chunks(AT_ONCE) {
        source.put_pattern(.., rng.pattern())?;
        // Part of each region, at a place of its own.
        let mut writes = Vec::new();
        for (slot, &i) in written.iter().enumerate() {
            let (from, len) = (rng.below(EACH), 1 + rng.below(EACH));
            let range = slot * EACH + from..slot * EACH + EACH.min(from + len);
            let to = i * EACH + from;
            let bytes = source.bytes(range.clone())?;
            model[to..to + bytes.len()].copy_from_slice(&bytes);
            writes.push(Op::write(source.slice(range), regions[i].remote().at(from as u64)));
        }
        // Whole regions, any of them: reads see the writes before them.
        let read: Vec<usize> = (0..AT_ONCE).map(|_| rng.below(REGIONS)).collect();
        let reads = read.iter().enumerate().map(|(slot, &i)| {
            Op::read(sink.slice(slot * EACH..(slot + 1) * EACH), regions[i].remote().at(0))
        });
        let ops: Vec<_> = writes.into_iter().chain(reads).collect();
        a.post_batch(&ops)?;
        for (at, done) in a.take(ops.len())?.iter().enumerate() {
            check!(done.is_ok(), "access {at} of a round to be Ok, not {done:?}");
        }
        for (slot, &i) in read.iter().enumerate() {
            let seen = sink.bytes(slot * EACH..(slot + 1) * EACH)?;
            check_bytes!(seen, model[i * EACH..(i + 1) * EACH], "region {i}, read");
        }
    }
    a.settle(&b)?;
    check_bytes!(buffer.bytes(..)?, model, "all regions");
    Ok(())
}

pub(super) fn memlock(rig: &Rig) -> Outcome {
    let target = rig.target();
    let seen = sys::in_child(rig.scaled(Duration::from_secs(10)), || {
        let registered = target.open().and_then(|domain| {
            let limited = sys::limit_locked_memory(64 << 10);
            limited.map_err(|cause| Error::system("limit locked memory", "conformance", cause))?;
            domain.alloc(4 << 20, Access::ALL)
        });
        match registered {
            Ok(_) => "Ok".to_owned(),
            // Its reader has to know what to raise.
            Err(Error::NoMemory(failure)) if failure.to_string().contains("RLIMIT_MEMLOCK") => {
                "NoMemory".to_owned()
            }
            Err(error) => format!("{error:?}"),
        }
    })?;
    check_eq!(seen, "NoMemory", "4 MiB registered when 64 KiB may be locked");
    Ok(())
}
