//! A server with a well-behaved client, and what attackers say to it.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests
#![allow(dead_code, unreachable_pub)] // each test program uses its part

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use fabric::{
    Access, Catalog, Choice, Completion, CompletionQueue, Domain, Endpoint, Hints, Listener,
    Region, Secret,
};
use fabric_util::stream::wire::frame::{Header, Kind as Frame};
use fabric_util::stream::wire::handshake::{Handshake, HandshakeKind};
use provider_tcp::TcpProvider;

pub const SOON: Option<Duration> = Some(Duration::from_secs(30));

pub struct Side {
    pub domain: Domain,
    pub queue: CompletionQueue,
    pub region: Region,
}

impl Side {
    pub fn new() -> Self {
        Side::with(None)
    }

    pub fn with(secret: Option<&Secret>) -> Self {
        Side::hinted(&Hints { secret: secret.cloned(), ..Hints::default() })
    }

    pub fn hinted(hints: &Hints) -> Self {
        let catalog = Catalog::empty().add(TcpProvider::new()).unwrap();
        let domain = catalog.open_with(&Choice::Auto, hints).unwrap();
        let queue = domain.completion_queue(4096).unwrap();
        let region = domain.alloc(4096, Access::ALL).unwrap();
        Side { domain, queue, region }
    }

    pub fn endpoint(&self) -> Endpoint {
        self.domain.endpoint().build(&self.queue).unwrap()
    }

    pub fn wait(&self) -> Completion {
        self.queue.wait_one(SOON).unwrap()
    }
}

/// A server with one well-behaved client, which must not notice anything of what happens beside it.
pub struct Scene {
    pub server: Side,
    pub client: Side,
    pub listener: Listener,
    pub endpoint: Endpoint,
    _peer: Endpoint,
}

impl Scene {
    pub fn new() -> Self {
        let (server, client) = (Side::new(), Side::new());
        let listener = server.domain.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let (endpoint, peer) = (client.endpoint(), server.endpoint());
        endpoint.connect(listener.local_addr(), &[]).unwrap();
        listener.accept(SOON).unwrap().accept(&peer, &[]).unwrap();
        endpoint.wait_connected(SOON).unwrap();
        peer.wait_connected(SOON).unwrap();
        Scene { server, client, listener, endpoint, _peer: peer }
    }

    pub fn addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    pub fn attack(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr()).unwrap();
        stream.set_read_timeout(SOON).unwrap();
        stream
    }

    /// A peer that shakes hands well, and the endpoint that the server gave it.
    pub fn guest(&self) -> (TcpStream, Endpoint) {
        self.guest_at(self.server.endpoint())
    }

    /// As `guest`, at this endpoint of the server.
    pub fn guest_at(&self, endpoint: Endpoint) -> (TcpStream, Endpoint) {
        let mut stream = self.attack();
        stream.write_all(&hello(0)).unwrap();
        self.listener.accept(SOON).unwrap().accept(&endpoint, b"welcome").unwrap();
        let mut answer = [0; 27];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer[20..], b"welcome");
        (stream, endpoint)
    }

    /// A guest whose connection is established.
    pub fn linked(&self) -> (TcpStream, Endpoint) {
        self.linked_at(self.server.endpoint())
    }

    /// As `linked`, at this endpoint of the server.
    pub fn linked_at(&self, endpoint: Endpoint) -> (TcpStream, Endpoint) {
        let (mut stream, endpoint) = self.guest_at(endpoint);
        stream.write_all(&frame(Frame::Ack, 0, 0)).unwrap();
        endpoint.wait_connected(SOON).unwrap();
        (stream, endpoint)
    }

    /// The well-behaved client still does its work.
    pub fn check(&self) {
        let remote = self.server.region.remote();
        let before: u64 = self.server.region.get(0).unwrap();
        self.endpoint.fetch_add(1u64, self.client.region.slice(..8), remote.at(0), 7).unwrap();
        let done = self.client.wait();
        assert!(done.is_ok() && done.context == 7, "{done:?}");
        assert_eq!(self.client.region.get::<u64>(0).unwrap(), before);
    }

    pub fn refused(&self) -> u64 {
        self.server.domain.counters().provider.peers_refused
    }

    pub fn breaches(&self) -> u64 {
        self.server.domain.counters().provider.protocol_errors
    }
}

pub fn hello(data: u16) -> Vec<u8> {
    let frame = Handshake::new(HandshakeKind::Hello, 8, 0);
    frame.encode(&vec![7; data.into()])
}

pub fn frame(kind: Frame, len: u32, seq: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    Header { kind, ask: false, len, ack: 0, credit: 0, seq }.encode(&mut bytes);
    bytes
}

/// The server closed this connection: the stream ends, or is reset because bytes were left unread.
pub fn is_cut_off(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}
