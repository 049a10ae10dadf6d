//! What every target has beside its fuzzer: the seeds that it starts from, and how much of the code its corpus reaches.
//!
//! A target's program fuzzes, or it does what one of these says and ends:
//!
//! - `FUZZ_SEEDS=FOLDER` writes the seeds there;
//! - `FUZZ_REACHED=FOLDER` runs each input there once, and prints for each source file that the target is about, and then
//!   for all of them, how many lines were reached, and how many there are.
//!
//! What counts is the lines where control flow goes apart or together: those of the compiler's counters (SanitizerCoverage).
//! So one that is compiled many times, inlined or for several types, counts once; and what the linker found no way to does
//! not count.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

pub use libfuzzer_sys;

/// A target: its name, what it does with bytes, its seeds, and the source files that it is about, or folders of them.
#[macro_export]
macro_rules! target {
    ($run:path, $seeds:expr, $sources:expr) => {
        libfuzzer_sys::fuzz_target!(
            init: $crate::prepare($run, $seeds, &$sources),
            |bytes: &[u8]| $run(bytes)
        );
    };
}

/// Does what the environment says instead of fuzzing, if it does.
pub fn prepare(run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>, sources: &[&str]) {
    let folder = |name| std::env::var_os(name).map(PathBuf::from);
    let done = match (folder("FUZZ_SEEDS"), folder("FUZZ_REACHED")) {
        (Some(folder), _) => write(&folder, &seeds()),
        (None, Some(folder)) => inputs(&folder).map(|inputs| report(run, &inputs, sources)),
        (None, None) => return,
    };
    if let Err(error) = done {
        eprintln!("{error}");
        std::process::exit(1);
    }
    std::process::exit(0);
}

fn write(folder: &Path, seeds: &[Vec<u8>]) -> std::io::Result<()> {
    for (number, seed) in seeds.iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{number}")), seed)?;
    }
    Ok(())
}

fn inputs(folder: &Path) -> std::io::Result<Vec<Vec<u8>>> {
    std::fs::read_dir(folder)?.map(|entry| std::fs::read(entry?.path())).collect()
}

/// Runs all inputs, and prints what they reached.
fn report(run: fn(&[u8]), inputs: &[Vec<u8>], sources: &[&str]) {
    let edges = edges();
    let mut is_reached = vec![false; edges.len()];
    for input in inputs {
        run(input);
        for (edge, is_reached) in edges.iter().zip(&mut is_reached) {
            // A counter of eight bits may be back at zero after the next input.
            // SAFETY: it is there as long as the program.
            *is_reached |= unsafe { edge.counter.replace(0) } != 0;
        }
    }
    let mut lines = HashMap::new();
    for (edge, is_reached) in edges.iter().zip(is_reached) {
        if let Some(line) = line_of(edge.pc) {
            *lines.entry(line).or_insert(false) |= is_reached;
        }
    }
    let mut files = BTreeMap::<PathBuf, (usize, usize)>::new();
    for ((file, _), is_reached) in lines {
        // What is there for fuzzers and tests alone does not count.
        let is_theirs = file.ends_with("fuzzing.rs") || file.ends_with("testing.rs");
        if !is_theirs && sources.iter().any(|source| file.starts_with(source)) {
            let (reached, all) = files.entry(file).or_default();
            (*reached, *all) = (*reached + usize::from(is_reached), *all + 1);
        }
    }
    let missing = |source: &&&str| !files.keys().any(|file| file.starts_with(source));
    if let Some(source) = sources.iter().find(missing) {
        eprintln!("no line is of {source}");
        std::process::exit(1);
    }
    for (file, (reached, all)) in &files {
        println!("reached: {reached:5} of {all:5}  {}", file.display());
    }
    let sum = |of: fn(&(usize, usize)) -> usize| files.values().map(of).sum::<usize>();
    println!("reached: {} {}", sum(|count| count.0), sum(|count| count.1));
}

struct Edge {
    counter: *mut u8,
    pc: usize,
}

/// The counters of the program, and where each of them is counted.
fn edges() -> Vec<Edge> {
    unsafe extern "C" {
        #[link_name = "__start___sancov_cntrs"]
        static mut COUNTERS: u8;
        #[link_name = "__stop___sancov_cntrs"]
        static COUNTERS_END: u8;
        #[link_name = "__start___sancov_pcs"]
        static PLACES: [usize; 2];
    }
    let (counters, end) = (&raw mut COUNTERS, &raw const COUNTERS_END);
    let places = &raw const PLACES;
    let edge = |at: usize| Edge {
        counter: counters.wrapping_add(at),
        // SAFETY: there are as many places, an address and flags, as counters.
        pc: unsafe { (*places.wrapping_add(at))[0] },
    };
    (0..end as usize - counters as usize).map(edge).collect()
}

/// The line of this repository that an instruction is of; of one that was inlined, where that was written.
fn line_of(pc: usize) -> Option<(PathBuf, u32)> {
    static ROOT: LazyLock<Option<PathBuf>> =
        LazyLock::new(|| Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(PathBuf::from));
    let root = ROOT.as_ref()?;
    let mut found = None;
    // It looks up the instruction before the address, as if that were one that a call returns to.
    backtrace::resolve((pc + 1) as *mut _, |symbol| {
        if found.is_none() {
            let file = symbol.filename().and_then(|file| within(root, file));
            found = file.zip(symbol.lineno());
        }
    });
    found
}

/// The path of a source file in the repository, which the compiler may have by way of another folder.
fn within(root: &Path, file: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in file.components() {
        match part {
            std::path::Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain.strip_prefix(root).ok().map(PathBuf::from)
}
