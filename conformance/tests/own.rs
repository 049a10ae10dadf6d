//! The program of a provider's author: `main` with a catalog of its own, which is its second process as well. Without
//! arguments it is a test that runs itself with some; with arguments it is that program.

#![allow(clippy::unwrap_used)] // helpers of tests too

use std::process::{Command, ExitCode};
use std::sync::Arc;

use fabric::provider::{Device, DomainAttr, EventSink, Info, Provider};
use fabric::{Catalog, Result};
use provider_tcp::TcpProvider;

/// TCP by a name that no crate here knows.
struct Own(TcpProvider);

impl Provider for Own {
    type Domain = <TcpProvider as Provider>::Domain;

    fn name(&self) -> &'static str {
        "own"
    }

    fn devices(&self) -> Vec<Device> {
        let mut devices = self.0.devices();
        let infos = devices.iter_mut().filter_map(|device| device.state.as_mut().ok());
        infos.for_each(|info| info.provider = self.name());
        devices
    }

    fn open(
        &self,
        info: &Info,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
    ) -> Result<Self::Domain> {
        self.0.open(info, attr, events)
    }
}

fn main() -> ExitCode {
    let catalog = Catalog::empty().add(Own(TcpProvider::new())).unwrap();
    if std::env::args().len() > 1 {
        return conformance::main(catalog);
    }
    // The second needs another process, and one that has this provider; the third compares two providers.
    passes(&["--provider", "own", "--strict", "send.fifo"]);
    passes(&["--provider", "own", "--strict", "teardown.kill9_idle"]);
    passes(&["--provider", "own", "--provider", "mem", "--strict", "rma.write_sizes"]);
    passes(&["fuzz", "--programs", "5"]);
    ExitCode::SUCCESS
}

fn passes(arguments: &[&str]) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.current_dir(env!("CARGO_TARGET_TMPDIR")).args(arguments).env_remove("FABRIC_PROVIDER");
    let output = program.output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{arguments:?}: {}\n{out}\n{err}", output.status);
}
