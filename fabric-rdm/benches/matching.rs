//! What matching costs with ten and with ten thousand receives or messages: `cargo bench -p anyfabric-rdm`, by criterion.
//! With `-- --table` the fastest of many rounds, in a table: for machines that have other work.
//!
//! `posted`: so many receives are posted, each with a tag of its own; a message comes for any of them, and a receive like
//! the one that it took is posted. `waiting`: so many messages wait, each with a tag of its own; a receive for any of them
//! is posted, and a message like the one that it took comes. So a figure is that of one message and one receive.

#![allow(clippy::unwrap_used)] // what fails here ends the benchmark

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use fabric_rdm::Peer;
use fabric_rdm::matching::{Envelope, MatchLimits, Matcher, Pattern, Receive};

const COUNTS: [u64; 2] = [10, 10_000];
const PEERS: u64 = 64;

/// How the receives look for their messages.
#[derive(Clone, Copy)]
enum Kind {
    Exact,
    AnySource,
    /// The last eight bits of the tag are ignored.
    Masked,
    MaskedExact,
    /// Masked, by eight masks in turn.
    EightMasks,
    /// Masked, while eight other masks are in use.
    NinthMask,
}

impl Kind {
    fn pattern(self, number: u64) -> Pattern {
        let tag = Pattern::tagged(number << 8);
        match self {
            Kind::Exact => tag.from(source(number)),
            Kind::AnySource => tag,
            Kind::Masked | Kind::NinthMask => tag.ignoring(0xff),
            Kind::EightMasks => tag.ignoring(0xff >> (number % 8)),
            Kind::MaskedExact => tag.ignoring(0xff).from(source(number)),
        }
    }
}

fn source(number: u64) -> Peer {
    Peer::from_bits(number % PEERS)
}

fn envelope(number: u64) -> Envelope {
    Envelope { source: source(number), tag: Some(number << 8), len: 64 }
}

/// What the receives and messages of a benchmark are.
struct Bench {
    matcher: Matcher<u64, u64>,
    kind: Kind,
    count: u64,
    random: u64,
    /// Of the eight masks the one that was looked for last.
    mask: u64,
}

impl Bench {
    fn new(kind: Kind, count: u64) -> Self {
        Bench {
            matcher: Matcher::new(MatchLimits::default()).unwrap(),
            kind,
            count,
            random: 0x9e37_79b9_7f4a_7c15,
            mask: 0,
        }
    }

    /// Any number below the count: the same in each run.
    fn next(&mut self) -> u64 {
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 32) * self.count) >> 32
    }

    /// Looks for a message with the next of eight masks, and finds none.
    fn look(&mut self) {
        self.mask = (self.mask + 1) % 8;
        let pattern = Pattern::tagged(1 << 62).ignoring(1 << (9 + self.mask));
        assert!(self.matcher.probe(&pattern).is_none());
    }

    fn post(&mut self, pattern: Pattern) {
        let receive = Receive::new(pattern, 64);
        self.matcher
            .post(receive, 0, |it| {
                let _ = black_box(it);
            })
            .unwrap();
    }

    fn arrive(&mut self, number: u64) {
        let _ = black_box(self.matcher.arrive(envelope(number), number).unwrap());
    }

    fn posted(kind: Kind, count: u64) -> Self {
        let mut bench = Self::new(kind, count);
        if let Kind::NinthMask = kind {
            // Of a tag that no message has.
            for mask in 9..17 {
                bench.post(Pattern::tagged(1 << 62).ignoring(1 << mask));
            }
        }
        (0..count).for_each(|number| bench.post(kind.pattern(number)));
        bench
    }

    fn waiting(kind: Kind, count: u64) -> Self {
        let mut bench = Self::new(kind, count);
        (0..count).for_each(|number| bench.arrive(number));
        if let Kind::NinthMask = kind {
            (0..8).for_each(|_| bench.look());
        }
        bench
    }

    fn message_then_receive(&mut self) {
        let number = self.next();
        self.arrive(number);
        self.post(self.kind.pattern(number));
    }

    fn receive_then_message(&mut self) {
        let number = self.next();
        if let Kind::NinthMask = self.kind {
            // Else an index for the ninth would take the place of one for another.
            self.look();
        }
        self.post(self.kind.pattern(number));
        self.arrive(number);
    }
}

/// One column of the figures.
struct Side {
    name: &'static str,
    setup: fn(Kind, u64) -> Bench,
    operation: fn(&mut Bench),
}

const SIDES: [Side; 2] = [
    Side { name: "posted", setup: Bench::posted, operation: Bench::message_then_receive },
    Side { name: "waiting", setup: Bench::waiting, operation: Bench::receive_then_message },
];

const KINDS: [(&str, Kind); 6] = [
    ("exact", Kind::Exact),
    ("any source", Kind::AnySource),
    ("masked", Kind::Masked),
    ("masked, one source", Kind::MaskedExact),
    ("eight masks", Kind::EightMasks),
    ("ninth mask", Kind::NinthMask),
];

fn time(bench: &mut Bench, count: u64, operation: fn(&mut Bench)) -> Duration {
    let start = Instant::now();
    (0..count).for_each(|_| operation(bench));
    start.elapsed()
}

fn main() {
    if std::env::args().any(|arg| arg == "--table") { table() } else { measure() }
}

/// The fastest of many short rounds: what other processes on the machine take away is not in it.
fn table() {
    for side in SIDES {
        for (name, kind) in KINDS {
            let [few, many] = COUNTS.map(|count| fastest(&side, kind, count));
            let ratio = many / few;
            println!("{:>8}, {name:<20} {few:8.1} ns {many:10.1} ns   x {ratio:.2}", side.name);
        }
    }
}

/// Nanoseconds for each operation.
fn fastest(side: &Side, kind: Kind, count: u64) -> f64 {
    const OPERATIONS: u64 = 2_000;
    const FOR: Duration = Duration::from_secs(1);
    let mut bench = (side.setup)(kind, count);
    let start = Instant::now();
    let mut fastest = Duration::MAX;
    while start.elapsed() < FOR {
        fastest = fastest.min(time(&mut bench, OPERATIONS, side.operation));
    }
    fastest.as_nanos() as f64 / OPERATIONS as f64
}

fn measure() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .configure_from_args();
    for side in SIDES {
        for (name, kind) in KINDS {
            let mut group = criterion.benchmark_group(format!("{}, {name}", side.name));
            group.throughput(Throughput::Elements(1));
            for count in COUNTS {
                group.bench_with_input(BenchmarkId::from_parameter(count), &count, |b, &count| {
                    let mut bench = (side.setup)(kind, count);
                    b.iter_custom(|iterations| time(&mut bench, iterations, side.operation));
                });
            }
            group.finish();
        }
    }
    criterion.final_summary();
}
