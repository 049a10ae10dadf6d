//! An inbox for many clients: whichever of them sends, its message takes the next of a few receives.
//!
//! Shows: a shared receive queue, which endpoint a message came to, posting a receive again when its message is dealt with,
//! connections that come and go beside it. Senders that find no receive wait; no other is held up by them.

mod common;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::{Parser, Subcommand};
use common::{Outcome, Place, connect, finish, send_away, wait};
use fabric::{
    Access, Capabilities, Completion, CompletionQueue, ConnectRequest, Domain, Endpoint,
    EndpointId, Error, Event, Hints, Region, SharedReceiveQueue,
};

/// Messages that a client has in flight.
const WINDOW: u64 = 16;
/// Clients at a time; each takes one place of the completion queue.
const MAX_CLIENTS: usize = 4096;
/// How often the server looks whether it is to end.
const TICK: Duration = Duration::from_millis(20);
const WORD: usize = size_of::<u64>();

/// Many clients, few buffers: all messages come to one queue of receives.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  inbox serve --clients 50                take messages until 50 clients left
  inbox serve --clients 50 --receives 1   with room for one message at a time
  inbox send --clients 50                 50 clients, each with 1000 messages")]
struct Args {
    #[command(subcommand)]
    role: Role,
    /// Address or name, and port, of the server, or a port on an address of the device; 0 makes it choose one.
    #[arg(long, global = true, value_name = "PLACE", default_value = "7476")]
    at: Place,
}

#[derive(Subcommand)]
enum Role {
    /// Take messages of any number of clients, and check that each client's come in order.
    Serve {
        /// End after this many have come and gone [default: never].
        #[arg(long)]
        clients: Option<usize>,
        /// Receives for all of them.
        #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=4096))]
        receives: u16,
    },
    /// Send numbers to a server: 0, 1, 2 and so on.
    Send {
        /// Clients in this process, each with a connection and a thread of its own.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
        clients: u16,
        /// Messages of each.
        #[arg(long, default_value_t = 1000)]
        count: u64,
    },
}

fn main() -> ExitCode {
    env_logger::init();
    let Args { role, at } = Args::parse();
    finish(match role {
        Role::Serve { clients, receives } => serve(at, clients, receives.into()),
        Role::Send { clients, count } => send(at, clients.into(), count),
    })
}

fn serve(at: Place, clients: Option<usize>, receives: usize) -> Outcome {
    // A device without shared receives will not do; if there is no other, the error says so.
    let capabilities = Capabilities::SEND | Capabilities::SHARED_RECEIVES;
    let domain = Domain::open(&Hints { capabilities, ..Hints::default() })?;
    let capacity = domain.info().limits.cq_capacity.min(receives + MAX_CLIENTS);
    let queue = domain.completion_queue(capacity)?;
    let mut inbox = Inbox::new(&domain, &queue, receives)?;
    let listener = domain.listen(at.on(&domain)?)?;
    println!("{} listens on {}", domain.provider(), listener.local_addr());
    let events = domain.events();
    let (mut present, mut gone) = (HashMap::new(), 0);
    while clients.is_none_or(|clients| gone < clients) {
        inbox.take(&queue, TICK)?;
        // The example event_loop sleeps until either queue has something.
        while let Some(event) = events.poll() {
            match event {
                Event::ConnectRequest { .. } => {
                    while let Some(mut request) = listener.poll() {
                        match inbox.welcome(&domain, &queue, &mut request) {
                            Ok(endpoint) => _ = present.insert(endpoint.id(), endpoint),
                            Err(error) => send_away(request, &error),
                        }
                    }
                }
                Event::Disconnected { endpoint, .. } => {
                    gone += usize::from(present.remove(&endpoint).is_some());
                }
                Event::DeviceLost => return Err(Error::DeviceLost.into()),
                _ => {}
            }
        }
    }
    // What the last ones sent came before they left.
    while inbox.take(&queue, Duration::ZERO)? {}
    println!("{} messages of {} clients, {receives} receives", inbox.messages, inbox.next.len());
    Ok(())
}

/// Receives for all clients, and the memory that they write to.
struct Inbox {
    receives: SharedReceiveQueue,
    memory: Region,
    /// The number that each client sends next.
    next: HashMap<EndpointId, u64>,
    messages: u64,
}

impl Inbox {
    fn new(domain: &Domain, queue: &CompletionQueue, receives: usize) -> Outcome<Self> {
        let memory = domain.alloc(receives * WORD, Access::LOCAL_WRITE)?;
        let shared = domain.shared_receive_queue(receives, queue)?;
        let inbox = Inbox { receives: shared, memory, next: HashMap::new(), messages: 0 };
        (0..receives).try_for_each(|slot| inbox.post(slot))?;
        Ok(inbox)
    }

    /// Lets the next message come into this slot.
    fn post(&self, slot: usize) -> fabric::Result<()> {
        let at = slot * WORD;
        self.receives.recv(self.memory.slice(at..at + WORD), slot as u64)
    }

    /// Accepts a client, whose endpoint has no receives of its own, and sends nothing.
    fn welcome(
        &self,
        domain: &Domain,
        queue: &CompletionQueue,
        request: &mut ConnectRequest,
    ) -> fabric::Result<Endpoint> {
        let endpoint =
            domain.endpoint().send_depth(1).shared_receives(&self.receives).build(queue)?;
        request.accept(&endpoint, &[])?;
        Ok(endpoint)
    }

    /// Takes the messages that are there, or come within `timeout`; says whether there were any.
    fn take(&mut self, queue: &CompletionQueue, timeout: Duration) -> Outcome<bool> {
        let mut taken = [Completion::default(); 64];
        let count = match queue.wait(&mut taken, Some(timeout)) {
            Ok(count) => count,
            Err(Error::TimedOut(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        for completion in &taken[..count] {
            let slot = completion.context as usize;
            // A client that left in the midst of a message, or sent too long a one: the event reports that.
            if completion.is_ok() {
                let number = self.memory.get::<u64>(slot * WORD)?;
                let next = self.next.entry(completion.endpoint).or_default();
                if number != *next {
                    let from = completion.endpoint;
                    return Err(format!("{from} sent {number}, and {next} was to come").into());
                }
                *next += 1;
                self.messages += 1;
            }
            self.post(slot)?;
        }
        Ok(true)
    }
}

fn send(at: Place, clients: usize, count: u64) -> Outcome {
    let domain = Domain::open(&Hints { capabilities: Capabilities::SEND, ..Hints::default() })?;
    let to = at.on(&domain)?;
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let client = || client(&domain, to, count);
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        let panicked = |_| Err("a client panicked".into());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    outcomes.into_iter().collect::<Outcome>()?;
    println!("{}: {clients} x {count} messages sent", domain.provider());
    Ok(())
}

fn client(domain: &Domain, to: SocketAddr, count: u64) -> Outcome {
    let queue = domain.completion_queue(2 * WINDOW as usize)?;
    let settings = domain.endpoint().send_depth(WINDOW as usize).recv_depth(1);
    let (endpoint, _) = connect(&settings, &queue, to, &[])?;
    for number in 0..count {
        if number >= WINDOW {
            wait(&queue)?;
        }
        // Where no receive is left it waits, and completes when the server has taken it.
        endpoint.inject(&number.to_ne_bytes(), number)?;
    }
    for _ in 0..count.min(WINDOW) {
        wait(&queue)?;
    }
    Ok(endpoint.shutdown(common::PATIENCE)?)
}
