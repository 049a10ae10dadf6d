//! librdmacm: addresses, routes, and the three messages of a connection.
//!
//! Identifiers never own a queue pair: it is made before the device's peer is known (receives may be posted early),
//! and moved by [`CmId::path`]. librdmacm offers that way to programs that manage queue pairs themselves
//! (rdma_establish(3), rdma_init_qp_attr in `rdma/rdma_cma.h`).

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use super::context::{device_of, nonblocking};
use super::destroy::destroyed;
use super::qp::zeroed;
use crate::ffi::{
    self, ibv_qp_attr, ibv_qp_state, minus_one, pointer, rdma_cm_event_type, rdma_cm_id,
    rdma_conn_param,
};

/// A channel on which the events of its identifiers come.
pub(crate) struct EventChannel(NonNull<ffi::rdma_event_channel>);

// SAFETY: librdmacm is thread-safe; an event is got and acknowledged by one thread.
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}

/// An event, copied out and acknowledged.
pub(crate) struct CmEvent {
    /// Of the identifier; for a connection request, of the listener's.
    pub(crate) context: u64,
    pub(crate) kind: rdma_cm_event_type::Type,
    pub(crate) status: i32,
    /// Private data as it came: padded with zeroes.
    pub(crate) data: Vec<u8>,
    /// Reads and atomics of the peer's that it wants us to hold at a time.
    pub(crate) responder_resources: u8,
    /// Reads and atomics that the peer holds for us.
    pub(crate) initiator_depth: u8,
    /// Of a connection request, and of its answer: the peer's queue pair.
    pub(crate) queue_pair: u32,
    /// Of a connection request: the identifier that was made for it.
    pub(crate) request: Option<CmId>,
}

/// Whether librdmacm works: opens a channel and closes it. It loads the kernel's module if it may.
pub(crate) fn connection_manager() -> io::Result<()> {
    EventChannel::new().map(drop)
}

impl EventChannel {
    /// A channel that does not block.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no arguments.
        let channel = unsafe { ffi::rdma_create_event_channel() };
        let this = EventChannel(pointer("rdma_create_event_channel", channel)?);
        nonblocking(this.as_fd())?;
        Ok(this)
    }

    /// Takes the oldest event, if there is one; a request's identifier gets the context `fresh`.
    pub(crate) fn next(self: &Arc<Self>, fresh: u64) -> Option<CmEvent> {
        let mut event = ptr::null_mut();
        // SAFETY: `event` is written if it returns 0 (rdma_get_cm_event(3)).
        if unsafe { ffi::rdma_get_cm_event(self.0.as_ptr(), &mut event) } != 0 {
            return None;
        }
        // SAFETY: the event is valid until it is acknowledged, and its identifiers as long: their destruction
        // waits for that (rdma_destroy_id(3)).
        let copy = unsafe { self.copy(&*event, fresh) };
        // SAFETY: got above, acknowledged once.
        destroyed("rdma_ack_cm_event", unsafe { ffi::rdma_ack_cm_event(event) });
        Some(copy)
    }

    /// # Safety
    /// The event was got and is not yet acknowledged.
    unsafe fn copy(self: &Arc<Self>, event: &ffi::rdma_cm_event, fresh: u64) -> CmEvent {
        let is_request = event.event == rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST;
        // SAFETY: an event has an identifier, and a request's has a listener too.
        let context = unsafe {
            let of = if is_request { event.listen_id } else { event.id };
            (*of).context as u64
        };
        // SAFETY: identifiers of the port space for connections have this variant.
        let conn = unsafe { &event.param.conn };
        let data = if conn.private_data.is_null() || conn.private_data_len == 0 {
            Vec::new()
        } else {
            // SAFETY: the event carries so many bytes.
            unsafe {
                std::slice::from_raw_parts(
                    conn.private_data.cast::<u8>(),
                    conn.private_data_len.into(),
                )
            }
            .to_vec()
        };
        let request = NonNull::new(event.id).filter(|_| is_request).map(|id| {
            // SAFETY: made for this request, and nothing else has it.
            unsafe { (*id.as_ptr()).context = fresh as *mut _ };
            CmId { id, _channel: self.clone() }
        });
        CmEvent {
            context,
            kind: event.event,
            status: event.status,
            data,
            responder_resources: conn.responder_resources,
            initiator_depth: conn.initiator_depth,
            queue_pair: conn.qp_num,
            request,
        }
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the channel's, open as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.0.as_ref().fd) }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: made by rdma_create_event_channel, destroyed once; its identifiers held it by `Arc`.
        unsafe { ffi::rdma_destroy_event_channel(self.0.as_ptr()) };
    }
}

/// What the two sides send each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnParam<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) qp_num: u32,
    /// Whether the queue pair takes its receives from a shared queue.
    pub(crate) shares: bool,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
}

impl ConnParam<'_> {
    fn raw(&self) -> rdma_conn_param {
        rdma_conn_param {
            private_data: self.data.as_ptr().cast(),
            private_data_len: self.data.len() as u8,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            flow_control: 1,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: self.shares.into(),
            qp_num: self.qp_num,
        }
    }
}

