//! The library's log lines, on their way to the crate `log`.
//!
//! A logger is user code, and lines come up under locks and on threads that others wait for. So a line is put in a
//! bounded queue, and a thread of its own, which holds nothing and has no waiters, hands it to the logger. A
//! logger that panics loses its line; one that blocks loses those that the queue has no room for, which are counted.

use std::fmt;
use std::time::Duration;

/// Lines that wait for the logger at most.
pub const CAPACITY: usize = 256;

/// Logs a line: `log_line!(Warn, "{} lines", 7)`. The level is one of `log::Level`. Arguments are formatted at once,
/// perhaps under locks, so their `Display` must not be a user's.
#[macro_export]
macro_rules! log_line {
    ($level:ident, $($message:tt)+) => {
        if $crate::logging::is_wanted($crate::logging::Level::$level) {
            $crate::logging::push(
                $crate::logging::Level::$level,
                (module_path!(), file!(), line!()),
                format_args!($($message)+),
            )
        }
    };
}

pub use log::Level;

/// Whether the program wants lines of this level at all.
#[inline]
pub fn is_wanted(level: Level) -> bool {
    level <= log::STATIC_MAX_LEVEL && level <= log::max_level()
}

/// Waits until the logger has had every line so far, at most as long as `timeout`; says whether it has. For programs
/// that are about to exit. False at once inside a logger, and in a child made by `fork`.
pub fn flush(timeout: Duration) -> bool {
    imp::flush(timeout)
}

#[doc(hidden)]
pub fn push(level: Level, place: (&'static str, &'static str, u32), message: fmt::Arguments<'_>) {
    imp::push(level, place, message);
}

#[cfg(not(loom))]
mod imp {
    use std::collections::VecDeque;
    use std::fmt;
    use std::sync::OnceLock;
    use std::thread::ThreadId;
    use std::time::{Duration, Instant};

    use super::{CAPACITY, Level};
    use crate::callback;
    use crate::fork::ForkEpoch;
    use crate::sync::{Condvar, Mutex};

    struct Line {
        level: Level,
        place: (&'static str, &'static str, u32),
        text: String,
    }

    struct Queue {
        lines: VecDeque<Line>,
        /// Lines that there was no room for since the last that there was.
        left_out: u64,
        /// Lines taken in, and lines that the logger has had.
        pushed: u64,
        done: u64,
    }

    static QUEUE: Mutex<Queue> =
        Mutex::new(Queue { lines: VecDeque::new(), left_out: 0, pushed: 0, done: 0 });
    static PUSHED: Condvar = Condvar::new();
    static DONE: Condvar = Condvar::new();
    /// The process and the thread that logs; no thread if none could be made.
    static THREAD: OnceLock<(ForkEpoch, Option<ThreadId>)> = OnceLock::new();

    fn thread() -> (ForkEpoch, Option<ThreadId>) {
        *THREAD.get_or_init(|| {
            let thread = std::thread::Builder::new().name("fabric-log".to_owned()).spawn(run);
            (ForkEpoch::current(), thread.ok().map(|thread| thread.thread().id()))
        })
    }

    #[cold]
    pub(super) fn push(
        level: Level,
        place: (&'static str, &'static str, u32),
        message: fmt::Arguments<'_>,
    ) {
        let (fork_epoch, thread) = thread();
        if !fork_epoch.is_current() || thread.is_none() {
            return;
        }
        let mut text = message.to_string();
        let mut queue = QUEUE.lock();
        if queue.lines.len() >= CAPACITY {
            queue.left_out += 1;
            return;
        }
        match std::mem::take(&mut queue.left_out) {
            0 => {}
            count => text += &format!(" ({count} lines before this one had no room)"),
        }
        queue.lines.push_back(Line { level, place, text });
        queue.pushed += 1;
        drop(queue);
        PUSHED.notify_one();
    }

    fn run() {
        loop {
            let mut queue = QUEUE.lock();
            let line = loop {
                match queue.lines.pop_front() {
                    Some(line) => break line,
                    None => queue = PUSHED.wait(queue),
                }
            };
            drop(queue);
            callback::run(|| hand_over(&line));
            QUEUE.lock().done += 1;
            DONE.notify_all();
        }
    }

    fn hand_over(Line { level, place: (module, file, line), text }: &Line) {
        let (file, line) = (Some(*file), Some(*line));
        log::logger().log(
            &log::Record::builder()
                .level(*level)
                .target(module)
                .module_path_static(Some(module))
                .file_static(file)
                .line(line)
                .args(format_args!("{text}"))
                .build(),
        );
    }

    pub(super) fn flush(timeout: Duration) -> bool {
        let Some(&(fork_epoch, thread)) = THREAD.get() else { return true };
        if !fork_epoch.is_current() || thread == Some(std::thread::current().id()) {
            return false;
        }
        let deadline = Instant::now().checked_add(timeout);
        let mut queue = QUEUE.lock();
        let until = queue.pushed;
        while queue.done < until {
            let left =
                deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            queue = DONE.wait_timeout(queue, left);
        }
        true
    }
}

/// Models have no statics, and no logger.
#[cfg(loom)]
mod imp {
    pub(super) fn push(
        _: super::Level,
        _: (&'static str, &'static str, u32),
        _: std::fmt::Arguments<'_>,
    ) {
    }
    pub(super) fn flush(_: std::time::Duration) -> bool {
        true
    }
}
