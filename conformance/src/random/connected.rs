//! Programs of connected endpoints: what runs them, by polling or through the asynchronous layer.

use fabric_async::Node;

use super::executor::Executor;
use super::fuzz::{Fuzz, Subject};
use super::generate::generate;
use super::layer;
use super::polling::Polling;
use super::program::Program;
use super::testbed::{Bench, Disagreement};
use crate::target::Target;

/// Runs one program after the other.
#[derive(Debug)]
pub struct Runner {
    bench: Bench,
    /// On each domain one, where programs run through the asynchronous layer.
    nodes: Option<Vec<Node>>,
}

impl Subject for Program {
    type Runner = Runner;

    fn generate(seed: u64, number: u64) -> Self {
        generate(seed, number)
    }

    fn runner(target: &Target, fuzz: &Fuzz, factor: f64) -> Result<Runner, String> {
        let bench = Bench::new(target, factor).map_err(|error| error.to_string())?;
        let nodes = fuzz.layered.then(|| layer::nodes(&bench)).transpose();
        Ok(Runner { nodes: nodes.map_err(|error| error.to_string())?, bench })
    }

    fn run(&self, runner: &Runner) -> Result<(), Disagreement> {
        let mut trace = Vec::new();
        // The layer shares no receives, and not every provider does.
        let without = self.without_shared();
        let shares = runner.bench.shared_receives && runner.nodes.is_none();
        let program = if shares { self } else { &without };
        let outcome = match &runner.nodes {
            None => {
                Polling::new(&runner.bench, program, &mut trace).and_then(|mut run| run.execute())
            }
            Some(nodes) => layer::execute(&runner.bench, nodes, program, &mut trace),
        };
        outcome.map_err(|failed| Disagreement { failed, trace })
    }
}
