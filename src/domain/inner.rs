//! What is common to everything that is made on a domain: the provider's part of it, and what the library counts.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use fabric_core::{DomainAttr, DynDomain, EndpointAttr, Error, Failure, Info, Result, Security};
use fabric_util::log_line;

use crate::choice::Selection;
use crate::counters::Counters;
use crate::event_router::EventRouter;
use crate::process::ForkChecked;
use crate::reclaim::Reclaim;
use crate::registry::EndpointRegistry;

pub(crate) struct DomainInner {
    pub(crate) ops: ForkChecked<Box<dyn DynDomain>>,
    pub(crate) events: Arc<EventRouter>,
    pub(crate) info: Info,
    pub(crate) security: Security,
    pub(crate) selection: Selection,
    /// What an endpoint is made with unless its builder says otherwise.
    pub(crate) defaults: EndpointAttr,
    pub(crate) endpoints: Arc<EndpointRegistry>,
    pub(crate) reclaim: Reclaim,
    next_id: AtomicU64,
    queues: AtomicUsize,
    /// Regions that stay registered since nothing proved that no device touches them.
    leaked: AtomicU64,
}

impl DomainInner {
    pub(crate) fn new(
        ops: Box<dyn DynDomain>,
        events: Arc<EventRouter>,
        info: Info,
        attr: DomainAttr,
        selection: Selection,
        defaults: EndpointAttr,
    ) -> Self {
        let endpoints = Arc::new(EndpointRegistry::new(&info));
        DomainInner {
            ops: ForkChecked::new(ops),
            events,
            info,
            security: attr.security,
            selection,
            defaults,
            reclaim: Reclaim::new(endpoints.clone()),
            endpoints,
            next_id: AtomicU64::new(1),
            queues: AtomicUsize::new(0),
            leaked: AtomicU64::new(0),
        }
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts one more completion queue, until its place is dropped.
    pub(crate) fn place_queue(self: &Arc<Self>) -> Result<QueuePlace> {
        let (max, provider) = (self.info.limits.completion_queues, self.info.provider);
        let more = |count| (count < max).then_some(count + 1);
        match self.queues.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(QueuePlace(self.clone())),
            Err(_) => Err(Error::NoMemory(Failure::new(
                "make completion queue",
                format!("the domain has {max} completion_queues, the most that {provider} takes"),
            ))),
        }
    }

    /// Whether no other completion queue is there.
    pub(crate) fn has_one_queue(&self) -> bool {
        self.queues.load(Ordering::Relaxed) == 1
    }

    pub(crate) fn count_leaked(&self, regions: u64) {
        self.leaked.fetch_add(regions, Ordering::Relaxed);
    }

    /// The same, and says why: how the provider answered when what had them in flight was to stop.
    pub(crate) fn report_leaked(
        &self,
        what: impl fmt::Display,
        regions: u64,
        quiesced: Option<Result<()>>,
    ) {
        self.count_leaked(regions);
        let why = match quiesced {
            Some(Err(error)) => error.to_string(),
            Some(Ok(())) => "an endpoint that used it could not be stopped".to_owned(),
            None => "the provider panicked".to_owned(),
        };
        log_line!(
            Error,
            "{what}: {why}; {regions} regions in flight stay registered until the process ends"
        );
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut sum = self.endpoints.counters();
        sum.leaked_regions = self.leaked.load(Ordering::Relaxed);
        sum.provider = self.ops.counters();
        sum
    }
}

impl fmt::Debug for DomainInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Domain({}:{})", self.info.provider, self.info.device)
    }
}

/// A completion queue's place among those of its domain.
pub(crate) struct QueuePlace(Arc<DomainInner>);

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.0.queues.fetch_sub(1, Ordering::Relaxed);
    }
}
