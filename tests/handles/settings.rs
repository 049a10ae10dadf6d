//! Settings of providers: by the catalog, and by environment variables, for a provider of the program's own too.

use std::process::Command;

use fabric::{Catalog, Choice, Error, Hints};

use crate::null::NullProvider;
use crate::rig::invalid;

const VARIABLE: &str = "FABRIC_NULL_MESSAGE_BYTES";

fn catalog() -> Catalog {
    Catalog::empty().add(NullProvider::new()).unwrap()
}

fn configured(value: &str) -> Catalog {
    catalog().configure("null", "message_bytes", value).unwrap()
}

/// The longest message of a domain that the catalog opens.
fn opened(catalog: &Catalog) -> fabric::Result<u64> {
    let domain = catalog.open_with(&Choice::Auto, &Hints::default())?;
    Ok(domain.info().limits.message)
}

#[test]
fn what_is_opened_has_the_setting() {
    let set = configured("4096");
    assert_eq!(opened(&set).unwrap(), 4096);
    let found = set.discover_with(&Choice::Auto, &Hints::default()).unwrap();
    assert_eq!(found[0].usable.as_ref().unwrap().limits.message, 4096);
    assert_eq!(opened(&set.configure("null", "message_bytes", "512").unwrap()).unwrap(), 512);
}

#[test]
fn a_wrong_name_or_value_is_refused() {
    let text = invalid(catalog().configure("null", "message_byte", "1"));
    let right = r#"no setting "message_byte" (there are: message_bytes)"#;
    assert!(text.contains(right), "{text}");
    let text = invalid(catalog().configure("null", "message_bytes", "0"));
    assert!(text.contains(r#"message_bytes="0" is not a whole number in 1..=65536"#), "{text}");
    match catalog().configure("nul", "message_bytes", "1") {
        Err(Error::NoProvider(failure)) => {
            assert!(failure.detail.contains(r#"did you mean "null"?"#), "{failure}");
        }
        other => panic!("expected NoProvider, got {other:?}"),
    }
}

#[test]
fn variables_are_listed_and_unique() {
    let variables = catalog().variables();
    let of = |name: &str| variables.iter().find(|variable| variable.name == name).unwrap();
    assert_eq!(
        of("FABRIC_PROVIDER").default,
        "auto: the best that satisfies the application's hints, joined with shared memory for the peers of this host"
    );
    assert_eq!(of(VARIABLE).default, "65536");
    // Of two providers whose names differ by what an environment variable cannot show, the second is refused.
    let named = |name| NullProvider::new().edit(|info| info.provider = name);
    let text = invalid(Catalog::empty().add(named("a-b")).unwrap().add(named("a_b")));
    assert!(text.contains("FABRIC_A_B_MESSAGE_BYTES"), "{text}");
}

/// This test in a program of its own, with the variable set.
fn again(value: &str, check: fn()) {
    if std::env::var(VARIABLE).is_ok_and(|set| set == value) {
        return check();
    }
    let test = std::thread::current().name().unwrap().to_owned();
    let mut program = Command::new(std::env::current_exe().unwrap());
    let output = program.args(["--exact", &test]).env(VARIABLE, value).output().unwrap();
    let passed = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && passed, "{output:?}");
}

#[test]
#[cfg_attr(miri, ignore)] // starts a program
fn the_environment_wins_over_the_program() {
    again("1024", || {
        assert_eq!(opened(&catalog()).unwrap(), 1024);
        assert_eq!(opened(&configured("4096")).unwrap(), 1024);
    });
}

#[test]
#[cfg_attr(miri, ignore)] // starts a program
fn a_bad_value_in_the_environment_names_the_variable() {
    again("many", || {
        let text = invalid(opened(&catalog()));
        assert!(text.contains(VARIABLE) && text.contains(r#"="many" is not a whole"#), "{text}");
        invalid(catalog().discover_with(&Choice::Auto, &Hints::default()));
    });
}
