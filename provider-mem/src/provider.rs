//! The provider: discovery and opening.

use std::sync::Arc;

use fabric_core::{Device, DomainAttr, EventSink, Info, Provider, Result};

use crate::device;
use crate::domain::MemDomain;
use crate::name::NAME;

/// The provider in memory. All of its domains in a process reach each other.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct MemProvider {}

impl MemProvider {
    /// The provider.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Provider for MemProvider {
    type Domain = MemDomain;

    fn name(&self) -> &'static str {
        NAME
    }

    fn devices(&self) -> Vec<Device> {
        vec![device::device()]
    }

    fn open(
        &self,
        info: &Info,
        _attr: &DomainAttr,
        events: Arc<dyn EventSink>,
    ) -> Result<MemDomain> {
        // Both ends are in this process: no level is offered.
        MemDomain::open(info, events)
    }
}
