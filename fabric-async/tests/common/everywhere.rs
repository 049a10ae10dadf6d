//! Tests that run over each provider, by `block_on` and on tokio.

#![allow(dead_code)] // each test program uses its part

use std::time::{Duration, Instant};

use fabric::{Catalog, Hints};
use fabric_async::{Node, NodeBuilder, block_on};

/// The provider that is to be tested: one whose device is there (`scripts/device-tests`). Without one, those that need no device.
pub(crate) fn providers(without_device: &[&'static str]) -> Vec<&'static str> {
    match std::env::var("FABRIC_PROVIDER") {
        Ok(one) => vec![String::leak(one)],
        Err(_) => without_device.to_vec(),
    }
}

/// No test waits so long for anything.
pub(crate) fn patience() -> Duration {
    // A software device in a guest computes what others have wires for.
    let times = if std::env::var_os("FABRIC_TEST_DEVICE").is_some() { 5 } else { 1 };
    Duration::from_secs(60) * times
}

pub(crate) fn node_with(provider: &str, settings: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Node {
    let hints = Hints { provider: Some(provider.into()), ..Hints::default() };
    let catalog = Catalog::builtin().add(provider_mem::MemProvider::new()).unwrap();
    let domain = catalog.open(&hints).unwrap();
    settings(Node::builder()).build_on(&domain).unwrap()
}

/// Runs it over each provider, once by `block_on` and once as a task of a runtime of two threads.
pub(crate) fn over<F>(providers: Vec<&'static str>, test: impl Fn(&'static str) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for provider in providers {
        eprintln!("{provider}, block_on");
        block_on(test(provider));
        eprintln!("{provider}, tokio");
        let test = runtime.spawn(test(provider));
        runtime.block_on(async { tokio::time::timeout(patience(), test).await }).unwrap().unwrap();
    }
}

/// Looks again and again, letting others run, until something holds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience();
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}
