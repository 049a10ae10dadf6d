//! Random programs over a few endpoints, beside a model of what is promised whatever happens when.
//!
//! Each test runs some programs; `FABRIC_RDM_PROGRAMS` says how many, and `FABRIC_RDM_SEED` which is the first. A failure shows
//! the seed, the program with as few steps as still fail, and what was expected. Threads make that two runs of a seed differ.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod completions;
mod ending;
mod executor;
mod memories;
mod memory;
mod order;
mod posts;
mod program;
mod record;

use std::time::{Duration, Instant};

use executor::{Executor, Outcome};
use program::Program;

/// How long a failing program is made shorter.
const SHRINKING: Duration = Duration::from_secs(20);

fn run(provider: &str, program: &Program) -> Outcome {
    let ends = executor::ends(provider, &program.settings)?;
    let mut executor = Executor::new(&ends, program)?;
    for (number, step) in program.steps.iter().enumerate() {
        executor.step(*step).map_err(|error| format!("step {number}, {step:?}: {error}"))?;
    }
    executor.finish()?;
    order::check(&executor.record)?;
    executor.check_memories()
}

/// A program with fewer steps that fails too, and how.
fn shrink(provider: &str, mut program: Program, mut failure: String) -> (Program, String) {
    let until = Instant::now() + SHRINKING;
    let mut size = program.steps.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < program.steps.len() {
            if Instant::now() >= until {
                return (program, failure);
            }
            let mut shorter = program.clone();
            shorter.steps.drain(at..(at + size).min(program.steps.len()));
            match (0..3).find_map(|_| run(provider, &shorter).err()) {
                Some(error) => (program, failure) = (shorter, error),
                None => at += size,
            }
        }
        size /= 2;
    }
    (program, failure)
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

/// Says which program it was that panicked.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("FABRIC_RDM_SEED={}", self.0);
        }
    }
}

fn programs(provider: &str) {
    let first = variable("FABRIC_RDM_SEED", 1);
    let mut failed = 0;
    for seed in first..first + variable("FABRIC_RDM_PROGRAMS", 60) {
        let _seed = Seed(seed);
        let program = Program::new(seed);
        let Err(failure) = run(provider, &program) else { continue };
        eprintln!("{provider}, FABRIC_RDM_SEED={seed}: expected {failure}");
        let (program, failure) = shrink(provider, program, failure);
        eprintln!("{:?}", program.settings);
        program.steps.iter().for_each(|step| eprintln!("    {step:?}"));
        eprintln!("expected {failure}");
        failed += 1;
    }
    assert_eq!(failed, 0, "programs over {provider} that failed");
}

#[test]
fn over_tcp() {
    programs("tcp");
}

#[test]
fn over_shm() {
    programs("shm");
}

#[test]
fn over_mem() {
    programs("mem");
}
