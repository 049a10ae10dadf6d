//! Counters of dropped datagrams.

use fabric_core::DatagramDrops;

use crate::stats::Count;

/// What an endpoint dropped so far; see [`DatagramDrops`].
#[derive(Debug, Default)]
pub struct Drops {
    /// For want of a receive.
    pub no_receive: Count,
    /// Of others than this library.
    pub malformed: Count,
    /// That could not be handed to the network.
    pub unsent: Count,
}

impl Drops {
    /// The counts as they are now; `overrun` is counted elsewhere, if at all.
    pub fn snapshot(&self, overrun: Option<u64>) -> DatagramDrops {
        let mut drops = DatagramDrops::default();
        drops.no_receive = Some(self.no_receive.get());
        drops.malformed = Some(self.malformed.get());
        drops.unsent = Some(self.unsent.get());
        drops.overrun = overrun;
        drops
    }
}
