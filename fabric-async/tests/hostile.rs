//! Peers that speak the protocol of `fabric-async` themselves, and break it: they harm no other connection.

#![cfg(not(miri))] // Miri has no sockets
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use common::{address, between, eventually, node};
use fabric::{Access, CompletionQueue, Domain, Endpoint, Hints, Region, RemoteRegion};
use fabric_async::{Connection, Error, Node, block_on};

const LONG: Duration = Duration::from_secs(60);
const SOON: Option<Duration> = Some(Duration::from_secs(30));

/// The greeting of a connection of the application's, or of the one for its leases.
fn hello(control: bool, token: u64) -> Vec<u8> {
    let kind = u8::from(control) | 2;
    let mut bytes = vec![b'f', b'A', 1, kind];
    bytes.extend((1u32 << 20).to_le_bytes());
    bytes.extend(token.to_le_bytes());
    bytes
}

/// A message about leases.
fn word(kind: u8, fields: &[u64], region: Option<RemoteRegion>) -> Vec<u8> {
    let mut bytes = vec![kind];
    fields.iter().for_each(|field| bytes.extend(field.to_le_bytes()));
    bytes.extend(region.into_iter().flat_map(|region| region.to_bytes()));
    bytes
}

/// One end of a connection for leases, which says what it likes.
struct Stranger {
    control: Endpoint,
    queue: CompletionQueue,
    region: Region,
    _user: Endpoint,
}

const RECEIVES: usize = 32;

impl Stranger {
    fn ends(domain: &Domain) -> (CompletionQueue, [Endpoint; 2]) {
        let queue = domain.completion_queue(1024).unwrap();
        let ends = [Self::end(domain, &queue, None), Self::end(domain, &queue, None)];
        (queue, ends)
    }

    fn end(domain: &Domain, queue: &CompletionQueue, source: Option<IpAddr>) -> Endpoint {
        let mut attr = fabric::EndpointAttr::default();
        attr.source = source;
        let builder = domain.endpoint().attr(attr).send_depth(64).recv_depth(RECEIVES);
        builder.build(queue).unwrap()
    }

    fn new(domain: &Domain, queue: CompletionQueue, [user, control]: [Endpoint; 2]) -> Self {
        let region = domain.alloc(RECEIVES * 128, Access::LOCAL_WRITE).unwrap();
        let stranger = Stranger { control, queue, region, _user: user };
        (0..RECEIVES).for_each(|place| stranger.receive(place));
        stranger
    }

    fn connect(domain: &Domain, to: SocketAddr, token: u64) -> Self {
        let (queue, ends) = Self::ends(domain);
        for (end, control) in ends.iter().zip([false, true]) {
            end.connect(to, &hello(control, token)).unwrap();
            end.wait_connected(SOON).unwrap();
        }
        Self::new(domain, queue, ends)
    }

    /// Lets in a connection, and the one for its leases.
    fn accept(domain: &Domain, listener: &fabric::Listener) -> Self {
        let (queue, ends) = Self::ends(domain);
        for (end, control) in ends.iter().zip([false, true]) {
            let mut request = listener.accept(SOON).unwrap();
            request.accept(end, &hello(control, 0)).unwrap();
            end.wait_connected(SOON).unwrap();
        }
        Self::new(domain, queue, ends)
    }

    fn receive(&self, place: usize) {
        let at = place * 128;
        // Refused when the connection has ended, which the other receives report.
        let _ = self.control.recv(self.region.slice(at..at + 128), place as u64);
    }

    fn say(&self, word: &[u8]) {
        // Unsignaled: completions are not taken meanwhile.
        let word = fabric::Op::inject(word).unsignaled();
        while matches!(self.control.post(&word), Err(fabric::Error::Again)) {
            std::thread::yield_now();
        }
    }

    /// The next message.
    fn hear(&self) -> Option<Vec<u8>> {
        loop {
            let done = self.queue.wait_one(SOON).ok()?;
            if done.is_ok() && done.kind.is_receive() {
                let at = done.context as usize * 128;
                let bytes = self.region.to_vec(at..at + done.len).unwrap();
                self.receive(done.context as usize);
                return Some(bytes);
            }
            if !done.is_ok() {
                return None;
            }
        }
    }
}

