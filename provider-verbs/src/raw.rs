//! The way out: libibverbs' own objects, for what this library does not offer.
//!
//! Pointers are as of `infiniband/verbs.h`, and untyped, so that the caller's binding of libibverbs need not be ours. The
//! process has `libibverbs.so.1` loaded, visible to all (`RTLD_GLOBAL`): a program that is linked to it, or loads it, has the same.

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::{VerbsDomain, VerbsEndpoint};

/// A domain's `ibv_context` and `ibv_pd`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RawDomain {
    /// `struct ibv_context *`.
    pub context: NonNull<c_void>,
    /// `struct ibv_pd *`.
    pub pd: NonNull<c_void>,
    /// The port, counted from 1.
    pub port: u8,
}

/// An endpoint's `ibv_qp`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RawEndpoint {
    /// `struct ibv_qp *`; null once the endpoint is quiesced.
    pub qp: *mut c_void,
}

impl VerbsDomain {
    /// The device's own objects.
    ///
    /// # Safety
    /// They belong to the domain and live as long as it: nothing of them may be destroyed, nothing that is made on
    /// them may outlive it, and its asynchronous events are taken by the domain's thread alone.
    pub unsafe fn raw(&self) -> RawDomain {
        let pd = &self.domain.device.pd;
        let (context, port) = (pd.context.as_non_null().cast(), self.domain.device.port);
        RawDomain { context, pd: pd.as_non_null().cast(), port }
    }
}

impl VerbsEndpoint {
    /// The queue pair.
    ///
    /// # Safety
    /// It belongs to the endpoint and lives until that is dropped. Code that posts to it, or moves its state, makes the
    /// library's completions and depths wrong: read its attributes, or modify what concerns neither.
    pub unsafe fn raw(&self) -> RawEndpoint {
        RawEndpoint { qp: self.conn.qp.as_ptr().cast() }
    }
}
