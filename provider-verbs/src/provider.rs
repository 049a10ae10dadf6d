//! The provider: discovery and opening.

use std::sync::Arc;

use fabric_core::{Device, EventSink, Info, Provider, Result};

use crate::domain::VerbsDomain;
use crate::{NAME, device};

/// The RDMA verbs provider.
#[derive(Debug, Default)]
pub struct VerbsProvider {
    poor: Poor,
}

/// A device poorer than it is, so that tests see what the provider does on such a one.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Poor {
    /// Requests carry no bytes.
    pub no_inline: bool,
    /// Once it is lost, its queue pairs cannot be flushed.
    pub no_flush: bool,
    /// The domain's thread panics at the first event of a connection.
    pub faulty: bool,
}

impl VerbsProvider {
    /// The provider.
    pub fn new() -> Self {
        Self::default()
    }

    /// On poorer devices.
    #[doc(hidden)]
    pub fn poor(poor: Poor) -> Self {
        VerbsProvider { poor }
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
        VerbsDomain::open(info, events, self.poor)
    }
}
