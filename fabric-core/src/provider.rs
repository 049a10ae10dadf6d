//! The factories of the provider contract: providers make domains, domains make everything else.
//!
//! Each trait has associated types, so that a provider's own code is free of casts; `dyn_provider` has any provider by one type.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use crate::access::Access;
use crate::attr::{CqAttr, DomainAttr, EndpointAttr, ListenerAttr, SharedReceiveAttr};
use crate::completion::EndpointId;
use crate::datagram::{DatagramAttr, DatagramOps, DatagramSources};
use crate::error::{Error, Result};
use crate::event::{EventSink, ListenerId};
pub use crate::event::{RawRequest, RequestId};
use crate::info::{Device, Info};
use crate::memory::Memory;
use crate::ops::{CqOps, EndpointOps, SharedReceiveOps};
use crate::path::Path;
use crate::setting::{self, Setting};

/// A provider: a kind of transport.
pub trait Provider: Send + Sync + 'static {
    /// Its domains.
    type Domain: DomainOps;

    /// The name by which `FABRIC_PROVIDER` selects it.
    ///
    /// - Lower case, without `,`, `:` and `^`; always the same; no other provider of a catalog has it.
    fn name(&self) -> &'static str;

    /// Every device of this machine that the provider could drive, the best first; those it cannot use
    /// with the reason.
    ///
    /// - Never fails: a machine without devices yields one [`Device`] that says so.
    fn devices(&self) -> Vec<Device>;

    /// The settings that it has beside those of all providers.
    ///
    /// - Constant.
    fn settings(&self) -> &'static [Setting] {
        &[]
    }

    /// Whether its shared receive queues are pools of `fabric-util` (`SharedReceiveQueue`), from which connections of other
    /// providers can take receives too.
    ///
    /// - Constant.
    fn pools_receives(&self) -> bool {
        false
    }

    /// This provider with a setting changed: what the new one opens has it, what was opened before stays as it is.
    ///
    /// - An unknown name is [`setting::unknown`]. For a value that it does not take, `InvalidArgument` names the setting,
    ///   the value, and what would be right.
    /// - It is the same provider otherwise, and shares what it keeps of its devices.
    fn configure(&self, name: &str, value: &str) -> Result<Self>
    where
        Self: Sized,
    {
        let _ = value;
        Err(setting::unknown(self.name(), name, self.settings()))
    }

    /// Opens a device that [`devices`](Provider::devices) listed; the attributes have been checked.
    ///
    /// - From [`Security::Authenticated`](crate::Security::Authenticated) on both ends prove that they have the secret, and by
    ///   the identity who they are, where there is one, before either has an event of the other; who does not is closed, and a
    ///   connection attempt ends with `Unauthenticated`.
    /// - Events of the domain go to `events`, from now until the domain is dropped.
    /// - A device that has gone meanwhile, or lacks resources, is an error that says which.
    /// - Dropping the domain ends its threads and closes its descriptors before the drop returns.
    fn open(
        &self,
        info: &Info,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
    ) -> Result<Self::Domain>;
}

