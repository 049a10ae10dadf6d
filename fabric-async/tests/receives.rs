//! What happens to receives in the middle of posting more, over a provider without a wire: those who wait hear of it.

#![cfg(not(miri))] // Miri has no time for memory of that size
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

#[path = "../../tests/null/mod.rs"]
mod null;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use fabric::{Catalog, Choice, DisconnectReason, Hints};
use fabric_async::{Connection, Error, Node, NodeBuilder, WaitStrategy, block_on};
use null::{Control, Link, NullProvider};

/// A receive of this size has a registration of its own, which a test can have something happen in.
const LARGE: usize = 300_000;
const BLOCK: usize = 320 << 10;

const LONG: Duration = Duration::from_secs(30);

struct Rig {
    conn: Connection,
    link: Arc<Link>,
    control: Arc<Control>,
    _node: Node,
}

impl Rig {
    fn new(settings: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Self {
        let provider = NullProvider::new().edit(|info| info.limits.message = 1 << 20);
        let control = provider.control();
        let catalog = Catalog::empty().add(provider).unwrap();
        let domain = catalog.open_with(&Choice::Auto, &Hints::default()).unwrap();
        let builder = Node::builder().leases(false).max_message(LARGE).wait(WaitStrategy::Blocking);
        let node = settings(builder).build_on(&domain).unwrap();
        let conn = block_on(node.connect("127.0.0.1:1")).unwrap();
        let link = control.link(conn.id());
        Rig { conn, link, control, _node: node }
    }
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn poll<F: Future + Unpin>(future: &mut F, count: &Arc<Count>) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(&Waker::from(count.clone())))
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_over<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Disconnected(_)))
}

/// The connection ends while a receive is on its way, which seems to be one that reports that, and is refused then.
#[test]
fn a_refused_receive_wakes_those_who_wait_for_the_end() {
    let Rig { conn, link, control, .. } = Rig::new(|builder| builder.receives(1));
    let count = Arc::<Count>::default();
    let mut notified = conn.notified();
    assert!(poll(&mut notified, &count).is_pending());
    // The message is taken, and its receive replaced.
    assert!(link.bring(10, None));
    let (say, hear) = std::sync::mpsc::channel();
    let (other, counted) = (conn.clone(), count.clone());
    control.on_register(move || {
        link.lose(DisconnectReason::Remote);
        eventually("it hears of the end", || other.end().is_some() && counted.get() > 0);
        let is_pending = poll(&mut notified, &counted).is_pending();
        say.send((is_pending, counted.get(), notified)).unwrap();
    });
    assert_eq!(block_on(conn.recv()).unwrap().len(), 10);
    let (is_pending, before, mut notified) = hear.recv_timeout(LONG).expect("a receive was posted");
    assert!(is_pending, "a receive seems to be there");
    eventually("it is woken", || count.get() > before);
    assert!(matches!(poll(&mut notified, &count), Poll::Ready(end) if is_over(&end)));
}

/// A message comes, and then the end, while the future that is asked for it posts receives.
#[test]
fn a_message_goes_before_the_end_that_comes_with_it() {
    let Rig { conn, link, control, .. } = Rig::new(|builder| builder.receives(2));
    // The first one's receive is not replaced: one is left, so the next future posts another.
    assert!(link.bring(1, None));
    link.refuse_next(fabric::Error::Again);
    let first = block_on(conn.recv()).unwrap();
    let _stored = conn.alloc(LARGE).unwrap();
    let (other, say_link) = (conn.clone(), link.clone());
    control.on_register(move || {
        assert!(say_link.bring(5, None));
        // Which takes what comes, whatever it is.
        assert!(poll(&mut other.notified(), &Arc::default()).is_pending());
        say_link.lose(DisconnectReason::Remote);
        eventually("it hears of the end", || other.end().is_some());
    });
    let mut next = conn.recv();
    assert_eq!(block_on(&mut next).unwrap().len(), 5);
    assert!(is_over(&block_on(conn.recv())));
    drop(first);
}

/// One that waits for notifications posts receives as soon as there is memory, though messages are there that are not asked for.
#[test]
fn unread_messages_do_not_keep_receives_from_being_posted_later() {
    let Rig { conn, link, .. } = Rig::new(|builder| builder.receives(2).pool_bytes(4 * BLOCK));
    assert!(link.bring(1, None) && link.bring(2, None));
    assert!(poll(&mut conn.notified(), &Arc::default()).is_pending());
    let others = [(); 2].map(|()| conn.alloc(LARGE).unwrap());
    let first = block_on(conn.recv()).unwrap();
    assert_eq!(first.len(), 1);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| block_on(conn.notified()));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!link.bring(3, None), "there is no memory for a receive");
        drop(others);
        let came = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually("a receive is posted", || link.bring(3, None));
        }));
        conn.close();
        assert!(is_over(&waits.join().unwrap()));
        came.unwrap();
    });
}
