//! Whether a device has what a request asks for, and the info that says so.

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};

use fabric::{Capabilities, Info};

use super::offer::{
    API_WITH_MODES, COMMON_CAPS, CQ_DATA_SIZE, EndpointKind, FABRIC_NAME, FENCED_WRITES, ORDER,
    ORDER_WITH_ATOMICS, PROTOCOL,
};
use super::owned::{OwnedInfo, set_text};
use super::request::{Limit, Request, with_directions};
use crate::abi::flags::{
    FI_ATOMIC, FI_EP_UNSPEC, FI_LOCAL_MR, FI_MR_BASIC, FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_SCALABLE,
    FI_MR_VIRT_ADDR, FI_PROGRESS_AUTO, FI_PROGRESS_UNSPEC, FI_REMOTE_READ, FI_REMOTE_WRITE,
    FI_RM_ENABLED, FI_RMA, FI_RX_CQ_DATA, FI_SHARED_CONTEXT, FI_TAG_GENERIC, FI_TAGGED,
    FI_THREAD_ENDPOINT, FI_THREAD_SAFE, FI_THREAD_UNSPEC,
};
use crate::errno::Errno;

/// What an application gets of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    kind: EndpointKind,
    caps: u64,
    mode: u64,
    mr_mode: c_int,
}

const LIMITS: [Limit; 17] = [
    Limit::Message,
    Limit::Inject,
    Limit::SendDepth,
    Limit::ReceiveDepth,
    Limit::SendSegments,
    Limit::ReceiveSegments,
    Limit::RemoteSegments,
    Limit::SendContexts,
    Limit::ReceiveContexts,
    Limit::CqDataSize,
    Limit::MrSegments,
    Limit::OrderReadAfterWrite,
    Limit::OrderWriteAfterRead,
    Limit::OrderWriteAfterWrite,
    Limit::Counters,
    Limit::Regions,
    Limit::ErrorData,
];

/// What the device offers to this request; `Err` says what it lacks.
pub(crate) fn terms(
    request: &Request,
    (info, kind): (&Info, EndpointKind),
    domain: &str,
) -> Result<Terms, &'static str> {
    let is_other = |asked: &Option<String>, name: &str| {
        asked.as_ref().is_some_and(|asked| !asked.eq_ignore_ascii_case(name))
    };
    if is_other(&request.fabric, FABRIC_NAME) {
        return Err("another fabric");
    }
    if is_other(&request.domain, domain) {
        return Err("another domain");
    }
    if ![FI_EP_UNSPEC, kind.number()].contains(&request.endpoint_type) {
        return Err("endpoints of another type");
    }
    if ![0, PROTOCOL].contains(&request.protocol) {
        return Err("another protocol");
    }
    if request.has_auth_key {
        return Err("keys of authorization");
    }
    if request.has_handle && (request.passive.is_none() || kind != EndpointKind::Message) {
        return Err("a handle that no endpoint here is made from");
    }
    if request.domain_caps & !COMMON_CAPS != 0 {
        return Err("capabilities of domains");
    }
    for of in LIMITS {
        let (wanted, (max, _)) = (request.wanted(of), kind.limit(info, of));
        if wanted > max && !is_shared(of, wanted, (info, kind)) {
            log::debug!("{domain}: {of:?} {wanted} is beyond {max}");
            return Err("a limit");
        }
    }
    let [tx, rx] = request.orders;
    let unknown = (tx | rx) & !(ORDER | kind.order_on_request());
    if unknown != 0 {
        log::debug!("{domain}: no order {unknown:#x}");
        return Err("an order of messages");
    }
    if !(FI_THREAD_UNSPEC..=FI_THREAD_ENDPOINT).contains(&request.threading) {
        return Err("a threading model");
    }
    if request.completion_orders.iter().any(|order| order & !kind.completion_order() != 0) {
        return Err("an order of completions");
    }
    let ([tx, rx], [tx_flags, rx_flags]) = (request.op_flags, kind.op_flags());
    if tx & !tx_flags != 0 || rx & !rx_flags != 0 {
        return Err("flags of operations");
    }
    let (mut caps, mode) = caps(request, info, kind)?;
    if request.caps == 0 && kind == EndpointKind::Datagram && modes(request, kind, caps).is_err() {
        // An application that asks for nothing gets what takes no registration: it is no target.
        caps &= !(FI_REMOTE_READ | FI_REMOTE_WRITE);
    }
    let (mr_mode, local_mode) = modes(request, kind, caps)?;
    Ok(Terms { kind, caps, mode: mode | local_mode, mr_mode })
}

