//! One program with every mutant in it, all of them asleep.
//!
//! The workspace's files are copied, and at each place of an [`Edit`] the right text and the wrong one are put side by
//! side, with a question between them: `if fabric_core::mutant::on(7) { wrong } else { right }`. `FABRIC_MUTANT=7`
//! says yes. So all of them cost one build, and a mutant cannot outlive a change of what it is about: each place must
//! be found exactly once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::functions::Functions;
use crate::list;
use crate::mutant::Edit;
use crate::workspace::workspace;

/// Which mutant is enabled; none if it is not set.
pub(crate) const VARIABLE: &str = "FABRIC_MUTANT";

/// What the copy of `fabric-core` gets: the question, and the name by which every crate asks it.
const QUESTION: &str = r#"
extern crate self as fabric_core;

#[allow(missing_docs)]
pub mod mutant {
    pub fn on(number: u32) -> bool {
        static AWAKE: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| {
            std::env::var("FABRIC_MUTANT").map_or(0, |text| text.parse().expect("a number"))
        });
        *AWAKE == number
    }
}
"#;
const CORE: &str = "fabric-core/src/lib.rs";

/// Builds the program; gives its path.
pub(crate) fn build() -> Result<PathBuf, String> {
    let copy = copy()?;
    eprintln!("mutants: building {} into one program", list::all().count());
    let status = cargo(&copy)?
        .args(["build", "--quiet", "-p", "anyfabric-conformance", "--bin", "fabric-conformance"])
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err(format!("the mutated workspace in {} does not build", copy.display()));
    }
    Ok(folder()?.join("build/debug/fabric-conformance"))
}

/// Where copy and program are.
fn folder() -> Result<PathBuf, String> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or(workspace().join("target"), PathBuf::from);
    std::path::absolute(target.join("mutants")).map_err(|error| error.to_string())
}

/// Writes the copy of the workspace; gives its path.
pub(crate) fn copy() -> Result<PathBuf, String> {
    let copy = folder()?.join("workspace");
    write_copy(&copy)?;
    Ok(copy)
}

/// Cargo, to be called in the copy.
pub(crate) fn cargo(copy: &Path) -> Result<Command, String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command
        .current_dir(copy)
        // Quick to build, and quick enough to run.
        .envs([("CARGO_PROFILE_DEV_OPT_LEVEL", "1"), ("CARGO_PROFILE_DEV_DEBUG", "false")])
        // Wrong code is odd code, which is the point.
        .env("RUSTFLAGS", "-Awarnings")
        .env("CARGO_TARGET_DIR", folder()?.join("build"));
    Ok(command)
}

/// Copies the workspace with its mutants. What has not changed is not written again, so that cargo builds little.
fn write_copy(copy: &Path) -> Result<(), String> {
    let mut files = originals()?;
    for (file, text) in planted(&files)? {
        files.insert(file, text);
    }
    for (name, text) in &files {
        let path = copy.join(name);
        if std::fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
            continue;
        }
        let written = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        written
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    prune(copy, Path::new(""), &files)
}

/// The workspace's files: the root package, and every folder that is a package.
fn originals() -> Result<BTreeMap<PathBuf, String>, String> {
    let root = workspace();
    let mut files = BTreeMap::new();
    for name in ["Cargo.toml", "Cargo.lock", "README.md"] {
        files.insert(name.into(), read(&root.join(name))?);
    }
    for folder in ["src", "docs", "benches", "examples", "tests"] {
        collect(Path::new(folder), &mut files)?;
    }
    let fail = |error: std::io::Error| format!("{}: {error}", root.display());
    for entry in std::fs::read_dir(root).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if entry.path().join("Cargo.toml").exists() {
            collect(Path::new(&entry.file_name()), &mut files)?;
        }
    }
    Ok(files)
}

