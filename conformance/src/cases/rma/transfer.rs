//! Lengths, segments, offsets and edges.

use crate::cases::layout::{places, scattered, sizes, uneven};
use crate::cases::places::Staggered;
use crate::prelude::*;

pub(super) fn write_sizes(rig: &Rig) -> Outcome {
    each_size(rig, OpKind::Write)
}

pub(super) fn read_sizes(rig: &Rig) -> Outcome {
    each_size(rig, OpKind::Read)
}

/// Writes or reads of many lengths. Each fills a buffer of just its length, so that the guards begin at the very next
/// byte.
fn each_size(rig: &Rig, kind: OpKind) -> Outcome {
    let (a, b) = rig.pair()?;
    let largest = rig.bulk(rig.info().limits.message.min(64 << 20) as usize);
    let sizes = sizes(largest as u64);
    let (from, to) = if kind == OpKind::Write { (&a, &b) } else { (&b, &a) };
    let source = Staggered::new(rig, from, largest, sizes.len())?;
    for (i, len) in sizes.into_iter().enumerate() {
        let target = to.buffer(len)?;
        if kind == OpKind::Write {
            a.run(Op::write(source.slice(i, len), target.at(0)), Done::write(i, len))?;
            // `Ok` says that the peer accepted the bytes; its CPU sees them by the next receive.
            a.settle(&b)?;
        } else {
            a.run(Op::read(&target, source.at(i)), Done::read(i, len))?;
        }
        check_bytes!(target.bytes(..)?, source.bytes(i, len), "the {kind:?} of {len} bytes");
    }
    Ok(())
}

pub(super) fn write_gather(rig: &Rig) -> Outcome {
    each_segment_count(rig, OpKind::Write)
}

pub(super) fn read_scatter(rig: &Rig) -> Outcome {
    each_segment_count(rig, OpKind::Read)
}

/// Writes from, or reads into, as many segments as there can be, all over a buffer.
fn each_segment_count(rig: &Rig, kind: OpKind) -> Outcome {
    let max = rig.info().limits.send_segments;
    let (a, b) = rig.pair_with(|attr| attr.send_segments = max)?;
    let rounds = (1..=max).flat_map(|count| [(count, 1), (count, 700)]);
    for (round, (count, scale)) in rounds.enumerate() {
        let lens = uneven(count, scale);
        let (total, places) = (lens.iter().sum(), places(&lens));
        let bytes = rig.pattern(round).bytes(total);
        let image = scattered(&bytes, &places);
        let local = a.filled(image.len(), 0xee)?;
        let slices: Vec<_> = places.iter().map(|place| local.slice(place.clone())).collect();
        if kind == OpKind::Write {
            local.put(0, &image)?;
            let target = b.buffer(total)?;
            a.run(Op::write(&slices[..], target.at(0)), Done::write(round, total))?;
            a.settle(&b)?;
            check_bytes!(target.bytes(..)?, bytes, "a write of {count} segments");
        } else {
            let source = b.holding(&bytes)?;
            a.run(Op::read(&slices[..], source.at(0)), Done::read(round, total))?;
            check_bytes!(local.bytes(..)?, image, "a read into {count} segments");
        }
    }
    Ok(())
}

pub(super) fn write_all_offsets(rig: &Rig) -> Outcome {
    const LENS: [usize; 14] = [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 63, 64, 65, 200];
    const ROOM: usize = 320;
    const AT_ONCE: usize = 100;
    let (a, b) = rig.pair()?;
    let bytes = rig.pattern(0).bytes(ROOM);
    let source = a.holding(&bytes)?;
    // Write i has a room of its own, that starts at a multiple of 64, and there an offset and a length.
    let writes: Vec<_> = (0..64).flat_map(|offset| LENS.map(|len| (offset, len))).collect();
    let target = b.filled(writes.len() * ROOM, 0xee)?;
    let mut image = vec![0xee; target.len()];
    for (i, &(offset, len)) in writes.iter().enumerate() {
        // From an alignment that has nothing to do with the target's.
        let from = (offset + i * 29) % 64;
        let to = i * ROOM + offset;
        image[to..to + len].copy_from_slice(&bytes[from..from + len]);
        a.write(source.slice(from..from + len), target.at(to), i as u64)?;
        if i >= AT_ONCE {
            a.expect_ok(i - AT_ONCE)?;
        }
    }
    a.expect_each(writes.len() - AT_ONCE..writes.len())?;
    a.settle(&b)?;
    for (i, (offset, len)) in writes.into_iter().enumerate() {
        let room = i * ROOM..(i + 1) * ROOM;
        check_bytes!(target.bytes(room.clone())?, image[room], "{len} bytes at offset {offset}");
    }
    Ok(())
}