/// Whether the contexts that are asked for are shared ones, which message endpoints may have.
fn is_shared(of: Limit, wanted: usize, (info, kind): (&Info, EndpointKind)) -> bool {
    wanted == FI_SHARED_CONTEXT
        && kind == EndpointKind::Message
        && match of {
            Limit::SendContexts => true,
            Limit::ReceiveContexts => info.capabilities.contains(Capabilities::SHARED_RECEIVES),
            _ => false,
        }
}

/// The capabilities that it gets, and what it has to do for them.
fn caps(request: &Request, info: &Info, kind: EndpointKind) -> Result<(u64, u64), &'static str> {
    let [tx, rx] = kind.caps(info);
    let all = tx | rx;
    let asked = with_directions(request.caps);
    if asked & !all != 0 {
        return Err("capabilities");
    }
    let granted = if request.caps == 0 { all } else { asked | COMMON_CAPS };
    if kind == EndpointKind::Datagram {
        return Ok((granted, 0));
    }
    // A peer's write with data takes a receive. An application that is not prepared for that gets one-sided operations without
    // data.
    let takes = request.mode.is_none_or(|mode| mode & FI_RX_CQ_DATA != 0);
    Ok((granted, if takes && granted & FI_RMA != 0 { FI_RX_CQ_DATA } else { 0 }))
}

/// The modes of registration that it gets, and the mode that went before them.
fn modes(request: &Request, kind: EndpointKind, caps: u64) -> Result<(c_int, u64), &'static str> {
    let mut needed = kind.mr_mode();
    let is_target = caps & (FI_REMOTE_READ | FI_REMOTE_WRITE) != 0;
    if !is_target {
        needed &= !(FI_MR_VIRT_ADDR | FI_MR_PROV_KEY);
    }
    if kind == EndpointKind::Datagram && !is_target {
        // Nothing has to be registered.
        needed = 0;
    }
    let asked =
        request.mr_mode.unwrap_or(if request.version < API_WITH_MODES { 0 } else { needed });
    let takes_local =
        asked & FI_MR_LOCAL != 0 || request.mode.is_none_or(|mode| mode & FI_LOCAL_MR != 0);
    let is_old = request.version < API_WITH_MODES || asked & (FI_MR_BASIC | FI_MR_SCALABLE) != 0;
    if !is_old {
        return match needed & !asked {
            0 => Ok((needed | asked & FI_MR_LOCAL, 0)),
            _ => Err("modes of registration"),
        };
    }
    if kind == EndpointKind::Datagram && !(is_target && asked == FI_MR_SCALABLE) {
        return Ok((if asked == FI_MR_SCALABLE { asked } else { FI_MR_BASIC }, 0));
    }
    // Of the old two, one has keys and addresses of the provider's; the other has neither.
    if asked == FI_MR_SCALABLE || !takes_local {
        return Err("the modes of registration FI_MR_BASIC and FI_MR_SCALABLE");
    }
    Ok((FI_MR_BASIC, FI_LOCAL_MR))
}

/// The info that says nothing but that the provider is there, whatever the machine has (`fi_getinfo(3)`, `FI_PROV_ATTR_ONLY`).
pub(crate) fn provider_only(version: u32) -> Result<OwnedInfo, Errno> {
    let mut owned = OwnedInfo::new()?;
    let fabric = owned.parts()?.fabric;
    set_text(&mut fabric.name, FABRIC_NAME)?;
    (fabric.prov_version, fabric.api_version) = (crate::PROVIDER_VERSION, version);
    Ok(owned)
}

