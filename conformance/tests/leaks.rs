//! What libraries open once and keep is no leak; what is opened again and again is one, and is named.

#![allow(clippy::unwrap_used)] // helpers of tests too

#[allow(dead_code, reason = "other tests use the rest")]
mod flawed;

use std::fs::File;
use std::sync::{Arc, Mutex};

use conformance::{CaseResult, Options, Status as Ended, Wanted, run};
use fabric::provider::Provider;
use fabric::provider::{Device, DomainAttr, EventSink};
use fabric::{Catalog, Info, Result};
use flawed::{Flaw, Flawed};

/// A provider whose domains leave a descriptor, as librdmacm keeps a device open: each of the first so many.
struct Keeper {
    max: usize,
    kept: Mutex<Vec<File>>,
}

impl Provider for Keeper {
    type Domain = <Flawed as Provider>::Domain;

    fn name(&self) -> &'static str {
        "keeper"
    }

    fn devices(&self) -> Vec<Device> {
        Flawed::named("keeper", Flaw::None).devices()
    }

    fn open(
        &self,
        info: &Info,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
    ) -> Result<Self::Domain> {
        let mut kept = self.kept.lock().unwrap();
        if kept.len() < self.max {
            kept.push(File::open("/dev/zero").unwrap());
        }
        Flawed::named("keeper", Flaw::None).open(info, attr, events)
    }
}

/// `teardown.leak_check` behind a case that opens what else there is: a provider that keeps so much.
fn leak_check(max: usize) -> CaseResult {
    let keeper = Keeper { max, kept: Mutex::default() };
    let tested = Flawed::new(Flaw::None);
    let catalog = Arc::new(Catalog::empty().add(tested).unwrap().add(keeper).unwrap());
    let options = Options {
        filters: ["discovery.excluded", "teardown.leak_check"].map(str::to_owned).into(),
        wanted: Wanted::Named(vec!["flawed".to_owned()]),
        factor: Some(1.0),
        ..Options::default()
    };
    run(&catalog, &options, &mut ()).unwrap().cases.pop().unwrap()
}

#[test]
fn what_is_kept_once_is_no_leak_and_what_grows_is_one() {
    let once = leak_check(1);
    assert_eq!(once.status, Ended::Pass, "{:?}", once.failure);
    let again = leak_check(usize::MAX);
    let text = format!("{:?}", again.failure);
    assert!(again.status == Ended::Fail && text.contains("/dev/zero"), "{text}");
}
