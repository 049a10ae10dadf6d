//! What the program does: two domains, all operations between them, one connection that is rejected.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fabric::{
    Access, Capabilities, Completion, CompletionQueue, ConnectRequest, Domain, Endpoint,
    EndpointBuilder, EndpointState, Error, Listener, Region, Result, Status,
};

/// So long something may take that waits for the other end.
const SOON: Duration = Duration::from_secs(10);
/// Before a waiter gives up.
const CONNECT: Duration = Duration::from_secs(6);

/// One end.
struct End {
    endpoint: Endpoint,
    queue: CompletionQueue,
    region: Region,
    domain: Domain,
}

fn address(domain: &Domain) -> SocketAddr {
    let all = &domain.info().addresses;
    let ip: IpAddr = *all.iter().find(|ip| ip.is_ipv4()).or(all.first()).unwrap();
    SocketAddr::new(ip, 0)
}

impl End {
    fn new(domain: Domain) -> Result<Self> {
        let queue = domain.completion_queue(64)?;
        let region = domain.alloc(1 << 20, Access::ALL)?;
        let builder = domain.endpoint().send_depth(16).recv_depth(16);
        let endpoint = builder.connect_timeout(CONNECT).build(&queue)?;
        Ok(End { endpoint, queue, region, domain })
    }

    /// The next completion, which is to be a good one.
    fn take(&self) -> Result<Completion> {
        take(&self.queue, &self.endpoint)
    }
}

fn take(queue: &CompletionQueue, endpoint: &Endpoint) -> Result<Completion> {
    let one = queue.wait_one(Some(SOON))?;
    match one.status {
        Status::Ok => Ok(one),
        status => {
            assert_eq!(endpoint.state(), EndpointState::Dead, "behind {status:?}");
            Err(Error::state("take a completion", format!("{status:?}")))
        }
    }
}

/// The request of a peer that connects from here; or why it does not get to that.
fn request(listener: &Listener, from: &Endpoint) -> Result<ConnectRequest> {
    loop {
        match listener.accept(Some(Duration::from_millis(20))) {
            Err(Error::TimedOut(_)) if from.state() == EndpointState::Connecting => {}
            Err(Error::TimedOut(_)) => {
                from.wait_connected(Some(SOON))?;
                return Err(Error::state("accept", "connected without having been accepted"));
            }
            done => return done,
        }
    }
}

fn join(listener: &Listener, a: &Endpoint, b: &Endpoint) -> Result<()> {
    a.connect(listener.local_addr(), b"hello")?;
    let mut request = request(listener, a)?;
    assert_eq!(request.private_data(), b"hello");
    request.accept(b, b"welcome")?;
    let said = a.wait_connected(Some(SOON))?;
    assert_eq!(&*said, b"welcome");
    b.wait_connected(Some(SOON))?;
    Ok(())
}

/// The whole program. What it does arrive at is right; else it says why it did not.
pub(super) fn play(open: &impl Fn() -> Result<Domain>) -> Result<()> {
    let (a, b) = (End::new(open()?)?, End::new(open()?)?);
    let listener = b.domain.listen(address(&b.domain))?;
    join(&listener, &a.endpoint, &b.endpoint)?;
    exchange(&a, &b)?;
    share(&a, &b, &listener)?;
    let builder = a.domain.endpoint().send_depth(2).recv_depth(2);
    let other = builder.connect_timeout(CONNECT).build(&a.queue)?;
    other.connect(listener.local_addr(), &[])?;
    request(&listener, &other)?.reject(b"not you")?;
    match other.wait_connected(Some(SOON)) {
        Err(Error::Rejected(data)) => assert_eq!(**data, *b"not you"),
        Err(error) => return Err(error),
        Ok(_) => panic!("a rejected connection is established"),
    }
    b.endpoint.recv(b.region.slice(..64), 9)?;
    a.endpoint.shutdown(SOON)?;
    let status = b.queue.wait_one(Some(SOON))?.status;
    assert!(matches!(status, Status::Canceled | Status::PeerLost), "{status:?}");
    b.endpoint.wait_disconnected(Some(SOON))?;
    Ok(())
}

/// Each operation once, small and large.
fn exchange(a: &End, b: &End) -> Result<()> {
    const LARGE: usize = 1 << 19;
    for len in [64, LARGE] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
        a.region.write_at(0, &bytes)?;
        b.region.fill(0)?;
        b.endpoint.recv(b.region.slice(LARGE..LARGE + len), 1)?;
        a.endpoint.send(a.region.slice(..len), 2)?;
        assert_eq!(a.take()?.context, 2);
        assert_eq!((b.take()?.context, b.region.to_vec(LARGE..LARGE + len)?), (1, bytes.clone()));
        a.endpoint.write(a.region.slice(..len), b.region.remote().at(0), 3)?;
        a.endpoint.read(a.region.slice(LARGE..LARGE + len), b.region.remote().at(0), 4)?;
        assert_eq!((a.take()?.context, a.take()?.context), (3, 4));
        assert_eq!(a.region.to_vec(LARGE..LARGE + len)?, bytes);
    }
    b.region.fill(0)?;
    let word = || b.region.remote().at(64);
    for turn in 0..2_u64 {
        a.endpoint.fetch_add(5_u64, a.region.slice(..8), word(), 5)?;
        assert_eq!(a.take()?.context, 5);
        assert_eq!(a.region.get::<u64>(0)?, 5 * turn);
    }
    Ok(())
}

/// A message to an endpoint that takes its receives from a shared queue.
fn share(a: &End, b: &End, listener: &Listener) -> Result<()> {
    if !b.domain.info().capabilities.contains(Capabilities::SHARED_RECEIVES) {
        return Ok(());
    }
    let receives = b.domain.shared_receive_queue(2, &b.queue)?;
    fn builder(end: &End) -> EndpointBuilder<'_> {
        end.domain.endpoint().send_depth(2).connect_timeout(CONNECT)
    }
    let from = builder(a).recv_depth(2).build(&a.queue)?;
    let to = builder(b).shared_receives(&receives).build(&b.queue)?;
    receives.recv(b.region.slice(..64), 6)?;
    join(listener, &from, &to)?;
    from.send(a.region.slice(..64), 7)?;
    assert_eq!(take(&a.queue, &from)?.context, 7);
    let received = take(&b.queue, &to)?;
    assert_eq!((received.context, received.endpoint, received.len), (6, to.id(), 64));
    Ok(())
}

/// A connection that exists beside it all.
pub(super) struct Bystander {
    ends: [Endpoint; 2],
    queue: CompletionQueue,
    region: Region,
}

impl Bystander {
    pub(super) fn new(domain: &Domain) -> Self {
        let queue = domain.completion_queue(64).unwrap();
        let end = || domain.endpoint().send_depth(4).recv_depth(4).build(&queue).unwrap();
        let ends = [end(), end()];
        let listener = domain.listen(address(domain)).unwrap();
        join(&listener, &ends[0], &ends[1]).unwrap();
        Bystander { ends, queue, region: domain.alloc(64, Access::ALL).unwrap() }
    }

    pub(super) fn goes_on(&self, what: &str) {
        for (from, to) in [(0, 1), (1, 0)] {
            self.ends[to].recv(&self.region, 1).unwrap();
            self.ends[from].send(&self.region, 2).unwrap();
            for _ in 0..2 {
                let one = self.queue.wait_one(Some(SOON)).unwrap();
                assert_eq!(one.status, Status::Ok, "{what}: beside it");
            }
        }
    }
}
