//! Strangers at a listener whose domain has a secret.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use fabric::{Error, Listener, Secret};
use fabric_util::proof::SEAL;
use fabric_util::refusal::RefuseReason;
use fabric_util::stream::wire::handshake::{Handshake, HandshakeKind, LEN};

use crate::scene::{SOON, Side, hello};

struct Guarded {
    server: Side,
    listener: Listener,
    secret: Secret,
}

impl Guarded {
    fn new() -> Self {
        let secret = Secret::new(&[9; 32]).unwrap();
        let server = Side::with(Some(&secret));
        let listener = server.domain.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        Guarded { server, listener, secret }
    }

    /// Says this, and gives the whole answer: what came until the end of the stream, or until so many bytes.
    fn answer(&self, says: &[u8], limit: usize) -> (TcpStream, Vec<u8>) {
        let mut stream = TcpStream::connect(self.listener.local_addr()).unwrap();
        stream.set_read_timeout(SOON).unwrap();
        stream.write_all(says).unwrap();
        let mut answer = Vec::new();
        (&mut stream).take(limit as u64).read_to_end(&mut answer).unwrap();
        (stream, answer)
    }

    /// No request came, and a peer with the secret gets in.
    fn check(&self, unauthenticated: u64) {
        assert!(self.listener.poll().is_none());
        assert_eq!(self.server.domain.counters().provider.peers_unauthenticated, unauthenticated);
        let client = Side::with(Some(&self.secret));
        let (endpoint, peer) = (client.endpoint(), self.server.endpoint());
        endpoint.connect(self.listener.local_addr(), b"friend").unwrap();
        let mut request = self.listener.accept(SOON).unwrap();
        assert_eq!(request.private_data(), b"friend");
        request.accept(&peer, &[]).unwrap();
        endpoint.wait_connected(SOON).unwrap();
        peer.wait_connected(SOON).unwrap();
    }
}

fn sealed(kind: HandshakeKind, data: &[u8], seal: u8) -> Vec<u8> {
    let frame = Handshake { is_sealed: true, ..Handshake::new(kind, 8, 0) };
    [frame.encode(data), vec![seal; SEAL]].concat()
}

fn reason(answer: &[u8]) -> RefuseReason {
    let refusal = Handshake::decode(answer).unwrap().unwrap();
    assert_eq!((refusal.frame.kind, refusal.len), (HandshakeKind::Refuse, answer.len()));
    refusal.frame.reason
}

#[test]
fn who_does_not_prove_the_secret_is_told_and_cut_off() {
    let scene = Guarded::new();
    let (_, answer) = scene.answer(&hello(3), usize::MAX);
    assert_eq!(reason(&answer), RefuseReason::SecretWanted);
    scene.check(1);
    let (mut stream, answer) = scene.answer(&sealed(HandshakeKind::Hello, b"me", 1), LEN + SEAL);
    let challenge = Handshake::decode(&answer).unwrap().unwrap();
    assert_eq!(challenge.frame.kind, HandshakeKind::Challenge);
    scene.check(1);
    // With the challenge itself for a proof.
    let proof = Handshake { is_sealed: true, ..Handshake::new(HandshakeKind::Proof, 0, 0) };
    stream.write_all(&[&proof.encode(&[]), &challenge.seal.unwrap()[..]].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(reason(&answer), RefuseReason::OtherSecret);
    scene.check(2);
}

#[test]
fn who_says_something_else_is_cut_off() {
    let scene = Guarded::new();
    let mut more = sealed(HandshakeKind::Hello, b"me", 1);
    more.push(0);
    for says in
        [more, sealed(HandshakeKind::Proof, b"", 1), sealed(HandshakeKind::Challenge, b"", 1)]
    {
        let (_, answer) = scene.answer(&says, usize::MAX);
        assert_eq!(answer, [0; 0]);
    }
    let (mut stream, _) = scene.answer(&sealed(HandshakeKind::Hello, b"me", 1), LEN + SEAL);
    stream.write_all(&sealed(HandshakeKind::Hello, b"me", 1)).unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    scene.check(0);
    assert_eq!(scene.server.domain.counters().provider.protocol_errors, 4);
}

/// Passes on what both ends say, but for one bit of the initiator's private data.
fn flip(between: &TcpListener, to: &Listener) {
    let (mut near, _) = between.accept().unwrap();
    let mut far = TcpStream::connect(to.local_addr()).unwrap();
    let mut hello = vec![0; LEN + 6 + SEAL];
    near.read_exact(&mut hello).unwrap();
    assert_eq!(&hello[LEN..LEN + 6], b"friend");
    hello[LEN] ^= 1;
    far.write_all(&hello).unwrap();
    let (mut back, mut back_to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
    let answers = thread::spawn(move || std::io::copy(&mut back, &mut back_to));
    // It ends when either end leaves.
    let _ = std::io::copy(&mut near, &mut far);
    answers.join().unwrap().unwrap();
}

#[test]
fn what_is_changed_on_the_way_reaches_no_application() {
    let scene = Guarded::new();
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Side::with(Some(&scene.secret));
    let endpoint = client.endpoint();
    endpoint.connect(between.local_addr().unwrap(), b"friend").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| flip(&between, &scene.listener));
        let error = endpoint.wait_connected(SOON).unwrap_err();
        assert!(matches!(error, Error::Unauthenticated(_)), "{error}");
    });
    scene.check(1);
}
