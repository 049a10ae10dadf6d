//! Background threads of domains and nodes: start, rounds that may panic, stop.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::callback;

/// The pause after a round that panicked. It doubles with each further panic in a row, up to [`MAX_PAUSE`].
pub const MIN_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause after a panic.
pub const MAX_PAUSE: Duration = Duration::from_secs(1);

/// A thread that is joined when this is dropped, unless it drops this itself: then it ends by returning.
pub struct ServiceThread(Option<JoinHandle<()>>);

impl ServiceThread {
    /// Starts `run` on a thread of this name. It has to end by itself when the owner asks it to stop. A panic of it
    /// ends the thread only, as does one of the drop of what it owns, which may be user code.
    ///
    /// # Errors
    /// As `pthread_create(3)`: too many threads, or no memory.
    pub fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || {
            let _ = callback::caught(run);
        })?;
        Ok(ServiceThread(Some(thread)))
    }

    /// Waits until the thread has ended, unless this is that thread.
    pub fn join(&mut self) {
        let other = |thread: &JoinHandle<()>| thread.thread().id() != std::thread::current().id();
        if let Some(thread) = self.0.take().filter(other) {
            // Its panics were caught there.
            let _ = thread.join();
        }
    }
}

impl Drop for ServiceThread {
    fn drop(&mut self) {
        self.join();
    }
}

/// Calls `round` until it returns false. After a round that panicked it calls `panicked`, pauses, so as not to spin on a
/// panic that repeats, and goes on.
pub fn run_rounds(mut round: impl FnMut() -> bool, mut panicked: impl FnMut()) {
    let mut pause = MIN_PAUSE;
    loop {
        match callback::caught(&mut round) {
            Some(true) => pause = MIN_PAUSE,
            Some(false) => return,
            None => {
                let _ = callback::caught(&mut panicked);
                std::thread::sleep(pause);
                pause = (pause * 2).min(MAX_PAUSE);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    use super::*;
    use crate::sync::Mutex;

    #[test]
    fn rounds_go_on_after_panics_and_do_not_spin() {
        let (mut rounds, mut panics, begun) = (0, 0, Instant::now());
        run_rounds(
            || {
                rounds += 1;
                assert!(rounds > 4, "as a mistake of the library might");
                rounds < 6
            },
            || panics += 1,
        );
        assert_eq!((rounds, panics), (6, 4));
        assert!(begun.elapsed() >= MIN_PAUSE * (1 + 2 + 4 + 8));
    }

    #[test]
    fn a_thread_that_drops_its_own_handle_ends_by_itself() {
        let handle = Arc::new(Mutex::new(None::<ServiceThread>));
        let (mine, ended) = (handle.clone(), Arc::new(AtomicU32::new(0)));
        let ends = ended.clone();
        let thread = ServiceThread::start("test", move || {
            while mine.lock().is_none() {
                std::thread::yield_now();
            }
            let own = mine.lock().take();
            drop(own);
            ends.store(1, Ordering::SeqCst);
        });
        *handle.lock() = Some(thread.unwrap());
        while ended.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn dropping_waits_for_the_end_and_a_panic_ends_the_thread_alone() {
        let count = Arc::new(AtomicU32::new(0));
        let counted = count.clone();
        drop(ServiceThread::start("test", move || {
            std::thread::sleep(Duration::from_millis(20));
            counted.fetch_add(1, Ordering::SeqCst);
        }));
        assert_eq!(count.load(Ordering::SeqCst), 1);
        drop(ServiceThread::start("test", || panic!("as a mistake of the library might")));
    }
}
