//! `fabric info`, as a user runs it.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use std::process::{Command, Output};

use serde_json::Value;

/// `fabric` with none of the library's variables.
fn fabric() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabric"));
    let colour = ["CLICOLOR_FORCE", "CLICOLOR", "NO_COLOR"];
    for variable in fabric::Catalog::builtin().variables() {
        command.env_remove(&*variable.name);
    }
    for name in colour {
        command.env_remove(name);
    }
    command
}

/// Runs it with these variables of the library and no others.
fn run(args: &[&str], variables: &[(&str, &str)]) -> Output {
    fabric().args(args).envs(variables.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn json(args: &[&str], variables: &[(&str, &str)], code: i32) -> Value {
    let output = run(&[&["info", "--json"], args].concat(), variables);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn devices<'a>(report: &'a Value, provider: &str) -> impl Iterator<Item = &'a Value> {
    report["devices"].as_array().unwrap().iter().filter(move |d| d["provider"] == provider)
}

fn device<'a>(report: &'a Value, provider: &str, name: Option<&str>) -> &'a Value {
    devices(report, provider).find(|d| d["device"].as_str() == name).unwrap()
}

#[test]
fn json_tells_all_of_the_chosen_device() {
    let report = json(&[], &[], 0);
    assert_eq!(report["choice"], "auto");
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    let chosen = &report["chosen"];
    let name = chosen["device"].as_str();
    let chosen = device(&report, chosen["provider"].as_str().unwrap(), name);
    assert_eq!((&chosen["status"], &chosen["reason"]), (&"chosen".into(), &Value::Null));
    let offers = &chosen["offers"];
    assert!(!offers["addresses"].as_array().unwrap().is_empty());
    assert_eq!(offers["capabilities"]["send"], true);
    let capabilities = fabric::Capabilities::all().iter().count();
    assert_eq!(offers["capabilities"].as_object().unwrap().len(), capabilities);
    assert!(offers["limits"]["message"].as_u64().unwrap() > 0);
    assert_eq!(offers["limits"].as_object().unwrap().len(), 14);
    assert_eq!(offers["atomics"]["add"].as_array().unwrap().len(), 10);
    assert_eq!(offers["atomics"]["xor"].as_array().unwrap().len(), 8);
    assert!(offers["details"].is_array());
}

#[test]
fn loopback_is_a_device() {
    let report = json(&["tcp:lo"], &[], 0);
    let lo = device(&report, "tcp", Some("lo"));
    let addresses = lo["offers"]["addresses"].as_array().unwrap();
    assert!(addresses.contains(&"127.0.0.1".into()), "{lo}");
    assert_eq!(report["devices"].as_array().unwrap().len(), 1);
    // The choice is that of the machine, whatever is shown.
    assert!(report["chosen"]["device"].is_string(), "{report}");
}

/// Whether this program has the provider; the machine's devices are another matter.
fn built_in(provider: &str) -> bool {
    fabric::Catalog::builtin().names().contains(&provider)
}

