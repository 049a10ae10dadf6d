//! Heartbeats without connections: every member lets one watcher know that it lives, and a lost word does not matter.
//!
//! Shows: datagrams, addresses as text, the source of what comes, and what a program does about loss: it sends again.

mod common;

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use common::{Outcome, finish};
use fabric::{
    Access, Capabilities, CompletionQueue, DatagramAddress, DatagramEndpoint, Domain, Error, Hints,
    Region,
};

/// Receives of each end, as many as may come in a burst.
const RECEIVES: usize = 64;
/// Bytes of a receive: every device has datagrams of that many.
const LEN: usize = 256;
/// How often a member speaks until it is answered.
const BEAT: Duration = Duration::from_millis(50);

/// Members that say that they live, and one that listens.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  gossip watch --members 3         print an address, and wait for 3 members
  gossip member NAME ADDRESS       be one of them; ADDRESS is what watch printed")]
struct Args {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Wait until so many members have been heard of, and answer each.
    Watch {
        /// How many.
        #[arg(long, default_value_t = 1)]
        members: usize,
    },
    /// Say that this member lives, until the watcher has answered.
    Member {
        /// A name of its own.
        name: String,
        /// The watcher's address, 64 digits.
        address: DatagramAddress,
    },
}

fn main() -> ExitCode {
    env_logger::init();
    finish(match Args::parse().role {
        Role::Watch { members } => watch(members),
        Role::Member { name, address } => member(&name, &address),
    })
}

/// A datagram endpoint with receives posted, and the memory that they write to.
struct Mailbox {
    endpoint: DatagramEndpoint,
    queue: CompletionQueue,
    memory: Region,
}

impl Mailbox {
    fn new() -> Outcome<Self> {
        let capabilities = Capabilities::DATAGRAMS;
        let domain = Domain::open(&Hints { capabilities, ..Hints::default() })?;
        let queue = domain.completion_queue(256)?;
        let endpoint = domain.datagram_endpoint(&queue)?;
        let memory = domain.alloc(RECEIVES * LEN, Access::LOCAL_WRITE)?;
        let mailbox = Mailbox { endpoint, queue, memory };
        (0..RECEIVES).try_for_each(|slot| mailbox.post(slot))?;
        Ok(mailbox)
    }

    /// Lets the next datagram come into this slot.
    fn post(&self, slot: usize) -> fabric::Result<()> {
        self.endpoint.recv(self.memory.slice(slot * LEN..(slot + 1) * LEN), slot as u64)
    }

    /// What comes within `timeout`, and from whom.
    fn next(&self, timeout: Duration) -> Outcome<Option<(Vec<u8>, DatagramAddress)>> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let completion = match self.queue.wait_one(Some(left)) {
                Err(Error::TimedOut(_)) => return Ok(None),
                other => other?,
            };
            if !completion.kind.is_receive() {
                continue; // a datagram has left; whether it arrives is not known
            }
            let slot = completion.context as usize;
            let at = slot * LEN;
            let bytes = self.memory.to_vec(at..at + completion.len)?;
            self.post(slot)?;
            // Without a source it did not end well: longer than any of ours.
            if let Some(source) = completion.source {
                return Ok(Some((bytes, source)));
            }
        }
    }
}

fn watch(members: usize) -> Outcome {
    let mailbox = Mailbox::new()?;
    println!("the watcher listens on {}", mailbox.endpoint.address());
    let mut heard = HashMap::new();
    loop {
        // When all have been heard of, those are answered once more whose answer was lost.
        let is_over = heard.len() >= members;
        let next = mailbox.next(if is_over { 4 * BEAT } else { common::PATIENCE })?;
        let Some((name, source)) = next else {
            if is_over {
                break;
            }
            return Err("no member speaks".into());
        };
        let peer = mailbox.endpoint.resolve(&source)?;
        mailbox.endpoint.inject_to(&peer, b"heard", 0)?;
        heard.insert(source, String::from_utf8_lossy(&name).into_owned());
    }
    let mut names: Vec<_> = heard.into_values().collect();
    names.sort();
    println!("heard of {}", names.join(", "));
    Ok(())
}

fn member(name: &str, address: &DatagramAddress) -> Outcome {
    let mailbox = Mailbox::new()?;
    let watcher = mailbox.endpoint.resolve(address)?;
    let until = Instant::now() + common::PATIENCE;
    for beat in 1.. {
        mailbox.endpoint.inject_to(&watcher, name.as_bytes(), 0)?;
        if let Some((answer, source)) = mailbox.next(BEAT)?
            && (&*answer, source) == (b"heard", *address)
        {
            println!("{name} was heard at beat {beat}");
            return Ok(());
        }
        if Instant::now() > until {
            break;
        }
    }
    Err("no watcher answers".into())
}
