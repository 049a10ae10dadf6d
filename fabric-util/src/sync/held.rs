//! Which locks the present thread holds, and in which order locks are taken; only in builds with debug assertions.
//!
//! A lock's class is the place in the source where it was made. Taking a lock of class B while one of class A is held
//! adds the edge A to B to a graph of the whole process; an edge that closes a circle is a deadlock that needs only the
//! right moment, and ends the process, as does the call of user code under a lock.

#[cfg(debug_assertions)]
pub use checked::assert_none;
#[cfg(debug_assertions)]
pub(super) use checked::{Class, Held};
#[cfg(not(debug_assertions))]
pub use unchecked::assert_none;
#[cfg(not(debug_assertions))]
pub(super) use unchecked::{Class, Held};

#[cfg(not(debug_assertions))]
mod unchecked {
    #[derive(Clone, Copy)]
    pub(crate) struct Class;
    pub(crate) struct Held;

    impl Class {
        pub(crate) const fn here() -> Self {
            Class
        }
        #[inline(always)]
        pub(crate) fn enter(self) -> Held {
            Held
        }
        #[inline(always)]
        pub(crate) fn enter_at_once(self) -> Held {
            Held
        }
    }

    /// Ends the process if the thread holds a lock of this library; nothing in builds without debug assertions.
    #[inline(always)]
    pub fn assert_none(_what: &str) {}
}

#[cfg(debug_assertions)]
mod checked {
    use std::backtrace::Backtrace;
    use std::cell::RefCell;
    use std::collections::{BTreeMap, BTreeSet};
    use std::panic::Location;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};

    thread_local! {
        static STACK: RefCell<Vec<&'static Location<'static>>> = const { RefCell::new(Vec::new()) };
    }

    /// Where a lock was made.
    #[derive(Clone, Copy)]
    pub(crate) struct Class(&'static Location<'static>);

    /// A lock is held, until this is dropped.
    pub(crate) struct Held(&'static Location<'static>);

    impl Class {
        #[track_caller]
        pub(crate) const fn here() -> Self {
            Class(Location::caller())
        }

        /// To be called before the thread waits for the lock.
        pub(crate) fn enter(self) -> Held {
            // Threads that end have no stack any more; what they lock then goes unchecked.
            let _ = STACK.try_with(|stack| {
                for &held in stack.borrow().iter() {
                    note_order(held, self.0);
                }
            });
            self.enter_at_once()
        }

        /// To be called for a lock that was taken without waiting, which no order forbids.
        pub(crate) fn enter_at_once(self) -> Held {
            let _ = STACK.try_with(|stack| stack.borrow_mut().push(self.0));
            Held(self.0)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = STACK.try_with(|stack| {
                let mut stack = stack.borrow_mut();
                if let Some(at) = stack.iter().rposition(|held| std::ptr::eq(*held, self.0)) {
                    stack.remove(at);
                }
            });
        }
    }

    /// Ends the process if the thread holds a lock of this library; nothing in builds without debug assertions.
    pub fn assert_none(what: &str) {
        let held = STACK.try_with(|stack| stack.borrow().clone()).unwrap_or_default();
        if !held.is_empty() {
            violated(&format!("{what} under {}", places(&held)));
        }
    }

    fn places(held: &[&'static Location<'static>]) -> String {
        let all: Vec<_> = held.iter().map(|place| format!("the lock made at {place}")).collect();
        all.join(" and ")
    }

    #[cold]
    fn violated(what: &str) -> ! {
        // A panic would be caught by the threads that must survive, and go unnoticed.
        eprintln!("fabric: lock check: {what}\n{}", Backtrace::force_capture());
        std::process::abort();
    }

    /// Edges seen lately, so that threads seldom wait for the graph.
    static KNOWN: [AtomicUsize; 1024] = [const { AtomicUsize::new(0) }; 1024];

    type Place = (&'static str, u32, u32);
    static GRAPH: Mutex<BTreeMap<Place, BTreeSet<Place>>> = Mutex::new(BTreeMap::new());

    fn note_order(first: &'static Location<'static>, then: &'static Location<'static>) {
        let address = |place: &'static Location<'static>| std::ptr::from_ref(place).addr();
        let edge = address(first).rotate_left(21) ^ address(then);
        // The upper bits of the product, on which both locks have a say.
        let hash = (edge as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        let known = &KNOWN[hash as usize % KNOWN.len()];
        if known.load(Ordering::Relaxed) == edge {
            return;
        }
        if let Err(way) = add_edge(place(first), place(then)) {
            let way: Vec<_> = way.iter().map(|(f, l, c)| format!("{f}:{l}:{c}")).collect();
            violated(&format!(
                "the lock made at {then} is taken under the one made at {first}; elsewhere the order was {}",
                way.join(", then ")
            ));
        }
        known.store(edge, Ordering::Relaxed);
    }

    fn place(of: &'static Location<'static>) -> Place {
        (of.file(), of.line(), of.column())
    }

    /// Adds an edge, or gives the way that leads back.
    fn add_edge(first: Place, then: Place) -> Result<(), Vec<Place>> {
        let mut graph = GRAPH.lock().unwrap_or_else(PoisonError::into_inner);
        // An edge that others displaced from `KNOWN`: tests count allocations.
        if graph.get(&first).is_some_and(|edges| edges.contains(&then)) {
            return Ok(());
        }
        let (mut ways, mut seen) = (vec![vec![then]], BTreeSet::new());
        while let Some(way) = ways.pop() {
            let Some(&end) = way.last() else { continue };
            if end == first {
                return Err(way);
            }
            if seen.insert(end) {
                for &next in graph.get(&end).into_iter().flatten() {
                    ways.push(way.iter().copied().chain([next]).collect());
                }
            }
        }
        graph.entry(first).or_default().insert(then);
        Ok(())
    }
}
