//! What most tests of the handles start from: a connected endpoint of the null provider.

#![allow(dead_code, unreachable_pub)] // each test program uses its part
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use fabric::{
    Access, Catalog, Choice, Completion, CompletionQueue, Domain, Endpoint, EndpointBuilder, Error,
    Hints, Op, Region, RemoteRegion, RemoteSlice, Status,
};

use fabric_core::Provider;

use crate::null::{Control, Link, NullProvider};

/// A connected endpoint, its queue, and a region for both ends of its operations.
///
/// The fields drop in this order, but no test relies on it.
pub struct Rig {
    pub endpoint: Endpoint,
    pub region: Region,
    pub remote: RemoteRegion,
    pub queue: CompletionQueue,
    pub domain: Domain,
    pub control: Arc<Control>,
    pub link: Arc<Link>,
}

/// Where connections of tests go.
pub const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// A domain of the null provider.
pub fn domain() -> (Domain, Arc<Control>) {
    let provider = NullProvider::new();
    let control = provider.control();
    (domain_of(provider), control)
}

pub fn domain_of(provider: impl Provider) -> Domain {
    let catalog = Catalog::empty().add(provider).unwrap();
    catalog.open_with(&Choice::Auto, &Hints::default()).unwrap()
}

impl Rig {
    /// With depths of 8 on both sides.
    pub fn new() -> Self {
        Self::with(|builder| builder.send_depth(8).recv_depth(8))
    }

    pub fn with(settings: impl FnOnce(EndpointBuilder<'_>) -> EndpointBuilder<'_>) -> Self {
        let (domain, control) = domain();
        Self::on(domain, control, settings)
    }

    /// On a domain of the null provider, or of one that wraps it.
    pub fn on(
        domain: Domain,
        control: Arc<Control>,
        settings: impl FnOnce(EndpointBuilder<'_>) -> EndpointBuilder<'_>,
    ) -> Self {
        let queue = domain.completion_queue(1 << 10).unwrap();
        let endpoint = settings(domain.endpoint()).build(&queue).unwrap();
        connect(&endpoint);
        let region = domain.alloc(4096, Access::ALL).unwrap();
        let link = control.link(endpoint.id());
        Rig { endpoint, remote: region.remote(), region, queue, domain, control, link }
    }

    pub fn at(&self, offset: u64) -> RemoteSlice {
        self.remote.at(offset)
    }

    /// A write of 8 bytes.
    pub fn write(&self, context: u64) -> Op<'_> {
        Op::write(self.region.slice(..8), self.at(64)).context(context)
    }

    /// Takes everything there is: contexts and statuses.
    pub fn drain(&self) -> Vec<(u64, Status)> {
        drain(&self.queue)
    }
}

/// Connects; the null provider does that at once.
pub fn connect(endpoint: &Endpoint) {
    endpoint.connect(NOWHERE, &[]).unwrap();
    endpoint.wait_connected(None).unwrap();
}

/// Takes everything a queue has: contexts and statuses.
pub fn drain(queue: &CompletionQueue) -> Vec<(u64, Status)> {
    let mut out = [Completion::default(); 7];
    let mut all = Vec::new();
    loop {
        let count = queue.poll(&mut out).unwrap();
        all.extend(out[..count].iter().map(|c| (c.context, c.status)));
        if count < out.len() {
            return all;
        }
    }
}

/// That many contexts from `first` on, each with this status.
pub fn run(first: u64, count: usize, status: Status) -> Vec<(u64, Status)> {
    (first..).take(count).map(|context| (context, status)).collect()
}

/// The text of an `InvalidArgument`; anything else fails the test.
#[track_caller]
pub fn invalid<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::InvalidArgument(failure)) => failure.to_string(),
        other => panic!("expected InvalidArgument, got {other:?}"),
    }
}

/// Few rounds where each is slow.
pub const fn rounds(many: usize) -> usize {
    if cfg!(miri) { many / 2000 + 2 } else { many }
}
