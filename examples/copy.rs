//! Copies a file from one process to another by one-sided writes.
//!
//! The receiver lends a ring of slots. The sender writes each piece of the file into the next slot; the write
//! carries immediate data, which consumes one of the receiver's receives and so reports that the piece is
//! there. When the receiver has stored it, it returns the slot by an empty message. At the end the sender
//! sends its check sum, and the receiver says whether it got the same.
//!
//! Shows: write with immediate, flow control by credits, unsignaled operations, messages without memory.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use common::{Outcome, PATIENCE, Place, connect, finish, wait};
use fabric::{Access, Capabilities, Domain, Hints, Op, OpKind, RemoteRegion};
use indicatif::{ProgressBar, ProgressStyle};

/// Bytes of a slot, and slots of the ring. Both ends must agree on them.
const PIECE: usize = 256 << 10;
const RING: u64 = 8;

/// Copy a file to another process by writing into its memory.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  copy receive new.iso    wait on port 7474, store as new.iso
  copy send old.iso       send it there
  copy receive new.iso --at 0.0.0.0:7474
                          wait on every address of the machine")]
struct Args {
    #[command(subcommand)]
    role: Role,
    /// Address or name, and port, of the receiver, or a port on an address of the device; 0 makes it choose one.
    #[arg(long, global = true, value_name = "PLACE", default_value = "7474")]
    at: Place,
}

#[derive(Subcommand)]
enum Role {
    /// Wait for one file and store it.
    Receive {
        /// Where to store it. It appears there only if it arrived whole.
        file: PathBuf,
    },
    /// Send a file.
    Send {
        /// Which.
        file: PathBuf,
    },
}

fn main() -> ExitCode {
    env_logger::init();
    let Args { role, at } = Args::parse();
    finish(match role {
        Role::Receive { file } => receive(at, &file),
        Role::Send { file } => send(at, &file),
    })
}

fn open() -> fabric::Result<Domain> {
    let capabilities = Capabilities::SEND | Capabilities::RMA;
    Domain::open(&Hints { capabilities, ..Hints::default() })
}

/// Where the slot of a piece begins.
fn slot(piece: u64) -> usize {
    (piece % RING) as usize * PIECE
}

fn receive(at: Place, path: &Path) -> Outcome {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let mut file =
        File::create(&partial).map_err(|error| format!("{}: {error}", partial.display()))?;

    let domain = open()?;
    let queue = domain.completion_queue(256)?;
    let endpoint = domain.endpoint().build(&queue)?;
    let ring = domain.alloc(slot(RING - 1) + PIECE, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let sum = domain.alloc(4, Access::LOCAL_WRITE)?;
    // One for each piece that can be under way, and one for the check sum; only that fills the memory.
    for _ in 0..=RING {
        endpoint.recv(&sum, 0)?;
    }
    let listener = domain.listen(at.on(&domain)?)?;
    println!("{} listens on {}", domain.provider(), listener.local_addr());
    let mut request = listener.accept(None)?;
    request.accept(&endpoint, &ring.remote().to_bytes())?;
    endpoint.wait_connected(None)?;

    let (mut hasher, mut pieces, mut bytes) = (crc32fast::Hasher::new(), 0u64, 0u64);
    loop {
        let completion = wait(&queue)?;
        if completion.kind == OpKind::Recv {
            break; // the check sum
        }
        if completion.immediate != Some(pieces as u32) {
            return Err(format!("piece {pieces} is missing").into());
        }
        let piece = ring.to_vec(slot(pieces)..slot(pieces) + completion.len)?;
        hasher.update(&piece);
        file.write_all(&piece)?;
        // First the receive for the slot's next piece, then the word that the slot is free.
        endpoint.recv(&sum, 0)?;
        endpoint.post(&Op::inject(&[]).unsignaled())?;
        (pieces, bytes) = (pieces + 1, bytes + completion.len as u64);
    }
    let (own, theirs) = (hasher.finalize(), u32::from_le_bytes(sum.get(0)?));
    if own == theirs {
        file.sync_all()?;
        std::fs::rename(&partial, path)?;
    }
    endpoint.inject(&[u8::from(own == theirs)], 0)?;
    endpoint.wait_disconnected(Some(PATIENCE))?; // the sender hangs up when it has the verdict
    if own != theirs {
        return Err(format!("check sum {own:08x}, the sender has {theirs:08x}").into());
    }
    println!("stored {} B as {}, check sum {own:08x}", bytes, path.display());
    Ok(())
}

fn send(to: Place, path: &Path) -> Outcome {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let bar = ProgressBar::new(file.metadata()?.len()); // shows itself on terminals only
    bar.set_style(ProgressStyle::with_template(
        "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec}",
    )?);
    let mut file = bar.wrap_read(file);

    let domain = open()?;
    let queue = domain.completion_queue(256)?;
    let (endpoint, descriptor) = connect(&domain.endpoint(), &queue, to.on(&domain)?, &[])?;
    let remote = RemoteRegion::from_bytes(&descriptor)?;
    let ring = domain.alloc(slot(RING - 1) + PIECE, Access::empty())?;
    let answer = domain.alloc(1, Access::LOCAL_WRITE)?;
    for _ in 0..=RING {
        endpoint.recv(&answer, 0)?;
    }

    // A slot comes back: its piece has arrived, so both ends may use it for another.
    let slot_back = || -> Outcome {
        wait(&queue)?;
        Ok(endpoint.recv(&answer, 0)?)
    };
    let (mut hasher, mut pieces, mut piece) = (crc32fast::Hasher::new(), 0, Vec::new());
    loop {
        piece.clear();
        Read::take(&mut file, PIECE as u64).read_to_end(&mut piece)?;
        if piece.is_empty() {
            break;
        }
        hasher.update(&piece);
        if pieces >= RING {
            slot_back()?;
        }
        let at = slot(pieces);
        ring.write_at(at, &piece)?;
        let write = Op::write(ring.slice(at..at + piece.len()), remote.at(at as u64));
        // Unsignaled: the slot that comes back proves success, and failures are always reported.
        endpoint.post(&write.immediate(pieces as u32).unsignaled())?;
        pieces += 1;
    }
    for _ in 0..pieces.min(RING) {
        slot_back()?;
    }
    bar.finish();
    let sum = hasher.finalize();
    endpoint.inject(&sum.to_le_bytes(), 0)?;
    for _ in 0..2 {
        wait(&queue)?; // the check sum is there; the verdict is here
    }
    if answer.get::<u8>(0)? != 1 {
        return Err("the receiver got something else".into());
    }
    let (bytes, took) = (bar.length().unwrap_or(0), bar.elapsed());
    println!("sent {bytes} B in {took:.2?}, check sum {sum:08x} on both sides");
    Ok(endpoint.shutdown(PATIENCE)?)
}
