//! Guests that shook hands well, and then do not keep the protocol.

use std::io::{Read, Write};
use std::net::Shutdown;

use fabric::Error;
use fabric::provider::RemoteAddr;
use fabric_util::stream::wire::frame::{Header, Kind as Frame};

use crate::scene::*;

fn header(kind: Frame, ack: u32, credit: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    Header { kind, ask: false, len: 0, ack, credit, seq: 0 }.encode(&mut bytes);
    bytes
}

#[test]
fn a_guest_that_breaks_the_protocol_loses_its_connection_and_no_more() {
    let scene = Scene::new();
    let to = RemoteAddr { key: 1, addr: 0 };
    let breaches = [
        frame(Frame::Send { total: 8, imm: None }, 8, 0),
        frame(Frame::Read { from: to }, 8, 5),
        frame(Frame::Data { more: false }, 8, 0),
        frame(Frame::OldValue, 8, 0),
        // Acknowledgements, a refusal and an answer for what was never sent; a credit that is taken back.
        header(Frame::Ack, 1, 0),
        header(Frame::Ack, u32::MAX, 0),
        header(Frame::Ack, 0, u32::MAX),
        frame(Frame::Nak { status: fabric::Status::RemoteAccess }, 0, 0),
        frame(Frame::ReadData { last: true }, 8, 0),
        vec![0xee; 64],
    ];
    for (i, breach) in breaches.iter().enumerate() {
        let (mut stream, endpoint) = scene.linked();
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
fn a_request_inside_another_is_a_breach() {
    let scene = Scene::new();
    let (mut stream, endpoint) = scene.linked();
    endpoint.recv(scene.server.region.slice(64..128), 5).unwrap();
    let before = scene.breaches();
    let mut bytes = frame(Frame::Send { total: 16, imm: None }, 8, 0);
    bytes.extend([0xee; 8]);
    bytes.extend(frame(Frame::Read { from: RemoteAddr { key: 1, addr: 0 } }, 8, 1));
    stream.write_all(&bytes).unwrap();
    assert!(is_cut_off(&mut stream));
    endpoint.wait_disconnected(SOON).unwrap();
    let canceled = scene.server.wait();
    assert_eq!((canceled.context, canceled.is_ok()), (5, false));
    assert_eq!(scene.breaches() - before, 1);
    scene.check();
}

#[test]
fn guessed_keys_open_nothing() {
    let scene = Scene::new();
    for guess in 0..50u64 {
        let (mut stream, endpoint) = scene.guest();
        let to = RemoteAddr { key: guess.wrapping_mul(0x9e37_79b9_7f4a_7c15), addr: 0 };
        let mut bytes = frame(Frame::Write { total: 8, imm: None, to }, 8, 0);
        bytes.extend_from_slice(&[0xee; 8]);
        stream.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut answer);
        let nak = answer.iter().position(|byte| *byte == 9).map(|at| answer[at + 2]);
        assert_eq!(nak, Some(2), "a refusal with the status of a remote access error");
        endpoint.wait_disconnected(SOON).unwrap();
    }
    assert_eq!(scene.server.region.get::<u64>(0).unwrap(), 0);
    scene.check();
}

#[test]
fn giant_lengths_cost_nothing() {
    let scene = Scene::new();
    let (mut stream, endpoint) = scene.guest();
    // A read of a gibibyte, with a key that opens nothing: refused, and nothing was allocated for it.
    let from = RemoteAddr { key: 3, addr: 0 };
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
fn data_after_the_end_is_dropped() {
    let scene = Scene::new();
    let (mut stream, endpoint) = scene.guest();
    stream.write_all(&frame(Frame::Bye, 0, 0)).unwrap();
    let remote = scene.server.region.remote();
    let to = RemoteAddr { key: remote.key(), addr: 64 };
    let mut late = frame(Frame::Write { total: 8, imm: None, to }, 8, 0);
    late.extend_from_slice(&[0xee; 8]);
    let _ = stream.write_all(&late);
    endpoint.wait_disconnected(SOON).unwrap();
    scene.check();
    assert_eq!(scene.server.region.get::<u64>(64).unwrap(), 0);
}

#[test]
fn a_flood_of_reads_is_bounded() {
    let scene = Scene::new();
    let (mut stream, endpoint) = scene.guest();
    let remote = scene.server.region.remote();
    let from = RemoteAddr { key: remote.key(), addr: 0 };
    // Many more reads than may be under way, never reading an answer.
    let flood: Vec<u8> =
        (0..100_000).flat_map(|seq| frame(Frame::Read { from }, 4096, seq)).collect();
    let _ = stream.write_all(&flood);
    endpoint.wait_disconnected(SOON).unwrap();
    scene.check();
}
