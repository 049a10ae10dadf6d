//! Peers that do not keep the protocol, over real sockets: each ends its own connection and nothing more.

#![allow(clippy::unwrap_used)] // the helpers are of tests too

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use fabric::{
    Access, Catalog, Choice, Completion, CompletionQueue, Domain, Endpoint, Error, Hints, Listener,
    Region,
};
use provider_tcp::TcpProvider;
use provider_tcp::wire::frame::{Header, Kind as Frame};
use provider_tcp::wire::handshake::{Handshake, Kind};

const SOON: Option<Duration> = Some(Duration::from_secs(10));

struct Side {
    domain: Domain,
    queue: CompletionQueue,
    region: Region,
}

impl Side {
    fn new() -> Self {
        let catalog = Catalog::empty().add(TcpProvider::new()).unwrap();
        let domain = catalog.open_with(&Choice::Auto, &Hints::default()).unwrap();
        let queue = domain.completion_queue(4096).unwrap();
        let region = domain.alloc(4096, Access::ALL).unwrap();
        Side { domain, queue, region }
    }

    fn endpoint(&self) -> Endpoint {
        self.domain.endpoint().build(&self.queue).unwrap()
    }

    fn wait(&self) -> Completion {
        self.queue.wait_one(SOON).unwrap()
    }
}

/// A server with one well-behaved client, which must not notice anything of what happens beside it.
struct Scene {
    server: Side,
    client: Side,
    listener: Listener,
    endpoint: Endpoint,
    _peer: Endpoint,
}

impl Scene {
    fn new() -> Self {
        let (server, client) = (Side::new(), Side::new());
        let listener = server.domain.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let (endpoint, peer) = (client.endpoint(), server.endpoint());
        endpoint.connect(listener.local_addr(), &[]).unwrap();
        listener.accept(SOON).unwrap().accept(&peer, &[]).unwrap();
        endpoint.wait_connected(SOON).unwrap();
        peer.wait_connected(SOON).unwrap();
        Scene { server, client, listener, endpoint, _peer: peer }
    }

    fn addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    fn attack(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr()).unwrap();
        stream.set_read_timeout(SOON).unwrap();
        stream
    }

    /// A peer that shakes hands well, and the endpoint that the server gave it.
    fn guest(&self) -> (TcpStream, Endpoint) {
        let mut stream = self.attack();
        stream.write_all(&hello(0)).unwrap();
        let endpoint = self.server.endpoint();
        self.listener.accept(SOON).unwrap().accept(&endpoint, b"welcome").unwrap();
        let mut answer = [0; 27];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer[20..], b"welcome");
        (stream, endpoint)
    }

    /// The well-behaved client still does its work.
    fn check(&self) {
        let remote = self.server.region.remote();
        let before: u64 = self.server.region.get(0).unwrap();
        self.endpoint.fetch_add(1u64, self.client.region.slice(..8), remote.at(0), 7).unwrap();
        let done = self.client.wait();
        assert!(done.is_ok() && done.context == 7, "{done:?}");
        assert_eq!(self.client.region.get::<u64>(0).unwrap(), before);
    }

    fn breaches(&self) -> u64 {
        self.server.domain.counters().provider.protocol_errors
    }
}

fn hello(data: u16) -> Vec<u8> {
    let frame = Handshake { kind: Kind::Hello, data, reads: 8, credit: 0 };
    frame.encode(&vec![7; data.into()])
}

fn frame(kind: Frame, len: u32, seq: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    Header { kind, len, ack: 0, credit: 0, seq }.encode(&mut bytes);
    bytes
}

/// The server closed this connection: the stream ends, or is reset because bytes were left unread.
fn is_cut_off(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn greetings_of_other_protocols_are_cut_off() {
    let scene = Scene::new();
    let mut oversize = hello(0);
    oversize[6] = 49;
    let mut version = hello(0);
    version[4] = 9;
    let greetings: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n".to_vec(),
        b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        vec![0; 100],
        vec![0xff; 100],
        version,
        oversize,
        Handshake { kind: Kind::Accept, data: 0, reads: 1, credit: 0 }.encode(&[]),
        [hello(0), vec![1]].concat(),
    ];
    let count = greetings.len() as u64;
    for greeting in greetings {
        let mut stream = scene.attack();
        stream.write_all(&greeting).unwrap();
        assert!(is_cut_off(&mut stream), "{greeting:?}");
        scene.check();
    }
    assert_eq!(scene.breaches(), count);
    assert!(scene.listener.poll().is_none(), "none of them reached the application");
}

