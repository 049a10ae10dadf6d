//! Which provider's code the data path runs.
//!
//! A domain is a trait object, whichever provider it is of. What it makes for the data path is looked at once, when it is
//! made: the types of compiled-in providers go into an enum, a branch on which the compiler inlines their code into the
//! handles'. That is worth a seventh of the instructions of a poll of TCP that finds nothing (docs/performance.md). What is
//! not hot goes through the trait object that the enum derefs to.

#![allow(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)] // the code that enum_dispatch writes

#[cfg(any(feature = "tcp", feature = "verbs"))]
use std::any::Any;
use std::ops::Deref;

use enum_dispatch::enum_dispatch;
use fabric_core::{CqOps, EndpointOps, Posted, RawCompletion, RecvWork, SendWork};

/// What is hot of [`EndpointOps`].
#[enum_dispatch]
pub(crate) trait EndpointDispatch {
    /// See [`EndpointOps::post_send`].
    ///
    /// # Safety
    /// As [`EndpointOps::post_send`].
    unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted;

    /// See [`EndpointOps::post_recv`].
    ///
    /// # Safety
    /// As [`EndpointOps::post_recv`].
    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted;

    fn ops(&self) -> &dyn EndpointOps;
}

/// What is hot of [`CqOps`].
#[enum_dispatch]
pub(crate) trait CqDispatch {
    /// See [`CqOps::poll`].
    fn poll(&self, out: &mut [RawCompletion]) -> usize;

    fn ops(&self) -> &dyn CqOps;
}

/// An endpoint of any provider.
#[enum_dispatch(EndpointDispatch)]
pub(crate) enum AnyEndpoint {
    Other(OtherEndpoint),
    #[cfg(feature = "tcp")]
    Tcp(provider_tcp::TcpEndpoint),
    #[cfg(feature = "verbs")]
    Verbs(provider_verbs::VerbsEndpoint),
}

/// A completion queue of any provider.
#[enum_dispatch(CqDispatch)]
pub(crate) enum AnyCq {
    Other(OtherCq),
    #[cfg(feature = "tcp")]
    Tcp(provider_tcp::TcpCq),
    #[cfg(feature = "verbs")]
    Verbs(provider_verbs::VerbsCq),
}

/// Of a provider that is not compiled in.
pub(crate) struct OtherEndpoint(Box<dyn EndpointOps>);

/// Of a provider that is not compiled in.
pub(crate) struct OtherCq(Box<dyn CqOps>);

impl<T: EndpointOps> EndpointDispatch for T {
    #[inline]
    unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted {
        EndpointOps::post_send(self, work)
    }

    #[inline]
    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        EndpointOps::post_recv(self, work)
    }

    fn ops(&self) -> &dyn EndpointOps {
        self
    }
}

impl EndpointDispatch for OtherEndpoint {
    #[inline]
    unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted {
        self.0.post_send(work)
    }

    #[inline]
    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        self.0.post_recv(work)
    }

    fn ops(&self) -> &dyn EndpointOps {
        &*self.0
    }
}

impl<T: CqOps> CqDispatch for T {
    #[inline]
    fn poll(&self, out: &mut [RawCompletion]) -> usize {
        CqOps::poll(self, out)
    }

    fn ops(&self) -> &dyn CqOps {
        self
    }
}

impl CqDispatch for OtherCq {
    #[inline]
    fn poll(&self, out: &mut [RawCompletion]) -> usize {
        self.0.poll(out)
    }

    fn ops(&self) -> &dyn CqOps {
        &*self.0
    }
}

impl Deref for AnyEndpoint {
    type Target = dyn EndpointOps;
    fn deref(&self) -> &Self::Target {
        self.ops()
    }
}

impl Deref for AnyCq {
    type Target = dyn CqOps;
    fn deref(&self) -> &Self::Target {
        self.ops()
    }
}

/// Returns the value in the box as this variant, if it is of this type.
#[cfg(any(feature = "tcp", feature = "verbs"))]
macro_rules! return_as {
    ($variant:path, $ty:ty, $ops:ident) => {
        if (&*$ops as &dyn Any).is::<$ty>() {
            match ($ops as Box<dyn Any>).downcast::<$ty>() {
                Ok(ops) => return $variant(*ops),
                Err(_) => unreachable!("its type was asked for"),
            }
        }
    };
}

impl From<Box<dyn EndpointOps>> for AnyEndpoint {
    fn from(ops: Box<dyn EndpointOps>) -> Self {
        #[cfg(feature = "tcp")]
        return_as!(AnyEndpoint::Tcp, provider_tcp::TcpEndpoint, ops);
        #[cfg(feature = "verbs")]
        return_as!(AnyEndpoint::Verbs, provider_verbs::VerbsEndpoint, ops);
        AnyEndpoint::Other(OtherEndpoint(ops))
    }
}

impl From<Box<dyn CqOps>> for AnyCq {
    fn from(ops: Box<dyn CqOps>) -> Self {
        #[cfg(feature = "tcp")]
        return_as!(AnyCq::Tcp, provider_tcp::TcpCq, ops);
        #[cfg(feature = "verbs")]
        return_as!(AnyCq::Verbs, provider_verbs::VerbsCq, ops);
        AnyCq::Other(OtherCq(ops))
    }
}
