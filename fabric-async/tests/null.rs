//! The layer over a provider without a wire, also under Miri: who owns which memory, at every turn an operation can take.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

#[path = "../../tests/null/mod.rs"]
mod null;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use fabric::{Access, Catalog, Choice, DisconnectReason, Event, Hints, RemoteRegion, Status};
use fabric_async::{Buffer, Connection, Error, Node, NodeBuilder, WaitStrategy, block_on};
use null::{Control, FILL, Link, NullProvider};

const LONG: Duration = Duration::from_secs(30);

struct Rig {
    conn: Connection,
    link: Arc<Link>,
    control: Arc<Control>,
    node: Node,
}

fn remote() -> RemoteRegion {
    RemoteRegion::from_parts(1, 0, 1 << 20, Access::REMOTE)
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[track_caller]
fn ready<F: Future + Unpin>(mut future: F) -> F::Output {
    // The node's thread may be taking the completion just now.
    let mut done = None;
    eventually("it is ready", || match poll(&mut future) {
        Poll::Ready(value) => done.replace(value).is_none(),
        Poll::Pending => false,
    });
    done.unwrap()
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::yield_now();
    }
}

impl Rig {
    fn new() -> Self {
        Rig::over(NullProvider::new(), |builder| builder.leases(false))
    }

