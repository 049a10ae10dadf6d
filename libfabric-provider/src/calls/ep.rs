//! Calls of endpoints (`fi_endpoint(3)`), but for connections and transfers.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::pep::passive;
use super::rdm::open_rdm;
use super::{any_ep, cm, msg, options, refusals, rma};
use crate::abi::flags::{FI_EP_RDM, FI_RX_CQ_DATA};
use crate::abi::{FiInfo, FidDomain, FidEp, Ops};
use crate::discovery::{RDM_INJECT, address, default_depth};
use crate::entry::{entry, handle_ops};
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
                *place = open_rdm(domain, wishes, context)?;
                return Ok(0);
            }
            let endpoint = Arc::new(MessageEndpoint::new(domain, wishes));
            *place = open(endpoint, |_| FidEp {
                fid: fid::<MessageEndpoint>(context, &FID_OPS),
                ops: &options::OPS,
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
        inject: limits.inject.min(RDM_INJECT),
        caps: info.caps,
        order: 0,
        writes_data: info.mode & FI_RX_CQ_DATA != 0,
        op_flags: [0, 0],
        source: None,
        keeps_port: false,
        request: None,
    };
    // SAFETY: the caller's promise: the parts are null or there, an address has its length.
    unsafe {
        if let Some(tx) = info.tx_attr.as_ref() {
            (wishes.op_flags[TX], wishes.inject) = (tx.op_flags, tx.inject_size);
            wishes.order = tx.msg_order;
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
        // SAFETY: a passive endpoint of ours is not closed meanwhile.
        if let Some(passive) = unsafe { passive(info.handle) } {
            (wishes.source, wishes.keeps_port) = (Some(passive.give_address(domain)?), true);
            return Ok(wishes);
        }
        // No request is answered twice.
        let (request, device) =
            domain.fabric.requests.take(Name::of(info.handle)).ok_or(Errno::INVALID)?;
        if !Arc::ptr_eq(&device, &domain.device) {
            return Err(Errno::INVALID);
        }
        wishes.request = Some(request);
    }
    Ok(wishes)
}
