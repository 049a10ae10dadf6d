//! The provider: discovery and opening.

use std::sync::Arc;
use std::time::Duration;

use fabric_core::{Device, EventSink, Info, Provider, Result};
use fabric_util::log_line;

use crate::NAME;
use crate::device;
use crate::domain::TcpDomain;
use crate::settings::Settings;

/// The TCP provider.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpProvider {
    settings: Settings,
}

impl TcpProvider {
    /// The provider that users get.
    pub fn new() -> Self {
        Self::default()
    }

    /// For tests: with a seed, the provider takes every liberty that the contract leaves and that nature rarely takes.
    /// It cuts what it sends and receives anywhere, puts off acknowledgements, credits and answers, serves connections
    /// in odd orders and is late, but keeps the contract.
    pub fn adversary(mut self, seed: Option<u64>) -> Self {
        self.settings.adversary = seed.or(self.settings.adversary);
        self
    }

    /// How long a post may be held back, so that many go in one system call: it waits for the next poll, at most this long,
    /// and only while the application polls, earlier operations are unacknowledged, and little waits already. 50 us
    /// unless set; zero writes every post at once.
    pub fn gather(mut self, most: Option<Duration>) -> Self {
        if let Some(most) = most {
            self.settings.hold = (!most.is_zero()).then_some(most);
        }
        self
    }
}

impl Provider for TcpProvider {
    type Domain = TcpDomain;

    fn name(&self) -> &'static str {
        NAME
    }

    fn devices(&self) -> Vec<Device> {
        let mut devices = device::devices(NAME);
        if let Some(seed) = self.settings.adversary {
            let detail = ("adversary".to_owned(), format!("on, seed {seed}"));
            let infos = devices.iter_mut().filter_map(|device| device.state.as_mut().ok());
            infos.for_each(|info| info.details.push(detail.clone()));
        }
        devices
    }

    fn open(&self, info: &Info, events: Arc<dyn EventSink>) -> Result<TcpDomain> {
        if let Some(seed) = self.settings.adversary {
            log_line!(Warn, "{NAME}:{}: the adversary is on, seed {seed}", info.device);
        }
        TcpDomain::open(info, events, self.settings)
    }
}
