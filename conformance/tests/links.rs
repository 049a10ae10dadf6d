//! The cases that cut the link, over TCP, between two network namespaces of this machine.
//!
//! For that it must be Linux with `ip` and `unshare`, and root; where it is not, this says what was not run.

#![allow(clippy::unwrap_used)] // helpers of tests too

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A shell of its own network and processes, which end with it.
fn apart() -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    unshare
}

/// Why there can be no such namespaces here.
fn lacks(script: &Path) -> Option<String> {
    if !script.exists() {
        return Some(format!("{} is missing", script.display()));
    }
    let probe = "ip link add near0 type veth peer name far0 && mount -t tmpfs none /tmp";
    match apart().args(["sh", "-c", probe]).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().replace('\n', ", ")),
        Err(error) => Some(format!("unshare: {error}")),
    }
}

/// As scripts report it: `make test` repeats it in its last lines.
fn not_run(what: &str, why: &str) {
    eprintln!("{what}: NOT RUN: {why}");
    if let Some(file) = std::env::var_os("FABRIC_NOT_RUN") {
        let mut file = std::fs::File::options().append(true).open(file).unwrap();
        writeln!(file, "{what}: {why}").unwrap();
    }
}

#[test]
fn both_ends_know_in_time_that_the_link_is_cut() {
    const CASES: &str = "teardown.link_cut_*";
    let script = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/two-hosts-inside"));
    if let Some(why) = lacks(&script) {
        return not_run(CASES, &why);
    }
    let mut run = apart();
    run.arg(script).args(["tcp", "", env!("CARGO_BIN_EXE_fabric-conformance")]);
    let output = run.args(["--strict", CASES]).env_remove("FABRIC_PROVIDER").output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("5 passed, 0 failed"), "{out}\n{err}");
}
