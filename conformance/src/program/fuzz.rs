//! `fabric-conformance fuzz`: random programs, and what the contract says of them.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fabric::Catalog;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::values::{factor, minutes, seed_of_now};
use super::{files, providers};
use crate::Target;
use crate::random::rdm::RdmProgram;
use crate::random::{Agreed, Fuzz, Program, Subject};

/// How often a program is run that is run again: what it shows may be a matter of luck.
const AGAIN: usize = 20;

#[derive(Debug, clap::Args)]
pub(super) struct FuzzArgs {
    /// The provider to test: auto, tcp, verbs, shm or mem; by default all that this machine has, but for mem.
    #[arg(long, value_name = "NAME", default_value = "all")]
    provider: Vec<String>,

    /// The device to test, such as lo or mlx5_0; by default the best of each provider.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// The seed that programs are made from; each report has it.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// So many programs on each provider; by default 1000, or as many as the time allows.
    #[arg(long, value_name = "N")]
    programs: Option<u64>,

    /// For so long on each provider.
    #[arg(long, value_name = "N", value_parser = minutes)]
    minutes: Option<Duration>,

    /// So many programs at a time.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,

    /// With providers that have the setting, as TCP has, at their worst, seeded with N: they cut, delay and reorder all that
    /// the contract lets them.
    #[arg(long, value_name = "N")]
    adversary: Option<u64>,

    /// Through the asynchronous layer: its futures and buffers in place of posts and completions.
    #[arg(long)]
    layer: bool,

    /// Programs of reliable datagram endpoints in place of connected ones.
    #[arg(long, conflicts_with = "layer")]
    rdm: bool,

    /// For how long a program that disagrees is made smaller.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    shrink: u64,

    /// Stretch deadlines by this, instead of by what a look at this machine's speed gives.
    #[arg(long, value_name = "N", value_parser = factor)]
    factor: Option<f64>,

    /// Run one program again, some twenty times: a file that an earlier run wrote, or SEED:NUMBER.
    #[arg(long, value_name = "FILE|SEED:NUMBER", conflicts_with_all = ["seed", "programs", "minutes"])]
    replay: Option<String>,

    /// Print the program to replay, and run nothing.
    #[arg(long, requires = "replay")]
    show: bool,

    /// Where a program goes that the contract and a provider disagree about.
    #[arg(long, value_name = "DIR", default_value = "target/conformance/programs")]
    out: PathBuf,
}

pub(super) fn main(catalog: &Catalog, args: &FuzzArgs) -> Result<u8, String> {
    if args.rdm { run_all::<RdmProgram>(catalog, args) } else { run_all::<Program>(catalog, args) }
}

fn run_all<P: Subject>(catalog: &Catalog, args: &FuzzArgs) -> Result<u8, String> {
    let again = args.replay.as_deref().map(program::<P>).transpose()?;
    if let (Some(program), true) = (&again, args.show) {
        files::put(None, &program.to_string())?;
        return Ok(0);
    }
    let targets = targets(catalog, args)?;
    let mut fuzz = Fuzz::default();
    (fuzz.factor, fuzz.layered) = (args.factor, args.layer);
    let mut code = 0;
    for target in &targets {
        code |= match &again {
            Some(program) => run_again(target, program, &fuzz)?,
            None => run::<P>(target, args, fuzz.clone())?,
        };
    }
    Ok(code)
}

fn targets(catalog: &Catalog, args: &FuzzArgs) -> Result<Vec<Target>, String> {
    let catalog = providers::prepared(catalog, args.adversary, &args.provider)?;
    let find = |name: &str| Target::find(&catalog, name, args.device.as_deref());
    if !args.provider.iter().any(|name| name == "all") {
        let found = args.provider.iter().map(|name| find(name).map_err(|e| format!("{name}: {e}")));
        return found.collect();
    }
    let found: Vec<_> = catalog.names().into_iter().filter_map(|name| find(name).ok()).collect();
    if found.is_empty() { Err("no provider is usable here".to_owned()) } else { Ok(found) }
}

