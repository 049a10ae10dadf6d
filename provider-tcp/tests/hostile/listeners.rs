//! A client at something that is no fabric listener: each answer ends the connect, and says why.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use fabric::Error;
use fabric_util::stream::wire::handshake::{Handshake, HandshakeKind};

use crate::scene::*;

/// Connects to a listener that hears the hello, does `answer`, and stays silent until the client has left.
fn connect_to(answer: impl FnOnce(&mut TcpStream) + Send + 'static) -> Error {
    connect_with(SOON.unwrap(), answer)
}

/// The same, by a client that waits so long.
fn connect_with(patience: Duration, answer: impl FnOnce(&mut TcpStream) + Send + 'static) -> Error {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 20];
        stream.read_exact(&mut bytes).unwrap();
        answer(&mut stream);
        assert!(is_cut_off(&mut stream), "the client leaves");
    });
    let side = Side::new();
    let endpoint = side.domain.endpoint().connect_timeout(patience).build(&side.queue).unwrap();
    endpoint.connect(addr, &[]).unwrap();
    let error = endpoint.wait_connected(SOON).unwrap_err();
    drop(endpoint);
    server.join().unwrap();
    error
}

#[test]
fn answers_of_other_protocols_are_unreachable_and_say_so() {
    let mut version = Handshake::new(HandshakeKind::Accept, 8, 0).encode(&[]);
    version[4] = 9;
    let answers = [b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), vec![0xff; 64], version];
    for answer in answers {
        let error = connect_to(move |stream| stream.write_all(&answer).unwrap());
        assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
        assert!(error.to_string().contains("the peer is no fabric listener"), "{error}");
    }
}

#[test]
fn a_hello_is_no_answer_to_a_hello() {
    let error = connect_to(|stream| stream.write_all(&hello(0)).unwrap());
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    assert!(error.to_string().contains("answered a hello with a hello"), "{error}");
}

#[test]
fn silence_and_half_an_answer_time_out() {
    let patience = Duration::from_secs(2);
    assert!(matches!(connect_with(patience, |_| ()), Error::TimedOut(_)));
    let accept = Handshake::new(HandshakeKind::Accept, 8, 0).encode(&[7; 9]);
    assert!(matches!(
        connect_with(patience, move |stream| stream.write_all(&accept[..25]).unwrap()),
        Error::TimedOut(_)
    ));
}

#[test]
fn who_hangs_up_refuses() {
    let error = connect_to(|stream| stream.shutdown(std::net::Shutdown::Both).unwrap());
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
}

#[test]
fn who_resets_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let side = Side::new();
    let endpoint = side.endpoint();
    endpoint.connect(listener.local_addr().unwrap(), &[]).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; 20]).unwrap();
    // Closing it with no time to linger is a reset.
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    let error = endpoint.wait_connected(SOON).unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
}

/// This process's sockets of a connection.
fn sockets_of(endpoint: &fabric::Endpoint) -> Vec<socket2::Socket> {
    let mut found: Vec<socket2::Socket> = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let Ok(fd) = entry.unwrap().file_name().into_string().unwrap().parse() else { continue };
        // A copy of ours, by a number that another test gave back, or that the listing has yet to come to.
        if found.iter().any(|copy| copy.as_raw_fd() == fd) {
            continue;
        }
        // SAFETY: only copied, which fails if it has been closed meanwhile.
        let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
        let Ok(copy) = borrowed.try_clone_to_owned() else { continue };
        let socket = socket2::Socket::from(copy);
        let (local, peer) = (socket.local_addr(), socket.peer_addr());
        // Connections to different places may share a port.
        let ends = [local, peer].map(|addr| addr.ok().and_then(|addr| addr.as_socket()));
        if ends == [endpoint.local_addr(), endpoint.peer_addr()] {
            found.push(socket);
        }
    }
    found
}

#[test]
fn a_traffic_class_is_the_sockets() {
    for ip in ["127.0.0.1:0", "[::1]:0"] {
        let (server, client) = (Side::new(), Side::new());
        let Ok(listener) = server.domain.listen(ip.parse().unwrap()) else { continue };
        let build =
            |side: &Side| side.domain.endpoint().traffic_class(0x28).build(&side.queue).unwrap();
        let (endpoint, peer) = (build(&client), build(&server));
        endpoint.connect(listener.local_addr(), &[]).unwrap();
        listener.accept(SOON).unwrap().accept(&peer, &[]).unwrap();
        endpoint.wait_connected(SOON).unwrap();
        let sockets = sockets_of(&endpoint);
        assert_eq!(sockets.len(), 1);
        for socket in sockets {
            let v6 = endpoint.local_addr().unwrap().is_ipv6();
            let class = if v6 { socket.tclass_v6() } else { socket.tos_v4() };
            assert_eq!(class.unwrap(), 0x28, "{ip}");
        }
    }
}

/// A dump takes no lock that somebody has: it is taken again until it shows everything.
fn whole(dump: impl Fn() -> String) -> String {
    loop {
        let text = dump();
        if !text.contains("that is busy") {
            return text;
        }
        thread::yield_now();
    }
}

#[test]
fn dumps_show_where_connections_stand() {
    let scene = Scene::new();
    let (_stream, guest) = scene.guest();
    scene.endpoint.recv(scene.client.region.slice(..8), 1).unwrap();
    let text = whole(|| scene.endpoint.dump());
    assert!(text.contains("linked") && text.contains(&scene.addr().to_string()), "{text}");
    let text = whole(|| guest.dump());
    assert!(text.contains("linked"), "{text}");
    let text = whole(|| scene.server.domain.dump());
    assert!(text.contains("2 connections, 1 listeners, 0 half-open"), "{text}");
}
