//! Log lines come out in order, with none of the library's locks held, whatever the logger does.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fabric_util::log_line;
use fabric_util::logging::{CAPACITY, flush};
use fabric_util::sync::{self, Mutex};

/// Keeps lines; panics and blocks when it is asked to.
struct Logger {
    lines: Mutex<Vec<String>>,
    blocks: AtomicBool,
    waits: AtomicBool,
}

static LOGGER: Logger = Logger {
    lines: Mutex::new(Vec::new()),
    blocks: AtomicBool::new(false),
    waits: AtomicBool::new(false),
};

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        sync::assert_none_held("a logger runs");
        while self.blocks.load(Ordering::Acquire) {
            self.waits.store(true, Ordering::Release);
            std::thread::sleep(Duration::from_millis(1));
        }
        let line = record.args().to_string();
        assert_ne!(line, "panic", "as a user's logger might");
        assert!(!flush(Duration::from_secs(60)), "it would wait for itself");
        self.lines.lock().push(format!("{} {line}", record.level()));
    }
    fn flush(&self) {}
}

#[test]
#[cfg_attr(miri, ignore = "the thread that logs is never joined, which Miri takes for a leak")]
fn lines_wait_for_the_logger_and_no_thread_for_it() {
    const LONG: Duration = Duration::from_secs(60);
    log::set_logger(&LOGGER).unwrap();
    log_line!(Error, "before a level is set, no logger wants it");
    log::set_max_level(log::LevelFilter::Info);
    log_line!(Debug, "below the level");
    let lock = sync::Mutex::new(());
    let held = lock.lock();
    log_line!(Info, "under a lock");
    log_line!(Warn, "panic");
    log_line!(Warn, "{} lines", 3);
    drop(held);
    assert!(flush(LONG));
    assert_eq!(*LOGGER.lines.lock(), ["INFO under a lock", "WARN 3 lines"]);

    LOGGER.blocks.store(true, Ordering::Release);
    let more = 50;
    log_line!(Info, "line 0");
    while !LOGGER.waits.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    for i in 1..=CAPACITY + more {
        log_line!(Info, "line {i}");
    }
    assert!(!flush(Duration::from_millis(10)), "the logger blocks");
    LOGGER.lines.lock().clear();
    LOGGER.blocks.store(false, Ordering::Release);
    assert!(flush(LONG));
    log_line!(Info, "at last");
    assert!(flush(LONG));
    let lines = LOGGER.lines.lock();
    assert_eq!(lines.len(), CAPACITY + 2);
    assert_eq!(lines[CAPACITY], format!("INFO line {CAPACITY}"));
    assert_eq!(
        lines[CAPACITY + 1],
        format!("INFO at last ({more} lines before this one had no room)")
    );
}
