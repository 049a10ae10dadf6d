//! Listeners: one of each of the two, at one address.

use std::net::SocketAddr;

use fabric_core::provider::RawRequest;
use fabric_core::{Error, ListenerAttr, ListenerId, ListenerOps, Result};
use provider_shm::{ShmListener, near};

use crate::ways::{Ways, near_request};

/// Ports that are tried where any will do: each may be a listener's of shared memory alone.
const TRIES: usize = 16;

/// A listener.
pub struct AutoListener {
    near: ShmListener,
    far: Box<dyn ListenerOps>,
}

impl AutoListener {
    pub(crate) fn new(
        ways: &Ways,
        id: ListenerId,
        addr: SocketAddr,
        attr: &ListenerAttr,
    ) -> Result<Self> {
        let mut tries = if addr.port() == 0 { TRIES } else { 1 };
        loop {
            tries -= 1;
            let far = ways.far.listen(id, addr, attr)?;
            let listening = near::listen(far.local_addr())
                .map_err(|cause| Error::system("listen", provider_shm::NAME, cause));
            match listening.and_then(|socket| ways.near.listen_by(id, socket, attr)) {
                Err(Error::AddrInUse(_)) if tries > 0 => {}
                near => return Ok(AutoListener { near: near?, far }),
            }
        }
    }
}

impl ListenerOps for AutoListener {
    fn local_addr(&self) -> SocketAddr {
        self.far.local_addr()
    }

    fn next_request(&self) -> Option<RawRequest> {
        let Some(mut near) = self.near.next_request() else {
            return self.far.next_request();
        };
        near.id = near_request(near.id);
        Some(near)
    }
}
