//! What foreign programs send to the port of a datagram endpoint: dropped and counted, and nothing else.

#![allow(clippy::unwrap_used)] // the helpers are of tests too

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::{
    Access, Catalog, CompletionQueue, DatagramEndpoint, Domain, Error, Hints, Op, Region, Status,
};
use provider_tcp::TcpProvider;

const SOON: Duration = Duration::from_secs(20);

/// An endpoint of the loopback device, its queue, and memory.
struct Scene {
    domain: Domain,
    queue: CompletionQueue,
    endpoint: DatagramEndpoint,
    inbox: Region,
}

fn scene() -> Scene {
    let catalog = Catalog::empty().add(TcpProvider::new()).unwrap();
    let hints = Hints { device: Some("lo".to_owned()), ..Hints::default() };
    let domain = Arc::new(catalog).open_with(&fabric::Choice::Auto, &hints).unwrap();
    let queue = domain.completion_queue(256).unwrap();
    let endpoint = domain.datagram_endpoint(&queue).unwrap();
    let inbox = domain.alloc(1 << 16, Access::LOCAL_WRITE).unwrap();
    Scene { domain, queue, endpoint, inbox }
}

/// A foreign program, and where the endpoint is.
fn stranger(scene: &Scene) -> (UdpSocket, SocketAddr) {
    (UdpSocket::bind("127.0.0.1:0").unwrap(), scene.endpoint.address().socket_addr().unwrap())
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends until what comes is as long as what was sent; all that ends on the way ended well.
fn expect_alive(scene: &Scene) {
    let Scene { queue, endpoint, .. } = scene;
    let own = endpoint.resolve(&endpoint.address()).unwrap();
    endpoint.inject_to(&own, b"still here", 7).unwrap();
    let until = Instant::now() + SOON;
    loop {
        let done = queue.wait_one(Some(until - Instant::now())).unwrap();
        assert_eq!(done.status, Status::Ok, "{done:?}");
        if done.kind.is_receive() {
            assert_eq!((done.len, done.source), (10, Some(endpoint.address())));
            return;
        }
    }
}

#[test]
fn what_is_not_of_this_library_takes_no_receive() {
    let scene = scene();
    let (socket, to) = stranger(&scene);
    for slot in 0..4 {
        scene
            .endpoint
            .recv(scene.inbox.slice(slot * 4096..(slot + 1) * 4096), slot as u64)
            .unwrap();
    }
    let good = [b'F', b'D', b'G', 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut foreign: Vec<Vec<u8>> = (0..40).map(|len| vec![0x2a; len]).collect();
    // A prefix of a header; each of its bytes wrong; a newer version; unknown flags; data that the flags deny.
    foreign.extend((0..good.len()).map(|len| good[..len].to_vec()));
    foreign.extend((0..8).map(|at| {
        let mut wrong = [&good[..], b"payload"].concat();
        wrong[at] ^= 0x82;
        wrong
    }));
    foreign.push([b"FDG\x02", &good[4..], b"newer"].concat());
    foreign.push([&good[..11], b"\x01"].concat());
    foreign.push(vec![0xff; 60_000]);
    for bytes in &foreign {
        socket.send_to(bytes, to).unwrap();
        // Slowly enough for the buffer of the kernel.
        std::thread::sleep(Duration::from_micros(200));
    }
    let count = foreign.len() as u64;
    until("they are not counted", || {
        let drops = scene.endpoint.drops().unwrap();
        drops.malformed.unwrap() + drops.overrun.unwrap_or(0) >= count
    });
    assert_eq!(scene.endpoint.drops().unwrap().no_receive, Some(0));
    assert_eq!(scene.queue.poll_one().unwrap(), None, "a receive has ended");
    expect_alive(&scene);
}

#[test]
fn a_forged_datagram_is_bounded_by_the_receive() {
    let scene = scene();
    let (socket, to) = stranger(&scene);
    scene.endpoint.recv(scene.inbox.slice(64..128), 1).unwrap();
    // As this library would send it: nothing proves who did. Longer than the receive, and with immediate data.
    let forged = [&b"FDG\x01\x01\0\0\0\0\0\0\x07"[..], &[9; 2000]].concat();
    socket.send_to(&forged, to).unwrap();
    let done = scene.queue.wait_one(Some(SOON)).unwrap();
    assert_eq!((done.context, done.status, done.len), (1, Status::TooLong, 0));
    let around = scene.inbox.to_vec(..4096).unwrap();
    assert!(around[..64].iter().chain(&around[128..]).all(|byte| *byte == 0), "beyond the receive");

    scene.endpoint.recv(scene.inbox.slice(64..128), 2).unwrap();
    socket.send_to(&forged[..12 + 5], to).unwrap();
    let done = scene.queue.wait_one(Some(SOON)).unwrap();
    assert_eq!((done.context, done.len, done.immediate), (2, 5, Some(7)));
    let source = done.source.unwrap();
    assert_eq!(source.socket_addr(), Some(socket.local_addr().unwrap()));

    // It can be answered, as long as the socket is there, and then the kernel says that the port is unreachable.
    let handle = scene.endpoint.resolve(&source).unwrap();
    drop(socket);
    for n in 0..8 {
        scene.endpoint.inject_to(&handle, b"answer", n).unwrap();
        assert_eq!(scene.queue.wait_one(Some(SOON)).unwrap().status, Status::Ok);
        std::thread::sleep(Duration::from_millis(2));
    }
    scene.endpoint.recv(&scene.inbox, 3).unwrap();
    expect_alive(&scene);
}

#[test]
fn a_flood_without_receives_holds_up_nobody() {
    let scene = scene();
    let (socket, to) = stranger(&scene);
    let good = *b"FDG\x01\0\0\0\0\0\0\0\0flood";
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let until = Instant::now() + 3 * SOON; // a failure below shall not leave it running
            while !stop.load(std::sync::atomic::Ordering::Relaxed) && Instant::now() < until {
                let _ = socket.send_to(&good, to);
            }
        });
        let dropped = || scene.endpoint.drops().unwrap().no_receive.unwrap();
        until("the flood has not begun", || dropped() > 0);
        // A second endpoint of the domain, and connections, go on beside it.
        let queue = scene.domain.completion_queue(256).unwrap();
        let other = scene.domain.datagram_endpoint(&queue).unwrap();
        let own = other.resolve(&other.address()).unwrap();
        let listener = scene.domain.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        for round in 0..20 {
            let inbox = scene.domain.alloc(64, Access::LOCAL_WRITE).unwrap();
            other.recv(&inbox, 1).unwrap();
            other.post_to(&own, &Op::inject(&[round; 8]).unsignaled()).unwrap();
            let done = queue.wait_one(Some(SOON)).unwrap();
            assert_eq!((done.status, done.len), (Status::Ok, 8));
        }
        let ends = scene.domain.completion_queue(1024).unwrap();
        let [near, far] = [0, 1].map(|_| scene.domain.endpoint().build(&ends).unwrap());
        near.connect(listener.local_addr(), b"").unwrap();
        listener.accept(Some(SOON)).unwrap().accept(&far, b"").unwrap();
        near.wait_connected(Some(SOON)).unwrap();
        let before = dropped();
        until("the flood has ended early", || dropped() > before);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_burst_beyond_the_socket_buffer_waits_at_its_sender_or_is_counted() {
    let scene = scene();
    let to = scene.endpoint.resolve(&scene.endpoint.address()).unwrap();
    let max = scene.endpoint.max_len();
    assert_eq!(max, 65_507 - 12);
    let source = scene.domain.alloc(max, Access::empty()).unwrap();
    let mut sent = 0;
    for n in 0..400 {
        while let Err(error) = scene.endpoint.send_to(&to, &source, n) {
            assert!(matches!(error, Error::Again), "{error}");
            sent += u64::from(scene.queue.wait_one(Some(SOON)).unwrap().is_ok());
        }
    }
    while sent < 400 {
        sent += u64::from(scene.queue.wait_one(Some(SOON)).unwrap().is_ok());
    }
    until("datagrams are neither counted nor there", || {
        let drops = scene.endpoint.drops().unwrap();
        drops.no_receive.unwrap() + drops.overrun.unwrap() + drops.unsent.unwrap() >= 400
    });
    assert_eq!(scene.endpoint.drops().unwrap().malformed, Some(0));
}
