//! How the code is laid out: crates use only those below them, the files of a crate use each other in no circle, the
//! name of a type means one thing in a crate, and no file is long without a reason.

#![cfg(not(miri))] // it reads the whole workspace
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod circles;
mod modules;
mod source;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use circles::circles;
use modules::Modules;

/// Each package: its folder, its name in paths, and the packages that it may use, which are all above it in this list.
/// Tests may use more: what `[dev-dependencies]` has and `#[cfg(test)]` builds is not looked at.
const PACKAGES: &[(&str, &str, &[&str])] = &[
    ("fabric-core", "fabric_core", &[]),
    ("fabric-util", "fabric_util", &["fabric_core"]),
    ("provider-tcp", "provider_tcp", &["fabric_core", "fabric_util"]),
    ("provider-shm", "provider_shm", &["fabric_core", "fabric_util"]),
    ("provider-auto", "provider_auto", &["fabric_core", "fabric_util", "provider_shm"]),
    ("provider-verbs", "provider_verbs", &["fabric_core", "fabric_util"]),
    ("provider-mem", "provider_mem", &["fabric_core", "fabric_util"]),
    ("fabric-exchange", "fabric_exchange", &["fabric_core", "fabric_util"]),
    (
        "",
        "fabric",
        &[
            "fabric_core",
            "fabric_util",
            "provider_tcp",
            "provider_shm",
            "provider_auto",
            "provider_verbs",
        ],
    ),
    ("fabric-rdm", "fabric_rdm", &["fabric", "fabric_core", "fabric_util"]),
    ("fabric-async", "fabric_async", &["fabric", "fabric_rdm", "fabric_util"]),
    (
        "conformance",
        "conformance",
        &["fabric", "fabric_async", "fabric_rdm", "fabric_util", "provider_mem"],
    ),
    ("tools", "fabric_tools", &["fabric", "fabric_exchange", "fabric_util"]),
    ("libfabric-provider", "fab_fi", &["fabric", "fabric_rdm"]),
    ("mutants", "mutants", &["conformance"]),
    ("bench", "bench", &["fabric", "fabric_async", "fabric_rdm", "fabric_util"]),
];

/// A file may have so many lines; a longer one says why within its first lines.
const LINES: usize = 500;
const REASON: &str = "// Long: ";
const REASON_WITHIN: usize = 40;

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The sources of a package, by their roots.
fn roots(folder: &str) -> Vec<PathBuf> {
    let roots = ["lib.rs", "main.rs"].map(|root| workspace().join(folder).join("src").join(root));
    roots.into_iter().filter(|root| root.exists()).collect()
}

/// The packages of the workspace that a manifest depends on, by their names in paths.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut within = false;
    let mut found = BTreeSet::new();
    for line in manifest.lines() {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            within = section == "dependencies" || section.ends_with(".dependencies");
            within &= !section.starts_with("workspace");
        }
        let name = line.split(['.', ' ', '=']).next().unwrap_or_default().replace('-', "_");
        if within && PACKAGES.iter().any(|package| package.1 == name) {
            found.insert(name);
        }
    }
    found
}

#[test]
fn every_package_has_its_place() {
    let manifest = std::fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
    let members = manifest.lines().find(|line| line.starts_with("members = ")).unwrap();
    let members: BTreeSet<_> = members.split('"').skip(1).step_by(2).collect();
    let listed = PACKAGES.iter().map(|package| package.0).filter(|folder| !folder.is_empty());
    assert_eq!(members, listed.collect());
    for (at, (folder, _, below)) in PACKAGES.iter().enumerate() {
        for other in *below {
            let is_below = PACKAGES[..at].iter().any(|package| package.1 == *other);
            assert!(is_below, "{folder}: {other} is not above it in the list");
        }
    }
}

#[test]
fn packages_use_those_below() {
    for (folder, _, below) in PACKAGES {
        let manifest = workspace().join(folder).join("Cargo.toml");
        let found = dependencies(&std::fs::read_to_string(&manifest).unwrap());
        let below: BTreeSet<_> = below.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(
            found,
            below,
            "{}: left what it has, right what the list allows",
            manifest.display()
        );
    }
}

#[test]
fn sources_use_those_below() {
    let mut wrong = Vec::new();
    for (folder, own, below) in PACKAGES {
        for root in roots(folder) {
            for (name, file) in Modules::read(&root).other_crates() {
                let is_one = PACKAGES.iter().any(|package| package.1 == name);
                if is_one && name != *own && !below.contains(&name) {
                    wrong.push(format!("{folder}/src/{}: {name}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "uses of crates that are not below: {wrong:#?}");
}

#[test]
fn files_use_each_other_in_no_circle() {
    let mut found = String::new();
    for (folder, _, _) in PACKAGES {
        let mut count = 0;
        for root in roots(folder) {
            let modules = Modules::read(&root);
            let uses = modules.uses();
            count += uses.len();
            for circle in circles(&uses) {
                found += &format!("{}: {circle:?}\n", root.display());
                for (from, to) in &uses {
                    if circle.contains(from) && circle.contains(to) {
                        found += &format!("    {} uses {}\n", from.display(), to.display());
                    }
                }
            }
        }
        assert!(count > 0, "{folder}: no file uses another");
    }
    assert!(found.is_empty(), "circles:\n{found}");
}

#[test]
fn a_type_name_means_one_thing_in_a_crate() {
    let mut wrong = Vec::new();
    for (folder, _, _) in PACKAGES {
        let mut count = 0;
        for root in roots(folder) {
            for (name, files) in Modules::read(&root).types() {
                count += 1;
                if files.len() > 1 {
                    wrong.push(format!("{folder}: {name} in {files:?}"));
                }
            }
        }
        assert!(count > 0, "{folder}: no file defines a type");
    }
    assert!(wrong.is_empty(), "types of one name in two files of a crate: {wrong:#?}");
}

#[test]
fn long_files_say_why() {
    let mut wrong = Vec::new();
    look_for_long_files(workspace(), &mut wrong);
    assert!(wrong.is_empty(), "files over {LINES} lines without {REASON:?}: {wrong:#?}");
}

/// A reason in a file that is not long is found as well.
fn look_for_long_files(folder: &Path, wrong: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_hidden = path.file_name().unwrap().to_string_lossy().starts_with('.');
        if path.is_dir() {
            // Cargo's folders have that file.
            if !is_hidden && !path.join("CACHEDIR.TAG").exists() {
                look_for_long_files(&path, wrong);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let lines = text.lines().count();
            let says_why = text.lines().take(REASON_WITHIN).any(|line| line.starts_with(REASON));
            if (lines > LINES) != says_why {
                wrong.push(format!("{}: {lines} lines", path.display()));
            }
        }
    }
}
