//! The program `fabric-bench`: fabric beside plain sockets, libfabric, UCX and perftest, against its targets.
//!
//! `targets` says what is measured, `rounds` measures it with the programs of `run`, `curves` measures over sizes and
//! connections; `html` writes the report, with the plots of `plots`. `make bench` runs it.

mod curves;
mod html;
mod machine;
mod micro;
mod outcome;
mod plots;
mod rounds;
mod run;
mod stats;
mod targets;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use machine::Machine;
use outcome::Outcome;
use rounds::DEBUG_BUILD;
use run::{Case, Figure, Program, Setup};

/// Measure fabric beside plain sockets, plain shared memory, libfabric, UCX and perftest, and report.
///
/// Missing programs are left out: Debian's packages libfabric-bin (fi_pingpong), ucx-utils (ucx_perftest) and perftest
/// have them.
#[derive(Parser)]
#[command(name = "fabric-bench", version)]
#[command(after_help = "\
Exit codes: 0 measured, whatever came out; 1 something could not be measured; 2 wrong usage.")]
struct Args {
    /// About two minutes instead of ten: three rounds, short runs, no peers.
    #[arg(long)]
    quick: bool,
    /// Verbs beside perftest and fi_pingpong, on the RDMA device of this machine, instead of TCP beside plain sockets.
    #[arg(long)]
    verbs: bool,
    /// Shared memory beside plain shared memory, TCP, fi_pingpong and UCX.
    #[arg(long, conflicts_with = "verbs")]
    shm: bool,
    /// Tagged messages of reliable datagram endpoints beside UCX, libfabric's rxm and connected endpoints, over TCP.
    #[arg(long, conflicts_with_all = ["verbs", "shm"])]
    rdm: bool,
    /// Only lines whose title contains this; no plots.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Interleaved rounds [default: 5, with --quick 3; with --verbs 11, with --quick 3].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Runs for each latency in a round; the best counts [default: 1; with --verbs 3, with --quick 1].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    tries: Option<u16>,
    /// The program `fabric` to measure [default: beside this one].
    #[arg(long, value_name = "FILE")]
    fabric: Option<PathBuf>,
    /// The benchmark `paths`: what the safe handles cost is reported beside the rest.
    #[arg(long, value_name = "FILE")]
    paths: Option<PathBuf>,
    /// Where to write report.html and report.json.
    #[arg(long, value_name = "FOLDER", default_value = "target/bench")]
    out: PathBuf,
}

