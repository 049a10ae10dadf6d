//! The paths that need no network, one by one: post and poll over a provider that does nothing, the in-flight ring with
//! its credits, a message from one protocol link to another, the headers of TCP.
//!
//! `cargo bench --bench paths` measures time, by criterion. With `-- --instructions` it counts instructions, by
//! callgrind (Debian's package valgrind): these hold on a busy machine too, so that a regression shows. With
//! `-- --threads`, and part of a line's name after it or not, it measures post and poll in several threads at a time.

#![allow(clippy::unwrap_used)] // what fails here ends the benchmark

mod lean;
mod link;
#[path = "../../tests/null/mod.rs"]
mod null;
#[path = "../../tests/rig/mod.rs"]
mod rig;
mod threads;

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use fabric::Completion;
use fabric_core::{AtomicCall, AtomicOp, AtomicType, RemoteAddr};
use fabric_util::inflight::inflight;
use fabric_util::stream::wire::frame::{Header, Kind};
use lean::LeanProvider;
use null::NullProvider;
use rig::Rig;

const BATCH: u64 = 16;

/// Does so many operations.
type Path = fn(u64);

const PATHS: [(&str, Path); 14] = [
    ("post and poll, one by one", |n| post_and_poll(n, 1)),
    ("post and poll, batches of 16", |n| post_and_poll(n, BATCH)),
    ("unsignaled post, never polled", unsignaled),
    ("poll that finds nothing", empty_poll),
    ("in-flight ring: place, fill, pop, credit", ring),
    ("64 B message from link to link", link::messages),
    ("header of a send: encode", |n| encode(n, send())),
    ("header of a send: decode", |n| decode(n, send())),
    ("header of a write: encode", |n| encode(n, write())),
    ("header of a write: decode", |n| decode(n, write())),
    ("header of an atomic: encode", |n| encode(n, atomic())),
    ("header of an atomic: decode", |n| decode(n, atomic())),
    ("header of an acknowledgement: encode", |n| encode(n, ack())),
    ("header of an acknowledgement: decode", |n| decode(n, ack())),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = args.iter().position(|arg| arg == "--run") {
        // Beneath callgrind.
        let (path, count) = (args[at + 1].parse::<usize>().unwrap(), args[at + 2].parse().unwrap());
        PATHS[path].1(count);
    } else if args.iter().any(|arg| arg == "--instructions") {
        instructions();
    } else if let Some(at) = args.iter().position(|arg| arg == "--threads") {
        let only = args.get(at + 1).filter(|arg| !arg.starts_with('-'));
        threads::times(only.map_or("", String::as_str));
    } else {
        times();
    }
}

fn times() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let mut group = criterion.benchmark_group("paths");
    group.throughput(Throughput::Elements(1));
    for (name, path) in PATHS {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|count| {
                let count = count.next_multiple_of(BATCH);
                let start = Instant::now();
                path(count);
                start.elapsed()
            });
        });
    }
    group.finish();
    criterion.final_summary();
}

/// Two counts of operations beneath callgrind: what they differ in is the path's, and the rest is set-up.
fn instructions() {
    const FEW: u64 = 2048;
    println!("{:<44} {:>12}", "instructions an operation (callgrind)", "");
    for (number, (name, _)) in PATHS.iter().enumerate() {
        let [few, many] = [FEW, 3 * FEW].map(|count| collected(number, count));
        println!("{name:<44} {:>12.1}", (many - few) as f64 / (2 * FEW) as f64);
    }
}

fn collected(path: usize, count: u64) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().unwrap())
        .args(["--run", &path.to_string(), &count.to_string()])
        .output()
        .expect("valgrind is needed to count instructions: apt-get install valgrind");
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split("Collected :").nth(1));
    collected.and_then(|count| count.trim().parse().ok()).unwrap_or_else(|| {
        eprintln!("callgrind counted nothing:\n{text}");
        std::process::exit(1)
    })
}

fn provider() -> LeanProvider {
    LeanProvider(NullProvider::new())
}

fn rig() -> Rig {
    let provider = provider();
    let control = provider.0.control();
    Rig::on(rig::domain_of(provider), control, |builder| builder)
}

fn post_and_poll(count: u64, batch: u64) {
    let rig = rig();
    let ops = vec![rig.write(black_box(7)); batch as usize];
    let mut out = vec![Completion::default(); batch as usize];
    for _ in 0..count / batch {
        match &ops[..] {
            [one] => rig.endpoint.post(one).unwrap(),
            ops => rig.endpoint.post_batch(ops).unwrap(),
        }
        assert_eq!(rig.queue.poll(&mut out).unwrap(), out.len());
        black_box(&out);
    }
}

fn unsignaled(count: u64) {
    let rig = rig();
    let op = rig.write(black_box(7)).unsignaled();
    for _ in 0..count {
        rig.endpoint.post(&op).unwrap();
    }
}

fn empty_poll(count: u64) {
    let rig = rig();
    let mut out = [Completion::default(); BATCH as usize];
    for _ in 0..count {
        assert_eq!(rig.queue.poll(black_box(&mut out)).unwrap(), 0);
    }
}

fn ring(count: u64) {
    let (mut producer, mut consumer) = inflight::<[u64; 6]>(128);
    for number in 0..count {
        producer.reserve().unwrap().insert(black_box([number; 6]));
        black_box(consumer.pop().unwrap());
        consumer.credit(1);
    }
}

fn header(kind: Kind, len: u32) -> Header {
    Header { kind, ask: false, len, ack: 11, credit: 12, seq: 13 }
}

fn at() -> RemoteAddr {
    RemoteAddr { key: 0x1234_5678_9abc_def0, addr: 4096 }
}

fn send() -> Header {
    header(Kind::Send { total: 64, imm: None }, 64)
}

fn write() -> Header {
    header(Kind::Write { total: 64, imm: None, to: at() }, 64)
}

fn atomic() -> Header {
    let call = AtomicCall { op: AtomicOp::Add, ty: AtomicType::U64, operand: 1, compare: 0 };
    header(Kind::Atomic { at: at(), call, fetch: true }, 0)
}

fn ack() -> Header {
    header(Kind::Ack, 0)
}

fn encode(count: u64, header: Header) {
    let mut out = Vec::with_capacity(128);
    for _ in 0..count {
        out.clear();
        black_box(&header).encode(&mut out);
        black_box(&out);
    }
}

fn decode(count: u64, header: Header) {
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    for _ in 0..count {
        black_box(Header::decode(black_box(&bytes)).unwrap().unwrap());
    }
}
