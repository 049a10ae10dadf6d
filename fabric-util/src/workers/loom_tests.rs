//! Every interleaving of threads at work and of the one that adds it (`scripts/loom`). Where work is forgotten all threads
//! sleep, which loom reports as a deadlock.

use std::sync::Arc;

use loom::thread::{self, JoinHandle};

use super::*;

/// What is done, in order, and the sign that something is.
#[derive(Default)]
struct Done(Mutex<Vec<u32>>, Condvar);

impl Done {
    fn add(&self, work: u32) {
        self.0.lock().push(work);
        self.1.notify_all();
    }

    fn wait_for(&self, work: u32) {
        let mut done = self.0.lock();
        while !done.contains(&work) {
            done = self.1.wait(done);
        }
    }
}

struct Model {
    workers: Workers<u32>,
    done: Done,
}

/// A piece of work that ends when the next one is done.
const BLOCKS: u32 = 100;

impl Model {
    fn new(max: usize) -> Arc<Self> {
        Arc::new(Model { workers: Workers::new(Duration::ZERO, max), done: Done::default() })
    }

    fn start(self: &Arc<Self>) -> JoinHandle<()> {
        let model = self.clone();
        thread::spawn(move || {
            model.workers.run(|work| {
                if work >= BLOCKS {
                    model.done.wait_for(work - BLOCKS);
                }
                model.done.add(work);
            });
        })
    }

    fn push(self: &Arc<Self>, work: impl IntoIterator<Item = u32>) -> Option<JoinHandle<()>> {
        self.workers.push(work).then(|| self.start())
    }

    /// Looks after the workers as often as they ask for it, at times when all that has begun is held up.
    fn supervise(self: &Arc<Self>, threads: &mut Vec<JoinHandle<()>>) {
        loop {
            // No clock: a model takes the same turn each time.
            match self.workers.supervise(Instant::now() + Duration::from_secs(3600)) {
                Supervision::Healthy => return,
                Supervision::CheckAt(_) => thread::yield_now(),
                Supervision::StartThread(_) => threads.push(self.start()),
            }
        }
    }

    /// All ends, with this done.
    fn finish(&self, threads: Vec<JoinHandle<()>>, expected: &[u32]) {
        self.workers.close();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((&**self.done.0.lock(), self.workers.threads()), (expected, (0, 0)));
    }
}

/// Work is added while the thread does what came before, or goes to sleep.
#[test]
fn adding_beside_work() {
    loom::model(|| {
        let model = Model::new(1);
        let mut threads = Vec::from_iter(model.push([1]));
        threads.extend(model.push([2]));
        model.done.wait_for(2);
        threads.extend(model.push([3]));
        model.finish(threads, &[1, 2, 3]);
    });
}

/// Two add work at a time: one thread, and each piece is done once.
#[test]
fn two_who_add() {
    loom::model(|| {
        let model = Model::new(1);
        let other = model.clone();
        let other = thread::spawn(move || other.push([1]));
        let mut threads = Vec::from_iter(model.push([2]));
        threads.extend(other.join().unwrap());
        assert_eq!(threads.len(), 1);
        model.workers.close();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mut done = model.done.0.lock();
        done.sort_unstable();
        assert_eq!(*done, [1, 2]);
    });
}

/// The idle thread is woken for two pieces of work, and the first holds it up until the second is done. A look just before
/// that thread takes the first sees an idle thread, and has to come again.
#[test]
fn held_up_just_after_a_look() {
    loom::model(|| {
        let model = Model::new(2);
        let mut threads = Vec::from_iter(model.push([1]));
        model.done.wait_for(1);
        threads.extend(model.push([BLOCKS + 2, 2]));
        model.supervise(&mut threads);
        model.done.wait_for(BLOCKS + 2);
        model.finish(threads, &[1, 2, BLOCKS + 2]);
    });
}

/// A thread that is no longer needed ends while work is added: another one does it.
#[test]
fn ending_beside_work() {
    loom::model(|| {
        let model = Model::new(2);
        let mut threads = Vec::from_iter(model.push([BLOCKS + 1, 1]));
        model.supervise(&mut threads);
        model.done.wait_for(BLOCKS + 1);
        threads.extend(model.push([2]));
        model.done.wait_for(2);
        model.finish(threads, &[1, BLOCKS + 1, 2]);
    });
}
