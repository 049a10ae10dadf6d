//! Futures and buffers that are forgotten, runtimes that end, tasks that panic: everything stays sound, and everybody
//! else goes on.

#![cfg(not(miri))] // Miri has no sockets that sleep
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::{eventually, exposed, node, pair};
use fabric_async::{Node, WaitStrategy, block_on};
use tokio::runtime::{Builder, Runtime};

fn runtime(threads: usize) -> Runtime {
    match threads {
        0 => Builder::new_current_thread().enable_all().build().unwrap(),
        _ => Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap(),
    }
}

#[test]
fn forgotten_futures_and_buffers_only_leak() {
    let node = node(|b| b);
    block_on(async {
        let (a, b) = pair(&node).await;
        let (region, remote) = exposed(&node, 4096);
        let mut cx = Context::from_waker(Waker::noop());
        let mut buffer = a.alloc(64).unwrap();
        buffer.fill(1);
        let mut write = Box::pin(a.write(buffer, remote.at(0)));
        let posted = write.as_mut().poll(&mut cx).is_pending();
        std::mem::forget(write);
        std::mem::forget(a.alloc(64).unwrap());
        std::mem::forget(b.recv());
        let mut waiting = Box::pin(b.recv());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        drop(waiting);
        // The connection works, and the forgotten write has happened.
        a.send(a.alloc(5).unwrap()).await.unwrap();
        b.recv().await.unwrap();
        if posted {
            assert_eq!(region.to_vec(..64).unwrap(), [1; 64]);
        }
        assert!(node.pool().metrics().in_use >= 2);
    });
    // A forgotten future keeps its connection, and so the node; that ends here without a hang.
    drop(node);
}

#[test]
fn a_runtime_that_ends_leaves_the_others_their_wakes() {
    for threads in [0, 2] {
        let node = node(|b| b.wait(WaitStrategy::Blocking));
        let (a, b) = block_on(pair(&node));
        let first = runtime(threads);
        // Operations in flight, and a watcher of the queue, in a runtime that goes.
        let (c, d) = (a.clone(), b.clone());
        first.spawn(async move { drop(c.recv().await) });
        for _ in 0..200 {
            let c = a.clone();
            first.spawn(async move { drop(c.send(c.alloc(64).unwrap()).await) });
        }
        if threads == 0 {
            first.block_on(async { tokio::time::sleep(Duration::from_millis(50)).await });
        } else {
            std::thread::sleep(Duration::from_millis(50));
        }
        // Somebody sleeps in another runtime while the first ends.
        let second = runtime(0);
        let third = std::thread::spawn({
            let d = d.clone();
            move || {
                second.block_on(async {
                    for _ in 0..201 {
                        d.recv().await.unwrap();
                    }
                })
            }
        });
        std::thread::sleep(Duration::from_millis(50));
        first.shutdown_timeout(Duration::from_secs(5));
        // As many as the dead runtime did not send.
        let (c, finished) = (a.clone(), std::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !finished.load(std::sync::atomic::Ordering::Relaxed) {
                    let message = c.alloc(64).unwrap();
                    let sent = block_on(async {
                        let mut send = Box::pin(c.send(message));
                        std::future::poll_fn(|cx| match send.as_mut().poll(cx) {
                            Poll::Ready(done) => Poll::Ready(done.is_ok()),
                            Poll::Pending => Poll::Ready(true),
                        })
                        .await
                    });
                    assert!(sent);
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            third.join().unwrap();
            finished.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        drop((a, b, c, d));
        eventually("all buffers are back", || node.pool().metrics().in_use == 0);
    }
}

#[test]
fn a_runtime_without_io_is_served_by_the_nodes_thread() {
    let node = node(|b| b.wait(WaitStrategy::Blocking));
    let bare = Builder::new_current_thread().build().unwrap();
    bare.block_on(async {
        let (a, b) = pair(&node).await;
        let echo = tokio::spawn(async move {
            while let Ok(message) = b.recv().await {
                b.send(message.buffer).await.unwrap();
            }
        });
        for _ in 0..20 {
            a.send(a.alloc(10).unwrap()).await.unwrap();
            assert_eq!(a.recv().await.unwrap().len(), 10);
        }
        a.close();
        echo.await.unwrap();
    });
}

/// Messages to and fro, each waited for asleep.
async fn some_messages(node: &Node) {
    let (a, b) = pair(node).await;
    for _ in 0..20 {
        let both = futures_util::future::join(a.send(a.alloc(10).unwrap()), b.recv()).await;
        assert_eq!((both.0.unwrap().len(), both.1.unwrap().len()), (10, 10));
    }
}

/// Some executor that is not this crate's.
fn other_block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        std::thread::park();
    }
}

