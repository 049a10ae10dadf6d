//! Which way connections go, and that all of them are one domain's.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests too

mod side;

use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use fabric::{
    Access, Armed, Capabilities, Choice, Domain, Error, Hints, OpKind, RemoteRegion, Slices, Status,
};
use rustix::event::epoll;
use side::{LEN, SOON, Side, way};

#[test]
fn it_is_what_a_program_gets_that_asks_for_nothing() {
    let domain = Domain::open(&Hints::default()).unwrap();
    assert_eq!((domain.provider(), domain.device()), ("auto", "any"));
    let info = domain.info();
    let text = &info.description;
    assert!(text.contains("shared memory") && text.contains("tcp"), "{text}");
    let has = Capabilities::ATOMIC | Capabilities::GRANTS | Capabilities::SHARED_RECEIVES;
    assert!(info.capabilities.contains(has));
    // A need that both together do not meet.
    let capabilities = Capabilities::SEND | Capabilities::PROGRESS_WHILE_STOPPED;
    let domain = Domain::open(&Hints { capabilities, ..Hints::default() }).unwrap();
    assert_eq!(domain.provider(), "shm");
    let said = domain.selection().to_string();
    assert!(said.contains("not auto:any: capabilities: wanted progress-while-stopped"), "{said}");
    for (choice, provider) in [("^shm", "tcp"), ("^auto", "tcp"), ("^tcp", "shm"), ("tcp", "tcp")] {
        let catalog = fabric::Catalog::builtin();
        let domain = catalog.open_with(&Choice::parse(choice).unwrap(), &Hints::default()).unwrap();
        assert_eq!(domain.provider(), provider, "{choice}");
    }
}

/// One domain, one region, one completion queue; peers that have one of the two ways, or both.
#[test]
fn peers_of_all_kinds_meet_in_one_region_and_one_queue() {
    let all = Side::new("auto");
    let peers = ["auto", "shm", "tcp"].map(Side::new);
    let listener = all.listen();
    let mut ends = Vec::new();
    for (peer, by) in peers.iter().zip(["shm", "shm", "tcp"]) {
        let (end, own) = peer.connect(&all, &listener);
        assert_eq!((way(&own), way(&end)), (by, by));
        ends.push((peer, end, own));
        // And the other way round.
        let theirs = peer.listen();
        let (own, end) = all.connect(peer, &theirs);
        assert_eq!((way(&own), way(&end)), (by, by));
        ends.push((peer, end, own));
    }
    let remote = RemoteRegion::from_bytes(&all.region.remote().to_bytes()).unwrap();
    for (at, (peer, end, own)) in ends.iter().enumerate() {
        let at = at as u64;
        peer.region.put(0, &(100 + at)).unwrap();
        end.write(peer.region.slice(..8), remote.at(64 + 8 * at), at).unwrap();
        assert_eq!(peer.done(), at);
        end.fetch_add(1_u64, peer.region.slice(8..16), remote.at(0), at).unwrap();
        assert_eq!(peer.done(), at);
        assert_eq!(peer.region.get::<u64>(8).unwrap(), at, "all count in one word");
        end.read(peer.region.slice(16..24), remote.at(64 + 8 * at), at).unwrap();
        assert_eq!(peer.done(), at);
        assert_eq!(peer.region.get::<u64>(16).unwrap(), 100 + at);
        // A message each way; that of the peer finds a sleeper.
        own.recv(all.region.slice(1024..1032), at).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(all.done(), at));
            thread::sleep(Duration::from_millis(20));
            end.send(peer.region.slice(16..24), at).unwrap();
        });
        assert_eq!(peer.done(), at);
        assert_eq!(all.region.get::<u64>(1024).unwrap(), 100 + at);
        own.write(all.region.slice(64..72), peer.region.remote().at(32), at).unwrap();
        assert_eq!(all.done(), at);
        all.settle(own, peer, end);
        assert_eq!(peer.region.get::<u64>(32).unwrap(), 100);
    }
    assert_eq!(all.region.get::<u64>(0).unwrap(), ends.len() as u64);

    // The end of the registration is one for all of them.
    all.region.close().unwrap();
    for (peer, end, _) in &ends {
        end.write(peer.region.slice(..8), remote.at(0), 1).unwrap();
        let refused = peer.queue.wait_one(Some(SOON)).unwrap();
        assert_eq!(refused.status, Status::RemoteAccess);
    }
}

