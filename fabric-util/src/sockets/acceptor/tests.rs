//! A crowd that begins handshakes, and one client from elsewhere: whose handshake goes on.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use fabric::{Catalog, Choice, Hints};
use fabric_core::{DomainAttr, Identity};

use super::*;
use crate::sockets::SocketProvider;
use crate::sockets::testing::{Loopback, until};

const CROWD: usize = 100;
const NAME: usize = 1;

/// What an acceptor asks for is kept; connections always have something to do.
#[derive(Default)]
struct Kept {
    names: AtomicUsize,
    watched: Mutex<HashMap<usize, Arc<PendingConnection<Loopback>>>>,
    deadlines: Mutex<Vec<(Duration, usize, AcceptorTimer)>>,
    shared: Shared<()>,
    turns: AtomicU64,
}

impl AcceptorHost<Loopback> for Kept {
    fn name(&self) -> usize {
        self.names.fetch_add(1, Ordering::Relaxed) + NAME + 1
    }

    fn watch(&self, _: RawFd, pending: &Arc<PendingConnection<Loopback>>) -> Result<()> {
        self.watched.lock().insert(pending.name, pending.clone());
        Ok(())
    }

    fn unwatch(&self, _: RawFd, name: usize) {
        self.forget(name);
    }

    fn forget(&self, name: usize) {
        self.watched.lock().remove(&name);
    }

    fn deadline(&self, after: Duration, name: usize, timer: AcceptorTimer) {
        self.deadlines.lock().push((after, name, timer));
    }

    fn turns(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }

    fn report(&self, _: Event) {}

    fn shared(&self) -> &Shared<()> {
        &self.shared
    }
}

impl Kept {
    /// The acceptor's next deadline of this kind comes.
    fn expire(&self, acceptor: &Arc<Acceptor<Loopback>>, wanted: AcceptorTimer) -> bool {
        let mut deadlines = self.deadlines.lock();
        let at = deadlines.iter().position(|&(_, name, timer)| (name, timer) == (NAME, wanted));
        let Some((after, ..)) = at.map(|at| deadlines.remove(at)) else { return false };
        drop(deadlines);
        std::thread::sleep(after);
        acceptor.expired(self, wanted);
        true
    }
}

fn identity() -> Identity {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    Identity::from_pem((key.serialize_pem() + &pem).as_bytes(), pem.as_bytes()).unwrap()
}

/// How a client with this identity begins, which is of use to all.
fn first_words(identity: &Identity) -> Vec<u8> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let catalog = Catalog::empty().add(SocketProvider::<Loopback>::new()).unwrap();
    let hints = Hints { identity: Some(identity.clone()), ..Hints::default() };
    let domain = catalog.open_with(&Choice::Auto, &hints).unwrap();
    let queue = domain.completion_queue(1024).unwrap();
    let endpoint = domain.endpoint().build(&queue).unwrap();
    endpoint.connect(listener.local_addr().unwrap(), &[]).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut words = vec![0; 4096];
    let mut len = 0;
    // A frame, and behind it a record of TLS, whose length is in its bytes 3 and 4.
    let frame = crate::stream::wire::handshake::LEN;
    while len < frame + 5
        || len < frame + 5 + usize::from(words[frame + 4]) + 256 * usize::from(words[frame + 3])
    {
        let got = stream.read(&mut words[len..]).unwrap();
        assert_ne!(got, 0, "the client ended");
        len += got;
    }
    words.truncate(len);
    words
}

/// An acceptor, a crowd that began its handshakes, and one from elsewhere that came behind it.
fn scene() -> (Arc<Acceptor<Loopback>>, Kept, Vec<TcpStream>, TcpStream) {
    let identity = identity();
    let words = first_words(&identity);
    let attr = DomainAttr::of(&Hints { identity: Some(identity), ..Hints::default() }).unwrap();
    let (socket, addr) = Loopback::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let backlog = Backlog::new(16);
    backlog.open(|| socket);
    let (id, protection) = (ListenerId(1), Protection::new(&attr).unwrap());
    let acceptor = Acceptor::new(NAME, id, addr, backlog, protection);
    let connect = |from: &str| {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&format!("{from}:0").parse::<SocketAddr>().unwrap().into()).unwrap();
        socket.connect(&addr.into()).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.write_all(&words).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let crowd = (0..CROWD).map(|_| connect("127.0.0.1")).collect();
    (acceptor, Kept::default(), crowd, connect("127.0.0.2"))
}

fn is_answered(stream: &TcpStream) -> bool {
    stream.peek(&mut [0]).is_ok_and(|len| len > 0)
}

#[test]
fn a_client_from_elsewhere_has_its_turn_before_a_crowd_that_came_first() {
    let (acceptor, host, crowd, client) = scene();
    acceptor.ready(&host);
    while host.expire(&acceptor, AcceptorTimer::Hello) {}
    assert_eq!(acceptor.half_open(), CROWD + 1);
    while !is_answered(&client) {
        assert!(host.expire(&acceptor, AcceptorTimer::Handshakes), "the client is never answered");
    }
    let answered = || crowd.iter().filter(|stream| is_answered(stream)).count();
    let before = answered();
    assert!(before < CROWD / 2, "{before} of the crowd of {CROWD} were answered before it");
    // The crowd has its turns, too.
    while host.expire(&acceptor, AcceptorTimer::Handshakes) {}
    // What was sent over loopback is there a moment later, on a busy machine.
    until("all are answered", || answered() == CROWD);
}

#[test]
fn with_its_listener_the_handshakes_end_that_wait() {
    let (acceptor, host, mut crowd, _client) = scene();
    acceptor.ready(&host);
    while host.expire(&acceptor, AcceptorTimer::Hello) {}
    acceptor.close().into_iter().for_each(|name| host.forget(name));
    let ends = |stream: &mut TcpStream| match stream.read(&mut [0; 1 << 16]) {
        Ok(len) => len == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    };
    let mut ended = 0;
    until("half of them are ended", || {
        crowd.retain_mut(|stream| !ends(stream));
        ended = CROWD - crowd.len();
        ended >= CROWD / 2
    });
    // Those whose handshake went on are as they were: nothing keeps them but their sockets and their time.
    let kept = std::mem::take(&mut *host.watched.lock());
    assert_eq!(acceptor.half_open(), kept.len());
    kept.into_values().for_each(|pending| pending.drop_socket());
    assert_eq!((acceptor.half_open(), Arc::strong_count(&acceptor)), (0, 1));
}
