//! The program `fabric`: what providers and devices this machine has, what they offer, and how fast they are; and the server
//! where the processes of a job find each other.
//!
//! `fabric info` only asks the library and shows the answers: `survey` collects them, `report` writes them for people,
//! `table` does the layout, `json` writes them for programs, `variables` is `--env`, `peer` is `--peer`. `fabric perf` is `perf`,
//! `fabric rendezvous` is `rendezvous`. What went wrong with any is a `failure`.

mod failure;
mod json;
mod peer;
mod perf;
mod rendezvous;
mod report;
mod survey;
mod table;
mod variables;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use failure::Failure;
use survey::Survey;

/// Look at the fabric providers and devices of this machine, measure them, and let the processes of a job find each other.
#[derive(Parser)]
#[command(name = "fabric", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Info(InfoArgs),
    Perf(Box<perf::PerfArgs>),
    Rendezvous(Box<rendezvous::RendezvousArgs>),
}

/// Show providers, devices, ports, addresses, GIDs, limits, capabilities and atomics.
///
/// Marks the device that a program with default hints would get, and says of every other one whether it could
/// be used, or why not and what to do about it. FABRIC_PROVIDER has the effect it has on every program.
#[derive(Args)]
#[command(after_help = "\
Examples:
  fabric info                         what there is, and what it offers
  fabric info verbs:mlx5_0            only this device (`verbs`: this provider)
  fabric info --brief                 only the list of devices
  fabric info --env                   the environment variables
  fabric info --json | jq .chosen     for programs
  fabric info --peer 10.0.0.7:7000    which way a program would reach this peer, and why no other
  FABRIC_PROVIDER=^verbs fabric info  what applications get with this setting

Exit codes: 0 a device was chosen, 1 none is usable, 2 wrong usage or a bad environment variable.")]
struct InfoArgs {
    /// Show only this provider, or this device of it.
    #[arg(value_name = "PROVIDER[:DEVICE]", conflicts_with = "env")]
    only: Option<String>,
    /// List the devices and nothing more.
    #[arg(long, short, conflicts_with_all = ["json", "env"])]
    brief: bool,
    /// Write JSON.
    #[arg(long)]
    json: bool,
    /// Show which way a program with default hints would connect to this peer, and why no other. It may connect to the peer to
    /// find out, and leaves at once.
    #[arg(long, value_name = "ADDR", value_parser = peer::address, conflicts_with_all = ["only", "brief", "env"])]
    peer: Option<std::net::SocketAddr>,
    /// Show the environment variables that the library reads, with meaning, default and present value.
    #[arg(long)]
    env: bool,
}

fn main() -> ExitCode {
    // What the library warns of beside errors: variables of the environment that nothing reads, and ranks that are lost.
    let filter =
        env_logger::Env::default().default_filter_or("error,fabric::env=warn,fabric_exchange=warn");
    env_logger::Builder::from_env(filter).init();
    let code = run();
    // Lines of the last moment.
    fabric::flush_logs(Duration::from_millis(500));
    code
}

fn run() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Info(args) => info(&args),
        Command::Perf(args) => perf::run(&args).map(|()| (String::new(), None)),
        Command::Rendezvous(args) => rendezvous::run(&args).map(|()| (String::new(), None)),
    };
    let (text, problem) = match outcome {
        Ok((text, problem)) => (text, problem),
        Err(problem) => (String::new(), Some(problem)),
    };
    // Colour goes to terminals only, and not if NO_COLOR is set: anstream sees to it.
    if let Err(error) = anstream::stdout().write_all(text.as_bytes()) {
        // A reader that has seen enough, such as `head`, is no problem.
        if error.kind() != ErrorKind::BrokenPipe {
            eprintln!("error: {error}");
            return ExitCode::from(1);
        }
    }
    match problem {
        None => ExitCode::SUCCESS,
        Some(Failure { text, code }) => {
            anstream::eprintln!("{}error:{:#} {text}", report::ERROR, report::ERROR);
            ExitCode::from(code)
        }
    }
}

/// The text to show, and a problem to report below it.
fn info(args: &InfoArgs) -> Result<(String, Option<Failure>), Failure> {
    let width = terminal_size::terminal_size_of(std::io::stdout())
        .map_or(usize::MAX, |(width, _)| width.0.into());
    if let Some(peer) = args.peer {
        let route = peer::Route::find(peer)?;
        return Ok((if args.json { route.json() } else { route.report(width) }, None));
    }
    let survey = Survey::take();
    if args.env {
        let text = if args.json { json::variables() } else { variables::report(width) };
        return Ok((text, survey.err().map(Failure::from)));
    }
    let mut survey = survey?;
    let problem = survey.chosen.is_none().then(|| {
        let text =
            format!("no device is usable (FABRIC_PROVIDER is {:?})", survey.choice.to_string());
        Failure { text, code: 1 }
    });
    if let Some(only) = &args.only {
        survey.restrict(only).map_err(|text| Failure { text, code: 2 })?;
    }
    let text =
        if args.json { json::survey(&survey) } else { report::survey(&survey, args.brief, width) };
    Ok((text, problem))
}