#[test]
fn a_grant_is_for_one_connection_of_either_way() {
    let all = Side::new("auto");
    let listener = all.listen();
    let peers = ["shm", "tcp"].map(Side::new);
    let ends = [0, 1].map(|at: usize| peers[at].connect(&all, &listener));
    let secret = all
        .domain
        .alloc(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::GRANTS_ONLY)
        .unwrap();
    for at in [0, 1] {
        let grant = secret.grant(&ends[at].1, .., Access::REMOTE_WRITE).unwrap();
        let (peer, end) = (&peers[at], &ends[at].0);
        end.write(peer.region.slice(..8), grant.remote().at(0), 1).unwrap();
        assert_eq!(peer.done(), 1);
    }
    let grant = secret.grant(&ends[0].1, .., Access::REMOTE_WRITE).unwrap();
    ends[1].0.write(peers[1].region.slice(..8), grant.remote().at(0), 1).unwrap();
    let refused = peers[1].queue.wait_one(Some(SOON)).unwrap();
    assert_eq!(refused.status, Status::RemoteAccess, "it is the other's");
}

#[test]
fn requests_of_both_ways_take_turns() {
    let (all, shm, tcp) = (Side::new("auto"), Side::new("shm"), Side::new("tcp"));
    let take_turns = |time| {
        let listener = all.listen();
        let _ends = [&shm, &shm, &tcp].map(|peer| {
            let end = peer.endpoint();
            end.connect(listener.local_addr(), peer.domain.provider().as_bytes()).unwrap();
            end
        });
        // All of them are there then, unless others have the processors.
        thread::sleep(time);
        let two = [0, 1].map(|_| listener.accept(Some(SOON)).unwrap().private_data().to_vec());
        two.contains(&b"tcp".to_vec())
    };
    assert!((0..6).any(|more| take_turns(Duration::from_millis(100 << more))));
}

