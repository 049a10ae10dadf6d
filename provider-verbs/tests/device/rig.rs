//! Domains, queues, and connected pairs of endpoints.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use fabric::{
    Access, Catalog, Choice, Completion, CompletionQueue, Domain, Endpoint, EndpointId, Event,
    EventQueue, Hints, Listener, Result, Status,
};
use provider_verbs::TestLimits;
use provider_verbs::VerbsProvider;

pub(crate) const SOON: Option<Duration> = Some(Duration::from_secs(30));

/// Names the device, where it is not to be the best.
pub(crate) const CHOICE: &str = "FABRIC_TEST_CHOICE";

/// Set for a process whose devices, once lost, report nothing of what is in flight.
pub(crate) const MUTE: &str = "FABRIC_TEST_MUTE";

pub(crate) fn try_open() -> Result<Domain> {
    let no_flush = std::env::var_os(MUTE).is_some();
    open_limited(TestLimits { no_flush, ..TestLimits::default() })
}

/// Opens the device as if it lacked something.
pub(crate) fn open_limited(test_limits: TestLimits) -> Result<Domain> {
    let catalog = Catalog::empty().add(VerbsProvider::with_test_limits(test_limits))?;
    catalog.open_with(&choice(), &Hints::default())
}

pub(crate) fn choice() -> Choice {
    Choice::parse(&std::env::var(CHOICE).unwrap_or("verbs".to_owned())).unwrap()
}

/// The device as programs open it, by the provider that is built in.
pub(crate) fn open_builtin() -> Result<Domain> {
    Catalog::builtin().open_with(&choice(), &Hints::default())
}

pub(crate) fn open() -> Domain {
    try_open().unwrap()
}

/// The first address of a domain, IPv4 if there is one.
pub(crate) fn address(domain: &Domain) -> IpAddr {
    let addresses = &domain.info().addresses;
    *addresses.iter().find(|ip| ip.is_ipv4()).or(addresses.first()).unwrap()
}

pub(crate) fn listen(domain: &Domain) -> Listener {
    domain.listen(SocketAddr::new(address(domain), 0)).unwrap()
}

/// Connects two endpoints.
pub(crate) fn join(listener: &Listener, from: &Endpoint, to: &Endpoint) {
    from.connect(listener.local_addr(), &[]).unwrap();
    listener.accept(SOON).unwrap().accept(to, &[]).unwrap();
    from.wait_connected(SOON).unwrap();
    to.wait_connected(SOON).unwrap();
}

/// A domain with a queue, and one endpoint.
pub(crate) struct Side {
    pub(crate) endpoint: Endpoint,
    pub(crate) queue: CompletionQueue,
    pub(crate) domain: Domain,
}

impl Side {
    pub(crate) fn new(liveness: Duration) -> Self {
        Side::on(&open(), liveness)
    }

    pub(crate) fn on(domain: &Domain, liveness: Duration) -> Self {
        let queue = domain.completion_queue(1024).unwrap();
        let endpoint = domain.endpoint().liveness(Some(liveness)).build(&queue).unwrap();
        Side { endpoint, queue, domain: domain.clone() }
    }
}

/// Takes `count` completions.
pub(crate) fn take(queue: &CompletionQueue, count: usize) -> Vec<Completion> {
    (0..count)
        .map(|taken| {
            let one = queue.wait_one(SOON);
            one.unwrap_or_else(|error| panic!("completion {taken} of {count}: {error}"))
        })
        .collect()
}

/// A connection's end is reported once, and nothing else of it.
pub(crate) fn ends_once(events: &EventQueue, endpoint: EndpointId) {
    std::thread::sleep(Duration::from_millis(300));
    while let Some(event) = events.poll() {
        assert_ne!(event.endpoint(), Some(endpoint), "{event:?}");
    }
}

/// Waits for the end of an endpoint, at most `within`.
pub(crate) fn end_of(endpoint: &Endpoint, within: Duration) -> fabric::DisconnectReason {
    let start = Instant::now();
    let reason = endpoint.wait_disconnected(Some(within)).unwrap();
    println!("{} ended after {:.2?}: {reason}", endpoint.id(), start.elapsed());
    reason
}

/// How many completions there are of each status.
pub(crate) fn count(completions: &[Completion], status: Status) -> usize {
    completions.iter().filter(|one| one.status == status).count()
}

/// Whether a queue had a completion that belonged to no endpoint.
pub(crate) fn has_strays(queue: &CompletionQueue) -> bool {
    !format!("{queue:?}").contains("unknown_tokens: 0")
}

/// A region that a peer may use as it likes.
pub(crate) fn open_region(domain: &Domain, len: usize) -> fabric::Region {
    domain.alloc(len, Access::ALL).unwrap()
}

/// Events of the domain itself.
pub(crate) fn device_lost_events(events: &EventQueue, quiet: Duration) -> usize {
    let mut lost = 0;
    while let Ok(event) = events.wait(Some(quiet)) {
        lost += usize::from(matches!(event, Event::DeviceLost));
    }
    lost
}
