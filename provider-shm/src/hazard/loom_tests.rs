//! Every interleaving of a peer that goes to a window and a side that closes it, or the connection, and takes the memory then
//! (`scripts/loom`). Both at once would be a data race, which loom reports.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::*;

const WINDOW: u32 = 1;

#[derive(Default)]
struct Shared {
    hazard: Hazard,
    /// The window's key.
    key: AtomicU32,
    memory: UnsafeCell<u32>,
}

/// A peer that writes, if it may.
fn visit(shared: &Shared) {
    if shared.hazard.enter(WINDOW).is_some() && shared.key.load(Ordering::Acquire) != 0 {
        shared.memory.with_mut(|memory| {
            // SAFETY: loom reports it if this is not so.
            unsafe { *memory += 1 }
        });
    }
    shared.hazard.leave();
}

fn model(close: impl Fn(&Shared) + Send + Sync + 'static) {
    loom::model(move || {
        let shared = Arc::new(Shared::default());
        shared.key.store(5, Ordering::Relaxed);
        shared.hazard.open(9);
        let peer = {
            let shared = shared.clone();
            thread::spawn(move || visit(&shared))
        };
        close(&shared);
        // SAFETY: as in `visit`.
        let written = shared.memory.with(|memory| unsafe { *memory });
        peer.join().unwrap();
        // SAFETY: as in `visit`.
        assert_eq!(shared.memory.with(|memory| unsafe { *memory }), written, "written later");
    });
}

#[test]
fn loom_tests_a_closed_window_is_reached_no_more() {
    model(|shared| {
        shared.key.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while shared.hazard.is_at(WINDOW) {
            thread::yield_now();
        }
    });
}

#[test]
fn loom_tests_a_closed_connection_reaches_nothing_more() {
    model(|shared| {
        shared.hazard.close();
        while shared.hazard.is_anywhere() {
            thread::yield_now();
        }
    });
}
