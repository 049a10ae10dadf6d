//! The program as scripts use it: a record of each provider, and both side by side.

#![allow(clippy::unwrap_used)] // helpers of tests too

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A case over TCP that is short, and says something in its transcript.
const CASE: &str = "protection.prefix_ok";

/// A directory of this test's own.
fn directory(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    // Of an earlier run, if it is there.
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

fn program(arguments: &[&str], directory: &Path) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_fabric-conformance"));
    program.current_dir(directory).args(arguments).env_remove("FABRIC_PROVIDER").output().unwrap()
}

#[track_caller]
fn assert_status(output: &Output, status: i32) {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert_eq!(output.status.code(), Some(status), "{out}\n{err}");
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A record over TCP, and the same as if another provider had written it.
fn records(directory: &Path) -> (String, String) {
    let run = ["--provider", "tcp", "--seed", "1", "--record", "tcp.json", CASE];
    assert_status(&program(&run, directory), 0);
    let record = fs::read_to_string(directory.join("tcp.json")).unwrap();
    let other = record
        .replace("\"provider\": \"tcp\"", "\"provider\": \"other\"")
        .replace("\"name\": \"tcp\"", "\"name\": \"other\"");
    (record, other)
}

fn merge(directory: &Path, other: &str) -> Output {
    fs::write(directory.join("other.json"), other).unwrap();
    program(&["merge", "tcp.json", "other.json", "--out", "report"], directory)
}

#[test]
fn records_are_put_side_by_side() {
    let directory = directory("side_by_side");
    let (_, other) = records(&directory);
    let merged = merge(&directory, &other);
    assert_status(&merged, 0);
    assert!(stdout(&merged).contains("1 transcripts compared, 0 differ"), "{}", stdout(&merged));
    for (file, part) in [
        ("report.html", "prefix_ok"),
        ("report.json", "\"verdict\": \"pass\""),
        ("report.xml", "testsuite name=\"other\""),
    ] {
        let text = fs::read_to_string(directory.join("report").join(file)).unwrap();
        assert!(text.contains(part), "no {part:?} in {file}:\n{text}");
    }
}

#[test]
fn part_of_the_suite_is_told_from_the_whole() {
    let directory = directory("part");
    let run = ["--provider", "tcp", "--seed", "1", "--report", "report", "protection.prefix_*"];
    let run = program(&run, &directory);
    assert_status(&run, 0);
    let part = |text: &str| text.contains("1 of ") && text.contains(" cases (protection.prefix_*)");
    let summary = stdout(&run).lines().last().unwrap().to_owned();
    assert!(summary.starts_with("passed in part, ") && part(&summary), "{summary}");
    for (file, says) in [
        ("report.html", "<p class=\"verdict warn\">passed in part, 1 of "),
        ("report.json", "\"filter\": [\n      \"protection.prefix_*\"\n    ]"),
        ("report.xml", "<property name=\"filter\" value=\"protection.prefix_*\"/>"),
    ] {
        let text = fs::read_to_string(directory.join("report").join(file)).unwrap();
        assert!(text.contains(says), "no {says:?} in {file}:\n{text}");
    }
}

#[test]
fn groups_are_listed() {
    let directory = directory("groups");
    let list = program(&["--list-groups"], &directory);
    assert_status(&list, 0);
    let groups = stdout(&list);
    assert!(
        groups.lines().count() > 10 && groups.lines().any(|l| l.starts_with("rma.* ")),
        "{groups}"
    );
    let unknown = program(&["--provider", "tcp", "messages.*"], &directory);
    assert_status(&unknown, 2);
    assert!(stderr(&unknown).contains("--list-groups"), "{}", stderr(&unknown));
}

#[test]
fn run_that_fails_leaves_its_record_and_one_that_does_not_begin_leaves_none() {
    let directory = directory("leaves");
    let run =
        |case: &str| program(&["--provider", "tcp", "--record", "new.json", case], &directory);
    let files = || fs::read_dir(&directory).unwrap().count();
    assert_status(&run("no.such"), 2);
    assert_eq!(files(), 0);
    // Nothing ran; the record says so.
    assert_status(&run("atomic.misaligned_wire"), 2);
    assert_eq!(files(), 1);
    let merged = program(&["merge", "new.json", "--out", "report"], &directory);
    assert_status(&merged, 2);
    assert!(stderr(&merged).contains("no case ran"), "{}", stderr(&merged));
}

#[test]
fn difference_is_a_failure() {
    let directory = directory("difference");
    let (_, other) = records(&directory);
    // As if the fifth write had not been acknowledged: the digest shows it, whatever the lines say.
    let digest = other.split("\"digest\": \"").nth(1).unwrap().split('"').next().unwrap();
    let merged = merge(&directory, &other.replace(digest, "0123456789abcdef"));
    assert_status(&merged, 1);
    assert!(stdout(&merged).contains("transcripts that differ"), "{}", stdout(&merged));
    let report = fs::read_to_string(directory.join("report/report.xml")).unwrap();
    assert!(report.contains("the transcripts differ"), "{report}");
}

#[test]
fn unavailable_provider_is_told() {
    let directory = directory("unavailable");
    records(&directory);
    let without = ["merge", "tcp.json", "--unavailable", "verbs: no RDMA device"];
    let merged = program(&without, &directory);
    assert_status(&merged, 0);
    assert!(stdout(&merged).contains("verbs NOT TESTED: no RDMA device"), "{}", stdout(&merged));
    // Without --out it goes where builds go.
    let page = fs::read_to_string(directory.join("target/conformance/report.html")).unwrap();
    assert!(page.contains("verbs was not tested"), "{page}");
}

#[test]
fn bad_records_are_named() {
    let directory = directory("bad_records");
    let (record, other) = records(&directory);
    let seed = other.replace("\"seed\": 1", "\"seed\": 2");
    for (text, reason) in [
        (&other[..other.len() / 2], "other.json: the record is cut short"),
        ("no json", "other.json: this is no record of a run"),
        (&record, "two records have results of tcp"),
        (&seed, "tcp ran with seed 1, other with 2"),
    ] {
        let merged = merge(&directory, text);
        assert_status(&merged, 2);
        assert!(stderr(&merged).contains(reason), "no {reason:?} in: {}", stderr(&merged));
    }
    assert_status(&program(&["merge", "missing.json"], &directory), 2);
    assert_status(&program(&["merge", "tcp.json", "--unavailable", "verbs"], &directory), 2);
    assert_status(&program(&["merge"], &directory), 2);
}

#[test]
fn full_disk_is_told() {
    let directory = directory("full_disk");
    let full = |arguments: &[&str]| {
        let run = program(
            &[&["--provider", "tcp", "protection.bad_key"], arguments].concat(),
            &directory,
        );
        assert_status(&run, 2);
        assert!(stderr(&run).contains("No space left on device"), "{}", stderr(&run));
    };
    full(&["--record", "/dev/full"]);
    full(&["--format", "json", "--out", "/dev/full"]);
    // Reports go to a folder: one whose files are full.
    fs::create_dir(directory.join("report")).unwrap();
    std::os::unix::fs::symlink("/dev/full", directory.join("report/report.xml")).unwrap();
    full(&["--report", "report"]);
}

#[test]
fn random_programs_are_run_and_run_again() {
    let directory = directory("fuzz");
    let some = ["fuzz", "--provider", "tcp", "--seed", "1", "--programs", "5"];
    let run = program(&some, &directory);
    assert_status(&run, 0);
    assert!(stdout(&run).contains("5 programs agree, seed 1"), "{}", stdout(&run));
    let again = ["fuzz", "--provider", "tcp", "--replay", "1:3"];
    assert_status(&program(&again, &directory), 0);
    let shown = program(&[&again[..], &["--show"]].concat(), &directory);
    assert_status(&shown, 0);
    assert!(stdout(&shown).contains("connect 0"), "{}", stdout(&shown));
    assert_status(&program(&["fuzz", "--replay", "no.such.file"], &directory), 2);
    let run = program(&[&some[..], &["--rdm"]].concat(), &directory);
    assert_status(&run, 0);
    assert!(stdout(&run).contains("5 programs agree, seed 1"), "{}", stdout(&run));
    let shown = program(&["fuzz", "--rdm", "--replay", "1:3", "--show"], &directory);
    assert!(stdout(&shown).contains("e0: send"), "{}", stdout(&shown));
}
