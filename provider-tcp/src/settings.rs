//! How a provider is set.

use std::os::fd::OwnedFd;
use std::time::Duration;

use fabric_util::fault::RandomSchedule;
use fabric_util::progress::Schedule;
use fabric_util::splitmix::mix;

use crate::transport::Stream;

/// How long a post is held back at most, unless set otherwise.
const HOLD: Duration = Duration::from_micros(50);

/// How a provider is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// How long posts may be held back; `None`: not at all.
    pub(crate) hold: Option<Duration>,
    /// For tests: the seed of the faults that are injected.
    pub(crate) adversary: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { hold: Some(HOLD), adversary: None }
    }
}

impl Settings {
    /// The transport of the connection with this name.
    pub(crate) fn stream(&self, socket: OwnedFd, name: usize) -> Stream {
        Stream::new(socket, self.adversary.map(|seed| mix(seed ^ mix(name as u64))))
    }

    /// The order in which connections are served, if it is not the usual one.
    pub(crate) fn schedule(&self) -> Option<Box<dyn Schedule>> {
        self.adversary.map(|seed| Box::new(RandomSchedule::new(seed)) as _)
    }
}
