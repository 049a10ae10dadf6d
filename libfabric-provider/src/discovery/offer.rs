//! What a device offers, in libfabric's terms.

use std::ffi::{CStr, c_int};

use fabric::{Capabilities, Info, MAX_CONNECT_DATA};

use super::request::Limit;
use crate::abi::flags::{
    FI_ATOMIC, FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_DIRECTED_RECV, FI_EP_MSG, FI_EP_RDM,
    FI_FENCE, FI_INJECT, FI_INJECT_COMPLETE, FI_LOCAL_COMM, FI_MATCH_COMPLETE, FI_MR_ALLOCATED,
    FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_MSG, FI_MULTI_RECV, FI_ORDER_ATOMIC_RAR,
    FI_ORDER_ATOMIC_RAW, FI_ORDER_ATOMIC_WAR, FI_ORDER_ATOMIC_WAW, FI_ORDER_RAR, FI_ORDER_RAS,
    FI_ORDER_RAW, FI_ORDER_RMA_RAR, FI_ORDER_RMA_RAW, FI_ORDER_RMA_WAR, FI_ORDER_RMA_WAW,
    FI_ORDER_SAS, FI_ORDER_SAW, FI_ORDER_STRICT, FI_ORDER_WAR, FI_ORDER_WAS, FI_ORDER_WAW,
    FI_PROV_SPECIFIC, FI_READ, FI_RECV, FI_REMOTE_COMM, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA,
    FI_SEND, FI_SOURCE, FI_TAGGED, FI_TRANSMIT_COMPLETE, FI_WRITE, version,
};

/// The name of this provider. It has none of the names that libfabric knows in it: of `tcp` it would expect more.
pub(crate) const PROVIDER_NAME: &CStr = c"anyfabric";
/// All devices belong to one fabric: which of them reach each other, only the network knows.
pub(crate) const FABRIC_NAME: &str = "anyfabric";
/// What its endpoints speak to each other.
pub(crate) const PROTOCOL: u32 = FI_PROV_SPECIFIC | 0xfab;
/// From this version of the interface on, modes of registration are bits.
pub(crate) const API_WITH_MODES: u32 = version(1, 5);

/// Of either side.
pub(crate) const COMMON_CAPS: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;
const TX_CAPS: u64 = FI_MSG | FI_RMA | FI_SEND | FI_READ | FI_WRITE | FI_FENCE | COMMON_CAPS;
const RX_CAPS: u64 = FI_MSG | FI_RMA | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | COMMON_CAPS;

/// What holds without a fence (the contract's table): whatever follows a send or a write, and a read that follows a read.
pub(crate) const ORDER: u64 = FI_ORDER_SAS
    | FI_ORDER_SAW
    | FI_ORDER_WAS
    | FI_ORDER_WAW
    | FI_ORDER_RAS
    | FI_ORDER_RAW
    | FI_ORDER_RAR
    | FI_ORDER_RMA_RAR
    | FI_ORDER_RMA_RAW
    | FI_ORDER_RMA_WAW;

/// Of these the ones that are of atomics as well, which are in order only behind a fence.
pub(crate) const ORDER_WITH_ATOMICS: u64 =
    FI_ORDER_SAW | FI_ORDER_WAW | FI_ORDER_RAW | FI_ORDER_RAR;

/// Orders in which a datagram endpoint gives each write a fence.
pub(crate) const FENCED_WRITES: u64 = FI_ORDER_WAR | FI_ORDER_RMA_WAR;
/// Those in which it gives each atomic one.
pub(crate) const FENCED_ATOMICS: u64 = FI_ORDER_WAR
    | FI_ORDER_ATOMIC_RAR
    | FI_ORDER_ATOMIC_RAW
    | FI_ORDER_ATOMIC_WAR
    | FI_ORDER_ATOMIC_WAW;

/// The flags that an endpoint can have for all its operations. A completion means that the peer has accepted it: more than
/// `FI_TRANSMIT_COMPLETE` asks for. `FI_DELIVERY_COMPLETE` there is for writes only, so it is none of these.
const TX_FLAGS: u64 = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE;
const RX_FLAGS: u64 = FI_COMPLETION | FI_TRANSMIT_COMPLETE;

/// Bytes of immediate data.
pub(crate) const CQ_DATA_SIZE: usize = 4;
/// Bytes that every connection request can carry.
pub(crate) const CM_DATA_SIZE: usize = MAX_CONNECT_DATA;

/// What an application gets that asks for no number.
const DEPTH: usize = 512;
const SEGMENTS: usize = 4;

/// The depth of a queue that no one asked a depth of.
pub(crate) fn default_depth(max: usize) -> usize {
    max.min(DEPTH)
}

/// What the application has to do when it registers memory. Addresses are virtual ones on every device: where buffers have to be
/// registered, `ofi_rxm` takes an offset for one in the buffer, whatever region that is in.
const MR_MODE: c_int = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;

