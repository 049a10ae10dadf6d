//! Running many programs.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::shrink::{Shrink, shrink};
use super::testbed::Disagreement;
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

/// Programs of one kind: how they are drawn, and what runs them beside the model.
pub trait Subject:
    Shrink + fmt::Debug + fmt::Display + Serialize + DeserializeOwned + Send
{
    /// What programs run on, one after the other.
    type Runner;

    /// Draws a program; the same one for ever.
    fn generate(seed: u64, number: u64) -> Self;

    /// Opens what programs run on.
    ///
    /// # Errors
    /// Why it cannot be opened.
    fn runner(target: &Target, fuzz: &Fuzz, factor: f64) -> Result<Self::Runner, String>;

    /// Runs the program to its end. If it disagrees, what it made may still be there: the runner is not to be used again.
    ///
    /// # Errors
    /// Where the contract and the provider disagree.
    fn run(&self, runner: &Self::Runner) -> Result<(), Disagreement>;
}

/// A program that the contract and the provider disagree about.
#[derive(Debug)]
#[non_exhaustive]
pub struct Counterexample<P> {
    /// Its number; with the seed it makes the program as it was drawn.
    pub number: u64,
    /// The program, made as small as it was possible.
    pub program: P,
    /// What that showed.
    pub disagreement: Disagreement,
}

impl<P: fmt::Display> fmt::Display for Counterexample<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    pub fn run<P: Subject>(
        &self,
        target: &Target,
        progress: impl Fn(u64) + Sync,
    ) -> Result<u64, Box<Counterexample<P>>> {
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
                let program = P::generate(self.seed, number);
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
    pub fn replay<P: Subject>(
        &self,
        target: &Target,
        program: &P,
        times: usize,
    ) -> Result<(), Disagreement> {
        let mut runner = None;
        (0..times).try_for_each(|_| self.attempt(target, &mut runner, program))
    }

    /// Runs a program on a runner that is made if there is none, and not used again if the program disagrees.
    fn attempt<P: Subject>(
        &self,
        target: &Target,
        runner: &mut Option<P::Runner>,
        program: &P,
    ) -> Result<(), Disagreement> {
        let open = match runner.take() {
            Some(runner) => runner,
            None => self.runner::<P>(target)?,
        };
        program.run(&open)?;
        *runner = Some(open);
        Ok(())
    }

    fn runner<P: Subject>(&self, target: &Target) -> Result<P::Runner, Disagreement> {
        let factor = self.factor.unwrap_or_else(calibrate::factor);
        P::runner(target, self, factor).map_err(|cause| Disagreement {
            failed: Failed::nowhere("domains to open", cause),
            trace: Vec::new(),
        })
    }
}