fn domain() -> Domain {
    Domain::open(&Hints::default()).unwrap()
}

fn field(word: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(word[1 + 8 * at..][..8].try_into().unwrap())
}

#[test]
fn one_that_does_not_finish_its_set_up_holds_up_nobody() {
    let (server, client, domain) = (node(|b| b.connect_timeout(LONG)), node(|b| b), domain());
    let listener = block_on(server.listen(address())).unwrap();
    let to = listener.local_addr();
    // It says that it wants leases, and never makes the connection for them.
    let (_queue, [user, _]) = Stranger::ends(&domain);
    user.connect(to, &hello(false, 7)).unwrap();
    let start = Instant::now();
    let honest = std::thread::spawn(move || {
        user.wait_connected(SOON).unwrap();
        (block_on(client.connect(to)), user)
    });
    let first = block_on(listener.accept()).unwrap();
    let (honest, user) = honest.join().unwrap();
    let honest = honest.unwrap();
    assert_eq!(Some(honest.local_addr().unwrap()), first.peer_addr());
    assert!(start.elapsed() < LONG / 2, "after {:?}", start.elapsed());

    // Its set-up goes on beside the next one's, although the future that started it is gone.
    drop(user);
    let again = std::thread::spawn(move || block_on(Connection::connect(to)));
    let second = block_on(listener.accept()).unwrap();
    assert_eq!(again.join().unwrap().unwrap().local_addr(), second.peer_addr());
}

/// A token goes over the network in clear, so it alone does not make a connection somebody's.
#[test]
fn leases_are_for_the_address_that_the_connection_came_from() {
    let (server, domain) = (node(|b| b.connect_timeout(LONG)), domain());
    let own = domain.info().addresses.clone();
    let own: Vec<_> = own.into_iter().filter(IpAddr::is_ipv4).collect();
    let [from, other, ..] = own[..] else {
        println!("NOT RUN: the device has fewer than two IPv4 addresses: {own:?}");
        return;
    };
    let listener = block_on(server.listen(SocketAddr::new(from, 0))).unwrap();
    let to = listener.local_addr();
    let (queue, [user, control]) = Stranger::ends(&domain);
    let thief = Stranger::end(&domain, &queue, Some(other));
    user.connect(to, &hello(false, 7)).unwrap();
    let accepting = std::thread::spawn(move || (block_on(listener.accept()), listener));
    user.wait_connected(SOON).unwrap();
    thief.connect(to, &hello(true, 7)).unwrap();
    let refused = thief.wait_connected(SOON).unwrap_err();
    assert!(matches!(refused, fabric::Error::Rejected(_)), "{refused}");
    // Its owner still has it.
    control.connect(to, &hello(true, 7)).unwrap();
    control.wait_connected(SOON).unwrap();
    assert_eq!(accepting.join().unwrap().0.unwrap().peer_addr(), user.local_addr());
}

