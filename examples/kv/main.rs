//! A key-value store whose server only lends memory: clients do all the work by one-sided operations.
//!
//! The memory is a table of slots. Each begins with a version: even while the slot is stable, odd while a
//! writer has it locked. A reader fetches a whole slot with one read. The bytes of one operation arrive in no
//! order, so the slot carries a check sum over version and entry: a torn read does not pass. A writer
//! locks by compare-and-swap, writes the entry, and unlocks by adding 1 to the version; the order of write and
//! atomic at the target is guaranteed, so no reader sees the new version with the old entry.
//!
//! Shows: reads, writes and atomics on the same memory, what their order is, and what to check. A store for
//! real use also needs to free the locks of clients that died.

#[path = "../common/mod.rs"]
mod common;
mod store;

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use common::{Outcome, Place, finish, lend, printable};
use fabric::{Access, Capabilities, Domain, Hints};
use store::{Client, SLOT};

/// A key-value store in the memory of a server that does nothing.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  kv serve                       lend a table on port 7473
  kv set colour green            store a value
  kv get colour                  fetch it: one read of the server's memory
  kv load --clients 4            4 clients that read and update the same keys
  kv serve --clients 4           end when 4 clients have come and gone")]
struct Args {
    #[command(subcommand)]
    role: Role,
    /// Address or name, and port, of the server, or a port on an address of the device; 0 makes it choose one.
    #[arg(long, global = true, value_name = "PLACE", default_value = "7473")]
    at: Place,
}

#[derive(Subcommand)]
enum Role {
    /// Lend a table to clients.
    Serve {
        /// Entries it has room for.
        #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
        slots: u32,
        /// End after this many have come and gone [default: never].
        #[arg(long)]
        clients: Option<usize>,
    },
    /// Print the value of a key.
    Get {
        /// The key, at most 48 bytes.
        key: String,
    },
    /// Give a key a value.
    Set {
        /// The key, at most 48 bytes.
        key: String,
        /// The value, at most 192 bytes.
        value: String,
    },
    /// Read and update a few keys from many clients at once.
    Load {
        /// Clients, each with a connection and a thread of its own.
        #[arg(long, default_value_t = 4)]
        clients: usize,
        /// Updates of each client; each goes with three reads.
        #[arg(long, default_value_t = 1000)]
        count: u64,
    },
}

fn main() -> ExitCode {
    env_logger::init();
    let Args { role, at } = Args::parse();
    finish(match role {
        Role::Serve { slots, clients } => serve(at, slots as usize, clients),
        Role::Get { key } => get(at, &key),
        Role::Set { key, value } => set(at, &key, &value),
        Role::Load { clients, count } => load(at, clients, count),
    })
}

fn open() -> fabric::Result<Domain> {
    let capabilities = Capabilities::RMA | Capabilities::ATOMIC;
    Domain::open(&Hints { capabilities, ..Hints::default() })
}

fn serve(at: Place, slots: usize, clients: Option<usize>) -> Outcome {
    let domain = open()?;
    let table = domain.alloc(slots * SLOT, Access::ALL)?;
    lend(&domain, &table, at.on(&domain)?, clients)
}

fn get(at: Place, key: &str) -> Outcome {
    let mut client = Client::connect(&open()?, at)?;
    let (_, slot) = client.find(key.as_bytes())?;
    if slot.is_free() {
        return Err(format!("there is no key {key:?}").into());
    }
    println!("{}", printable(slot.value()));
    Ok(())
}

fn set(at: Place, key: &str, value: &str) -> Outcome {
    Client::connect(&open()?, at)?.update(key.as_bytes(), |_| value.as_bytes().to_vec())
}

fn load(at: Place, clients: usize, count: u64) -> Outcome {
    const KEYS: u64 = 8;
    let key = |n: u64| format!("load-{}-{}", std::process::id(), n % KEYS).into_bytes();
    // Numbers, long enough that a torn read would show.
    let number = |value: &[u8]| String::from_utf8_lossy(value).parse().unwrap_or(0u64);
    let domain = open()?;
    let start = Instant::now();
    let work = |n: usize| -> Outcome<Client> {
        let mut client = Client::connect(&domain, at)?;
        for i in n as u64..n as u64 + count {
            client.update(&key(i), |old| format!("{:0>150}", number(old) + 1).into_bytes())?;
            for other in 1..=3 {
                client.find(&key(i + other))?;
            }
        }
        Ok(client)
    };
    let clients = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|n| scope.spawn(move || work(n))).collect();
        let panicked = |_| Err("a client panicked".into());
        let ends = threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked));
        ends.collect::<Outcome<Vec<Client>>>()
    })?;
    let took = start.elapsed();
    let (retries, updates) =
        (clients.iter().map(|c| c.retries).sum::<u64>(), clients.len() as u64 * count);
    let mut sum = 0;
    if let Some(mut client) = clients.into_iter().next() {
        for n in 0..KEYS {
            // A read may find a value that is about to be replaced. An update cannot: its lock would fail.
            let value = Cell::new(0);
            client.update(&key(n), |old| {
                value.set(number(old));
                old.to_vec()
            })?;
            sum += value.get();
        }
    }
    if sum != updates {
        return Err(format!("{updates} updates, but the values add up to {sum}").into());
    }
    println!(
        "{}: {updates} updates and {} reads in {took:.2?}, {retries} retries, none lost",
        domain.provider(),
        3 * updates
    );
    Ok(())
}
