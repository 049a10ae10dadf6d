//! The provider: discovery and opening.

use std::sync::Arc;

use fabric_core::{Device, EventSink, Info, Provider, Result};

use crate::NAME;
use crate::device;
use crate::domain::TcpDomain;

/// The TCP provider.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpProvider {
    adversary: Option<u64>,
}

impl TcpProvider {
    /// The provider that users get.
    pub fn new() -> Self {
        Self::default()
    }

    /// For tests: with a seed, the provider takes every liberty that the contract leaves and that nature rarely takes.
    /// It cuts what it sends and receives anywhere, puts off acknowledgements, credits and answers, serves connections
    /// in odd orders and is late, but keeps the contract.
    pub fn adversary(self, seed: Option<u64>) -> Self {
        TcpProvider { adversary: seed.or(self.adversary) }
    }
}

impl Provider for TcpProvider {
    type Domain = TcpDomain;

    fn name(&self) -> &'static str {
        NAME
    }

    fn devices(&self) -> Vec<Device> {
        let mut devices = device::devices(NAME);
        if let Some(seed) = self.adversary {
            let detail = ("adversary".to_owned(), format!("on, seed {seed}"));
            let infos = devices.iter_mut().filter_map(|device| device.state.as_mut().ok());
            infos.for_each(|info| info.details.push(detail.clone()));
        }
        devices
    }

    fn open(&self, info: &Info, events: Arc<dyn EventSink>) -> Result<TcpDomain> {
        if let Some(seed) = self.adversary {
            log::warn!("{NAME}:{}: the adversary is on, seed {seed}", info.device);
        }
        TcpDomain::open(info, events, self.adversary)
    }
}