/// Removes from the copy what the workspace no longer has.
fn prune(copy: &Path, folder: &Path, files: &BTreeMap<PathBuf, String>) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("{}: {error}", copy.join(folder).display());
    for entry in std::fs::read_dir(copy.join(folder)).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = folder.join(entry.file_name());
        if entry.path().is_dir() {
            prune(copy, &name, files)?;
        } else if !files.contains_key(&name) {
            std::fs::remove_file(entry.path()).map_err(fail)?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads every file of a folder of the workspace: any of them may be included in a program.
fn collect(folder: &Path, files: &mut BTreeMap<PathBuf, String>) -> Result<(), String> {
    let path = workspace().join(folder);
    let entries =
        std::fs::read_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    for entry in entries.flatten() {
        let name = folder.join(entry.file_name());
        if entry.path().is_dir() {
            collect(&name, files)?;
        } else {
            files.insert(name, read(&entry.path())?);
        }
    }
    Ok(())
}

/// Where a text begins and ends in a file.
type Place<'a> = (&'a Path, usize, usize);

/// The files that mutants change, changed.
fn planted(files: &BTreeMap<PathBuf, String>) -> Result<BTreeMap<PathBuf, String>, String> {
    let functions = Functions::read(files)?;
    // By file and place, so that mutants of one place become one question after the other.
    let mut places: BTreeMap<Place<'_>, Vec<(u32, &Edit)>> = BTreeMap::new();
    let mut lost = Vec::new();
    for (number, mutant) in list::all() {
        for edit in mutant.edits {
            match functions.only_place(edit.function, edit.find) {
                Ok((file, range)) => {
                    let place = places.entry((file, range.start, range.end)).or_default();
                    place.push((number as u32, edit));
                }
                Err(error) => lost.push(format!("{}: {error}", mutant.name)),
            }
        }
    }
    if !lost.is_empty() {
        return Err(lost.join("\n"));
    }
    let mut changed: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut last = (Path::new(""), usize::MAX);
    // From the back, so that places keep their numbers.
    for (&(file, start, end), edits) in places.iter().rev() {
        if last.0 == file && end > last.1 {
            let (file, find) = (file.display(), edits[0].1.find);
            return Err(format!("{file}: two mutants overlap at {find:?}"));
        }
        last = (file, start);
        let text = changed.entry(file.to_owned()).or_insert_with(|| files[file].clone());
        let mut right = text[start..end].to_owned();
        for (number, edit) in edits {
            right = edit.beside(&right, *number, core_in(file));
        }
        text.replace_range(start..end, &right);
    }
    let core = files.get(Path::new(CORE)).ok_or(format!("there is no {CORE}"))?;
    changed.entry(CORE.into()).or_insert_with(|| core.clone()).push_str(QUESTION);
    Ok(changed)
}

/// What the core is called in a file.
fn core_in(file: &Path) -> &'static str {
    // What is built on `fabric` knows the core by that.
    if file.starts_with("fabric-async") { "fabric::provider" } else { "fabric_core" }
}

impl Edit {
    /// The wrong text beside the right one.
    fn beside(&self, right: &str, number: u32, core: &str) -> String {
        let question = format!("{core}::mutant::on({number})");
        if self.wrong.contains("MUTANT") {
            // Another mutant of this place may have been here before.
            return right.replacen(self.find, &self.wrong.replace("MUTANT", &question), 1);
        }
        let choice = format!("if {question} {{ {} }} else {{ {right} }}", self.wrong);
        if self.find.ends_with(';') { choice } else { format!("({choice})") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_found_once() {
        planted(&originals().unwrap()).unwrap();
    }

    #[test]
    fn the_copy_is_a_whole_workspace() {
        let copy = std::env::temp_dir().join(format!("fabric-mutants-{}", std::process::id()));
        write_copy(&copy).unwrap();
        let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
        let metadata = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
        let output = Command::new(cargo).args(metadata).current_dir(&copy).output().unwrap();
        std::fs::remove_dir_all(&copy).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn right_and_wrong_stand_side_by_side() {
        let edit = |find, wrong| Edit { function: "", find, wrong };
        let on = "fabric_core::mutant::on(3)";
        assert_eq!(
            edit("a < b", "true").beside("a < b", 3, "fabric_core"),
            format!("(if {on} {{ true }} else {{ a < b }})")
        );
        assert_eq!(
            edit("go();", "").beside("go();", 3, "fabric_core"),
            format!("if {on} {{  }} else {{ go(); }}")
        );
        assert_eq!(
            edit("a < b", "a < b + u32::from(MUTANT)").beside("a < b", 3, "fabric_core"),
            format!("a < b + u32::from({on})")
        );
    }
}
