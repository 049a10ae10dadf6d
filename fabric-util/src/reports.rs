//! Events on their way to the event sink.
//!
//! A sink is user code, and events come up under locks. So they are put in line there, and handed to the sink where no
//! lock is held, one at a time and in order, whichever thread does it. What must not be seen before an event, such as
//! the completions that an end of connection cancels, waits until its event was reported.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::callback;
use crate::sync::{AtomicBool, AtomicUsize, Mutex, fence};
use fabric_core::completion::EndpointId;
use fabric_core::event::{Event, EventSink};

/// Events that wait to be reported, each with what waits for that.
pub struct Reports<T> {
    sink: Arc<dyn EventSink>,
    line: Mutex<VecDeque<(Event, T)>>,
    waiting: AtomicUsize,
    /// A thread is at it, and takes what is added meanwhile.
    reporting: AtomicBool,
}

impl<T> Reports<T> {
    /// No events, for `sink`.
    pub fn new(sink: Arc<dyn EventSink>) -> Self {
        let (line, waiting) = (Mutex::default(), AtomicUsize::new(0));
        Reports { sink, line, waiting, reporting: AtomicBool::new(false) }
    }

    /// Adds an event. Locks may be held. To be followed by [`flush`](Reports::flush), here or on another thread.
    pub fn push(&self, event: Event, then: T) {
        let mut line = self.line.lock();
        line.push_back((event, then));
        self.waiting.store(line.len(), Ordering::Release);
        drop(line);
        // Before a look whether a thread is at it.
        fence(Ordering::SeqCst);
    }

    /// Whether events wait.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Whether events wait that no thread is about to report.
    pub fn is_due(&self) -> bool {
        self.is_waiting() && !self.reporting.load(Ordering::SeqCst)
    }

    /// Takes back the events of an endpoint that is dropped; gives what waited for them.
    pub fn retract(&self, endpoint: EndpointId) -> Vec<T> {
        if !self.is_waiting() {
            return Vec::new();
        }
        let mut line = self.line.lock();
        let (retracted, rest): (VecDeque<_>, _) = std::mem::take(&mut *line)
            .into_iter()
            .partition(|(e, _)| e.endpoint() == Some(endpoint));
        *line = rest;
        self.waiting.store(line.len(), Ordering::Release);
        drop(line);
        retracted.into_iter().map(|(_, then)| then).collect()
    }

    /// Hands the events that wait to the sink, and then to `reported` what waited for each. No lock may be held. Where
    /// another thread is at it, or this one from inside the sink, that goes on to these as well.
    #[inline]
    pub fn flush(&self, reported: impl FnMut(T)) {
        if self.is_waiting() {
            self.flush_all(reported);
        }
    }

    #[cold]
    fn flush_all(&self, mut reported: impl FnMut(T)) {
        while self.is_waiting() && self.begin() {
            while let Some((event, then)) = self.next() {
                // What a sink that panics has not taken is lost to it alone.
                callback::run(|| self.sink.event(event));
                reported(then);
            }
            self.reporting.store(false, Ordering::SeqCst);
            // Either this sees what was added last, or the thread that added it sees that no thread is reporting.
            fence(Ordering::SeqCst);
        }
    }

    /// Whether this thread reports from now on. One that does not changes nothing.
    fn begin(&self) -> bool {
        let (now, then) = (Ordering::SeqCst, Ordering::SeqCst);
        self.reporting.compare_exchange(false, true, now, then).is_ok()
    }

    fn next(&self) -> Option<(Event, T)> {
        let mut line = self.line.lock();
        let next = line.pop_front();
        self.waiting.store(line.len(), Ordering::Release);
        next
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Keeps the endpoints of the events reported to it; panics at number 3; flushes from inside.
    struct Sink(Mutex<Vec<u64>>);

    impl EventSink for Sink {
        fn event(&self, event: Event) {
            let Some(EndpointId(id)) = event.endpoint() else { return };
            assert_ne!(id, 3, "as a user's sink might");
            self.0.lock().push(id);
        }
    }

    fn connected(id: u64) -> Event {
        Event::Connected { endpoint: EndpointId(id), data: Box::default() }
    }

    #[test]
    fn each_once_in_order_whatever_panics() {
        let sink = Arc::new(Sink(Mutex::default()));
        let reports = Reports::new(sink.clone());
        for id in 1..6 {
            reports.push(connected(id), id);
        }
        assert_eq!(reports.retract(EndpointId(4)), [4]);
        let mut after = Vec::new();
        reports.flush(|id| after.push(id));
        assert_eq!((&*sink.0.lock(), &after), (&vec![1, 2, 5], &vec![1, 2, 3, 5]));
        assert!(!reports.is_waiting());
    }

    #[test]
    fn many_threads_report_in_order_and_leave_none() {
        let sink = Arc::new(Sink(Mutex::default()));
        let reports = Reports::new(sink.clone());
        let count = if cfg!(miri) { 20 } else { 2000 };
        std::thread::scope(|scope| {
            for lane in 0..4 {
                let reports = &reports;
                scope.spawn(move || {
                    for i in 0..count {
                        reports.push(connected(lane + 4 * (i + 1)), ());
                        reports.flush(|()| {});
                    }
                });
            }
        });
        let reported = sink.0.lock();
        assert_eq!(reported.len() as u64, 4 * count);
        for lane in 0..4 {
            assert!(reported.iter().filter(|id| *id % 4 == lane).is_sorted());
        }
    }
}