/// A program from a file, or drawn anew.
fn program<P: Subject>(text: &str) -> Result<P, String> {
    if let Some((seed, number)) = text.split_once(':')
        && let (Ok(seed), Ok(number)) = (seed.parse(), number.parse())
    {
        return Ok(P::generate(seed, number));
    }
    let json = fs::read_to_string(text).map_err(|error| format!("{text}: {error}"))?;
    serde_json::from_str(&json).map_err(|error| format!("{text}: this is no program: {error}"))
}

fn run_again<P: Subject>(target: &Target, program: &P, fuzz: &Fuzz) -> Result<u8, String> {
    match fuzz.replay(target, program, AGAIN) {
        Ok(()) => {
            files::put(None, &format!("fuzz: {target}: the program agrees with the contract\n"))?;
            Ok(0)
        }
        Err(disagreement) => {
            files::put(
                None,
                &format!("{program}\n{disagreement}\nfuzz: {target}: DISAGREEMENT\n"),
            )?;
            Ok(1)
        }
    }
}

fn run<P: Subject>(target: &Target, args: &FuzzArgs, mut fuzz: Fuzz) -> Result<u8, String> {
    fuzz.seed = args.seed.unwrap_or_else(seed_of_now);
    fuzz.programs = args.programs.unwrap_or(if args.minutes.is_some() { u64::MAX } else { 1000 });
    fuzz.time = args.minutes;
    fuzz.jobs = usize::from(args.jobs);
    fuzz.shrink = Duration::from_secs(args.shrink);

    // Hidden unless stderr is a terminal.
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if fuzz.programs < u64::MAX {
        bar.set_length(fuzz.programs);
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} programs {elapsed} {msg}")
    {
        bar.set_style(style);
    }
    bar.set_message(format!("{target}, seed {}", fuzz.seed));
    let start = Instant::now();
    let outcome = fuzz.run::<P>(target, |agreed| bar.set_position(agreed));
    bar.finish_and_clear();

    let (seed, seconds) = (fuzz.seed, start.elapsed().as_secs_f64());
    match outcome {
        Ok(agreed) => {
            let Agreed { programs, repeated, .. } = agreed;
            for (number, seen) in &repeated {
                files::put(
                    None,
                    &format!("program {number}, while the machine was too slow for it:\n{seen}\n"),
                )?;
            }
            let line =
                format!("fuzz: {target}: {programs} programs agree, seed {seed}, {seconds:.1} s");
            let slow = match repeated.len() {
                0 => String::new(),
                n => format!(
                    "; {n} of them disagreed while the machine was too slow, and not when they ran again"
                ),
            };
            files::put(None, &format!("{line}{slow}\n"))?;
            if programs == 0 {
                Err("no program ran, so nothing is shown".to_owned())
            } else {
                Ok(0)
            }
        }
        Err(found) => {
            let kind = if args.rdm { "rdm-" } else { "" };
            let name = format!("{kind}{}-{seed}-{}.json", target.info().provider, found.number);
            let saved = save(&args.out, &name, &found.program);
            files::put(None, &format!("{found}\n"))?;
            let number = found.number;
            let _ = match saved {
                Ok(path) => writeln!(io::stdout(), "saved as {}", path.display()),
                Err(error) => writeln!(io::stderr(), "error: not saved: {error}"),
            };
            files::put(
                None,
                &format!("fuzz: {target}: DISAGREEMENT, seed {seed}, program {number}\n"),
            )?;
            Ok(1)
        }
    }
}

fn save<P: Subject>(directory: &Path, name: &str, program: &P) -> Result<PathBuf, String> {
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let path = directory.join(name);
    files::put(Some(&path), &files::json(program)?)?;
    Ok(path)
}
