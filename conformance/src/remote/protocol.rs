//! What the two ends say to each other: calls with their answers, and what happens at the far end by itself.
//!
//! Objects are named by numbers of the near end's choice. Where a call answers with something, its type stands beside
//! it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fabric::EndpointAttr;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::wire::{Fault, WireInfo};
use crate::environment::Environment;

/// From the near end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) number: u64,
    pub(super) call: Call,
}

/// From the far end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// To the request of this number: the answer in the same code as a frame, or why there is none.
    Answer(u64, Result<ByteBuf, Fault>),
    /// An event of the domain.
    Event(Happening),
    /// A queue that was armed has something.
    Readable(u64),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Happening {
    Connected { endpoint: u64, data: ByteBuf },
    ConnectFailed { endpoint: u64, error: Fault },
    Disconnected { endpoint: u64, reason: u8 },
    ConnectRequest { listener: u64 },
    DeviceLost,
    PortDown,
    PortActive,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Call {
    /// Answers at once, for measuring the way.
    Echo,
    /// [`Survey`]
    Survey,
    /// The one domain of this connection.
    Open {
        provider: String,
        device: String,
    },
    /// [`WireCounters`]
    Counters,
    /// `String`, of an endpoint or of the domain.
    Dump {
        endpoint: Option<u64>,
    },

    /// Memory that regions are part of, zeroed.
    Allocate {
        memory: u64,
        len: u64,
    },
    Free {
        memory: u64,
    },
    Store {
        memory: u64,
        at: u64,
        bytes: ByteBuf,
    },
    /// [`ByteBuf`]
    Load {
        memory: u64,
        at: u64,
        len: u64,
    },
    /// [`Registered`]. `start` is the address by which the near end knows the region's first byte.
    Register {
        region: u64,
        memory: u64,
        at: u64,
        len: u64,
        access: u32,
        start: u64,
    },
    Deregister {
        region: u64,
    },
    /// [`Registered`]
    Grant {
        grant: u64,
        region: u64,
        endpoint: u64,
        from: u64,
        to: u64,
        access: u32,
    },
    Revoke {
        grant: u64,
    },

    MakeQueue {
        queue: u64,
        capacity: usize,
        vector: Option<u32>,
    },
    DropQueue {
        queue: u64,
    },
    /// `Vec<Done>`
    Poll {
        queue: u64,
        most: usize,
    },
    /// `bool`: whether something waits already. If not, a `Readable` follows.
    Arm {
        queue: u64,
    },

    /// `SocketAddr`
    Listen {
        listener: u64,
        addr: SocketAddr,
        backlog: usize,
    },
    /// `Option<Asking>`
    NextRequest {
        listener: u64,
    },
    DropListener {
        listener: u64,
    },
    Reject {
        request: u64,
        data: ByteBuf,
    },

    MakeEndpoint {
        endpoint: u64,
        attr: WireAttr,
        send_queue: u64,
        recv_queue: u64,
    },
    DropEndpoint {
        endpoint: u64,
    },
    Connect {
        endpoint: u64,
        to: SocketAddr,
        data: ByteBuf,
    },
    Accept {
        endpoint: u64,
        request: u64,
        data: ByteBuf,
    },
    Disconnect {
        endpoint: u64,
    },
    /// `(Option<SocketAddr>, Option<SocketAddr>)`: of this end and of the other.
    Addresses {
        endpoint: u64,
    },
    /// [`Taken`]
    PostSend {
        endpoint: u64,
        work: Vec<Work>,
    },
    /// [`Taken`]
    PostRecv {
        endpoint: u64,
        work: Vec<Receive>,
    },
}

/// What there is at the far end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Survey {
    pub(super) environment: Environment,
    /// How much slower than an ordinary machine it is.
    pub(super) factor: f64,
    pub(super) devices: Vec<Surveyed>,
}

/// A device, or why it cannot be used.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Surveyed {
    pub(super) provider: String,
    pub(super) device: String,
    pub(super) state: Result<WireInfo, String>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct WireCounters {
    pub(super) copied_bytes: u64,
    pub(super) wakeups: u64,
    pub(super) system_calls: u64,
    pub(super) protocol_errors: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Registered {
    pub(super) key: u64,
    pub(super) base: u64,
}

/// A connection request that was taken from its listener.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Asking {
    pub(super) request: u64,
    pub(super) peer: SocketAddr,
    pub(super) data: ByteBuf,
}

