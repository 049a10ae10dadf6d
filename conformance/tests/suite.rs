//! Each case as a test of its own, over TCP: `cargo test -p conformance --test suite -- rma.write`.

use std::process::ExitCode;
use std::sync::Arc;

use conformance::{Options, Status, Target, cases, run_case};
use fabric::Catalog;
use libtest_mimic::{Arguments, Trial};

/// Many cases sleep rather than compute, so a few at a time do not disturb each other; those that measure time
/// run alone (`run_case` sees to it).
const THREADS: usize = 4;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let trials = match Target::find(&Arc::new(Catalog::builtin()), "tcp", None) {
        Ok(target) => trials(&target),
        // Without the provider nothing is shown, and that is not a success.
        Err(reason) => vec![Trial::test("tcp.is_available", move || Err(reason.into()))],
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trials(target: &Target) -> Vec<Trial> {
    let trial = |case: &'static conformance::Case| {
        let program = option_env!("CARGO_BIN_EXE_fabric-conformance").map(Into::into);
        let options = Options { program, ..Options::default() };
        let mut missing = case.needs.missing(target.info(), false);
        missing.extend(options.lacking(&case.needs));
        let supported = missing.is_empty();
        let target = target.clone();
        let test = Trial::test(case.id(), move || {
            let result = run_case(&target, case, &options);
            if result.status == Status::Pass { Ok(()) } else { Err(result.detail.into()) }
        });
        let kind = if supported { "" } else { "unsupported" };
        test.with_ignored_flag(!supported || case.soak).with_kind(kind)
    };
    cases().map(trial).collect()
}
