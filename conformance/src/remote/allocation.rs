//! Memory that another host had allocated here, and how much of it all hosts may have.

use std::sync::Arc;

use fabric::{Domain, Error, Memory, Result};
use fabric_util::byte_quota::ByteQuota;
use fabric_util::fair_table::Network;

use crate::sys;

/// What all connections of a server may allocate together: seven eighths of the machine's memory. One network has three
/// quarters of all at most, since the longest message takes half of a machine of 2 GiB.
pub(super) fn quota() -> Arc<ByteQuota> {
    let memory = sys::physical_memory();
    ByteQuota::new(memory / 8 * 7, Some(memory / 4 * 3))
}

/// Memory, with its place in the quota.
pub(super) struct Allocation {
    pub(super) memory: Memory,
    /// Regions of it have it, too: with them it stays.
    pub(super) reserved: Arc<Reserved>,
}

/// So many bytes of the quota, until this is dropped.
pub(super) struct Reserved {
    quota: Arc<ByteQuota>,
    network: Network,
    len: u64,
}

impl Allocation {
    /// `len` zero bytes for a host of this network, of the domain's kind if there is one already.
    ///
    /// # Errors
    /// `NoMemory` if others have it, or its network has its share; or as [`Memory::zeroed`].
    pub(super) fn new(
        quota: &Arc<ByteQuota>,
        network: Network,
        len: u64,
        domain: Option<&Domain>,
    ) -> Result<Self> {
        if !quota.reserve(network, len) {
            let text = format!(
                "{len} more bytes: all hosts together have seven eighths of this machine's memory, and one network three quarters"
            );
            return Err(Error::NoMemory(fabric::Failure::new("allocate", text)));
        }
        let reserved = Arc::new(Reserved { quota: quota.clone(), network, len });
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let memory = domain.map_or_else(|| Memory::zeroed(len), |domain| domain.allocate(len))?;
        Ok(Allocation { memory, reserved })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.quota.give_back(self.network, self.len);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    #[test]
    fn memory_counts_as_long_as_a_region_of_it_is_there() {
        let quota = ByteQuota::new(1 << 20, Some(1 << 19));
        let network = Network::from(IpAddr::from(Ipv4Addr::LOCALHOST));
        let refused = |len| match Allocation::new(&quota, network, len, None) {
            Err(Error::NoMemory(failure)) => failure.to_string(),
            other => panic!("{:?}", other.map(|made| made.memory.len())),
        };
        let made = Allocation::new(&quota, network, 1 << 19, None).unwrap();
        let of_a_region = made.reserved.clone();
        assert!(refused(1).contains("seven eighths"));
        drop(made);
        refused(1);
        drop(of_a_region);
        // What cannot be had takes no place.
        refused(u64::MAX);
        assert_eq!(Allocation::new(&quota, network, 1 << 19, None).unwrap().memory.len(), 1 << 19);
    }
}
