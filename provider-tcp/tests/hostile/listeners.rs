//! A client at something that is no fabric listener: each answer ends the connect, and says why.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use fabric::Error;
use provider_tcp::wire::handshake::{Handshake, Kind};

use crate::scene::*;

/// Connects to a listener that hears the hello, does `answer`, and stays silent until the client has left.
fn connect_to(answer: impl FnOnce(&mut TcpStream) + Send + 'static) -> Error {
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
    let patience = Duration::from_secs(1);
    let endpoint = side.domain.endpoint().connect_timeout(patience).build(&side.queue).unwrap();
    endpoint.connect(addr, &[]).unwrap();
    let error = endpoint.wait_connected(SOON).unwrap_err();
    drop(endpoint);
    server.join().unwrap();
    error
}

#[test]
fn answers_of_other_protocols_are_unreachable_and_say_so() {
    let mut version = Handshake { kind: Kind::Accept, data: 0, reads: 8, credit: 0 }.encode(&[]);
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
    assert!(matches!(connect_to(|_| ()), Error::TimedOut));
    let accept = Handshake { kind: Kind::Accept, data: 9, reads: 8, credit: 0 }.encode(&[7; 9]);
    assert!(matches!(
        connect_to(move |stream| stream.write_all(&accept[..25]).unwrap()),
        Error::TimedOut
    ));
}

#[test]
fn who_hangs_up_refuses() {
    let error = connect_to(|stream| stream.shutdown(std::net::Shutdown::Both).unwrap());
    assert!(matches!(error, Error::Refused), "{error:?}");
}

#[test]
fn dumps_show_where_connections_stand() {
    let scene = Scene::new();
    let (_stream, guest) = scene.guest();
    scene.endpoint.recv(scene.client.region.slice(..8), 1).unwrap();
    let text = scene.endpoint.dump();
    assert!(text.contains("linked") && text.contains(&scene.addr().to_string()), "{text}");
    assert!(guest.dump().contains("linked"), "{}", guest.dump());
    let text = scene.server.domain.dump();
    assert!(text.contains("2 connections, 1 listeners, 0 half-open"), "{text}");
}
