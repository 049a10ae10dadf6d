//! Guests that live, and take nothing or say only half of what they begin, at an endpoint that is not to stall.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use fabric::provider::RemoteAddr;
use fabric::{Access, DisconnectReason, Endpoint, EndpointState, Region, Status};
use fabric_util::stream::wire::frame::Kind as Frame;

use crate::scene::*;

const STALL: Duration = Duration::from_secs(1);
/// Of one that gets on, if only now and then: longer than a busy machine keeps that from it.
const LONG_STALL: Duration = Duration::from_secs(4);
/// How often it gets on.
const NOW_AND_THEN: Duration = Duration::from_millis(300);
/// More than kernels keep for a connection.
const LEN: u32 = 64 << 20;

/// A guest at an endpoint that is not to stall.
fn linked(scene: &Scene, stall: Duration) -> (TcpStream, Endpoint) {
    let builder = scene.server.domain.endpoint().liveness(None).stall(Some(stall));
    scene.linked_at(builder.build(&scene.server.queue).unwrap())
}

/// Expects that it ends in time, and that the guest hears of it.
fn stalls(mut stream: TcpStream, endpoint: &Endpoint, since: Instant) {
    assert_eq!(endpoint.wait_disconnected(SOON).unwrap(), DisconnectReason::Stalled);
    assert!(since.elapsed() >= STALL, "{:?}", since.elapsed());
    assert!(is_cut_off(&mut stream));
}

/// Has the guest read a region that is longer than what kernels keep.
fn ask(scene: &Scene, stream: &mut TcpStream) -> Region {
    let region = scene.server.domain.alloc(LEN as usize, Access::REMOTE_READ).unwrap();
    let from = RemoteAddr { key: region.remote().key(), addr: 0 };
    stream.write_all(&frame(Frame::Read { from }, LEN, 0)).unwrap();
    region
}

#[test]
fn one_that_does_not_take_what_it_asked_for_ends() {
    let scene = Scene::new();
    let (mut stream, endpoint) = linked(&scene, STALL);
    let since = Instant::now();
    let _region = ask(&scene, &mut stream);
    stalls(stream, &endpoint, since);
    scene.check();
}

#[test]
fn one_that_takes_it_slowly_stays() {
    let scene = Scene::new();
    let (mut stream, endpoint) = linked(&scene, LONG_STALL);
    let _region = ask(&scene, &mut stream);
    let mut some = vec![0; 128 << 10];
    for _ in 0..18 {
        stream.read_exact(&mut some).unwrap();
        thread::sleep(NOW_AND_THEN);
    }
    assert_eq!(endpoint.state(), EndpointState::Connected);
    stalls(stream, &endpoint, Instant::now());
    scene.check();
}

#[test]
fn half_a_message_ends_it_and_its_receive_is_canceled() {
    let message = |len| frame(Frame::Send { total: 64, imm: None }, len, 0);
    let header = message(64).len();
    // Half of the header, of the payload, and a whole first frame of a message of two.
    for (len, cut) in [(64, header / 2), (64, header + 10), (32, header + 32)] {
        let scene = Scene::new();
        let (mut stream, endpoint) = linked(&scene, STALL);
        endpoint.recv(scene.server.region.slice(64..128), 5).unwrap();
        let mut bytes = message(len);
        bytes.extend([0xab; 64]);
        let since = Instant::now();
        stream.write_all(&bytes[..cut]).unwrap();
        stalls(stream, &endpoint, since);
        let done = scene.server.wait();
        assert_eq!((done.context, done.status), (5, Status::Canceled));
        scene.check();
    }
}

#[test]
fn a_message_that_comes_byte_by_byte_comes() {
    let scene = Scene::new();
    let (mut stream, endpoint) = linked(&scene, LONG_STALL);
    endpoint.recv(scene.server.region.slice(64..72), 5).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut bytes = frame(Frame::Send { total: 8, imm: None }, 8, 0);
    bytes.extend([0xab; 8]);
    for byte in bytes {
        stream.write_all(&[byte]).unwrap();
        thread::sleep(NOW_AND_THEN);
    }
    let done = scene.server.wait();
    assert_eq!((done.context, done.status, done.len), (5, Status::Ok, 8));
    scene.check();
}

#[test]
fn a_silent_guest_that_owes_nothing_stays() {
    let scene = Scene::new();
    let (mut stream, endpoint) = linked(&scene, STALL);
    endpoint.recv(scene.server.region.slice(64..72), 5).unwrap();
    thread::sleep(4 * STALL);
    assert_eq!(endpoint.state(), EndpointState::Connected);
    stream.write_all(&frame(Frame::Send { total: 0, imm: None }, 0, 0)).unwrap();
    assert_eq!(scene.server.wait().status, Status::Ok);
}
