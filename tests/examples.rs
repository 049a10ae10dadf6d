//! The examples as they are meant to be used: two processes, each in bounded time. `FABRIC_PROVIDER` chooses what over.

#![cfg(all(feature = "tcp", not(miri)))] // it runs other programs
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use fabric::{Domain, Endpoint, EndpointState, Hints};

/// No example runs longer here; a machine under load included.
const DEADLINE: Duration = Duration::from_secs(120);

/// An example that runs; killed if the test ends first.
struct Running {
    what: String,
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
}

/// How an example ended.
struct Ended {
    what: String,
    status: ExitStatus,
    out: String,
    err: String,
}

/// Starts an example of this package. `cargo test` builds them, beside the directory of this test; with
/// `--test examples` it does not: run `cargo build --examples` before.
fn start(name: &str, args: &[&str]) -> Running {
    run(&mut Command::new(example(name)), name, args)
}

fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name);
    assert!(program.exists(), "{} is missing: run `cargo build --examples`", program.display());
    program
}

fn run(program: &mut Command, name: &str, args: &[&str]) -> Running {
    let mut child = program
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (out, err) = (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
    Running { what: format!("{name} {}", args.join(" ")), child, out, err }
}

/// The lines of a pipe, as they come.
fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

impl Running {
    /// The address that a server announces.
    fn address(&self) -> String {
        let line = self.out.recv_timeout(DEADLINE).unwrap_or_else(|_| {
            let err: Vec<_> = self.err.iter().collect();
            panic!("`{}` announced no address: {err:?}", self.what)
        });
        let (_, address) = line.split_once(" listens on ").unwrap_or_else(|| panic!("{line}"));
        address.to_owned()
    }

    /// Fails, with what it said, if it has ended.
    fn check_alive(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            let err: Vec<_> = self.err.iter().collect();
            panic!("`{}` ended, {status}: {}", self.what, err.join("\n"));
        }
    }

    /// Waits for the end.
    fn end(mut self) -> Ended {
        let deadline = Instant::now() + DEADLINE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "`{}` does not end", self.what);
            std::thread::sleep(Duration::from_millis(5));
        };
        // The pipes are closed by now, so these end too.
        let text = |lines: &Receiver<String>| lines.iter().collect::<Vec<_>>().join("\n");
        let (out, err) = (text(&self.out), text(&self.err));
        Ended { what: std::mem::take(&mut self.what), status, out, err }
    }

    /// Waits for a good end; gives what it printed.
    fn succeed(self) -> String {
        let Ended { what, status, out, err } = self.end();
        assert!(status.success(), "`{what}`: {status}: {out}\n{err}");
        out
    }

    /// Waits for a failure with a message, not a crash; gives what it said.
    fn fail(self, code: i32) -> String {
        let Ended { what, status, out, err } = self.end();
        assert_eq!(status.code(), Some(code), "`{what}`: {out}\n{err}");
        assert!(err.starts_with("error: "), "`{what}`: {err}");
        err
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn temp(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("fabric-{}-{name}", std::process::id()))
}

/// On the device's own address.
const ANY_PORT: &str = "0";

