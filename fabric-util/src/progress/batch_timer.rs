//! How the thread sleeps while an application polls: for a tick, and shorter while posts are held back.
//!
//! A post that need not go at once, since earlier ones are unacknowledged, is held until the application polls, so that
//! many go in one system call. If the application does not poll in time the thread sends them: so its sleep is light while
//! posts are held now and then, and the first post that is held after a while ends a deep sleep. That costs more than a few
//! system calls: so in a deep sleep the first posts that could be held go at once. And where the application polls behind each
//! post, nothing is gathered by holding them: there the first post behind a poll goes at once, and those that follow it are held.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, fence};

/// Posts in one deep sleep that could be held and go at once.
const SELDOM: usize = if cfg!(loom) { 0 } else { 8 };
/// Steps in a row that found a single post, until the next one is not held.
const ALONE: usize = if cfg!(loom) { usize::MAX } else { 8 };

/// How the thread sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sleep {
    #[default]
    Awake,
    /// It looks in time whether posts are held for too long.
    Light,
    /// It sleeps on until the tick ends.
    Deep,
}

/// The thread's sleep, and the posts that are held.
pub(super) struct BatchTimer {
    sleep: Mutex<Sleep>,
    ended: Condvar,
    /// The sleep is a deep one.
    deep: AtomicBool,
    /// How long posts may be held; `None`: none is.
    max: Option<Duration>,
    /// Microseconds from `start`, and one more, since when posts are held; 0: none is.
    held: AtomicUsize,
    /// Posts were held since the last look.
    lately: AtomicBool,
    /// Posts that could have been held, and went at once, in this deep sleep.
    passed: AtomicUsize,
    /// Posts that could have been held since the last step, and how many steps in a row found one of them. Hints: where two
    /// threads write them, one is forgotten.
    posts: AtomicUsize,
    alone: AtomicUsize,
    start: Instant,
}

impl BatchTimer {
    pub(super) fn new(max: Option<Duration>) -> Self {
        BatchTimer {
            sleep: Mutex::default(),
            ended: Condvar::default(),
            deep: AtomicBool::new(false),
            max,
            held: AtomicUsize::new(0),
            lately: AtomicBool::new(false),
            passed: AtomicUsize::new(0),
            posts: AtomicUsize::new(0),
            alone: AtomicUsize::new(0),
            start: Instant::now(),
        }
    }

    /// Whether a post that could be held is to be: if posts may be at all, others follow it, and such ones are not seldom.
    #[inline]
    pub(super) fn is_worth_it(&self) -> bool {
        self.max.is_some()
            && !self.comes_alone()
            && (!self.deep.load(Ordering::Relaxed)
                || self.passed.fetch_add(1, Ordering::Relaxed) >= SELDOM)
    }

    /// Counts a post; whether there will be no other before the next step, as far as the last ones show.
    #[inline]
    fn comes_alone(&self) -> bool {
        let posts = self.posts.load(Ordering::Relaxed);
        self.posts.store(posts.wrapping_add(1), Ordering::Relaxed);
        posts == 0 && self.alone.load(Ordering::Relaxed) >= ALONE
    }

