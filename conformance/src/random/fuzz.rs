//! Running many programs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fabric_async::Node;

use super::executor::Executor;
use super::generate::generate;
use super::layer;
use super::polling::Polling;
use super::program::Program;
use super::shrink::shrink;
use super::testbed::{Bench, Disagreement};
use crate::calibrate;
use crate::check::Failed;
use crate::target::Target;

/// What to run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Fuzz {
    /// The seed that programs are made from.
    pub seed: u64,
    /// How many programs, at most.
    pub programs: u64,
    /// For how long, at most.
    pub time: Option<Duration>,
    /// Programs at a time, each on domains of its own.
    pub jobs: usize,
    /// How long a program that disagrees is made smaller.
    pub shrink: Duration,
    /// What deadlines are stretched by; by default what a look at this machine's speed gives.
    pub factor: Option<f64>,
    /// Whether programs run through the asynchronous layer, as far as it has what they do.
    pub layered: bool,
}

impl Default for Fuzz {
    fn default() -> Self {
        Fuzz {
            seed: 1,
            programs: 300,
            time: None,
            jobs: 1,
            shrink: Duration::from_secs(60),
            factor: None,
            layered: false,
        }
    }
}

/// A program that the contract and the provider disagree about.
#[derive(Debug)]
#[non_exhaustive]
pub struct Counterexample {
    /// Its number; with the seed it makes the program as it was drawn.
    pub number: u64,
    /// The program, made as small as it was possible.
    pub program: Program,
    /// What that showed.
    pub disagreement: Disagreement,
}

impl std::fmt::Display for Counterexample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "program {}, made smaller:\n{}\nits run:\n{}",
            self.number, self.program, self.disagreement
        )
    }
}

impl Fuzz {
    /// Runs programs until one disagrees, all have run, or the time is over; gives how many agreed. `progress` gets how
    /// many have.
    ///
    /// # Errors
    /// The first program that disagrees.
    pub fn run(
        &self,
        target: &Target,
        progress: impl Fn(u64) + Sync,
    ) -> Result<u64, Box<Counterexample>> {
        let until = self.time.map(|time| Instant::now() + time);
        let (next, agreed, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let found = Mutex::new(None);
        let job = || {
            let mut runner = None;
            while !stop.load(Ordering::Relaxed) && until.is_none_or(|until| Instant::now() < until)
            {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.programs {
                    return;
                }
                let program = generate(self.seed, number);
                match self.attempt(target, &mut runner, &program) {
                    Ok(()) => progress(agreed.fetch_add(1, Ordering::Relaxed) + 1),
                    Err(seen) => {
                        stop.store(true, Ordering::Relaxed);
                        let mut found = found.lock().unwrap_or_else(|lock| lock.into_inner());
                        found.get_or_insert((number, program, seen));
                        return;
                    }
                }
            }
        };
        thread::scope(|scope| (0..self.jobs.max(1)).for_each(|_| _ = scope.spawn(job)));
        match found.into_inner().unwrap_or_else(|lock| lock.into_inner()) {
            None => Ok(agreed.into_inner()),
            Some((number, program, seen)) => {
                let (program, disagreement) = shrink(program, seen, self.shrink, |program| {
                    self.attempt(target, &mut None, program)
                });
                Err(Box::new(Counterexample { number, program, disagreement }))
            }
        }
    }

    /// Runs one program on a device, a few times.
    ///
    /// # Errors
    /// Where the contract and the provider disagree.
    pub fn replay(
        &self,
        target: &Target,
        program: &Program,
        times: usize,
    ) -> Result<(), Disagreement> {
        let mut runner = None;
        (0..times).try_for_each(|_| self.attempt(target, &mut runner, program))
    }

    /// Runs a program on a runner that is made if there is none, and not used again if the program disagrees.
    fn attempt(
        &self,
        target: &Target,
        runner: &mut Option<Runner>,
        program: &Program,
    ) -> Result<(), Disagreement> {
        let open = match runner.take() {
            Some(runner) => runner,
            None => self.runner(target).map_err(|cause| Disagreement {
                failed: Failed::nowhere("domains to open", cause),
                trace: Vec::new(),
            })?,
        };
        open.run(program)?;
        *runner = Some(open);
        Ok(())
    }

    fn runner(&self, target: &Target) -> Result<Runner, String> {
        let factor = self.factor.unwrap_or_else(calibrate::factor);
        let bench = Bench::new(target, factor).map_err(|error| error.to_string())?;
        let nodes = self.layered.then(|| layer::nodes(&bench)).transpose();
        Ok(Runner { nodes: nodes.map_err(|error| error.to_string())?, bench })
    }
}

/// Runs one program after the other.
struct Runner {
    bench: Bench,
    /// On each domain one, where programs run through the asynchronous layer.
    nodes: Option<Vec<Node>>,
}

impl Runner {
    /// Runs a program to its end. If it disagrees, what it made may still be there: the runner is not to be used again.
    fn run(&self, program: &Program) -> Result<(), Disagreement> {
        let mut trace = Vec::new();
        // The layer shares no receives, and not every provider does.
        let without = program.without_shared();
        let shares = self.bench.shared_receives && self.nodes.is_none();
        let program = if shares { program } else { &without };
        let outcome = match &self.nodes {
            None => {
                Polling::new(&self.bench, program, &mut trace).and_then(|mut run| run.execute())
            }
            Some(nodes) => layer::execute(&self.bench, nodes, program, &mut trace),
        };
        outcome.map_err(|failed| Disagreement { failed, trace })
    }
}