/// A connection, a listener, or an attempt at one. Its drop ends it, and notifies the peer.
pub(crate) struct CmId {
    id: NonNull<rdma_cm_id>,
    _channel: Arc<EventChannel>,
}

// SAFETY: librdmacm is thread-safe.
unsafe impl Send for CmId {}
// SAFETY: as above.
unsafe impl Sync for CmId {}

impl CmId {
    /// An identifier whose events carry `context`.
    pub(crate) fn new(channel: &Arc<EventChannel>, context: u64) -> io::Result<Self> {
        let (mut id, context) = (ptr::null_mut(), context as *mut _);
        let space = ffi::rdma_port_space::RDMA_PS_TCP;
        // SAFETY: the channel lives as long as the identifier, which holds it (rdma_create_id(3)).
        minus_one("rdma_create_id", unsafe {
            ffi::rdma_create_id(channel.0.as_ptr(), &mut id, context, space)
        })?;
        Ok(CmId { id: pointer("rdma_create_id", id)?, _channel: channel.clone() })
    }

    fn as_ptr(&self) -> *mut rdma_cm_id {
        self.id.as_ptr()
    }

    /// What its events carry.
    pub(crate) fn context(&self) -> u64 {
        // SAFETY: set when it was made, and constant.
        unsafe { self.id.as_ref() }.context as u64
    }

    fn option(&self, option: i32, mut value: i32, len: usize) -> io::Result<()> {
        // SAFETY: the option's value is read, `len` bytes of it (rdma_set_option(3)).
        minus_one("rdma_set_option", unsafe {
            let value = (&raw mut value).cast();
            ffi::rdma_set_option(self.as_ptr(), ffi::RDMA_OPTION_ID, option, value, len)
        })
    }

    /// The type of service of the packets to come.
    pub(crate) fn set_tos(&self, tos: u8) -> io::Result<()> {
        // One byte, which on little-endian machines is the first; elsewhere it is moved there.
        self.option(ffi::RDMA_OPTION_ID_TOS, i32::from_ne_bytes([tos, 0, 0, 0]), 1)
    }

    /// Keeps an IPv6 listener from taking the port of IPv4 too.
    pub(crate) fn set_only_own_family(&self) -> io::Result<()> {
        self.option(ffi::RDMA_OPTION_ID_AFONLY, 1, 4)
    }

    /// Lets others that connect from the same port have it too: those to other peers, and the one before this.
    pub(crate) fn share_port(&self) -> io::Result<()> {
        self.option(ffi::RDMA_OPTION_ID_REUSEADDR, 1, 4)
    }