/// An open device: queues, endpoints, registrations and listeners that work together.
///
/// # Safety
/// A registration must not touch memory outside the range it was made with; peers reach the range only with the
/// rights given, and until [`RegistrationOps::deregister`] has returned `Ok`.
pub unsafe trait DomainOps: Send + Sync + 'static {
    /// Its endpoints.
    type Endpoint: EndpointOps;
    /// Its completion queues.
    type Cq: CqOps;
    /// Its registrations.
    type Registration: RegistrationOps;
    /// Its listeners.
    type Listener: ListenerOps;

    /// Makes a completion queue for at least `attr.capacity` completions; the attributes have been checked.
    ///
    /// - It never overflows while the endpoints bound to it have no more than that in flight.
    /// - It may keep the domain's device open after the domain is dropped, but delivers nothing then.
    fn completion_queue(&self, attr: &CqAttr) -> Result<Self::Cq>;

    /// Allocates zeroed memory that suits this device best, on a multiple of 64 bytes.
    ///
    /// - It is not registered yet, may be registered in part or more than once, with other domains too, and may outlive this one.
    /// - Fails as [`Memory::zeroed`] does.
    fn allocate(&self, len: usize) -> Result<Memory> {
        Memory::zeroed(len)
    }

    /// Registers memory; the range and the access rule have been checked.
    ///
    /// # Safety
    /// The range is mapped, and writable if `access` has `LOCAL_WRITE`. It must stay allocated until
    /// [`RegistrationOps::deregister`] has returned `Ok`, for ever if it never does, and be reached by this process only in
    /// ways that a concurrent peer cannot make undefined ([`memory`](crate::memory)).
    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Self::Registration>;

    /// Makes an endpoint, bound to its two queues, not yet connected; the attributes have been checked.
    ///
    /// - Completions of sends, writes, reads and atomics go to `send_cq`, of receives to `recv_cq`; both may
    ///   be one queue.
    /// - Events name it by `id`.
    /// - Receives can be posted at once.
    fn endpoint(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &Self::Cq,
        recv_cq: &Self::Cq,
    ) -> Result<Self::Endpoint>;

    /// Makes a receive queue that endpoints share; the attributes have been checked.
    ///
    /// - Completions of its receives go to `cq`.
    fn shared_receives(
        &self,
        attr: &SharedReceiveAttr,
        cq: &Self::Cq,
    ) -> Result<Box<dyn SharedReceiveOps>> {
        let _ = (attr, cq);
        Err(no_shared_receives())
    }

    /// As [`endpoint`](DomainOps::endpoint), for one that takes its receives from a shared queue of the same domain.
    ///
    /// - It has no receive queue: nothing is posted to that, and `attr.recv_depth` and `attr.recv_segments` mean nothing.
    fn endpoint_sharing(
        &self,
        id: EndpointId,
        attr: &EndpointAttr,
        send_cq: &Self::Cq,
        receives: &dyn SharedReceiveOps,
    ) -> Result<Self::Endpoint> {
        let _ = (id, attr, send_cq, receives);
        Err(no_shared_receives())
    }

    /// Makes a datagram endpoint, bound to its two queues; the attributes have been checked, and the domain protects nothing.
    ///
    /// - Completions of sends go to `send_cq`, of receives to `recv_cq`; both may be one queue.
    /// - It notes the senders of what it receives in `sources`.
    fn datagram_endpoint(
        &self,
        id: EndpointId,
        attr: &DatagramAttr,
        sources: &Arc<DatagramSources>,
        send_cq: &Self::Cq,
        recv_cq: &Self::Cq,
    ) -> Result<Box<dyn DatagramOps>> {
        let _ = (id, attr, sources, send_cq, recv_cq);
        let text = "the provider has no datagrams";
        Err(Error::unsupported("make datagram endpoint", crate::error::SHARED, text))
    }

    /// Listens.
    ///
    /// - Port 0 chooses a free port.
    /// - An address in use is `AddrInUse`; one that the device does not have is `InvalidArgument`,
    ///   with the cause `AddrNotAvailable`.
    /// - Each request is reported by `ConnectRequest`, at most `attr.backlog` wait, one more is refused.
    /// - A peer that does not finish its request in bounded time is dropped.
    fn listen(
        &self,
        id: ListenerId,
        addr: SocketAddr,
        attr: &ListenerAttr,
    ) -> Result<Self::Listener>;

    /// Rejects a request that was taken.
    ///
    /// - The peer gets `Rejected(data)`, with exactly these bytes.
    /// - A request that was answered before is `InvalidState`; a peer that is gone is no error.
    fn reject(&self, request: RequestId, data: &[u8]) -> Result<()>;

    /// Whether the peer of a request that was taken still waits, where
    /// [`REQUEST_CANCEL`](crate::Capabilities::REQUEST_CANCEL) is declared.
    fn is_waiting(&self, _request: RequestId) -> bool {
        true
    }

    /// Which way a connection to `peer` would go now, and why no other; `None`: as every connection of the domain.
    ///
    /// - It may connect to the peer, and leaves at once.
    /// - Without the descriptors or the memory to find out, an error.
    fn path_to(&self, peer: SocketAddr) -> Result<Option<Path>> {
        let _ = peer;
        Ok(None)
    }

    /// What the provider did so far for this domain.
    ///
    /// - Counters only grow; reading them costs other threads nothing.
    fn counters(&self) -> ProviderCounters;

    /// The state of the domain, for a bug report.
    ///
    /// - Never waits for a lock that a step of progress may hold for long; shows no keys.
    fn dump(&self) -> String;
}

