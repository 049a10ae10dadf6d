//! The program: arguments in, report out.

mod args;
mod bar;
mod junit;
mod list;
mod style;
mod table;

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;
use conformance::{Options, Report, Wanted};
use fabric::Catalog;

use args::{Args, Format};
use bar::Bar;
use style::Style;

/// The exit status of a usage error, and of a run that showed nothing.
const USAGE: u8 = 2;

pub(crate) fn main() -> ExitCode {
    let args = Args::parse();
    // Cases provoke errors on purpose, and providers log them: shown on request only.
    let environment = env_logger::Env::default().default_filter_or("off");
    env_logger::Builder::from_env(environment).init();
    match if args.list { list(&args) } else { run(args) } {
        Ok(code) => ExitCode::from(code),
        Err(text) => {
            // Nobody is left to be told if stderr is closed.
            let _ = writeln!(io::stderr(), "error: {text}");
            ExitCode::from(USAGE)
        }
    }
}

fn list(args: &Args) -> Result<u8, String> {
    let cases = conformance::select(&args.filter, true).map_err(|error| error.to_string())?;
    let text = match args.format {
        Format::Table => list::table(&cases),
        Format::Json => list::json(&cases)?,
        Format::Junit => return Err("--list has the formats table and json".to_owned()),
    };
    put(args.out.as_deref(), &text)?;
    Ok(0)
}

fn run(args: Args) -> Result<u8, String> {
    let options = Options {
        wanted: match args.provider.as_str() {
            "all" => Wanted::All,
            name => Wanted::Named(name.to_owned()),
        },
        device: args.device,
        filters: args.filter,
        seed: args.seed.unwrap_or_else(seed_of_now),
        strict: args.strict,
        soak: args.soak,
        jobs: usize::from(args.jobs),
        ..Options::default()
    };
    // A file that cannot be written should not be noticed after the run only.
    let file = args.out.as_deref().map(|path| (path, File::create(path)));
    let file =
        file.map(|(path, file)| file.map_err(|error| format!("{}: {error}", path.display())));
    let file = file.transpose()?;
    let catalog = Arc::new(Catalog::builtin());
    let mut bar = Bar::new(options.seed);
    let report =
        conformance::run(&catalog, &options, &mut bar).map_err(|error| error.to_string())?;
    bar.finish();

    let plain = Style::plain();
    let text = match args.format {
        Format::Table => table::report(&report, &plain),
        Format::Json => json(&report)?,
        Format::Junit => junit::report(&report)?,
    };
    match file {
        Some(mut file) => {
            file.write_all(text.as_bytes()).map_err(|error| error.to_string())?;
            put(None, &table::report(&report, &Style::of(&io::stdout())))?;
        }
        None if args.format == Format::Table => {
            put(None, &table::report(&report, &Style::of(&io::stdout())))?;
        }
        None => {
            put(None, &text)?;
            // The report is for a machine; who watches gets the last line.
            if io::stderr().is_terminal() {
                let _ = writeln!(
                    io::stderr(),
                    "{}",
                    table::summary(&report, &Style::of(&io::stderr()))
                );
            }
        }
    }
    if !report.ran() {
        let _ = writeln!(io::stderr(), "error: no case ran, so nothing is shown");
    }
    Ok(report.exit_code())
}

fn json(report: &Report) -> Result<String, String> {
    let text = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
    Ok(text + "\n")
}

/// Writes to the file, or to stdout; a reader that went away (`| head`) is no error.
fn put(path: Option<&std::path::Path>, text: &str) -> Result<(), String> {
    let Some(path) = path else {
        return match io::stdout().lock().write_all(text.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
            _ => Ok(()),
        };
    };
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// A seed that differs from run to run, short enough to be typed again.
fn seed_of_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(since.subsec_nanos() ^ since.as_secs() as u32)
}
