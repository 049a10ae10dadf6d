//! Each case as a test of its own, over TCP: `cargo test -p anyfabric-conformance --test suite -- rma.write`. Those of the kind
//! `remote` have the peer's end at a server: all that can, since with both ends here they run in `make conformance`.

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use conformance::prelude::Case;
use conformance::{Options, Peer, Server, Status, Target, cases, run_case};
use fabric::Catalog;
use libtest_mimic::{Arguments, Trial};

/// Many cases sleep rather than compute, so a few at a time do not disturb each other; those that measure time
/// run alone (`run_case` sees to it).
const THREADS: usize = 4;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let mut all: Vec<_> = cases().collect();
    all.sort_by_key(|case| case.turn);
    let trials = match targets() {
        Ok([here, far]) => all.into_iter().map(|case| trial(case, &here, &far)).collect(),
        // Without the provider nothing is shown, and that is not a success.
        Err(reason) => vec![Trial::test("tcp.is_available", move || Err(reason.into()))],
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The provider with both ends here, and with one at a server.
fn targets() -> Result<[Target; 2], String> {
    let catalog = Arc::new(Catalog::builtin());
    let here = Target::find(&catalog, "tcp", None)?;
    let text = |error: std::io::Error| error.to_string();
    let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into(), &catalog).map_err(text)?;
    let addr = server.local_addr().map_err(text)?;
    thread::spawn(move || server.run());
    let far = here.clone().with_peer(&Arc::new(Peer::reach(addr)?), None)?;
    Ok([here, far])
}

fn trial(case: &'static Case, here: &Target, far: &Target) -> Trial {
    let can_be_far = case.local_only.is_empty() && !case.needs.process;
    let (kind, target) = if can_be_far { ("remote", far) } else { ("", here) };
    let program = option_env!("CARGO_BIN_EXE_fabric-conformance").map(Into::into);
    let options = Options { program, ..Options::default() };
    let mut missing = case.needs.missing(target.common(), false);
    missing.extend(options.lacking(&case.needs));
    let supported = missing.is_empty();
    let kind = if supported { kind } else { "unsupported" };
    let target = target.clone();
    let test = Trial::test(case.id(), move || {
        let result = run_case(&target, case, &options);
        if result.status == Status::Pass { Ok(()) } else { Err(result.detail.into()) }
    });
    test.with_ignored_flag(!supported || case.soak).with_kind(kind)
}
