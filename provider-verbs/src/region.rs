//! Registrations.
//!
//! A remote key has the region's own key in its low half. In the high half is the key of the domain's flush word
//! (`scratch.rs`), which a delivery-complete write reads: the descriptor carries both to the peer.

use std::ops::Range;
use std::sync::Arc;

use fabric_core::{Access, EndpointId, Error, GrantOps, RegistrationOps, Result};

use crate::domain::state::DomainState;
use crate::error::{NAME, register_failed};
use crate::ffi::ibv_access_flags;
use crate::handle::Mr;
use crate::windows::GrantedPart;

/// A registration.
pub struct VerbsRegistration {
    mr: Mr,
    base: u64,
    access: Access,
    key: u64,
    domain: Arc<DomainState>,
}

impl VerbsRegistration {
    /// # Safety
    /// As [`DomainOps::register`](fabric_core::DomainOps::register).
    pub(crate) unsafe fn new(
        domain: &Arc<DomainState>,
        (addr, len): (*mut u8, usize),
        access: Access,
    ) -> Result<Self> {
        domain.device.check()?;
        // SAFETY: the caller's promise.
        let mr = unsafe { Mr::new(&domain.device.pd, (addr, len), addr as u64, flags(access)) };
        let mr = mr.map_err(|cause| register_failed("register", addr, len, cause))?;
        let key = u64::from(domain.device.scratch.flush_read_key()) << 32 | u64::from(mr.rkey());
        Ok(VerbsRegistration { mr, base: addr as u64, access, key, domain: domain.clone() })
    }
}

// SAFETY: `ibv_dereg_mr(3)` that succeeds has revoked the keys, and the device reaches the range no more; the memory
// region was made with these rights for this range alone.
unsafe impl RegistrationOps for VerbsRegistration {
    fn local_key(&self) -> u64 {
        self.mr.lkey().into()
    }

    fn remote_key(&self) -> u64 {
        self.key
    }

    fn remote_base(&self) -> u64 {
        self.base
    }

    unsafe fn grant(
        &self,
        endpoint: EndpointId,
        range: Range<usize>,
        access: Access,
    ) -> Result<Box<dyn GrantOps>> {
        self.domain.device.check()?;
        let conn = self.domain.conn_of(endpoint).ok_or(Error::NotConnected)?;
        let (addr, len) = (self.base + range.start as u64, range.len());
        let part = GrantedPart { addr, len, region: self.access, peer: access };
        // SAFETY: the caller's promise is passed on.
        unsafe { conn.grant(&part) }
    }

    fn deregister(&mut self) -> Result<()> {
        let ended = self.domain.device.unless_gone(self.mr.deregister());
        ended.map_err(|cause| Error::system("deregister", NAME, cause))?;
        self.mr.forget();
        self.domain.deregistered();
        Ok(())
    }
}

pub(crate) fn flags(access: Access) -> ibv_access_flags {
    let mut flags = ibv_access_flags(0);
    let pairs = [
        (Access::LOCAL_WRITE, ibv_access_flags::IBV_ACCESS_LOCAL_WRITE),
        (Access::REMOTE_READ, ibv_access_flags::IBV_ACCESS_REMOTE_READ),
        (Access::REMOTE_WRITE, ibv_access_flags::IBV_ACCESS_REMOTE_WRITE),
        (Access::REMOTE_ATOMIC, ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC),
        (Access::RELAXED_ORDERING, ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING),
    ];
    for (right, flag) in pairs {
        if access.contains(right) {
            flags |= flag;
        }
    }
    flags
}
