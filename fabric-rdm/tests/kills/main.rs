//! Members that are real processes, and are killed by `SIGKILL` or stopped at any moment: what the others see of it.
//!
//! A process of these tests is this program again, as the test `child`, with a role in its environment. It takes lines from its
//! parent, and prints lines for it. `FABRIC_RDM_KILL_SECONDS` is how long the soak kills, over each provider, and
//! `FABRIC_RDM_SEED` its seed. A failure shows the seed, what was expected, and the endpoint's dump.
//!
//! | file | what belongs there |
//! |---|---|
//! | `process` | a process with a role: started, spoken to, stopped, killed |
//! | `words` | what parent and child say to each other |
//! | `content` | what is in messages and writes: all of it follows from who wrote it, to whom, and its number |
//! | `outstanding` | one peer is killed with everything outstanding, and restarts |
//! | `stopped` | a peer that is stopped for seconds, and goes on |
//! | `soak` | the parent of the soak: whom it kills when, and what it says to the others |
//! | `member` | a process of the soak: its orders, and what it does when |
//! | `roster` | the others, as a member knows them |
//! | `buffers` | memory of operations |
//! | `traffic` | what a member posts |
//! | `oracle` | what each completion may be |
//! | `arrivals` | messages that came: once, whole, and in order |
//! | `bounds` | time and resources |
//! | `ending` | what must hold when all is quiet |

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod arrivals;
mod bounds;
mod buffers;
mod content;
mod ending;
mod member;
mod oracle;
mod outstanding;
mod process;
mod roster;
mod soak;
mod stopped;
mod traffic;
mod words;

use process::ROLE;

/// What was expected and is not so.
type Outcome<T = ()> = Result<T, String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

/// Not a test by itself: a process with a role.
#[test]
fn child() {
    match std::env::var(ROLE).as_deref() {
        Ok("member") => member::run(),
        Ok("victim") => outstanding::victim(),
        Ok("third") => outstanding::third(),
        Ok("echo") => stopped::echo(),
        Ok(role) => panic!("there is no role {role}"),
        Err(_) => {}
    }
}

#[test]
fn killed_outstanding_over_tcp() {
    outstanding::killed("tcp");
}

#[test]
fn killed_outstanding_over_shm() {
    outstanding::killed("shm");
}

#[test]
fn stopped_peer_lives_over_tcp() {
    stopped::lives("tcp");
}

#[test]
fn stopped_peer_lives_over_shm() {
    stopped::lives("shm");
}

#[test]
fn soak_over_tcp() {
    soak::run("tcp");
}

#[test]
fn soak_over_shm() {
    soak::run("shm");
}