/// As [`EndpointAttr`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct WireAttr {
    send_depth: usize,
    recv_depth: usize,
    send_segments: usize,
    recv_segments: usize,
    inject: usize,
    connect_timeout: Duration,
    liveness: Option<Duration>,
    source: Option<IpAddr>,
    traffic_class: Option<u8>,
    gid_index: Option<u8>,
    ack_timeout: Option<Duration>,
    retries: Option<u8>,
    rnr_timer: Option<Duration>,
}

impl From<&EndpointAttr> for WireAttr {
    fn from(attr: &EndpointAttr) -> Self {
        WireAttr {
            send_depth: attr.send_depth,
            recv_depth: attr.recv_depth,
            send_segments: attr.send_segments,
            recv_segments: attr.recv_segments,
            inject: attr.inject,
            connect_timeout: attr.connect_timeout,
            liveness: attr.liveness,
            source: attr.source,
            traffic_class: attr.traffic_class,
            gid_index: attr.path.gid_index,
            ack_timeout: attr.path.ack_timeout,
            retries: attr.path.retries,
            rnr_timer: attr.path.rnr_timer,
        }
    }
}

impl From<WireAttr> for EndpointAttr {
    fn from(wire: WireAttr) -> Self {
        let mut attr = EndpointAttr::default();
        attr.send_depth = wire.send_depth;
        attr.recv_depth = wire.recv_depth;
        attr.send_segments = wire.send_segments;
        attr.recv_segments = wire.recv_segments;
        attr.inject = wire.inject;
        attr.connect_timeout = wire.connect_timeout;
        attr.liveness = wire.liveness;
        attr.source = wire.source;
        attr.traffic_class = wire.traffic_class;
        attr.path.gid_index = wire.gid_index;
        attr.path.ack_timeout = wire.ack_timeout;
        attr.path.retries = wire.retries;
        attr.path.rnr_timer = wire.rnr_timer;
        attr
    }
}

/// An operation for a send queue.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Work {
    pub(super) token: u64,
    pub(super) flags: u32,
    pub(super) op: WireOp,
    pub(super) local: Local,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum WireOp {
    Send { imm: Option<u32> },
    Write { to: Place, imm: Option<u32> },
    Read { from: Place },
    Atomic { at: Place, op: u8, ty: u8, operand: u64, compare: u64, fetch: bool },
}

/// In the memory of the near end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) key: u64,
    pub(super) addr: u64,
}

/// Where an operation's bytes come from or go to.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Local {
    Pieces(Vec<Piece>),
    Inject(ByteBuf),
}

/// Part of a region, by the addresses of the near end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Piece {
    pub(super) region: u64,
    pub(super) start: u64,
    pub(super) len: u64,
}

/// A receive.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Receive {
    pub(super) token: u64,
    pub(super) pieces: Vec<Piece>,
}

/// What became of a batch.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Taken {
    pub(super) accepted: usize,
    pub(super) refusal: Option<Fault>,
}

/// A completion.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) token: u64,
    pub(super) status: u8,
    pub(super) remote_write: bool,
    pub(super) len: u64,
    pub(super) immediate: Option<u32>,
    pub(super) provider_code: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_an_endpoint_travels() {
        let mut attr = EndpointAttr::default();
        (attr.send_depth, attr.recv_depth) = (1, 2);
        (attr.send_segments, attr.recv_segments, attr.inject) = (3, 4, 5);
        attr.connect_timeout = Duration::from_millis(6);
        attr.liveness = None;
        attr.source = Some([7, 7, 7, 7].into());
        attr.traffic_class = Some(8);
        attr.path.gid_index = Some(9);
        attr.path.ack_timeout = Some(Duration::from_millis(10));
        attr.path.retries = Some(5);
        attr.path.rnr_timer = Some(Duration::from_millis(11));
        let bytes = postcard::to_stdvec(&WireAttr::from(&attr)).unwrap();
        let back: WireAttr = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(EndpointAttr::from(back), attr);
    }
}
