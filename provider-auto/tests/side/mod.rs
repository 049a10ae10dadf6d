//! A domain with a queue and a region, and its connections.

#![allow(clippy::unwrap_used, dead_code)] // helpers of tests; not all of them use all

use std::time::Duration;

use fabric::{
    Access, Catalog, Choice, CompletionQueue, Domain, Endpoint, Hints, Listener, Region, Slices,
};

pub(crate) const SOON: Duration = Duration::from_secs(20);
pub(crate) const LEN: usize = 4096;

pub(crate) struct Side {
    pub(crate) domain: Domain,
    pub(crate) queue: CompletionQueue,
    pub(crate) region: Region,
}

impl Side {
    /// Of the provider that this names, without environment.
    pub(crate) fn new(provider: &str) -> Self {
        Self::of(&Catalog::builtin(), provider, &Hints::default())
    }

    pub(crate) fn of(catalog: &Catalog, provider: &str, hints: &Hints) -> Self {
        let domain = catalog.open_with(&Choice::parse(provider).unwrap(), hints).unwrap();
        let queue = domain.completion_queue(2048).unwrap();
        let region = domain.alloc(LEN, Access::ALL).unwrap();
        Side { domain, queue, region }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        self.domain.endpoint().build(&self.queue).unwrap()
    }

    pub(crate) fn listen(&self) -> Listener {
        self.domain.listen("127.0.0.1:0".parse().unwrap()).unwrap()
    }

    /// Connects to another side's listener: both ends.
    pub(crate) fn connect(&self, other: &Side, to: &Listener) -> (Endpoint, Endpoint) {
        let (near, far) = (self.endpoint(), other.endpoint());
        near.connect(to.local_addr(), b"hello").unwrap();
        let mut request = to.accept(Some(SOON)).unwrap();
        assert_eq!(request.private_data(), b"hello");
        request.accept(&far, b"welcome").unwrap();
        assert_eq!(&*near.wait_connected(Some(SOON)).unwrap(), b"welcome");
        far.wait_connected(Some(SOON)).unwrap();
        (near, far)
    }

    pub(crate) fn done(&self) -> u64 {
        let done = self.queue.wait_one(Some(SOON)).unwrap();
        assert!(done.is_ok(), "{done:?}");
        done.context
    }

    /// Sends an empty message that is known to have arrived.
    pub(crate) fn settle(&self, end: &Endpoint, other: &Side, peer: &Endpoint) {
        peer.recv(Slices::none(), 8).unwrap();
        end.inject(&[], 9).unwrap();
        assert_eq!((self.done(), other.done()), (9, 8));
    }
}

/// The provider that carries a connection.
pub(crate) fn way(end: &Endpoint) -> &'static str {
    end.path().unwrap().provider
}