#[test]
fn what_cannot_be_used_has_reason_and_remedy() {
    let output = run(&["info", "--json"], &[("FABRIC_PROVIDER", "verbs")]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let code = if report["chosen"].is_null() { 1 } else { 0 };
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let verbs: Vec<_> = devices(&report, "verbs").collect();
    assert!(!verbs.is_empty(), "{report}");
    for device in verbs {
        if device["status"] != "unusable" {
            assert!(device["offers"].is_object(), "{device}");
            continue;
        }
        let reason = device["reason"].as_str().unwrap();
        assert!(reason.contains(" (") && reason.ends_with(')'), "{device}");
        assert_eq!(reason.starts_with("not built in ("), !built_in("verbs"), "{device}");
    }
    let tcp = device(&report, "tcp", Some("lo"));
    assert_eq!(
        (&tcp["status"], &tcp["reason"]),
        (&"excluded".into(), &"FABRIC_PROVIDER=verbs names others".into())
    );
}

#[test]
fn exclusions_have_a_reason_and_what_is_excluded_is_shown() {
    let report = json(&[], &[("FABRIC_PROVIDER", "^tcp,verbs,shm")], 1);
    assert_eq!(report["chosen"], Value::Null);
    let lo = device(&report, "tcp", Some("lo"));
    assert_eq!(lo["status"], "excluded");
    assert_eq!(lo["reason"], "excluded by FABRIC_PROVIDER=^tcp,verbs,shm");
    assert!(lo["offers"]["limits"]["inject"].as_u64().unwrap() >= 128);

    let report = json(&[], &[("FABRIC_PROVIDER", "tcp:lo")], 0);
    assert_eq!(report["chosen"]["device"], "lo");
    assert_eq!(device(&report, "tcp", Some("any"))["status"], "excluded");

    let report = json(&[], &[("FABRIC_PROVIDER", "tcp:nosuch0")], 1);
    let none = device(&report, "tcp", Some("nosuch0"));
    assert_eq!(none["status"], "unusable");
    assert!(none["reason"].as_str().unwrap().contains("there is no device \"nosuch0\""), "{none}");
}

#[test]
fn mistakes_are_told_apart_by_the_exit_code() {
    let says = |args: &[&str], variables: &[(&str, &str)], code, what: &str| {
        let output = run(args, variables);
        let err = text(&output.stderr);
        assert!(output.status.code() == Some(code) && err.contains(what), "{output:?}");
    };
    says(&["info"], &[("FABRIC_PROVIDER", "tpc")], 2, "did you mean \"tcp\"?");
    says(&["info"], &[("FABRIC_PROVIDER", "tcp,")], 2, "a provider's name is missing");
    says(&["info"], &[("FABRIC_LIVENESS_S", "soon")], 2, "FABRIC_LIVENESS_S=\"soon\"");
    let range =
        "FABRIC_TCP_GATHER_US: configure: gather_us=\"1001\" is not a whole number in 0..=1000";
    says(&["info"], &[("FABRIC_TCP_GATHER_US", "1001")], 2, range);
    let nearest =
        "FABRIC_TCP_GATER_US is unknown and has no effect; did you mean FABRIC_TCP_GATHER_US?";
    says(&["info"], &[("FABRIC_TCP_GATER_US", "1")], 0, nearest);
    says(&["info"], &[("FABRIC_PROVIDER", "^tcp,verbs,shm")], 1, "no device is usable");
    says(&["info", "tcp:nosuch0"], &[], 2, "there is no \"tcp:nosuch0\"");
    says(&["info", "--verbatim"], &[], 2, "--verbatim");
    says(&["nosuch"], &[], 2, "nosuch");
    says(&[], &[], 2, "Usage");
}

#[test]
fn text_has_everything_and_no_colour_in_a_pipe() {
    let output = run(&["info"], &[]);
    let out = text(&output.stdout);
    assert_eq!(out.contains("not built in ("), !built_in("verbs"), "{out}");
    for what in ["chosen", "verbs", "127.0.0.1", "secret-keys", "cq_capacity", "compare_swap"] {
        assert!(out.contains(what), "{what} is missing: {out}");
    }
    assert!(!out.contains('\x1b') && !out.lines().any(|line| line.ends_with(' ')), "{out:?}");
    let forced = run(&["info"], &[("CLICOLOR_FORCE", "1")]);
    assert!(text(&forced.stdout).contains("\x1b[1m"), "{forced:?}");
    let brief = run(&["info", "--brief"], &[]);
    let brief = text(&brief.stdout);
    assert!(out.starts_with(brief) && !brief.contains("compare_swap"), "{brief}");
}

#[test]
fn variables_are_shown_even_when_one_is_wrong() {
    let output = run(&["info", "--env"], &[("FABRIC_CONNECT_TIMEOUT_MS", "soon")]);
    let out = text(&output.stdout);
    for variable in fabric::Catalog::builtin().variables() {
        assert!(out.contains(&*variable.name) && out.contains(variable.default), "{out}");
    }
    for variable in fabric_exchange::Launch::VARIABLES {
        assert!(out.contains(&*variable.name) && out.contains(variable.default), "{out}");
    }
    assert!(out.contains("value    soon") && out.contains("not set"), "{out}");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("FABRIC_CONNECT_TIMEOUT_MS=\"soon\""));

    let report = json(&["--env"], &[("FABRIC_LIVENESS_S", "3")], 0);
    let is = |v: &&Value| v["name"] == "FABRIC_LIVENESS_S";
    let liveness = report.as_array().unwrap().iter().find(is).unwrap();
    assert_eq!((&liveness["value"], &liveness["default"]), (&"3".into(), &"10".into()));
}

#[test]
fn help_teaches() {
    let output = run(&["info", "--help"], &[]);
    let out = text(&output.stdout);
    assert!(out.contains("Examples:") && out.contains("Exit codes:"), "{out}");
}

#[test]
fn a_full_disk_is_told_and_a_reader_that_has_enough_is_none() {
    for args in [&["info"][..], &["info", "--json"], &["info", "--env", "--json"]] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let output = fabric().args(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
        let said = text(&output.stderr);
        assert!(said.contains("No space left on device"), "{args:?}: {said}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = fabric().args(args).stdout(writer).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn misspelt_variables_are_warned_of() {
    let output = run(&["info", "--brief"], &[("FABRIC_PROVDER", "tcp")]);
    let warning = text(&output.stderr);
    assert!(warning.contains("did you mean FABRIC_PROVIDER?"), "{warning}");
    assert_eq!(warning.lines().count(), 1, "{warning}");
}

#[test]
fn the_way_to_a_peer_and_why_no_other() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = listener.local_addr().unwrap().to_string();
    let report = json(&["--peer", &peer], &[], 0);
    assert_eq!(report["peer"], peer);
    let domain = report["domain"]["provider"].as_str().unwrap();
    if domain == "auto" {
        assert_eq!(report["path"]["provider"], "tcp");
        let reason = report["path"]["passed_over"][0].as_str().unwrap();
        assert!(reason.starts_with(&format!("shm: nothing listens at {peer}")), "{reason}");
    }
    assert_eq!(report["capabilities"]["send"], true);

    let shm = fabric::Catalog::builtin()
        .open_with(&fabric::Choice::Auto, &fabric::Hints::default())
        .unwrap();
    let listener = shm.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let peer = listener.local_addr().to_string();
    let said = run(&["info", "--peer", &peer], &[]);
    let said = text(&said.stdout);
    assert!(said.contains(&format!("A connection to {peer}")), "{said}");
    if shm.provider() == "auto" {
        assert!(said.contains("would go by    shm:any\n"), "{said}");
        assert!(said.contains("not tcp:any: shared memory is there\n"), "{said}");
    }
    let report = json(&["--peer", &peer], &[("FABRIC_PROVIDER", "tcp")], 0);
    assert_eq!(
        (&report["path"]["provider"], &report["domain"]["device"]),
        (&"tcp".into(), &"any".into())
    );

    for (peer, what) in [("127.0.0.1", "with its port"), ("0.0.0.0:7", "0.0.0.0")] {
        let output = run(&["info", "--peer", peer], &[]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(what), "{output:?}");
    }
}