/// The info of a device at one of its addresses.
pub(crate) fn build(
    request: &Request,
    device: &Info,
    domain_name: &str,
    terms: Terms,
    address: IpAddr,
) -> Result<OwnedInfo, Errno> {
    let mut owned = OwnedInfo::new()?;
    let Terms { kind, caps, mode, mr_mode } = terms;
    let value = |of| match (request.wanted(of), kind.limit(device, of).1) {
        (0, default) => default,
        (wanted, _) if matches!(of, Limit::SendDepth | Limit::ReceiveDepth) => wanted,
        (wanted, default) => wanted.max(default),
    };
    let parts = owned.parts()?;
    let [tx_caps, rx_caps] = kind.caps(device);
    (parts.info.caps, parts.info.mode) = (caps, mode);
    let tx = parts.tx;
    (tx.caps, tx.mode) = (caps & tx_caps & !COMMON_CAPS, mode & !FI_RX_CQ_DATA);
    tx.op_flags = request.op_flags[0];
    // What costs fences is there where it is asked for.
    let costly = if caps & FI_ATOMIC != 0 { ORDER_WITH_ATOMICS } else { 0 };
    let order =
        |side: usize| ORDER & !costly | request.orders[side] & (costly | kind.order_on_request());
    (tx.msg_order, tx.comp_order) = (order(0), kind.completion_order());
    (tx.inject_size, tx.size) = (value(Limit::Inject), value(Limit::SendDepth));
    (tx.iov_limit, tx.rma_iov_limit) = (value(Limit::SendSegments), 1);
    let rx = parts.rx;
    (rx.caps, rx.mode) = (caps & rx_caps & !COMMON_CAPS, mode);
    rx.op_flags = request.op_flags[1];
    (rx.msg_order, rx.comp_order) = (order(1), kind.completion_order());
    (rx.size, rx.iov_limit) = (value(Limit::ReceiveDepth), value(Limit::ReceiveSegments));
    let ep = parts.ep;
    (ep.kind, ep.protocol, ep.protocol_version) = (kind.number(), PROTOCOL, 1);
    ep.mem_tag_format = if caps & FI_TAGGED != 0 { FI_TAG_GENERIC } else { 0 };
    ep.max_msg_size = value(Limit::Message);
    ep.max_order_raw_size = kind.limit(device, Limit::OrderReadAfterWrite).1;
    ep.max_order_waw_size = kind.limit(device, Limit::OrderWriteAfterWrite).1;
    if order(0) & FENCED_WRITES != 0 {
        ep.max_order_war_size = ep.max_order_waw_size;
    }
    let contexts = |of| match request.wanted(of) {
        FI_SHARED_CONTEXT => FI_SHARED_CONTEXT,
        _ => 1,
    };
    (ep.tx_ctx_cnt, ep.rx_ctx_cnt) =
        (contexts(Limit::SendContexts), contexts(Limit::ReceiveContexts));
    let domain = parts.domain;
    set_text(&mut domain.name, domain_name)?;
    // An application that takes care itself may say so, and gets what it said.
    domain.threading = match request.threading {
        FI_THREAD_UNSPEC => FI_THREAD_SAFE,
        wanted => wanted,
    };
    // It is automatic, which an application that would do it by hand does not notice.
    let progress = |wanted| if wanted == FI_PROGRESS_UNSPEC { FI_PROGRESS_AUTO } else { wanted };
    domain.control_progress = progress(request.progress[0]);
    domain.data_progress = progress(request.progress[1]);
    (domain.resource_mgmt, domain.av_type) = (FI_RM_ENABLED, request.av_type);
    (domain.mr_mode, domain.mr_key_size) = (mr_mode, size_of::<u64>());
    (domain.cq_data_size, domain.mr_iov_limit) = (CQ_DATA_SIZE, 1);
    (domain.cq_cnt, domain.ep_cnt) = (device.limits.completion_queues, device.limits.endpoints);
    (domain.tx_ctx_cnt, domain.rx_ctx_cnt) = (device.limits.endpoints, device.limits.endpoints);
    (domain.max_ep_tx_ctx, domain.max_ep_rx_ctx) = (1, 1);
    let sharing = |of| match is_shared(of, FI_SHARED_CONTEXT, (device, kind)) {
        true => device.limits.endpoints,
        false => 0,
    };
    (domain.max_ep_stx_ctx, domain.max_ep_srx_ctx) =
        (sharing(Limit::SendContexts), sharing(Limit::ReceiveContexts));
    (domain.cntr_cnt, domain.mr_cnt) = (value(Limit::Counters), value(Limit::Regions));
    domain.caps = COMMON_CAPS;
    set_text(&mut parts.fabric.name, FABRIC_NAME)?;
    // libfabric adds the provider's name itself.
    parts.fabric.prov_version = crate::PROVIDER_VERSION;
    parts.fabric.api_version = request.version;
    let port = request.source.map_or(0, |source| source.port());
    owned.set_source(SocketAddr::new(address, port))?;
    if let Some(destination) = request.destination {
        owned.set_destination(destination)?;
    }
    if let Some(passive) = request.passive {
        owned.set_handle(passive);
    }
    Ok(owned)
}
