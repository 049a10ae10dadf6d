//! `fabric perf`, as a user runs it. Nothing here looks at how fast it is.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const OPS: [&str; 6] = ["send", "write", "write-imm", "read", "fetch-add", "compare-swap"];

/// `fabric perf` over TCP, whatever the environment says.
fn command(args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabric"));
    for variable in fabric::Catalog::builtin().variables() {
        command.env_remove(&*variable.name);
    }
    command.env("FABRIC_PROVIDER", "tcp").arg("perf").args(args.split_whitespace());
    command.stdin(Stdio::null());
    command
}

fn run(args: &str) -> Output {
    command(args).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn results(args: &str) -> Vec<Value> {
    let output = run(&format!("{args} --json"));
    assert_eq!(output.status.code(), Some(0), "{args}: {output:?}");
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    results.as_array().unwrap().clone()
}

/// A server that ends with the test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start() -> Self {
        Self::run(command("--serve 127.0.0.1:0"))
    }

    fn run(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        Server { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn wrong_options_are_refused_by_name() {
    let wrong = [
        ("", "--loopback"),
        ("--op send", "--loopback"),
        ("--loopback --connect 127.0.0.1", "cannot be used with"),
        ("--serve 127.0.0.1 --op send", "cannot be used with"),
        ("--loopback --op send --once", "--serve"),
        ("--loopback --op nosuch", "possible values: send, write, write-imm"),
        ("--loopback --op send --mode nosuch", "possible values: latency"),
        ("--loopback --op send --size 1x", "--size 1x: expected bytes"),
        ("--loopback --op send --size 9-8", "--size 9-8"),
        ("--loopback --op fetch-add --size 4", "--size 4: fetch-add works on 8 bytes"),
        ("--loopback --op write --size 0", "only sends can be empty"),
        ("--loopback --op send --mode rate --batch 9 --depth 8", "a batch has 1 to 8 operations"),
        ("--loopback --op send --mode rate --batch 0", "--batch 0"),
        ("--loopback --op send --mode rate --depth 0", "--depth 0"),
        ("--loopback --op send --mode rate --signal 3 --depth 8", "--signal 3: it must divide"),
        ("--loopback --op send --mode rate --signal 0", "--signal 0"),
        ("--loopback --op read --signal 0", "--signal 0"),
        ("--loopback --op send --depth 8", "one operation at a time"),
        ("--loopback --op write --target sleep", "watches its memory"),
        ("--loopback --op write --wait sleep", "watches its memory"),
        ("--loopback --op read --inject", "not read"),
        ("--loopback --op send --inject --verify", "--inject and --verify"),
        ("--loopback --op send --threads 2 --endpoints 1", "--threads 2"),
        ("--loopback --op send --endpoints 0 --threads 0", "--endpoints 0"),
        ("--loopback --op send --iterations 0", "--iterations 0"),
        ("--loopback --op send --seconds 0", "--seconds 0"),
        ("--loopback --op send --seconds NaN", "--seconds NaN"),
        ("--loopback --op send --seconds 1 --iterations 1", "cannot be used with"),
        ("--loopback --op send --timeout 0", "--timeout 0"),
        ("--loopback --op send --size 8G", "reduce --size"),
        ("--loopback --mode idle", "--idle"),
        ("--loopback --mode idle --idle 1 --iterations 5", "use --seconds"),
        ("--loopback --op read --raw", "only send (--raw)"),
        ("--loopback --op send --raw --mode rate --batch 2", "--batch: it writes each"),
        ("--loopback --op send --raw --idle 2", "--idle: that is for fabric"),
        ("--connect nosuch.invalid --op send", "--connect nosuch.invalid"),
        ("--connect 127.0.0.1:x --op send", "--connect 127.0.0.1:x"),
    ];
    for (args, says) in wrong {
        let output = run(args);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {output:?}");
        assert!(err.contains(says) && output.stdout.is_empty(), "{args}: {err}");
    }
}

#[test]
fn what_the_device_cannot_do_is_told() {
    let output = run("--loopback --op send --mode rate --depth 1000000 --size 8");
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(err.contains("send_depth") && err.contains("1000001"), "{err}");
}

#[test]
fn every_operation_verifies_in_every_mode() {
    for op in OPS {
        let sizes = if op.contains('-') && op != "write-imm" { "8" } else { "1,64,70000" };
        for mode in ["latency", "bandwidth", "rate"] {
            let shape = if mode == "latency" { "" } else { "--depth 16 --batch 8" };
            let args = format!(
                "--loopback --op {op} --mode {mode} --size {sizes} {shape} --iterations 50 --warmup 3 --verify \
                 --endpoints 3 --threads 2"
            );
            for result in results(&args) {
                assert_eq!((&result["op"], &result["mode"]), (&op.into(), &mode.into()));
                assert_eq!(result["verified"], true);
                assert!(result["iterations"].as_u64().unwrap() >= 150, "{result}");
            }
        }
    }
}

#[test]
fn the_measured_loops_run() {
    let shapes = [
        "--op send --mode rate --depth 32 --batch 32 --signal 16",
        "--op send --mode rate --depth 30 --batch 7 --wait sleep --target sleep",
        "--op send --mode rate --depth 8 --signal 4 --endpoints 5 --threads 2",
        "--op write --mode rate --inject --depth 1",
        "--op write-imm --mode bandwidth --size 1M --depth 4",
        "--op read --mode bandwidth --size 64K --target sleep",
        "--op fetch-add --mode rate --batch 4",
        "--op compare-swap --target sleep",
        "--op send --wait sleep --target sleep",
        "--op send --inject --signal 0 --size 0",
        "--op write --inject --signal 0 --size 1",
        "--op write --endpoints 3",
        "--op write-imm --endpoints 2 --idle 40",
        "--op read --size 1",
        "--op send --raw",
        "--op send --raw --target sleep --wait sleep",
        "--op send --raw --mode rate --threads 2",
        "--op send --raw --mode bandwidth",
    ];
    for shape in shapes {
        let [result] = &results(&format!("--loopback {shape} --iterations 333 --warmup 10"))[..]
        else {
            panic!("{shape}: not one result")
        };
        let endpoints = result["endpoints"].as_u64().unwrap();
        let done = result["iterations"].as_u64().unwrap();
        // With signals that are rare, one more reports the end of the last ones.
        assert!((333 * endpoints..=334 * endpoints).contains(&done), "{shape}: {result}");
    }
}

#[test]
fn json_has_what_programs_need() {
    let results = results("--loopback --op send --size 8-32 --iterations 200 --warmup 0");
    assert_eq!(results.len(), 3);
    for (result, size) in results.iter().zip([8, 16, 32]) {
        assert_eq!((&result["op"], &result["mode"]), (&"send".into(), &"latency".into()));
        assert_eq!(result["provider"], "tcp");
        assert!(result["device"].is_string());
        for (name, value) in
            [("size", size), ("depth", 1), ("batch", 1), ("endpoints", 1), ("iterations", 200)]
        {
            assert_eq!(result[name], value, "{name}: {result}");
        }
        let number = |name: &str| result[name].as_f64().unwrap();
        assert!(number("min_us") > 0.0 && number("min_us") <= number("median_us"), "{result}");
        assert!(number("median_us") <= number("p99_us"), "{result}");
        assert!(number("p99_us") <= number("p999_us"), "{result}");
        assert!(number("p999_us") <= number("max_us"), "{result}");
        let rate = number("rate_per_s");
        assert!((number("bytes_per_s") / rate - f64::from(size)).abs() < 1e-6, "{result}");
        assert!((rate * number("seconds") - 200.0).abs() < 1e-6, "{result}");
        assert_eq!(result["percentiles_us"][3][0], 50.0);
        assert_eq!(result["percentiles_us"][3][1], result["median_us"]);
    }
}

#[test]
fn seconds_end_it() {
    for shape in ["--op send", "--op read", "--op send --mode rate", "--op send --mode rate --raw"]
    {
        let start = Instant::now();
        let [result] = &results(&format!("--loopback {shape} --seconds 0.2 --warmup 0"))[..] else {
            panic!("{shape}: not one result")
        };
        let seconds = result["seconds"].as_f64().unwrap();
        assert!(seconds >= 0.2 && start.elapsed().as_secs_f64() >= seconds, "{shape}: {result}");
        assert!(result["iterations"].as_u64().unwrap() > 0, "{shape}: {result}");
    }
}

#[test]
fn idle_connections_are_weighed() {
    let [result] = &results("--loopback --mode idle --idle 200 --seconds 0.2")[..] else {
        panic!("not one result")
    };
    assert!(result["idle_bytes"].as_f64().unwrap() >= 0.0, "{result}");
    assert!(result["wakeups"].is_u64() && result["idle_cpu_s"].is_f64(), "{result}");
    assert_eq!(result["debug_build"], cfg!(debug_assertions), "{result}");
    let output = run("--loopback --mode idle --idle 1 --seconds 0.1");
    let out = text(&output.stdout);
    assert!(out.starts_with("idle, tcp:") && out.contains(": 1 connection\n"), "{out}");
}

#[test]
fn tables_are_for_people() {
    // Without --op, the latency of sends.
    let output = run("--loopback --iterations 100");
    let out = text(&output.stdout);
    assert!(out.starts_with("send latency, tcp:") && out.contains("MEDIAN us"), "{out}");
    assert!(out.contains("1 endpoint, 1 thread, 0 idle"), "{out}");
    assert_eq!(out.contains("A debug build:"), cfg!(debug_assertions), "{out}");
    assert!(!out.contains('\x1b') && output.stderr.is_empty(), "{output:?}");
    let help = run("--help");
    let help = text(&help.stdout);
    assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
}

#[test]
fn a_server_serves_one_after_the_other() {
    let server = Server::start();
    for _ in 0..2 {
        let args = format!("--connect {} --op read --iterations 10", server.address);
        assert_eq!(results(&args)[0]["iterations"], 10);
    }
}

#[test]
fn with_a_secret_clients_have_to_prove_it() {
    let secret = |of: u8| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("secret-{of}"));
        std::fs::write(&path, [of; 32]).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        path
    };
    let (ours, other) = (secret(1), secret(2));
    let with = |secret: Option<&Path>, args: &str| {
        let mut command = command(args);
        command.envs(secret.map(|path| ("FABRIC_SECRET_FILE", path)));
        command
    };
    let server = Server::run(with(Some(&ours), "--serve 127.0.0.1:0"));
    let connect = |address: &str| format!("--connect {address} --op send --iterations 10");
    let output = with(Some(&ours), &connect(&server.address)).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let open = Server::start();
    for (secret, server, says) in [
        (None, &server, "FABRIC_SECRET_FILE"),
        (Some(&*other), &server, "another secret"),
        (Some(&*ours), &open, "no secret"),
    ] {
        let output = with(secret, &connect(&server.address)).output().unwrap();
        let err = text(&output.stderr);
        assert!(output.status.code() == Some(1) && err.contains(says), "{says}: {output:?}");
    }
}

