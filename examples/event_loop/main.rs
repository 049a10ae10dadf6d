//! An event loop: one thread, no blocking call but the loop's own, any number of connections.
//!
//! Two descriptors report everything: the event queue's (connections that begin and end) and the
//! completion queue's (operations that ended). Any loop that can wait for descriptors will do; here it is mio.
//! The rule for completion queues: take all completions, `arm`, and sleep only if that says `Waiting`.
//!
//! Shows (node.rs has the loop): `AsFd`, the arm protocol, connecting and accepting without blocking, one queue for all
//! endpoints, doing the next thing only when the last one's completions are all there.

#[path = "../common/mod.rs"]
mod common;
mod node;
mod peer;

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use common::{Outcome, Place, finish};
use node::Node;

/// Many connections on one thread, driven by an event loop outside the library.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  event_loop serve --clients 50   answer until 50 clients have come and gone
  event_loop talk --clients 50    50 connections, each with 100 messages")]
struct Args {
    #[command(subcommand)]
    role: Role,
    /// Address or name, and port, of the server, or a port on an address of the device; 0 makes it choose one.
    #[arg(long, global = true, value_name = "PLACE", default_value = "7475")]
    at: Place,
}

#[derive(Subcommand)]
enum Role {
    /// Add 1 to every number that comes, and send it back.
    Serve {
        /// End after this many have come and gone [default: never].
        #[arg(long)]
        clients: Option<usize>,
    },
    /// Send numbers to a server, add 1 to what comes back, and send it again.
    Talk {
        /// Connections.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
        clients: u16,
        /// Messages over each of them.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
        messages: u64,
    },
}

fn main() -> ExitCode {
    env_logger::init();
    let Args { role, at } = Args::parse();
    finish(match role {
        Role::Serve { clients } => serve(at, clients),
        Role::Talk { clients, messages } => talk(at, clients.into(), messages),
    })
}

fn serve(at: Place, clients: Option<usize>) -> Outcome {
    Node::new(at, clients, None)?.run()
}

fn talk(at: Place, clients: usize, messages: u64) -> Outcome {
    let start = Instant::now();
    Node::new(at, Some(clients), Some(messages))?.run()?;
    let took = start.elapsed();
    println!("{clients} connections, {messages} messages each way over each, in {took:.2?}");
    Ok(())
}