    pub(crate) fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        let mut addr = RawAddr::from(addr);
        // SAFETY: the address is read (rdma_bind_addr(3)).
        minus_one("rdma_bind_addr", unsafe {
            ffi::rdma_bind_addr(self.as_ptr(), addr.as_mut_ptr())
        })
    }

    /// Listens with the longest backlog that the kernel allows: the library counts requests itself.
    pub(crate) fn listen(&self) -> io::Result<()> {
        // SAFETY: the identifier lives (rdma_listen(3)).
        minus_one("rdma_listen", unsafe { ffi::rdma_listen(self.as_ptr(), 0) })
    }

    /// Starts to find the device and the neighbour for an address.
    pub(crate) fn resolve_addr(
        &self,
        from: SocketAddr,
        to: SocketAddr,
        timeout: Duration,
    ) -> io::Result<()> {
        let (mut from, mut to) = (RawAddr::from(from), RawAddr::from(to));
        let timeout = milliseconds(timeout);
        // SAFETY: both addresses are read (rdma_resolve_addr(3)).
        minus_one("rdma_resolve_addr", unsafe {
            ffi::rdma_resolve_addr(self.as_ptr(), from.as_mut_ptr(), to.as_mut_ptr(), timeout)
        })
    }

    /// Starts to find the route.
    pub(crate) fn resolve_route(&self, timeout: Duration) -> io::Result<()> {
        // SAFETY: the identifier lives (rdma_resolve_route(3)).
        minus_one("rdma_resolve_route", unsafe {
            ffi::rdma_resolve_route(self.as_ptr(), milliseconds(timeout))
        })
    }

    /// Sends the request.
    pub(crate) fn connect(&self, param: &ConnParam<'_>) -> io::Result<()> {
        // SAFETY: the parameters are read, and the private data that they point to (rdma_connect(3)).
        minus_one("rdma_connect", unsafe { ffi::rdma_connect(self.as_ptr(), &mut param.raw()) })
    }

    /// Answers a request: yes.
    pub(crate) fn accept(&self, param: &ConnParam<'_>) -> io::Result<()> {
        // SAFETY: as in `connect` (rdma_accept(3)).
        minus_one("rdma_accept", unsafe { ffi::rdma_accept(self.as_ptr(), &mut param.raw()) })
    }

    /// Answers a request: no.
    pub(crate) fn reject(&self, data: &[u8]) -> io::Result<()> {
        let len = data.len() as u8;
        // SAFETY: `len` bytes are read (rdma_reject(3)).
        minus_one("rdma_reject", unsafe {
            ffi::rdma_reject(self.as_ptr(), data.as_ptr().cast(), len)
        })
    }

    /// Notifies the accepting side that the connection is established.
    pub(crate) fn establish(&self) -> io::Result<()> {
        // SAFETY: the identifier has no queue pair, which is what this call is for (rdma_establish(3)).
        minus_one("rdma_establish", unsafe { ffi::rdma_establish(self.as_ptr()) })
    }

    /// The first message of the peer came before its last one of the connection.
    pub(crate) fn notify_established(&self) -> io::Result<()> {
        let event = ffi::ibv_event_type::IBV_EVENT_COMM_EST;
        // SAFETY: the identifier lives (rdma_notify(3)).
        minus_one("rdma_notify", unsafe { ffi::rdma_notify(self.as_ptr(), event) })
    }

    /// Notifies the peer that the connection ends. The queue pair is the caller's business.
    pub(crate) fn disconnect(&self) -> io::Result<()> {
        // SAFETY: the identifier lives (rdma_disconnect(3)).
        minus_one("rdma_disconnect", unsafe { ffi::rdma_disconnect(self.as_ptr()) })
    }

    /// The attributes by which a queue pair of this connection reaches a state, and their mask.
    pub(crate) fn path(&self, state: ibv_qp_state::Type) -> io::Result<(ibv_qp_attr, i32)> {
        let (mut attr, mut mask) = (zeroed(), 0);
        attr.qp_state = state;
        // SAFETY: both are written (`rdma/rdma_cma.h`).
        minus_one("rdma_init_qp_attr", unsafe {
            ffi::rdma_init_qp_attr(self.as_ptr(), &mut attr, &mut mask)
        })?;
        Ok((attr, mask))
    }

    /// The device and port it is bound to, once the address is resolved.
    pub(crate) fn device(&self) -> Option<(String, u8)> {
        // SAFETY: the thread that calls this also handles the event that sets these fields.
        let id = unsafe { self.id.as_ref() };
        Some((device_of(NonNull::new(id.verbs)?), id.port_num))
    }

    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier lives.
        let (addr, port) = unsafe {
            let addr = ffi::rdma_get_local_addr(self.as_ptr());
            (addr, ffi::rdma_get_src_port(self.as_ptr()))
        };
        // SAFETY: part of a union as big as any socket address.
        unsafe { parse(addr, u16::from_be(port)) }
    }

    pub(crate) fn peer_addr(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier lives.
        let (addr, port) = unsafe {
            let addr = ffi::rdma_get_peer_addr(self.as_ptr());
            (addr, ffi::rdma_get_dst_port(self.as_ptr()))
        };
        // SAFETY: part of a union as big as any socket address.
        unsafe { parse(addr, u16::from_be(port)) }
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: made by rdma_create_id or for a request, destroyed once. It waits until its events are
        // acknowledged, and each is at once.
        destroyed("rdma_destroy_id", unsafe { ffi::rdma_destroy_id(self.as_ptr()) });
    }
}

fn milliseconds(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX).max(1)
}

/// A socket address as C has it.
union RawAddr {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddr {
    fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        ptr::from_mut(self).cast()
    }
}

impl From<SocketAddr> for RawAddr {
    fn from(addr: SocketAddr) -> Self {
        // SAFETY: plain numbers; zero is a value of each.
        let mut raw: RawAddr = unsafe { MaybeUninit::zeroed().assume_init() };
        match addr {
            SocketAddr::V4(addr) => {
                // SAFETY: all bytes are initialized.
                let v4 = unsafe { &mut raw.v4 };
                v4.sin_family = libc::AF_INET as u16;
                v4.sin_port = addr.port().to_be();
                v4.sin_addr.s_addr = u32::from_ne_bytes(addr.ip().octets());
            }
            SocketAddr::V6(addr) => {
                // SAFETY: as above.
                let v6 = unsafe { &mut raw.v6 };
                v6.sin6_family = libc::AF_INET6 as u16;
                v6.sin6_port = addr.port().to_be();
                v6.sin6_addr.s6_addr = addr.ip().octets();
                v6.sin6_scope_id = addr.scope_id();
            }
        }
        raw
    }
}

/// # Safety
/// `addr` points to a socket address of its family's size.
unsafe fn parse(addr: *const libc::sockaddr, port: u16) -> Option<SocketAddr> {
    // SAFETY: the caller's promise.
    match i32::from(unsafe { (*addr).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the caller's promise.
            let v4 = unsafe { &*addr.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, port).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the caller's promise.
            let v6 = unsafe { &*addr.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        for text in ["10.77.0.1:4711", "[fd77::1]:65535"] {
            let addr: SocketAddr = text.parse().unwrap();
            let mut raw = RawAddr::from(addr);
            // SAFETY: a socket address.
            assert_eq!(unsafe { parse(raw.as_mut_ptr(), addr.port()) }, Some(addr));
        }
    }
}
