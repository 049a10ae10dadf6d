//! The program `encryption`: what the levels of security cost, over TCP beside plain sockets and rustls over them.
//!
//! `levels` is this library at each level, which polls for short messages and sleeps otherwise; `sockets` are blocking
//! sockets, plain or by rustls. Each way has both ends in this process, a thread for each; a round measures all of them in turn.

#[path = "../../authority.rs"]
mod authority;
mod levels;
mod sockets;

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use fabric::Security;
use serde::Serialize;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The longest transfers have so many bytes.
const LONG: usize = 1 << 20;

/// Measure what the levels of security cost, within this host.
#[derive(Parser)]
#[command(name = "encryption", version)]
struct Args {
    /// The provider, or provider and device; beside TCP, plain sockets and rustls over them are measured.
    #[arg(long, default_value = "tcp")]
    provider: String,
    /// Rounds; each measures every way once.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Connections made in a round.
    #[arg(long, default_value_t = 50)]
    connections: usize,
    /// Messages of 64 bytes that go there and back in a round.
    #[arg(long, default_value_t = 5000)]
    messages: usize,
    /// Transfers of 1 MiB in a round.
    #[arg(long, default_value_t = 300)]
    transfers: usize,
    /// Only ways whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A way to move bytes between two ends that are connected.
trait Way {
    /// What it is.
    fn name(&self) -> &'static str;

    /// Connects and closes so many times; gives the time of one.
    fn set_up(&mut self, count: usize) -> Outcome<Duration>;

    /// 64 bytes there and back so many times; gives half the time of one.
    fn messages(&mut self, count: usize) -> Outcome<Duration>;

    /// [`LONG`] bytes one way so many times; gives the time of one.
    fn transfers(&mut self, count: usize) -> Outcome<Duration>;
}

#[derive(Serialize)]
struct Row {
    way: &'static str,
    set_up_us: f64,
    message_us: f64,
    transfer_gb_s: f64,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("encryption: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Outcome {
    let mut ways: Vec<Box<dyn Way>> = Vec::new();
    if args.provider.starts_with("tcp") {
        ways.push(Box::new(sockets::plain()?));
        ways.push(Box::new(sockets::rustls()?));
    }
    let offered = levels::offered(&args.provider)?;
    for security in Security::ALL.into_iter().filter(|level| *level <= offered) {
        ways.push(Box::new(levels::Level::new(&args.provider, security, false)?));
    }
    if offered >= Security::Encrypted {
        ways.push(Box::new(levels::Level::new(&args.provider, Security::Encrypted, true)?));
    }
    ways.retain(|way| way.name().contains(&args.only));
    let mut times: Vec<[Vec<f64>; 3]> = ways.iter().map(|_| Default::default()).collect();
    for round in 0..=args.rounds {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            let measured = [
                way.set_up(args.connections)?,
                way.messages(args.messages)?,
                way.transfers(args.transfers)?,
            ];
            // The first one warms up.
            if round > 0 {
                times.iter_mut().zip(measured).for_each(|(all, one)| all.push(one.as_secs_f64()));
            }
        }
    }
    let rows: Vec<Row> =
        ways.iter().zip(&mut times).map(|(way, times)| row(&**way, times)).collect();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(());
    }
    println!(
        "{:<28} {:>10} {:>16} {:>12}",
        "medians", "set-up us", "64 B one way us", "1 MiB GB/s"
    );
    for Row { way, set_up_us, message_us, transfer_gb_s } in rows {
        println!("{way:<28} {set_up_us:>10.0} {message_us:>16.2} {transfer_gb_s:>12.2}");
    }
    Ok(())
}

fn row(way: &dyn Way, times: &mut [Vec<f64>; 3]) -> Row {
    let [set_up, message, transfer] = times.each_mut().map(|times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    Row {
        way: way.name(),
        set_up_us: set_up * 1e6,
        message_us: message * 1e6,
        transfer_gb_s: LONG as f64 / transfer / 1e9,
    }
}

/// The time of one of `count`, since `begun`.
fn each(begun: Instant, count: usize) -> Duration {
    begun.elapsed() / u32::try_from(count.max(1)).unwrap_or(u32::MAX)
}
