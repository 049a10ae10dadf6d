//! Two endpoints that know each other, over a provider, and executors.

use fabric_async::Buffer;
use fabric_async::rdm::Endpoint;
use fabric_rdm::{Peer, RdmAttr};

pub(crate) use crate::everywhere::{eventually, node_with};

/// Those that run here.
pub(crate) fn providers() -> Vec<&'static str> {
    crate::everywhere::providers(&["mem", "tcp", "shm"])
}

/// Two endpoints, each the other's peer.
pub(crate) struct Pair {
    pub(crate) a: Endpoint,
    pub(crate) b: Endpoint,
    pub(crate) to_b: Peer,
    pub(crate) to_a: Peer,
}

pub(crate) fn pair_with(provider: &str, attr: &RdmAttr) -> Pair {
    let node = node_with(provider, |settings| settings);
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

    /// Waits until [everything was given back](Pair::is_clean): a thread may be in the middle of that.
    pub(crate) async fn gives_all_back(&self) {
        eventually("all is given back", || self.is_clean()).await;
    }
    /// Everything was given back but for what the endpoints have themselves: slots and buffers.
    pub(crate) fn is_clean(&self) -> bool {
        self.a.operations() == 0
            && self.b.operations() == 0
            && self.a.pool().metrics().in_use == 0
            && self.a.pool().metrics().leaks == 0
    }
}

/// Runs it over each provider, by `block_on` and on tokio.
pub(crate) fn everywhere<F>(test: impl Fn(&'static str) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    crate::everywhere::over(providers(), test);
}
