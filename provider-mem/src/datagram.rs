//! Datagram endpoints: the sender's thread carries a datagram to the receiver's queue. None is ever lost but those that find no receive.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use fabric_core::{
    AddressHandleOps, DatagramAddress, DatagramAttr, DatagramDrops, DatagramKind, DatagramOps,
    DatagramSources, DatagramWork, Error, Failure, Posted, RawCompletion, RecvWork, Result,
    Segment, Status, memory,
};
use fabric_util::completion_ring::CompletionRing;
use fabric_util::datagram::{DatagramReceives, Drops};
use fabric_util::sync::Mutex;

use crate::cq::MemCq;
use crate::engine::Engine;
use crate::name::NAME;
use crate::network::{LAST_PORTS, next_port};

/// The endpoints of this process, by their addresses.
static PORTS: LazyLock<Mutex<HashMap<SocketAddr, Arc<Port>>>> = LazyLock::new(Mutex::default);

/// What senders see of an endpoint.
struct Port {
    receives: Mutex<DatagramReceives>,
    ring: Arc<CompletionRing>,
    sources: Arc<DatagramSources>,
    drops: Drops,
}

/// What it has resolved.
struct MemAddress(SocketAddr);

impl AddressHandleOps for MemAddress {}

/// A datagram endpoint.
pub(crate) struct MemDatagrams {
    addr: SocketAddr,
    address: DatagramAddress,
    port: Arc<Port>,
    ring: Arc<CompletionRing>,
}

impl MemDatagrams {
    pub(crate) fn new(
        engine: &Engine,
        attr: &DatagramAttr,
        sources: &Arc<DatagramSources>,
        (send, recv): (&MemCq, &MemCq),
    ) -> Result<Self> {
        const OP: &str = "make datagram endpoint";
        let source = attr.source_of(&engine.info)?;
        let port = Arc::new(Port {
            receives: Mutex::default(),
            ring: recv.ring.clone(),
            sources: sources.clone(),
            drops: Drops::default(),
        });
        let mut ports = PORTS.lock();
        let candidates = (0..LAST_PORTS).map(|_| SocketAddr::new(source, next_port()));
        let free = candidates.into_iter().find(|addr| !ports.contains_key(addr));
        let addr = free.ok_or_else(|| Error::system(OP, NAME, ErrorKind::AddrInUse.into()))?;
        let address = DatagramAddress::memory(addr)?;
        ports.insert(addr, port.clone());
        Ok(MemDatagrams { addr, address, port, ring: send.ring.clone() })
    }

    /// # Safety
    /// As [`DatagramOps::post_send`].
    unsafe fn send(&self, work: &DatagramWork<'_>) -> Result<()> {
        let to: &dyn std::any::Any = work.to;
        let MemAddress(to) = to
            .downcast_ref()
            .ok_or_else(|| Error::invalid("send_to", "a handle of another provider"))?;
        let port = PORTS.lock().get(to).cloned();
        if let Some(port) = port {
            // SAFETY: the caller's promise.
            unsafe { port.deliver(work, self.address) };
        }
        self.ring.push([&[RawCompletion::new(work.token, Status::Ok)], &[]]);
        Ok(())
    }
}

impl Port {
    /// # Safety
    /// The segments of the datagram are readable.
    unsafe fn deliver(&self, work: &DatagramWork<'_>, from: DatagramAddress) {
        let mut receives = self.receives.lock();
        let Some(first) = receives.first() else {
            self.drops.no_receive.add(1);
            return;
        };
        // SAFETY: the caller's promise; those of a receive that waits are writable until its completion.
        unsafe { copy(&first.segments, work.segments) };
        let len = fabric_core::work::total_len(work.segments);
        if let Some(completion) = receives.complete(len, work.imm) {
            self.sources.note(completion.token, Some(from));
            self.ring.push([&[completion], &[]]);
        }
    }
}

/// Copies as much as fits.
///
/// # Safety
/// The segments are readable and writable; both may be the same.
unsafe fn copy(into: &[Segment], from: &[Segment]) {
    let (mut target, mut at) = (into.iter(), (std::ptr::null_mut::<u8>(), 0));
    for segment in from {
        let mut rest = (segment.addr, segment.len);
        while rest.1 > 0 {
            if at.1 == 0 {
                let Some(next) = target.next() else { return };
                at = (next.addr, next.len);
            }
            let len = rest.1.min(at.1);
            // SAFETY: both runs have that many bytes left.
            unsafe { memory::copy(at.0, rest.0, len) };
            at = (at.0.wrapping_add(len), at.1 - len);
            rest = (rest.0.wrapping_add(len), rest.1 - len);
        }
    }
}

// SAFETY: each send is completed within its post, each receive where it leaves the queue; segments are reached only within the
// sender's post, and under the lock of the queue that has them; `quiesce` empties it, and no sender finds it any more.
unsafe impl DatagramOps for MemDatagrams {
    fn address(&self) -> DatagramAddress {
        self.address
    }

    fn resolve(&self, address: &DatagramAddress) -> Result<Box<dyn AddressHandleOps>> {
        let to = address.socket_addr().filter(|to| {
            address.kind() == DatagramKind::Memory && to.is_ipv4() == self.addr.is_ipv4()
        });
        let to = to.ok_or_else(|| {
            let own = self.address;
            let text = format!(
                "{address:?} cannot be reached from {own:?}: it takes one of the same kind and family"
            );
            Error::InvalidArgument(Failure::new("resolve", text).of(NAME))
        })?;
        Ok(Box::new(MemAddress(to)))
    }

    unsafe fn post_send(&self, work: &[DatagramWork<'_>]) -> Posted {
        for (i, one) in work.iter().enumerate() {
            // SAFETY: the caller's promise.
            if let Err(error) = unsafe { self.send(one) } {
                return Posted::until(i, error);
            }
        }
        Posted::all(work.len())
    }

    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        self.port.receives.lock().push(work);
        Posted::all(work.len())
    }

    fn quiesce(&self) -> Result<()> {
        let mut ports = PORTS.lock();
        let is_it = ports.get(&self.addr).is_some_and(|port| Arc::ptr_eq(port, &self.port));
        let gone = if is_it { ports.remove(&self.addr) } else { None };
        drop(ports);
        drop(gone);
        self.port.receives.lock().clear();
        Ok(())
    }

    fn drops(&self) -> DatagramDrops {
        self.port.drops.snapshot(Some(0))
    }

    fn dump(&self) -> String {
        let receives = self.port.receives.try_lock().map(|receives| receives.len());
        format!("{:?}: receives {receives:?}", self.address)
    }
}

impl Drop for MemDatagrams {
    fn drop(&mut self) {
        let _ = self.quiesce();
    }
}
