//! What every way of running a program shares: the program's state beside the model, the loop over its steps, and waiting.

use std::fmt::Display;
use std::thread;
use std::time::Instant;

use fabric::{Completion, Error};

use super::memories::Memories;
use super::model::{CompletionOf, Model};
use super::program::{Program, Step};
use super::testbed::Bench;
use crate::check::{Failed, Outcome};

/// A program that is running, and its model.
pub(super) struct Running<'a> {
    pub(super) bench: &'a Bench,
    pub(super) program: &'a Program,
    pub(super) model: Model,
    pub(super) memories: Memories<'a>,
    contexts: u64,
    trace: &'a mut Vec<String>,
}

impl<'a> Running<'a> {
    pub(super) fn new(
        bench: &'a Bench,
        program: &'a Program,
        trace: &'a mut Vec<String>,
    ) -> Result<Self, Failed> {
        let (memories, initial) = Memories::new(program, &bench.domains)?;
        let model = Model::new(program, initial, bench.unique_keys);
        Ok(Running { bench, program, model, memories, contexts: 0, trace })
    }

    /// How many ends connections have.
    pub(super) fn ends(&self) -> usize {
        2 * self.program.connections.len()
    }

    /// The domain of an end.
    pub(super) fn domain_of(&self, end: usize) -> usize {
        self.program.connections[end / 2][end % 2].domain
    }

    /// The first of so many new contexts.
    pub(super) fn next_contexts(&mut self, count: usize) -> u64 {
        let first = self.contexts;
        self.contexts += count as u64;
        first
    }

    /// A line of the trace, below that of the step.
    pub(super) fn note(&mut self, line: impl Display) {
        self.trace.push(format!("     {line}"));
    }

    /// Has the model judge each post of a batch, with what it returned. An error comes with how many were taken before.
    pub(super) fn posted(
        &mut self,
        result: Result<(), (usize, Error)>,
        count: usize,
        judge: impl Fn(&mut Model, usize, Result<(), &Error>) -> Result<bool, Failed>,
    ) -> Outcome {
        let taken = result.as_ref().map_or_else(|refusal| refusal.0, |()| count);
        if let Err((taken, error)) = &result {
            self.note(format!("{taken} posted, then {}", brief(error)));
        }
        for i in 0..taken {
            judge(&mut self.model, i, Ok(()))?;
        }
        match &result {
            Err((_, error)) if taken < count => judge(&mut self.model, taken, Err(error)).map(drop),
            _ => Ok(()),
        }
    }

    pub(super) fn completed(&mut self, done: &Completion, name: CompletionOf) -> Outcome {
        self.model.completed(done, name, &|run| self.memories.read(run))
    }

    /// Nothing is under way at any end.
    pub(super) fn finished(&mut self) -> Outcome {
        for end in 0..self.ends() {
            self.model.finished(end, &|run| self.memories.read(run))?;
        }
        match (0..self.program.shared.len()).find(|queue| self.model.owed_left(*queue) > 0) {
            Some(queue) => {
                Err(Failed::new(format!("every receive of s{queue} to end"), "one never did"))
            }
            None => Ok(()),
        }
    }

    /// Looks at every byte, before all regions are closed and after.
    pub(super) fn close_memories(&mut self) -> Outcome {
        self.memories.look_at_all(&mut self.model)?;
        self.memories.close_all(&mut self.model)?;
        self.memories.look_at_all(&mut self.model)
    }
}

/// A way of running a program.
pub(super) trait Executor<'a> {
    fn running(&mut self) -> &mut Running<'a>;

    /// Executes a step that is not of memory alone.
    fn act(&mut self, step: &Step) -> Outcome;

    /// Opens a grant.
    fn grant(&mut self, at: usize) -> Outcome;

    /// Takes what has come, at this end or at all. Says whether there was anything.
    fn progress(&mut self, end: usize) -> Result<bool, Failed>;

    /// The state of everything, for a failure.
    fn dump(&self) -> String;

    /// Everything that can end ends, everything that can be known is known, and every byte is looked at.
    fn drain(&mut self) -> Outcome;

    /// Closes everything, and looks at every byte once more.
    fn close(&mut self) -> Outcome;

    /// Runs the program to its end.
    fn execute(&mut self) -> Outcome {
        for (at, step) in self.running().program.steps.iter().enumerate() {
            self.running().trace.push(format!("{at:3}  {step}"));
            self.step(step)?;
        }
        self.running().trace.push("the end: everything comes to rest".to_owned());
        self.drain()?;
        self.running().trace.push("everything is closed".to_owned());
        self.close()
    }

    fn step(&mut self, step: &Step) -> Outcome {
        let Running { program, memories, model, .. } = self.running();
        match step {
            Step::Register(at) if program.is_grant(*at) => self.grant(*at),
            Step::Register(at) => memories.register(model, *at),
            Step::Close(at) => memories.close(model, *at),
            Step::Forget(at) => {
                memories.forget(model, *at);
                Ok(())
            }
            Step::Store { memory, at, len, salt } => {
                memories.store(model, *memory, *at, *len, *salt)
            }
            Step::Look(memory) => memories.look(model, *memory),
            Step::Wait(end) => self.wait(*end),
            _ => self.act(step),
        }
    }

    /// Waits until everything has come that is due at this end.
    fn wait(&mut self, end: usize) -> Outcome {
        if end >= self.running().ends() {
            return Ok(());
        }
        self.wait_until(end, &|model| match model.owed(end) {
            0 => None,
            owed => Some(format!("{owed} completions of e{end}")),
        })
    }

    /// Takes what comes until nothing is missing.
    fn wait_until(&mut self, end: usize, missing: &dyn Fn(&Model) -> Option<String>) -> Outcome {
        let deadline = Instant::now() + self.running().bench.timeout();
        while let Some(what) = missing(&self.running().model) {
            if !self.progress(end)? {
                if Instant::now() > deadline {
                    let failed = self.running().bench.nothing_came(&what);
                    return Err(failed.with_dump(self.dump()));
                }
                thread::yield_now();
            }
        }
        Ok(())
    }
}

/// An error on one line.
pub(super) fn brief(error: &Error) -> String {
    format!("{error:?}").chars().take(120).collect()
}
