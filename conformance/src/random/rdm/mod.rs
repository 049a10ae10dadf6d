//! Random programs of reliable datagram endpoints, `fabric-rdm`, on any provider.
//!
//! Two to four endpoints of this process send each other messages with and without tags, of lengths at every threshold, into
//! receives that are there or not, for one message or many, from one source or any; probe, claim and cancel; write, read and
//! count in each other's memory; remove each other, do not know each other, go, and come again. The model judges what they see.
//!
//! | file | what is in it |
//! |---|---|
//! | `program` | a program as data: stored as JSON, printed one step a line |
//! | `generate` | drawing a program |
//! | `model/` | the contract |
//! | `executor/` | its steps on endpoints |
//! | `smaller` | what is simpler, when a program is made smaller |
//!
//! What programs leave to cases: several threads on one endpoint, waiting by descriptors, time.

mod executor;
mod generate;
mod model;
mod program;
mod smaller;

pub use program::{Claiming, Payload, RdmProgram, RdmSettings, RdmStep, RemoteOp, SendSpec, Want};

use super::fuzz::{Fuzz, Subject};
use super::testbed::{Bench, Disagreement};
use crate::target::Target;

impl Subject for RdmProgram {
    type Runner = Bench;

    fn generate(seed: u64, number: u64) -> Self {
        generate::generate(seed, number)
    }

    fn runner(target: &Target, _: &Fuzz, factor: f64) -> Result<Bench, String> {
        Bench::new(target, factor).map_err(|error| error.to_string())
    }

    fn run(&self, bench: &Bench) -> Result<(), Disagreement> {
        executor::execute(bench, self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fabric::Catalog;

    use super::*;

    #[test]
    fn programs_are_the_same_for_ever() {
        let draw = RdmProgram::generate;
        assert_eq!(draw(1, 7), draw(1, 7));
        assert!(draw(1, 7) != draw(1, 8) && draw(1, 7) != draw(2, 7));
        let text = serde_json::to_string(&draw(1, 7)).unwrap();
        assert_eq!(serde_json::from_str::<RdmProgram>(&text).unwrap(), draw(1, 7));
    }

    /// Each kind of step is drawn, and each kind of program.
    #[test]
    fn programs_have_all_there_is() {
        let programs: Vec<_> = (0..300).map(|number| RdmProgram::generate(1, number)).collect();
        let count = |of: fn(&RdmProgram) -> bool| programs.iter().filter(|one| of(one)).count();
        let steps = |program: &RdmProgram, of: fn(&RdmStep) -> bool| program.steps.iter().any(of);
        let removes =
            count(|one| one.steps.iter().any(|step| matches!(step, RdmStep::Remove { .. })));
        assert!((40..150).contains(&removes), "{removes}");
        let drops = count(|one| one.settings.drops);
        assert!((20..90).contains(&drops), "{drops}");
        assert!(count(|one| one.settings.max_open == 1) > 50);
        assert!(count(|one| one.has_room_for_numbers()) > 30);
        assert!(count(|one| !one.settings.strange.is_empty()) > 10);
        assert!(count(RdmProgram::has_silent_receives) > 20);
        let restarts =
            count(|one| one.steps.iter().any(|step| matches!(step, RdmStep::Restart(_))));
        assert!((3..40).contains(&restarts), "{restarts}");
        let kinds: [fn(&RdmStep) -> bool; 7] = [
            |step| matches!(step, RdmStep::Probe { claiming: Claiming::Drop, .. }),
            |step| matches!(step, RdmStep::Claimed { .. }),
            |step| matches!(step, RdmStep::Receive { min_free: Some(_), .. }),
            |step| matches!(step, RdmStep::OneSided { what: RemoteOp::Add, .. }),
            |step| matches!(step, RdmStep::OneSided { what: RemoteOp::Forbidden, .. }),
            |step| matches!(step, RdmStep::Cancel { .. }),
            |step| matches!(step, RdmStep::Settle),
        ];
        for of in kinds {
            assert!(programs.iter().filter(|program| steps(program, of)).count() > 30);
        }
    }

    #[cfg(feature = "tcp")]
    #[test]
    fn programs_agree_on_tcp() {
        let target = Target::find(&Arc::new(Catalog::builtin()), "tcp", None).unwrap();
        let fuzz = Fuzz { programs: 60, jobs: 2, ..Fuzz::default() };
        match fuzz.run::<RdmProgram>(&target, |_| ()) {
            Ok(agreed) => assert_eq!(agreed.programs, 60),
            Err(found) => panic!("{found}"),
        }
    }
}