/// One that accepts leaves those who are not in yet to another one that does, and wakes it.
#[test]
fn a_set_up_goes_on_with_whoever_still_accepts() {
    struct Flag(AtomicBool);
    impl std::task::Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (server, client, domain) = (node(|b| b.connect_timeout(LONG)), node(|b| b), domain());
    let listener = block_on(server.listen(address())).unwrap();
    let to = listener.local_addr();
    let woken = Arc::new(Flag(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let mut one = Box::pin(listener.accept());
    let mut other = Box::pin(listener.accept());
    fn poll<F: Future>(accept: &mut std::pin::Pin<Box<F>>, waker: &Waker) -> Poll<F::Output> {
        accept.as_mut().poll(&mut Context::from_waker(waker))
    }
    // The first one begins with a peer that takes its time.
    let (_queue, [user, control]) = Stranger::ends(&domain);
    user.connect(to, &hello(false, 7)).unwrap();
    eventually("the slow one is on its way in", || {
        assert!(poll(&mut one, &waker).is_pending());
        user.state() == fabric::EndpointState::Connected
    });
    assert!(poll(&mut other, &waker).is_pending());
    // Then it gets another one.
    let quick = std::thread::spawn(move || block_on(client.connect(to)).unwrap());
    let got = block_on(one).unwrap();
    assert_eq!(quick.join().unwrap().local_addr(), got.peer_addr());
    // Where every call is allowed, a moment later perhaps.
    eventually("the slow one is polled", || woken.0.load(Ordering::Relaxed));
    assert!(poll(&mut other, &waker).is_pending());
    control.connect(to, &hello(true, 7)).unwrap();
    assert_eq!(block_on(other).unwrap().peer_addr(), user.local_addr());
}

#[test]
fn leases_end_in_time_whatever_others_ask_for() {
    let (owner, user, domain) = (node(|b| b), node(|b| b), domain());
    let listener = block_on(owner.listen(address())).unwrap();
    let (a, b) = block_on(between(&user, &owner));
    let to = listener.local_addr();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for token in 1..=4 {
            let (domain, stop) = (&domain, &stop);
            scope.spawn(move || {
                let stranger = Stranger::connect(domain, to, token);
                let mut id = 0;
                let mut ask = || {
                    id += 1;
                    stranger.say(&word(1, &[id, 4 << 20, 60_000_000, 0], None));
                };
                (0..8).for_each(|_| ask());
                while !stop.load(Ordering::Relaxed) {
                    let Some(answer) = stranger.hear() else { break };
                    if answer[0] == 2 {
                        stranger.say(&word(6, &[field(&answer, 1)], None));
                    }
                    ask();
                }
            });
        }
        let let_in: Vec<Connection> =
            (0..4).map(|_| block_on(listener.accept()).unwrap()).collect();
        let buffer = b.alloc(64).unwrap();
        let lent = b.lend(buffer, Duration::from_millis(100), Access::REMOTE).unwrap();
        eventually("the lease ends", || !lent.is_active());
        let remote = block_on(a.next_lease()).unwrap();
        eventually("its holder knows", || remote.end().is_some());
        stop.store(true, Ordering::Relaxed);
        drop(let_in);
    });
}

#[test]
fn what_is_lent_for_a_time_is_not_prolonged_by_its_holder() {
    let (owner, user) = (node(|b| b), node(|b| b));
    let (a, b) = block_on(between(&user, &owner));
    let lent = b.lend(b.alloc(64).unwrap(), Duration::from_secs(5), Access::REMOTE).unwrap();
    let remote = block_on(a.next_lease()).unwrap();
    let refused = block_on(remote.renew(LONG)).unwrap_err();
    assert!(matches!(refused, Error::NotGranted(fabric_async::Refusal::Fixed)), "{refused}");
    eventually("it ends", || !lent.is_active());
}

#[test]
fn all_peers_together_borrow_no_more_than_the_node_lends() {
    let owner = node(|b| {
        let mut policy = fabric_async::LeasePolicy::default();
        policy.max_total_bytes = Some(8192);
        policy.max_bytes_per_address = Some(8192);
        b.lend(policy)
    });
    let user = node(|b| b);
    let (a, _b) = block_on(between(&user, &owner));
    let (c, _d) = block_on(between(&user, &owner));
    let first = block_on(a.request_lease(8000, LONG)).unwrap();
    let second = block_on(c.request_lease(192, LONG)).unwrap();
    let refused = block_on(c.request_lease(8, LONG)).unwrap_err();
    assert!(matches!(refused, Error::NotGranted(fabric_async::Refusal::NoMemory)), "{refused}");
    // What comes back, one by one or with its connection, can be lent again.
    drop(second);
    eventually("192 bytes", || block_on(c.request_lease(192, LONG)).is_ok());
    drop((a, first));
    eventually("8000 bytes", || block_on(c.request_lease(8000, LONG)).is_ok());
}

