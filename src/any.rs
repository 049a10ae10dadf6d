//! The providers that are compiled in, behind one type each.
//!
//! The data path goes through enums: a predictable branch instead of a virtual call. `enum_dispatch` links
//! a trait to an enum by the trait's tokens, and only within one crate; the traits are in `fabric-core`.
//! That is why the module `tokens` feeds it the tokens a second time, from the macros that `fabric-core`
//! exports for it. The order matters: tokens first, in the text of this file, then the enums; the
//! implementations land beside the enums and are of the real traits, the ones imported here. The twin
//! traits that `tokens` declares are never used.
//!
//! Every enum has a variant `Dyn` for what is not compiled in: [`Catalog::add`](crate::Catalog::add).
//! Factories have associated types, which `enum_dispatch` cannot do, and are written by hand.

#![allow(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)] // the code that enum_dispatch writes

use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use enum_dispatch::enum_dispatch;
use fabric_core::attr::{CqAttr, EndpointAttr, ListenerAttr};
#[allow(unused_imports)] // named by the tokens
use fabric_core::ops::{Armed, CqOps, EndpointOps};
#[cfg(any(feature = "tcp", feature = "verbs"))]
use fabric_core::provider::{DomainOps, Provider};
use fabric_core::provider::{
    DynDomain, DynProvider, ListenerOps, ProviderCounters, RegistrationOps, RequestId,
};
use fabric_core::{
    Access, Device, EndpointId, Error, EventSink, Info, ListenerId, Posted, RawCompletion,
    RecvWork, Result, SendWork,
};
use fabric_util::sync::assert_none_held;

#[allow(dead_code, unreachable_pub, clippy::missing_safety_doc)]
mod tokens {
    use super::*;

    macro_rules! feed {
        ($($tokens:tt)*) => { #[enum_dispatch] $($tokens)* };
    }
    fabric_core::endpoint_ops_tokens!(feed);
    fabric_core::cq_ops_tokens!(feed);
}

#[enum_dispatch(EndpointOps)]
pub(crate) enum AnyEndpoint {
    #[cfg(feature = "tcp")]
    Tcp(provider_tcp::TcpEndpoint),
    #[cfg(feature = "verbs")]
    Verbs(provider_verbs::VerbsEndpoint),
    Dyn(Box<dyn EndpointOps>),
}

#[enum_dispatch(CqOps)]
pub(crate) enum AnyCq {
    #[cfg(feature = "tcp")]
    Tcp(provider_tcp::TcpCq),
    #[cfg(feature = "verbs")]
    Verbs(provider_verbs::VerbsCq),
    Dyn(Box<dyn CqOps>),
}

/// A provider, compiled in or added.
pub(crate) enum AnyProvider {
    #[cfg(feature = "tcp")]
    Tcp(provider_tcp::TcpProvider),
    #[cfg(feature = "verbs")]
    Verbs(provider_verbs::VerbsProvider),
    Dyn(Box<dyn DynProvider>),
}

/// An open device of any provider.
pub(crate) enum AnyDomain {
    #[cfg(feature = "tcp")]
    Tcp(provider_tcp::TcpDomain),
    #[cfg(feature = "verbs")]
    Verbs(provider_verbs::VerbsDomain),
    Dyn(Box<dyn DynDomain>),
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
    ) -> Result<AnyDomain> {
        Ok(match self {
            #[cfg(feature = "tcp")]
            AnyProvider::Tcp(provider) => {
                let provider = provider.gather(tcp.gather).adversary(tcp.adversary);
                AnyDomain::Tcp(Provider::open(&provider, info, events)?)
            }
            #[cfg(feature = "verbs")]
            AnyProvider::Verbs(provider) => {
                AnyDomain::Verbs(Provider::open(provider, info, events)?)
            }
            AnyProvider::Dyn(provider) => {
                assert_none_held("a provider is called");
                AnyDomain::Dyn(provider.open(info, events)?)
            }
        })
    }
}

