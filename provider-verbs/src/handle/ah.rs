//! Address handles, by which datagrams find their way.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use super::context::Pd;
use super::destroy::destroyed;
use crate::ffi::{self, ibv_ah_attr, pointer};

/// An address handle.
pub(crate) struct Ah {
    ah: NonNull<ffi::ibv_ah>,
    _pd: Arc<Pd>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Ah {}
// SAFETY: as for `Context`.
unsafe impl Sync for Ah {}

/// Where a handle leads, and from where.
pub(crate) struct Route {
    pub(crate) gid: [u8; 16],
    /// Zero on RoCE.
    pub(crate) lid: u16,
    pub(crate) sgid_index: u8,
    pub(crate) port: u8,
}

impl Ah {
    /// On RoCE this asks the network for the hardware address of the host (ibv_create_ah(3)).
    pub(crate) fn new(pd: &Arc<Pd>, route: &Route) -> io::Result<Self> {
        let mut attr = MaybeUninit::<ibv_ah_attr>::zeroed();
        // SAFETY: plain numbers; zero is a value of each.
        let attr = unsafe { attr.assume_init_mut() };
        attr.grh.dgid.raw = route.gid;
        attr.grh.sgid_index = route.sgid_index;
        // As the connection manager sets it.
        attr.grh.hop_limit = 64;
        attr.dlid = route.lid;
        // On InfiniBand too, so that the receiver has the sender's GID.
        attr.is_global = 1;
        attr.port_num = route.port;
        // SAFETY: the protection domain lives as long as the handle, which holds it.
        let ah = unsafe { ffi::ibv_create_ah(pd.as_ptr(), attr) };
        Ok(Ah { ah: pointer("ibv_create_ah", ah)?, _pd: pd.clone() })
    }

    pub(crate) fn as_ptr(&self) -> *mut ffi::ibv_ah {
        self.ah.as_ptr()
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        // SAFETY: made by ibv_create_ah, destroyed once; the handles of the library hold it while a datagram for it is in flight.
        destroyed("ibv_destroy_ah", unsafe { ffi::ibv_destroy_ah(self.ah.as_ptr()) });
    }
}
