//! Each case of the conformance suite as a test of its own, over this provider:
//! `cargo test -p anyfabric-mem --test suite -- rma.write`. What needs a second process, or a link to cut, it cannot have.

use std::process::ExitCode;
use std::sync::Arc;

use conformance::prelude::Case;
use conformance::{Options, Status, Target, cases, run_case};
use fabric::Catalog;
use libtest_mimic::{Arguments, Trial};
use provider_mem::{MemProvider, NAME};

/// Many cases sleep rather than compute, so a few at a time do not disturb each other; those that measure time run alone
/// (`run_case` sees to it).
const THREADS: usize = 4;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let mut all: Vec<_> = cases().collect();
    all.sort_by_key(|case| case.turn);
    let trials = match target() {
        Ok(target) => all.into_iter().map(|case| trial(&target, case)).collect(),
        // Without the provider nothing is shown, and that is not a success.
        Err(reason) => vec![Trial::test("mem.is_available", move || Err(reason.into()))],
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn target() -> Result<Target, String> {
    let catalog = Catalog::empty().add(MemProvider::new()).map_err(|error| error.to_string())?;
    Target::find(&Arc::new(catalog), NAME, None)
}

fn trial(target: &Target, case: &'static Case) -> Trial {
    let options = Options::default();
    let mut missing = case.needs.missing(target.common(), false);
    missing.extend(options.lacking(&case.needs));
    let supported = missing.is_empty();
    let target = target.clone();
    let test = Trial::test(case.id(), move || {
        let result = run_case(&target, case, &options);
        if result.status == Status::Pass { Ok(()) } else { Err(result.detail.into()) }
    });
    let kind = if supported { "" } else { "unsupported" };
    test.with_ignored_flag(!supported || case.soak).with_kind(kind)
}
