//! The least that two processes can do by shared memory: what `fabric-bench --shm` measures beside. Two words that count messages,
//! a slot of 64 bytes each way, and both ends spin: nothing sleeps, nothing is checked, and no end can go away.

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use rustix::event::EventfdFlags;
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// Measure plain shared memory between two processes that spin.
#[derive(Parser)]
#[command(name = "ring")]
struct Args {
    /// What to measure.
    #[arg(value_enum)]
    what: What,
    /// How long.
    #[arg(long, default_value_t = 0.4)]
    seconds: f64,
    /// The files that the other process made.
    #[arg(long, hide = true, num_args = 3)]
    files: Option<Vec<i32>>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// A message of 64 B to the other process and back: half of that.
    Message,
    /// An atomic addition to a word that another process has mapped.
    FetchAdd,
    /// A copy of 1 MiB into memory that another process has mapped.
    Copy,
    /// Both processes sleep on an eventfd(2) that the other writes to: half of a round trip.
    Wake,
}

/// Messages between looks at the clock.
const ROUNDS: u32 = 2000;
const LEN: usize = 1 << 20;

/// One direction, in lines of their own.
#[repr(C, align(128))]
struct Slot {
    sequence: AtomicU64,
    words: [AtomicU64; 7],
}

#[repr(C)]
struct Shared {
    there: Slot,
    back: Slot,
    word: Slot,
    bytes: [u8; LEN],
}

impl Slot {
    fn send(&self, sequence: u64) {
        self.words.iter().for_each(|word| word.store(sequence, Ordering::Relaxed));
        self.sequence.store(sequence, Ordering::Release);
    }

    fn receive(&self, sequence: u64) {
        while self.sequence.load(Ordering::Acquire) != sequence {
            std::hint::spin_loop();
        }
        assert!(self.words.iter().all(|word| word.load(Ordering::Relaxed) == sequence));
    }
}

fn map(file: &OwnedFd) -> io::Result<*mut Shared> {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, of a file that is as long.
    let at = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            size_of::<Shared>(),
            rights,
            MapFlags::SHARED | MapFlags::POPULATE,
            file,
            0,
        )?
    };
    Ok(at.cast())
}

/// Half of a round trip, in microseconds.
fn messages(shared: *mut Shared, time: Duration) -> io::Result<f64> {
    // SAFETY: mapped until the process ends, and only reached by atomics.
    let (there, back) = unsafe { (&(*shared).there, &(*shared).back) };
    let mut sequence = 0;
    let round_trip = times(time, ROUNDS, || {
        sequence += 1;
        there.send(sequence);
        back.receive(sequence);
        Ok(())
    })?;
    there.send(u64::MAX);
    Ok(round_trip / 2.0)
}

fn echo(shared: *mut Shared) {
    // SAFETY: as in `messages`.
    let (there, back) = unsafe { (&(*shared).there, &(*shared).back) };
    for sequence in 1_u64.. {
        loop {
            match there.sequence.load(Ordering::Acquire) {
                u64::MAX => return,
                seen if seen == sequence => break,
                _ => std::hint::spin_loop(),
            }
        }
        there.receive(sequence);
        back.send(sequence);
    }
}

/// As messages, by two eventfds.
fn wakes([there, back]: [&OwnedFd; 2], time: Duration) -> io::Result<f64> {
    let round_trip = times(time, 100, || {
        rustix::io::write(there, &1_u64.to_ne_bytes())?;
        rustix::io::read(back, &mut [0; 8])?;
        Ok(())
    })?;
    rustix::io::write(there, &(1_u64 << 32).to_ne_bytes())?;
    Ok(round_trip / 2.0)
}

fn echo_wakes([there, back]: [&OwnedFd; 2]) -> io::Result<()> {
    loop {
        let mut count = [0; 8];
        rustix::io::read(there, &mut count)?;
        if u64::from_ne_bytes(count) > 1 {
            return Ok(());
        }
        rustix::io::write(back, &1_u64.to_ne_bytes())?;
    }
}

/// The time of one call, in microseconds: the median of many runs of `rounds` of them.
fn times(time: Duration, rounds: u32, mut call: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < time {
        let start = Instant::now();
        for _ in 0..rounds {
            call()?;
        }
        times.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds));
    }
    times.sort_by(f64::total_cmp);
    Ok(times.get(times.len() / 2).copied().unwrap_or(f64::NAN))
}

fn measure(args: &Args) -> io::Result<()> {
    let time = Duration::from_secs_f64(args.seconds);
    if let Some([file, there, back]) = args.files.as_deref() {
        // It must not spin for one that is gone.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // SAFETY: the numbers of descriptors that the parent left to this process.
        let [file, there, back] =
            [file, there, back].map(|fd| unsafe { OwnedFd::from_raw_fd(*fd) });
        if args.what == What::Wake {
            return echo_wakes([&there, &back]);
        }
        echo(map(&file)?);
        return Ok(());
    }
    // Left to the child.
    let file = rustix::fs::memfd_create("ring", MemfdFlags::empty())?;
    rustix::fs::ftruncate(&file, size_of::<Shared>() as u64)?;
    let shared = map(&file)?;
    let there = rustix::event::eventfd(0, EventfdFlags::empty())?;
    let back = rustix::event::eventfd(0, EventfdFlags::empty())?;
    let other = |what: &str| {
        let files = [&file, &there, &back].map(|file| file.as_raw_fd().to_string());
        Command::new(std::env::current_exe()?).args([what, "--files"]).args(files).spawn()
    };
    match args.what {
        What::Message => {
            let mut other = other("message")?;
            println!("{}", messages(shared, time)?);
            other.wait()?;
        }
        What::Wake => {
            let mut other = other("wake")?;
            println!("{}", wakes([&there, &back], time)?);
            other.wait()?;
        }
        What::FetchAdd => {
            // SAFETY: as in `messages`.
            let word = unsafe { &(*shared).word.sequence };
            let add = || {
                word.fetch_add(1, Ordering::AcqRel);
                Ok(())
            };
            println!("{}", times(time, ROUNDS, add)?);
        }
        What::Copy => {
            let from = vec![7_u8; LEN];
            // SAFETY: mapped until the process ends; no other process reaches it.
            let to = unsafe { &raw mut (*shared).bytes }.cast::<u8>();
            let copy = || {
                // SAFETY: both are as long, and apart.
                unsafe {
                    std::ptr::copy_nonoverlapping(std::hint::black_box(from.as_ptr()), to, LEN)
                };
                Ok(())
            };
            let us = times(time, 16, copy)?;
            println!("{}", LEN as f64 / us * 1e6);
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match measure(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
