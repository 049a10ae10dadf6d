//! Calls that the kinds of endpoints share (`fi_endpoint(3)`, `fi_cm(3)`).

use std::ffi::{c_int, c_void};

use super::common::{bytes, op_flags_command, put_address};
use crate::abi::Fid;
use crate::abi::flags::{
    FI_CLASS_AV, FI_CLASS_CNTR, FI_CLASS_CQ, FI_CLASS_EQ, FI_CLASS_SRX_CTX, FI_CLASS_STX_CTX,
    FI_ENABLE,
};
use crate::discovery::address;
use crate::entry::entry;
use crate::errno::Errno;
use crate::handle::{Name, class, close as close_handle, of_fid};
use crate::objects::av::AddressVector;
use crate::objects::counter::Counter;
use crate::objects::domain::Queue;
use crate::objects::event::Owner;
use crate::objects::event_queue::Events;
use crate::objects::kinds::{ActiveEndpoint, AnyEndpoint};
use crate::objects::shared_context::{SharedReceives, SharedTransmits};

/// The handle, and the context that the application gave.
///
/// # Safety
/// A handle of ours.
pub(super) unsafe fn owner(handle: *mut Fid) -> Owner {
    // SAFETY: the caller's promise; an application may change the context, but not while it makes this call.
    Owner { name: Name::of(handle), context: unsafe { (*handle).context } as usize }
}

pub(super) unsafe extern "C" fn setname<E: AnyEndpoint>(
    handle: *mut Fid,
    to: *mut c_void,
    len: usize,
) -> c_int {
    entry(|| {
        // SAFETY: an endpoint of ours, and so many bytes.
        unsafe {
            let address = address::from_bytes(bytes(to, len)?).ok_or(Errno::INVALID)?;
            of_fid::<E>(handle)?.set_address(address)?;
        }
        Ok(0)
    })
}

pub(super) unsafe extern "C" fn getname<E: AnyEndpoint>(
    handle: *mut Fid,
    to: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: an endpoint of ours, and as many bytes as the number says.
    entry(|| unsafe { put_address(of_fid::<E>(handle)?.address()?, to, len) })
}

pub(super) unsafe extern "C" fn close<E: AnyEndpoint>(handle: *mut Fid) -> c_int {
    entry(|| {
        // SAFETY: `fi_close`: a handle of this table, not used again.
        unsafe {
            close_handle::<E>(handle, |endpoint| {
                endpoint.end(Name::of(handle));
                Ok(())
            })?;
        }
        Ok(0)
    })
}

pub(super) unsafe extern "C" fn bind<E: ActiveEndpoint>(
    handle: *mut Fid,
    to: *mut Fid,
    flags: u64,
) -> c_int {
    entry(|| {
        // SAFETY: an endpoint of ours, and another handle of ours.
        unsafe {
            let endpoint = of_fid::<E>(handle)?;
            match class(to) {
                Some(FI_CLASS_CQ) => endpoint.bind_queue(of_fid::<Queue>(to)?, flags)?,
                Some(FI_CLASS_AV) => endpoint.bind_vector(of_fid::<AddressVector>(to)?)?,
                Some(FI_CLASS_EQ) => endpoint.bind_events(of_fid::<Events>(to)?)?,
                Some(FI_CLASS_SRX_CTX) => endpoint.bind_receives(of_fid::<SharedReceives>(to)?)?,
                Some(FI_CLASS_STX_CTX) => {
                    endpoint.bind_transmits(of_fid::<SharedTransmits>(to)?)?
                }
                Some(FI_CLASS_CNTR) => endpoint.bind_counter(of_fid::<Counter>(to)?, flags)?,
                _ => return Err(Errno::INVALID),
            }
        }
        Ok(0)
    })
}

pub(super) unsafe extern "C" fn control<E: ActiveEndpoint>(
    handle: *mut Fid,
    command: c_int,
    argument: *mut c_void,
) -> c_int {
    entry(|| {
        // SAFETY: an endpoint of ours, and what the command takes: nothing, or a number of 64 bits.
        unsafe {
            let endpoint = of_fid::<E>(handle)?;
            if command == FI_ENABLE {
                endpoint.enable(owner(handle))?;
                return Ok(0);
            }
            op_flags_command(&**endpoint, command, argument)
        }
    })
}
