//! What an application asks `fi_getinfo` for: hints, read once, with what is not said left out.

use std::ffi::{CStr, c_int};
use std::net::SocketAddr;

use super::address;
use super::owned::text;
use crate::abi::FiInfo;
use crate::abi::flags::{
    FI_ATOMIC, FI_EP_UNSPEC, FI_MSG, FI_NUMERICHOST, FI_READ, FI_RECV, FI_REMOTE_READ,
    FI_REMOTE_WRITE, FI_RESCAN, FI_RMA, FI_SEND, FI_SOURCE, FI_TAGGED, FI_WRITE,
};
use crate::errno::Errno;
use crate::handle::Name;

/// What is asked for. Zero, and `None`, ask for nothing.
#[derive(Clone, Default)]
pub(crate) struct Request {
    /// The version of the interface that the application was written for.
    pub(crate) version: u32,
    pub(crate) caps: u64,
    /// What the application is prepared to do; `None` where it does not say.
    pub(crate) mode: Option<u64>,
    pub(crate) address_format: u32,
    pub(crate) source: Option<SocketAddr>,
    pub(crate) destination: Option<SocketAddr>,
    pub(crate) endpoint_type: c_int,
    pub(crate) protocol: u32,
    pub(crate) fabric: Option<String>,
    pub(crate) domain: Option<String>,
    pub(crate) mr_mode: Option<c_int>,
    pub(crate) limits: Vec<(Limit, usize)>,
    pub(crate) orders: [u64; 2],
    pub(crate) completion_orders: [u64; 2],
    pub(crate) op_flags: [u64; 2],
    pub(crate) has_auth_key: bool,
    /// It names a passive endpoint, or a request that was never given out with it.
    pub(crate) has_handle: bool,
    /// The first of these, if it is one of ours.
    pub(crate) passive: Option<Name>,
    pub(crate) domain_caps: u64,
    pub(crate) av_type: c_int,
    pub(crate) threading: c_int,
    /// Of control, of data.
    pub(crate) progress: [c_int; 2],
    /// Devices are to be looked for again.
    pub(crate) anew: bool,
}

/// A number that a hint asks for, at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Message,
    Inject,
    SendDepth,
    ReceiveDepth,
    SendSegments,
    ReceiveSegments,
    RemoteSegments,
    SendContexts,
    ReceiveContexts,
    CqDataSize,
    MrSegments,
    OrderReadAfterWrite,
    OrderWriteAfterRead,
    OrderWriteAfterWrite,
    Counters,
    Regions,
    ErrorData,
}

impl Request {
    /// Reads the arguments of `fi_getinfo`.
    ///
    /// # Safety
    /// The texts are null or end in zero; the hints are null or an info of libfabric, whose parts may be null (`fi_getinfo(3)`).
    pub(crate) unsafe fn read(
        version: u32,
        (node, service): (Option<&CStr>, Option<&CStr>),
        flags: u64,
        hints: *const FiInfo,
    ) -> Result<Self, Errno> {
        let mut request = Request { version, anew: flags & FI_RESCAN != 0, ..Request::default() };
        // SAFETY: the caller's promise.
        if let Some(hints) = unsafe { hints.as_ref() } {
            // SAFETY: the caller's promise.
            unsafe { request.read_hints(hints) };
        }
        let is_source = flags & FI_SOURCE != 0;
        if node.is_some() || service.is_some() {
            let how = (request.address_format, is_source, flags & FI_NUMERICHOST != 0);
            let address = address::resolve(node, service, how)?;
            if is_source {
                let ip = request.source.filter(|_| node.is_none()).map_or(address.ip(), |s| s.ip());
                request.source = Some((ip, address.port()).into());
            } else if node.is_some() {
                request.destination = Some(address);
            } else if let Some(known) = &mut request.destination {
                known.set_port(address.port());
            }
        }
        Ok(request)
    }