pub(super) fn read_depth(rig: &Rig) -> Outcome {
    const MAX: usize = 300;
    // Deeper than any device answers reads at a time.
    let depth = rig.info().limits.send_depth.min(256);
    let reads = 4 * depth;
    let (a, b) = rig.pair_with(|attr| attr.send_depth = depth)?;
    let len = |i: usize| 1 + i * 13 % MAX;
    let bytes = rig.pattern(0).bytes(reads + MAX);
    let target = b.holding(&bytes)?;
    let sink = a.filled(reads * MAX, 0xee)?;
    let mut posted = 0;
    for taken in 0..reads {
        while posted < reads {
            // Read i brings the bytes from i on.
            let into = sink.slice(posted * MAX..posted * MAX + len(posted));
            match a.read(into, target.at(posted), posted as u64) {
                Ok(()) => posted += 1,
                Err(Error::Again) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let full = (taken + depth).min(reads);
        check_eq!(posted, full, "reads that a queue of {depth} takes with {taken} taken out");
        a.expect(Done::read(taken, len(taken)))?;
        let at = taken * MAX;
        let seen = sink.bytes(at..at + len(taken))?;
        check_bytes!(seen, bytes[taken..taken + len(taken)], "read {taken}");
        sink.check_filled(at + len(taken)..at + MAX, 0xee)?;
    }
    Ok(())
}

pub(super) fn loopback(rig: &Rig) -> Outcome {
    // Within one domain, or no region could be both.
    let (c, d) = rig.pair_on(rig.domain_a(), rig.domain_a())?;
    for (round, len) in [1, 100, 5000, 300_000].into_iter().enumerate() {
        // Source, a gap, what is written, a gap, what is read.
        let region = c.filled(3 * len + 10, 0xee)?;
        region.put_pattern(..len, rig.pattern(round))?;
        let (written, read) = (len + 5, 2 * len + 10);
        c.write(region.slice(..len), region.at(written), 1)?;
        c.read(region.slice(read..), region.at(written), 2)?;
        c.expect_each([1, 2])?;
        c.settle(&d)?;
        for start in [0, written, read] {
            region.check_pattern(start..start + len, rig.pattern(round))?;
        }
        region.check_filled(len..written, 0xee)?;
        region.check_filled(written + len..read, 0xee)?;
    }
    Ok(())
}

pub(super) fn write_last_byte(rig: &Rig) -> Outcome {
    const RIGHTS: Access =
        Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);
    let (a, b) = rig.pair()?;
    let source = a.buffer(64)?;
    let sink = a.buffer(64)?;
    for (round, size) in [1, 8, 61, 4096, 4099, 1 << 20].into_iter().enumerate() {
        // Here the region itself ends with the last byte.
        let around = b.buffer(size)?;
        let region = around.register(b.domain(), .., RIGHTS)?;
        for len in [1, size.min(7)] {
            around.fill(0xee)?;
            sink.fill(0xee)?;
            source.put_pattern(.., rig.pattern(10 * round + len))?;
            let at = region.remote().at((size - len) as u64);
            a.write(source.slice(..len), at, 1)?;
            a.read(sink.slice(..len), at, 2)?;
            a.expect_each([1, 2])?;
            a.settle(&b)?;
            let mut image = vec![0xee; size - len];
            image.extend(source.bytes(..len)?);
            check_bytes!(around.bytes(..)?, image, "{len} last bytes of {size}");
            sink.check_pattern(..len, rig.pattern(10 * round + len))?;
            sink.check_filled(len.., 0xee)?;
        }
    }
    Ok(())
}