    fn over(provider: NullProvider, settings: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Self {
        let control = provider.control();
        let catalog = Catalog::empty().add(provider).unwrap();
        let domain = catalog.open_with(&Choice::Auto, &Hints::default()).unwrap();
        let builder = Node::builder().receives(2).max_message(256).send_depth(4);
        let builder = settings(builder.wait(WaitStrategy::Blocking));
        let node = builder.build_on(&domain).unwrap();
        let conn = block_on(node.connect("127.0.0.1:1")).unwrap();
        let link = control.link(conn.id());
        Rig { conn, link, control, node }
    }

    fn filled(&self, len: usize, byte: u8) -> Buffer {
        let mut buffer = self.conn.alloc(len).unwrap();
        buffer.fill(byte);
        buffer
    }

    /// So many buffers are out, beside the receives that the connection keeps posted; perhaps as soon as the node's
    /// thread is done with what it takes.
    #[track_caller]
    fn expect_in_use(&self, count: usize) {
        let what = format!("{count} buffers are out");
        eventually(&what, || self.node.pool().metrics().in_use == count + 2);
    }
}

#[test]
fn operations_take_buffers_and_give_them_back() {
    let rig = Rig::new();
    let buffer = ready(rig.conn.write(rig.filled(100, 1), remote().at(0))).unwrap();
    assert_eq!(*buffer, [1; 100]);
    let buffer = ready(rig.conn.read(buffer, remote().at(0))).unwrap();
    assert_eq!(*buffer, [FILL; 100]);
    let buffer = ready(rig.conn.send(buffer.slice(10..20))).unwrap();
    assert_eq!(buffer.len(), 100);
    assert_eq!(
        ready(rig.conn.fetch_add(remote().at(8), 1)).unwrap(),
        u64::from_ne_bytes([FILL; 8])
    );
    assert_eq!(ready(rig.conn.fetch(fabric::AtomicOp::Min, remote().at(8), 1u8)).unwrap(), FILL);
    let parts =
        ready(rig.conn.read(vec![rig.filled(3, 0), Buffer::empty(), buffer], remote().at(0)));
    let parts = parts.unwrap();
    assert_eq!((&*parts[0], parts[1].len(), &*parts[2]), (&[FILL; 3][..], 0, &[FILL; 100][..]));
    drop(parts);
    rig.expect_in_use(0);
}

#[test]
fn who_waits_for_peers_hears_that_the_device_is_lost() {
    let rig = Rig::new();
    let listener = block_on(rig.node.listen("127.0.0.1:0")).unwrap();
    let lost = |result| matches!(result, Err(Error::Fabric(fabric::Error::DeviceLost)));
    std::thread::scope(|scope| {
        let waiters = [(); 2].map(|()| scope.spawn(|| block_on(listener.accept()).map(drop)));
        std::thread::sleep(Duration::from_millis(20));
        rig.link.report(Event::DeviceLost);
        for waiter in waiters {
            assert!(lost(waiter.join().unwrap()));
        }
    });
    assert!(lost(ready(listener.request()).map(drop)));
}

#[test]
fn a_future_dropped_in_flight_leaves_its_memory_to_the_operation() {
    let rig = Rig::new();
    rig.link.hold();
    let mut read = rig.conn.read(rig.filled(64, 7), remote().at(0));
    assert!(poll(&mut read).is_pending());
    drop(read);
    rig.expect_in_use(1);
    // Whatever is allocated now is other memory.
    let others: Vec<_> = (0..64).map(|byte| rig.filled(64, byte)).collect();
    rig.link.release(1);
    let mut other = rig.conn.read(rig.filled(1, 0), remote().at(0));
    assert!(poll(&mut other).is_pending());
    for (byte, buffer) in others.iter().enumerate() {
        assert_eq!(**buffer, [byte as u8; 64]);
    }
    drop(others);
    rig.expect_in_use(1);
    rig.link.release(1);
    assert_eq!(*ready(other).unwrap(), [FILL]);
    rig.expect_in_use(0);
}

#[test]
fn a_future_forgotten_in_flight_keeps_its_memory_for_ever() {
    let rig = Rig::new();
    rig.link.hold();
    let mut read = rig.conn.read(rig.filled(64, 7), remote().at(0));
    assert!(poll(&mut read).is_pending());
    std::mem::forget(read);
    rig.link.release(1);
    let mut other = rig.conn.send(Buffer::empty());
    assert!(poll(&mut other).is_pending());
    rig.link.release(1);
    ready(other).unwrap();
    rig.expect_in_use(1);
    assert_eq!(rig.node.operations(), 1 + 2);
}

#[test]
fn failures_give_the_buffer_back_and_tell_the_reason() {
    let rig = Rig::new();
    rig.link.hold();
    let mut first = rig.conn.write(rig.filled(8, 1), remote().at(0));
    let mut second = rig.conn.write(rig.filled(8, 2), remote().at(8));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    rig.link.fail_next(Status::RemoteAccess);
    rig.link.release(2);
    let failed = ready(first).unwrap_err();
    assert!(matches!(failed.error, Error::RemoteAccess));
    assert_eq!(*failed.buffer, [1; 8]);
    let failed = ready(second).unwrap_err();
    let reason = DisconnectReason::OperationFailed;
    assert!(matches!(failed.error, Error::Disconnected(r) if r == reason), "{failed}");
    assert_eq!(*failed.buffer, [2; 8]);
    assert!(matches!(ready(rig.conn.recv()), Err(Error::Disconnected(r)) if r == reason));
}

#[test]
fn messages_and_notifications_reach_whom_they_are_for() {
    let rig = Rig::new();
    let mut waiting = rig.conn.recv();
    assert!(poll(&mut waiting).is_pending());
    // Dropped while it waits: the message goes to the next.
    drop(waiting);
    assert!(rig.link.bring(5, Some(9)));
    let message = ready(rig.conn.recv()).unwrap();
    assert_eq!((&*message, message.immediate), (&[FILL; 5][..], Some(9)));
    let bytes = bytes::Bytes::from(message.buffer);
    let part = bytes.slice(1..3);
    drop(bytes);
    assert_eq!(part[..], [FILL; 2]);
    drop(part);
    assert!(poll(&mut rig.conn.notified()).is_pending());
    rig.expect_in_use(0);
}

#[test]
fn dropping_the_connection_frees_what_is_in_flight() {
    let rig = Rig::new();
    rig.link.hold();
    let mut read = rig.conn.read(rig.filled(64, 7), remote().at(0));
    assert!(poll(&mut read).is_pending());
    let mut waits = rig.conn.alloc_wait(64);
    assert!(poll(&mut waits).is_ready());
    drop(read);
    let Rig { conn, link, control, node } = rig;
    drop((conn, link));
    eventually("all memory is back", || node.pool().metrics().in_use == 0);
    eventually("no operation is left", || node.operations() == 0);
    let registered = control.registrations();
    assert!(registered > 0);
    node.pool().trim();
    assert_eq!(control.registrations(), 0);
    drop(node);
}

#[test]
fn a_full_queue_serves_in_turn_and_who_leaves_makes_room() {
    let rig = Rig::new();
    rig.link.hold();
    let write = || rig.conn.write(rig.filled(8, 1), remote().at(0));
    let mut flying: Vec<_> = (0..4).map(|_| write()).collect();
    assert!(flying.iter_mut().all(|one| poll(one).is_pending()));
    let (mut fifth, mut sixth) = (write(), write());
    assert!(poll(&mut fifth).is_pending() && poll(&mut sixth).is_pending());
    rig.link.release(1);
    assert!(poll(&mut sixth).is_pending());
    assert_eq!(rig.link.posted().0, 4);
    drop(fifth);
    // The node's thread may be making the room just now.
    eventually("it has its turn", || {
        assert!(poll(&mut sixth).is_pending());
        rig.link.posted().0 == 5
    });
    rig.link.release(8);
    assert!(flying.into_iter().all(|one| ready(one).is_ok()));
    assert!(ready(sixth).is_ok());
    rig.expect_in_use(0);
}

#[test]
fn buffers_are_plain_memory() {
    let rig = Rig::new();
    let mut buffer = rig.conn.alloc(100).unwrap();
    buffer.fill(0);
    buffer.view_mut::<[u32; 3]>().unwrap()[1] = 7;
    assert_eq!(buffer.view::<[u32; 3]>().unwrap(), &[0, 7, 0]);
    assert!(buffer.view::<[u64; 13]>().is_err());
    assert!(buffer.view_all::<u64>().is_err());
    buffer.resize(128).unwrap();
    assert!(buffer.resize(129).is_err());
    assert_eq!(buffer.view_all_mut::<u64>().unwrap().len(), 16);
    let shared = buffer.share();
    let clone = shared.clone();
    rig.link.hold();
    let mut send = rig.conn.send(shared.clone());
    assert!(poll(&mut send).is_pending());
    // Read while a device reads.
    assert_eq!(clone[4], 7);
    let shared = shared.try_into_buffer().unwrap_err();
    rig.link.release(1);
    drop(ready(send).unwrap());
    drop(clone);
    assert_eq!(shared.try_into_buffer().unwrap().len(), 128);
}

#[test]
fn a_connection_that_ends_while_memory_is_lent_gives_it_back() {
    // The pool's own memory stays with the node.
    let Rig { conn, control, node: _node, .. } = Rig::over(NullProvider::new(), |builder| builder);
    let mut buffer = conn.alloc(64).unwrap();
    buffer.fill(7);
    let before = control.registrations();
    // A registration that takes its time keeps nothing else waiting, the end of the connection neither.
    let other = conn.clone();
    control.on_register(move || {
        assert!(other.local_lease(1).is_none());
        other.close();
        let refused = block_on(other.request_lease(8, LONG));
        assert!(matches!(refused, Err(Error::Disconnected(_))), "{refused:?}");
    });
    let (say, hear) = std::sync::mpsc::channel();
    std::thread::spawn(move || say.send(conn.lend(buffer, LONG, Access::REMOTE)));
    let failed = hear.recv_timeout(LONG).expect("lending does not block").unwrap_err();
    assert!(matches!(failed.error, Error::Disconnected(DisconnectReason::Local)), "{failed}");
    assert_eq!(*failed.buffer, [7; 64]);
    assert_eq!(control.registrations(), before);
}

#[test]
fn memory_that_a_device_does_not_let_go_of_stays_lent() {
    let rig = Rig::over(NullProvider::new(), |builder| builder);
    let lent = rig.conn.lend(rig.filled(64, 7), LONG, Access::REMOTE).unwrap();
    rig.control.hold_on(true);
    let error = lent.take().unwrap_err().to_string();
    assert_eq!(error, "deregister: the system call failed: resource busy [null]");
    assert!(lent.is_active());
    assert_eq!(lent.get::<u8>(63).unwrap(), 7);
    rig.control.hold_on(false);
    assert_eq!(*lent.take().unwrap(), [7; 64]);
}

#[test]
fn a_node_with_as_many_leased_connections_as_it_can_have_says_so() {
    // Room for two endpoints of leases.
    let provider = NullProvider::new().edit(|info| info.limits.cq_capacity = 64);
    let rig = Rig::over(provider, |builder| builder);
    let connect = || block_on(rig.node.connect("127.0.0.1:1"));
    let _second = connect().unwrap();
    let error = connect().unwrap_err().to_string();
    assert_eq!(
        error,
        "make connection: a node carries leases on at most 2 connections here: NodeBuilder::leases(false) takes none, \
         or make another node"
    );
}

/// What a device does not stop keeps its memory, also when the node has ended: receives, and those of leases.
#[test]
fn receives_that_never_end_keep_their_memory() {
    for (leases, receives) in [(false, 2), (true, 2 + 16)] {
        for goes_on in [false, true] {
            let rig = Rig::over(NullProvider::new(), |builder| builder.leases(leases));
            let Rig { conn, link, control, node } = rig;
            let pool = node.pool().clone();
            assert_eq!(pool.metrics().in_use, receives);
            control.go_on(goes_on);
            drop((conn, link, node));
            let expected = if goes_on { receives } else { 0 };
            // The node's thread may be the last to let go of the node.
            let deadline = Instant::now() + LONG;
            while pool.metrics().leaks < expected as u64 || pool.metrics().in_use > expected {
                assert!(Instant::now() < deadline, "{:?}", pool.metrics());
                std::thread::yield_now();
            }
            assert_eq!((pool.metrics().in_use, pool.metrics().leaks), (expected, expected as u64));
        }
    }
}

#[test]
fn a_grant_is_waited_for_or_given_up() {
    let rig = Rig::new();
    let region = rig.node.domain().alloc(64, Access::ALL).unwrap();
    let grant = ready(Box::pin(rig.conn.grant(&region, 8..24, Access::REMOTE_READ))).unwrap();
    assert_eq!((grant.remote().len(), rig.control.grants()), (16, 1));
    drop(grant);
    assert_eq!(rig.control.grants(), 0);

    // Behind what was posted before it; the node's thread has the future polled again.
    rig.control.stay_shut(true);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(rig.conn.grant(&region, .., Access::REMOTE)));
        while rig.control.grants() == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(5));
        let is_early = waiting.is_finished();
        rig.control.stay_shut(false);
        assert!(!is_early);
        drop(waiting.join().unwrap().unwrap());
    });
    assert_eq!(rig.control.grants(), 0);

    // Given up while it waits, it opens nothing, and its region is free once it can be ended.
    rig.control.stay_shut(true);
    let mut given_up = Box::pin(rig.conn.grant(&region, .., Access::REMOTE));
    assert!(poll(&mut given_up).is_pending());
    drop(given_up);
    assert!(matches!(region.close(), Err(fabric::Error::Busy)));
    rig.control.stay_shut(false);
    region.close().unwrap();
    assert_eq!(rig.control.grants(), 0);

    // Forgotten, it keeps what it has.
    let region = rig.node.domain().alloc(64, Access::ALL).unwrap();
    rig.control.stay_shut(true);
    let mut held = Box::pin(rig.conn.grant(&region, .., Access::REMOTE));
    assert!(poll(&mut held).is_pending());
    rig.control.stay_shut(false);
    assert!(matches!(region.close(), Err(fabric::Error::Busy)));
    drop(ready(held).unwrap());
    region.close().unwrap();
}

#[test]
fn a_connection_that_has_ended_grants_nothing() {
    let rig = Rig::new();
    let region = rig.node.domain().alloc(64, Access::ALL).unwrap();
    rig.conn.close();
    let refused = ready(Box::pin(rig.conn.grant(&region, .., Access::REMOTE)));
    assert!(matches!(refused, Err(Error::Disconnected(DisconnectReason::Local))), "{refused:?}");
    region.close().unwrap();
}
