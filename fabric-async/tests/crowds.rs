//! Crowds from one address, which take what they can get: a client from elsewhere gets in within a second.

#![cfg(not(miri))] // Miri has no sockets
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use common::{eventually, node, pair};
use fabric_async::{Connection, Error, Listener, Node, NodeBuilder, block_on};
use fabric_util::stream::wire::frame::{Header, Kind as Frame};
use fabric_util::stream::wire::handshake::{self, Handshake, HandshakeKind};

const LONG: Duration = Duration::from_secs(60);
/// For one that gets in, at once if the machine has nothing else to do: less than what the crowd is waited for.
const HONEST: Duration = Duration::from_secs(20);
const CROWD: [u8; 4] = [127, 0, 0, 2];

/// The greeting of a connection of the application's.
fn hello(leases: bool, token: u64) -> Vec<u8> {
    let mut bytes = vec![b'f', b'A', 1, u8::from(leases) << 1];
    bytes.extend((1u32 << 20).to_le_bytes());
    bytes.extend(token.to_le_bytes());
    bytes
}

/// Asks a listener to be let in, from an address of the crowd, and says nothing more.
fn asking(from: [u8; 4], to: SocketAddr, leases: bool, token: u64) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    let frame = Handshake::new(HandshakeKind::Hello, 8, 0);
    stream.write_all(&frame.encode(&hello(leases, token))).unwrap();
    stream
}

/// A connection without leases, over which nothing is sent; `None` if the listener does not accept it.
fn silent(from: [u8; 4], to: SocketAddr) -> Option<TcpStream> {
    let mut stream = asking(from, to, false, 0);
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut answer = [0; handshake::LEN + 16];
    stream.read_exact(&mut answer[..handshake::LEN]).ok()?;
    if answer[5] != HandshakeKind::Accept as u8 {
        return None;
    }
    stream.read_exact(&mut answer[handshake::LEN..]).unwrap();
    let mut ack = Vec::new();
    Header { kind: Frame::Ack, ask: false, len: 0, ack: 0, credit: 0, seq: 0 }.encode(&mut ack);
    stream.write_all(&ack).unwrap();
    Some(stream)
}

/// Whether the listener has closed the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let end = stream.read(&mut [0; 64]);
    stream.set_nonblocking(false).unwrap();
    !matches!(&end, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Accepts for a little, and forgets those that have ended.
fn serve_some(listener: &Listener, conns: &mut Vec<Connection>) {
    let mut accept = std::pin::pin!(listener.accept());
    let mut cx = Context::from_waker(Waker::noop());
    let soon = Instant::now() + Duration::from_millis(20);
    while Instant::now() < soon {
        if let Poll::Ready(conn) = accept.as_mut().poll(&mut cx) {
            conns.push(conn.unwrap());
            break;
        }
        std::thread::yield_now();
    }
    conns.retain(|conn| conn.end().is_none());
}

/// A server that accepts all, and keeps each connection until it ends, while `beside` runs. Gives the connections, which should be
/// so many: a client knows a little before the server that it is in.
fn serve<T>(listener: &Listener, count: usize, beside: impl FnOnce() -> T) -> (T, Vec<Connection>) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut conns: Vec<Connection> = Vec::new();
            while !over.load(Ordering::Relaxed) {
                serve_some(listener, &mut conns);
            }
            let until = Instant::now() + HONEST;
            while conns.len() != count && Instant::now() < until {
                serve_some(listener, &mut conns);
            }
            conns
        });
        // The server ends though this panics.
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let end = Over(&over);
        let value = beside();
        drop(end);
        (value, server.join().unwrap())
    })
}

/// A server over TCP, if loopback is there with its many addresses.
fn server(settings: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Option<(Node, Listener)> {
    let server = node(settings);
    if server.domain().provider() != "tcp" {
        println!("NOT RUN: only loopback has addresses enough");
        return None;
    }
    let listener = block_on(server.listen("127.0.0.1:0")).unwrap();
    Some((server, listener))
}

fn honest() -> Node {
    node(|b| b.connect_timeout(HONEST))
}

#[test]
fn a_crowd_that_does_not_finish_its_set_ups_keeps_nobody_out() {
    let Some((_server, listener)) = server(|b| b.connect_timeout(LONG)) else { return };
    let to = listener.local_addr();
    // More than are set up at a time, and than may wait.
    let crowd: Vec<_> = (0..250).map(|token| asking(CROWD, to, true, token)).collect();
    let client = honest();
    let (honest, let_in) = serve(&listener, 4, || [(); 4].map(|()| block_on(client.connect(to))));
    for conn in &honest {
        assert!(conn.is_ok(), "{conn:?}");
    }
    assert_eq!(let_in.len(), honest.len(), "{let_in:?}");
    drop(crowd);
}

#[test]
fn peers_that_left_while_they_waited_make_room() {
    let Some((_server, listener)) = server(|b| b.backlog(2)) else { return };
    let to = listener.local_addr();
    // From a network each, so that none is displaced for another.
    let waiting = [3, 4].map(|host| asking([127, 0, 0, host], to, false, 0));
    let stays = |mut stream: TcpStream| {
        std::thread::sleep(Duration::from_millis(50));
        !is_closed(&mut stream)
    };
    eventually("the backlog is full", || !stays(asking([127, 0, 0, 5], to, false, 0)));
    drop(waiting);
    eventually("a newcomer may wait", || stays(asking([127, 0, 0, 5], to, false, 0)));
}

#[test]
fn a_crowd_of_connections_leaves_places_for_others() {
    let Some((server, listener)) = server(|b| b.connections(16)) else { return };
    let to = listener.local_addr();
    let client = honest();
    let ((crowd, honest), let_in) = serve(&listener, 15, || {
        let crowd: Vec<_> = (0..40).filter_map(|_| silent(CROWD, to)).collect();
        let honest = [(); 3].map(|()| block_on(client.connect(to)));
        (crowd, honest)
    });
    assert_eq!(crowd.len(), 12, "three quarters");
    for conn in &honest {
        assert!(conn.is_ok(), "{conn:?}");
    }
    assert_eq!(let_in.len(), 15, "{let_in:?}");
    drop((crowd, let_in));
    eventually("they have gone", || server.operations() == 0);
    // All is given back.
    let all = [(); 12].map(|()| block_on(pair(&server)));
    drop(all);
}

#[test]
fn a_connection_that_was_never_used_makes_room() {
    let settings =
        |b: NodeBuilder| b.connections(3).connections_per_address(3).first_use(Some(LONG));
    let Some((_server, listener)) = server(settings) else { return };
    let to = listener.local_addr();
    let client = honest();
    let ((mut crowd, honest), let_in) = serve(&listener, 3, || {
        let crowd: Vec<_> = (0..4).filter_map(|_| silent(CROWD, to)).collect();
        (crowd, [(); 2].map(|()| block_on(client.connect(to))))
    });
    let [first, second] = honest;
    assert_eq!((crowd.len(), let_in.len()), (3, 3), "{let_in:?}");
    assert!(first.is_ok(), "{first:?}");
    let refused = second.unwrap_err();
    assert!(matches!(refused, Error::Rejected(_)), "as many each, then: {refused}");
    eventually("the oldest is closed", || is_closed(&mut crowd[0]));
    assert!(!is_closed(&mut crowd[1]) && !is_closed(&mut crowd[2]));
}
