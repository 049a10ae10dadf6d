//! Listeners: one of each of the two, at one address.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use fabric_core::provider::RawRequest;
use fabric_core::{Error, ListenerAttr, ListenerId, ListenerOps, Result};
use fabric_util::log_line;
use provider_shm::{ShmListener, near};

use crate::ways::{Ways, near_request};

/// Ports that are tried where any will do: each may be a listener's of shared memory alone.
const TRIES: usize = 16;

/// A listener.
pub struct AutoListener {
    /// None where this process may not share memory.
    near: Option<ShmListener>,
    far: Box<dyn ListenerOps>,
    /// The next request is looked for at the far one first: the near one may always have some.
    far_first: AtomicBool,
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
            let near = match near::listen(far.local_addr()) {
                Err(cause) if near::is_forbidden(&cause) => {
                    let addr = far.local_addr();
                    log_line!(Warn, "listener {addr}: this process may not share memory: {cause}");
                    Ok(None)
                }
                Err(cause) => Err(Error::system("listen", provider_shm::NAME, cause)),
                Ok(socket) => ways.near.listen_by(id, socket, attr).map(Some),
            };
            match near {
                Err(Error::AddrInUse(_)) if tries > 0 => {}
                near => {
                    return Ok(AutoListener {
                        near: near?,
                        far,
                        far_first: AtomicBool::new(false),
                    });
                }
            }
        }
    }

    fn next_near(&self) -> Option<RawRequest> {
        let mut near = self.near.as_ref()?.next_request()?;
        near.id = near_request(near.id);
        Some(near)
    }
}

impl ListenerOps for AutoListener {
    fn local_addr(&self) -> SocketAddr {
        self.far.local_addr()
    }

    fn next_request(&self) -> Option<RawRequest> {
        match self.far_first.fetch_xor(true, Ordering::Relaxed) {
            true => self.far.next_request().or_else(|| self.next_near()),
            false => self.next_near().or_else(|| self.far.next_request()),
        }
    }
}
