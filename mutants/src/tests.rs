//! Mutants that no case of the suite can see, since what they spoil takes code of a user's, or a device, that misbehaves:
//! tests of the crates find them, in the same copy of the workspace.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::mutant::Mutant;
use crate::plant::{VARIABLE, cargo};
use crate::trial::{Verdict, run};

/// Building comes first.
const LIMIT: Duration = Duration::from_secs(600);

/// Tries mutants by the tests that are there for each, after a look at these with none enabled.
pub(crate) fn try_all(
    mutants: &[(usize, &'static Mutant)],
    mut report: impl FnMut(Verdict),
) -> Result<(), String> {
    let copy = crate::plant::copy()?;
    for &(number, mutant) in mutants {
        let start = Instant::now();
        let mut killers = Vec::new();
        for test in mutant.cases {
            if let Err(end) = passes(&copy, test, 0) {
                return Err(format!("with no mutant enabled {test} fails: {end}"));
            }
            killers.extend(passes(&copy, test, number).err());
        }
        report(Verdict::new(mutant, mutant.runs.provider(), killers, false, start));
    }
    Ok(())
}

/// Runs one test, `package/program/name`, where the program `lib` is the crate's own tests; the error says how it ended.
fn passes(copy: &Path, test: &str, mutant: usize) -> Result<(), String> {
    let parts: Vec<_> = test.split('/').collect();
    let [package, program, name] = parts[..] else { return Err(format!("{test} names no test")) };
    let mut command: Command = cargo(copy)?;
    command.args(["test", "--quiet", "-p", package]);
    if ["anyfabric-util", "anyfabric-tcp"].contains(&package) {
        // By default it is what every provider uses.
        command.args(["--features", "encryption"]);
    }
    match program {
        "lib" => command.arg("--lib"),
        _ => command.args(["--test", program]),
    };
    command.args(["--", "--exact", name]).env(VARIABLE, mutant.to_string());
    let (status, text) = run(command, LIMIT).map_err(|end| format!("{test} {end}"))?;
    // A name that fits no test passes as well.
    if status.success() && text.contains("1 passed") {
        return Ok(());
    }
    Err(if status.success() { format!("{test} is no test") } else { test.to_owned() })
}
