//! Random programs, and the contract as a model that says whether what they saw is allowed.
//!
//! Cases show the rules that somebody thought of, one at a time. Here programs are drawn at random: endpoints between
//! three domains, receive queues that they share, regions that overlap and have different rights, all operations, lengths at
//! every threshold, faults, disconnects, drops, registrations and grants that come and go. Each runs on a provider and,
//! step by step, beside a *model*: an executable statement of the contract that accepts exactly what the contract allows. A
//! run in which call, completion, event or byte is not allowed is a disagreement, and then one of the two is wrong.
//!
//! | file | what is in it |
//! |---|---|
//! | `program` | a program as data: stored as JSON, printed one step a line |
//! | `generate` | drawing a program; knows what is likely to be of interest, not what is correct |
//! | `model/` | the contract; its table of files is the way to read it as a specification |
//! | `executor` | a program that runs beside the model: the loop over its steps |
//! | `polling/` | its steps on a provider |
//! | `layer/` | its steps through the asynchronous layer |
//! | `memories` | memories and regions of a program that runs |
//! | `shrink`, `simpler`, `rename` | making a program that disagrees as small as possible |
//! | `testbed` | the domains that programs run on |
//! | `fuzz` | many programs of any kind, on several threads |
//! | `pace` | whether the machine has become too slow for their deadlines |
//! | `connected` | what runs programs of connected endpoints: by polling, or through the layer |
//! | `rdm/` | programs of datagram endpoints, with a model of their own |
//!
//! What was found once is kept as a small program in the folder `programs`, and the case `random.regressions` runs
//! those on every provider. What programs leave to cases: time, waiting and arming, several threads on one handle,
//! private data and refused connections, relaxed ordering.

mod connected;
mod executor;
mod fuzz;
mod generate;
mod layer;
mod memories;
mod model;
mod pace;
mod polling;
mod program;
pub mod rdm;
mod rename;
mod shrink;
mod simpler;
mod testbed;

pub use connected::Runner;
pub use fuzz::{Agreed, Counterexample, Fuzz, Subject};
pub use generate::generate;
pub use program::{
    EndSpec, GrantSpec, Lie, Local, MemorySpec, OpSpec, Part, Program, RegionSpec, Remote,
    SharedSpec, Step, What,
};
pub use shrink::{Search, Shrink, shrink};
pub use testbed::{Bench, Disagreement};

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fabric::Catalog;

    use super::*;
    use crate::Target;

    #[test]
    fn programs_are_the_same_for_ever() {
        assert_eq!(generate(1, 7), generate(1, 7));
        assert_ne!(generate(1, 7), generate(1, 8));
        assert_ne!(generate(1, 7), generate(2, 7));
    }

    #[test]
    fn some_programs_share_receives_and_can_do_without() {
        let shares = |program: &Program| {
            let posts = |step: &Step| matches!(step, Step::Share { .. });
            let ends = (0..2 * program.connections.len()).filter_map(|end| program.shared_by(end));
            ends.count() > 1 && program.steps.iter().any(posts)
        };
        let programs: Vec<_> = (0..300).map(|number| generate(1, number)).collect();
        assert!((50..200).contains(&programs.iter().filter(|program| shares(program)).count()));
        for program in &programs {
            let without = program.without_shared();
            assert!(without.shared.is_empty() && !shares(&without), "{without}");
            assert_eq!(without == *program, program.shared.is_empty(), "{program}");
        }
    }

    #[test]
    #[cfg(feature = "tcp")]
    fn programs_agree_on_tcp() {
        let target = Target::find(&Arc::new(Catalog::builtin()), "tcp", None).unwrap();
        for layered in [false, true] {
            let fuzz = Fuzz { programs: 300, jobs: 2, layered, ..Fuzz::default() };
            match fuzz.run::<Program>(&target, |_| ()) {
                Ok(agreed) => assert_eq!(agreed.programs, 300),
                Err(found) => panic!("{found}"),
            }
        }
    }
}
