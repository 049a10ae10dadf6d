//! Calls of contexts that endpoints share (`fi_endpoint(3)`).

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::common::{close, op_flags_command};
use super::options::OPS;
use super::{msg, refusals};
use crate::abi::flags::FI_ENABLE;
use crate::abi::{FiRxAttr, FiTxAttr, Fid, FidDomain, FidEp, FidStx, Ops};
use crate::discovery::default_depth;
use crate::entry::{entry, handle_ops, no_bind, no_control};
use crate::errno::Errno;
use crate::handle::{fid, object, of_fid, open};
use crate::objects::domain::Domain;
use crate::objects::shared_context::{SharedReceives, SharedTransmits};

static RX_OPS: Ops = handle_ops(close::<SharedReceives>, no_bind, control);
static TX_OPS: Ops = handle_ops(close::<SharedTransmits>, no_bind, no_control);

/// `fi_srx_context`
pub(super) unsafe extern "C" fn open_receives(
    domain: *mut FidDomain,
    attr: *mut FiRxAttr,
    context: *mut *mut FidEp,
    user: *mut c_void,
) -> c_int {
    entry(|| {
        // SAFETY: a domain of ours, attributes or null, a place for a handle.
        unsafe {
            let domain = object::<Domain>(domain)?;
            let place = context.as_mut().ok_or(Errno::INVALID)?;
            let attr = attr.as_ref();
            let (size, segments) = attr.map_or((0, 1), |attr| (attr.size, attr.iov_limit.max(1)));
            let max = domain.device.domain.info().limits.shared_depth;
            let depth = if size == 0 { default_depth(max) } else { size };
            let op_flags = attr.map_or(0, |attr| attr.op_flags);
            let receives = SharedReceives::new(domain, depth, segments, op_flags)?;
            *place = open(receives, |_| FidEp {
                fid: fid::<SharedReceives>(user, &RX_OPS),
                ops: &OPS,
                cm: (&raw const refusals::CM).cast(),
                msg: msg::table::<SharedReceives>(),
                rma: (&raw const refusals::RMA).cast(),
                tagged: (&raw const refusals::TAGGED).cast(),
                atomic: (&raw const refusals::ATOMIC).cast(),
                collective: &refusals::COLLECTIVE,
            });
        }
        Ok(0)
    })
}

/// `fi_stx_context`
pub(super) unsafe extern "C" fn open_transmits(
    domain: *mut FidDomain,
    _: *mut FiTxAttr,
    context: *mut *mut FidStx,
    user: *mut c_void,
) -> c_int {
    entry(|| {
        // SAFETY: a domain of ours, a place for a handle.
        unsafe {
            let domain = object::<Domain>(domain)?;
            let place = context.as_mut().ok_or(Errno::INVALID)?;
            *place = open(Arc::new(SharedTransmits::new(domain)), |_| FidStx {
                fid: fid::<SharedTransmits>(user, &TX_OPS),
                ops: &OPS,
            });
        }
        Ok(0)
    })
}

unsafe extern "C" fn control(handle: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    entry(|| {
        // It takes receives as soon as it is there.
        if command == FI_ENABLE {
            return Ok(0);
        }
        // SAFETY: a context of ours, and a number of 64 bits.
        unsafe { op_flags_command(&**of_fid::<SharedReceives>(handle)?, command, argument) }
    })
}