/// An owner that grants something else than was requested is disconnected.
fn granting(time: u64, region: RemoteRegion) -> Result<u64, Error> {
    let (domain, user): (_, Node) = (domain(), node(|b| b));
    let at: SocketAddr = address().parse().unwrap();
    let listener = domain.listen(at).unwrap();
    let to = listener.local_addr();
    std::thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let stranger = Stranger::accept(&domain, &listener);
            let request = stranger.hear().unwrap();
            assert_eq!((request[0], field(&request, 1)), (1, 64));
            stranger.say(&word(2, &[field(&request, 0), 1, time], Some(region)));
            // Until the other end has had enough.
            while stranger.hear().is_some() {}
        });
        let conn = block_on(user.connect(to)).unwrap();
        let remote = block_on(conn.request_lease(64, Duration::from_secs(1)));
        let len = remote.map(|remote| remote.len());
        drop(conn);
        owner.join().unwrap();
        len
    })
}

#[test]
fn what_was_not_asked_for_is_no_grant() {
    let region = |len| RemoteRegion::from_parts(1, 0, len, Access::REMOTE);
    assert_eq!(granting(1_000_000, region(64)).unwrap(), 64);
    for (time, len) in [(1_000_000, u64::MAX), (1_000_000, 0), (1_000_001, 64)] {
        let refused = granting(time, region(len));
        assert!(matches!(refused, Err(Error::Protocol(_))), "{refused:?}");
    }
}

/// A peer that lends without end, and takes nothing, ends its own connection: what it is answered is bounded.
#[test]
fn one_that_lends_and_takes_no_answers_is_disconnected() {
    let (domain, user) = (domain(), node(|b| b));
    let at: SocketAddr = address().parse().unwrap();
    let listener = domain.listen(at).unwrap();
    let to = listener.local_addr();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (domain, listener, over) = (&domain, &listener, &over);
        scope.spawn(move || {
            let stranger = Stranger::accept(domain, listener);
            let region = RemoteRegion::from_parts(1, 0, 64, Access::REMOTE);
            for lease in 1.. {
                // It does not wait until it is asked for its clock.
                for word in [word(7, &[lease, u64::MAX], Some(region)), word(13, &[0], None)] {
                    stranger.say(&word);
                }
                if over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let conn = block_on(user.connect(to)).unwrap();
        let end = (0..20_000).find_map(|_| block_on(conn.next_lease()).err());
        over.store(true, Ordering::Relaxed);
        assert!(matches!(end, Some(Error::Disconnected(_))), "{end:?}");
    });
}

/// However much is asked of a peer that takes nothing for a while, the connection stays, and the last question is answered.
#[test]
fn questions_wait_for_a_peer_that_takes_its_time() {
    let (domain, user) = (domain(), node(|b| b));
    let at: SocketAddr = address().parse().unwrap();
    let listener = domain.listen(at).unwrap();
    let to = listener.local_addr();
    let (go, gone) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let (domain, listener) = (&domain, &listener);
        let owner = scope.spawn(move || {
            let stranger = Stranger::accept(domain, listener);
            gone.recv().unwrap();
            let mut heard = 0;
            while let Some(request) = stranger.hear() {
                heard += 1;
                if request[0] == 1 && field(&request, 1) == 80 {
                    let region = RemoteRegion::from_parts(1, 0, 80, Access::REMOTE);
                    stranger.say(&word(2, &[field(&request, 0), 1, 1_000_000], Some(region)));
                }
            }
            heard
        });
        let conn = block_on(user.connect(to)).unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        let time = Duration::from_secs(1);
        for _ in 0..5000 {
            let asking = std::pin::pin!(conn.request_lease(64, time));
            assert!(asking.poll(&mut cx).is_pending(), "there is no answer");
        }
        let buffer = conn.alloc(64).unwrap();
        let failed = conn.lend(buffer, time, Access::REMOTE).unwrap_err();
        assert!(matches!(failed.error, Error::Fabric(fabric::Error::Again)), "{failed}");
        let mut last = Box::pin(conn.request_lease(80, time));
        assert!(last.as_mut().poll(&mut cx).is_pending());
        go.send(()).unwrap();
        assert_eq!(block_on(last).unwrap().len(), 80);
        eventually("there is room again", || {
            conn.lend(conn.alloc(64).unwrap(), time, Access::REMOTE).is_ok()
        });
        drop(conn);
        let heard = owner.join().unwrap();
        assert!((1000..2000).contains(&heard), "{heard} messages");
    });
}
