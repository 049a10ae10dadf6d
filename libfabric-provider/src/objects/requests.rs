//! Connection requests that an application has been given, and has not answered yet.

use std::collections::VecDeque;
use std::sync::Mutex;

use fabric::ConnectRequest;

use crate::abi::flags::FI_CLASS_CONNREQ;
use crate::abi::{Fid, Ops};
use crate::entry::refused;
use crate::handle::Name;
use crate::sync::lock;

/// So many are kept; of more the oldest is rejected.
const MAX: usize = 4096;

/// See above; `D` is what a request keeps open.
pub(crate) struct Requests<D>(Mutex<VecDeque<Unanswered<D>>>);

struct Unanswered<D> {
    /// What an info's `handle` points to. libfabric's layers may look at the class; nothing else of it is used.
    handle: Box<RequestFid>,
    request: ConnectRequest,
    device: D,
}

/// A bare handle.
#[repr(C)]
struct RequestFid(Fid);

// SAFETY: it is constant; its context is null.
unsafe impl Send for RequestFid {}

static OPS: Ops = Ops {
    size: size_of::<Ops>(),
    close: closed,
    bind: bound,
    control: controlled,
    ops_open: refused,
    tostr: None,
    ops_set: None,
};

// A request is answered by an endpoint or by `fi_reject`, and has no calls of its own.
unsafe extern "C" fn closed(_: *mut Fid) -> std::ffi::c_int {
    -libc::ENOSYS
}
unsafe extern "C" fn bound(_: *mut Fid, _: *mut Fid, _: u64) -> std::ffi::c_int {
    -libc::ENOSYS
}
unsafe extern "C" fn controlled(
    _: *mut Fid,
    _: std::ffi::c_int,
    _: *mut std::ffi::c_void,
) -> std::ffi::c_int {
    -libc::ENOSYS
}

impl<D> Default for Requests<D> {
    fn default() -> Self {
        Requests(Mutex::default())
    }
}

impl<D> Requests<D> {
    /// Keeps a request until it is answered; the name is its handle.
    pub(crate) fn add(&self, request: ConnectRequest, device: D) -> Name {
        let fid = Fid { fclass: FI_CLASS_CONNREQ, context: std::ptr::null_mut(), ops: &OPS };
        let mut handle = Box::new(RequestFid(fid));
        let name = Name::of(&raw mut *handle);
        let mut all = lock(&self.0);
        // The oldest is dropped when the lock is open: that rejects it.
        let oldest = if all.len() == MAX { all.pop_front() } else { None };
        all.push_back(Unanswered { handle, request, device });
        drop(all);
        drop(oldest);
        name
    }

    /// Takes the request that a handle names, if it has not been answered.
    pub(crate) fn take(&self, name: Name) -> Option<(ConnectRequest, D)> {
        let mut all = lock(&self.0);
        let at = all
            .iter()
            .position(|one| std::ptr::from_ref(&*one.handle) as usize == name.address())?;
        all.remove(at).map(|one| (one.request, one.device))
    }
}
