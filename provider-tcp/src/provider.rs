//! The provider: discovery and opening.

use std::marker::PhantomData;
use std::sync::Arc;

use fabric_core::{Device, EventSink, Info, Provider, Result};

use crate::device;
use crate::domain::TcpDomain;
use crate::policy::{Faithful, Policy};

/// The TCP provider.
#[derive(Debug)]
pub struct TcpProvider<P: Policy = Faithful>(PhantomData<fn() -> P>);

impl TcpProvider {
    /// The provider that users get.
    pub fn new() -> Self {
        TcpProvider(PhantomData)
    }
}

impl<P: Policy> TcpProvider<P> {
    /// A provider that goes wrong as `P` says, for tests of the conformance suite.
    #[doc(hidden)]
    pub fn with_policy() -> Self {
        TcpProvider(PhantomData)
    }
}

impl Default for TcpProvider {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Policy> Provider for TcpProvider<P> {
    type Domain = TcpDomain<P>;

    fn name(&self) -> &'static str {
        P::NAME
    }

    fn devices(&self) -> Vec<Device> {
        device::devices(P::NAME)
    }

    fn open(&self, info: &Info, events: Arc<dyn EventSink>) -> Result<TcpDomain<P>> {
        TcpDomain::open(info, events)
    }
}
