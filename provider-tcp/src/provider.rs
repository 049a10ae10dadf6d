//! The provider: discovery and opening.

use std::sync::Arc;

use fabric_core::{Device, EventSink, Info, Provider, Result};

use crate::NAME;
use crate::device;
use crate::domain::TcpDomain;

/// The TCP provider.
#[derive(Debug)]
pub struct TcpProvider;

impl TcpProvider {
    /// The provider that users get.
    pub fn new() -> Self {
        TcpProvider
    }
}

impl Default for TcpProvider {
    fn default() -> Self {
        Self::new()
    }
}

impl Provider for TcpProvider {
    type Domain = TcpDomain;

    fn name(&self) -> &'static str {
        NAME
    }

    fn devices(&self) -> Vec<Device> {
        device::devices(NAME)
    }

    fn open(&self, info: &Info, events: Arc<dyn EventSink>) -> Result<TcpDomain> {
        TcpDomain::open(info, events)
    }
}
