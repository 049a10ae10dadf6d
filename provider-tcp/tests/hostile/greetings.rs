//! Before a connection is established: other protocols, silence, and handshakes that are almost right.

use std::io::Write;
use std::time::{Duration, Instant};

use fabric_util::stream::wire::handshake::{Handshake, HandshakeKind};

use crate::scene::*;

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
        Handshake::new(HandshakeKind::Accept, 1, 0).encode(&[]),
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

/// Each bit of a hello is flipped in turn.
#[test]
fn a_hello_that_is_almost_right_is_refused_or_harmless() {
    let scene = Scene::new();
    // Magic, version and kind; the last word, but for the bit by which more is to come.
    let fixed = |bit: usize| !(6..16).contains(&(bit / 8)) && bit != 16 * 8;
    for bit in 0..20 * 8 {
        let before = scene.breaches();
        let mut greeting = hello(0);
        greeting[bit / 8] ^= 1 << (bit % 8);
        let mut stream = scene.attack();
        stream.write_all(&greeting).unwrap();
        if fixed(bit) {
            assert!(is_cut_off(&mut stream), "bit {bit}");
            assert_eq!(scene.breaches(), before + 1, "bit {bit}");
            assert!(scene.listener.poll().is_none(), "bit {bit} reached the application");
            continue;
        }
        // Another number of receives, or of reads at a time, is a hello like any other, or it is wrong. Of others more was to come: a
        // breach when the stream ends, or before.
        let is_whole = (8..16).contains(&(bit / 8));
        let mut stream = Some(stream).filter(|_| is_whole);
        let until = Instant::now() + SOON.unwrap();
        let request = loop {
            assert!(Instant::now() < until, "bit {bit}");
            let request = scene.listener.poll();
            if request.is_some() || scene.breaches() > before {
                break request;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        if let Some(mut request) = request {
            request.reject(b"no").unwrap();
            assert!(stream.as_mut().is_some_and(is_cut_off), "bit {bit}");
        }
    }
    scene.check();
}
