//! What the two ends send each other: calls with their answers, and what happens at the far end by itself.
//!
//! Objects are named by numbers of the near end's choice. The type of a call's answer, where it has one, is in its
//! documentation. The library's plain types travel as they are, by serde.

use std::net::SocketAddr;
use std::ops::Range;

use fabric::provider::{Event, SendOp, Token};
use fabric::{CqAttr, Discovered, EndpointAttr, Error, ListenerAttr, Result, SharedReceiveAttr};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::rdm::RdmCall;
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
    Answer(u64, Result<ByteBuf>),
    /// An event of the domain, with the near end's names.
    Event(Event),
    /// A queue that was armed has something.
    Readable(u64),
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
    /// [`ProviderCounters`](fabric::provider::ProviderCounters)
    Counters,
    /// `String`, of an endpoint or of the domain.
    Dump {
        endpoint: Option<u64>,
    },
    Memory(MemoryCall),
    Queue(QueueCall),
    Shared(SharedCall),
    Listener(ListenerCall),
    Endpoint(EndpointCall),
    /// To the reliable datagram endpoint of this name.
    Rdm {
        endpoint: u64,
        call: RdmCall,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum MemoryCall {
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
    /// [`RemoteAddr`](fabric::provider::RemoteAddr): the region's remote key and base. `start` is the address by which
    /// the near end knows its first byte.
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
    /// Ends the registration of what begins at this address, and fails if operations use it that the near end does not know of.
    Close {
        start: u64,
    },
    /// [`RemoteAddr`](fabric::provider::RemoteAddr): the grant's remote key and base.
    Grant {
        grant: u64,
        region: u64,
        endpoint: u64,
        range: Range<usize>,
        access: u32,
    },
    Revoke {
        grant: u64,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum QueueCall {
    Make {
        queue: u64,
        attr: CqAttr,
    },
    Drop {
        queue: u64,
    },
    /// `Vec<RawCompletion>`
    Poll {
        queue: u64,
        max: usize,
    },
    /// `bool`: whether something waits already. If not, a `Readable` follows.
    Arm {
        queue: u64,
    },
}

/// Of a receive queue that endpoints share.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SharedCall {
    Make {
        receives: u64,
        attr: SharedReceiveAttr,
        queue: u64,
    },
    /// No endpoint uses it any more.
    Drop {
        receives: u64,
    },
    /// [`Posted`](fabric::provider::Posted)
    PostRecv {
        receives: u64,
        work: Vec<RecvMsg>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ListenerCall {
    /// `SocketAddr`
    Listen {
        listener: u64,
        addr: SocketAddr,
        attr: ListenerAttr,
    },
    /// `Option<RawRequest>`
    NextRequest {
        listener: u64,
    },
    Drop {
        listener: u64,
    },
    Reject {
        request: u64,
        data: ByteBuf,
    },
    IsWaiting {
        request: u64,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum EndpointCall {
    Make {
        endpoint: u64,
        attr: EndpointAttr,
        send_queue: u64,
        receives: Receives,
    },
    Drop {
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
    /// [`Posted`](fabric::provider::Posted)
    PostSend {
        endpoint: u64,
        work: Vec<SendMsg>,
    },
    /// [`Posted`](fabric::provider::Posted)
    PostRecv {
        endpoint: u64,
        work: Vec<RecvMsg>,
    },
}

/// Where an endpoint's receives come from.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Receives {
    /// A queue of its own, with the completions in this completion queue.
    Own(u64),
    Shared(u64),
}

/// An answer as it travels.
pub(super) fn answer(value: &impl Serialize) -> Result<ByteBuf> {
    let bytes = postcard::to_stdvec(value);
    bytes.map(ByteBuf::from).map_err(|error| Error::invalid("answer", error.to_string()))
}

/// What there is at the far end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Survey {
    pub(super) environment: Environment,
    /// How much slower than an ordinary machine it is.
    pub(super) factor: f64,
    pub(super) devices: Vec<Discovered>,
}

/// An operation for a send queue.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SendMsg {
    pub(super) token: Token,
    pub(super) flags: u32,
    pub(super) op: SendOp,
    pub(super) local: LocalBytes,
}

/// Where an operation's bytes come from or go to.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum LocalBytes {
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
pub(super) struct RecvMsg {
    pub(super) token: Token,
    pub(super) pieces: Vec<Piece>,
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::time::Duration;

    use fabric::provider::{AtomicCall, Posted, RawCompletion, RawRequest, RemoteAddr, RequestId};
    use fabric::{AtomicOp, AtomicType, Catalog, DisconnectReason, EndpointId, ListenerId, Status};
    use proptest::prelude::*;
    use serde::de::DeserializeOwned;

    use super::*;

    fn attr() -> EndpointAttr {
        let mut attr = EndpointAttr::default();
        (attr.send_depth, attr.recv_depth) = (1, 2);
        (attr.send_segments, attr.recv_segments, attr.inject) = (3, 4, 5);
        attr.connect_timeout = Duration::from_millis(6);
        attr.liveness = None;
        attr.stall = Some(Duration::from_secs(12));
        attr.source = Some([7, 7, 7, 7].into());
        attr.traffic_class = Some(8);
        attr.path.gid_index = Some(9);
        attr.path.ack_timeout = Some(Duration::from_millis(10));
        attr.path.retries = Some(5);
        attr.path.rnr_timer = Some(Duration::from_millis(11));
        attr
    }

    fn sends() -> Vec<SendMsg> {
        let at = RemoteAddr { key: 1 << 60, addr: 2 };
        let (op, ty) = (AtomicOp::CompareSwap, AtomicType::F64);
        let call = AtomicCall { op, ty, operand: u64::MAX, compare: 3 };
        let piece = Piece { region: 4, start: 1 << 47, len: 5 };
        [
            (SendOp::Send { imm: Some(6) }, LocalBytes::Inject(vec![7; 200].into())),
            (SendOp::Write { to: at, imm: None }, LocalBytes::Pieces(vec![piece, piece])),
            (SendOp::Read { from: at }, LocalBytes::Pieces(vec![piece])),
            (SendOp::Atomic { at, call, fetch: true }, LocalBytes::Pieces(Vec::new())),
        ]
        .map(|(op, local)| SendMsg { token: Token::from_bits(8), flags: 9, op, local })
        .into()
    }

    fn calls() -> Vec<Call> {
        let (memory, endpoint, listener, queue) = (1, 2, 3, 4);
        let (region, request, at, len) = (5, 6, 7, 8);
        let data = || ByteBuf::from(vec![1, 2, 3]);
        let addr = SocketAddr::from(([127, 0, 0, 1], 9));
        let memories = [
            MemoryCall::Allocate { memory, len },
            MemoryCall::Free { memory },
            MemoryCall::Store { memory, at, bytes: data() },
            MemoryCall::Load { memory, at, len },
            MemoryCall::Register { region, memory, at, len, access: 9, start: 10 },
            MemoryCall::Deregister { region },
            MemoryCall::Close { start: 19 },
            MemoryCall::Grant { grant: 15, region, endpoint, range: 16..17, access: 18 },
            MemoryCall::Revoke { grant: 15 },
        ];
        let mut cq = CqAttr::new(11);
        cq.vector = Some(12);
        let queues = [
            QueueCall::Make { queue, attr: cq },
            QueueCall::Drop { queue },
            QueueCall::Poll { queue, max: usize::MAX },
            QueueCall::Arm { queue },
        ];
        let receive = || RecvMsg { token: Token::from_bits(13), pieces: Vec::new() };
        let shared = [
            SharedCall::Make { receives: 19, attr: SharedReceiveAttr::new(20), queue },
            SharedCall::Drop { receives: 19 },
            SharedCall::PostRecv { receives: 19, work: vec![receive()] },
        ];
        let listeners = [
            ListenerCall::Listen { listener, addr, attr: ListenerAttr::default() },
            ListenerCall::NextRequest { listener },
            ListenerCall::Drop { listener },
            ListenerCall::Reject { request, data: data() },
            ListenerCall::IsWaiting { request },
        ];
        let made =
            |receives| EndpointCall::Make { endpoint, attr: attr(), send_queue: queue, receives };
        let endpoints = [
            made(Receives::Own(14)),
            made(Receives::Shared(19)),
            EndpointCall::Drop { endpoint },
            EndpointCall::Connect { endpoint, to: addr, data: data() },
            EndpointCall::Accept { endpoint, request, data: data() },
            EndpointCall::Disconnect { endpoint },
            EndpointCall::Addresses { endpoint },
            EndpointCall::PostSend { endpoint, work: sends() },
            EndpointCall::PostRecv { endpoint, work: vec![receive()] },
        ];
        let open = Call::Open { provider: "tcp".to_owned(), device: "lo".to_owned() };
        let dump = Call::Dump { endpoint: Some(endpoint) };
        [Call::Echo, Call::Survey, open, Call::Counters, dump]
            .into_iter()
            .chain(memories.map(Call::Memory))
            .chain(queues.map(Call::Queue))
            .chain(shared.map(Call::Shared))
            .chain(listeners.map(Call::Listener))
            .chain(endpoints.map(Call::Endpoint))
            .chain(RdmCall::samples().map(|call| Call::Rdm { endpoint, call }))
            .collect()
    }

    fn messages() -> Vec<Message> {
        let (endpoint, listener) = (EndpointId(1), ListenerId(2));
        let events = [
            Event::Connected { endpoint, data: Box::new([1, 2]) },
            Event::ConnectFailed { endpoint, error: Error::Rejected(Box::new(Box::new([3]))) },
            Event::Disconnected { endpoint, reason: DisconnectReason::PeerLost },
            Event::ConnectRequest { listener },
            Event::DeviceLost,
            Event::PortDown,
            Event::PortActive,
        ];
        let cause = std::io::Error::from_raw_os_error(libc::ECONNABORTED);
        let answers = [
            Message::Answer(4, Ok(vec![5].into())),
            Message::Answer(6, Err(Error::system("connect", "verbs", cause))),
            Message::Readable(7),
        ];
        answers.into_iter().chain(events.map(Message::Event)).collect()
    }

    #[track_caller]
    fn survives<T: Debug + Serialize + DeserializeOwned>(value: &T) {
        let bytes = postcard::to_stdvec(value).unwrap();
        let back: T = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(format!("{back:?}"), format!("{value:?}"));
    }

    #[test]
    fn every_message_and_answer_survives() {
        for (number, call) in (0..).zip(calls()) {
            survives(&Request { number, call });
        }
        messages().iter().for_each(survives);
        let mut raw = RawCompletion::new(Token::from_bits(1), Status::RemoteAccess);
        (raw.remote_write, raw.len, raw.immediate, raw.provider_code) = (true, 2, Some(3), 4);
        raw.endpoint = Some(EndpointId(5));
        survives(&vec![raw]);
        let addr = SocketAddr::from(([127, 0, 0, 1], 5));
        survives(&Some(RawRequest::new(RequestId(6), addr, Box::new([7]))));
        survives(&Posted::until(8, Error::Again));
        let devices = Catalog::builtin().discover(&crate::choose::anything()).unwrap();
        survives(&Survey { environment: Environment::now(), factor: 9.5, devices });
    }

    /// What is no message is an error; what is one by chance survives.
    fn decodes<T: Debug + Serialize + DeserializeOwned>(bytes: &[u8]) {
        if let Ok(value) = postcard::from_bytes::<T>(bytes) {
            survives(&value);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_a_message_or_an_error(
            bytes in prop::collection::vec(prop_oneof![0u8..9, any::<u8>()], 0..64),
        ) {
            decodes::<Request>(&bytes);
            decodes::<Message>(&bytes);
            decodes::<Vec<RawCompletion>>(&bytes);
            decodes::<Option<RawRequest>>(&bytes);
            decodes::<Posted>(&bytes);
            decodes::<Survey>(&bytes);
        }
    }
}
