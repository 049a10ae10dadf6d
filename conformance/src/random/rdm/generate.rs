//! Drawing a program of datagram endpoints: what is likely to be of interest, not what is correct.

use super::program::{
    Claiming, PLACES, Payload, RdmProgram, RdmSettings, RdmStep, RemoteOp, SendSpec, Want,
};
use crate::pattern::{Rng, mix};

const LENGTHS: [usize; 11] = [0, 1, 8, 64, 200, 300, 5000, 9000, 40_000, 100_000, 8];
const ROOMS: [usize; 9] = [0, 8, 64, 200, 300, 5000, 9000, 40_000, 100_000];
/// As few as leave room for the number of a message.
const MIN_ROOM: usize = 8;

/// What is drawn once for all steps of a program.
struct Taste {
    ends: usize,
    /// Of 100 steps, so many receives.
    receives: usize,
    /// Of 1000 steps, so many removals of a peer.
    removals: usize,
    /// Different tags.
    tags: usize,
    /// All sends go to the first endpoint.
    one_target: bool,
    /// Messages may have no immediate, and receives have room for their numbers.
    bare: bool,
}

/// Draws a program; the same one for ever.
pub(super) fn generate(seed: u64, number: u64) -> RdmProgram {
    let rng = &mut Rng::new(mix(seed) ^ number);
    let ends = 2 + rng.below(3);
    let drops = percent(rng, 5);
    let settings = RdmSettings {
        ends,
        max_open: if drops { 256 } else { *rng.pick(&[1, 1, 2, 2, 256, 256]) },
        send_depth: *rng.pick(&[8, 1024, 1024]),
        recv_depth: *rng.pick(&[8, 1024, 1024]),
        window: *rng.pick(&[4, 4, 16, 64]),
        bytes: *rng.pick(&[4096, 20_000, 1 << 20]),
        slots: *rng.pick(&[8, 32, 128]),
        slot_len: *rng.pick(&[512, 8192, 8192]),
        rendezvous: *rng.pick(&[1000, 32 << 10, 32 << 10, 1 << 20]),
        connection_depth: *rng.pick(&[8, 16, 64]),
        drops,
    };
    let taste = Taste {
        ends,
        receives: *rng.pick(&[15, 25, 35]),
        removals: if percent(rng, 30) { 25 } else { 0 },
        tags: *rng.pick(&[1, 2, 4]),
        one_target: percent(rng, 15),
        bare: percent(rng, 25),
    };
    let count = *rng.pick(&[12, 30, 60, 100]);
    let mut steps: Vec<_> = (0..count).map(|_| step(rng, &taste)).collect();
    if drops {
        steps.insert(rng.below(count), RdmStep::Drop(rng.below(ends)));
    }
    RdmProgram { settings, steps }
}

/// In so many of 100 cases.
fn percent(rng: &mut Rng, percent: usize) -> bool {
    rng.below(100) < percent
}

fn step(rng: &mut Rng, taste: &Taste) -> RdmStep {
    let ends = taste.ends;
    let at = rng.below(ends);
    let other = (at + 1 + rng.below(ends - 1)) % ends;
    if rng.below(1000) < taste.removals {
        return RdmStep::Remove { at, peer: other };
    }
    let kind = rng.below(100);
    match kind {
        0..35 => {
            let to = if percent(rng, 6) { at } else { other };
            let to = if taste.one_target { 0 } else { to };
            RdmStep::Send { at, to, spec: send(rng, taste) }
        }
        _ if kind < 35 + taste.receives => {
            let at = if taste.one_target && percent(rng, 70) { 0 } else { at };
            receive(rng, taste, at)
        }
        70..75 => {
            let room = room(rng, taste);
            let all = [Claiming::Leave, Claiming::Receive(room), Claiming::Keep, Claiming::Drop];
            RdmStep::Probe { at, want: want(rng, taste), claiming: *rng.pick(&all) }
        }
        75..77 => {
            let room = percent(rng, 70).then(|| room(rng, taste));
            RdmStep::Claimed { at, room }
        }
        77..83 => {
            let place = rng.below(PLACES.len());
            let all = [RemoteOp::Write(place), RemoteOp::Read(place), RemoteOp::Add];
            let (fence, unsignaled) = (percent(rng, 20), percent(rng, 20));
            RdmStep::OneSided { at, to: other, what: *rng.pick(&all), fence, unsignaled }
        }
        83..87 => RdmStep::Cancel { at, back: rng.below(6) },
        87..89 => RdmStep::Revive { at, peer: other },
        89..91 => RdmStep::Insert { at, peer: other },
        91..93 => RdmStep::Wait(at),
        93..95 => RdmStep::Settle,
        _ => RdmStep::Poll(at),
    }
}

fn send(rng: &mut Rng, taste: &Taste) -> SendSpec {
    let len = *rng.pick(&LENGTHS);
    SendSpec {
        tag: tag(rng, taste),
        len,
        payload: *rng.pick(&[Payload::Inject, Payload::Region, Payload::Readable]),
        matched: percent(rng, 30),
        unsignaled: percent(rng, 10),
        immediate: !(taste.bare && len >= MIN_ROOM && percent(rng, 60)),
    }
}

fn receive(rng: &mut Rng, taste: &Taste, at: usize) -> RdmStep {
    let room = room(rng, taste);
    let min_free = *rng.pick(&[1, 8, 64, 1000]);
    let min_free = if taste.bare { min_free.max(MIN_ROOM) } else { min_free };
    let is_many = percent(rng, 20) && min_free <= room;
    RdmStep::Receive { at, want: want(rng, taste), room, min_free: is_many.then_some(min_free) }
}

fn room(rng: &mut Rng, taste: &Taste) -> usize {
    let room = *rng.pick(&ROOMS);
    if taste.bare { room.max(MIN_ROOM) } else { room }
}

/// A tag has bits that receives ignore often, and others.
fn tag(rng: &mut Rng, taste: &Taste) -> Option<u64> {
    let low = rng.below(taste.tags) as u64;
    (!percent(rng, 20)).then(|| low | (rng.below(2) as u64) << 40)
}

fn want(rng: &mut Rng, taste: &Taste) -> Want {
    let tag = tag(rng, taste);
    let ignore = *rng.pick(&[0, 1 << 40, 1 << 40, 1 << 40 | 1, !0]);
    Want { tag, ignore, from: percent(rng, 40).then(|| rng.below(taste.ends)) }
}