/// A port without a listener for the moment.
fn free_port() -> String {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

#[test]
fn pingpong() {
    for sleep in [&[][..], &["--sleep"]] {
        let server = start("pingpong", &[&["serve", "--at", ANY_PORT][..], sleep].concat());
        let at = server.address();
        let client = ["connect", "--count", "2000", "--size", "1000", "--at", &at];
        let out = start("pingpong", &[&client[..], sleep].concat()).succeed();
        assert!(out.contains("2000 round trips of 1000 B"), "{out}");
        assert_eq!(server.succeed(), "returned 2000 messages of 1000 B; closed by the peer");
    }
}

#[test]
fn counter() {
    let server = start("counter", &["serve", "--clients", "4", "--at", ANY_PORT]);
    let at = server.address();
    let two = ["add", "--clients", "2", "--count", "3000", "--by", "7", "--at", &at];
    let clients = [start("counter", &two), start("counter", &two)];
    for client in clients {
        assert!(client.succeed().contains("2 clients added 3000 times each"));
    }
    assert_eq!(server.succeed(), format!("the counter stands at {}", 4 * 3000 * 7));
}

#[test]
fn kv() {
    let server = start("kv", &["serve", "--slots", "16", "--clients", "8", "--at", ANY_PORT]);
    let at = server.address();
    let run = |args: &[&str]| start("kv", &[args, &["--at", &at]].concat());
    run(&["set", "colour", "green"]).succeed();
    assert_eq!(run(&["get", "colour"]).succeed(), "green");
    run(&["set", "colour", "blue"]).succeed();
    assert_eq!(run(&["get", "colour"]).succeed(), "blue");
    assert_eq!(run(&["get", "sound"]).fail(1), "error: there is no key \"sound\"");
    let out = run(&["load", "--clients", "3", "--count", "500"]).succeed();
    assert!(out.contains("1500 updates and 4500 reads") && out.ends_with("none lost"), "{out}");
    server.succeed();
}

#[test]
fn copy() {
    let (old, new) = (temp("old"), temp("new"));
    let partial = temp("new.partial");
    for len in [0, 1, 3 << 20, (5 << 20) + 77] {
        let bytes: Vec<u8> =
            (0..len).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        std::fs::write(&old, &bytes).unwrap();
        let receiver = start("copy", &["receive", new.to_str().unwrap(), "--at", ANY_PORT]);
        let at = receiver.address();
        let out = start("copy", &["send", old.to_str().unwrap(), "--at", &at]).succeed();
        assert!(out.starts_with(&format!("sent {len} B")), "{out}");
        let out = receiver.succeed();
        assert!(out.starts_with(&format!("stored {len} B")), "{out}");
        assert!(std::fs::read(&new).unwrap() == bytes && !partial.exists());
    }
    std::fs::remove_file(&old).unwrap();
    std::fs::remove_file(&new).unwrap();
}

#[test]
fn event_loop() {
    let server = start("event_loop", &["serve", "--clients", "40", "--at", ANY_PORT]);
    let at = server.address();
    let clients = ["talk", "--clients", "20", "--messages", "50", "--at", &at];
    for client in [start("event_loop", &clients), start("event_loop", &clients)] {
        let out = client.succeed();
        assert!(out.starts_with("20 connections, 50 messages each way"), "{out}");
    }
    server.succeed();
}

#[test]
fn inbox() {
    for receives in ["1", "16"] {
        let server =
            start("inbox", &["serve", "--clients", "20", "--receives", receives, "--at", ANY_PORT]);
        let at = server.address();
        let clients = ["send", "--clients", "10", "--count", "200", "--at", &at];
        let clients = [start("inbox", &clients), start("inbox", &clients)];
        clients.into_iter().for_each(|client| _ = client.succeed());
        let out = server.succeed();
        assert_eq!(out, format!("4000 messages of 20 clients, {receives} receives"));
    }
}

#[test]
fn gossip() {
    let watcher = start("gossip", &["watch", "--members", "3"]);
    let at = watcher.address();
    let members = ["one", "two", "three"].map(|name| start("gossip", &["member", name, &at]));
    for member in members {
        let out = member.succeed();
        assert!(out.contains("was heard"), "{out}");
    }
    let out = watcher.succeed();
    assert_eq!(out, "heard of one, three, two");
    let err = start("gossip", &["member", "lost", &at[1..]]).fail(2);
    assert!(err.contains("64 digits"), "{err}");
}

#[test]
fn clients_wait_for_the_server() {
    meet("pingpong", &["connect", "--count", "1"], &["serve"]);
    meet("event_loop", &["talk", "--clients", "3"], &["serve", "--clients", "3"]);
}

/// A client that is there before its server. Where another program got the server's port meanwhile, by another one.
fn meet(name: &str, client: &[&str], server: &[&str]) {
    let meets = || {
        let at = free_port();
        let client = start(name, &[client, &["--at", &at]].concat());
        std::thread::sleep(Duration::from_millis(200));
        let server = start(name, &[server, &["--at", &at]].concat());
        let is_there = server.out.recv_timeout(DEADLINE).is_ok();
        if is_there {
            client.succeed();
            server.succeed();
        } else {
            println!("{}", server.fail(1));
        }
        is_there
    };
    assert!((0..3).any(|_| meets()), "{name}: no server begins");
}

#[test]
fn death_of_the_peer_is_an_error_soon() {
    // Nothing reports when the client has connected: twice what a whole client takes is time for that. Where it was not,
    // the server was killed too early.
    let server = start("counter", &["serve", "--at", ANY_PORT]);
    let begin = Instant::now();
    start("counter", &["add", "--count", "1", "--at", &server.address()]).succeed();
    let mut head_start = 2 * begin.elapsed();
    drop(server);
    let took = loop {
        let server = start("counter", &["serve", "--at", ANY_PORT]);
        let client = start("counter", &["add", "--count", "1000000000", "--at", &server.address()]);
        std::thread::sleep(head_start);
        let killed = Instant::now();
        drop(server); // kills it
        let Ended { status, err, .. } = client.end();
        assert_eq!(status.code(), Some(1), "{err}");
        // Before that it may have said that it is still trying.
        assert!(err.lines().any(|line| line.starts_with("error: ")), "{err}");
        if !err.contains("cannot connect") {
            break killed.elapsed();
        }
        head_start *= 2;
        assert!(head_start < DEADLINE, "{err}");
    };
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_rejected_client_is_told_why() {
    let server = start("pingpong", &["serve", "--at", ANY_PORT]);
    let at = server.address();
    let err = start("kv", &["get", "colour", "--at", &at]).fail(1);
    assert!(err.contains("no size that this server plays with"), "{err}");
    // And the next one finds the server there.
    start("pingpong", &["connect", "--count", "1", "--at", &at]).succeed();
    server.succeed();
}

/// As [`start`], for a process that may open so many descriptors.
fn start_with_descriptors(max: usize, name: &str, args: &[&str]) -> Running {
    let limited = format!("ulimit -n {max} && exec \"$0\" \"$@\"");
    run(Command::new("sh").args(["-c", &limited]).arg(example(name)), name, args)
}

#[test]
fn more_strangers_than_a_server_has_descriptors_for_do_not_end_it() {
    const STRANGERS: usize = 300;
    for (name, args) in [("kv", &["serve"][..]), ("event_loop", &["serve"])] {
        let at = ["--at", ANY_PORT];
        let mut server = start_with_descriptors(128, name, &[args, &at].concat());
        let address = server.address();
        let domain = Domain::open(&Hints::default()).unwrap();
        let queue = domain.completion_queue(4 * STRANGERS).unwrap();
        let stranger = || {
            let builder = domain.endpoint().send_depth(1).recv_depth(1).connect_timeout(DEADLINE);
            let endpoint = builder.build(&queue).unwrap();
            endpoint.connect(address.parse().unwrap(), &[]).unwrap();
            endpoint
        };
        let mut strangers: Vec<_> = (0..STRANGERS).map(|_| stranger()).collect();
        // Those that get in have all that there is.
        let deadline = Instant::now() + DEADLINE;
        loop {
            let is_connected = |s: &&Endpoint| s.state() == EndpointState::Connected;
            let connected = strangers.iter().filter(is_connected).count();
            if connected >= 60 {
                break;
            }
            server.check_alive();
            assert!(Instant::now() < deadline, "only {connected} got in");
            // A server that is slow to accept turns away what it has no descriptors for: they come again.
            std::thread::sleep(Duration::from_millis(50));
            for dead in strangers.iter_mut().filter(|s| s.state() == EndpointState::Dead) {
                *dead = stranger();
            }
        }
        std::thread::sleep(Duration::from_millis(200));
        drop(strangers);
        if name == "kv" {
            start(name, &["set", "colour", "green", "--at", &address]).succeed();
            let green = start(name, &["get", "colour", "--at", &address]).succeed();
            assert_eq!(green, "green");
        } else {
            start(name, &["talk", "--at", &address]).succeed();
        }
        server.check_alive();
    }
}

/// Over TCP: a client that greets and is gone before it is accepted.
#[test]
fn a_client_that_gives_up_while_it_is_accepted_does_not_end_a_server() {
    if std::env::var("FABRIC_PROVIDER").is_ok_and(|provider| provider != "tcp") {
        return;
    }
    let mut server = start("event_loop", &["serve", "--at", ANY_PORT]);
    let address = server.address();
    for _ in 0..20 {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        // Version 1, a hello without data, one read at a time, no receives (`fabric_util::stream::wire`).
        let hello = [*b"FBRC", [1, 1, 0, 0], [1, 0, 0, 0], [0; 4], [0; 4]].concat();
        std::io::Write::write_all(&mut stream, &hello).unwrap();
    }
    start("event_loop", &["talk", "--at", &address]).succeed();
    server.check_alive();
}

#[test]
fn what_would_steer_a_terminal_is_escaped() {
    let server = start("kv", &["serve", "--clients", "2", "--at", ANY_PORT]);
    let at = server.address();
    start("kv", &["set", "colour", "it's \u{1b}[31mred\u{7}", "--at", &at]).succeed();
    let red = start("kv", &["get", "colour", "--at", &at]).succeed();
    assert_eq!(red, "it's \\u{1b}[31mred\\u{7}");
    server.succeed();
}

#[test]
fn mistakes_are_told() {
    let err = start("copy", &["send", "/no/such/file"]).fail(1);
    assert!(err.contains("/no/such/file: No such file"), "{err}");
    let err = start("pingpong", &["serve", "--at", "here"]).fail(2);
    assert!(err.contains("--at"), "{err}");
}

#[test]
fn help_teaches() {
    for name in ["pingpong", "counter", "kv", "copy", "event_loop", "inbox", "gossip"] {
        let out = start(name, &["--help"]).succeed();
        assert!(out.contains("Examples:") && out.contains("Commands:"), "{out}");
        let (_, examples) = out.split_once("Examples:").unwrap();
        assert!(examples.lines().all(|line| line.chars().count() <= 80), "{out}");
    }
}

#[test]
fn examples_name_no_provider() {
    let mut folders = vec![PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            seen += 1;
            let text = std::fs::read_to_string(&path).unwrap();
            // The help may show how a user chooses one.
            for line in text.lines().filter(|line| !line.contains("FABRIC_PROVIDER=")) {
                assert!(
                    !line.contains("tcp") && !line.contains("verbs"),
                    "{}: {line}",
                    path.display()
                );
            }
        }
    }
    assert!(seen >= 6, "{seen}");
}
