//! Registrations: one with each of the two, which peers of both name in the same way.

use std::ops::Range;

use fabric_core::{Access, EndpointId, Error, GrantOps, RegistrationOps, RemoteAddr, Result};
use fabric_util::region_table::Registration;

use crate::ways::Ways;

/// A registration.
pub struct AutoRegistration {
    /// None where there could be none, and the far one did not end.
    near: Option<Registration>,
    /// Its keys are those of both: shared memory takes any.
    far: Box<dyn RegistrationOps>,
}

impl AutoRegistration {
    /// # Safety
    /// As [`DomainOps::register`](fabric_core::DomainOps::register).
    pub(crate) unsafe fn new(ways: &Ways, range: (*mut u8, usize), access: Access) -> Result<Self> {
        // SAFETY: the caller's promise.
        let mut far = unsafe { ways.far.register(range.0, range.1, access)? };
        let remote = RemoteAddr { key: far.remote_key(), addr: far.remote_base() };
        // Where peers may do nothing, many can have one key (Soft-RoCE: 0), and none has to name it.
        let remote = access.intersects(Access::REMOTE).then_some(remote);
        // SAFETY: the caller's promise.
        match unsafe { ways.near.register_at(range, access, remote) } {
            Ok(near) => Ok(AutoRegistration { near: Some(near), far }),
            Err(error) => match far.deregister() {
                Ok(()) => Err(error),
                // The device has the memory still: it must not be as if it had not.
                Err(_) => Ok(AutoRegistration { near: None, far }),
            },
        }
    }
}

// SAFETY: both have ended when this has; each opens the range with the rights given and nothing else, by the same key.
unsafe impl RegistrationOps for AutoRegistration {
    fn local_key(&self) -> u64 {
        // Shared memory asks for none.
        self.far.local_key()
    }

    fn remote_key(&self) -> u64 {
        self.far.remote_key()
    }

    fn remote_base(&self) -> u64 {
        self.far.remote_base()
    }

    unsafe fn grant(
        &self,
        endpoint: EndpointId,
        range: Range<usize>,
        access: Access,
    ) -> Result<Box<dyn GrantOps>> {
        if let Some(near) = &self.near {
            // SAFETY: the caller's promise.
            match unsafe { near.grant(endpoint, range.clone(), access) } {
                // It is no connection of shared memory, or has ended.
                Err(Error::NotConnected) => {}
                granted => return granted,
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.far.grant(endpoint, range, access) }
    }

    fn deregister(&mut self) -> Result<()> {
        // The far one last: as long as it is there, no other has its key.
        if let Some(near) = &mut self.near {
            near.deregister()?;
        }
        self.far.deregister()
    }
}
