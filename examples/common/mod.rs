//! What the examples share: how they end, how they connect, how they wait. The rest of the API is used in
//! the examples themselves.

#![allow(dead_code, unreachable_pub)] // each example uses its part

use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use fabric::{
    Completion, CompletionQueue, ConnectRequest, Domain, Endpoint, EndpointBuilder, Error,
    ErrorClass, Event, Region, Status,
};

/// What can go wrong in an example is shown to a person, so one type for all of it will do.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How long an example waits for its peer.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Turns the outcome of an example into an exit code. `RUST_LOG=info` shows which provider was chosen.
pub fn finish(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Where the server is: an address or a name, and a port; or a port alone, on an address of the device, a loopback
/// address if it has one.
#[derive(Clone, Copy)]
pub enum Place {
    /// This address, or the one of a name.
    At(SocketAddr),
    /// On the device's own address.
    Port(u16),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(port) = text.parse() {
            return Ok(Place::Port(port));
        }
        if !text.contains(':') {
            return Err("expected a port, or an address or name and a port, such as 10.0.0.2:7471"
                .to_owned());
        }
        let found: Vec<_> = text.to_socket_addrs().map_err(|error| error.to_string())?.collect();
        // Of a name with addresses of both families, that of IPv4: RDMA devices have one as a rule.
        let best = found.iter().find(|address| address.is_ipv4()).or(found.first());
        best.copied().map(Place::At).ok_or_else(|| "the name has no address".to_owned())
    }
}

impl Place {
    /// The address, for a server or client on `domain`.
    pub fn on(self, domain: &Domain) -> Outcome<SocketAddr> {
        match self {
            Place::At(address) => Ok(address),
            Place::Port(port) => {
                let own = &domain.info().addresses;
                let near = own.iter().find(|ip| ip.is_loopback()).or(own.first());
                let ip =
                    near.ok_or_else(|| format!("{} has no address; say --at", domain.device()))?;
                Ok(SocketAddr::new(*ip, port))
            }
        }
    }
}

/// Connects, trying again for up to [`PATIENCE`] while the server is not up. Gives the endpoint and the
/// private data that the server accepted with.
pub fn connect(
    settings: &EndpointBuilder<'_>,
    queue: &CompletionQueue,
    to: SocketAddr,
    data: &[u8],
) -> Outcome<(Endpoint, Box<[u8]>)> {
    let deadline = Instant::now() + PATIENCE;
    let mut attempts = 0;
    loop {
        // An endpoint connects once, so each attempt makes a new one. Its own time-out bounds the wait.
        let endpoint = settings.clone().build(queue)?;
        let outcome = endpoint.connect(to, data).and_then(|()| endpoint.wait_connected(None));
        match outcome {
            Ok(reply) => return Ok((endpoint, reply)),
            Err(Error::Rejected(why)) => {
                return Err(format!("{to} does not want us: {}", printable(&why)).into());
            }
            Err(error) if error.class() == ErrorClass::Transient && Instant::now() < deadline => {
                attempts += 1;
                if attempts == 20 {
                    eprintln!("{error}; still trying");
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sleeps until the next operation ends, and insists that it ended well.
pub fn wait(queue: &CompletionQueue) -> Outcome<Completion> {
    match queue.wait_one(Some(PATIENCE)) {
        Ok(completion) => expect_ok(completion),
        Err(Error::TimedOut(_)) => Err("nothing happened for too long: the peer hangs".into()),
        Err(error) => Err(error.into()),
    }
}

/// Passes a completion on if its operation ended well.
pub fn expect_ok(completion: Completion) -> Outcome<Completion> {
    if completion.is_ok() {
        return Ok(completion);
    }
    let Completion { kind, endpoint, status, .. } = completion;
    if status == Status::Canceled {
        return Err(
            format!("{kind:?} on {endpoint} was canceled: the connection ended first").into()
        );
    }
    Err(format!("{kind:?} on {endpoint} failed: {status}").into())
}

/// Bytes of a peer, for a terminal: what would steer it is escaped.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::new();
    for char in String::from_utf8_lossy(bytes).chars() {
        match char {
            '"' | '\'' => text.push(char),
            _ => text.extend(char.escape_debug()),
        }
    }
    text
}

/// Clients at a time; each takes two places of the completion queue.
const MAX_CLIENTS: usize = 4096;

/// Lends `region` to every client that connects, until `clients` have come and gone (`None`: for ever). One that cannot be served
/// is sent away; that is no reason to leave the others alone.
///
/// The peers read, write and update the memory by one-sided operations; this thread sleeps until somebody
/// comes or goes. The way to the memory, 40 bytes, travels in the private data of `accept`.
pub fn lend(domain: &Domain, region: &Region, on: SocketAddr, clients: Option<usize>) -> Outcome {
    let listener = domain.listen(on)?;
    println!("{} listens on {}", domain.provider(), listener.local_addr());
    let events = domain.events();
    // Nothing is posted here, so the smallest depths will do, and one queue for all.
    let queue = domain.completion_queue(domain.info().limits.cq_capacity.min(2 * MAX_CLIENTS))?;
    let welcome = |request: &mut ConnectRequest| -> fabric::Result<Endpoint> {
        let endpoint = domain.endpoint().send_depth(1).recv_depth(1).build(&queue)?;
        request.accept(&endpoint, &region.remote().to_bytes())?;
        Ok(endpoint)
    };
    let (mut present, mut gone) = (HashMap::new(), 0);
    while clients.is_none_or(|clients| gone < clients) {
        match events.wait(None)? {
            Event::ConnectRequest { .. } => {
                while let Some(mut request) = listener.poll() {
                    match welcome(&mut request) {
                        Ok(endpoint) => _ = present.insert(endpoint.id(), endpoint),
                        Err(error) => send_away(request, &error),
                    }
                }
            }
            Event::Disconnected { endpoint, .. } => {
                gone += usize::from(present.remove(&endpoint).is_some());
            }
            Event::DeviceLost => return Err(Error::DeviceLost.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Rejects a client, and says why on this side only.
pub fn send_away(mut request: ConnectRequest, why: &dyn std::fmt::Display) {
    eprintln!("{} is sent away: {why}", request.peer_addr());
    // It fails only if the request is answered or its client gone.
    let _ = request.reject(b"the server cannot take you");
}
