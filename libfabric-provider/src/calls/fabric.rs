//! Calls of a fabric (`fi_fabric(3)`, `fi_poll(3)`).

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::common::close;
use super::{domain, eq, pep};
use crate::abi::flags::{FI_CLASS_CQ, FI_CLASS_EQ};
use crate::abi::{FiFabricAttr, Fid, FidFabric, Ops, OpsFabric};
use crate::discovery::{FABRIC_NAME, owned::text};
use crate::entry::{entry, handle_ops, no_bind, no_control, refused};
use crate::errno::Errno;
use crate::handle::{class, fid, of_fid, open};
use crate::objects::devices::Fabric;
use crate::objects::domain::Queue;
use crate::objects::event_queue::Events;

static FID_OPS: Ops = handle_ops(close::<Fabric>, no_bind, no_control);

static OPS: OpsFabric = OpsFabric {
    size: size_of::<OpsFabric>(),
    domain: domain::open_domain,
    passive_ep: pep::open_passive,
    eq_open: eq::open_events,
    wait_open: refused,
    trywait,
    domain2: refused,
};

/// `fi_fabric(3)`
pub(super) unsafe extern "C" fn open_fabric(
    attr: *mut FiFabricAttr,
    fabric: *mut *mut FidFabric,
    context: *mut c_void,
) -> c_int {
    entry(|| {
        // SAFETY: the attributes are of an info, the handle is a place for one.
        let (attr, place) = unsafe { (attr.as_ref(), fabric.as_mut()) };
        let (attr, place) = (attr.ok_or(Errno::INVALID)?, place.ok_or(Errno::INVALID)?);
        // SAFETY: the texts of an info are null or end in zero.
        let name = unsafe { text(attr.name) };
        if name.is_some_and(|name| name.to_bytes() != FABRIC_NAME.as_bytes()) {
            return Err(Errno::NO_DATA);
        }
        let api_version = attr.api_version;
        *place = open(Arc::new(Fabric::new(api_version)), |_| FidFabric {
            fid: fid::<Fabric>(context, &FID_OPS),
            ops: &OPS,
            api_version,
        });
        Ok(0)
    })
}

/// Whether a thread may sleep on the wait objects of all of these.
unsafe extern "C" fn trywait(_: *mut FidFabric, handles: *mut *mut Fid, count: c_int) -> c_int {
    entry(|| {
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        if handles.is_null() {
            return Err(Errno::INVALID);
        }
        for at in 0..count {
            // SAFETY: `fi_poll(3)`, `fi_trywait`: so many handles, all of this fabric.
            let is_quiet = unsafe {
                let handle = *handles.add(at);
                match class(handle) {
                    Some(FI_CLASS_CQ) => of_fid::<Queue>(handle)?.completions.arm(false)?,
                    Some(FI_CLASS_EQ) => of_fid::<Events>(handle)?.is_quiet(),
                    _ => return Err(Errno::INVALID),
                }
            };
            if !is_quiet {
                return Err(Errno::AGAIN);
            }
        }
        Ok(0)
    })
}
