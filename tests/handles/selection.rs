//! Choosing a provider: every way to get none has its own clear error.

use fabric::{Access, Capabilities, Catalog, Choice, Domain, Error, Hints};

use crate::null::NullProvider;
use crate::rig::invalid;

fn null() -> NullProvider {
    NullProvider::new()
}

/// One with another name, and devices of it.
fn named(name: &'static str, device: &'static str) -> NullProvider {
    null().edit(|info| {
        info.provider = name;
        info.device = device.to_owned();
    })
}

fn catalog() -> Catalog {
    Catalog::empty().add(named("first", "f0")).unwrap().add(named("second", "s0")).unwrap()
}

fn open(catalog: &Catalog, choice: &str, hints: &Hints) -> fabric::Result<Domain> {
    catalog.open_with(&Choice::parse(choice).unwrap(), hints)
}

#[track_caller]
fn none(catalog: &Catalog, choice: &str, hints: &Hints) -> String {
    match open(catalog, choice, hints) {
        Err(Error::NoProvider(failure)) => failure.to_string(),
        other => panic!("expected NoProvider, got {other:?}"),
    }
}

fn with(edit: impl FnOnce(&mut Hints)) -> Hints {
    let mut hints = Hints::default();
    edit(&mut hints);
    hints
}

#[test]
fn the_first_that_suits_is_taken() {
    let domain = open(&catalog(), "", &Hints::default()).unwrap();
    assert_eq!((domain.provider(), domain.device()), ("first", "f0"));
    let domain = open(&catalog(), "second,first", &Hints::default()).unwrap();
    assert_eq!(domain.provider(), "second");
    let domain = open(&catalog(), "second:s0", &Hints::default()).unwrap();
    assert_eq!((domain.provider(), domain.device()), ("second", "s0"));
    let domain = open(&catalog(), "^first", &Hints::default()).unwrap();
    assert_eq!(domain.provider(), "second");
    assert_eq!(domain.selection().choice, Choice::parse("^first").unwrap());
    domain.alloc(64, Access::ALL).unwrap();
}

#[test]
fn what_was_passed_over_is_told_with_the_reason() {
    let weak = named("weak", "w0").edit(|info| info.capabilities = Capabilities::SEND);
    let catalog = Catalog::empty().add(weak).unwrap().add(null()).unwrap();
    let domain = open(&catalog, "weak,null", &Hints::default()).unwrap();
    let selection = domain.selection().to_string();
    assert!(selection.starts_with("chose null:null0 (weak,null)"), "{selection}");
    assert!(selection.contains("not weak:w0: capabilities: wanted"), "{selection}");
}

#[test]
fn a_misspelt_name_gets_the_nearest_one() {
    let text = none(&catalog(), "frist", &Hints::default());
    assert!(text.contains(r#"no provider "frist"; did you mean "first"?"#), "{text}");
    // Those that the program lacks count as names too.
    let text = none(&catalog(), "tpc", &Hints::default());
    assert!(text.contains(r#"did you mean "tcp"?"#), "{text}");
    // To exclude what does not exist is a mistake as well, and so is one wrong name among right ones.
    assert!(none(&catalog(), "^secnod", &Hints::default()).contains(r#""second""#));
    assert!(none(&catalog(), "first,zzz", &Hints::default()).contains("there are: first, second"));
    assert!(!none(&catalog(), "zzz", &Hints::default()).contains("did you mean"));
}

#[test]
fn a_provider_that_is_not_built_in() {
    let text = none(&catalog(), "verbs", &Hints::default());
    assert!(text.contains("FABRIC_PROVIDER=verbs leaves nothing usable"), "{text}");
    assert!(text.contains("verbs: not built in"), "{text}");
    // A preference may fail over, and says so.
    let domain = open(&catalog(), "verbs,second", &Hints::default()).unwrap();
    assert!(domain.selection().passed_over[0].contains("verbs: not built in"));
}

#[test]
fn everything_excluded() {
    let text = none(&catalog(), "^first,second", &Hints::default());
    assert!(text.contains("first:f0: excluded by FABRIC_PROVIDER=^first,second"), "{text}");
    assert!(text.contains("second:s0: excluded"), "{text}");
}

#[test]
fn an_unknown_device() {
    let text = none(&catalog(), "first:f1", &Hints::default());
    assert!(text.contains(r#"no device "f1"; did you mean "f0"?"#), "{text}");
    let text = none(&catalog(), "first:eth77", &Hints::default());
    assert!(text.contains("there are: f0") && !text.contains("did you mean"), "{text}");
}

#[test]
fn a_device_that_is_short_of_the_hints() {
    let hints = with(|hints| {
        hints.inject = 1000;
        hints.capabilities |= Capabilities::LIVENESS;
    });
    let text = none(&catalog(), "", &hints);
    for name in ["first:f0", "second:s0"] {
        assert!(text.contains(&format!("{name}: capabilities: wanted liveness")), "{text}");
    }
    assert!(text.contains("inject: wanted 1000, offered at most 256"), "{text}");
    let domain = open(&catalog(), "", &with(|hints| hints.device = Some("s0".into()))).unwrap();
    assert_eq!(domain.provider(), "second");
}

#[test]
fn a_program_without_providers_says_so() {
    let text = none(&Catalog::empty(), "", &Hints::default());
    assert!(text.contains("not built in"), "{text}");
}

#[test]
fn names_are_unique() {
    let text = invalid(catalog().add(named("first", "other")));
    assert!(text.contains(r#"there is a provider "first" already"#), "{text}");
    assert_eq!(catalog().names(), ["first", "second"]);
}

#[test]
fn discovery_lists_everything_with_its_verdict() {
    let weak = named("weak", "w0").edit(|info| info.capabilities = Capabilities::SEND);
    let catalog = catalog().add(weak).unwrap();
    let found =
        catalog.discover_with(&Choice::parse("^second").unwrap(), &Hints::default()).unwrap();
    let usable = |name: &str| &found.iter().find(|f| f.provider == name).unwrap().usable;
    assert_eq!(usable("first").as_ref().unwrap().device, "f0");
    assert!(usable("second").as_ref().unwrap_err().contains("excluded"));
    assert!(usable("weak").as_ref().unwrap_err().contains("atomic"));
}

#[test]
fn reports_for_bugs_name_provider_device_and_endpoints() {
    let rig = crate::rig::Rig::new();
    rig.link.hold();
    rig.endpoint.post(&rig.write(1)).unwrap();
    let text = rig.domain.dump();
    let id = rig.endpoint.id().to_string();
    for part in ["domain null", "null0", "chose null:null0", &id, "Connected", "posted 1 sends"] {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
    let text = rig.endpoint.dump();
    assert!(text.contains("1 sends and 0 receives pending"), "{text}");
}
