//! Random programs instead of cases: a test of the tester. They were written for no mutant, so those that they find
//! show that the model of the contract sees what it should, and that what is found is made small enough to be read.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use conformance::random::rdm::{RdmProgram, RdmStep};
use conformance::random::{Program, Step};
use serde::de::DeserializeOwned;

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
    ("rdm_newer_address", NO_SHIPPING),
    ("rdm_damaged_address", NO_SHIPPING),
    ("rdm_no_force", NO_WALL),
    ("rdm_one_rail", NO_WALL),
    (
        "rdm_crossing_refused",
        "the next attempts seldom cross again: it takes time, and nothing else shows",
    ),
    ("rdm_begins_with_the_end", "it is open when one that was removed is found to be down"),
    ("rdm_youngest_parked", "it is open which connection is parked"),
    ("rdm_fence_left_out", "reads are short: what is behind them comes after them in any case"),
    ("rdm_same_life", "both sides of a program notice a loss"),
    ("rdm_write_overtakes", "the model does not ask which messages are there when a write ends"),
    ("rdm_ninth_mask", "programs have five masks"),
    ("rdm_claimed_by_place", "programs claim what they find at once"),
    ("rdm_dropped_keeps_place", "programs seldom drop as many messages as a window has places"),
    ("rdm_wrong_cause", ENOUGH_PLACES),
    ("rdm_granted_twice", ENOUGH_PLACES),
    ("rdm_deaf_to_wants", ENOUGH_PLACES),
    ("rdm_nothing_given_back", ENOUGH_PLACES),
    ("rdm_no_room_for_one_more", ENOUGH_PLACES),
    (
        "rdm_bytes_leak",
        "payload that there is no room for waits at its sender, and comes all the same",
    ),
    ("rdm_counter_wakes_nobody", NO_WAIT),
    ("rdm_sleeper_not_woken", NO_WAIT),
    ("rdm_timer_overslept", NO_WAIT),
    ("rdm_no_service", NO_WAIT),
    ("rdm_idle_spins", "programs do not idle"),
    ("rdm_grant_stays", "no program reads by a grant that is over"),
];

const NO_CPU: &str = "programs have one thread, which does not compute beside an atomic";
const LITTLE: &str = "programs have little in flight, and sockets have room for it";
const NO_WAIT: &str = "programs poll and do not sleep";
const NO_SHUTDOWN: &str = "programs disconnect and drop, and do not shut down";
const NO_SHIPPING: &str = "programs insert addresses as they are";
const NO_WALL: &str = "endpoints of programs have one rail, by which each reaches them";
const ENOUGH_PLACES: &str = "endpoints of programs have places for all their peers together";
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
    if mutant.cases[0].starts_with("datagram.") {
        return Some("programs have reliable endpoints");
    }
    OUT_OF_REACH.iter().find(|(name, _)| *name == mutant.name).map(|(_, why)| *why)
}

/// Programs of a kind, as far as their length is concerned.
trait Posts: DeserializeOwned {
    /// What has the suite draw them.
    const FLAGS: &[&str];

    /// How many of its steps post something.
    fn posts(&self) -> usize;
}

impl Posts for Program {
    const FLAGS: &[&str] = &[];

    fn posts(&self) -> usize {
        let posts = |step: &&Step| matches!(step, Step::Post { .. } | Step::Receive { .. });
        self.steps.iter().filter(posts).count()
    }
}

impl Posts for RdmProgram {
    const FLAGS: &[&str] = &["--rdm"];

    fn posts(&self) -> usize {
        let posts = |step: &&RdmStep| {
            use RdmStep::{OneSided, Receive, Send};
            matches!(step, Send { .. } | Receive { .. } | OneSided { .. })
        };
        self.steps.iter().filter(posts).count()
    }
}

/// Fails if random programs find something with no mutant enabled.
pub(crate) fn check_healthy(program: &Path) -> Result<(), String> {
    let posts = [found::<Program>(program, 0)?, found::<RdmProgram>(program, 0)?];
    match posts.into_iter().flatten().next() {
        None => Ok(()),
        Some(posts) => {
            let folder = folder(0);
            Err(format!(
                "with no mutant enabled a program of {posts} posts is found: {}",
                folder.display()
            ))
        }
    }
}

/// Runs random programs while a mutant is enabled: of datagram endpoints, if it is about those.
pub(crate) fn attempt(program: &Path, number: usize, mutant: &'static Mutant) -> Verdict {
    let start = Instant::now();
    let is_rdm = mutant.cases[0].starts_with("rdm.");
    let found = match is_rdm {
        true => found::<RdmProgram>(program, number),
        false => found::<Program>(program, number),
    };
    let killer = match found {
        Ok(posts) => posts
            // What is too long to read is not found.
            .filter(|posts| *posts <= MAX_POSTS)
            .map(|posts| format!("a random program, {posts} posts are left of it")),
        Err(end) => Some(end),
    };
    Verdict::new(mutant, mutant.runs.provider(), killer.into_iter().collect(), false, start)
}

/// How many posts the program has that the model and the mutant disagree about; the error is how the mutant died.
fn found<P: Posts>(program: &Path, mutant: usize) -> Result<Option<usize>, String> {
    let out = folder(mutant);
    // What an earlier run left there would be taken for this one's.
    let _ = std::fs::remove_dir_all(&out);
    let mut command = Command::new(program);
    command
        .args(["fuzz", "--provider", "tcp", "--seed", "1", "--programs", PROGRAMS])
        .args(P::FLAGS)
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
    let found: P =
        serde_json::from_slice(&json).map_err(|error| format!("(no program: {error})"))?;
    Ok(Some(found.posts()))
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
