//! What peers may borrow on request.

use std::time::Duration;

use fabric::Access;

use crate::error::Result;

/// What peers may borrow of this process's memory on request.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// use fabric_async::{Error, LeasePolicy, Node, Refusal};
/// use std::time::Duration;
///
/// let minute = Duration::from_secs(60);
/// let mut policy = LeasePolicy::default();
/// policy.max_bytes = 1 << 20;
/// policy.max_duration = minute;
/// let node = Node::builder().lend(policy).build()?;
/// # doc::pair_on(&node, async |conn, peer| {
/// let refused = conn.request_lease(64, 2 * minute).await;
/// assert!(matches!(refused, Err(Error::NotGranted(Refusal::TooLong { max })) if max == minute));
/// let all = conn.request_lease(1 << 20, minute).await?;
/// assert!(conn.request_lease(8, minute).await.is_err()); // nothing is left
/// # drop(all);
/// # Ok(()) });
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeasePolicy {
    /// Maximum bytes that one connection has at a time; default 64 MiB, 0 lends nothing on request.
    pub max_bytes: u64,
    /// Maximum bytes that all connections of the node have at a time; `None`, the default, is half of the pool's bound, so
    /// that peers leave memory for messages.
    pub max_total_bytes: Option<u64>,
    /// Maximum bytes that all connections from one address (of IPv6: from one /64) have at a time; `None`, the default: at most
    /// a third of what is left for others then. So one address has a quarter of the total, and ten leave a twentieth of it.
    pub max_bytes_per_address: Option<u64>,
    /// Maximum leases that one connection has at a time; default 256.
    pub max_leases: usize,
    /// Maximum duration of a lease and of a renewal; default 10 minutes.
    pub max_duration: Duration,
    /// Maximum duration of a lease with all its renewals; `None`, the default: it is renewed as long as its connection lives.
    pub max_lifetime: Option<Duration>,
    /// The rights that can be asked for; default all of [`Access::REMOTE`].
    pub rights: Access,
}

impl Default for LeasePolicy {
    fn default() -> Self {
        LeasePolicy {
            max_bytes: 64 << 20,
            max_total_bytes: None,
            max_bytes_per_address: None,
            max_leases: 256,
            max_duration: Duration::from_secs(600),
            max_lifetime: None,
            rights: Access::REMOTE,
        }
    }
}

impl LeasePolicy {
    pub(crate) fn check(&self) -> Result<()> {
        if Access::REMOTE.contains(self.rights) {
            return Ok(());
        }
        let text = format!("a lease gives rights of {:?}, not {:?}", Access::REMOTE, self.rights);
        Err(fabric::Error::invalid("make node", text).into())
    }
}
