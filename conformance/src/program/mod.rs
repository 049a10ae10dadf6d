//! The program: arguments in, report out.

mod args;
mod bar;
mod files;
mod fuzz;
mod html;
mod junit;
mod list;
mod providers;
mod style;
mod table;
mod values;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anstream::adapter::strip_str;
use clap::Parser;
use fabric::Catalog;

use args::{Args, Command, Format};
use bar::Bar;
use files::{Output, put};

use crate::{LinkControl, Matrix, Options, Peer, Server, Verdict, Wanted};

/// The exit status of a usage error, and of a run that showed nothing.
const USAGE: u8 = 2;

/// The program `fabric-conformance` for the providers of a catalog, with all its arguments: the whole of a program that
/// tests a provider. The reference provider need not be in the catalog: it runs where `--provider mem` names it.
///
/// ```no_run
/// # use std::process::ExitCode;
/// # use fabric::{Catalog, provider::Provider};
/// # struct Yours;
/// # impl Yours { fn new() -> impl Provider { provider_mem::MemProvider::new() } }
/// fn main() -> ExitCode {
///     let catalog = Catalog::builtin().add(Yours::new());
///     conformance::main(catalog.expect("no other provider has the name"))
/// }
/// ```
///
/// Cases that need a second process start the running program again, with the arguments `--serve` and `--with-stdin`; so a
/// program calls this first, whatever its arguments are.
pub fn main(catalog: Catalog) -> ExitCode {
    let args = Args::parse();
    // Cases provoke errors on purpose, and providers log them: shown on request only.
    let environment = env_logger::Env::default().default_filter_or("off");
    env_logger::Builder::from_env(environment).init();
    let done = match args.command {
        Some(Command::Merge(args)) => merge(&args),
        Some(Command::Fuzz(args)) => fuzz::main(&catalog, &args),
        None if args.run.list => list(args.run),
        None if args.run.list_groups => list_groups(&args.run),
        None if args.run.serve.is_some() => serve(catalog, &args.run),
        None => run(&catalog, args.run),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(text) => {
            // A closed stderr changes nothing.
            let _ = writeln!(io::stderr(), "error: {text}");
            ExitCode::from(USAGE)
        }
    }
}

fn list(args: args::RunArgs) -> Result<u8, String> {
    let filters = [args.cases, args.filter].concat();
    let cases = crate::select(&filters, true).map_err(|error| error.to_string())?;
    let text = match args.format {
        Format::Table => list::table(&cases),
        Format::Json => list::json(&cases)?,
        Format::Junit => return Err("--list has the formats table and json".to_owned()),
    };
    put(args.out.as_deref(), &text)?;
    Ok(0)
}

fn list_groups(args: &args::RunArgs) -> Result<u8, String> {
    let text = match args.format {
        Format::Table => list::groups(),
        Format::Json => files::json(&list::group_sizes())?,
        Format::Junit => return Err("--list-groups has the formats table and json".to_owned()),
    };
    put(args.out.as_deref(), &text)?;
    Ok(0)
}

/// Serves until it fails, or is killed.
fn serve(catalog: Catalog, args: &args::RunArgs) -> Result<u8, String> {
    let Some(addr) = args.serve else { return Ok(USAGE) };
    let text = |error: io::Error| format!("cannot serve on {addr}: {error}");
    // A thousand endpoints of a client are as many descriptors here, and peers may have three quarters of all.
    crate::sys::max_descriptors().and_then(crate::sys::allow_descriptors).map_err(text)?;
    let server = Server::bind(addr, &Arc::new(catalog)).map_err(text)?;
    put(None, &format!("serving on {}\n", server.local_addr().map_err(text)?))?;
    if args.with_stdin {
        std::thread::spawn(|| {
            // Whatever comes is of no interest, only that it ends.
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            std::process::exit(0);
        });
    }
    server.run().map_err(text)?;
    Ok(0)
}

fn run(catalog: &Catalog, args: args::RunArgs) -> Result<u8, String> {
    let peer = args.peer.map(|addr| Peer::reach(addr).map(Arc::new)).transpose()?;
    let catalog = providers::prepared(catalog, args.adversary, &args.provider)?;
    let options = Options {
        wanted: if args.provider.iter().any(|name| name == "all") {
            Wanted::All
        } else {
            Wanted::Named(args.provider)
        },
        device: args.device,
        filters: [args.cases, args.filter].concat(),
        seed: args.seed.unwrap_or_else(values::seed_of_now),
        strict: args.strict,
        soak: args.soak,
        budget: args.budget,
        jobs: usize::from(args.jobs),
        factor: args.factor,
        peer,
        peer_device: args.peer_device,
        connect_timeout: args.connect_timeout,
        lossy: args.lossy,
        program: std::env::current_exe().ok(),
        link: args.cut_link.zip(args.mend_link).map(|(cut, mend)| {
            let impair = args.impair_link;
            LinkControl { cut, impair, mend }
        }),
        ..Options::default()
    };
    let (out, record) = (Output::create(args.out)?, Output::create(args.record)?);
    let mut bar = Bar::new(options.seed);
    let report = crate::run(&catalog, &options, &mut bar).map_err(|error| error.to_string())?;
    bar.finish();

    if let Some(record) = record {
        record.write(&files::json(&report)?)?;
    }
    let matrix =
        Matrix::merge(std::slice::from_ref(&report), &[]).map_err(|error| error.to_string())?;
    let text = match args.format {
        Format::Table => strip_str(&table::report(&matrix, args.all)).to_string(),
        Format::Json => files::json(&report)?,
        Format::Junit => junit::report(&matrix)?,
    };
    let prints_table = out.is_some() || args.format == Format::Table;
    match out {
        Some(file) => file.write(&text)?,
        None if !prints_table => put(None, &text)?,
        None => {}
    }
    let directory = match args.report.as_deref() {
        None if matrix.tested().count() > 1 => Some(Path::new(files::DIRECTORY)),
        given => given,
    };
    show(&matrix, prints_table, args.all, directory)
}

fn merge(args: &args::Merge) -> Result<u8, String> {
    let reports: Vec<_> =
        args.records.iter().map(|path| files::record(path)).collect::<Result<_, _>>()?;
    let matrix = Matrix::merge(&reports, &args.unavailable).map_err(|error| error.to_string())?;
    show(&matrix, true, args.all, Some(&args.out))
}

/// Prints the table, or only its last line where stdout has something for a machine; writes the report.
fn show(
    matrix: &Matrix,
    prints_table: bool,
    all: bool,
    directory: Option<&Path>,
) -> Result<u8, String> {
    let page = directory.map(|directory| files::put_report(directory, matrix)).transpose()?;
    if prints_table {
        put(None, &table::report(matrix, all))?;
    } else if io::stderr().is_terminal() {
        let _ = writeln!(anstream::stderr(), "{}", table::summary(matrix));
    }
    if let Some(page) = page {
        let _ = writeln!(io::stderr(), "report: {}", page.display());
    }
    if matrix.summary.verdict == Verdict::Nothing {
        let _ = writeln!(io::stderr(), "error: no case ran, so nothing is shown");
    }
    Ok(matrix.exit_code())
}
