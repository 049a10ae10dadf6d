//! `fabric rendezvous`, as a user runs it, and processes that join there.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use fabric_exchange::{Exchange, ExchangeError, JoinOptions, Launch, SECRET_FILE, Secret};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabric"));
    command.env_remove(SECRET_FILE).arg("rendezvous").args(args).stdin(Stdio::null());
    command
}

fn fails(args: &[&str], code: i32, names: &[&str]) {
    let Output { status, stderr, .. } = command(args).output().unwrap();
    let said = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(code), "{args:?}: {said}");
    for name in names {
        assert!(said.contains(name), "{args:?}: {said}");
    }
}

/// A server that ends with the test.
struct Server {
    child: Child,
    line: String,
}

impl Server {
    fn run(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Server { child, line }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// As a process that was started with these variables.
fn join(place: &str, rank: u32, secret: Option<Secret>) -> Result<Exchange, ExchangeError> {
    let launch = Launch::from_variables(|name| match name {
        "FABRIC_RANK" => Some(rank.to_string()),
        "FABRIC_SIZE" => Some("3".to_owned()),
        "FABRIC_JOB" => Some("job".to_owned()),
        "FABRIC_RENDEZVOUS" => Some(place.to_owned()),
        _ => None,
    });
    let mut options = JoinOptions::default();
    (options.secret, options.timeout) = (secret, PATIENCE);
    launch.unwrap().join(&options)
}

fn exchange(place: &str, secret: Option<&Secret>) {
    thread::scope(|scope| {
        let ranks = [0, 1, 2].map(|rank| {
            scope.spawn(move || {
                let exchange = join(place, rank, secret.cloned()).unwrap();
                exchange.all_gather(&[rank as u8], PATIENCE).unwrap()
            })
        });
        for rank in ranks {
            assert_eq!(rank.join().unwrap(), [[0], [1], [2]]);
        }
    });
}

#[test]
fn the_processes_of_a_job_find_each_other() {
    let server = Server::run(command(&["--listen", "127.0.0.1:0"]));
    let place = server.line.split_whitespace().find(|word| word.starts_with("tcp://")).unwrap();
    assert!(server.line.contains("without a secret"), "{}", server.line);
    exchange(place.trim_end_matches(','), None);
}

#[test]
fn a_secret_keeps_others_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.secret");
    std::fs::write(&file, "0123456789abcdef0123456789abcdef\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let secret = Secret::from_file(&file).unwrap();
    let option =
        command(&["--listen", "127.0.0.1:0", "--json", "--secret-file", file.to_str().unwrap()]);
    let mut variable = command(&["--listen", "127.0.0.1:0", "--json"]);
    variable.env(SECRET_FILE, &file);
    for command in [option, variable] {
        let server = Server::run(command);
        let said: Value = serde_json::from_str(&server.line).unwrap();
        assert_eq!(said["authenticated"], true);
        let place = said["rendezvous"].as_str().unwrap();
        exchange(place, Some(&secret));
        for other in [None, Some(Secret::new(&[9; 32]).unwrap())] {
            let error = join(place, 0, other).unwrap_err();
            assert!(matches!(error, ExchangeError::Unauthenticated(_)), "{error:?}");
        }
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let args = ["--listen", "127.0.0.1:0", "--secret-file", file.to_str().unwrap()];
    fails(&args, 2, &["--secret-file", "job.secret"]);
}

#[test]
fn wrong_options_are_refused_by_name() {
    fails(&[], 2, &["--listen"]);
    fails(&["--listen", "nowhere:x"], 2, &["--listen", "nowhere:x"]);
    fails(&["--listen", "127.0.0.1:0", "--max-blob", "999999999"], 2, &["a blob's bytes"]);
    fails(&["--listen", "127.0.0.1:0", "--max-keys", "0"], 2, &["a job's keys"]);
    fails(
        &["--listen", "127.0.0.1:0", "--secret-file", "/nowhere"],
        2,
        &["--secret-file", "/nowhere"],
    );
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().to_string();
    fails(&["--listen", &taken], 1, &[&taken, "cannot listen"]);
}

#[test]
fn help_teaches() {
    let help = command(&["--help"]).output().unwrap();
    let text = String::from_utf8(help.stdout).unwrap();
    for word in
        ["FABRIC_RENDEZVOUS=tcp://", "openssl rand", "--max-blob", "--keep", "not encrypted"]
    {
        assert!(text.contains(word), "{text}");
    }
}
