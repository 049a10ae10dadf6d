//! Drawing a program of datagram endpoints: what is likely to be of interest, not what is correct.

use super::program::{
    Claiming, NUMBER, PLACES, Payload, RdmProgram, RdmSettings, RdmStep, RemoteOp, SendSpec, Want,
};
use crate::pattern::{Rng, mix};

const LENGTHS: [usize; 11] = [0, 1, 8, 64, 200, 300, 5000, 9000, 40_000, 100_000, 8];
const ROOMS: [usize; 9] = [0, 8, 64, 200, 300, 5000, 9000, 40_000, 100_000];
/// What is drawn once for all steps of a program.
struct Taste {
    ends: usize,
    /// Of 100 steps, so many receives.
    receives: usize,
    /// Of 1000 steps, so many removals of a peer.
    removals: usize,
    /// The same of operations that the target refuses.
    forbidden: usize,
    /// Of 100 receives, so many without completions.
    silent: usize,
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
    let is_silent = percent(rng, 20);
    let is_strange = !is_silent && percent(rng, 10);
    let restarts = !is_silent && percent(rng, 5);
    let drops = is_strange || restarts || !is_silent && percent(rng, 5);
    let strange = if is_strange { strange(rng, ends) } else { Vec::new() };
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
        strange,
        max_strangers: if is_strange { *rng.pick(&[0, 1, 8, 8]) } else { 0 },
    };
    let losses = if is_silent { 0 } else { 25 };
    let taste = Taste {
        ends,
        receives: *rng.pick(&[15, 25, 35]),
        removals: if percent(rng, 30) { losses } else { 0 },
        forbidden: if percent(rng, 25) { losses } else { 0 },
        silent: if is_silent { 40 } else { 0 },
        tags: *rng.pick(&[1, 2, 4]),
        one_target: percent(rng, 15),
        bare: percent(rng, 25),
    };
    let count = *rng.pick(&[12, 30, 60, 100]);
    let mut steps: Vec<_> = (0..count).flat_map(|_| steps(rng, &taste)).collect();
    if restarts {
        let at = rng.below(count);
        steps.insert(at, RdmStep::Restart(rng.below(ends)));
        // From then on there is one more.
        let taste = Taste { ends: ends + 1, ..taste };
        steps.truncate(at + 1);
        steps.extend((at..count).flat_map(|_| self::steps(rng, &taste)));
    } else if drops && !is_strange {
        steps.insert(rng.below(count), RdmStep::Drop(rng.below(ends)));
    }
    RdmProgram { settings, steps }
}

/// Pairs whose first one does not know the second one.
fn strange(rng: &mut Rng, ends: usize) -> Vec<(usize, usize)> {
    let pairs = (0..ends).flat_map(|at| (0..ends).map(move |of| (at, of)));
    pairs.filter(|(at, of)| at != of && percent(rng, 30)).collect()
}

/// In so many of 100 cases.
fn percent(rng: &mut Rng, percent: usize) -> bool {
    rng.below(100) < percent
}

/// One step, or a removal that is taken back at once.
fn steps(rng: &mut Rng, taste: &Taste) -> impl Iterator<Item = RdmStep> + use<> {
    let at = rng.below(taste.ends);
    let peer = (at + 1 + rng.below(taste.ends - 1)) % taste.ends;
    let (first, second) = if rng.below(1000) < taste.removals {
        let insert = percent(rng, 50).then_some(RdmStep::Insert { at, peer });
        (RdmStep::Remove { at, peer }, insert)
    } else {
        (step(rng, taste, (at, peer)), None)
    };
    [Some(first), second].into_iter().flatten()
}

fn step(rng: &mut Rng, taste: &Taste, (at, other): (usize, usize)) -> RdmStep {
    if rng.below(1000) < taste.forbidden {
        let (what, fence) = (RemoteOp::Forbidden, percent(rng, 20));
        let to = if percent(rng, 25) { at } else { other };
        return RdmStep::OneSided { at, to, what, fence, unsignaled: false };
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
            let to = if percent(rng, 10) { at } else { other };
            RdmStep::OneSided { at, to, what: *rng.pick(&all), fence, unsignaled }
        }
        83..87 => RdmStep::Cancel { at, back: rng.below(6) },
        87..89 => RdmStep::Revive { at, peer: if percent(rng, 20) { at } else { other } },
        89..91 => RdmStep::Insert { at, peer: other },
        91..93 => RdmStep::Wait(at),
        93..95 => RdmStep::Settle,
        _ => RdmStep::Poll(at),
    }
}

fn send(rng: &mut Rng, taste: &Taste) -> SendSpec {
    let len = *rng.pick(&LENGTHS);
    SendSpec {
        tag: own_tag(rng, taste),
        len,
        payload: *rng.pick(&[Payload::Inject, Payload::Region, Payload::Readable]),
        matched: percent(rng, 30),
        unsignaled: percent(rng, 10),
        immediate: !(taste.bare && len >= NUMBER && percent(rng, 60)),
    }
}

fn receive(rng: &mut Rng, taste: &Taste, at: usize) -> RdmStep {
    let room = room(rng, taste);
    let min_free = *rng.pick(&[1, 8, 64, 1000]);
    let min_free = if taste.bare { min_free.max(NUMBER) } else { min_free };
    let is_many = percent(rng, 20) && min_free <= room;
    let (min_free, unsignaled) = (is_many.then_some(min_free), percent(rng, taste.silent));
    RdmStep::Receive { at, want: want(rng, taste), room, min_free, unsignaled }
}

fn room(rng: &mut Rng, taste: &Taste) -> usize {
    let room = *rng.pick(&ROOMS);
    if taste.bare { room.max(NUMBER) } else { room }
}

/// A tag has bits that receives ignore often, and others.
fn tag(rng: &mut Rng, taste: &Taste) -> Option<u64> {
    let low = rng.below(taste.tags) as u64;
    (!percent(rng, 20)).then(|| low | (rng.below(2) as u64) << 40)
}

/// The same, often with bits that hardly any other message has: by these one that was claimed is known.
fn own_tag(rng: &mut Rng, taste: &Taste) -> Option<u64> {
    let own = if percent(rng, 25) { rng.below(1 << 16) as u64 } else { 0 };
    tag(rng, taste).map(|tag| tag | own << 41)
}

fn want(rng: &mut Rng, taste: &Taste) -> Want {
    let tag = tag(rng, taste);
    let above = !0 << 40;
    let ignore = *rng.pick(&[0, 1 << 40, above, above | 1, !0]);
    Want { tag, ignore, from: percent(rng, 40).then(|| rng.below(taste.ends)) }
}
