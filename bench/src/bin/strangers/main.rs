//! The program `strangers`: how long an honest client takes beside strangers that take what they can get, at a server of the
//! asynchronous layer over TCP.
//!
//! `server` is what is attacked, a process of its own; `crowd` are the strangers, from 127.0.0.1, and `outsiders` those among
//! them that cannot prove themselves; `honest` is the client, from another address of this machine; `credentials` are what
//! members prove themselves by; `figures` is the table. Two builds of the program compare two versions of the
//! library: `strangers --before FILE` takes its server from that file.

#[path = "../../authority.rs"]
mod authority;
mod credentials;
mod crowd;
mod figures;
mod honest;
mod outsiders;
mod server;

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use credentials::Credentials;
use crowd::Crowd;
use figures::{Figures, Row};
use server::Server;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Measure an honest client beside strangers.
///
/// Each scene has a server of its own. The client connects, borrows 64 bytes, writes 8 and leaves, again and again; a time is
/// from the first to the last of this. It waits at most 10 s.
#[derive(Parser)]
#[command(name = "strangers", version)]
struct Args {
    /// Another build of this program, whose server is measured beside this one's, scene by scene.
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// The address of the honest client, which is another than 127.0.0.1 [default: the first of this machine].
    #[arg(long, value_name = "IP")]
    from: Option<IpAddr>,
    /// Honest connections for each scene and server.
    #[arg(long, default_value_t = 20)]
    times: usize,
    /// Only scenes whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// The server and the honest client prove themselves by this; only scenes of strangers who cannot are measured.
    #[arg(long, value_name = "BY")]
    credentials: Option<credentials::Kind>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Subcommand)]
enum Part {
    /// The server that is attacked.
    #[command(hide = true)]
    Server,
    /// Strangers that read nothing.
    #[command(hide = true)]
    Stalled {
        /// The server.
        to: SocketAddr,
        /// Connections.
        count: usize,
    },
    /// Strangers that try to prove themselves by what the server does not know.
    #[command(hide = true)]
    Unproved {
        /// The server.
        to: SocketAddr,
        /// Of them, at a time.
        count: usize,
    },
    /// Strangers that say how another's handshake began.
    #[command(hide = true)]
    Repeated {
        /// The server.
        to: SocketAddr,
        /// Of them, at a time.
        count: usize,
    },
    /// Strangers that read as much as they can.
    #[command(hide = true)]
    Readers {
        /// The server.
        to: SocketAddr,
        /// Connections.
        count: usize,
    },
}

/// What is done beside the honest client.
const SCENES: &[(&str, Crowd)] = &[
    ("alone", Crowd::None),
    ("20 unfinished set-ups a second", Crowd::Unfinished { per_second: 20 }),
    ("400 unfinished set-ups a second", Crowd::Unfinished { per_second: 400 }),
    ("4000 silent TCP connections", Crowd::Silent { count: 4000 }),
    ("all connections that it gets, unused", Crowd::Unused { count: 400 }),
    ("64 connections that read nothing", Crowd::Stalled { count: 64 }),
    ("32 connections that read without end", Crowd::Readers { count: 32 }),
    ("8 that cannot prove themselves, at a time", Crowd::Outsiders { part: "unproved", count: 8 }),
    ("400 that repeat how a handshake begins", Crowd::Outsiders { part: "repeated", count: 400 }),
    ("all leases that it gets", Crowd::Greedy { count: 16, len: 64 << 20 }),
];

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.part {
        Some(Part::Server) => server::run(),
        Some(Part::Stalled { to, count }) => crowd::stall(to, count),
        Some(Part::Readers { to, count }) => crowd::read(to, count),
        Some(Part::Unproved { to, count }) => outsiders::fail_to_prove(to, count),
        Some(Part::Repeated { to, count }) => outsiders::repeat(to, count),
        None => measure(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> Outcome {
    let own = std::env::current_exe()?;
    let from = args.from.map_or_else(other_address, Ok)?;
    let programs: Vec<_> = args.before.iter().chain([&own]).collect();
    let is_chosen = |name: &str, crowd: &Crowd| {
        args.only.as_deref().is_none_or(|only| name.contains(only))
            && crowd.is_possible(args.credentials.is_some())
    };
    let scenes: Vec<_> = SCENES.iter().filter(|(name, crowd)| is_chosen(name, crowd)).collect();
    let by = args.credentials.map(Credentials::new).transpose()?;
    let bar = indicatif::ProgressBar::new((scenes.len() * programs.len()) as u64);
    bar.enable_steady_tick(Duration::from_millis(200));
    let mut rows = Vec::new();
    for (name, crowd) in scenes {
        for program in &programs {
            let version = if programs.len() == 2 && **program != own { "before" } else { "now" };
            let server = Server::start(program, by.as_ref())?;
            let crowd = crowd.start(&server, &own, by.as_ref())?;
            let hints =
                by.as_ref().map_or_else(|| Ok(fabric::Hints::default()), Credentials::hints)?;
            let figures: Figures = honest::connect(server.addr(), from, args.times, hints)?;
            let held = crowd.end();
            rows.push(Row::new(name, version, held, server.memory()?, figures));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    figures::print(&rows, args.json)
}

/// An address of this machine that is not loopback.
fn other_address() -> Outcome<IpAddr> {
    let own = fabric::Domain::open(&fabric::Hints::default())?.info().addresses.clone();
    let other = own.into_iter().find(|ip| ip.is_ipv4() && !ip.is_loopback());
    Ok(other.ok_or("this machine has only loopback; give an address with --from")?)
}