    /// A step begins: how many posts came since the last one.
    #[inline]
    fn note_step(&self) {
        let posts = self.posts.load(Ordering::Relaxed);
        if posts > 0 {
            self.posts.store(0, Ordering::Relaxed);
            let alone = if posts == 1 { self.alone.load(Ordering::Relaxed) + 1 } else { 0 };
            self.alone.store(alone.min(ALONE), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn has_posts(&self) -> bool {
        self.held.load(Ordering::Relaxed) != 0
    }

    /// A post is held, and left to the next step.
    #[inline]
    pub(super) fn add_post(&self) {
        if !self.has_posts() {
            let now = self.start.elapsed().as_micros() as usize;
            self.held.store(now.wrapping_add(1).max(1), Ordering::Relaxed);
            self.lately.store(true, Ordering::Relaxed);
            // Either this sees the deep sleep, or the thread, about to begin one, sees that something is held.
            fence(Ordering::SeqCst);
            if self.deep.load(Ordering::Relaxed) {
                self.lighten();
            }
        }
    }

    #[cold]
    fn lighten(&self) {
        let mut sleep = self.sleep.lock();
        if *sleep == Sleep::Deep {
            *sleep = Sleep::Light;
            self.ended.notify_one();
        }
    }

    /// A step begins, which transmits all that was held until now.
    #[inline]
    pub(super) fn clear_posts(&self) {
        self.note_step();
        if self.has_posts() {
            self.held.store(0, Ordering::Relaxed);
            // Before the step looks at the connections: what is held from now on is for the next one.
            fence(Ordering::SeqCst);
        }
    }

    /// Ends the sleep.
    pub(super) fn wake(&self) {
        let mut sleep = self.sleep.lock();
        if std::mem::take(&mut *sleep) != Sleep::Awake {
            self.ended.notify_one();
        }
    }

    /// To be held when the thread decides whether it sleeps, so that a `wake` from then on ends that sleep.
    pub(super) fn lock(&self) -> MutexGuard<'_, Sleep> {
        self.sleep.lock()
    }

    /// Sleeps for a tick, or until `wake`. Calls `step` first if it is to, and whenever posts have been held for as long as
    /// they may be; `step` says whether it could be made: if not, it is tried again as much later.
    pub(super) fn sleep<'a>(
        &'a self,
        mut sleep: MutexGuard<'a, Sleep>,
        tick: Duration,
        first: bool,
        mut step: impl FnMut() -> bool,
    ) {
        if first {
            match self.beside(sleep, &mut step) {
                Some((again, _)) => sleep = again,
                None => return,
            }
        }
        let mut missed = false;
        let end = Instant::now().checked_add(tick);
        loop {
            let left =
                end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            let light = if missed { self.max } else { self.light() };
            let (kind, time) =
                light.map_or((Sleep::Deep, left), |time| (Sleep::Light, time.min(left)));
            *sleep = kind;
            sleep = self.ended.wait_timeout_while(sleep, time, |sleep| *sleep == kind);
            self.deep.store(false, Ordering::Relaxed);
            if *sleep == Sleep::Awake {
                return;
            }
            missed = false;
            if self.due_in().is_some_and(|time| time.is_zero()) {
                match self.beside(sleep, &mut step) {
                    Some((again, stepped)) => (sleep, missed) = (again, !stepped),
                    None => return,
                }
            }
        }
        *sleep = Sleep::Awake;
    }

    /// Calls `step` without the lock, and gives what it says; `None` if the sleep was ended meanwhile.
    fn beside<'a>(
        &'a self,
        mut sleep: MutexGuard<'a, Sleep>,
        step: &mut impl FnMut() -> bool,
    ) -> Option<(MutexGuard<'a, Sleep>, bool)> {
        *sleep = Sleep::Light;
        drop(sleep);
        let stepped = step();
        let sleep = self.sleep.lock();
        (*sleep != Sleep::Awake).then_some((sleep, stepped))
    }

    /// How long a light sleep may be; `None`: it may be a deep one.
    fn light(&self) -> Option<Duration> {
        let max = self.max?;
        if let Some(time) = self.due_in() {
            return Some(time);
        }
        if self.lately.swap(false, Ordering::Relaxed) {
            return Some(max);
        }
        self.passed.store(0, Ordering::Relaxed);
        self.deep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let held = self.due_in();
        if held.is_some() {
            self.deep.store(false, Ordering::Relaxed);
        }
        held
    }

    /// When what is held must go.
    fn due_in(&self) -> Option<Duration> {
        let since = self.held.load(Ordering::Relaxed).checked_sub(1)?;
        let due = Duration::from_micros(since as u64) + self.max?;
        Some(due.saturating_sub(self.start.elapsed()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Posts of a burst, and the step behind it: how many of them are held.
    fn burst(timer: &BatchTimer, posts: usize) -> usize {
        let held = (0..posts).filter(|_| timer.is_worth_it()).count();
        timer.clear_posts();
        held
    }

    #[test]
    fn a_post_that_comes_alone_is_not_held_for_others() {
        let timer = BatchTimer::new(Some(Duration::from_micros(200)));
        for _ in 0..ALONE {
            assert_eq!(burst(&timer, 1), 1, "as long as nothing is known");
        }
        for _ in 0..3 {
            assert_eq!(burst(&timer, 1), 0);
            timer.clear_posts();
        }
        assert_eq!(burst(&timer, 5), 4, "the second one says that it is a burst");
        assert_eq!(burst(&timer, 5), 5);
        assert_eq!(burst(&timer, 1), 1);
    }

    #[test]
    fn nothing_is_held_where_that_is_off() {
        let timer = BatchTimer::new(None);
        assert_eq!((burst(&timer, 1), burst(&timer, 5)), (0, 0));
    }
}
