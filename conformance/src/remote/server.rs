//! The server: lends this process's domains to runs on other hosts.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fabric::Catalog;
use fabric_util::admission::{Admission, AdmissionLimits};
use fabric_util::byte_quota::ByteQuota;
use fabric_util::introductions::{Introduction, Introductions};
use fabric_util::log_limiter::{PeerEvent, PeerLog};
use fabric_util::mutual_proof::keys_from_env;
use fabric_util::proof::HandshakeKeys;

use super::allocation;
use super::frame;
use super::outbox::Outbox;
use super::protocol::Request;
use super::session::Session;

/// Connections at a time: domains, since each has one. One host has three quarters of them at most.
const MAX_SESSIONS: usize = 128;
/// Connections that have not said yet who they are.
const MAX_INTRODUCTIONS: usize = 64;
/// A run that calls nothing for so long is over.
const MAX_IDLE: Duration = Duration::from_secs(3600);
/// How long the near end may leave unread what it is sent.
const WRITE_TIMEOUT: Duration = Duration::from_secs(120);

/// Serves runs on other hosts ([`Peer`](super::Peer)) with the providers of a catalog.
///
/// Any host that reaches it can have memory allocated and connections made: it is for networks that you trust, or takes a
/// secret (`FABRIC_SECRET_FILE`), which every run then has to prove. Each connection is one domain, which closes with it.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// What the threads of all connections share.
struct Shared {
    catalog: Arc<Catalog>,
    /// Of the secret that runs have to prove.
    keys: Option<HandshakeKeys>,
    introductions: Introductions,
    sessions: Arc<Admission>,
    memory: Arc<ByteQuota>,
    log: PeerLog,
}

impl Server {
    /// Listens on `addr`; port 0 chooses a free port. Where `FABRIC_SECRET_FILE` names a secret, runs have to prove it.
    ///
    /// # Errors
    /// As `bind(2)`, and `InvalidInput` if that is no secret.
    pub fn bind(addr: SocketAddr, catalog: &Arc<Catalog>) -> io::Result<Self> {
        Self::bind_with(addr, catalog, keys_from_env()?)
    }

    fn bind_with(
        addr: SocketAddr,
        catalog: &Arc<Catalog>,
        keys: Option<HandshakeKeys>,
    ) -> io::Result<Self> {
        let sessions =
            AdmissionLimits { connections: MAX_SESSIONS, per_network: None, first_use: None };
        let shared = Shared {
            catalog: catalog.clone(),
            keys,
            introductions: Introductions::new(MAX_INTRODUCTIONS),
            sessions: Admission::new(sessions),
            memory: allocation::quota(),
            log: PeerLog::default(),
        };
        Ok(Server { listener: TcpListener::bind(addr)?, shared: Arc::new(shared) })
    }

    /// The address it listens on, with the real port.
    ///
    /// # Errors
    /// As `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves, for ever.
    ///
    /// # Errors
    /// If no connection can be accepted any more.
    pub fn run(&self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, peer)) => self.admit(stream, peer),
                // Of one connection, or until descriptors are free again.
                Err(error) if passes(&error) => thread::sleep(Duration::from_millis(10)),
                Err(error) => return Err(error),
            }
        }
    }

    fn admit(&self, stream: TcpStream, peer: SocketAddr) {
        let shared = self.shared.clone();
        let introduction = match shared.introductions.begin(&stream, peer) {
            Ok(introduction) => introduction,
            Err(error) => return shared.warn(peer, format_args!("is sent away: {error}")),
        };
        let session = move || shared.serve(stream, peer, introduction);
        if let Err(error) = thread::Builder::new().name(format!("for {peer}")).spawn(session) {
            self.shared.warn(peer, format_args!("has no thread: {error}"));
        }
    }
}

impl Shared {
    fn warn(&self, peer: SocketAddr, what: fmt::Arguments<'_>) {
        if let Some(suppressed) = self.log.check(PeerEvent::Admission, Some(peer)) {
            log::warn!("{peer} {what}{suppressed}");
        }
    }

