//! The provider: discovery and opening.

use std::sync::Arc;

use fabric_core::{Device, DomainAttr, EventSink, Info, Provider, Result, Setting};
use fabric_util::log_line;

use crate::device;
use crate::domain::TcpDomain;
use crate::name::NAME;
use crate::settings::{SETTINGS, Settings};

/// The TCP provider. [`settings`](Provider::settings) has what can be set.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpProvider {
    settings: Settings,
}

impl TcpProvider {
    /// The provider that users get.
    pub fn new() -> Self {
        Self::default()
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

    fn settings(&self) -> &'static [Setting] {
        SETTINGS
    }

    fn configure(&self, name: &str, value: &str) -> Result<Self> {
        let settings = self.settings.with(name, value)?;
        Ok(TcpProvider { settings })
    }

    fn open(
        &self,
        info: &Info,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
    ) -> Result<TcpDomain> {
        if let Some(seed) = self.settings.adversary {
            log_line!(Warn, "{NAME}:{}: the adversary is on, seed {seed}", info.device);
        }
        TcpDomain::open(info, attr, events, self.settings)
    }
}