/// The kernel bounds how many wait sets are between a socket and an application's.
#[test]
fn an_application_may_watch_all_queues_that_drive() {
    let all = Side::new("auto");
    let _listener = all.listen();
    let queues: Vec<_> = (0..64).map(|_| all.domain.completion_queue(16).unwrap()).collect();
    for queue in &queues {
        assert_eq!(queue.arm_manual().unwrap(), Armed::Waiting);
    }
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    for queue in &queues {
        epoll::add(&set, queue, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
    }
}

#[test]
fn the_way_and_the_reason_are_said() {
    let (all, tcp) = (Side::new("auto"), Side::new("tcp"));
    let fresh = all.endpoint();
    assert_eq!(fresh.path(), None);
    let theirs = tcp.listen();
    let expected = all.domain.path_to(theirs.local_addr()).unwrap();
    let (own, _end) = all.connect(&tcp, &theirs);
    assert_eq!(own.path().unwrap(), expected);
    let said = expected.to_string();
    let at = theirs.local_addr();
    assert_eq!(
        said,
        format!(
            "by tcp:any; not shm: nothing listens at {at} by shared memory in this network namespace"
        )
    );
    assert!(own.dump().contains(&said), "{}", own.dump());
    assert!(all.domain.dump().contains("by tcp:any:"), "{}", all.domain.dump());
    assert_eq!(expected.capabilities, all.domain.info().capabilities);

    // Nothing listens at port 1, and nothing gets it meanwhile.
    let gone = "127.0.0.1:1".parse().unwrap();
    assert_eq!(all.domain.path_to(gone).unwrap().provider, "tcp");
    let listener = all.listen();
    let path = all.domain.path_to(listener.local_addr()).unwrap();
    assert_eq!(path.to_string(), "by shm:any; not tcp:any: shared memory is there");
    let more = path.capabilities - all.domain.info().capabilities;
    assert_eq!(more, Capabilities::PROGRESS_WHILE_STOPPED);
    assert!(listener.poll().is_none(), "it only looked");

    // For documentation (RFC 5737).
    let path = all.domain.path_to("192.0.2.1:7".parse().unwrap()).unwrap();
    assert_eq!(path.to_string(), "by tcp:any; not shm: tcp:any does not have 192.0.2.1");
    assert!(matches!(
        all.domain.path_to("0.0.0.0:7".parse().unwrap()),
        Err(Error::InvalidArgument(_))
    ));
    let path = tcp.domain.path_to(listener.local_addr()).unwrap();
    assert_eq!(path.to_string(), "by tcp:any");
}

#[test]
fn an_address_has_one_listener_of_either_way() {
    let all = Side::new("auto");
    let in_use = |listener: fabric::Result<_>| matches!(listener, Err(Error::AddrInUse(_)));
    // Another program may have the address as soon as it is free.
    let is_free_again = || {
        let listener = all.listen();
        let at = listener.local_addr();
        for other in ["auto", "tcp", "shm"] {
            assert!(in_use(Side::new(other).domain.listen(at)), "{other}");
        }
        drop(listener);
        let Ok(shm) = Side::new("shm").domain.listen(at) else { return false };
        assert!(in_use(all.domain.listen(at)));
        drop(shm);
        let Ok(_taken) = TcpListener::bind(at) else { return false };
        assert!(in_use(all.domain.listen(at)));
        true
    };
    assert!((0..5).any(|_| is_free_again()), "an address stays taken");
    // A listener for all addresses is found by each of them.
    let everywhere = all.domain.listen(SocketAddr::from(([0, 0, 0, 0], 0))).unwrap();
    let to = SocketAddr::from(([127, 0, 0, 1], everywhere.local_addr().port()));
    assert_eq!(all.domain.path_to(to).unwrap().provider, "shm");
}

#[test]
fn receives_that_were_posted_before_go_the_way_that_the_connection_does() {
    for (peer, by) in [("shm", "shm"), ("tcp", "tcp")] {
        let (all, peer) = (Side::new("auto"), Side::new(peer));
        let (listener, own) = (all.listen(), all.endpoint());
        for at in 0..3 {
            own.recv(all.region.slice(at * 8..at * 8 + 8), at as u64).unwrap();
        }
        let end = peer.endpoint();
        end.connect(listener.local_addr(), &[]).unwrap();
        listener.accept(Some(SOON)).unwrap().accept(&own, &[]).unwrap();
        end.wait_connected(Some(SOON)).unwrap();
        for at in 0..3_u64 {
            peer.region.put(0, &at).unwrap();
            end.send(peer.region.slice(..8), at).unwrap();
            assert_eq!((peer.done(), all.done()), (at, at));
            assert_eq!(all.region.get::<u64>(at as usize * 8).unwrap(), at);
        }
        assert_eq!(way(&own), by);
    }
}

/// Peers of both ways take from one queue what was posted first, and wait at it.
#[test]
fn peers_of_both_ways_share_a_receive_queue() {
    let all = Side::new("auto");
    let receives = all.domain.shared_receive_queue(8, &all.queue).unwrap();
    let listener = all.listen();
    let peers = ["shm", "tcp"].map(Side::new);
    let ends = [0, 1].map(|at: usize| {
        let (end, own) = (peers[at].endpoint(), all.domain.endpoint());
        let own = own.shared_receives(&receives).build(&all.queue).unwrap();
        end.connect(listener.local_addr(), &[]).unwrap();
        listener.accept(Some(SOON)).unwrap().accept(&own, &[]).unwrap();
        end.wait_connected(Some(SOON)).unwrap();
        assert_eq!(way(&own), ["shm", "tcp"][at]);
        (end, own)
    });
    let post = |at: usize| receives.recv(all.region.slice(8 * at..8 * at + 8), at as u64).unwrap();
    let send = |at: usize, what: u64| ends[at].0.inject(&what.to_ne_bytes(), what).unwrap();
    let taken = || {
        let done = all.queue.wait_one(Some(SOON)).unwrap();
        assert!(done.is_ok(), "{done:?}");
        let at = usize::from(done.endpoint != ends[0].1.id());
        assert_eq!(done.endpoint, ends[at].1.id());
        (done.context, at, all.region.get::<u64>(8 * done.context as usize).unwrap())
    };
    (0..4).for_each(post);
    for (turn, at) in [0, 1, 1, 0].into_iter().enumerate() {
        send(at, turn as u64);
        assert_eq!(peers[at].done(), turn as u64);
        assert_eq!(taken(), (turn as u64, at, turn as u64));
    }
    // Both wait for receives, which wake both.
    (0..2).for_each(|at| send(at, 10 + at as u64));
    std::thread::sleep(Duration::from_millis(20));
    assert!(all.queue.poll_one().unwrap().is_none());
    (4..6).for_each(post);
    let mut both = [taken(), taken()];
    both.sort_by_key(|&(_, at, _)| at);
    assert_eq!(both.map(|(_, at, what)| (at, what)), [(0, 10), (1, 11)]);
    assert_eq!((peers[0].done(), peers[1].done()), (10, 11));
    // What is left belongs to none of them when they are gone.
    post(6);
    drop(ends);
    drop(receives);
    let left = all.queue.wait_one(Some(SOON)).unwrap();
    assert_eq!((left.context, left.status), (6, Status::Canceled));
    all.region.close().unwrap();
}

#[test]
fn what_was_never_connected_ends_as_everywhere() {
    let all = Side::new("auto");
    let end = all.endpoint();
    assert!(matches!(end.inject(b"x", 1), Err(Error::NotConnected)));
    for context in [3, 4] {
        end.recv(Slices::none(), context).unwrap();
    }
    end.disconnect();
    for context in [3, 4] {
        let ended = all.queue.wait_one(Some(SOON)).unwrap();
        assert_eq!((ended.context, ended.status), (context, Status::Canceled));
        assert_eq!(ended.kind, OpKind::Recv);
    }
    let end = all.endpoint();
    end.recv(&all.region, 5).unwrap();
    drop(end);
    let ended = all.queue.wait_one(Some(SOON)).unwrap();
    assert_eq!((ended.context, ended.status), (5, Status::Canceled));
    all.region.close().unwrap();
}

/// An attempt that fails at once leaves the endpoint as it was, with its receives.
#[test]
fn an_endpoint_can_be_tried_again_the_other_way() {
    let (all, peer) = (Side::new("auto:lo"), Side::new("shm"));
    let end = all.endpoint();
    end.recv(all.region.slice(..8), 1).unwrap();
    // From the loopback interface the kernel sends nothing to another host, and says so at once. The address is for
    // documentation (RFC 5737).
    let nowhere = end.connect("192.0.2.1:7".parse().unwrap(), &[]);
    assert!(nowhere.is_err(), "the loopback interface has a way to another host");
    assert_eq!(end.path(), None);
    let theirs = peer.listen();
    end.connect(theirs.local_addr(), &[]).unwrap();
    let far = peer.endpoint();
    theirs.accept(Some(SOON)).unwrap().accept(&far, &[]).unwrap();
    far.wait_connected(Some(SOON)).unwrap();
    far.inject(b"8 bytes!", 2).unwrap();
    assert_eq!((peer.done(), all.done()), (2, 1));
    assert_eq!(all.region.to_vec(..8).unwrap(), b"8 bytes!");
    assert_eq!(way(&end), "shm");
}

/// Polls find what comes by both ways, in whatever order; so does one that sleeps on the descriptor.
#[test]
fn one_queue_serves_both_ways_in_turns() {
    const ROUNDS: u64 = 300;
    let all = Side::new("auto");
    let listener = all.listen();
    let peers = ["shm", "tcp"].map(Side::new);
    let ends = [0, 1].map(|at: usize| peers[at].connect(&all, &listener));
    for round in 0..ROUNDS {
        let at = usize::from(round % 7 == 0);
        ends[at].1.recv(Slices::none(), round).unwrap();
        ends[at].0.inject(&[], round).unwrap();
        let found = if round % 3 == 0 {
            all.done()
        } else {
            let deadline = Instant::now() + SOON;
            loop {
                if let Some(found) = all.queue.poll_one().unwrap() {
                    break found.context;
                }
                assert!(Instant::now() < deadline, "round {round}");
            }
        };
        assert_eq!((found, peers[at].done()), (round, round));
    }
    assert_eq!(all.queue.arm().unwrap(), Armed::Waiting);
    for at in [1, 0, 1] {
        ends[at].1.recv(Slices::none(), 1).unwrap();
        ends[at].0.inject(&[], 1).unwrap();
        assert_eq!((all.done(), peers[at].done()), (1, 1));
    }
    let counted = all.domain.counters().provider;
    assert!(counted.system_calls > 0, "of both ways: {counted:?}");
    assert_eq!(LEN, all.region.len());
}

/// Each poll takes one completion, and the near queue always has one: the far queue has its turns all the same.
#[test]
fn one_that_always_finds_something_near_hears_its_far_peer() {
    const POLLS: u32 = 10_000;
    let all = Side::new("auto");
    let listener = all.listen();
    let peers = ["shm", "tcp"].map(Side::new);
    let ends = [0, 1].map(|at: usize| peers[at].connect(&all, &listener));
    ends[1].1.recv(all.region.slice(..8), 7).unwrap();
    let (near, to) = (&ends[0].1, peers[0].region.remote());
    // A write, and polls until one finds something: the first, unless another thread is in the connection just then.
    let poll = || {
        near.write(all.region.slice(8..16), to.at(8), 1).unwrap();
        loop {
            if let Some(found) = all.queue.poll_one().unwrap() {
                break found.context;
            }
        }
    };
    (0..POLLS).for_each(|_| assert_eq!(poll(), 1));
    ends[1].0.inject(b"8 bytes!", 2).unwrap();
    // Its thread needs a processor, too.
    let begun = Instant::now();
    while poll() != 7 {
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing came");
    }
}