/// Strangers that say nothing, more than may wait, keep no client waiting, and do not fill the terminal.
#[test]
fn silent_strangers_keep_no_client_waiting() {
    let server = Server::start();
    let stranger = |_| std::net::TcpStream::connect(&server.address).unwrap();
    let strangers: Vec<_> = (0..100).map(stranger).collect();
    let begin = std::time::Instant::now();
    results(&format!("--connect {} --op send --iterations 10", server.address));
    // Each would have had five seconds.
    assert!(begin.elapsed() < std::time::Duration::from_secs(60), "{:?}", begin.elapsed());
    drop(strangers);
}

#[test]
fn a_server_that_is_killed_ends_it() {
    for shape in
        ["--op send", "--op write", "--op read", "--op send --mode rate", "--op send --raw"]
    {
        // Nothing says that it measures; where that takes long the server was killed too early.
        let ends = [700, 3_000, 10_000, 30_000]
            .into_iter()
            .map(|head_start| killed_after(Duration::from_millis(head_start), shape))
            .any(|err| err.contains("is gone"));
        assert!(ends, "{shape}");
    }
}

/// What a client says whose server is killed after this time; it ends soon.
fn killed_after(head_start: Duration, shape: &str) -> String {
    let server = Server::start();
    let args = format!("--connect {} {shape} --seconds 60", server.address);
    let mut client = command(&args);
    let client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(head_start);
    let start = Instant::now();
    drop(server);
    let output = client.wait_with_output().unwrap();
    let err = text(&output.stderr);
    println!("{shape}: after {:?}: {err}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(15), "{shape}: {:?}", start.elapsed());
    assert_eq!(output.status.code(), Some(1), "{shape}: {output:?}");
    assert!(output.stdout.is_empty(), "{shape}: {output:?}");
    err.to_owned()
}

#[test]
fn a_client_that_is_killed_leaves_the_server_at_work() {
    let server = Server::start();
    for shape in ["--op send", "--op write", "--op read", "--op send --target sleep"] {
        let args = format!("--connect {} {shape} --seconds 60", server.address);
        let mut client = command(&args).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(500));
        client.kill().unwrap();
        client.wait().unwrap();
        let next = results(&format!("--connect {} --op send --iterations 10", server.address));
        assert_eq!(next[0]["iterations"], 10, "{shape}");
    }
}

#[test]
fn strangers_are_told_apart() {
    // Somebody else listens there, and says something.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut stream, b"220 mail.example.org ready\r\n").unwrap();
        stream
    });
    let output = run(&format!("--connect {address} --op send"));
    drop(other.join().unwrap());
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(err.contains("no `fabric perf`"), "{err}");
    // Nothing does, and nothing gets port 1 meanwhile.
    let output = run("--connect 127.0.0.1:1 --op send");
    let err = text(&output.stderr);
    assert!(output.status.code() == Some(1) && err.contains("--serve"), "{output:?}");
}
