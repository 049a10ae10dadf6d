//! Random programs: what is done with a few endpoints, step by step, drawn from a seed.

use fabric_util::splitmix::SplitMix64;

/// Random choices.
struct Rng(SplitMix64);

impl Rng {
    fn below(&mut self, end: usize) -> usize {
        self.0.below(end)
    }

    /// In so many of 100 cases.
    fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Bits of a tag above these differ for each message that has a tag of its own.
pub(crate) const CLASS_BITS: u32 = 8;
/// Room that endpoints have for the writes of each other one, by its place among them.
pub(crate) const PLACES: [usize; 3] = [8, 300, 9000];

const LENGTHS: [usize; 10] = [0, 1, 64, 200, 300, 5000, 9000, 40_000, 100_000, 8];
const ROOMS: [usize; 9] = [0, 8, 64, 200, 300, 5000, 9000, 40_000, 100_000];

/// The settings of the endpoints of a program.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) ends: usize,
    pub(crate) max_open: u32,
    pub(crate) window: u64,
    pub(crate) bytes: u64,
    pub(crate) slots: u32,
    pub(crate) slot_len: u32,
    pub(crate) rendezvous: u64,
    pub(crate) connection_depth: u32,
}

/// Which messages a receive or a probe takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) tag: Option<u64>,
    pub(crate) ignore: u64,
    pub(crate) from: Option<usize>,
}

/// Where the payload of a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Inject,
    Region,
    /// One that can be read by the target.
    Readable,
}

/// The end of a message that was probed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claim {
    /// It stays where it is.
    Leave,
    Receive(usize),
    /// It is claimed, and received later.
    Keep,
    Drop,
}

/// Endpoints are named by their numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Send {
        at: usize,
        to: usize,
        class: Option<u64>,
        /// Its tag has a part that no other message has.
        unique: bool,
        len: usize,
        from: From,
        matched: bool,
    },
    Recv {
        at: usize,
        wanted: Wanted,
        room: usize,
        min_free: Option<u64>,
    },
    Probe {
        at: usize,
        wanted: Wanted,
        claim: Claim,
    },
    /// The oldest message that was claimed and kept.
    ReceiveKept {
        at: usize,
        room: usize,
    },
    Write {
        at: usize,
        to: usize,
        place: usize,
    },
    Read {
        at: usize,
        to: usize,
        place: usize,
    },
    Add {
        at: usize,
        to: usize,
    },
    /// One of the last operations of the endpoint, by its distance from the last.
    Cancel {
        at: usize,
        back: usize,
    },
    Poll {
        at: usize,
    },
    /// Sleeps until a completion, or for a moment, so that the threads of the others go on.
    Wait {
        at: usize,
    },
    /// The endpoint removes a peer, and inserts it again.
    Cut {
        at: usize,
        peer: usize,
    },
    /// All peers that are down are taken for alive again.
    Revive {
        at: usize,
    },
}

/// What is done.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) settings: Settings,
    pub(crate) steps: Vec<Step>,
}

impl Program {
    pub(crate) fn new(seed: u64) -> Self {
        let rng = &mut Rng(SplitMix64::new(seed));
        let ends = 2 + rng.below(3);
        let settings = Settings {
            ends,
            max_open: rng.pick(&[1, 1, 2, 2, 256]),
            window: rng.pick(&[4, 4, 16, 64]),
            bytes: rng.pick(&[4096, 20_000, 1 << 20]),
            slots: rng.pick(&[8, 32, 128]),
            slot_len: rng.pick(&[512, 8192, 8192]),
            rendezvous: rng.pick(&[1000, 32 << 10, 32 << 10, 1 << 20]),
            connection_depth: rng.pick(&[8, 16, 64]),
        };
        let cuts = if rng.percent(40) { 3 } else { 0 };
        // Some programs have many receives, some few.
        let receives = rng.pick(&[15, 25, 35]);
        let count = rng.pick(&[20, 60, 120]);
        let steps = (0..count).map(|_| step(rng, ends, receives, cuts)).collect();
        Program { settings, steps }
    }
}

fn step(rng: &mut Rng, ends: usize, receives: usize, cuts: usize) -> Step {
    let at = rng.below(ends);
    let other = (at + 1 + rng.below(ends - 1)) % ends;
    let place = rng.below(PLACES.len());
    let kind = rng.below(100);
    match kind {
        _ if rng.percent(cuts) => Step::Cut { at, peer: other },
        0..35 => Step::Send {
            at,
            to: if rng.percent(8) { at } else { other },
            class: class(rng),
            unique: rng.percent(25),
            len: rng.pick(&LENGTHS),
            from: rng.pick(&[From::Inject, From::Region, From::Readable]),
            matched: rng.percent(30),
        },
        _ if kind < 35 + receives => {
            let (room, is_many) = (rng.pick(&ROOMS), rng.percent(20));
            Step::Recv {
                at,
                wanted: wanted(rng, ends),
                room,
                min_free: is_many.then(|| rng.pick(&[1, 8, 64, 1000])),
            }
        }
        70..75 => {
            let room = rng.pick(&ROOMS);
            let claim = rng.pick(&[Claim::Leave, Claim::Receive(room), Claim::Keep, Claim::Drop]);
            Step::Probe { at, wanted: wanted(rng, ends), claim }
        }
        75..77 => Step::ReceiveKept { at, room: rng.pick(&ROOMS) },
        77..80 => Step::Write { at, to: other, place },
        80..82 => Step::Read { at, to: other, place },
        82..85 => Step::Add { at, to: other },
        85..89 => Step::Cancel { at, back: rng.below(6) },
        89..91 => Step::Revive { at },
        91..93 => Step::Wait { at },
        _ => Step::Poll { at },
    }
}

fn class(rng: &mut Rng) -> Option<u64> {
    (!rng.percent(20)).then(|| rng.below(4) as u64)
}

fn wanted(rng: &mut Rng, ends: usize) -> Wanted {
    let tag = class(rng);
    let above = !0 << CLASS_BITS;
    let ignore = rng.pick(&[0, above, above, above | 1, !0]);
    Wanted { tag, ignore, from: rng.percent(40).then(|| rng.below(ends)) }
}
