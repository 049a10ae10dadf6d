//! Ping-pong: one message goes back and forth between two processes, and the time is taken.
//!
//! Shows: hints, connecting with private data, rejecting, receives posted ahead, unsignaled sends, polling
//! a queue or sleeping on it, noticing that the peer has left.

mod common;

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use common::{Outcome, Place, connect, expect_ok, finish};
use fabric::{
    Access, Capabilities, Completion, CompletionQueue, Domain, Endpoint, Hints, Op, Region, Status,
};

/// Receives that are posted ahead, so that a message always finds one.
const AHEAD: usize = 16;
const MAX_SIZE: u32 = 1 << 20;

/// Send one message back and forth between two processes, and print how long it takes.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  pingpong serve                       wait for one peer on port 7471
  pingpong connect --size 4096         play against it with 4 KiB
  pingpong serve --at 0.0.0.0:7471     wait on every address of the machine
  FABRIC_PROVIDER=tcp:eth0 pingpong connect --at 10.0.0.2:7471
                                       use this device; `fabric info` lists them")]
struct Args {
    #[command(subcommand)]
    role: Role,
    /// Address or name, and port, of the server, or a port on an address of the device; 0 makes it choose one.
    #[arg(long, global = true, value_name = "PLACE", default_value = "7471")]
    at: Place,
}

#[derive(Subcommand)]
enum Role {
    /// Wait for one peer and return its messages until it leaves.
    Serve {
        /// Sleep while waiting instead of polling: slower, but costs no CPU.
        #[arg(long)]
        sleep: bool,
    },
    /// Connect to the other side and measure.
    Connect {
        /// Bytes of the message.
        #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)))]
        size: u32,
        /// Round trips.
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
        count: u64,
        /// Sleep while waiting instead of polling: slower, but costs no CPU.
        #[arg(long)]
        sleep: bool,
    },
}

fn main() -> ExitCode {
    env_logger::init();
    let Args { role, at } = Args::parse();
    finish(match role {
        Role::Serve { sleep } => serve(at, sleep),
        Role::Connect { size, count, sleep } => play(at, size, count, sleep),
    })
}

fn open() -> fabric::Result<Domain> {
    // Messages are all that is needed here; a device that has only those will do.
    Domain::open(&Hints { capabilities: Capabilities::SEND, ..Hints::default() })
}

fn serve(at: Place, sleep: bool) -> Outcome {
    let domain = open()?;
    let queue = domain.completion_queue(256)?;
    let listener = domain.listen(at.on(&domain)?)?;
    println!("{} listens on {}", domain.provider(), listener.local_addr());
    // The private data of `connect` is whatever two programs agree on: here the size of the message.
    let (mut request, size) = loop {
        let mut request = listener.accept(None)?;
        match <[u8; 4]>::try_from(request.private_data()).map(u32::from_le_bytes) {
            Ok(size) if (1..=MAX_SIZE).contains(&size) => break (request, size as usize),
            _ => {
                eprintln!("{} asks for something else and is sent away", request.peer_addr());
                // It fails only if the client is gone, and others may come.
                let _ = request.reject(b"no size that this server plays with");
            }
        }
    };
    let endpoint = domain.endpoint().build(&queue)?;
    let region = domain.alloc(AHEAD * size, Access::LOCAL_WRITE)?;
    post_receives(&endpoint, &region, size)?;
    request.accept(&endpoint, &[])?;
    endpoint.wait_connected(None)?;
    let mut returned = 0;
    loop {
        let completion = next(&queue, sleep)?;
        if completion.status == Status::Canceled {
            break; // the receives that are left when the peer goes
        }
        let slot = expect_ok(completion)?.context;
        let at = slot as usize * size;
        // First the receive: once it has its answer, the peer may leave. The slot is the last in the queue
        // now, and the answer is out of it long before its turn comes.
        endpoint.recv(region.slice(at..at + size), slot)?;
        // Unsignaled: the peer's next message says that this one arrived. A failure is reported anyway.
        endpoint.post(&Op::send(region.slice(at..at + size)).unsignaled())?;
        returned += 1;
    }
    println!("returned {returned} messages of {size} B; {}", endpoint.wait_disconnected(None)?);
    Ok(())
}

fn play(at: Place, size: u32, count: u64, sleep: bool) -> Outcome {
    let domain = open()?;
    let queue = domain.completion_queue(256)?;
    let (endpoint, _) = connect(&domain.endpoint(), &queue, at.on(&domain)?, &size.to_le_bytes())?;
    let size = size as usize;
    let inbox = domain.alloc(AHEAD * size, Access::LOCAL_WRITE)?;
    let outbox = domain.alloc(size, Access::empty())?;
    post_receives(&endpoint, &inbox, size)?;
    let start = Instant::now();
    for round in 0..count {
        let stamp = &round.to_le_bytes()[..size.min(8)];
        outbox.write_at(0, stamp)?;
        endpoint.post(&Op::send(&outbox).unsignaled())?;
        let completion = expect_ok(next(&queue, sleep)?)?;
        let at = completion.context as usize * size;
        if completion.len != size || inbox.to_vec(at..at + stamp.len())? != stamp {
            return Err(format!("round {round}: what came back is not what was sent").into());
        }
        endpoint.recv(inbox.slice(at..at + size), completion.context)?;
    }
    let half = start.elapsed() / 2 / u32::try_from(count).unwrap_or(u32::MAX);
    let provider = domain.provider();
    println!("{provider}: {count} round trips of {size} B, half a round trip takes {half:?}");
    // In order: what is still in the send queue gets through before the connection ends.
    endpoint.shutdown(common::PATIENCE)?;
    Ok(())
}

/// Posts a receive for each slot of the region; its context is the number of the slot.
fn post_receives(endpoint: &Endpoint, region: &Region, size: usize) -> fabric::Result<()> {
    for slot in 0..AHEAD {
        endpoint.recv(region.slice(slot * size..(slot + 1) * size), slot as u64)?;
    }
    Ok(())
}

/// The next completion: by polling, or asleep.
fn next(queue: &CompletionQueue, sleep: bool) -> Outcome<Completion> {
    if sleep {
        return Ok(queue.wait_one(Some(common::PATIENCE))?);
    }
    let deadline = Instant::now() + common::PATIENCE;
    loop {
        for _ in 0..100 {
            if let Some(completion) = queue.poll_one()? {
                return Ok(completion);
            }
        }
        if Instant::now() > deadline {
            return Err("nothing happened for too long: the peer hangs".into());
        }
        std::thread::yield_now(); // the peer may need this very processor
    }
}
