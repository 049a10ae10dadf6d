//! Calls of reliable datagram endpoints (`fi_endpoint(3)`), but for their names and transfers.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{atomic, cm, tagged};
use crate::abi::flags::{
    FI_CLASS_AV, FI_CLASS_CNTR, FI_CLASS_CQ, FI_CLASS_EQ, FI_ENABLE, FI_OPT_ENDPOINT,
    FI_OPT_MIN_MULTI_RECV,
};
use crate::abi::{Fid, FidEp, Ops, OpsEp};
use crate::calls::common::{op_flags_command, option};
use crate::calls::{msg, refusals, rma};
use crate::entry::{entry, handle_ops, refused};
use crate::errno::Errno;
use crate::handle::{class, close as close_handle, fid, of_fid, open};
use crate::objects::av::AddressVector;
use crate::objects::counter::Counter;
use crate::objects::domain::{Domain, Queue};
use crate::objects::endpoint::Wishes;
use crate::objects::event_queue::Events;
use crate::objects::rdm::endpoint::RdmEndpoint;

static FID_OPS: Ops = handle_ops(close, bind, control);

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
) -> *mut FidEp {
    open(Arc::new(RdmEndpoint::new(domain, wishes)), |_| FidEp {
        fid: fid::<RdmEndpoint>(context, &FID_OPS),
        ops: &OPS,
        cm: &cm::CM,
        msg: msg::table::<RdmEndpoint>(),
        rma: rma::table::<RdmEndpoint>(),
        tagged: &tagged::OPS,
        atomic: &atomic::OPS,
        collective: &refusals::COLLECTIVE,
    })
}

unsafe extern "C" fn close(handle: *mut Fid) -> c_int {
    entry(|| {
        // SAFETY: `fi_close`: a handle of this table, not used again.
        unsafe { close_handle::<RdmEndpoint>(handle)? }.end();
        Ok(0)
    })
}

unsafe extern "C" fn bind(handle: *mut Fid, to: *mut Fid, flags: u64) -> c_int {
    entry(|| {
        // SAFETY: an endpoint of ours, and another handle of ours.
        unsafe {
            let endpoint = of_fid::<RdmEndpoint>(handle)?;
            match class(to) {
                Some(FI_CLASS_CQ) => endpoint.bind_queue(of_fid::<Queue>(to)?, flags)?,
                Some(FI_CLASS_AV) => endpoint.bind_vector(of_fid::<AddressVector>(to)?)?,
                Some(FI_CLASS_EQ) => endpoint.bind_events(of_fid::<Events>(to)?)?,
                Some(FI_CLASS_CNTR) => endpoint.bind_counter(of_fid::<Counter>(to)?, flags)?,
                _ => return Err(Errno::INVALID),
            }
        }
        Ok(0)
    })
}

unsafe extern "C" fn control(handle: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    entry(|| {
        // SAFETY: an endpoint of ours, and what the command takes: nothing, or a number of 64 bits.
        unsafe {
            let endpoint = of_fid::<RdmEndpoint>(handle)?;
            if command == FI_ENABLE {
                endpoint.enable()?;
                return Ok(0);
            }
            op_flags_command(&**endpoint, command, argument)
        }
    })
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
