//! Running many programs.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::pace::Pace;
use super::shrink::{Shrink, shrink};
use super::testbed::Disagreement;
use crate::calibrate;
use crate::check::Failed;
use crate::target::Target;
use crate::watch::lock;

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

/// Programs that agreed.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Agreed {
    /// How many.
    pub programs: u64,
    /// Those of them that disagreed while the machine was much slower than deadlines had been stretched for, and agreed with
    /// others: each with its number, and what was seen.
    pub repeated: Vec<(u64, Disagreement)>,
}

/// How often a program runs once more as the machine was too slow.
const MAX_REPEATS: usize = 3;

impl Fuzz {
    /// Runs programs until one disagrees, all have run, or the time is over. `progress` gets how many have agreed.
    ///
    /// # Errors
    /// The first program that disagrees.
    pub fn run<P: Subject>(
        &self,
        target: &Target,
        progress: impl Fn(u64) + Sync,
    ) -> Result<Agreed, Box<Counterexample<P>>> {
        let (pace, repeated) = (Pace::watch(), Mutex::new(Vec::new()));
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
                match self.judge(target, &mut runner, &program, &pace) {
                    Ok(slow) => {
                        lock(&repeated).extend(slow.map(|seen| (number, seen)));
                        progress(agreed.fetch_add(1, Ordering::Relaxed) + 1);
                    }
                    Err(seen) => {
                        stop.store(true, Ordering::Relaxed);
                        lock(&found).get_or_insert((number, program, seen));
                        return;
                    }
                }
            }
        };
        thread::scope(|scope| (0..self.jobs.max(1)).for_each(|_| _ = scope.spawn(job)));
        let found = lock(&found).take();
        match found {
            None => Ok(Agreed {
                programs: agreed.into_inner(),
                repeated: std::mem::take(&mut lock(&repeated)),
            }),
            Some((number, program, seen)) => {
                let (program, disagreement) = shrink(program, seen, self.shrink, |program| {
                    self.judge(target, &mut None, program, &pace).map(drop)
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
        let (pace, mut runner) = (Pace::watch(), None);
        (0..times).try_for_each(|_| self.judge(target, &mut runner, program, &pace).map(drop))
    }

    /// Runs a program, and once more with deadlines that fit if it disagrees while the machine is much slower than it was.
    /// Gives what was seen then, if it agreed at last.
    fn judge<P: Subject>(
        &self,
        target: &Target,
        runner: &mut Option<P::Runner>,
        program: &P,
        pace: &Pace,
    ) -> Result<Option<Disagreement>, Disagreement> {
        let mut factor = self.factor.unwrap_or_else(calibrate::factor);
        let mut slow = None;
        for _ in 0..MAX_REPEATS {
            let begin = Instant::now();
            let Err(seen) = self.attempt(target, runner, program, factor) else {
                if slow.is_some() {
                    // The next program has the usual deadlines.
                    *runner = None;
                }
                return Ok(slow);
            };
            match pace.much_slower(begin, factor) {
                Some(slower) => factor = slower,
                None => return Err(seen),
            }
            slow.get_or_insert(seen);
        }
        self.attempt(target, runner, program, factor).map(|()| slow)
    }

    /// Runs a program on a runner that is made if there is none, and not used again if the program disagrees.
    fn attempt<P: Subject>(
        &self,
        target: &Target,
        runner: &mut Option<P::Runner>,
        program: &P,
        factor: f64,
    ) -> Result<(), Disagreement> {
        let open = match runner.take() {
            Some(runner) => runner,
            None => P::runner(target, self, factor).map_err(|cause| Disagreement {
                failed: Failed::nowhere("domains to open", cause),
                trace: Vec::new(),
            })?,
        };
        program.run(&open)?;
        *runner = Some(open);
        Ok(())
    }
}
