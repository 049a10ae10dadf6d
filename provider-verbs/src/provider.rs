//! The provider: discovery and opening.

use std::sync::Arc;

use fabric_core::{Device, EventSink, Info, Provider, Result};

use crate::domain::VerbsDomain;
use crate::{NAME, device};

/// The RDMA verbs provider.
#[derive(Debug, Default)]
pub struct VerbsProvider(());

impl VerbsProvider {
    /// The provider.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Provider for VerbsProvider {
    type Domain = VerbsDomain;

    fn name(&self) -> &'static str {
        NAME
    }

    fn devices(&self) -> Vec<Device> {
        device::devices()
    }

    fn open(&self, info: &Info, events: Arc<dyn EventSink>) -> Result<VerbsDomain> {
        VerbsDomain::open(info, events)
    }
}
