//! Which memory a peer's process has mapped: of the same user, of another one, and in namespaces of its own.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests too

mod side;

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use fabric::{Access, RemoteRegion};
use side::Side;

const SOON: Duration = Duration::from_secs(20);
const LEN: usize = 3 << 20;
/// The address of the listener, for the peer.
const TO: &str = "TEST_CONNECT_TO";
/// A user that needs no account.
const OTHER: u32 = 54321;

/// Writes the peer's memory, reads it, counts in it, and says what it has mapped.
#[test]
fn peer() {
    let Ok(to) = std::env::var(TO) else { return };
    let side = Side::new(LEN);
    let (endpoint, remote) = side.connect(&to, &[]);
    let remote = RemoteRegion::from_bytes(&remote).unwrap();
    let done = || assert!(side.queue.wait_one(Some(SOON)).unwrap().is_ok());
    side.region.fill(7).unwrap();
    endpoint.write(&side.region, remote.at(0), 0).unwrap();
    done();
    side.region.fill(0).unwrap();
    endpoint.read(&side.region, remote.at(0), 0).unwrap();
    done();
    assert!(side.region.to_vec(..).unwrap().iter().all(|&byte| byte == 7));
    endpoint.fetch_add(1_u64, side.region.slice(..8), remote.at(8), 0).unwrap();
    done();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    println!("mapped {}", maps.lines().filter(|line| line.contains("memfd:fabric")).count());
    endpoint.send(side.region.slice(..1), 0).unwrap();
    done();
}

/// A process of another user, as far as this one may make one.
fn of_user(user: u32) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.uid(user);
    command
}

/// A process in other namespaces of these kinds (unshare(1)).
fn in_namespaces(kinds: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(kinds).arg("--fork").arg(std::env::current_exe().unwrap());
    command
}

/// How many files a peer has mapped, if it could be started: its own two, the rings, and what it gets of this side's.
fn mapped(mut command: Command) -> Option<usize> {
    let side = Side::new(64);
    let listener = side.domain.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let (endpoint, written) = (side.endpoint(), side.domain.alloc(LEN, Access::ALL).unwrap());
    endpoint.recv(&side.region, 0).unwrap();
    command.args(["peer", "--exact", "--nocapture"]).current_dir("/");
    command.env(TO, listener.local_addr().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut peer = command.spawn().inspect_err(|error| println!("not run: {error}")).ok()?;
    let mut request = loop {
        match listener.accept(Some(Duration::from_millis(100))) {
            Ok(request) => break request,
            // This process may not make one.
            Err(_) if peer.try_wait().unwrap().is_some() => {
                println!("not run: {command:?} ended at once");
                return None;
            }
            Err(_) => {}
        }
    };
    request.accept(&endpoint, &written.remote().to_bytes()).unwrap();
    assert!(side.queue.wait_one(Some(SOON)).unwrap().is_ok());
    let said: Vec<_> =
        BufReader::new(peer.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    let mapped = said.iter().find_map(|line| Some(line.split_once("mapped ")?.1.parse().unwrap()));
    assert!(peer.wait().unwrap().success());
    let bytes = written.to_vec(..).unwrap();
    assert!(bytes[16..].iter().all(|&byte| byte == 7) && bytes[8] == 8);
    Some(mapped.unwrap())
}

#[test]
fn a_peer_of_the_same_user_has_the_memory_and_another_users_has_not() {
    // Its windows and its pool, the rings; and this side's windows and pool.
    assert_eq!(mapped(Command::new(std::env::current_exe().unwrap())), Some(5));
    if let Some(files) = mapped(of_user(OTHER)) {
        assert_eq!(files, 3);
    }
}

/// As containers have them that share the network's: the users and processes of most are their own, and cannot trace this one.
#[test]
fn a_peer_in_other_namespaces_has_the_memory_if_it_could_trace() {
    let cases: [(&[&str], _); 3] =
        [(&["--mount", "--ipc", "--uts"], 5), (&["--pid"], 3), (&["--user", "--map-root-user"], 3)];
    for (kinds, expected) in cases {
        if let Some(files) = mapped(in_namespaces(kinds)) {
            assert_eq!(files, expected, "{kinds:?}");
        }
    }
}

/// Listens, and waits to be killed.
#[test]
fn listener() {
    if std::env::var(TO).is_err() {
        return;
    }
    let side = Side::new(64);
    let listener = side.domain.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    println!("listens at {}", listener.local_addr());
    std::thread::sleep(SOON);
}

/// Whether one with another way takes a listener of such a process for near; none: this process may not make one.
fn is_near(mut command: Command) -> Option<Result<(), provider_shm::near::NotNear>> {
    command.args(["listener", "--exact", "--nocapture"]).current_dir("/").env(TO, "");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut other = command.spawn().inspect_err(|error| println!("not run: {error}")).ok()?;
    let mut lines = BufReader::new(other.stdout.take().unwrap()).lines().map(Result::unwrap);
    let at = lines.find_map(|line| Some(line.split_once("listens at ")?.1.parse().unwrap()));
    let found = at.map(provider_shm::near::look);
    other.kill().unwrap();
    other.wait().unwrap();
    found
}

#[test]
fn a_listener_of_another_user_is_not_near() {
    let own = is_near(Command::new(std::env::current_exe().unwrap()));
    assert!(matches!(own, Some(Ok(()))), "{own:?}");
    if let Some(others) = is_near(of_user(OTHER)) {
        let reason = others.unwrap_err().to_string();
        assert_eq!(reason, "the listener is of another user");
    }
}

#[test]
fn trust_is_a_setting() {
    use fabric::Capabilities;
    use fabric::provider::Provider;
    use provider_shm::ShmProvider;

    let goes_on = |provider: &ShmProvider| {
        let info = provider.devices().swap_remove(0).state.unwrap();
        info.capabilities.contains(Capabilities::PROGRESS_WHILE_STOPPED)
    };
    let provider = ShmProvider::new();
    assert!(goes_on(&provider) && goes_on(&provider.configure("trust", "user").unwrap()));
    assert!(!goes_on(&provider.configure("trust", "none").unwrap()));
    let text = provider.configure("trust", "all").err().unwrap().to_string();
    assert!(text.contains(r#"trust="all" is none of: user, none"#), "{text}");
}
