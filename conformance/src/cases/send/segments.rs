//! Scatter and gather.

use std::ops::Range;

use crate::cases::layout::{places, scattered, uneven};
use crate::prelude::*;

pub(super) fn gather(rig: &Rig) -> Outcome {
    let max = rig.info().limits.send_segments;
    let (a, b) = rig.pair_with(|attr| attr.send_segments = max)?;
    let rounds = (1..=max).flat_map(|count| [(count, 1), (count, 700)]);
    for (round, (count, scale)) in rounds.enumerate() {
        let lens = uneven(count, scale);
        let total = lens.iter().sum();
        let bytes = rig.pattern(round).bytes(total);
        // Places in two regions in turn.
        let places = places(&lens);
        let sources = [a.buffer(places[0].end)?, a.buffer(places[0].end)?];
        let mut rest = &bytes[..];
        for (i, place) in places.iter().enumerate() {
            sources[i % 2].put(place.start, &rest[..lens[i]])?;
            rest = &rest[lens[i]..];
        }
        let sink = b.buffer(total)?;
        let slice = |(i, place): (usize, &Range<usize>)| sources[i % 2].slice(place.clone());
        let slices: Vec<_> = places.iter().enumerate().map(slice).collect();
        let op = Op::send(&slices[..]).context(round as u64);
        a.deliver(op, &b, &sink, Done::recv(round, total))?;
        check_bytes!(sink.bytes(..)?, bytes, "a message of {count} segments");
        a.expect(Done::send(round, total))?;
    }
    Ok(())
}

pub(super) fn scatter_boundaries(rig: &Rig) -> Outcome {
    let max = rig.info().limits.recv_segments;
    let (a, b) = rig.pair_with(|attr| attr.recv_segments = max)?;
    for (round, scale) in [1, 211].into_iter().enumerate() {
        let lens = uneven(max, scale);
        let places = places(&lens);
        let total: usize = lens.iter().sum();
        let bytes = rig.pattern(round).bytes(total);
        let source = a.holding(&bytes)?;
        let sink = b.buffer(places[0].end)?;
        let slices: Vec<_> = places.iter().map(|place| sink.slice(place.clone())).collect();
        // Messages that end just before, at and just behind each boundary.
        let mut boundary = 0;
        for (i, len) in lens.iter().enumerate() {
            boundary += len;
            for len in boundary - 1..=(boundary + 1).min(total) {
                sink.fill(0xee)?;
                let op = Op::send(source.slice(..len)).context(len as u64);
                a.deliver(op, &b, &slices[..], Done::recv(len, len))?;
                let image = scattered(&bytes[..len], &places);
                check_bytes!(sink.bytes(..)?, image, "{len} bytes, at the end of segment {i}");
                a.expect_ok(len)?;
            }
        }
    }
    Ok(())
}

pub(super) fn zero_segment(rig: &Rig) -> Outcome {
    // Room for two segments: empty ones do not count.
    let (a, b) = rig.pair_with(|attr| (attr.send_segments, attr.recv_segments) = (2, 2))?;
    let source = a.patterned(64, rig.pattern(0))?;
    let sink = b.filled(64, 0xee)?;
    let from = [
        source.slice(0..0),
        source.slice(0..5),
        source.slice(64..64),
        source.slice(5..5),
        source.slice(5..16),
        source.slice(7..7),
    ];
    let into = [
        sink.slice(3..3),
        sink.slice(0..9),
        sink.slice(40..40),
        sink.slice(9..30),
        sink.slice(64..64),
    ];
    a.deliver(Op::send(&from).context(2), &b, &into, Done::recv(1, 16))?;
    sink.check_pattern(..16, rig.pattern(0))?;
    sink.check_filled(16.., 0xee)?;
    a.expect(Done::send(2, 16)).map(drop)
}

pub(super) fn segments_plus1(rig: &Rig) -> Outcome {
    let limits = &rig.info().limits;
    for max in [1, limits.send_segments.min(limits.recv_segments)] {
        let (a, b) = rig.pair_with(|attr| (attr.send_segments, attr.recv_segments) = (max, max))?;
        let source = a.patterned(2 * (max + 1), rig.pattern(max))?;
        let sink = b.buffer(2 * (max + 1))?;
        // Segments of one byte, with a byte between them.
        let from: Vec<_> = (0..=max).map(|i| source.slice(2 * i..2 * i + 1)).collect();
        let into: Vec<_> = (0..=max).map(|i| sink.slice(2 * i..2 * i + 1)).collect();
        let posted = b.recv(&into[..], 1);
        check_err!(posted, Error::InvalidArgument(_), "a receive of {} segments", max + 1);
        let posted = a.send(&from[..], 2);
        check_err!(posted, Error::InvalidArgument(_), "a send of {} segments", max + 1);

        // Neither of them happens later: these two meet, and no other.
        let op = Op::send(&from[..max]).context(4);
        a.deliver(op, &b, &into[..max], Done::recv(3, max))?;
        a.expect_ok(4)?;
        let mut expected = rig.pattern(max).bytes(2 * max);
        expected.iter_mut().skip(1).step_by(2).for_each(|byte| *byte = 0);
        check_bytes!(sink.bytes(..2 * max)?, expected, "a message of {max} segments");
        sink.check_filled(2 * max.., 0)?;
    }
    Ok(())
}
