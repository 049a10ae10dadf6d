//! Mutants that show only when a link is cut: between two network namespaces, which root can make.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::list::Mutant;
use crate::table;
use crate::trial::Verdict;
use crate::workspace;

/// A shell of its own network and processes; all of them end with it.
fn apart() -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    unshare
}

/// The program, run with the peer's end in another namespace, and with commands that cut the link.
pub(crate) fn between_namespaces(program: &Path) -> Command {
    let mut command = apart();
    command.arg(workspace().join("scripts/two-hosts-inside")).args(["tcp", ""]).arg(program);
    command
}

pub(crate) fn try_all(
    program: &PathBuf,
    mutants: &[(usize, &'static Mutant)],
    jobs: usize,
    report: impl FnMut(Verdict) + Send,
) -> Result<(), String> {
    let probe = apart().args(["ip", "link", "add", "near0", "type", "veth"]).output();
    if mutants.is_empty() || probe.is_ok_and(|probe| probe.status.success()) {
        return crate::try_all(program, mutants, jobs, report);
    }
    print!("{}", table::not_tried(mutants, "no network namespaces here"));
    Ok(())
}
