//! A socket whose kernel takes no more: one of the Unix domain, whose receiver has a short queue (unix(7)).

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use std::cell::Cell;
use std::os::unix::net::UnixDatagram;

use fabric_core::Side;

use super::*;

fn socket(rings: Rings) -> (DatagramSocket, UnixDatagram, SocketAddress, std::path::PathBuf) {
    let name = format!("fabric-datagram-{}-{:p}", std::process::id(), Arc::as_ptr(&rings.send));
    let path = std::env::temp_dir().join(name);
    let receiver = UnixDatagram::bind(&path).unwrap();
    receiver.set_nonblocking(true).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    let to = SocketAddress(SockAddr::unix(&path).unwrap());
    let address = DatagramAddress::udp("127.0.0.1:1".parse().unwrap()).unwrap();
    (DatagramSocket::new(1, sender.into(), address, rings), receiver, to, path)
}

fn rings() -> Rings {
    let stats: Arc<Stats> = Arc::default();
    let ring = || CompletionRing::new(&stats).unwrap();
    Rings { send: ring(), recv: ring(), sources: DatagramSources::new(8), stats: stats.clone() }
}

fn token(sequence: u32) -> Token {
    Token::new(0, 0, Side::Send, sequence)
}

/// Takes completions; gives their numbers and statuses.
fn ended(ring: &CompletionRing) -> Vec<(u32, Status)> {
    let mut out = [RawCompletion::default(); 1024];
    let taken = ring.take(&mut out);
    out[..taken].iter().map(|one| (one.token.sequence(), one.status)).collect()
}

/// Posts so many datagrams, every other one an inject whose bytes are gone when the post returns.
fn post(socket: &DatagramSocket, to: &SocketAddress, count: u32, watched: &Cell<Option<bool>>) {
    static PAYLOAD: [u8; 4] = *b"kept";
    for sequence in 0..count {
        let mut injected = sequence.to_ne_bytes();
        let (addr, flags) = match sequence % 2 {
            0 => (PAYLOAD.as_ptr().cast_mut(), SendFlags::empty()),
            _ => (injected.as_mut_ptr(), SendFlags::INJECT),
        };
        let segments = [Segment::new(addr, 4, 0)];
        let work = [DatagramWork::new(token(sequence), to, Some(sequence), &segments, flags)];
        // SAFETY: one is static, the other is copied by the post.
        let posted = unsafe { socket.post_send(&work, |waits| watched.set(Some(waits))) };
        assert_eq!(posted.accepted, 1);
        injected.fill(0xff);
    }
}

#[test]
fn what_the_kernel_does_not_take_waits_in_its_order() {
    const COUNT: u32 = 500;
    let rings = rings();
    let ring = rings.send.clone();
    let (socket, receiver, to, path) = socket(rings);
    let watched = Cell::new(None);
    post(&socket, &to, COUNT, &watched);
    let mut done = ended(&ring);
    assert!(!done.is_empty() && done.len() < COUNT as usize, "{} left at once", done.len());
    assert_eq!(watched.take(), Some(true), "the selector is to say when there is room");

    let mut buffer = [0; 64];
    for sequence in 0..COUNT {
        let mut got = receiver.recv(&mut buffer);
        if got.is_err() {
            socket.turn(|waits| watched.set(Some(waits)));
            got = receiver.recv(&mut buffer);
        }
        let len = got.unwrap();
        let mut header = [0; HEADER_LEN];
        header.copy_from_slice(&buffer[..HEADER_LEN]);
        let immediate = DatagramHeader::decode(&header, len).unwrap().immediate;
        assert_eq!(immediate, Some(sequence), "in the order of the posts");
        let expected = if sequence % 2 == 0 { *b"kept" } else { sequence.to_ne_bytes() };
        assert_eq!(buffer[HEADER_LEN..len], expected);
    }
    socket.turn(|waits| watched.set(Some(waits)));
    assert_eq!(watched.take(), Some(false), "nothing waits any more");
    socket.turn(|waits| watched.set(Some(waits)));
    assert_eq!(watched.take(), None, "and the selector knows it");
    done.extend(ended(&ring));
    let all: Vec<_> = (0..COUNT).map(|sequence| (sequence, Status::Ok)).collect();
    assert_eq!(done, all);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn an_end_forgets_what_waits_and_a_failure_cancels_it() {
    for fails in [false, true] {
        let rings = rings();
        let ring = rings.send.clone();
        let (socket, _receiver, to, path) = socket(rings);
        let watched = Cell::new(None);
        post(&socket, &to, 400, &watched);
        let left = ended(&ring).len() as u32;
        if fails {
            socket.fail()
        } else {
            socket.end()
        }
        let canceled: Vec<_> = (left..400).map(|sequence| (sequence, Status::Canceled)).collect();
        assert_eq!(ended(&ring), if fails { canceled } else { Vec::new() });
        // Neither posts nor turns have an effect any more.
        socket.turn(|_| ());
        let work = [DatagramWork::new(token(400), &to, None, &[], SendFlags::empty())];
        // SAFETY: without segments there is no memory.
        let posted = unsafe { socket.post_send(&work, |_| ()) };
        assert!(matches!(posted.refusal, Some(Error::DeviceLost)));
        assert_eq!(ended(&ring), []);
        std::fs::remove_file(path).unwrap();
    }
}
