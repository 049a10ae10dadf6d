//! The application's own decision about requests for leases.

use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fabric::{Access, EndpointId};
use fabric_util::log_line;

/// What a peer asks for, within the [`LeasePolicy`](crate::LeasePolicy): see
/// [`NodeBuilder::decide_leases`](crate::NodeBuilder::decide_leases).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseRequest {
    /// The connection: its [`id`](crate::Connection::id).
    pub connection: EndpointId,
    /// The address of the peer, while it is connected.
    pub peer: Option<SocketAddr>,
    /// Bytes.
    pub len: u64,
    /// For how long from now.
    pub time: Duration,
    /// The rights.
    pub rights: Access,
    /// The lease that is to last longer; `None`: a new one.
    pub renews: Option<u64>,
}

type Decide = dyn Fn(&LeaseRequest) -> bool + Send + Sync;

/// Whether the application grants a request. By default it does.
#[derive(Clone, Default)]
pub(crate) struct LeaseDecision(Option<Arc<Decide>>);

impl LeaseDecision {
    pub(crate) fn new(decide: impl Fn(&LeaseRequest) -> bool + Send + Sync + 'static) -> Self {
        LeaseDecision(Some(Arc::new(decide)))
    }

    /// Asks the application. The caller holds no lock.
    pub(super) fn grants(&self, request: impl FnOnce() -> LeaseRequest) -> bool {
        let Some(decide) = &self.0 else { return true };
        let request = request();
        catch_unwind(AssertUnwindSafe(|| decide(&request))).unwrap_or_else(|_| {
            log_line!(Error, "fabric-async: the decision about a lease panicked, so it is refused");
            false
        })
    }
}

impl fmt::Debug for LeaseDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "the application's" } else { "none" })
    }
}
