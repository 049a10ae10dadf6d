//! A domain is dropped right behind its endpoint, while the peer has not taken what is left for it.

#![allow(clippy::unwrap_used)] // the helpers are of tests too

#[path = "hostile/scene.rs"]
mod scene;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use fabric::Access;
use fabric::provider::RemoteAddr;
use fabric_util::stream::wire::frame::{Header, Kind as Frame};
use scene::*;
use socket2::SockRef;

/// Much more than a kernel keeps for a connection.
const LEN: u32 = 64 << 20;
/// How long a domain waits at most, and how soon it leaves where there is nothing to wait for.
const LINGER: Duration = Duration::from_secs(2);
const AT_ONCE: Duration = Duration::from_secs(1);
/// Others may have the processors at one time, and not at every time.
const TRIES: u32 = 10;

/// A peer asks for more than it reads, and does `then` when its endpoint is gone. Gives that, and how long the drop of the
/// domain took.
fn dropped<T>(then: impl FnOnce(TcpStream) -> T) -> (T, Duration) {
    let server = Side::new();
    let listener = server.domain.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut stream = TcpStream::connect(listener.local_addr()).unwrap();
    stream.set_read_timeout(SOON).unwrap();
    stream.write_all(&hello(0)).unwrap();
    let endpoint = server.endpoint();
    listener.accept(SOON).unwrap().accept(&endpoint, &[]).unwrap();
    stream.read_exact(&mut vec![0; hello(0).len()]).unwrap();
    stream.write_all(&frame(Frame::Ack, 0, 0)).unwrap();
    endpoint.wait_connected(SOON).unwrap();

    let region = server.domain.alloc(LEN as usize, Access::REMOTE_READ).unwrap();
    let from = RemoteAddr { key: region.remote().key(), addr: 0 };
    stream.write_all(&frame(Frame::Read { from }, LEN, 0)).unwrap();
    let until = Instant::now() + SOON.unwrap();
    while !server.domain.dump().contains("the stream is full") {
        assert!(Instant::now() < until, "{}", server.domain.dump());
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(endpoint);
    let then = then(stream);
    let start = Instant::now();
    drop((region, listener, server));
    (then, start.elapsed())
}

/// Once in some tries the domain is gone in this time.
#[track_caller]
fn in_time(limit: Duration, mut took: impl FnMut() -> Duration) {
    let found = (0..TRIES).map(|_| took()).find(|took| *took < limit);
    assert!(found.is_some(), "the domain was never gone in {limit:?}");
}

/// The frames that are left, to the end of the stream.
fn frames(mut stream: TcpStream) -> std::io::Result<Vec<Frame>> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let (mut rest, mut frames) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let (header, len) = Header::decode(rest).unwrap().unwrap();
        frames.push(header.kind);
        rest = &rest[len + header.payload() as usize..];
    }
    Ok(frames)
}

#[test]
fn a_peer_that_reads_in_time_hears_of_the_end() {
    let mut tries = (0..TRIES).map(|_| {
        let (reader, took) = dropped(|stream| {
            std::thread::spawn(|| {
                std::thread::sleep(LINGER / 4);
                frames(stream).ok()?.pop()
            })
        });
        (reader.join().unwrap(), took)
    });
    let in_time = tries.any(|(last, took)| {
        println!("{last:?}, and the domain was gone after {took:?}");
        matches!(last, Some(Frame::Bye)) && took < LINGER
    });
    assert!(in_time, "it hears nothing");
}

#[test]
fn a_peer_that_reads_nothing_is_waited_for_no_longer() {
    in_time(LINGER + AT_ONCE, || {
        let (mut stream, took) = dropped(|stream| stream);
        // Nor does the kernel keep what it did not take.
        let end = stream.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
        assert_eq!(end, Err(ErrorKind::ConnectionReset));
        took
    });
}

#[test]
fn a_peer_that_is_gone_is_not_waited_for() {
    in_time(AT_ONCE, || {
        let ((), took) = dropped(|stream| {
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        });
        took
    });
}

#[test]
fn a_peer_that_has_taken_all_is_not_waited_for() {
    in_time(AT_ONCE, || {
        let ((_open, last), took) = dropped(|stream| {
            let open = stream.try_clone().unwrap();
            (open, frames(stream).unwrap().pop())
        });
        assert!(matches!(last, Some(Frame::Bye)), "{last:?}");
        took
    });
}
