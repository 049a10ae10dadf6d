//! A rank that is killed, at the TCP server.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod killed;

use fabric_exchange::{Rendezvous, Server, ServerOptions};

#[test]
fn a_rank_that_is_killed_in_a_barrier_is_named() {
    if killed::is_child() {
        return;
    }
    let server = Server::bind("127.0.0.1:0", ServerOptions::default()).unwrap().spawn().unwrap();
    let place = Rendezvous::Tcp(server.local_addr().to_string());
    killed::kill_in_a_barrier("a_rank_that_is_killed_in_a_barrier_is_named", &place);
}
