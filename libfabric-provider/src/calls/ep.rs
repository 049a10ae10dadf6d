//! Calls of endpoints (`fi_endpoint(3)`), but for connections and transfers.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::common::option;
use super::rdm::open_rdm;
use super::{any_ep, cm, msg, refusals, rma};
use crate::abi::flags::{FI_EP_RDM, FI_OPT_CM_DATA_SIZE, FI_OPT_ENDPOINT, FI_RX_CQ_DATA};
use crate::abi::{FiInfo, Fid, FidDomain, FidEp, Ops, OpsEp};
use crate::discovery::{CM_DATA_SIZE, address, default_depth};
use crate::entry::{entry, handle_ops, refused};
use crate::errno::Errno;
use crate::handle::{Name, fid, object, open};
use crate::objects::bound::{RX, TX};
use crate::objects::domain::Domain;
use crate::objects::endpoint::{MessageEndpoint, Wishes};

static FID_OPS: Ops = handle_ops(
    any_ep::close::<MessageEndpoint>,
    any_ep::bind::<MessageEndpoint>,
    any_ep::control::<MessageEndpoint>,
);

/// Of endpoints, passive or not: both have the same options.
pub(super) static OPS: OpsEp = OpsEp {
    size: size_of::<OpsEp>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: refused,
    rx_ctx: refused,
    rx_size_left: refused,
    tx_size_left: refused,
};

/// `fi_endpoint(3)`
pub(super) unsafe extern "C" fn open_endpoint(
    domain: *mut FidDomain,
    info: *mut FiInfo,
    endpoint: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    entry(|| {
        // SAFETY: a domain of ours, an info of libfabric, a place for a handle.
        unsafe {
            let domain = object::<Domain>(domain)?;
            let place = endpoint.as_mut().ok_or(Errno::INVALID)?;
            let info = info.as_ref().ok_or(Errno::INVALID)?;
            let wishes = wishes(domain, info)?;
            if info.ep_attr.as_ref().is_some_and(|attr| attr.kind == FI_EP_RDM) {
                *place = open_rdm(domain, wishes, context);
                return Ok(0);
            }
            let endpoint = Arc::new(MessageEndpoint::new(domain, wishes));
            *place = open(endpoint, |_| FidEp {
                fid: fid::<MessageEndpoint>(context, &FID_OPS),
                ops: &OPS,
                cm: &cm::CM,
                msg: msg::table::<MessageEndpoint>(),
                rma: rma::table::<MessageEndpoint>(),
                // Nothing reads more of them than functions that refuse.
                tagged: (&raw const refusals::TAGGED).cast(),
                atomic: (&raw const refusals::ATOMIC).cast(),
                collective: &refusals::COLLECTIVE,
            });
        }
        Ok(0)
    })
}

/// Reads what an info asks of an endpoint; what it does not say is as `fi_getinfo` has it.
///
/// # Safety
/// An info of libfabric.
unsafe fn wishes(domain: &Arc<Domain>, info: &FiInfo) -> Result<Wishes, Errno> {
    let limits = &domain.device.domain.info().limits;
    let mut wishes = Wishes {
        depths: [default_depth(limits.send_depth), default_depth(limits.recv_depth)],
        segments: [1, 1],
        inject: limits.inject,
        caps: info.caps,
        writes_data: info.mode & FI_RX_CQ_DATA != 0,
        op_flags: [0, 0],
        source: None,
        request: None,
    };
    // SAFETY: the caller's promise: the parts are null or there, an address has its length.
    unsafe {
        if let Some(tx) = info.tx_attr.as_ref() {
            (wishes.op_flags[TX], wishes.inject) = (tx.op_flags, tx.inject_size);
            wishes.depths[TX] = if tx.size == 0 { wishes.depths[TX] } else { tx.size };
            wishes.segments[TX] = tx.iov_limit.max(1);
        }
        if let Some(rx) = info.rx_attr.as_ref() {
            wishes.op_flags[RX] = rx.op_flags;
            wishes.writes_data |= rx.mode & FI_RX_CQ_DATA != 0;
            wishes.depths[RX] = if rx.size == 0 { wishes.depths[RX] } else { rx.size };
            wishes.segments[RX] = rx.iov_limit.max(1);
        }
        wishes.source = address::read(info.src_addr, Some(info.src_addrlen));
    }
    if !info.handle.is_null() {
        // A passive endpoint cannot become an active one, and no request is answered twice.
        let (request, device) =
            domain.fabric.requests.take(Name::of(info.handle)).ok_or(Errno::INVALID)?;
        if !Arc::ptr_eq(&device, &domain.device) {
            return Err(Errno::INVALID);
        }
        wishes.request = Some(request);
    }
    Ok(wishes)
}

/// No operation of a connection ends before it.
unsafe extern "C" fn cancel(_: *mut Fid, _: *mut c_void) -> isize {
    -(libc::ENOSYS as isize)
}

unsafe extern "C" fn getopt(
    _: *mut Fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    entry(|| {
        if (level, name) != (FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE) {
            return Err(Errno(libc::ENOPROTOOPT));
        }
        // SAFETY: `fi_endpoint(3)`, `fi_getopt`: as many bytes as the number says.
        unsafe { option(CM_DATA_SIZE, value, len) }
    })
}

unsafe extern "C" fn setopt(_: *mut Fid, _: c_int, _: c_int, _: *const c_void, _: usize) -> c_int {
    -libc::ENOPROTOOPT
}
