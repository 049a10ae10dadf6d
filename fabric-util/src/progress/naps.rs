//! The thread's naps: a tick long where an application polls, and shorter while posts are held back.
//!
//! A post that needs not go at once, since earlier ones are unacknowledged, is held until the application polls, so that
//! many go in one system call. If it does not poll in time the thread sees to it: so its naps are light while posts are
//! held now and then, and who holds the first one after a while ends the deep nap.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, fence};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Nap {
    #[default]
    Awake,
    /// It looks in time whether posts are held for too long.
    Light,
    /// It sleeps on until the tick ends.
    Deep,
}

/// The thread's nap, and the posts that are held.
pub(super) struct Naps {
    nap: Mutex<Nap>,
    ended: Condvar,
    /// The nap is a deep one.
    deep: AtomicBool,
    /// How long posts may be held; `None`: none is.
    most: Option<Duration>,
    /// Microseconds from `start`, and one more, since when posts are held; 0: none is.
    held: AtomicUsize,
    /// Posts were held since the last look.
    lately: AtomicBool,
    start: Instant,
}

impl Naps {
    pub(super) fn new(most: Option<Duration>) -> Self {
        Naps {
            nap: Mutex::default(),
            ended: Condvar::default(),
            deep: AtomicBool::new(false),
            most,
            held: AtomicUsize::new(0),
            lately: AtomicBool::new(false),
            start: Instant::now(),
        }
    }

    /// Whether posts may be held at all.
    #[inline]
    pub(super) fn may_hold(&self) -> bool {
        self.most.is_some()
    }

    #[inline]
    pub(super) fn is_holding(&self) -> bool {
        self.held.load(Ordering::Relaxed) != 0
    }

    /// A post is held, and left to the next step.
    #[inline]
    pub(super) fn hold(&self) {
        if !self.is_holding() {
            let now = self.start.elapsed().as_micros() as usize;
            self.held.store(now.wrapping_add(1).max(1), Ordering::Relaxed);
            self.lately.store(true, Ordering::Relaxed);
            // Either this sees the deep nap, or who is about to begin one sees that something is held.
            fence(Ordering::SeqCst);
            if self.deep.load(Ordering::Relaxed) {
                self.lighten();
            }
        }
    }

    #[cold]
    fn lighten(&self) {
        let mut nap = self.nap.lock();
        if *nap == Nap::Deep {
            *nap = Nap::Light;
            self.ended.notify_one();
        }
    }

    /// A step begins, which transmits all that was held until now.
    #[inline]
    pub(super) fn release(&self) {
        if self.is_holding() {
            self.held.store(0, Ordering::Relaxed);
            // Before the step looks at the connections: what is held from now on is for the next one.
            fence(Ordering::SeqCst);
        }
    }

    /// Ends the nap.
    pub(super) fn end(&self) {
        let mut nap = self.nap.lock();
        if std::mem::take(&mut *nap) != Nap::Awake {
            self.ended.notify_one();
        }
    }

    /// To be held when the thread decides whether it naps; so that an `end` from then on ends that nap.
    pub(super) fn lock(&self) -> MutexGuard<'_, Nap> {
        self.nap.lock()
    }

    /// Naps for a tick, or until `end`. Calls `step` first if it is to, and whenever posts have been held for as long as
    /// they may be.
    pub(super) fn nap<'a>(
        &'a self,
        mut nap: MutexGuard<'a, Nap>,
        tick: Duration,
        first: bool,
        mut step: impl FnMut(),
    ) {
        if first {
            match self.beside(nap, &mut step) {
                Some(again) => nap = again,
                None => return,
            }
        }
        let end = Instant::now().checked_add(tick);
        loop {
            let left =
                end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            let light = self.light();
            let (kind, time) = light.map_or((Nap::Deep, left), |time| (Nap::Light, time.min(left)));
            *nap = kind;
            nap = self.ended.wait_timeout_while(nap, time, |nap| *nap == kind);
            self.deep.store(false, Ordering::Relaxed);
            if *nap == Nap::Awake {
                return;
            }
            if self.due_in().is_some_and(|time| time.is_zero()) {
                match self.beside(nap, &mut step) {
                    Some(again) => nap = again,
                    None => return,
                }
            }
        }
        *nap = Nap::Awake;
    }

    /// Calls `step` without the lock; `None` if the nap was ended meanwhile.
    fn beside<'a>(
        &'a self,
        mut nap: MutexGuard<'a, Nap>,
        step: &mut impl FnMut(),
    ) -> Option<MutexGuard<'a, Nap>> {
        *nap = Nap::Light;
        drop(nap);
        step();
        let nap = self.nap.lock();
        (*nap != Nap::Awake).then_some(nap)
    }

    /// How long a light nap may be; `None`: it may be a deep one.
    fn light(&self) -> Option<Duration> {
        let most = self.most?;
        if let Some(time) = self.due_in() {
            return Some(time);
        }
        if self.lately.swap(false, Ordering::Relaxed) {
            return Some(most);
        }
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
        let due = Duration::from_micros(since as u64) + self.most?;
        Some(due.saturating_sub(self.start.elapsed()))
    }
}
