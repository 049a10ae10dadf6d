//! The provider: discovery and opening.

use std::marker::PhantomData;
use std::sync::Arc;

use fabric_core::{Device, DomainAttr, EventSink, Info, Provider, Result, Setting};

use super::domain::SocketDomain;
use super::family::SocketFamily;
use super::interfaces;
use super::settings::{self, SocketSettings};
use crate::log_line;

/// The provider over a kind of sockets. [`settings`](Provider::settings) has what can be set.
pub struct SocketProvider<F> {
    settings: SocketSettings,
    family: PhantomData<fn() -> F>,
}

impl<F: SocketFamily> SocketProvider<F> {
    /// The provider that users get.
    pub fn new() -> Self {
        Self { settings: SocketSettings::default(), family: PhantomData }
    }
}

impl<F> Clone for SocketProvider<F> {
    fn clone(&self) -> Self {
        Self { settings: self.settings, family: PhantomData }
    }
}

impl<F: SocketFamily> Default for SocketProvider<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F: SocketFamily> Provider for SocketProvider<F> {
    type Domain = SocketDomain<F>;

    fn name(&self) -> &'static str {
        F::NAME
    }

    fn devices(&self) -> Vec<Device> {
        let mut devices = interfaces::devices::<F>();
        for info in devices.iter_mut().filter_map(|device| device.state.as_mut().ok()) {
            self.settings.declare::<F>(info);
        }
        devices
    }

    fn pools_receives(&self) -> bool {
        true
    }

    fn settings(&self) -> &'static [Setting] {
        settings::settings::<F>()
    }

    fn configure(&self, name: &str, value: &str) -> Result<Self> {
        let settings = self.settings.with::<F>(name, value)?;
        Ok(Self { settings, family: PhantomData })
    }

    fn open(
        &self,
        info: &Info,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
    ) -> Result<SocketDomain<F>> {
        if let Some(seed) = self.settings.adversary {
            log_line!(Warn, "{}:{}: the adversary is on, seed {seed}", F::NAME, info.device);
        }
        SocketDomain::open(info, attr, events, self.settings)
    }
}
