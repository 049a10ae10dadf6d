//! Calls of reliable datagram endpoints (`fi_endpoint(3)`), but for their names and transfers.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{atomic, cm, tagged};
use crate::abi::flags::{FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV};
use crate::abi::{Fid, FidEp, Ops, OpsEp};
use crate::calls::common::option;
use crate::calls::{any_ep, msg, refusals, rma};
use crate::discovery::RDM_INJECT;
use crate::entry::{entry, handle_ops, refused};
use crate::errno::Errno;
use crate::handle::{fid, of_fid, open};
use crate::objects::domain::Domain;
use crate::objects::endpoint::Wishes;
use crate::objects::rdm::endpoint::RdmEndpoint;

static FID_OPS: Ops = handle_ops(
    any_ep::close::<RdmEndpoint>,
    any_ep::bind::<RdmEndpoint>,
    any_ep::control::<RdmEndpoint>,
);

static OPS: OpsEp = OpsEp {
    size: size_of::<OpsEp>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: refused,
    rx_ctx: refused,
    rx_size_left: refused,
    tx_size_left: refused,
};

/// An endpoint with what its info asks for.
pub(in crate::calls) fn open_rdm(
    domain: &Arc<Domain>,
    wishes: Wishes,
    context: *mut c_void,
) -> Result<*mut FidEp, Errno> {
    // What is beyond that has no place, however often it is tried.
    if wishes.inject > RDM_INJECT {
        return Err(Errno::INVALID);
    }
    Ok(open(Arc::new(RdmEndpoint::new(domain, wishes)), |_| FidEp {
        fid: fid::<RdmEndpoint>(context, &FID_OPS),
        ops: &OPS,
        cm: &cm::CM,
        msg: msg::table::<RdmEndpoint>(),
        rma: rma::table::<RdmEndpoint>(),
        tagged: &tagged::OPS,
        atomic: &atomic::OPS,
        collective: &refusals::COLLECTIVE,
    }))
}

unsafe extern "C" fn cancel(handle: *mut Fid, context: *mut c_void) -> isize {
    entry(|| {
        // SAFETY: an endpoint of ours.
        unsafe { of_fid::<RdmEndpoint>(handle)? }.cancel(context as u64)?;
        Ok(0)
    })
}

unsafe extern "C" fn getopt(
    handle: *mut Fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    entry(|| {
        if (level, name) != (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) {
            return Err(Errno(libc::ENOPROTOOPT));
        }
        // SAFETY: an endpoint of ours, and as many bytes as the number says.
        unsafe {
            let min = &of_fid::<RdmEndpoint>(handle)?.min_multi_recv;
            option(min.load(Ordering::Relaxed), value, len)
        }
    })
}

unsafe extern "C" fn setopt(
    handle: *mut Fid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    entry(|| {
        if (level, name) != (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) {
            return Err(Errno(libc::ENOPROTOOPT));
        }
        if len != size_of::<usize>() {
            return Err(Errno::INVALID);
        }
        // SAFETY: an endpoint of ours, and so many bytes.
        unsafe {
            let value = *value.cast::<usize>().as_ref().ok_or(Errno::INVALID)?;
            of_fid::<RdmEndpoint>(handle)?.min_multi_recv.store(value, Ordering::Relaxed);
        }
        Ok(0)
    })
}
