//! Mutants of the verbs provider, beside a device: this host's, else all of them in one guest.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::list::Mutant;
use crate::trial::Fate;
use crate::workspace;

/// How long the guest may run; it boots in half a minute, and its processor is emulated.
const TIME_LIMIT: &str = "3000";
/// The exit status of `scripts/softroce` where no guest can be had.
const NO_GUEST: i32 = 69;

/// An outcome as a line of text.
pub(crate) fn line(fate: &Fate) -> String {
    serde_json::to_string(fate).unwrap_or_default()
}

pub(crate) fn try_all(
    program: &PathBuf,
    mutants: &[(usize, &'static Mutant)],
    jobs: usize,
    tell: impl FnMut(Fate) + Send,
) -> Result<(), String> {
    if mutants.is_empty() {
        return Ok(());
    }
    let has_device =
        std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut dir| dir.next().is_some());
    if has_device {
        return crate::try_all(program, mutants, jobs, tell);
    }
    let softroce = workspace().join("scripts/softroce");
    let prepared = Command::new(&softroce).arg("--prepare").status();
    match prepared.map_err(|error| format!("{}: {error}", softroce.display()))?.code() {
        Some(0) => in_guest(&softroce, program, mutants, tell),
        Some(NO_GUEST) => {
            let names: Vec<_> = mutants.iter().map(|m| m.1.name).collect();
            println!(
                "NOT TRIED, for there is neither an RDMA device nor a guest: {}",
                names.join(", ")
            );
            Ok(())
        }
        code => Err(format!("scripts/softroce --prepare: exit status {code:?}")),
    }
}

fn in_guest(
    softroce: &Path,
    program: &Path,
    mutants: &[(usize, &'static Mutant)],
    mut tell: impl FnMut(Fate),
) -> Result<(), String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new(softroce)
        .args(["--time-limit", TIME_LIMIT, "--"])
        .arg(this)
        .args(["--lines", "--jobs", "1", "--program"])
        .arg(program)
        .args(mutants.iter().map(|m| m.1.name))
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", softroce.display()))?;
    let mut told = 0;
    for line in BufReader::new(child.stdout.take().ok_or("no output of the guest")?).lines() {
        // The guest's console speaks there too.
        if let Ok(fate) = serde_json::from_str(line.map_err(|error| error.to_string())?.trim()) {
            told += 1;
            tell(fate);
        }
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if told == mutants.len() {
        return Ok(());
    }
    Err(format!("the guest told of {told} mutants, not of {} ({status})", mutants.len()))
}
