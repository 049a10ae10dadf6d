//! Peers that speak another protocol, or none.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use super::steps::{connect_failed, connected, message, next_request};
use crate::prelude::*;

/// What a listener of another kind does with a connection. Providers that do not go over TCP never meet it.
#[derive(Clone, Copy, Debug)]
enum Stranger {
    /// Says something of its own, as soon as it has read something.
    Answers,
    /// Says something of its own before it is asked.
    SpeaksFirst,
    /// Says nothing.
    IsSilent,
    /// Closes.
    Closes,
}

pub(super) fn foreign_peer(rig: &Rig) -> Outcome {
    for stranger in [Stranger::Answers, Stranger::SpeaksFirst, Stranger::IsSilent, Stranger::Closes]
    {
        meet(rig, stranger)?;
    }
    be_met(rig)
}

/// Connects to a stranger.
fn meet(rig: &Rig, stranger: Stranger) -> Outcome {
    const TIMER: Duration = Duration::from_millis(500);
    let socket = TcpListener::bind(rig.addr(rig.domain_a()))?;
    socket.set_nonblocking(true)?;
    let at = socket.local_addr()?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| serve(&socket, stranger, &over));
        let met = || {
            let a = rig.end_with(rig.domain_a(), |attr| attr.connect_timeout = TIMER)?;
            a.recv(Slices::none(), 1)?;
            let start = Instant::now();
            a.connect(at, b"do you speak it?")?;
            let (error, taken) = (connect_failed(&a)?, start.elapsed());
            // A provider that does not go over TCP finds no listener.
            check_matches!(
                error,
                Error::Unreachable(_) | Error::Refused(_) | Error::TimedOut(_),
                "why there is no connection with {stranger:?}"
            );
            let limit = TIMER + rig.scaled(Duration::from_secs(1));
            check!(taken < limit, "the outcome within {limit:?}, not after {taken:?}");
            check_eq!(a.state(), EndpointState::Dead, "state after meeting a stranger");
            a.expect(Done::canceled(1))?;
            a.expect_no_event_for(Duration::from_millis(50))
        };
        let outcome = met();
        over.store(true, Ordering::Relaxed);
        outcome
    })
}

fn serve(socket: &TcpListener, stranger: Stranger, over: &AtomicBool) {
    let mut guest: Option<TcpStream> = None;
    while !over.load(Ordering::Relaxed) {
        if let Ok((mut stream, _)) = socket.accept() {
            // Whether it listens or can be written to, the other side shall cope.
            let _ = stream.set_nonblocking(false);
            let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
            if matches!(stranger, Stranger::Answers) {
                let _ = stream.read(&mut [0; 64]);
            }
            if matches!(stranger, Stranger::Answers | Stranger::SpeaksFirst) {
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
            }
            guest = (!matches!(stranger, Stranger::Closes)).then_some(stream);
        }
        thread::sleep(Duration::from_millis(1));
    }
    drop(guest);
}

/// Strangers connect to a listener of ours.
fn be_met(rig: &Rig) -> Outcome {
    let (a, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    let listener = rig.listen(rig.domain_b())?;
    let mut strangers = Vec::new();
    for says in [&b""[..], b"\0", b"GET / HTTP/1.1\r\n\r\n", &[0xff; 4096], &[0; 4096]] {
        match TcpStream::connect(listener.local_addr()) {
            Ok(mut stream) => {
                // It may be cut off before it has said all.
                let _ = stream.write_all(says);
                strangers.push(stream);
            }
            // Only a provider that goes over TCP can be met so.
            Err(error) => {
                check_eq!(error.kind(), ErrorKind::ConnectionRefused, "why not to be met")
            }
        }
    }
    a.connect(listener.local_addr(), b"I speak it")?;
    let mut request = next_request(rig, &listener)?;
    check_bytes!(request.private_data(), b"I speak it", "the only request");
    request.accept(&b, &[])?;
    connected(&a, &b)?;
    drop(strangers);
    message(&a, &b, rig.pattern(0))?;
    check!(listener.poll().is_none(), "no request of a stranger");
    Ok(())
}

pub(super) fn inward_address(rig: &Rig) -> Outcome {
    let port = rig.no_listener().port();
    let (from, to) = rig.pair()?;
    for ip in [IpAddr::from(Ipv6Addr::LOCALHOST), Ipv4Addr::LOCALHOST.into()] {
        let a = rig.end(rig.domain_a())?;
        let start = Instant::now();
        match a.connect(SocketAddr::new(ip, port), &[]) {
            Ok(()) => {
                let patience = Some(rig.connect_timeout());
                let outcome = a.wait_connected(patience);
                check_err!(
                    outcome,
                    Error::Refused(_) | Error::Unreachable(_) | Error::TimedOut(_),
                    "connecting to {ip}, without a listener"
                );
                check_eq!(a.state(), EndpointState::Dead, "state after that");
            }
            Err(error) => {
                check_matches!(error, Error::Unreachable(_), "what the call says of {ip}");
                check_eq!(a.state(), EndpointState::Idle, "state after a call that failed");
            }
        }
        let (took, limit) = (start.elapsed(), rig.connect_timeout());
        check!(took < limit, "an outcome within {limit:?}, not after {took:?}");
        // Connections stay, and new ones are made.
        from.settle(&to)?;
        let (a, b) = rig.pair()?;
        a.settle(&b)?;
    }
    Ok(())
}
