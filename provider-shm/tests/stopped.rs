//! A peer that is stopped while it writes by itself to memory that is revoked: what it writes later changes nothing.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests too

mod side;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fabric::{Access, Error, Region, RemoteRegion};
use rustix::process::{Pid, Signal, kill_process};
use side::Side;

const SOON: Duration = Duration::from_secs(20);
const ROUNDS: u64 = 40;
const LEN: usize = 4 << 20;
/// The address of the listener, for the process that is to be stopped.
const TO: &str = "TEST_CONNECT_TO";

/// Writes its memory to the peer's, a different byte each time, until that is refused.
#[test]
fn writer() {
    let Ok(to) = std::env::var(TO) else { return };
    let side = Side::new(LEN);
    let (endpoint, remote) = side.connect(&to, &[]);
    let remote = RemoteRegion::from_bytes(&remote).unwrap();
    println!("connected");
    for round in 1_u8.. {
        side.region.fill(round).unwrap();
        endpoint.write(&side.region, remote.at(0), 0).unwrap();
        if !side.queue.wait_one(Some(SOON)).unwrap().is_ok() {
            println!("refused");
            return;
        }
    }
}

/// The memory's bytes, one of each page: enough to see a change.
fn seen(of: &Region) -> Vec<u8> {
    let bytes = of.to_vec(..).unwrap();
    bytes.iter().step_by(64).copied().collect()
}

#[test]
fn what_a_stopped_peer_writes_later_changes_nothing() {
    let side = Side::new(64);
    let listener = side.domain.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut busy = 0;
    for round in 0..ROUNDS {
        let endpoint = side.endpoint();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["writer", "--exact", "--nocapture"]);
        command.env(TO, listener.local_addr().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut writer = command.spawn().unwrap();
        let memory = side.domain.allocate(LEN).unwrap();
        let (open, own) = (
            side.domain.register(&memory, Access::ALL).unwrap(),
            side.domain.register(&memory, Access::LOCAL_WRITE).unwrap(),
        );
        let remote = open.remote().to_bytes();
        listener.accept(Some(SOON)).unwrap().accept(&endpoint, &remote).unwrap();
        let mut said = BufReader::new(writer.stdout.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().contains("connected")));
        let begun = Instant::now();
        while seen(&own)[0] == 0 {
            assert!(begun.elapsed() < SOON, "it writes nothing");
        }
        thread::sleep(Duration::from_micros(round * round * 137 % 5000));
        let pid = Pid::from_child(&writer);
        kill_process(pid, Signal::STOP).unwrap();

        let begun = Instant::now();
        let mut stopped = true;
        match open.close() {
            // In the middle of a copy: that one ends first.
            Err(Error::Busy) => {
                assert!(begun.elapsed() < SOON);
                busy += 1;
                kill_process(pid, Signal::CONT).unwrap();
                stopped = false;
                while let Err(error) = open.close() {
                    assert!(matches!(error, Error::Busy) && begun.elapsed() < SOON, "{error}");
                }
            }
            closed => closed.unwrap(),
        }
        let before = seen(&own);
        if stopped {
            kill_process(pid, Signal::CONT).unwrap();
        }
        assert!(said.any(|line| line.unwrap().contains("refused")), "the writer goes on");
        assert!(seen(&own) == before, "written after the end of the registration");
        writer.wait().unwrap();
        endpoint.wait_disconnected(Some(SOON)).unwrap();
    }
    println!("{busy} of {ROUNDS} were in the middle of a copy");
}
