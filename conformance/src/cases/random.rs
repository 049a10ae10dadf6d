//! Random programs that once showed a mistake. New ones are drawn by `fabric-conformance fuzz`.

use crate::prelude::*;
use crate::random::rdm::RdmProgram;
use crate::random::{Fuzz, Program, Subject};

pub(super) const CASES: &[Case] = cases! { Random:
    self::regressions, Needs::ALL,
        "programs that once showed a mistake of a provider, or of the model, agree with the contract"
        .limit_s(120).local_only("one thread and its model see everything");
    self::datagram_endpoints, Needs::ALL,
        "random programs of datagram endpoints agree with the model of their contract, and so do those that once showed a mistake"
        .limit_s(300).local_only("one thread and its model see everything");
};

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
    regression!("fenced_send_before_read"),
    regression!("fenced_read_behind_send"),
    regression!("long_read_before_refused_read"),
    regression!("write_behind_read_of_closing_region"),
    regression!("atomics_that_meet_a_write"),
    regression!("grant_behind_the_end"),
    regression!("unsignaled_send_to_shared_queue"),
];

/// Of datagram endpoints.
const RDM_REGRESSIONS: &[(&str, &str)] = &[
    regression!("rdm/refused_while_parking"),
    regression!("rdm/behind_refused_while_parking"),
    regression!("rdm/stale_request"),
];

fn regressions(rig: &Rig) -> Outcome {
    agree(rig, &Fuzz { factor: Some(rig.factor()), ..Fuzz::default() })
}

/// Each of the regressions agrees.
pub(super) fn agree(rig: &Rig, fuzz: &Fuzz) -> Outcome {
    all_agree::<Program>(rig, fuzz, REGRESSIONS)
}

fn all_agree<P: Subject>(rig: &Rig, fuzz: &Fuzz, programs: &[(&str, &str)]) -> Outcome {
    for (name, text) in programs {
        let program: P = match serde_json::from_str(text) {
            Ok(program) => program,
            Err(error) => fail!(format!("the program {name} to be one"), "{error}"),
        };
        if let Err(disagreement) = fuzz.replay(rig.target(), &program, rig.count(3, 30)) {
            fail!(format!("the program {name} to agree"), "{disagreement}");
        }
    }
    Ok(())
}

fn datagram_endpoints(rig: &Rig) -> Outcome {
    let (seed, programs) = (rig.rng().next_u64(), rig.count(20, 2000) as u64);
    let fuzz = Fuzz { seed, programs, jobs: 2, factor: Some(rig.factor()), ..Fuzz::default() };
    all_agree::<RdmProgram>(rig, &fuzz, RDM_REGRESSIONS)?;
    match fuzz.run::<RdmProgram>(rig.target(), |_| ()) {
        Ok(_) => Ok(()),
        Err(found) => fail!("random programs to agree", "seed {seed}, {found}"),
    }
}
