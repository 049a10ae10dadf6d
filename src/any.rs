//! The providers that are compiled in, and those that are added, behind one type. What they open is a trait object.

use std::sync::Arc;

#[cfg(any(feature = "tcp", feature = "verbs"))]
use fabric_core::provider::Provider;
use fabric_core::provider::{DynDomain, DynProvider};
use fabric_core::{Device, EventSink, Info, Result};
use fabric_util::sync::assert_none_held;

/// A provider, compiled in or added.
pub(crate) enum AnyProvider {
    #[cfg(feature = "tcp")]
    Tcp(provider_tcp::TcpProvider),
    #[cfg(feature = "verbs")]
    Verbs(provider_verbs::VerbsProvider),
    Dyn(Box<dyn DynProvider>),
}

impl AnyProvider {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            #[cfg(feature = "tcp")]
            AnyProvider::Tcp(provider) => Provider::name(provider),
            #[cfg(feature = "verbs")]
            AnyProvider::Verbs(provider) => Provider::name(provider),
            AnyProvider::Dyn(provider) => provider.name(),
        }
    }

    /// For tests: with a seed, the provider takes every liberty that the contract leaves, if it knows how to.
    #[cfg_attr(not(feature = "tcp"), allow(unused_variables))]
    pub(crate) fn adversary(&mut self, seed: Option<u64>) {
        #[cfg(feature = "tcp")]
        if let AnyProvider::Tcp(provider) = self {
            *provider = provider.adversary(seed);
        }
    }

    pub(crate) fn devices(&self) -> Vec<Device> {
        match self {
            #[cfg(feature = "tcp")]
            AnyProvider::Tcp(provider) => Provider::devices(provider),
            #[cfg(feature = "verbs")]
            AnyProvider::Verbs(provider) => Provider::devices(provider),
            AnyProvider::Dyn(provider) => {
                assert_none_held("a provider is called");
                provider.devices()
            }
        }
    }

    #[cfg_attr(not(feature = "tcp"), allow(unused_variables))]
    pub(crate) fn open(
        &self,
        info: &Info,
        events: Arc<dyn EventSink>,
        tcp: crate::env::Tcp,
    ) -> Result<Box<dyn DynDomain>> {
        Ok(match self {
            #[cfg(feature = "tcp")]
            AnyProvider::Tcp(provider) => {
                let provider = provider.gather(tcp.gather).adversary(tcp.adversary);
                Box::new(Provider::open(&provider, info, events)?)
            }
            #[cfg(feature = "verbs")]
            AnyProvider::Verbs(provider) => Box::new(Provider::open(provider, info, events)?),
            AnyProvider::Dyn(provider) => {
                assert_none_held("a provider is called");
                provider.open(info, events)?
            }
        })
    }
}