/// Bytes that a datagram endpoint can inject: what is not sent at once is copied.
pub(crate) const RDM_INJECT: usize = 16 << 10;
/// What such an endpoint has room for, unless asked for more, and at most.
const RDM_DEPTHS: [(usize, usize); 2] = [(1 << 20, 1 << 12), (1 << 20, 1 << 14)];

/// The kinds of endpoints that devices offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndpointKind {
    Message,
    Datagram,
}

impl EndpointKind {
    pub(crate) const ALL: [EndpointKind; 2] = [EndpointKind::Message, EndpointKind::Datagram];

    /// As libfabric names it.
    pub(crate) fn number(self) -> c_int {
        match self {
            EndpointKind::Message => FI_EP_MSG,
            EndpointKind::Datagram => FI_EP_RDM,
        }
    }

    /// The capabilities of transmits and of receives.
    pub(crate) fn caps(self, info: &Info) -> [u64; 2] {
        if self == EndpointKind::Message {
            return [TX_CAPS, RX_CAPS];
        }
        let atomic = if info.capabilities.contains(Capabilities::ATOMIC) { FI_ATOMIC } else { 0 };
        let both = FI_TAGGED | atomic;
        let rx = FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE;
        [TX_CAPS | both, RX_CAPS | both | rx]
    }

    /// The orders that hold if the application asks for them: fences cost time.
    pub(crate) fn order_on_request(self) -> u64 {
        match self {
            EndpointKind::Message => 0,
            EndpointKind::Datagram => FENCED_WRITES | FENCED_ATOMICS,
        }
    }

    /// The order in which completions come: that of posts, and of arrivals. Those of datagram endpoints come as operations end,
    /// and a short message does not wait for a long one.
    pub(crate) fn completion_order(self) -> u64 {
        match self {
            EndpointKind::Message => FI_ORDER_STRICT,
            EndpointKind::Datagram => 0,
        }
    }

    /// The flags that it can have for all its operations: of transmits and of receives.
    pub(crate) fn op_flags(self) -> [u64; 2] {
        match self {
            EndpointKind::Message => [TX_FLAGS, RX_FLAGS],
            EndpointKind::Datagram => {
                [TX_FLAGS | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE, RX_FLAGS | FI_MULTI_RECV]
            }
        }
    }

    /// What the application has to do when it registers memory. A datagram endpoint takes buffers that are not registered: that
    /// they are is a favour.
    pub(crate) fn mr_mode(self) -> c_int {
        match self {
            EndpointKind::Message => MR_MODE,
            EndpointKind::Datagram => MR_MODE & !FI_MR_LOCAL,
        }
    }

    /// The largest value that a hint may ask for, and what is offered without one.
    pub(crate) fn limit(self, info: &Info, of: Limit) -> (usize, usize) {
        match (self, of) {
            (EndpointKind::Datagram, Limit::OrderWriteAfterRead) => {
                (limit(info, Limit::OrderWriteAfterWrite).0, 0)
            }
            (EndpointKind::Datagram, Limit::Inject) => (RDM_INJECT, RDM_INJECT),
            (EndpointKind::Datagram, Limit::SendDepth) => RDM_DEPTHS[0],
            (EndpointKind::Datagram, Limit::ReceiveDepth) => RDM_DEPTHS[1],
            (EndpointKind::Datagram, Limit::SendSegments | Limit::ReceiveSegments) => (1, 1),
            _ => limit(info, of),
        }
    }
}

/// The largest value that a hint may ask for, and what is offered without one.
fn limit(info: &Info, of: Limit) -> (usize, usize) {
    let limits = &info.limits;
    let message = usize::try_from(limits.message).unwrap_or(usize::MAX);
    let up_to = |max: usize, default: usize| (max, max.min(default));
    match of {
        Limit::Message | Limit::OrderReadAfterWrite | Limit::OrderWriteAfterWrite => {
            (message, message)
        }
        Limit::OrderWriteAfterRead => (0, 0),
        Limit::Inject => (limits.inject, limits.inject),
        // Each operation may need a place in a completion queue.
        Limit::SendDepth => up_to(limits.send_depth.min(limits.cq_capacity), DEPTH),
        Limit::ReceiveDepth => up_to(limits.recv_depth.min(limits.cq_capacity), DEPTH),
        Limit::SendSegments => up_to(limits.send_segments, SEGMENTS),
        Limit::ReceiveSegments => up_to(limits.recv_segments, SEGMENTS),
        Limit::RemoteSegments | Limit::SendContexts | Limit::ReceiveContexts => (1, 1),
        Limit::MrSegments => (1, 1),
        Limit::CqDataSize => (CQ_DATA_SIZE, CQ_DATA_SIZE),
        Limit::Counters => (limits.completion_queues, limits.completion_queues),
        Limit::Regions => (limits.regions, limits.regions),
        Limit::ErrorData => (0, 0),
    }
}
