//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// Plants bugs in a copy of this workspace and shows which cases of the conformance suite find each.
///
/// Those of the verbs provider need an RDMA device: this host's, else a guest with a software one (scripts/softroce).
/// The last line is `mutants: N killed, M survived`.
#[derive(Debug, Parser)]
#[command(
    name = "mutants",
    max_term_width = 100,
    after_help = "Exit status: 0 all killed; 1 one survived; 2 error."
)]
pub(crate) struct Args {
    /// The mutants to try; all if none is named.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// Only those that are tried on this provider.
    #[arg(long, value_parser = ["tcp", "shm", "verbs"])]
    pub(crate) provider: Option<String>,

    /// Try those of TCP on this provider instead: for those of what is built above providers.
    #[arg(long, value_name = "PROVIDER", value_parser = ["mem", "shm"], conflicts_with_all = ["random", "lines"])]
    pub(crate) on: Option<String>,

    /// Show them, and try none.
    #[arg(long)]
    pub(crate) list: bool,

    /// Try random programs on them instead of cases: those of TCP without a program of their own, but which some
    /// hundred programs find.
    #[arg(long, conflicts_with_all = ["list", "lines"])]
    pub(crate) random: bool,

    /// Try so many at a time.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) jobs: usize,

    /// The program with all mutants asleep in it, instead of building it.
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,

    /// Print the outcomes for a program: one line of JSON each.
    #[arg(long, hide = true)]
    pub(crate) lines: bool,
}
