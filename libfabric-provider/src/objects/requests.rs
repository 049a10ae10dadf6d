//! Connection requests that an application has been given, and has not answered yet.

use std::collections::VecDeque;
use std::sync::Mutex;

use fabric::ConnectRequest;

use crate::abi::flags::FI_CLASS_CONNREQ;
use crate::abi::{Fid, Ops};
use crate::entry::{handle_ops, no_bind, no_control};
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

// A request is answered by an endpoint or by `fi_reject`, and has no calls of its own.
static OPS: Ops = handle_ops(no_close, no_bind, no_control);

unsafe extern "C" fn no_close(_: *mut Fid) -> std::ffi::c_int {
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
