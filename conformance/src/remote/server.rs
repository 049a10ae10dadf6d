//! The server: lends this process's domains to runs on other hosts.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use fabric::Catalog;

use super::frame;
use super::outbox::Outbox;
use super::protocol::Request;
use super::session::Session;

/// Connections at a time: domains, since each has one.
const MAX_SESSIONS: usize = 64;
/// How long the near end may leave unread what it is sent.
const WRITE_TIMEOUT: Duration = Duration::from_secs(120);

/// Serves runs on other hosts ([`Peer`](super::Peer)) with the providers of a catalog.
///
/// Any host that reaches it can have memory allocated and connections made: it is for networks that you trust. Each
/// connection is one domain, which closes with it.
pub struct Server {
    listener: TcpListener,
    catalog: Arc<Catalog>,
    sessions: Arc<AtomicUsize>,
}

impl Server {
    /// Listens on `addr`; port 0 chooses a free port.
    ///
    /// # Errors
    /// As `bind(2)`.
    pub fn bind(addr: SocketAddr, catalog: &Arc<Catalog>) -> io::Result<Self> {
        let (listener, sessions) = (TcpListener::bind(addr)?, Arc::default());
        Ok(Server { listener, catalog: catalog.clone(), sessions })
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
        let seat = Seat::take(&self.sessions);
        let catalog = self.catalog.clone();
        let session = move || {
            let Some(_seat) = seat else {
                log::warn!("{peer} is sent away: {MAX_SESSIONS} connections already");
                // It may be gone already.
                let _ = frame::refuse(&stream, &format!("{MAX_SESSIONS} connections already"));
                return;
            };
            if let Err(reason) = frame::greet(&stream) {
                log::warn!("{peer} is sent away: {reason}");
                let _ = frame::refuse(&stream, &reason);
            } else if let Err(error) = serve(stream, &catalog) {
                log::warn!("{peer} is lost: {error}");
            }
        };
        if let Err(error) = thread::Builder::new().name(format!("for {peer}")).spawn(session) {
            log::warn!("no thread for {peer}: {error}");
        }
    }
}

fn passes(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    let exhausted = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    matches!(error.kind(), K::ConnectionAborted | K::Interrupted)
        || error.raw_os_error().is_some_and(|errno| exhausted.contains(&errno))
}

/// One of the connections that may be.
struct Seat(Arc<AtomicUsize>);

impl Seat {
    fn take(taken: &Arc<AtomicUsize>) -> Option<Self> {
        let seat = Seat(taken.clone());
        // The seat gives back what it took, too late or not.
        (taken.fetch_add(1, Ordering::Relaxed) < MAX_SESSIONS).then_some(seat)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Executes the calls of one connection, in their order, until it is closed.
fn serve(stream: TcpStream, catalog: &Arc<Catalog>) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let outbox = Outbox::new(stream.try_clone()?)?;
    thread::scope(|scope| {
        let sender = scope.spawn(|| outbox.send_all());
        let mut session = Session::new(catalog, &outbox);
        let executed = execute(&stream, &outbox, &mut session);
        outbox.close();
        drop(session);
        let sent = sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        executed.and(sent)
    })
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
        let mut line = reply_to(addr, b"\n").lines().next().unwrap().to_owned();
        line.push('\n');
        assert_eq!(reply_to(addr, &[line.as_bytes(), &[0xff; 64]].concat()), line);
        link(addr).unwrap().call::<()>(Call::Echo).unwrap();
    }

    #[test]
    fn seats_are_bounded_and_given_back() {
        let addr = server();
        let links: Vec<_> = (0..MAX_SESSIONS).map(|_| link(addr).unwrap()).collect();
        assert_eq!(link(addr).err().unwrap(), format!("{MAX_SESSIONS} connections already"));
        drop(links);
        let until = Instant::now() + Duration::from_secs(10);
        while link(addr).is_err() {
            assert!(Instant::now() < until, "no seat is free again");
        }
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
        let until = Instant::now() + Duration::from_secs(10);
        while let Err(error) = listen(&second, at) {
            assert!(Instant::now() < until, "{error}");
        }
    }
}
