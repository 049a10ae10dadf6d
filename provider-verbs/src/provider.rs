//! The provider: discovery and opening.

use std::sync::Arc;

use fabric_core::{Device, DomainAttr, EventSink, Info, Provider, Result};

use crate::device;
use crate::domain::VerbsDomain;
use crate::error::NAME;
use crate::open_device::TestLimits;

/// The RDMA verbs provider.
#[derive(Debug, Default)]
pub struct VerbsProvider {
    test_limits: TestLimits,
}

impl VerbsProvider {
    /// The provider.
    pub fn new() -> Self {
        Self::default()
    }

    /// On poorer devices.
    #[doc(hidden)]
    pub fn with_test_limits(test_limits: TestLimits) -> Self {
        VerbsProvider { test_limits }
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

    fn open(
        &self,
        info: &Info,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
    ) -> Result<VerbsDomain> {
        VerbsDomain::open(info, attr, events, self.test_limits)
    }
}