#[test]
fn a_guest_that_breaks_the_protocol_loses_its_connection_and_no_more() {
    let scene = Scene::new();
    let to = fabric::core::RemoteAddr { key: 1, addr: 0 };
    let breaches = [
        frame(Frame::Send { total: 8, imm: None }, 8, 0),
        frame(Frame::Read { from: to }, 8, 5),
        frame(Frame::Data { more: false }, 8, 0),
        frame(Frame::OldValue, 8, 0),
        vec![0xee; 64],
    ];
    for (i, breach) in breaches.iter().enumerate() {
        let (mut stream, endpoint) = scene.guest();
        stream.write_all(&frame(Frame::Ack, 0, 0)).unwrap();
        endpoint.wait_connected(SOON).unwrap();
        endpoint.recv(fabric::Slices::none(), 5).err();
        let _ = scene.server.queue.poll_one();
        stream.write_all(breach).unwrap();
        // The first of them may use the credit of the receive; its payload never comes.
        if i > 0 {
            assert!(is_cut_off(&mut stream), "breach {i}");
        }
        drop(stream);
        endpoint.wait_disconnected(SOON).unwrap();
        assert!(matches!(endpoint.inject(b"x", 0), Err(Error::NotConnected)));
        let canceled = scene.server.wait();
        assert_eq!((canceled.context, canceled.is_ok()), (5, false));
        scene.check();
    }
}

#[test]
fn guessed_keys_open_nothing() {
    let scene = Scene::new();
    for guess in 0..50u64 {
        let (mut stream, endpoint) = scene.guest();
        let to =
            fabric::core::RemoteAddr { key: guess.wrapping_mul(0x9e37_79b9_7f4a_7c15), addr: 0 };
        let mut bytes = frame(Frame::Write { total: 8, imm: None, to }, 8, 0);
        bytes.extend_from_slice(&[0xee; 8]);
        stream.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut answer);
        let nak = answer.iter().position(|byte| *byte == 9).map(|at| answer[at + 2]);
        assert_eq!(nak, Some(2), "a refusal with the status of a remote access error");
        endpoint.wait_disconnected(SOON).unwrap();
    }
    assert_eq!(scene.server.region.get::<u64>(0).unwrap(), 0);
    scene.check();
}

#[test]
fn half_open_connections_end_in_time() {
    let scene = Scene::new();
    let start = Instant::now();
    let mut silent: Vec<_> = (0..100).map(|_| scene.attack()).collect();
    let mut slow = scene.attack();
    for byte in hello(48).iter().take(8) {
        // One byte at a time does not buy more time.
        slow.write_all(&[*byte]).unwrap();
        scene.check();
        std::thread::sleep(Duration::from_millis(100));
    }
    for stream in silent.iter_mut().chain([&mut slow]) {
        assert!(is_cut_off(stream));
    }
    assert!(start.elapsed() >= Duration::from_secs(4), "they had their time");
    scene.check();
}

#[test]
fn giant_lengths_cost_nothing() {
    let scene = Scene::new();
    let (mut stream, endpoint) = scene.guest();
    // A read of a gibibyte, with a key that opens nothing: refused, and nothing was allocated for it.
    let from = fabric::core::RemoteAddr { key: 3, addr: 0 };
    stream.write_all(&frame(Frame::Read { from }, 1 << 30, 0)).unwrap();
    endpoint.wait_disconnected(SOON).unwrap();
    // A length that no frame can have.
    let (mut stream, endpoint) = scene.guest();
    let mut bytes = frame(Frame::Data { more: false }, 0, 0);
    bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    stream.write_all(&bytes).unwrap();
    endpoint.wait_disconnected(SOON).unwrap();
    scene.check();
}

#[test]
fn a_flood_of_reads_is_bounded() {
    let scene = Scene::new();
    let (mut stream, endpoint) = scene.guest();
    let remote = scene.server.region.remote();
    let from = fabric::core::RemoteAddr { key: remote.key(), addr: 0 };
    // Many more reads than may be under way, never reading an answer.
    let flood: Vec<u8> =
        (0..100_000).flat_map(|seq| frame(Frame::Read { from }, 4096, seq)).collect();
    let _ = stream.write_all(&flood);
    endpoint.wait_disconnected(SOON).unwrap();
    scene.check();
}

#[test]
fn data_after_the_end_is_dropped() {
    let scene = Scene::new();
    let (mut stream, endpoint) = scene.guest();
    stream.write_all(&frame(Frame::Bye, 0, 0)).unwrap();
    let remote = scene.server.region.remote();
    let to = fabric::core::RemoteAddr { key: remote.key(), addr: 64 };
    let mut late = frame(Frame::Write { total: 8, imm: None, to }, 8, 0);
    late.extend_from_slice(&[0xee; 8]);
    let _ = stream.write_all(&late);
    endpoint.wait_disconnected(SOON).unwrap();
    scene.check();
    assert_eq!(scene.server.region.get::<u64>(64).unwrap(), 0);
}
