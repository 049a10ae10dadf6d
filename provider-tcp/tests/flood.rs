//! A server under a flood of strangers: memory, threads, descriptors and the log stay bounded, and connected
//! peers are served. Alone in its process, whose resources it counts.

#![allow(clippy::unwrap_used)] // the helpers are of tests too

#[path = "hostile/scene.rs"]
mod scene;

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use scene::*;

/// Strangers at a time that say nothing at all.
const SILENT: usize = 200;
/// Descriptors of this process, fewer than there are strangers: the listener takes an eighth.
const DESCRIPTORS: u64 = 512;
/// How long the flood lasts, and how long after it nothing of it may be left: a hello has 5 s.
const FLOOD: Duration = Duration::from_secs(4);
const AFTERWARDS: Duration = Duration::from_secs(30);

struct Lines(AtomicU64);

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        if record.level() <= log::Level::Warn {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn flush(&self) {}
}

static LINES: Lines = Lines(AtomicU64::new(0));

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// What the well-behaved client does in a second.
fn rate(scene: &Scene) -> u64 {
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(1) {
        scene.check();
        done += 1;
    }
    done
}

/// Whether the client goes on beside a flood whose strangers are counted.
fn goes_on_beside(scene: &Scene, attempts: &AtomicU64) -> bool {
    let (quiet, seen) = (rate(scene), attempts.load(Ordering::Relaxed));
    let before = (entries("/proc/self/task"), entries("/proc/self/fd"), resident_kib());
    let (start, addr) = (Instant::now(), scene.addr());
    let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let loud = thread::scope(|scope| {
        let attackers = scope.spawn(|| {
            let connect = |_| std::net::TcpStream::connect(addr).unwrap();
            let silent: Vec<_> = (0..SILENT).map(connect).collect();
            begun.store(true, Ordering::Relaxed);
            // A failure below shall not leave it running.
            while !over.load(Ordering::Relaxed) && start.elapsed() < 2 * AFTERWARDS {
                // The server's answer to that is the end; a stranger who stays away a little is worse.
                if let Ok(mut stream) = std::net::TcpStream::connect(addr) {
                    let _ = stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello");
                    attempts.fetch_add(1, Ordering::Relaxed);
                }
            }
            silent
        });
        let is_flood =
            || begun.load(Ordering::Relaxed) && attempts.load(Ordering::Relaxed) > seen + 100;
        while !is_flood() {
            assert!(start.elapsed() < AFTERWARDS, "few strangers make no flood");
            thread::sleep(Duration::from_millis(20));
        }
        // The best second: others may want the processors too.
        let loud = (0..3).map(|_| rate(scene)).max().unwrap();
        let during = (entries("/proc/self/task"), entries("/proc/self/fd"), resident_kib());
        let max = before.1 + SILENT + DESCRIPTORS as usize / 8 + 8; // and the attackers'
        assert!(during.1 <= max, "{} descriptors, {} before", during.1, before.1);
        // One for the attackers.
        assert_eq!(during.0, before.0 + 1, "threads");
        assert!(during.2 < before.2 + 32 * 1024, "{} KiB, {} before", during.2, before.2);
        thread::sleep(FLOOD.saturating_sub(start.elapsed()));
        over.store(true, Ordering::Relaxed);
        drop(attackers.join());
        loud
    });
    println!("{loud} operations a second beside strangers, {quiet} without");
    // One processor is the attackers'; what is left is shared with the kernel's part of the flood.
    loud >= quiet / 20
}

#[test]
fn a_flood_of_strangers_is_told_of_and_costs_little() {
    log::set_logger(&LINES).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let limit = rustix::process::Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let scene = Scene::new();
    // The thread that logs comes with the first line.
    fabric_util::log_line!(Warn, "the flood begins");
    let before = (entries("/proc/self/task"), entries("/proc/self/fd"));
    let (start, attempts) = (Instant::now(), AtomicU64::new(0));
    // Others may have the processors at one time, and not at every time.
    let goes_on = (0..5).any(|_| goes_on_beside(&scene, &attempts));
    assert!(goes_on, "too little is done beside the flood");
    let attempts = attempts.into_inner();

    let until = Instant::now() + AFTERWARDS;
    // Those that wait in the kernel are taken one after the other.
    let is_left = || entries("/proc/self/fd") > before.1 || scene.refused() < attempts;
    while is_left() && Instant::now() < until {
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(entries("/proc/self/fd"), before.1, "descriptors are left");
    assert_eq!(entries("/proc/self/task"), before.0, "threads are left");
    // Some made room for others before their first word was read.
    let (breaches, refused) = (scene.breaches(), scene.refused());
    assert!(refused >= attempts && breaches > 0, "{refused} of {attempts} counted");
    let (lines, periods) = (LINES.0.load(Ordering::Relaxed), start.elapsed().as_secs() / 10 + 2);
    assert!((1..=10 * periods).contains(&lines), "{lines} lines for {attempts} strangers");
    scene.check();
}
