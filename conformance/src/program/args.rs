//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Runs the fabric conformance suite: the rules that every provider keeps, each as a case.
///
/// By default every case runs on every provider that this machine has; FABRIC_PROVIDER restricts them as it does
/// for any application. A case whose needs a provider does not offer is reported as unsupported, with what is
/// missing.
#[derive(Debug, Parser)]
#[command(name = "fabric-conformance", version, max_term_width = 100, after_help = EXAMPLES)]
pub(super) struct Args {
    /// The provider to test: tcp, verbs, or all that this machine has.
    #[arg(long, value_name = "NAME", default_value = "all")]
    pub(super) provider: String,

    /// The device to test, such as lo or mlx5_0; by default the best of each provider.
    #[arg(long, value_name = "NAME")]
    pub(super) device: Option<String>,

    /// Run the cases that fit, such as 'send.*' or '*.*imm*'. May be repeated: a case that fits one of them runs.
    #[arg(long, value_name = "GLOB")]
    pub(super) filter: Vec<String>,

    /// Show the cases with what they need and what they show, and run none.
    #[arg(long)]
    pub(super) list: bool,

    /// The form of the report.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,

    /// Write the report to this file; the table is printed all the same.
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,

    /// The seed of everything random, to repeat a run; each report tells its own.
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,

    /// Count unsupported cases and unavailable providers as failures.
    #[arg(long)]
    pub(super) strict: bool,

    /// Run the long cases too, and the others with larger counts.
    #[arg(long)]
    pub(super) soak: bool,

    /// Run so many cases at a time; those that measure time run alone in any case.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) jobs: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    Table,
    /// For programs: providers, cases, summary.
    Json,
    /// For CI systems.
    Junit,
}

const EXAMPLES: &str = "\
Examples:
  fabric-conformance                                   every case on every provider here
  fabric-conformance --provider tcp                    every case over TCP
  fabric-conformance --filter 'rma.*' --filter '*imm*' some cases
  fabric-conformance --list --filter 'protection.*'    what these cases show
  fabric-conformance --format json --out report.json   a report for a program
  FABRIC_PROVIDER=tcp:eth0 fabric-conformance          on this device

Exit status: 0 all passed; 1 something failed; 2 usage error, or nothing ran.
RUST_LOG=fabric=debug shows what the library logs.";
