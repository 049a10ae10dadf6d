//! Guests that hang up: behind every byte of a whole conversation, with an end of the stream or with a reset.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use fabric::{DisconnectReason, Status};
use fabric_util::stream::wire::frame::Kind as Frame;
use socket2::SockRef;

use crate::scene::*;

/// Closes a connection so that nothing more is sent, not even what the kernel still holds.
fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Whether the listener has none half-open and one connection is established; it finds out when it reads.
fn alone(scene: &Scene) -> bool {
    scene.server.domain.dump().contains("1 connections, 1 listeners, 0 half-open")
}

#[test]
fn hanging_up_anywhere_loses_that_connection_and_leaves_nothing() {
    let scene = Scene::new();
    let hello = hello(0);
    let mut rest = frame(Frame::Ack, 0, 0);
    rest.extend(frame(Frame::Send { total: 8, imm: None }, 8, 0));
    let to_payload = rest.len();
    rest.extend([0xab; 8]);
    let cuts = (0..=hello.len() + rest.len()).flat_map(|cut| [(cut, false), (cut, true)]);
    for (cut, resets) in cuts {
        let mut stream = scene.attack();
        stream.write_all(&hello[..cut.min(hello.len())]).unwrap();
        let end = |stream| if resets { reset(stream) } else { drop(stream) };
        let Some(more) = cut.checked_sub(hello.len()) else {
            end(stream);
            continue;
        };
        let endpoint = scene.server.endpoint();
        endpoint.recv(scene.server.region.slice(64..72), 5).unwrap();
        scene.listener.accept(SOON).unwrap().accept(&endpoint, &[]).unwrap();
        stream.read_exact(&mut vec![0; hello.len()]).unwrap();
        stream.write_all(&rest[..more]).unwrap();
        end(stream);

        let reason = endpoint.wait_disconnected(SOON).unwrap();
        assert_eq!(reason, DisconnectReason::PeerLost, "behind {cut}, reset: {resets}");
        let done = scene.server.wait();
        assert_eq!(done.context, 5);
        if more < rest.len() {
            // The payload may have begun; what is not whole is not received.
            assert_ne!(done.status, Status::Ok, "behind {cut}, {to_payload} before the payload");
        } else if !resets {
            assert_eq!((done.status, done.len), (Status::Ok, 8));
            assert_eq!(scene.server.region.get::<[u8; 8]>(64).unwrap(), [0xab; 8]);
        }
    }
    scene.check();
    let deadline = Instant::now() + SOON.unwrap();
    while !alone(&scene) {
        assert!(Instant::now() < deadline, "{}", scene.server.domain.dump());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_guest_that_ignores_the_end_is_not_waited_for() {
    let scene = Scene::new();
    let (mut stream, endpoint) = scene.linked();
    endpoint.disconnect();
    // It hears of the end, and keeps its own half open.
    stream.read_to_end(&mut Vec::new()).unwrap();
    let deadline = Instant::now() + SOON.unwrap();
    while !alone(&scene) {
        assert!(Instant::now() < deadline, "{}", scene.server.domain.dump());
        std::thread::sleep(Duration::from_millis(5));
    }
    while stream.write_all(&[0; 64]).is_ok() {
        assert!(Instant::now() < deadline, "the socket is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    scene.check();
}