impl AnyDomain {
    pub(crate) fn completion_queue(&self, attr: &CqAttr) -> Result<AnyCq> {
        Ok(match self {
            #[cfg(feature = "tcp")]
            AnyDomain::Tcp(domain) => AnyCq::Tcp(DomainOps::completion_queue(domain, attr)?),
            #[cfg(feature = "verbs")]
            AnyDomain::Verbs(domain) => AnyCq::Verbs(DomainOps::completion_queue(domain, attr)?),
            AnyDomain::Dyn(domain) => AnyCq::Dyn(domain.completion_queue(attr)?),
        })
    }

    /// # Safety
    /// As [`DynDomain::register`].
    pub(crate) unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Box<dyn RegistrationOps>> {
        Ok(match self {
            #[cfg(feature = "tcp")]
            AnyDomain::Tcp(domain) => Box::new(DomainOps::register(domain, addr, len, access)?),
            #[cfg(feature = "verbs")]
            AnyDomain::Verbs(domain) => Box::new(DomainOps::register(domain, addr, len, access)?),
            AnyDomain::Dyn(domain) => domain.register(addr, len, access)?,
        })
    }

    pub(crate) fn endpoint(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &AnyCq,
        recv_cq: &AnyCq,
    ) -> Result<AnyEndpoint> {
        match (self, send_cq, recv_cq) {
            #[cfg(feature = "tcp")]
            (AnyDomain::Tcp(domain), AnyCq::Tcp(send), AnyCq::Tcp(recv)) => {
                Ok(AnyEndpoint::Tcp(DomainOps::endpoint(domain, id, attr, send, recv)?))
            }
            #[cfg(feature = "verbs")]
            (AnyDomain::Verbs(domain), AnyCq::Verbs(send), AnyCq::Verbs(recv)) => {
                Ok(AnyEndpoint::Verbs(DomainOps::endpoint(domain, id, attr, send, recv)?))
            }
            (AnyDomain::Dyn(domain), AnyCq::Dyn(send), AnyCq::Dyn(recv)) => {
                Ok(AnyEndpoint::Dyn(domain.endpoint(id, attr, &**send, &**recv)?))
            }
            #[cfg(any(feature = "tcp", feature = "verbs"))]
            _ => Err(Error::invalid("make endpoint", "the queue is of another provider")),
        }
    }

    pub(crate) fn listen(
        &self,
        id: ListenerId,
        addr: SocketAddr,
        attr: &ListenerAttr,
    ) -> Result<Box<dyn ListenerOps>> {
        Ok(match self {
            #[cfg(feature = "tcp")]
            AnyDomain::Tcp(domain) => Box::new(DomainOps::listen(domain, id, addr, attr)?),
            #[cfg(feature = "verbs")]
            AnyDomain::Verbs(domain) => Box::new(DomainOps::listen(domain, id, addr, attr)?),
            AnyDomain::Dyn(domain) => domain.listen(id, addr, attr)?,
        })
    }

    pub(crate) fn reject(&self, request: RequestId, data: &[u8]) -> Result<()> {
        match self {
            #[cfg(feature = "tcp")]
            AnyDomain::Tcp(domain) => DomainOps::reject(domain, request, data),
            #[cfg(feature = "verbs")]
            AnyDomain::Verbs(domain) => DomainOps::reject(domain, request, data),
            AnyDomain::Dyn(domain) => domain.reject(request, data),
        }
    }

    pub(crate) fn counters(&self) -> ProviderCounters {
        match self {
            #[cfg(feature = "tcp")]
            AnyDomain::Tcp(domain) => DomainOps::counters(domain),
            #[cfg(feature = "verbs")]
            AnyDomain::Verbs(domain) => DomainOps::counters(domain),
            AnyDomain::Dyn(domain) => domain.counters(),
        }
    }

    pub(crate) fn dump(&self) -> String {
        match self {
            #[cfg(feature = "tcp")]
            AnyDomain::Tcp(domain) => DomainOps::dump(domain),
            #[cfg(feature = "verbs")]
            AnyDomain::Verbs(domain) => DomainOps::dump(domain),
            AnyDomain::Dyn(domain) => domain.dump(),
        }
    }
}
