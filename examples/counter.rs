//! A counter in the memory of a process that does nothing: many clients add to it by one-sided atomics.
//!
//! Shows: memory that peers may update, its descriptor in the private data of `accept`, fetching atomics
//! with several in flight, when the CPU sees what was done, a server that sleeps through all of it.

mod common;

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use common::{Outcome, Place, connect, finish, lend, wait};
use fabric::{Access, Capabilities, Domain, Hints, Op, RemoteRegion};

/// Additions that a client has in flight.
const WINDOW: u64 = 16;
const WORD: usize = size_of::<u64>();

/// Count together: clients add to a number in the server's memory, and the server has no part in it.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  counter serve --clients 4       lend it until 4 clients have come and gone
  counter add --clients 4         4 clients, each adding 1 ten thousand times
  counter add --count 5 --by 100  one client, other numbers")]
struct Args {
    #[command(subcommand)]
    role: Role,
    /// Address or name, and port, of the server, or a port on an address of the device; 0 makes it choose one.
    #[arg(long, global = true, value_name = "PLACE", default_value = "7472")]
    at: Place,
}

#[derive(Subcommand)]
enum Role {
    /// Lend a counter to clients, and print its value when the last of them has left.
    Serve {
        /// End after this many have come and gone [default: never].
        #[arg(long)]
        clients: Option<usize>,
    },
    /// Add to the counter of a server.
    Add {
        /// Clients in this process, each with a connection and a thread of its own.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
        clients: u16,
        /// How often each of them adds.
        #[arg(long, default_value_t = 10_000)]
        count: u64,
        /// What it adds.
        #[arg(long, default_value_t = 1)]
        by: u32,
    },
}

fn main() -> ExitCode {
    env_logger::init();
    let Args { role, at } = Args::parse();
    finish(match role {
        Role::Serve { clients } => serve(at, clients),
        Role::Add { clients, count, by } => add(at, clients.into(), count, by.into()),
    })
}

fn open() -> fabric::Result<Domain> {
    // A device without atomics will not do; if there is no other, the error says so.
    let capabilities = Capabilities::ATOMIC | Capabilities::RMA;
    Domain::open(&Hints { capabilities, ..Hints::default() })
}

fn serve(at: Place, clients: Option<usize>) -> Outcome {
    let domain = open()?;
    // Memory that a peer may change can change here at all: LOCAL_WRITE.
    let rights = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC | Access::REMOTE_WRITE;
    let memory = domain.alloc(2 * WORD, rights)?;
    lend(&domain, &memory, at.on(&domain)?, clients)?;
    println!("the counter stands at {}", memory.get::<u64>(0)?);
    Ok(())
}

fn add(at: Place, clients: usize, count: u64, by: u64) -> Outcome {
    let domain = open()?;
    let start = Instant::now();
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let client = || client(&domain, at, count, by);
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        let panicked = |_| Err("a client panicked".into());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    outcomes.into_iter().collect::<Outcome>()?;
    let rate = (clients as u64 * count) as f64 / start.elapsed().as_secs_f64();
    let s = if clients == 1 { "" } else { "s" };
    println!("{}: {clients} client{s} added {count} times each, {rate:.0}/s", domain.provider());
    Ok(())
}

fn client(domain: &Domain, to: Place, count: u64, by: u64) -> Outcome {
    let queue = domain.completion_queue(256)?;
    let (endpoint, descriptor) = connect(&domain.endpoint(), &queue, to.on(domain)?, &[])?;
    let remote = RemoteRegion::from_bytes(&descriptor)?;
    let (counter, farewell) = (remote.at(0), remote.at(WORD as u64));
    // The value before each addition comes back into a word of its own.
    let old = domain.alloc(WINDOW as usize * WORD, Access::LOCAL_WRITE)?;
    let post = |slot: u64| {
        let at = slot as usize * WORD;
        endpoint.fetch_add(by, old.slice(at..at + WORD), counter, slot)
    };
    let mut posted = count.min(WINDOW);
    for slot in 0..posted {
        post(slot)?;
    }
    let mut seen = Vec::new();
    for _ in 0..count {
        let slot = wait(&queue)?.context;
        seen.push(old.get::<u64>(slot as usize * WORD)?);
        if posted < count {
            post(slot)?;
            posted += 1;
        }
    }
    // Each addition was alone with the counter: no two of them can have found the same value.
    seen.sort_unstable();
    if seen.windows(2).any(|two| two[1] - two[0] < by) {
        return Err("two additions found the same value: they were not atomic".into());
    }
    // What completed is there for other operations, not yet for the server's CPU. A write behind it that
    // completes only when that CPU sees it, changes that.
    endpoint.post(&Op::inject_write(&[1], farewell).fence().delivery_complete())?;
    wait(&queue)?;
    Ok(endpoint.shutdown(common::PATIENCE)?)
}
