//! Somebody on the way of connections that are encrypted, who reads and changes what passes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use fabric::{
    DisconnectReason, Endpoint, Hints, Identity, Listener, OpKind, Secret, Security, Status,
};
use fabric_util::proof::SEAL;
use fabric_util::stream::wire::handshake::LEN;

use crate::scene::{SOON, Side, is_cut_off};

const DATA: &[u8] = b"private data that is not for others' eyes";
/// In a certificate.
const NAME: &str = "a-name-that-is-not-for-others.example";

struct Scene {
    server: Side,
    client: Side,
    listener: Listener,
    /// The bytes that an initiator says first, in clear.
    first: usize,
}

impl Scene {
    /// Ends with a secret, and ends with an identity.
    fn all() -> [Self; 2] {
        let secret = Secret::new(&[9; 32]).unwrap();
        let encrypted = Hints { security: Security::Encrypted, ..Hints::default() };
        [
            Self::of(&Hints { secret: Some(secret), ..encrypted.clone() }, LEN + 2 * SEAL),
            Self::of(&Hints { identity: Some(identity()), ..encrypted }, LEN),
        ]
    }

    fn of(hints: &Hints, first: usize) -> Self {
        let (server, client) = (Side::hinted(hints), Side::hinted(hints));
        let listener = server.domain.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        Scene { server, client, listener, first }
    }

    /// Connects, to this listener or by way of somebody.
    fn connect(&self, by: std::net::SocketAddr) -> (Endpoint, Endpoint) {
        let (endpoint, peer) = (self.client.endpoint(), self.server.endpoint());
        endpoint.connect(by, DATA).unwrap();
        let mut request = self.listener.accept(SOON).unwrap();
        assert_eq!(request.private_data(), DATA);
        request.accept(&peer, DATA).unwrap();
        assert_eq!(&endpoint.wait_connected(SOON).unwrap()[..], DATA);
        peer.wait_connected(SOON).unwrap();
        (endpoint, peer)
    }
}

/// Of a member of an authority that vouches for it alone.
fn identity() -> Identity {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = rcgen::Issuer::new(params, key);
    let member = rcgen::CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = member.signed_by(&key, &issuer).unwrap().pem();
    let pem = key.serialize_pem() + &certificate;
    Identity::from_pem(pem.as_bytes(), authority.as_bytes()).unwrap()
}

