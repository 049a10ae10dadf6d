//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use super::values::{address, factor, minutes, name_and_reason, seconds};

/// Runs the fabric conformance suite: the rules that every provider keeps, each as a case.
///
/// By default every case runs on every provider that this machine has; FABRIC_PROVIDER restricts them as it does
/// for any application. A case whose needs a provider does not offer is reported as unsupported, with what is
/// missing. Where several providers ran, what the cases saw of each is compared as well.
#[derive(Debug, Parser)]
#[command(
    name = "fabric-conformance",
    version,
    max_term_width = 100,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true
)]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) command: Option<Command>,

    #[command(flatten)]
    pub(super) run: RunArgs,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Put the records of several runs side by side.
    ///
    /// The exit status is that of one run of all their providers: 1 too if transcripts differ that should not, or
    /// if a case ran on one provider only.
    Merge(Merge),
    /// Run random programs beside a model of the contract, and show where a provider does what it does not allow.
    ///
    /// A program that disagrees is made as small as possible, printed and saved; then the exit status is 1.
    Fuzz(super::fuzz::FuzzArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// Run the cases that fit, such as 'send.*' or '*.*imm*'; of several patterns, those that fit one.
    #[arg(value_name = "GLOB")]
    pub(super) cases: Vec<String>,

    /// The provider to test: auto, tcp, verbs, shm, or all that this machine has; or mem, the reference provider in memory, which
    /// `all` leaves out. May be repeated.
    #[arg(long, value_name = "NAME", default_value = "all")]
    pub(super) provider: Vec<String>,

    /// The device to test, such as lo or mlx5_0; by default the best of each provider.
    #[arg(long, value_name = "NAME")]
    pub(super) device: Option<String>,

    /// The same as a GLOB without the option. May be repeated.
    #[arg(long, value_name = "GLOB")]
    pub(super) filter: Vec<String>,

    /// Show the cases with what they need and what they show, and run none.
    #[arg(long)]
    pub(super) list: bool,

    /// Show the groups of cases, and run none.
    #[arg(long, conflicts_with_all = ["cases", "filter", "list"])]
    pub(super) list_groups: bool,

    /// The form of the result.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,

    /// Write the result to this file; the table is printed all the same.
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,

    /// Write the record of the run to this file, whatever its outcome: what `merge` reads.
    #[arg(long, value_name = "FILE")]
    pub(super) record: Option<PathBuf>,

    /// Write report.html, report.json and report.xml (JUnit) to this directory. A run of several providers does so
    /// without being asked, to target/conformance.
    #[arg(long, value_name = "DIR")]
    pub(super) report: Option<PathBuf>,

    /// Print every case, not only those to look at.
    #[arg(long)]
    pub(super) all: bool,

    /// The seed of everything random, to repeat a run; each report has it.
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,

    /// Providers that have the setting `adversary`, as TCP has, do all that the contract permits and that is rare by itself, as
    /// this seed says: cuts, delays, odd orders. The cases must pass all the same.
    #[arg(long, value_name = "SEED")]
    pub(super) adversary: Option<u64>,

    /// Count unsupported cases and unavailable providers as failures.
    #[arg(long)]
    pub(super) strict: bool,

    /// Run the long cases too, and the others with larger counts.
    #[arg(long)]
    pub(super) soak: bool,

    /// Begin no case later than this; those left are reported as unsupported. For runs with --soak, which take hours.
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    pub(super) budget: Option<Duration>,

    /// Lend the devices of this host to a run on another one, and run none here.
    ///
    /// It prints `serving on ADDR` and serves until it is killed; port 0 chooses a free port. Any host that reaches it can
    /// have memory allocated and connections made by it, unless FABRIC_SECRET_FILE names a secret, which runs then have to
    /// prove; nothing is encrypted: it is for networks that you trust.
    #[arg(long, value_name = "ADDR", value_parser = address, conflicts_with_all = ["cases", "list", "list_groups", "peer"])]
    pub(super) serve: Option<SocketAddr>,

    /// End when stdin is closed: with the process that started the server.
    #[arg(long, requires = "serve")]
    pub(super) with_stdin: bool,

    /// Run with the peer's end on another host: the address of the server there (`--serve`). The fabric's own
    /// connections go by the devices that have the two hosts' addresses on this way, if there are such.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(super) peer: Option<SocketAddr>,

    /// The device of the other host, such as lo; or one of another provider, to run this one beside it, such as tcp:lo.
    #[arg(long, value_name = "NAME", requires = "peer")]
    pub(super) peer_device: Option<String>,

    /// A command for `sh` that cuts the link between the two devices, silently, but not the way to the server. Cases that
    /// need it run with it only.
    #[arg(long, value_name = "COMMAND", requires_all = ["peer", "mend_link"])]
    pub(super) cut_link: Option<String>,

    /// A command that makes the link lose packets.
    #[arg(long, value_name = "COMMAND", requires = "cut_link")]
    pub(super) impair_link: Option<String>,

    /// A command that makes the link as it was.
    #[arg(long, value_name = "COMMAND", requires = "cut_link")]
    pub(super) mend_link: Option<String>,

    /// The link loses packets all the time. An operation that is refused may then be `PeerLost` or `Canceled`: its
    /// refusal may have been lost. What moves much moves an eighth of it.
    #[arg(long, requires = "peer")]
    pub(super) lossy: bool,

    /// How long connecting may take. By default 5 s, more on slow machines; a link that loses packets needs 30.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) connect_timeout: Option<Duration>,

    /// Stretch every deadline so many times, at least 1; by default it is measured.
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    pub(super) factor: Option<f64>,

    /// Run so many cases at a time; those that measure time run alone in any case.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) jobs: u16,
}

#[derive(Debug, clap::Args)]
pub(super) struct Merge {
    /// Records that `--record` wrote, of runs with the same seed and cases, one of each provider.
    #[arg(value_name = "RECORD", required = true)]
    pub(super) records: Vec<PathBuf>,

    /// A provider that could not run, and why: 'verbs: no RDMA device'. May be repeated.
    #[arg(long, value_name = "NAME: REASON", value_parser = name_and_reason)]
    pub(super) unavailable: Vec<(String, String)>,

    /// Where report.html, report.json and report.xml (JUnit) go.
    #[arg(long, value_name = "DIR", default_value = super::files::DIRECTORY)]
    pub(super) out: PathBuf,

    /// Print every case, not only those to look at.
    #[arg(long)]
    pub(super) all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    Table,
    /// For programs: the record of the run.
    Json,
    /// For CI systems.
    Junit,
}

const EXAMPLES: &str = "\
Examples:
  fabric-conformance                                   every case on every provider here
  fabric-conformance --provider tcp                    every case over TCP
  fabric-conformance 'rma.*' '*imm*'                   some cases
  fabric-conformance --list 'protection.*'             what these cases show
  fabric-conformance --provider tcp --report out       with out/report.html
  fabric-conformance --provider tcp --adversary 7      over TCP at its worst
  fabric-conformance --provider tcp --seed 1 --record tcp.json
  fabric-conformance merge tcp.json verbs.json         two runs side by side
  fabric-conformance --serve 10.0.0.2:7471             on one host, and on another:
  fabric-conformance --peer 10.0.0.2:7471              every case between the two
  fabric-conformance fuzz --provider tcp --minutes 5   random programs
  FABRIC_PROVIDER=tcp:eth0 fabric-conformance          on this device

Exit status: 0 all passed; 1 something failed; 2 usage error, or nothing ran.
RUST_LOG=fabric=debug,provider_tcp=debug,provider_verbs=debug shows what the library logs.";
