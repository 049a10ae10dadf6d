//! A domain of the provider with a queue and a region.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use fabric::{Access, Catalog, Choice, CompletionQueue, Domain, Endpoint, Hints, Region};
use provider_shm::ShmProvider;

pub(crate) struct Side {
    pub(crate) domain: Domain,
    pub(crate) queue: CompletionQueue,
    pub(crate) region: Region,
}

impl Side {
    pub(crate) fn new(region: usize) -> Self {
        let catalog = Catalog::empty().add(ShmProvider::new()).unwrap();
        let domain = catalog.open_with(&Choice::Auto, &Hints::default()).unwrap();
        let queue = domain.completion_queue(1024).unwrap();
        let region = domain.alloc(region, Access::ALL).unwrap();
        Side { domain, queue, region }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        self.domain.endpoint().build(&self.queue).unwrap()
    }
}
