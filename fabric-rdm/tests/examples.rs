//! The examples, as a user runs them: over TCP and over shared memory.

#![cfg(not(miri))] // it runs other programs
#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// `cargo test` builds the examples, in a folder beside that of the tests; with `--test examples` it does not: run
/// `cargo build --examples` before.
fn example(name: &str, provider: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let folder: PathBuf = test.ancestors().nth(2).unwrap().join("examples");
    let mut command = Command::new(folder.join(name));
    command.env("FABRIC_PROVIDER", provider);
    command
}

fn run(name: &str, says: &str) {
    for provider in ["tcp", "shm"] {
        let output = example(name, provider).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains(says), "{name}: {said}{errors}");
    }
}

#[test]
fn all_to_all() {
    run("all_to_all", "rank 3 has a block of each of 4");
}

#[test]
fn work_queue() {
    run("work_queue", "100 tasks are done by 3 workers, the sum is 328350");
}

#[test]
fn parameter_server() {
    run("parameter_server", "64 parameters were added to 20 times by each of 3 workers");
}

#[test]
fn tagged_pingpong() {
    for provider in ["tcp", "shm"] {
        let mut server = example("tagged_pingpong", provider)
            .args(["server", "512"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let client = example("tagged_pingpong", provider)
            .args(["client", address.trim(), "512"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&client.stdout);
        let errors = String::from_utf8_lossy(&client.stderr);
        let is_measured = said.contains("512 bytes: half a round trip");
        assert!(client.status.success() && is_measured, "{provider}: {said}{errors}");
        assert!(server.wait().unwrap().success(), "it ends with its client");
    }
}
