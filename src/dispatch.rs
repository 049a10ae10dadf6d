//! Which provider's code the data path runs.
//!
//! A domain is a trait object, whichever provider it is of. What it makes for the data path is looked at once, when it is
//! made: the types of compiled-in providers go into an enum, a branch on which the compiler inlines their code into the
//! handles'. That is worth a seventh of the instructions of a poll of TCP that finds nothing (docs/performance.md). What is
//! not hot goes through the trait object that the enum derefs to.

#[cfg(any(feature = "tcp", feature = "verbs", feature = "shm"))]
use std::any::Any;
use std::ops::Deref;

use fabric_core::{CqOps, EndpointOps, Posted, RawCompletion, RecvWork, SendWork, cold_path};

/// An endpoint of any provider.
pub(crate) enum AnyEndpoint {
    /// Of one that is not compiled in.
    Other(Box<dyn EndpointOps>),
    #[cfg(feature = "tcp")]
    Tcp(provider_tcp::TcpEndpoint),
    #[cfg(feature = "shm")]
    Shm(provider_shm::ShmEndpoint),
    #[cfg(feature = "shm")]
    Auto(provider_auto::AutoEndpoint),
    #[cfg(feature = "verbs")]
    Verbs(provider_verbs::VerbsEndpoint),
}

/// A completion queue of any provider.
pub(crate) enum AnyCq {
    /// Of one that is not compiled in.
    Other(Box<dyn CqOps>),
    #[cfg(feature = "tcp")]
    Tcp(provider_tcp::TcpCq),
    #[cfg(feature = "shm")]
    Shm(provider_shm::ShmCq),
    #[cfg(feature = "shm")]
    Auto(provider_auto::AutoCq),
    #[cfg(feature = "verbs")]
    Verbs(provider_verbs::VerbsCq),
}

/// The same code for each type that the enum has; or other code for what is not compiled in.
macro_rules! branch {
    ($self:expr, $ops:ident => $code:expr) => {
        branch!($self, $ops => $code, $ops => $code)
    };
    ($self:expr, $other:ident => $of_other:expr, $ops:ident => $code:expr) => {
        match $self {
            Self::Other($other) => {
                cold_path();
                $of_other
            }
            #[cfg(feature = "tcp")]
            Self::Tcp($ops) => $code,
            #[cfg(feature = "shm")]
            Self::Shm($ops) => $code,
            #[cfg(feature = "shm")]
            Self::Auto($ops) => $code,
            #[cfg(feature = "verbs")]
            Self::Verbs($ops) => $code,
        }
    };
}

impl AnyEndpoint {
    /// See [`EndpointOps::post_send`].
    ///
    /// # Safety
    /// As [`EndpointOps::post_send`].
    #[inline]
    pub(crate) unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted {
        // SAFETY: the caller's promise.
        unsafe { branch!(self, ops => ops.post_send(work)) }
    }

    /// See [`EndpointOps::post_recv`].
    ///
    /// # Safety
    /// As [`EndpointOps::post_recv`].
    #[inline]
    pub(crate) unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        // SAFETY: the caller's promise.
        unsafe { branch!(self, ops => ops.post_recv(work)) }
    }
}

impl AnyCq {
    /// See [`CqOps::poll`].
    #[inline]
    pub(crate) fn poll(&self, out: &mut [RawCompletion]) -> usize {
        branch!(self, ops => ops.poll(out))
    }
}

impl Deref for AnyEndpoint {
    type Target = dyn EndpointOps;
    fn deref(&self) -> &Self::Target {
        branch!(self, other => &**other, ops => ops)
    }
}

impl Deref for AnyCq {
    type Target = dyn CqOps;
    fn deref(&self) -> &Self::Target {
        branch!(self, other => &**other, ops => ops)
    }
}

/// Returns the value in the box as this variant, if it is of this type.
#[cfg(any(feature = "tcp", feature = "verbs", feature = "shm"))]
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
        #[cfg(feature = "shm")]
        return_as!(AnyEndpoint::Shm, provider_shm::ShmEndpoint, ops);
        #[cfg(feature = "shm")]
        return_as!(AnyEndpoint::Auto, provider_auto::AutoEndpoint, ops);
        #[cfg(feature = "verbs")]
        return_as!(AnyEndpoint::Verbs, provider_verbs::VerbsEndpoint, ops);
        AnyEndpoint::Other(ops)
    }
}

impl From<Box<dyn CqOps>> for AnyCq {
    fn from(ops: Box<dyn CqOps>) -> Self {
        #[cfg(feature = "tcp")]
        return_as!(AnyCq::Tcp, provider_tcp::TcpCq, ops);
        #[cfg(feature = "shm")]
        return_as!(AnyCq::Shm, provider_shm::ShmCq, ops);
        #[cfg(feature = "shm")]
        return_as!(AnyCq::Auto, provider_auto::AutoCq, ops);
        #[cfg(feature = "verbs")]
        return_as!(AnyCq::Verbs, provider_verbs::VerbsCq, ops);
        AnyCq::Other(ops)
    }
}
