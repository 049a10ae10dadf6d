//! Random programs instead of cases: a test of the tester. They were written for no mutant, so those that they find
//! show that the model of the contract sees what it should, and that what is found is made small enough to be read.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use conformance::random::{Program, Step};

use crate::mutant::{Mutant, Runs};
use crate::plant::VARIABLE;
use crate::trial::{Verdict, run};

/// Programs that must suffice.
const PROGRAMS: &str = "600";
/// How long one that shows a mutant is made smaller.
const SHRINK_SECONDS: &str = "20";
/// Waiting in vain takes 10 s each time.
const LIMIT: Duration = Duration::from_secs(300);
/// Posts that may be left of a program that shows a mutant.
const MAX_POSTS: usize = 60;

/// What random programs need not find, and why.
const OUT_OF_REACH: &[(&str, &str)] = &[
    ("torn_add", NO_CPU),
    ("no_check_sum", "programs lie in descriptors before they are sealed"),
    ("message_too_long", "the largest message has 1 GiB"),
    ("overbooked_queue", "queues have room for the endpoints of their program"),
    ("sleep_on_the_stash", NO_WAIT),
    ("eaten_wake_up", NO_WAIT),
    ("lost_wakeup", NO_WAIT),
    ("arm_without_looking", NO_WAIT),
    ("no_hand_over", NO_WAIT),
    ("shutdown_at_once", NO_SHUTDOWN),
    ("shutdown_of_the_signaled", NO_SHUTDOWN),
    ("silent_close", "a peer that closes in haste may be taken for lost"),
    ("close_beside_a_copy", "it takes a close within microseconds of a write"),
    ("stop_reading", LITTLE),
    ("quiet_receive_lost", LITTLE),
    ("leaked_socket", "that shows when there are many"),
    ("padded_data", NO_CONNECT),
    ("backlog_too_long", NO_CONNECT),
    ("patient_connect", NO_CONNECT),
    ("waiting_forgotten", NO_CONNECT),
    ("accept_once", NO_CONNECT),
    ("busy_idle", "programs do not idle"),
    ("nan_wins", "memory seldom holds a NaN where a float is computed"),
];

const NO_CPU: &str = "programs have one thread, which does not compute beside an atomic";
const LITTLE: &str = "programs have little in flight, and sockets have room for it";
const NO_WAIT: &str = "programs poll and do not sleep";
const NO_SHUTDOWN: &str = "programs disconnect and drop, and do not shut down";
const NO_CONNECT: &str = "programs connect in one way, and always successfully";

/// Why random programs need not find a mutant, if so.
pub(crate) fn out_of_reach(mutant: &Mutant) -> Option<&'static str> {
    match mutant.runs {
        Runs::Tcp => {}
        Runs::Shm => return Some("programs run over TCP"),
        Runs::TcpLink => return Some("programs cut no link"),
        Runs::Tests => return Some("user code and devices behave in programs"),
        Runs::Verbs => return Some("needs a device"),
    }
    if ["rdm.", "datagram."].iter().any(|group| mutant.cases[0].starts_with(group)) {
        return Some("programs have connected endpoints");
    }
    OUT_OF_REACH.iter().find(|(name, _)| *name == mutant.name).map(|(_, why)| *why)
}

/// Runs random programs while a mutant is enabled.
pub(crate) fn attempt(program: &Path, number: usize, mutant: &'static Mutant) -> Verdict {
    let start = Instant::now();
    let killer = match found(program, number) {
        Ok(None) => None,
        Ok(Some(found)) => {
            let posts = |step: &&Step| matches!(step, Step::Post { .. } | Step::Receive { .. });
            let posts = found.steps.iter().filter(posts).count();
            // What is too long to read is not found.
            (posts <= MAX_POSTS).then(|| format!("a random program, {posts} posts are left of it"))
        }
        Err(end) => Some(end),
    };
    Verdict::new(mutant, mutant.runs.provider(), killer.into_iter().collect(), false, start)
}

/// The program that the model and the mutant disagree about; the error is how the mutant died.
pub(crate) fn found(program: &Path, mutant: usize) -> Result<Option<Program>, String> {
    let out = folder(mutant);
    // What an earlier run left there would be taken for this one's.
    let _ = std::fs::remove_dir_all(&out);
    let mut command = Command::new(program);
    command
        .args(["fuzz", "--provider", "tcp", "--seed", "1", "--programs", PROGRAMS])
        .args(["--shrink", SHRINK_SECONDS, "--out"])
        .arg(&out)
        .env(VARIABLE, mutant.to_string());
    let (status, _) = run(command, LIMIT)?;
    match status.code() {
        Some(0) => return Ok(None),
        Some(1) => {}
        _ => return Err(format!("(the run crashed: {status})")),
    }
    let text = |error: std::io::Error| format!("(no program in {}: {error})", out.display());
    let mut files = std::fs::read_dir(&out).map_err(text)?;
    let file = files.next().ok_or_else(|| format!("(no program in {})", out.display()))?;
    let json = std::fs::read(file.map_err(text)?.path()).map_err(text)?;
    let program = serde_json::from_slice(&json);
    program.map(Some).map_err(|error| format!("(no program: {error})"))
}

fn folder(mutant: usize) -> PathBuf {
    std::env::temp_dir().join(format!("fabric-mutants-{}-{mutant}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_reach_exists() {
        for (name, _) in OUT_OF_REACH {
            assert!(crate::list::all().any(|m| m.1.name == *name), "there is no mutant {name}");
        }
    }
}
