//! An endpoint where nothing happens wakes no thread.

use std::time::Duration;

use fabric_async::block_on;
use fabric_rdm::matching::Pattern;

use crate::rig::{eventually, pair, providers};

/// How often threads of this process went to sleep, by their names: those of endpoints and of nodes.
fn sleeps() -> u64 {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        let Ok(name) = std::fs::read_to_string(path.join("comm")) else { continue };
        if !["fabric-rdm", "fabric-async", "idle-runtime"].contains(&name.trim()) {
            continue;
        }
        let Ok(status) = std::fs::read_to_string(path.join("status")) else { continue };
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
        sum += line.and_then(|line| line.split_whitespace().last()?.parse::<u64>().ok()).unwrap();
    }
    sum
}

/// Whether none of them was woken for a while.
fn is_quiet() -> bool {
    let before = sleeps();
    std::thread::sleep(Duration::from_millis(300));
    sleeps() == before
}

// Other tests of the program have threads of these names: it runs itself, alone.
#[test]
fn an_idle_endpoint_costs_no_wake_ups() {
    if std::env::var_os("FABRIC_RDM_IDLE").is_none() {
        let me = std::env::current_exe().unwrap();
        let mut alone = std::process::Command::new(me);
        alone.args(["idle::an_idle_endpoint_costs_no_wake_ups", "--exact", "--nocapture"]);
        let output = alone.env("FABRIC_RDM_IDLE", "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}{text}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    for provider in providers() {
        for tokio in [false, true] {
            let it = pair(provider);
            let (a, to_b) = (it.a.clone(), it.to_b);
            drop(block_on(it.a.send_tagged(it.to_b, 1, it.buffer(b"warm"))).unwrap());
            drop(block_on(it.b.recv(Pattern::tagged(1), it.inbox(8))).unwrap());
            let waits = async move {
                let received = it.b.recv(Pattern::untagged(), it.inbox(8));
                drop(futures_util::future::select(received, it.b.next_event()).await);
            };
            let waits = std::thread::spawn(move || match tokio {
                false => block_on(waits),
                true => {
                    let mut builder = tokio::runtime::Builder::new_multi_thread();
                    builder.worker_threads(1).thread_name("idle-runtime").enable_all();
                    builder.build().unwrap().block_on(async { tokio::spawn(waits).await.unwrap() });
                }
            });
            block_on(eventually("what there was to do is done", is_quiet));
            // One that costs any costs them in each second; on a busy machine a thread may have gone to sleep late.
            let in_a_second = || {
                let before = sleeps();
                std::thread::sleep(Duration::from_secs(1));
                sleeps() - before
            };
            let is_cheap = (0..10).any(|_| {
                let woken = in_a_second();
                eprintln!("{provider}, tokio {tokio}: {woken} wake-ups in a second");
                woken <= 3
            });
            assert!(is_cheap, "{provider}, tokio {tokio}");
            drop(block_on(a.send(to_b, a.pool().alloc(4).unwrap())).unwrap());
            waits.join().unwrap();
        }
    }
}
