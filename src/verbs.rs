//! The way out of this library, down to libibverbs: for what it does not offer. Nothing here is portable.

pub use provider_verbs::raw::{RawDomain, RawEndpoint};

use std::any::Any;

use crate::dispatch::AnyEndpoint;
use crate::domain::Domain;
use crate::endpoint::Endpoint;

/// The `ibv_context` and the `ibv_pd` of a domain; `None` on another provider, or in a forked child.
///
/// # Safety
/// They belong to the domain and live as long as it: nothing of them may be destroyed, nothing that is made on them may
/// outlive it, and its asynchronous events are taken by the domain's thread alone.
pub unsafe fn raw_domain(domain: &Domain) -> Option<RawDomain> {
    let ops = &domain.inner.ops;
    if !ops.is_current_process() {
        return None;
    }
    let domain = (&***ops as &dyn Any).downcast_ref::<provider_verbs::VerbsDomain>()?;
    // SAFETY: the caller's promise is passed on.
    Some(unsafe { domain.raw() })
}

/// The `ibv_qp` of an endpoint; `None` on another provider, or in a forked child.
///
/// # Safety
/// It belongs to the endpoint and lives until that is dropped. A program that posts to it, or moves its state, makes the
/// library's completions and depths wrong: read its attributes, or modify what concerns neither.
pub unsafe fn raw_endpoint(endpoint: &Endpoint) -> Option<RawEndpoint> {
    let ops = &endpoint.inner.ops;
    match &**ops {
        // SAFETY: the caller's promise is passed on.
        AnyEndpoint::Verbs(endpoint) if ops.is_current_process() => Some(unsafe { endpoint.raw() }),
        _ => None,
    }
}
