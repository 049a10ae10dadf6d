//! Crowds: many endpoints in several processes, all to all or all to one; also with few descriptors.
//!
//! The large ones take minutes, and say what it took: time, connections, memory, descriptors.
//!
//! ```sh
//! cargo test --release -p anyfabric-rdm --test crowd -- --ignored --nocapture --test-threads 1
//! ```
//!
//! `FABRIC_RDM_PROCESSES` (8) and `FABRIC_RDM_ENDPOINTS` (of each process) say how many, `FABRIC_RDM_OPEN` how many connections each endpoint
//! has at most, where all send to one that one; `FABRIC_RDM_BYTES` is the length of a message, `FABRIC_RDM_ROUNDS` how often each peer
//! sends to the one, and `FABRIC_RDM_AT_A_TIME` (all) how many of each process do so at a time.

#![cfg(not(miri))] // it starts processes
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod all_to_all;
mod few;
mod hub;
mod processes;

/// What a child does; nothing in the test program itself.
#[test]
fn child() {
    processes::be_child(|role| match role {
        "member" => all_to_all::rank,
        "talker" => hub::rank,
        few => few::process(few),
    });
}
