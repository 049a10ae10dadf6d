//! `scripts/fuzz 60 leases`: whatever a peer says about leases, the books stay right and within the policy.
#![no_main]

use std::sync::LazyLock;

use fabric_async::Catalog;
use fabric_async::fuzzing::{LeaseFuzzer, leases_seeds};
use provider_mem::MemProvider;

fn leases(bytes: &[u8]) {
    static FUZZER: LazyLock<LeaseFuzzer> = LazyLock::new(|| {
        let catalog = Catalog::empty().add(MemProvider::new()).expect("it is the only one");
        LeaseFuzzer::new(&catalog).expect("memory has a device")
    });
    FUZZER.run(bytes);
}

fuzz::target!(leases, leases_seeds, ["fabric-async/src/lease"]);