/// A registration. The handles end it by [`deregister`](RegistrationOps::deregister), and drop it after that; a drop
/// alone proves nothing, and the memory then stays allocated.
///
/// # Safety
/// When [`deregister`](RegistrationOps::deregister) has returned `Ok`, no device and no peer reads or changes the
/// range. The keys open this range, with the rights given, and nothing else. Both are called under a lock of the caller,
/// so they call no user code.
pub unsafe trait RegistrationOps: Send + Sync + 'static {
    /// The key of local segments.
    ///
    /// - Constant.
    fn local_key(&self) -> u64;
    /// The key for peers.
    ///
    /// - Constant; opens this range with these rights and nothing else.
    fn remote_key(&self) -> u64;
    /// The address by which peers name the first byte.
    ///
    /// - Constant; a multiple of 8 if the range starts on one.
    ///   With [`VIRTUAL_ADDRESSES`](Access::VIRTUAL_ADDRESSES) it is the one in this process.
    fn remote_base(&self) -> u64;

    /// Begins to open part of the range to the peer of one connection of the domain, by a key of its own; the arguments
    /// have been checked. Where [`GRANTS`](crate::Capabilities::GRANTS) is declared.
    ///
    /// - `range` counts from the first byte and is not empty; `access` has rights for peers only. The registration may lack
    ///   them: that of a region for [`GRANTS_ONLY`](Access::GRANTS_ONLY) has none for peers. For atomics the range starts and
    ///   ends on multiples of 8.
    /// - Never blocks. `Again`: an earlier grant of the connection is not open yet.
    /// - `NotConnected` where the connection is not established, or has ended.
    ///
    /// # Safety
    /// The range must stay allocated until [`GrantOps::revoke`] has returned `Ok`, for ever if it never does. It is not
    /// called beside a post to the endpoint's send queue.
    unsafe fn grant(
        &self,
        endpoint: EndpointId,
        range: Range<usize>,
        access: Access,
    ) -> Result<Box<dyn GrantOps>> {
        let _ = (endpoint, range, access);
        Err(Error::unsupported("grant", crate::error::SHARED, "the provider has no grants"))
    }

    /// Revokes its keys. The caller has revoked its grants.
    ///
    /// - When it has returned `Ok`, no peer and no device reads or changes the memory, and the key opens nothing. So it
    ///   is for a device that is lost.
    /// - On an error the registration may still be there: the owner of the memory keeps the memory. It may be tried again.
    /// - Repeating it is harmless.
    fn deregister(&mut self) -> Result<()>;
}

/// The right of one connection's peer to part of a registered range. The handles end it by
/// [`revoke`](GrantOps::revoke), and drop it after that; a drop alone proves nothing.
///
/// # Safety
/// The key opens this part, with the rights given, to the peer of this connection, and nothing else; for every other peer
/// it is a key that was never given out. When [`revoke`](GrantOps::revoke) has returned `Ok`, nothing is read or changed by
/// it. It is called under a lock of the caller, so it calls no user code.
pub unsafe trait GrantOps: Send + Sync + 'static {
    /// The key for the peer.
    ///
    /// - Constant; never that of a registration or grant that is there.
    fn remote_key(&self) -> u64;
    /// The address by which the peer names the first byte.
    ///
    /// - Constant; a multiple of 8 if the part starts on one.
    fn remote_base(&self) -> u64;

    /// Whether the peer can use it yet.
    ///
    /// - Once true, it stays so until it is revoked or the connection ends.
    /// - It may become true only when what was posted to the connection's send queue before has finished, and needs no
    ///   poll of the caller's for that.
    /// - An error: it never will, since the connection has ended (`NotConnected`), or the device refused.
    fn is_open(&self) -> Result<bool> {
        Ok(true)
    }

    /// Ends it at once, whatever the connection is doing.
    ///
    /// - When it has returned `Ok`, nothing is read or changed by the key, and it opens nothing. An access under way is
    ///   refused as where a registration ends.
    /// - `Busy` while it is not [open](GrantOps::is_open) yet. On any error it may still be there, and may be tried again.
    /// - Repeating it is harmless.
    fn revoke(&mut self) -> Result<()>;
}

/// A listener. Dropping it refuses the requests that were not taken.
pub trait ListenerOps: Send + Sync + 'static {
    /// The address it listens on.
    ///
    /// - With the real port; constant.
    fn local_addr(&self) -> SocketAddr;

    /// The next request, if there is one.
    ///
    /// - In the order of arrival; each was announced by a `ConnectRequest` event.
    /// - Once taken it no longer counts as waiting, and it outlives the listener.
    /// - Its private data has its exact length.
    fn next_request(&self) -> Option<RawRequest>;
}

fn no_shared_receives() -> Error {
    let text = "the provider has no shared receive queues";
    Error::unsupported("make shared receive queue", crate::error::SHARED, text)
}

/// What a domain's provider did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ProviderCounters {
    /// Payload bytes that the provider copied from one buffer of this process to another.
    pub copied_bytes: u64,
    /// Times a sleeping thread or descriptor was woken.
    pub wakeups: u64,
    /// System calls on the data path.
    pub system_calls: u64,
    /// Connections that a peer's breach of the protocol ended.
    pub protocol_errors: u64,
    /// Connections that came in and were closed before the application heard of them: no valid hello came in time, or the
    /// backlog was full, or they made room for others.
    pub peers_refused: u64,
    /// Of these, those that did not prove to have the domain's secret, or to be of a trusted authority.
    pub peers_unauthenticated: u64,
}

impl std::ops::Add for ProviderCounters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        ProviderCounters {
            copied_bytes: self.copied_bytes + other.copied_bytes,
            wakeups: self.wakeups + other.wakeups,
            system_calls: self.system_calls + other.system_calls,
            protocol_errors: self.protocol_errors + other.protocol_errors,
            peers_refused: self.peers_refused + other.peers_refused,
            peers_unauthenticated: self.peers_unauthenticated + other.peers_unauthenticated,
        }
    }
}
