//! Which memory a peer's process has mapped: of the same user, and of another one.

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
    let endpoint = side.endpoint();
    endpoint.connect(to.parse().unwrap(), &[]).unwrap();
    let remote = endpoint.wait_connected(Some(SOON)).unwrap();
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

/// How many files a peer has mapped, if it could be started: its own two, the rings, and what it gets of this side's.
fn mapped(user: Option<u32>) -> Option<usize> {
    let side = Side::new(64);
    let listener = side.domain.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let (endpoint, written) = (side.endpoint(), side.domain.alloc(LEN, Access::ALL).unwrap());
    endpoint.recv(&side.region, 0).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["peer", "--exact", "--nocapture"]).current_dir("/");
    command.env(TO, listener.local_addr().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    if let Some(user) = user {
        command.uid(user);
    }
    let mut peer = match command.spawn() {
        Ok(peer) => peer,
        Err(error) => {
            println!("no process of user {user:?}: {error}");
            return None;
        }
    };
    let mut request = listener.accept(Some(SOON)).unwrap();
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
    assert_eq!(mapped(None), Some(5));
    if let Some(files) = mapped(Some(OTHER)) {
        assert_eq!(files, 3);
    }
}
