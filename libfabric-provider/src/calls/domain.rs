//! Calls of a domain (`fi_domain(3)`).

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::common::{close, device};
use super::{av, cntr, cq, ep, mr, rdm, shared_context};
use crate::abi::flags::{FI_EP_RDM, FI_LOCAL_MR, FI_MR_LOCAL};
use crate::abi::{FiInfo, FidDomain, FidFabric, Ops, OpsDomain};
use crate::entry::{entry, handle_ops, no_bind, no_control, refused};
use crate::errno::Errno;
use crate::handle::{fid, object, open};
use crate::objects::devices::Fabric;
use crate::objects::domain::Domain;

static FID_OPS: Ops = handle_ops(close::<Domain>, no_bind, no_control);

static OPS: OpsDomain = OpsDomain {
    size: size_of::<OpsDomain>(),
    av_open: av::open_vector,
    cq_open: cq::open_queue,
    endpoint: ep::open_endpoint,
    scalable_ep: refused,
    cntr_open: cntr::open_counter,
    poll_open: refused,
    stx_ctx: shared_context::open_transmits,
    srx_ctx: shared_context::open_receives,
    query_atomic: rdm::query,
    query_collective: refused,
    endpoint2: refused,
};

/// `fi_domain(3)`
pub(super) unsafe extern "C" fn open_domain(
    fabric: *mut FidFabric,
    info: *mut FiInfo,
    domain: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    entry(|| {
        // SAFETY: a fabric of ours, an info of libfabric, a place for a handle.
        unsafe {
            let fabric = object::<Fabric>(fabric)?;
            let place = domain.as_mut().ok_or(Errno::INVALID)?;
            let device = device(fabric, info)?;
            let ep_attr = info.as_ref().and_then(|info| info.ep_attr.as_ref());
            let has_datagrams = ep_attr.is_some_and(|attr| attr.kind == FI_EP_RDM);
            let info = info.as_ref();
            let mr_mode = info.and_then(|info| info.domain_attr.as_ref()).map(|attr| attr.mr_mode);
            let has_local_regions = mr_mode.is_some_and(|mode| mode & FI_MR_LOCAL != 0)
                || info.is_some_and(|info| info.mode & FI_LOCAL_MR != 0);
            let fabric = fabric.clone();
            let domain = Domain { device, fabric, has_datagrams, has_local_regions };
            *place = open(Arc::new(domain), |_| FidDomain {
                fid: fid::<Domain>(context, &FID_OPS),
                ops: &OPS,
                mr: &mr::OPS,
            });
        }
        Ok(0)
    })
}