fn main() -> ExitCode {
    match bench(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(args: &Args) -> Outcome {
    let begin = Instant::now();
    let machine = Machine::look();
    let setup = setup(args)?;
    let usual = match (args.verbs, args.quick) {
        (_, true) => 3,
        (true, false) => 11,
        (false, false) => 5,
    };
    let rounds = args.rounds.map_or(usual, usize::from);
    // What is measured, and the name of the files with it.
    let (over, name, mut groups) = match () {
        () if args.verbs => ("Verbs", "verbs", targets::verbs(args.quick)),
        () if args.shm => ("Shared memory", "shm", targets::shm(args.quick)),
        () if args.rdm => ("Reliable datagram endpoints", "rdm", targets::rdm(args.quick)),
        () => ("TCP", "report", targets::tcp(args.quick)),
    };
    if let Some(only) = &args.only {
        for group in &mut groups {
            group.lines.retain(|line| line.title.contains(only.as_str()));
        }
        groups.retain(|group| !group.lines.is_empty());
        if groups.is_empty() {
            return Err(format!("--only {only}: no line's title contains this").into());
        }
    }
    let bar = progress(&groups, rounds);
    verify(&setup, &bar)?;
    let mut lines = Vec::new();
    for group in &groups {
        lines.extend(rounds::measure(&setup, rounds, group, &bar)?);
    }
    let plots = args.only.is_none() && !(args.verbs || args.shm || args.rdm);
    let charts = match plots {
        true => curves::charts(&setup, if args.quick { 1 } else { 3 }, args.quick, &bar)?,
        false => Vec::new(),
    };
    bar.finish_and_clear();
    let micro = args.paths.as_deref().map(micro::run).transpose()?.unwrap_or_default();
    let best = match setup.tries {
        1 => String::new(),
        tries => format!(", each latency the best of {tries} runs"),
    };
    let title = format!(
        "{over} over {}, two processes on one machine, {rounds} interleaved round{}{best}, {}; data verified in a run of its own",
        setup.address,
        if rounds == 1 { "" } else { "s" },
        minutes(begin.elapsed())
    );
    std::fs::create_dir_all(&args.out)?;
    let html = args.out.join(format!("{name}.html"));
    let plots = html::plots(&lines, &charts)?;
    let debug_build = rounds::debug_build(&lines);
    std::fs::write(&html, html::report(&machine, &title, debug_build, &lines, &plots, &micro))?;
    for plot in &plots {
        std::fs::write(args.out.join(plot.file()), &plot.svg)?;
    }
    let all = serde_json::json!({
        "title": title,
        "debug_build": debug_build,
        "machine": machine,
        "lines": lines.iter().map(rounds::Measured::json).collect::<Vec<_>>(),
        "charts": charts,
        "micro": micro,
    });
    std::fs::write(args.out.join(format!("{name}.json")), serde_json::to_vec_pretty(&all)?)?;
    print(&title, &machine, &lines, &micro, &html)?;
    // Last, where it is seen.
    if debug_build {
        eprintln!("{DEBUG_BUILD}");
    }
    Ok(())
}

fn minutes(time: Duration) -> String {
    match (time.as_secs_f64() / 60.0).round() {
        0.0 => "less than a minute".to_owned(),
        1.0 => "1 minute".to_owned(),
        minutes => format!("{minutes} minutes"),
    }
}

/// The table, in Markdown: it reads well on a terminal and in documents.
fn print(
    title: &str,
    machine: &Machine,
    lines: &[rounds::Measured],
    micro: &[String],
    html: &Path,
) -> Outcome {
    let mut rows: Vec<[String; 8]> = vec![html::HEADS.map(str::to_owned)];
    rows.extend(lines.iter().map(rounds::Measured::row));
    rows.extend(micro::rows(micro));
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut text = format!("{title}\n\n");
    for (name, value) in machine.rows() {
        text += &format!("- {name}: {value}\n");
    }
    text.push('\n');
    for (number, row) in rows.iter().enumerate() {
        let cells =
            row.iter().enumerate().map(|(column, cell)| format!("{cell:<0$}", width(column)));
        text += &format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
        if number == 0 {
            text += &format!("|{}|\n", ["---"; 8].join("|"));
        }
    }
    micro.iter().for_each(|line| text += &format!("{line}\n"));
    text += &format!("\nReport: {}\n", html.display());
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// The whole is to take less than a quarter of an hour.
const HURRY: Duration = Duration::from_secs(600);

fn setup(args: &Args) -> Outcome<Setup> {
    let beside = std::env::current_exe()?.with_file_name("fabric");
    let fabric = args.fabric.clone().unwrap_or(beside);
    if !fabric.is_file() {
        let text = "there is no program fabric: cargo build --release -p anyfabric-tools";
        return Err(format!("{}: {text}", fabric.display()).into());
    }
    let seconds = if args.quick { 0.2 } else { 0.4 };
    let hurry = Instant::now() + HURRY;
    // In an emulated guest a process is fast or slow for all its life, whichever program it is.
    let tries = args.tries.unwrap_or(if args.verbs && !args.quick { 3 } else { 1 });
    if !args.verbs {
        let address = "127.0.0.1".to_owned();
        let (provider, ucx_tls) = if args.shm { ("shm", "posix,self") } else { ("tcp", "tcp") };
        let (provider, device) = (provider.to_owned(), "lo".to_owned());
        let patience = Duration::from_secs(25);
        return Ok(Setup {
            fabric,
            provider,
            seconds,
            tries,
            address,
            ucx_tls,
            device,
            patience,
            hurry,
        });
    }
    let output = Command::new(&fabric)
        .args(["info", "--json"])
        .env("FABRIC_PROVIDER", std::env::var("FABRIC_PROVIDER").unwrap_or("verbs".into()))
        .output()?;
    let info: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let device =
        info["chosen"]["device"].as_str().filter(|_| info["chosen"]["provider"] == "verbs").ok_or(
            "no RDMA device is usable; `fabric info` says why. In a guest: scripts/bench --verbs",
        )?;
    let is_it =
        |entry: &&serde_json::Value| entry["provider"] == "verbs" && entry["device"] == device;
    let devices = info["devices"].as_array().cloned().unwrap_or_default();
    let addresses = devices.iter().find(is_it).map(|entry| entry["offers"]["addresses"].clone());
    let address = addresses
        .and_then(|list| {
            let ips = list.as_array()?.iter().filter_map(|ip| ip.as_str());
            ips.map(str::to_owned).find(|ip| ip.contains('.'))
        })
        .ok_or_else(|| format!("{device} has no IPv4 address"))?;
    let provider = format!("verbs:{device}");
    let (device, patience) = (device.to_owned(), Duration::from_secs(180));
    let ucx_tls = "tcp";
    Ok(Setup { fabric, provider, seconds, tries, address, ucx_tls, device, patience, hurry })
}

/// Before the figures, that the data arrives: every operation, every byte, in a run of its own.
fn verify(setup: &Setup, bar: &ProgressBar) -> Outcome {
    // In a guest a MiB takes long.
    let large = if setup.provider.starts_with("verbs") { "64,64K" } else { "64,64K,1M" };
    for (op, sizes) in [
        ("send", large),
        ("write", large),
        ("write-imm", "64,64K"),
        ("read", large),
        ("fetch-add", "8"),
        ("compare-swap", "8"),
    ] {
        for mode in ["latency", "bandwidth"] {
            let depth = if mode == "latency" { "" } else { "--depth 16" };
            let shape = format!("--op {op} --mode {mode} --size {sizes} {depth}");
            bar.set_message(format!("verifying {op}"));
            let args = format!("{shape} --verify --iterations 32 --warmup 0");
            Case::new(Program::Fabric, Figure::Us, &args).perf(setup)?;
        }
    }
    Ok(())
}

fn progress(groups: &[targets::Group], rounds: usize) -> ProgressBar {
    let runs = |group: &targets::Group| {
        let lines = group.lines.iter().map(|line| 1 + line.peers.len()).sum::<usize>();
        lines + usize::from(group.base.is_some())
    };
    let bar = ProgressBar::new((groups.iter().map(runs).sum::<usize>() * rounds + 24) as u64);
    if let Ok(style) = ProgressStyle::with_template("[{bar:24}] {elapsed} {wide_msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}