    /// # Safety
    /// As of [`read`](Self::read).
    unsafe fn read_hints(&mut self, hints: &FiInfo) {
        self.caps = hints.caps;
        self.mode = Some(hints.mode);
        self.address_format = hints.addr_format;
        self.has_handle = !hints.handle.is_null();
        let own = |name| {
            // SAFETY: the texts of an info are null or end in zero.
            unsafe { text(name) }.map(|name| name.to_string_lossy().into_owned())
        };
        // SAFETY: the addresses of an info have the lengths that it says; its parts are null or there.
        unsafe {
            self.source = address::read(hints.src_addr, Some(hints.src_addrlen));
            self.destination = address::read(hints.dest_addr, Some(hints.dest_addrlen));
            if let Some(fabric) = hints.fabric_attr.as_ref() {
                self.fabric = own(fabric.name);
            }
            if let Some(domain) = hints.domain_attr.as_ref() {
                self.domain = own(domain.name);
                self.mr_mode = Some(domain.mr_mode);
                (self.domain_caps, self.av_type) = (domain.caps, domain.av_type);
                self.threading = domain.threading;
                self.progress = [domain.control_progress, domain.data_progress];
                self.has_auth_key |= domain.auth_key_size > 0;
                self.limits.extend([
                    (Limit::CqDataSize, domain.cq_data_size),
                    (Limit::MrSegments, domain.mr_iov_limit),
                    (Limit::Counters, domain.cntr_cnt),
                    (Limit::Regions, domain.mr_cnt),
                    (Limit::ErrorData, domain.max_err_data),
                ]);
            }
            if let Some(ep) = hints.ep_attr.as_ref() {
                (self.endpoint_type, self.protocol) = (ep.kind, ep.protocol);
                self.has_auth_key |= ep.auth_key_size > 0;
                self.limits.extend([
                    (Limit::Message, ep.max_msg_size),
                    (Limit::OrderReadAfterWrite, ep.max_order_raw_size),
                    (Limit::OrderWriteAfterRead, ep.max_order_war_size),
                    (Limit::OrderWriteAfterWrite, ep.max_order_waw_size),
                    (Limit::SendContexts, ep.tx_ctx_cnt),
                    (Limit::ReceiveContexts, ep.rx_ctx_cnt),
                ]);
            }
            if let Some(tx) = hints.tx_attr.as_ref() {
                self.caps |= tx.caps;
                self.mode = self.mode.map(|mode| mode | tx.mode);
                (self.op_flags[0], self.orders[0]) = (tx.op_flags, tx.msg_order);
                self.completion_orders[0] = tx.comp_order;
                self.limits.extend([
                    (Limit::Inject, tx.inject_size),
                    (Limit::SendDepth, tx.size),
                    (Limit::SendSegments, tx.iov_limit),
                    (Limit::RemoteSegments, tx.rma_iov_limit),
                ]);
            }
            if let Some(rx) = hints.rx_attr.as_ref() {
                self.caps |= rx.caps;
                self.mode = self.mode.map(|mode| mode | rx.mode);
                (self.op_flags[1], self.orders[1]) = (rx.op_flags, rx.msg_order);
                self.completion_orders[1] = rx.comp_order;
                self.limits.extend([
                    (Limit::ReceiveDepth, rx.size),
                    (Limit::ReceiveSegments, rx.iov_limit),
                ]);
            }
        }
        self.has_auth_key |= self.endpoint_type < FI_EP_UNSPEC;
    }

    /// Whether it says by an address or a domain where the endpoint is to be.
    pub(crate) fn names_place(&self) -> bool {
        self.source.is_some() || self.destination.is_some() || self.domain.is_some()
    }

    /// Whether it is to listen at every address.
    pub(crate) fn is_at_any_address(&self) -> bool {
        self.source.is_some_and(|source| source.ip().is_unspecified())
    }

    /// What was asked for of a number; 0 for nothing.
    pub(crate) fn wanted(&self, limit: Limit) -> usize {
        self.limits.iter().find(|(of, _)| *of == limit).map_or(0, |(_, value)| *value)
    }
}

/// Capabilities with the directions that they imply where none is named (`fi_getinfo(3)`).
pub(crate) fn with_directions(caps: u64) -> u64 {
    let mut all = caps;
    if caps & (FI_MSG | FI_TAGGED) != 0 && caps & (FI_SEND | FI_RECV) == 0 {
        all |= FI_SEND | FI_RECV;
    }
    let one_sided = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    if caps & (FI_RMA | FI_ATOMIC) != 0 && caps & one_sided == 0 {
        all |= one_sided;
    }
    all
}