/// A thread in the context of a runtime that is not driven sleeps, and is woken.
#[test]
fn a_runtime_that_nobody_drives_holds_up_nobody() {
    fn once(what: &'static str, sleep: fn(Node)) -> Duration {
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let idle = Builder::new_current_thread().enable_all().build().unwrap();
            let _context = idle.enter();
            let start = std::time::Instant::now();
            sleep(node(|b| b.wait(WaitStrategy::Blocking)));
            sender.send(start.elapsed()).unwrap();
        });
        let took = receiver.recv_timeout(Duration::from_secs(60));
        took.unwrap_or_else(|_| panic!("{what}: it is not woken"))
    }
    fn in_a_thread(what: &'static str, sleep: fn(Node)) {
        // Some milliseconds until the node's thread takes over, once; others may have the processors now and then.
        let mut took = (0..10).map(|_| once(what, sleep));
        assert!(took.any(|took| took < Duration::from_secs(2)), "{what}: it is woken late");
    }
    in_a_thread("block_on", |node| block_on(some_messages(&node)));
    in_a_thread("another executor", |node| other_block_on(some_messages(&node)));
    // One that was driven, and is no more.
    in_a_thread("driven before", |node| {
        let once = Builder::new_current_thread().enable_all().build().unwrap();
        once.block_on(some_messages(&node));
        let _context = once.enter();
        other_block_on(some_messages(&node));
        drop(_context);
        // And is again.
        once.block_on(some_messages(&node));
    });
}

#[test]
fn a_runtime_said_to_have_no_io_is_not_asked_for_it() {
    const CHILD: &str = "FABRIC_ASYNC_TEST_NO_IO";
    if std::env::var_os(CHILD).is_some() {
        let bare = Builder::new_current_thread().build().unwrap();
        let node = node(|b| b.wait(WaitStrategy::Blocking).tokio_io(false));
        return bare.block_on(some_messages(&node));
    }
    alone("a_runtime_said_to_have_no_io_is_not_asked_for_it", CHILD);
}

/// Runs a test of this program in a process of its own, with this variable; nothing in it panics.
fn alone(test: &str, variable: &str) {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(variable, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && !said.contains("panicked"), "{said}");
}

#[test]
fn a_task_that_panics_harms_nobody() {
    let node = node(|b| b);
    runtime(2).block_on(async {
        let (a, b) = pair(&node).await;
        let (_region, remote) = exposed(&node, 4096);
        for round in 0..50 {
            let c = a.clone();
            let task = tokio::spawn(async move {
                let write = c.write(c.alloc(4096).unwrap(), remote.at(0));
                let mut write = Box::pin(write);
                let first = std::future::poll_fn(|cx| Poll::Ready(write.as_mut().poll(cx))).await;
                assert!(first.is_ready() && round > 1000, "on purpose");
            });
            assert!(task.await.unwrap_err().is_panic());
        }
        a.send(a.alloc(5).unwrap()).await.unwrap();
        assert_eq!(b.recv().await.unwrap().len(), 5);
        drop((a, b));
        eventually("all buffers are back", || node.pool().metrics().in_use == 0);
    });
}

#[test]
fn dropping_everything_ends_the_nodes_thread() {
    // Other tests of this program come and go.
    const CHILD: &str = "FABRIC_ASYNC_TEST_THREADS";
    if std::env::var_os(CHILD).is_none() {
        return alone("dropping_everything_ends_the_nodes_thread", CHILD);
    }
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    for _ in 0..3 {
        let node = node(|b| b);
        let (a, b) = block_on(pair(&node));
        drop(node);
        block_on(a.send(a.alloc(1).unwrap())).unwrap();
        drop((a, b));
    }
    eventually("the threads end", || threads() <= before);
}

#[test]
fn connections_in_every_thread_use_one_node() {
    let node = node(|b| b.send_depth(64));
    let (region, remote) = exposed(&node, 4096);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                runtime(0).block_on(async {
                    let (a, b) = pair(&node).await;
                    let echo = tokio::spawn(async move {
                        while let Ok(message) = b.recv().await {
                            b.send(message.buffer).await.unwrap();
                        }
                    });
                    for round in 0..500 {
                        a.fetch_add(remote.at(0), 1).await.unwrap();
                        a.send(a.alloc(round).unwrap()).await.unwrap();
                        assert_eq!(a.recv().await.unwrap().len(), round);
                    }
                    a.close();
                    echo.await.unwrap();
                });
            });
        }
    });
    assert_eq!(region.get::<u64>(0).unwrap(), 2000);
}
