//! A link that can be cut, for mutants that show only then: between two network namespaces, which root can make.

use std::path::Path;
use std::process::Command;

use crate::workspace::workspace;

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

/// Whether this process may make such a link.
pub(crate) fn can_be_made() -> bool {
    let probe = apart().args(["ip", "link", "add", "near0", "type", "veth"]).output();
    probe.is_ok_and(|probe| probe.status.success())
}
