//! No descriptors left: what needs one fails with an error, what waits for one gets it later, and nothing else notices.

#![allow(clippy::unwrap_used)] // the helpers are of tests too

#[path = "hostile/scene.rs"]
mod scene;

use std::fs::File;
use std::time::{Duration, Instant};

use fabric::{Catalog, Choice, Error, Hints};
use provider_tcp::TcpProvider;
use rustix::process::{Resource, getrlimit, setrlimit};
use scene::*;

/// Takes every descriptor that is left.
fn take_all() -> Vec<File> {
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    taken
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A domain opens, or it does not and leaves nothing, whichever of its descriptors is the one too many.
fn opening_is_all_or_nothing() {
    let catalog = Catalog::empty().add(TcpProvider::new()).unwrap();
    let before = descriptors();
    for free in 0.. {
        let mut taken = take_all();
        taken.truncate(taken.len() - free);
        let opened = catalog.open_with(&Choice::Auto, &Hints::default());
        drop(taken);
        if let Ok(domain) = opened {
            assert!(free >= 3, "a domain with {free} descriptors");
            drop(domain);
            break;
        }
        let text = opened.unwrap_err().to_string();
        assert!(text.contains("Too many open files"), "with {free}: {text}");
        assert_eq!(descriptors(), before, "with {free}");
    }
    assert_eq!(descriptors(), before);
}

#[test]
fn without_descriptors_calls_fail_and_connections_wait() {
    let mut limits = getrlimit(Resource::Nofile);
    limits.current = Some(256);
    setrlimit(Resource::Nofile, limits).unwrap();
    opening_is_all_or_nothing();
    let scene = Scene::new();
    let (endpoint, accepting) = (scene.client.endpoint(), scene.server.endpoint());
    let all = take_all();

    // What needs one says so.
    for refused in [
        scene.server.domain.completion_queue(16).map(drop),
        scene.server.domain.listen("127.0.0.1:0".parse().unwrap()).map(drop),
        endpoint.connect(scene.addr(), b"early"),
    ] {
        let error = refused.unwrap_err();
        assert!(error.to_string().contains("Too many open files"), "{error}");
    }
    // What has its own goes on.
    scene.check();

    // A connection that the kernel has taken waits until the listener can have it. Its own descriptor is the last.
    let mut all = all;
    drop(all.pop());
    endpoint.connect(scene.addr(), b"late").unwrap();
    let waits = scene.listener.accept(Some(Duration::from_millis(300)));
    assert!(matches!(waits, Err(Error::TimedOut(_))), "{waits:?}");
    scene.check();
    drop(all);
    let mut request = scene.listener.accept(SOON).unwrap();
    assert_eq!(request.private_data(), b"late");
    request.accept(&accepting, b"").unwrap();
    endpoint.wait_connected(SOON).unwrap();
    scene.check();
    a_stranger_makes_room(&scene);
}

/// A connection that says nothing has a descriptor less long than the next one needs it.
fn a_stranger_makes_room(scene: &Scene) {
    let endpoint = scene.client.endpoint();
    let mut stranger = scene.attack();
    let until = Instant::now() + SOON.unwrap();
    while !scene.server.domain.dump().contains(" 1 half-open") {
        assert!(Instant::now() < until, "{}", scene.server.domain.dump());
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut all = take_all();
    drop(all.pop());
    endpoint.connect(scene.addr(), b"next").unwrap();
    let request = scene.listener.accept(SOON).unwrap();
    assert_eq!(request.private_data(), b"next");
    drop(all);
    assert!(is_cut_off(&mut stranger));
    scene.check();
}
