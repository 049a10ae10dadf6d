//! Plants bugs in a copy of this workspace and runs the conformance suite on each: does it notice?
//!
//! A suite shows something only if it can fail. Each [`Mutant`] is a small wrong change of the
//! providers or of what they share, of the kind that people make, with the cases that are there for it. All of them
//! are built into one program ([`plant`]), where an environment variable chooses which is enabled, so that the whole
//! costs one build. Then each is tried ([`trial`]): first its own cases, and if these see nothing, the whole suite.
//! One that lives shows that a case is missing.
//!
//! The sources of the product know nothing of this.

mod args;
mod functions;
mod guest;
mod link;
mod list;
mod mutant;
mod plant;
mod random;
mod table;
mod tests;
mod trial;
mod workspace;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use args::Args;
use mutant::{Mutant, Runs};
use trial::{Verdict, each, try_all};

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(text) => {
            let _ = writeln!(std::io::stderr(), "mutants: {text}");
            ExitCode::from(2)
        }
    }
}

/// Whether every mutant was killed.
type Outcome = Result<bool, String>;

fn run(args: &Args) -> Outcome {
    let mut chosen = list::choose(&args.names, &args.provider)?;
    // Those of another provider are about that.
    chosen.retain(|(_, mutant)| args.on.is_none() || mutant.runs == Runs::Tcp);
    if args.list {
        print!("{}", table::list(&chosen));
        return Ok(true);
    }
    let program = match &args.program {
        Some(program) => program.clone(),
        None => plant::build()?,
    };
    if args.lines {
        // Beside a device, for the one who asked from elsewhere.
        try_all(&program, &chosen, None, args.jobs, |verdict| {
            println!("{}", guest::line(&verdict))
        })?;
        return Ok(true);
    }
    if args.random {
        return try_random(&program, &chosen, args.jobs);
    }
    let count = chosen.len();
    let (verbs, tcp): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|m| m.1.runs == Runs::Verbs);
    let (links, tcp): (Vec<_>, Vec<_>) = tcp.into_iter().partition(|m| m.1.runs == Runs::TcpLink);
    let (shm, tcp): (Vec<_>, Vec<_>) = tcp.into_iter().partition(|m| m.1.runs == Runs::Shm);
    let (tests, tcp): (Vec<_>, Vec<_>) = tcp.into_iter().partition(|m| m.1.runs == Runs::Tests);
    let mut verdicts = Vec::new();
    let mut report = |verdict| show(verdict, &mut verdicts);
    let left = try_all(&program, &tcp, args.on.as_deref(), args.jobs, &mut report)?;
    if !left.is_empty() {
        print!("{}", table::not_tried(&left, "the provider lacks what their cases need"));
    }
    try_all(&program, &shm, None, args.jobs, &mut report)?;
    if links.is_empty() || link::can_be_made() {
        try_all(&program, &links, None, args.jobs, &mut report)?;
    } else {
        print!("{}", table::not_tried(&links, "no network namespaces here"));
    }
    tests::try_all(&tests, &mut report)?;
    guest::try_all(&program, &verbs, args.jobs, &mut report)?;
    println!("{}", table::summary(&verdicts, count));
    Ok(verdicts.iter().all(Verdict::is_killed))
}

/// Says whether random programs found all that they can find.
fn try_random(program: &Path, mutants: &[(usize, &'static Mutant)], jobs: usize) -> Outcome {
    if let Some(found) = random::found(program, 0)? {
        return Err(format!("with no mutant enabled this is found:\n{found}"));
    }
    let (left, tried): (Vec<_>, Vec<_>) =
        mutants.iter().partition(|m| random::out_of_reach(m.1).is_some());
    let mut verdicts = Vec::new();
    let attempt = |number, mutant| random::attempt(program, number, mutant);
    each(&tried, jobs, attempt, |verdict| show(verdict, &mut verdicts));
    for (_, mutant) in left {
        print!("{}", table::out_of_reach(mutant, random::out_of_reach(mutant).unwrap_or_default()));
    }
    println!("{}", table::summary(&verdicts, mutants.len()));
    Ok(verdicts.iter().all(Verdict::is_killed))
}

/// Prints a verdict as soon as it is known, and keeps it.
fn show(verdict: Verdict, verdicts: &mut Vec<Verdict>) {
    print!("{}", table::row(&verdict));
    let _ = std::io::stdout().flush();
    verdicts.push(verdict);
}
