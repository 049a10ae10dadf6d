//! Random programs, and those that once showed a mistake.

use crate::prelude::*;
use crate::random::{Fuzz, Program, replay};

pub(super) const CASES: &[Case] = &[
    Case::new(
        Group::Random,
        "regressions",
        Needs::ALL,
        "programs that once showed a mistake of a provider, or of the model, agree with the contract",
        regressions,
    )
    .limit_s(120)
    .local_only("one thread and its model see everything"),
    Case::new(
        Group::Random,
        "programs",
        Needs::ALL,
        "random programs agree with the contract: calls, completions, events, every byte of memory",
        programs,
    )
    .limit_s(3600)
    .local_only("one thread and its model see everything"),
];

macro_rules! regression {
    ($name:literal) => {
        ($name, include_str!(concat!("../../programs/", $name, ".json")))
    };
}

/// Programs, each with its name; made small by `fabric-conformance fuzz`.
const REGRESSIONS: &[(&str, &str)] = &[
    regression!("canceled_atomic_behind_canceled_send"),
    regression!("atomic_behind_send_whose_bytes_change"),
    regression!("send_from_word_of_atomics"),
    regression!("connection_that_seemed_over"),
];

fn regressions(rig: &Rig) -> Outcome {
    for (name, text) in REGRESSIONS {
        let program: Program = match serde_json::from_str(text) {
            Ok(program) => program,
            Err(error) => fail!(format!("the program {name} to be one"), "{error}"),
        };
        if let Err(disagreement) = replay(rig.target(), &program, rig.count(3, 30)) {
            fail!(format!("the program {name} to agree"), "{disagreement}");
        }
    }
    Ok(())
}

fn programs(rig: &Rig) -> Outcome {
    // As many as the time allows where a machine is slow.
    let time = Duration::from_secs(rig.count(30, 1800) as u64);
    let fuzz = Fuzz {
        seed: rig.rng().next_u64() >> 32,
        programs: rig.count(300, 10_000) as u64,
        time: Some(rig.scaled(time)),
        ..Fuzz::default()
    };
    match fuzz.run(rig.target(), |_| ()) {
        Ok(agreed) => {
            check!(agreed > 0, "a program that ran in {time:?}");
            Ok(())
        }
        Err(found) => fail!(format!("the programs of seed {} to agree", fuzz.seed), "{found}"),
    }
}