    /// What the thread of one connection does.
    fn serve(&self, stream: TcpStream, peer: SocketAddr, introduction: Introduction) {
        let heard = frame::hear(&stream, self.keys.as_ref());
        let seat = heard.and_then(|()| {
            let seat = self.sessions.take(peer.ip());
            seat.ok_or_else(|| {
                let (own, all) = self.sessions.counts(peer.ip());
                format!("{all} of {MAX_SESSIONS} connections already, {own} of them from there")
            })
        });
        match seat {
            Err(reason) => {
                self.warn(peer, format_args!("is sent away: {reason}"));
                // It may be gone already.
                let _ = frame::refuse(&stream, &reason);
            }
            Ok(_seat) => {
                drop(introduction);
                let welcomed = frame::say_own_line(&stream).map_err(io::Error::other);
                if let Err(error) = welcomed.and_then(|()| self.execute(stream, peer)) {
                    self.warn(peer, format_args!("is lost: {error}"));
                }
            }
        }
    }

    /// Executes the calls of one connection, in their order, until it is closed.
    fn execute(&self, stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        stream.set_read_timeout(Some(MAX_IDLE))?;
        let outbox = Outbox::new(stream.try_clone()?)?;
        thread::scope(|scope| {
            let sender = scope.spawn(|| outbox.send_all());
            let mut session = Session::new(&self.catalog, &self.memory, peer, &outbox);
            let executed = execute(&stream, &outbox, &mut session);
            outbox.close();
            drop(session);
            let sent = sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            executed.and(sent)
        })
    }
}

fn passes(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    let exhausted = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    matches!(error.kind(), K::ConnectionAborted | K::Interrupted)
        || error.raw_os_error().is_some_and(|errno| exhausted.contains(&errno))
}

