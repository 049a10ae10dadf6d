//! Two endpoints that know each other, over a provider, and executors.

use std::time::{Duration, Instant};

use fabric::{Catalog, Hints};
use fabric_async::rdm::Endpoint;
use fabric_async::{Buffer, Node, block_on};
use fabric_rdm::{Peer, RdmAttr};

/// Those that need no device.
pub(crate) const PROVIDERS: [&str; 3] = ["mem", "tcp", "shm"];

/// No test waits so long for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two endpoints, each the other's peer.
pub(crate) struct Pair {
    pub(crate) a: Endpoint,
    pub(crate) b: Endpoint,
    pub(crate) to_b: Peer,
    pub(crate) to_a: Peer,
}

pub(crate) fn node(provider: &str) -> Node {
    let hints = Hints { provider: Some(provider.into()), ..Hints::default() };
    let catalog = Catalog::builtin().add(provider_mem::MemProvider::new()).unwrap();
    let domain = catalog.open(&hints).unwrap();
    Node::builder().build_on(&domain).unwrap()
}

pub(crate) fn pair_with(provider: &str, attr: &RdmAttr) -> Pair {
    let node = node(provider);
    let (a, b) = (Endpoint::new(&node, attr).unwrap(), Endpoint::new(&node, attr).unwrap());
    let (to_b, to_a) = (a.insert(b.address()).unwrap(), b.insert(a.address()).unwrap());
    Pair { a, b, to_b, to_a }
}

pub(crate) fn pair(provider: &str) -> Pair {
    pair_with(provider, &RdmAttr::default())
}

impl Pair {
    pub(crate) fn buffer(&self, bytes: &[u8]) -> Buffer {
        self.a.pool().alloc_from(bytes).unwrap()
    }

    pub(crate) fn inbox(&self, len: usize) -> Buffer {
        self.b.pool().alloc(len).unwrap()
    }

    /// Everything was given back but for what the endpoints have themselves: slots and buffers.
    pub(crate) fn is_clean(&self) -> bool {
        self.a.operations() == 0
            && self.b.operations() == 0
            && self.a.pool().metrics().in_use == 0
            && self.a.pool().metrics().leaks == 0
    }
}

/// Runs it over each provider, once by `block_on` and once as a task of a runtime of two threads.
pub(crate) fn everywhere<F>(test: impl Fn(&'static str) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for provider in PROVIDERS {
        eprintln!("{provider}, block_on");
        block_on(test(provider));
        eprintln!("{provider}, tokio");
        let test = runtime.spawn(test(provider));
        runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await }).unwrap().unwrap();
    }
}

/// Looks again and again, letting others run, until something holds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}
