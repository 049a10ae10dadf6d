//! A peer that is killed at any moment: its connection ends soon, what it sent is whole, and nothing of it stays.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests too

mod side;

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fabric::{Access, RemoteRegion};
use side::Side;

const SOON: Duration = Duration::from_secs(20);
/// Victims, unless the variable says otherwise.
const ROUNDS: u64 = 60;
const ROUNDS_OF: &str = "FABRIC_TEST_KILLS";
const RECEIVES: usize = 8;
const LEN: usize = 100_000;
/// The address of the listener, for the process that is to be killed.
const TO: &str = "TEST_CONNECT_TO";

/// Sends messages of all sizes, each full of its length's low byte, for ever; and writes each to the peer's memory, too, which
/// takes no part in that.
#[test]
fn victim() {
    let Ok(to) = std::env::var(TO) else { return };
    let side = Side::new(RECEIVES * LEN);
    let (endpoint, remote) = side.connect(&to, &[]);
    let remote = RemoteRegion::from_bytes(&remote).unwrap();
    println!("connected");
    let mut len = 1;
    loop {
        len = (len * 7 + 3) % LEN + 1;
        side.region.write_at(0, &vec![len as u8; len]).unwrap();
        endpoint.write(side.region.slice(..len), remote.at(0), 0).unwrap();
        side.queue.wait_one(Some(SOON)).unwrap();
        endpoint.send(side.region.slice(..len), 0).unwrap();
        side.queue.wait_one(Some(SOON)).unwrap();
    }
}

/// Lends its memory, and does nothing.
#[test]
fn target() {
    let Ok(to) = std::env::var(TO) else { return };
    let side = Side::new(LEN);
    let (_endpoint, _) = side.connect(&to, &side.region.remote().to_bytes());
    let _ = std::io::stdin().read(&mut [0]);
}

fn start(what: &str, to: SocketAddr) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([what, "--exact", "--nocapture"]).env(TO, to.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// What this process holds: descriptors, threads, and mappings of rings.
fn held() -> [usize; 3] {
    let count = |path| std::fs::read_dir(path).unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let rings = maps.lines().filter(|line| line.contains("memfd:fabric")).count();
    [count("/proc/self/fd"), count("/proc/self/task"), rings]
}

#[test]
fn a_peer_that_is_killed_leaves_nothing_and_what_came_is_whole() {
    let side = Side::new(RECEIVES * LEN);
    let listener = side.domain.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let before = held();
    let mut noticed = Vec::new();
    let rounds = std::env::var(ROUNDS_OF).map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    for round in 0..rounds {
        let endpoint = side.endpoint();
        let at = |slot: usize| side.region.slice(slot * LEN..(slot + 1) * LEN);
        for slot in 0..RECEIVES {
            endpoint.recv(at(slot), slot as u64).unwrap();
        }
        let mut victim = start("victim", listener.local_addr());
        let written = side.domain.alloc(LEN, Access::ALL).unwrap();
        let remote = written.remote().to_bytes();
        listener.accept(Some(SOON)).unwrap().accept(&endpoint, &remote).unwrap();
        let mut said = BufReader::new(victim.stdout.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().contains("connected")));
        // The moment differs by what it is in the middle of.
        let mut lives = Some(Instant::now() + Duration::from_micros(37 * (round * round % 97)));
        let (mut killed, mut ended) = (Instant::now(), 0);
        let until = Instant::now() + SOON;
        while ended < RECEIVES {
            assert!(Instant::now() < until, "the receives do not end: {}", endpoint.dump());
            if lives.is_some_and(|until| until <= Instant::now()) {
                victim.kill().unwrap();
                (lives, killed) = (None, Instant::now());
            }
            if let Some(done) = side.queue.poll_one().unwrap() {
                let slot = done.context as usize;
                if !done.is_ok() {
                    ended += 1;
                    continue;
                }
                let len = done.len;
                let bytes = side.region.to_vec(slot * LEN..slot * LEN + len).unwrap();
                assert!(bytes.iter().all(|&byte| byte == len as u8), "a message of {len}");
                if endpoint.recv(at(slot), slot as u64).is_err() {
                    ended += 1;
                }
            }
        }
        noticed.push(killed.elapsed());
        // Though it was in the middle of a write, perhaps.
        written.close().unwrap();
        victim.wait().unwrap();
        endpoint.wait_disconnected(Some(SOON)).unwrap();
    }
    noticed.sort();
    println!(
        "noticed after {:?}, at most {:?}",
        noticed[noticed.len() / 2],
        noticed[noticed.len() - 1]
    );
    // Other tests of this process had threads at the beginning.
    let is_more = || held().iter().zip(before).any(|(&now, before)| now > before);
    let until = Instant::now() + SOON;
    while is_more() {
        assert!(Instant::now() < until, "held {:?}, before {before:?}", held());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Each poll finds a completion, since each write is executed at once: the end is found all the same.
#[test]
fn one_that_writes_by_itself_alone_notices_the_end() {
    let side = Side::new(LEN);
    let listener = side.domain.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut target = start("target", listener.local_addr());
    let mut request = listener.accept(Some(SOON)).unwrap();
    let remote = RemoteRegion::from_bytes(request.private_data()).unwrap();
    let endpoint = side.endpoint();
    request.accept(&endpoint, &[]).unwrap();
    endpoint.wait_connected(Some(SOON)).unwrap();
    let (begun, mut writes) = (Instant::now(), 0_u64);
    // Until the first error of a post or of a completion.
    while endpoint.write(side.region.slice(..64), remote.at(0), 0).is_ok() {
        if !side.queue.wait_one(Some(SOON)).unwrap().is_ok() {
            break;
        }
        assert!(begun.elapsed() < SOON, "it writes to the dead for ever");
        writes += 1;
        if writes == 10_000 {
            target.kill().unwrap();
        }
    }
    assert!(writes >= 10_000, "the end before the end");
    target.wait().unwrap();
}