fn execute(stream: &TcpStream, outbox: &Outbox, session: &mut Session) -> io::Result<()> {
    while let Some(Request { number, call }) = frame::read(stream)? {
        let answer = session.execute(call);
        outbox.answer(number, answer)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Ipv4Addr;
    use std::time::Instant;

    use fabric::provider::{Event, EventSink};

    use super::super::link::Link;
    use super::super::protocol::{Call, EndpointCall, ListenerCall, MemoryCall, QueueCall, Survey};
    use super::*;

    struct NoEvents;

    impl EventSink for NoEvents {
        fn event(&self, _event: Event) {}
    }

    fn server() -> SocketAddr {
        let catalog = Arc::new(Catalog::builtin());
        let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into(), &catalog).unwrap();
        let addr = server.local_addr().unwrap();
        thread::spawn(move || server.run());
        addr
    }

    fn link(addr: SocketAddr) -> Result<Link, String> {
        Link::to(addr, Arc::new(NoEvents))
    }

    fn reply_to(addr: SocketAddr, says: &[u8]) -> String {
        let mut stranger = TcpStream::connect(addr).unwrap();
        stranger.write_all(says).unwrap();
        let mut reply = Vec::new();
        // It may be cut off; what came before that counts.
        let _ = stranger.read_to_end(&mut reply);
        String::from_utf8(reply).unwrap()
    }

    #[test]
    fn strangers_are_refused_and_do_no_harm() {
        let addr = server();
        let reply = reply_to(addr, b"GET / HTTP/1.1\r\n\r\n");
        assert!(reply.contains("error: it is no fabric-conformance"), "{reply}");
        let reply = reply_to(addr, b"fabric-conformance 0.0.0 protocol 0\n");
        assert!(reply.contains("run the same program at both ends"), "{reply}");
        // A client that sends the line and then nonsense is cut off.
        let line = format!("{}\n", frame::own_line());
        assert_eq!(reply_to(addr, &[line.as_bytes(), &[0xff; 64]].concat()), line);
        link(addr).unwrap().call::<()>(Call::Echo).unwrap();
    }

    #[test]
    fn with_a_secret_runs_have_to_prove_it() {
        let keys = |of| HandshakeKeys::new(&fabric::Secret::new(&[of; 32]).unwrap());
        let catalog = Arc::new(Catalog::builtin());
        let addr = (Ipv4Addr::LOCALHOST, 0).into();
        let server = Server::bind_with(addr, &catalog, Some(keys(1))).unwrap();
        let addr = server.local_addr().unwrap();
        thread::spawn(move || server.run());
        let greet = |of: Option<u8>, to| {
            frame::greet(&TcpStream::connect(to).unwrap(), of.map(keys).as_ref())
        };
        assert_eq!(greet(Some(1), addr), Ok(()));
        assert!(greet(Some(2), addr).unwrap_err().contains("another secret"));
        assert!(greet(None, addr).unwrap_err().contains("FABRIC_SECRET_FILE"));
        let line = format!("{}\n", frame::own_line());
        assert!(reply_to(addr, line.as_bytes()).contains("wants the proof of its secret"));
        // Nor does a run with one go on without.
        let Ok(open) = Server::bind_with((Ipv4Addr::LOCALHOST, 0).into(), &catalog, None) else {
            panic!("no server")
        };
        let addr = open.local_addr().unwrap();
        thread::spawn(move || open.run());
        assert!(greet(Some(1), addr).unwrap_err().contains("no secret"));
    }

    /// One host has three quarters of the seats.
    #[test]
    fn seats_are_bounded_and_given_back() {
        let addr = server();
        let links: Vec<_> = (0..MAX_SESSIONS / 4 * 3).map(|_| link(addr).unwrap()).collect();
        let refused = link(addr).err().unwrap();
        assert!(refused.contains("96 of 128 connections already, 96 of them"), "{refused}");
        drop(links);
        let until = Instant::now() + Duration::from_secs(60);
        while link(addr).is_err() {
            assert!(Instant::now() < until, "no seat is free again");
        }
    }

    /// More silent connections from one address than may wait: a run from another one is served.
    #[test]
    fn silent_strangers_keep_no_run_out() {
        let addr = server();
        let from = |host: u8| {
            let kind = socket2::Type::STREAM;
            let socket = socket2::Socket::new(socket2::Domain::IPV4, kind, None).unwrap();
            socket.bind(&SocketAddr::from(([127, 0, 0, host], 0)).into()).unwrap();
            socket.connect(&addr.into()).unwrap();
            TcpStream::from(socket)
        };
        // Others may have the processors at one time, and not at every time.
        let is_served = (0..5).any(|_| {
            let _crowd: Vec<_> = (0..2 * MAX_INTRODUCTIONS).map(|_| from(2)).collect();
            let start = Instant::now();
            link(addr).unwrap().call::<()>(Call::Echo).unwrap();
            start.elapsed() < Duration::from_secs(5)
        });
        assert!(is_served, "it waits for strangers");
    }

    #[test]
    fn calls_that_do_not_belong_are_errors() {
        let link = link(server()).unwrap();
        for call in [
            Call::Counters,
            Call::Endpoint(EndpointCall::Drop { endpoint: 1 }),
            Call::Memory(MemoryCall::Allocate { memory: 1, len: u64::MAX }),
            Call::Memory(MemoryCall::Load { memory: 7, at: 0, len: 1 }),
            Call::Queue(QueueCall::Poll { queue: 1, max: usize::MAX }),
            Call::Endpoint(EndpointCall::Accept {
                endpoint: 1,
                request: 1,
                data: Default::default(),
            }),
            Call::Open { provider: "nosuch".to_owned(), device: "none".to_owned() },
        ] {
            let text = format!("{call:?}");
            let answer = link.call::<()>(call);
            assert_eq!(answer.is_err(), !text.contains("(Drop "), "{text}: {answer:?}");
        }
        link.call::<()>(Call::Memory(MemoryCall::Allocate { memory: 1, len: 8 })).unwrap();
        let beyond = Call::Memory(MemoryCall::Store { memory: 1, at: 5, bytes: vec![0; 4].into() });
        assert!(link.call::<()>(beyond).is_err());
        link.call::<()>(Call::Echo).unwrap();
    }

    #[cfg(feature = "tcp")]
    #[test]
    fn what_a_client_leaves_behind_is_closed() {
        let addr = server();
        let open = || {
            let link = link(addr).unwrap();
            let survey: Survey = link.call(Call::Survey).unwrap();
            let device =
                survey.devices.into_iter().find(|d| d.provider == "tcp" && d.usable.is_ok());
            let device = device.unwrap().device;
            link.call::<()>(Call::Open { provider: "tcp".to_owned(), device }).unwrap();
            link
        };
        let listen = |link: &Link, addr| {
            let attr = fabric::ListenerAttr::default();
            let call = ListenerCall::Listen { listener: 1, addr, attr };
            link.call::<SocketAddr>(Call::Listener(call))
        };
        let first = open();
        let at = listen(&first, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let second = open();
        assert!(matches!(listen(&second, at), Err(fabric::Error::AddrInUse(_))));
        // As when it is killed: nothing but the connection ends.
        drop(first);
        let until = Instant::now() + Duration::from_secs(60);
        while let Err(error) = listen(&second, at) {
            assert!(Instant::now() < until, "{error}");
        }
    }
}
