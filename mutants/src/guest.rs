//! Mutants of the verbs provider, beside a device: this host's, else all of them in one guest.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::mutant::Mutant;
use crate::table;
use crate::trial::{self, Verdict};
use crate::workspace::workspace;

/// How long the guest may run, in seconds; it boots in half a minute, and its processor is emulated.
const TIME_LIMIT: &str = "3000";

/// An outcome as a line of text.
pub(crate) fn line(verdict: &Verdict) -> String {
    serde_json::to_string(verdict).unwrap_or_default()
}

pub(crate) fn try_all(
    program: &Path,
    mutants: &[(usize, &'static Mutant)],
    jobs: usize,
    report: impl FnMut(Verdict) + Send,
) -> Result<(), String> {
    if mutants.is_empty() {
        return Ok(());
    }
    let said = Command::new(workspace().join("scripts/with-rdma-device"))
        .arg("--where")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("scripts/with-rdma-device: {error}"))?;
    let said = String::from_utf8_lossy(&said.stdout);
    match said.trim().split_once(": ") {
        Some(("host", _)) => trial::try_all(program, mutants, None, jobs, report).map(drop),
        Some(("guest", _)) => in_guest(program, mutants, report),
        Some(("nowhere", why)) => {
            print!("{}", table::not_tried(mutants, why));
            Ok(())
        }
        _ => Err("scripts/with-rdma-device --where: it found no place, see above".to_owned()),
    }
}

fn in_guest(
    program: &Path,
    mutants: &[(usize, &'static Mutant)],
    mut report: impl FnMut(Verdict),
) -> Result<(), String> {
    let softroce = workspace().join("scripts/softroce");
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new(&softroce)
        .args(["--time-limit", TIME_LIMIT, "--"])
        .arg(this)
        .args(["--lines", "--jobs", "1", "--program"])
        .arg(program)
        .args(mutants.iter().map(|m| m.1.name))
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", softroce.display()))?;
    let mut reported = 0;
    for line in BufReader::new(child.stdout.take().ok_or("no output of the guest")?).lines() {
        // The guest's console speaks there too.
        if let Ok(verdict) = serde_json::from_str(line.map_err(|error| error.to_string())?.trim()) {
            reported += 1;
            report(verdict);
        }
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if reported == mutants.len() {
        return Ok(());
    }
    Err(format!("the guest reported {reported} mutants, not {} ({status})", mutants.len()))
}
