//! Datagram endpoints: the contract's view of a socket for datagrams.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use fabric_core::{
    AddressHandleOps, DatagramAddress, DatagramAttr, DatagramDrops, DatagramOps, DatagramSources,
    DatagramWork, Error, Failure, Posted, RecvWork, Result,
};

use super::cq::SocketCq;
use super::datagram_socket::{DatagramSocket, Rings, SocketAddress};
use super::engine::Engine;
use super::family::SocketFamily;

/// A datagram endpoint.
pub(super) struct SocketDatagrams<F: SocketFamily> {
    socket: Arc<DatagramSocket>,
    engine: Arc<Engine<F>>,
}

impl<F: SocketFamily> SocketDatagrams<F> {
    pub(super) fn new(
        engine: &Arc<Engine<F>>,
        attr: &DatagramAttr,
        sources: &Arc<DatagramSources>,
        (send, recv): (&SocketCq<F>, &SocketCq<F>),
    ) -> Result<Self> {
        const OP: &str = "make datagram endpoint";
        let source = attr.source_of(&engine.info)?;
        let made = F::datagram_socket(SocketAddr::new(source, 0));
        let (socket, addr) = made.map_err(|cause| Error::system(OP, F::NAME, cause))?;
        let rings = Rings {
            send: send.ring.clone(),
            recv: recv.ring.clone(),
            sources: sources.clone(),
            stats: engine.stats().clone(),
        };
        let address = DatagramAddress::udp(addr)?;
        let socket = Arc::new(DatagramSocket::new(engine.name(), socket, address, rings));
        let (fd, name) = (socket.raw_fd(), socket.name);
        engine.watch(fd, name, socket.clone(), DatagramSocket::interest(false))?;
        Ok(SocketDatagrams { socket, engine: engine.clone() })
    }
}

// SAFETY: each accepted operation is completed once, where it leaves its queue, or at once; segments are reached only under the
// lock of a queue that has them, or within the post; `end` empties both queues, and posts and turns that come later see that.
unsafe impl<F: SocketFamily> DatagramOps for SocketDatagrams<F> {
    fn address(&self) -> DatagramAddress {
        self.socket.address
    }

    fn resolve(&self, address: &DatagramAddress) -> Result<Box<dyn AddressHandleOps>> {
        let own = self.socket.address;
        let fits =
            |to: &SocketAddr| address.kind() == own.kind() && to.is_ipv4() == own.ip().is_ipv4();
        let to = address.socket_addr().filter(fits).ok_or_else(|| {
            let text = format!(
                "{address:?} cannot be reached from {own:?}: it takes one of the same kind and family"
            );
            Error::InvalidArgument(Failure::new("resolve", text).of(F::NAME))
        })?;
        Ok(Box::new(SocketAddress(to.into())))
    }

    unsafe fn post_send(&self, work: &[DatagramWork<'_>]) -> Posted {
        let watch = |waits| self.engine.watch_datagrams(&self.socket, waits);
        // SAFETY: the caller's promise.
        unsafe { self.socket.post_send(work, watch) }
    }

    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        // SAFETY: the caller's promise.
        unsafe { self.socket.post_recv(work) }
    }

    fn quiesce(&self) -> Result<()> {
        self.engine.forget_datagrams(&self.socket);
        self.socket.end();
        Ok(())
    }

    fn drops(&self) -> DatagramDrops {
        self.socket.drops.snapshot(F::datagram_overrun(self.socket.as_fd()))
    }

    fn dump(&self) -> String {
        self.socket.dump()
    }
}

impl<F: SocketFamily> Drop for SocketDatagrams<F> {
    fn drop(&mut self) {
        // Mostly done before, and then this says the same once more.
        let _ = self.quiesce();
    }
}
