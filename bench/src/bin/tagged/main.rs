//! Tagged messages between reliable datagram endpoints of two processes: what `fabric-bench --rdm` measures of this library.
//!
//! It prints one number: microseconds, bytes a second or bytes. The provider is chosen by `FABRIC_PROVIDER`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "it is a program")]

mod end;
mod memory;
mod messages;

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use fabric_rdm::Address;

/// Measure tagged messages between reliable datagram endpoints of two processes.
#[derive(Parser)]
#[command(name = "tagged")]
struct Args {
    /// What to measure.
    #[arg(value_enum)]
    what: What,
    /// How long.
    #[arg(long, default_value_t = 0.4)]
    seconds: f64,
    /// Bytes of a message.
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// So many receives with other tags are posted at both ends.
    #[arg(long, default_value_t = 0)]
    posted: u32,
    /// So many messages with other tags wait at both ends for a receive.
    #[arg(long, default_value_t = 0)]
    unexpected: u32,
    /// Messages under way at a time, where the rate is measured.
    #[arg(long, default_value_t = 16)]
    depth: u32,
    /// Peers, where memory is measured.
    #[arg(long, default_value_t = 500)]
    peers: u32,
    /// Be the other process.
    #[arg(long, hide = true)]
    other: Option<Address>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Half of a round trip, in microseconds; both ends poll.
    Latency,
    /// Bytes a second of messages with many under way.
    Bandwidth,
    /// Memory of a peer that is known and not connected, in bytes.
    IdlePeer,
    /// Memory of a peer that is connected, beside the slots that all share, in bytes.
    OpenPeer,
}

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

impl Args {
    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.clamp(0.001, 3600.0))
    }

    /// The other process, with the same arguments, which connects to `address`.
    fn spawn(&self, address: &Address) -> Outcome<Other> {
        let mut command = Command::new(std::env::current_exe()?);
        let what = self.what.to_possible_value().ok_or("what has no name")?;
        command.arg(what.get_name()).args(["--size", &self.size.to_string()]);
        for (name, value) in [
            ("--posted", self.posted),
            ("--unexpected", self.unexpected),
            ("--depth", self.depth),
            ("--peers", self.peers),
        ] {
            command.args([name, &value.to_string()]);
        }
        command.args(["--other", &address.to_string()]).stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(Other(command.spawn()?))
    }
}

/// The other process, which does not outlive its use.
struct Other(Child);

impl Other {
    /// Waits for the line that it prints when it is ready.
    fn wait_ready(&mut self) -> Outcome {
        let mut line = String::new();
        let output = self.0.stdout.as_mut().ok_or("its output is not a pipe")?;
        BufReader::new(output).read_line(&mut line)?;
        if line.trim() == "ready" { Ok(()) } else { Err("the other process has failed".into()) }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(args: &Args) -> Outcome {
    let figure = match (&args.other, args.what) {
        (None, What::Latency) => messages::latency(args)?,
        (None, What::Bandwidth) => messages::bandwidth(args)?,
        (None, What::IdlePeer) => memory::idle_peer(args)?,
        (None, What::OpenPeer) => memory::open_peer(args)?,
        (Some(address), What::Latency) => return messages::echo(args, address),
        (Some(address), What::Bandwidth) => return messages::take(args, address),
        (Some(address), _) => return memory::connect(args, address),
    };
    println!("{figure}");
    Ok(())
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tagged: {error}");
            ExitCode::FAILURE
        }
    }
}
