//! How slow the machine is while programs run.
//!
//! Deadlines are stretched by what the machine was like before. If it becomes slower by far, by other work or as a guest that
//! gets no processor, peers are given up as lost, which is no mistake of a provider. A machine may be as fast as before and stand
//! still in between, as it does for processes that are to yield to all others: so it counts too how late a short sleep ends.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::calibrate;
use crate::watch::lock;

/// How long a sleep is.
const SLEEP: Duration = Duration::from_millis(100);
/// Sleeps behind which a look is taken; one costs some 20 ms.
const SLEEPS: u32 = 20;
/// A sleep that takes so many times as long is late.
const LATE: f64 = 2.0;
/// Looks that are kept: of longer than any program takes.
const KEPT: usize = 3000;
/// How much slower than before is too slow for deadlines. What the programs themselves take is much less.
const FAR: f64 = 4.0;

/// Looks at the machine until it is dropped.
#[derive(Debug)]
pub(super) struct Pace {
    looks: Arc<Looks>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Looks {
    /// When a look or a late sleep ended, and the factor it gave.
    taken: Mutex<VecDeque<(Instant, f64)>>,
    ends: AtomicBool,
}

impl Pace {
    pub(super) fn watch() -> Self {
        let looks = Arc::new(Looks::default());
        let looking = looks.clone();
        let look = move || {
            while !looking.ends.load(Ordering::Relaxed) {
                looking.look();
                looking.sleep();
            }
        };
        // Without a thread it looks when it is asked.
        let thread = thread::Builder::new().name("pace".to_owned()).spawn(look).ok();
        Pace { looks, thread }
    }

    /// The factor by which deadlines had to be stretched since `begin`, if that is much more than `factor`.
    pub(super) fn much_slower(&self, begin: Instant, factor: f64) -> Option<f64> {
        self.looks.look();
        let looks = lock(&self.looks.taken);
        slowest(&looks, begin).filter(|slowest| *slowest > FAR * factor)
    }
}

fn slowest(looks: &VecDeque<(Instant, f64)>, begin: Instant) -> Option<f64> {
    let since = looks.iter().filter(|(at, _)| *at >= begin);
    since.map(|(_, factor)| *factor).reduce(f64::max)
}

impl Looks {
    /// Short sleeps, until the next look.
    fn sleep(&self) {
        for _ in 0..SLEEPS {
            let begin = Instant::now();
            thread::park_timeout(SLEEP);
            if self.ends.load(Ordering::Relaxed) {
                return;
            }
            let late = begin.elapsed().as_secs_f64() / SLEEP.as_secs_f64();
            if late > LATE {
                self.note(late);
            }
        }
    }

    fn look(&self) {
        self.note(calibrate::factor_now());
    }

    fn note(&self, factor: f64) {
        let mut looks = lock(&self.taken);
        if looks.len() == KEPT {
            looks.pop_front();
        }
        looks.push_back((Instant::now(), factor));
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.looks.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It cannot panic, and if it did, that is no matter of the programs.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_before_does_not_count() {
        let begin = Instant::now();
        let second = Duration::from_secs(1);
        let looks = [(begin, 20.0), (begin + second, 2.0), (begin + 2 * second, 8.0)].into();
        assert_eq!(slowest(&looks, begin + second), Some(8.0));
        assert_eq!(slowest(&looks, begin), Some(20.0));
        assert_eq!(slowest(&looks, begin + 3 * second), None);
    }

    #[test]
    fn it_is_asked_about_much_less_than_it_sees_or_much_more() {
        let pace = Pace::watch();
        let begin = Instant::now();
        assert!(pace.much_slower(begin, 0.1).is_some_and(|factor| factor >= 1.0));
        assert_eq!(pace.much_slower(begin, 50.0), None);
    }
}