/// Passes on what both ends say, each piece as `change` leaves it; the number says from which end it is.
fn between(middle: &TcpListener, listener: &Listener, change: impl Fn(usize, &mut Vec<u8>) + Sync) {
    let (near, _) = middle.accept().unwrap();
    let far = TcpStream::connect(listener.local_addr()).unwrap();
    let pass = |number: usize, mut from: &TcpStream, mut to: &TcpStream| {
        let mut piece = vec![0; 64 << 10];
        while let Ok(got @ 1..) = from.read(&mut piece) {
            let mut bytes = piece[..got].to_vec();
            change(number, &mut bytes);
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
    };
    thread::scope(|scope| {
        scope.spawn(|| pass(1, &far, &near));
        pass(0, &near, &far);
    });
}

#[test]
fn who_reads_along_learns_nothing() {
    Scene::all().iter().for_each(reads_along);
}

fn reads_along(scene: &Scene) {
    let middle = TcpListener::bind("127.0.0.1:0").unwrap();
    let heard = Mutex::new([Vec::new(), Vec::new()]);
    thread::scope(|scope| {
        scope.spawn(|| {
            between(&middle, &scene.listener, |from, bytes| {
                heard.lock().unwrap()[from].extend_from_slice(bytes);
            });
        });
        let (endpoint, peer) = scene.connect(middle.local_addr().unwrap());
        scene.client.region.write_at(0, DATA).unwrap();
        let remote = scene.server.region.remote();
        endpoint.write(scene.client.region.slice(..DATA.len()), remote.at(64), 1).unwrap();
        assert_eq!(scene.client.wait().status, Status::Ok);
        endpoint.read(scene.client.region.slice(128..4096), remote.at(0), 2).unwrap();
        assert_eq!(scene.client.wait().status, Status::Ok);
        drop((endpoint, peer));
    });
    let heard = heard.into_inner().unwrap();
    let key = scene.server.region.remote().key().to_le_bytes();
    for (from, heard) in heard.iter().enumerate() {
        assert!(heard.len() > 500, "{from}: {} bytes", heard.len());
        for hidden in [&DATA[..16], &key, NAME.as_bytes()] {
            assert!(!heard.windows(hidden.len()).any(|part| part == hidden), "{from} {hidden:?}");
        }
    }
}

/// A bit of a message, and of a write, is changed on the way.
#[test]
fn what_is_changed_on_the_way_is_in_no_memory() {
    for (kind, scene) in [OpKind::Send, OpKind::Write]
        .into_iter()
        .flat_map(|kind| Scene::all().map(|scene| (kind, scene)))
    {
        let middle = TcpListener::bind("127.0.0.1:0").unwrap();
        let is_armed = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                between(&middle, &scene.listener, |from, bytes| {
                    if from == 0 && is_armed.swap(false, std::sync::atomic::Ordering::Relaxed) {
                        let middle = bytes.len() / 2;
                        bytes[middle] ^= 4;
                    }
                });
            });
            let (endpoint, peer) = scene.connect(middle.local_addr().unwrap());
            scene.client.region.write_at(0, &[0xaa; 2000]).unwrap();
            peer.recv(scene.server.region.slice(..2000), 1).unwrap();
            thread::sleep(Duration::from_millis(100));
            is_armed.store(true, std::sync::atomic::Ordering::Relaxed);
            let source = scene.client.region.slice(..2000);
            match kind {
                OpKind::Send => endpoint.send(source, 2).unwrap(),
                _ => endpoint.write(source, scene.server.region.remote().at(2000), 2).unwrap(),
            }
            assert_eq!(peer.wait_disconnected(SOON).unwrap(), DisconnectReason::Protocol);
            endpoint.wait_disconnected(SOON).unwrap();
            assert!(!scene.client.wait().is_ok());
            assert!(!scene.server.wait().is_ok());
            let mut memory = [1; 4096];
            scene.server.region.read_at(0, &mut memory).unwrap();
            assert_eq!(memory, [0; 4096], "{kind:?}");
        });
        assert_eq!(scene.server.domain.counters().provider.protocol_errors, 1);
        // Others are not concerned.
        drop(scene.connect(scene.listener.local_addr()));
    }
}

/// A stranger that copies what a member says first gets no further, and is cut off in time.
#[test]
fn a_copy_of_what_a_member_says_first_is_of_no_use() {
    Scene::all().iter().for_each(copies);
}

fn copies(scene: &Scene) {
    let middle = TcpListener::bind("127.0.0.1:0").unwrap();
    let heard = Mutex::new(Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            between(&middle, &scene.listener, |from, bytes| {
                if from == 0 {
                    heard.lock().unwrap().extend_from_slice(bytes);
                }
            });
        });
        drop(scene.connect(middle.local_addr().unwrap()));
    });
    let heard = heard.into_inner().unwrap();
    let attack = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(scene.listener.local_addr()).unwrap();
        stream.set_read_timeout(SOON).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    // All of it, and more than what comes first.
    for len in [heard.len(), heard.len() - 1, scene.first + 100, scene.first] {
        assert!(is_cut_off(&mut attack(&heard[..len])), "{len}");
    }
    // A stranger that has not even that.
    let mut stranger = attack(&[0x16, 3, 1, 0, 200, 1]);
    assert!(is_cut_off(&mut stranger));
    assert!(scene.listener.poll().is_none());
    drop(scene.connect(scene.listener.local_addr()));
}
