//! Every interleaving of pollers, posters and the thread (`scripts/loom`): what a connection is left to do is done,
//! though no application polls any more. The hand-over, the order of steps and the flags are the engine's own; the model adds a
//! connection, whose work is counted, and a selector, edge-triggered as epoll(7) is. Where something is forgotten all
//! threads sleep, which loom reports as a deadlock.

use loom::thread;

use super::*;
use crate::completion_ring::Outbox;
use crate::fair_table::Network;
use crate::progress::{Mode, Progress, ReadyFlag};
use crate::stream::Deferral;
use crate::sync::Wakeup;

/// Ticks that time out at once, and such as nothing but `stop_polling` ends.
const SHORT: Duration = Duration::ZERO;
const ENDLESS: Duration = Duration::MAX;

/// A connection and its socket.
struct Conn {
    ready: ReadyFlag,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What came and was not read.
    unread: u32,
    /// A credit that is due to the peer.
    owed: bool,
    /// What a step did: bytes read, credits sent.
    done: u32,
    /// The selector does without its edges.
    disarmed: bool,
}

struct Model {
    engine: ProgressEngine<Model>,
    conn: Arc<Conn>,
    /// How much is to be done, and the sign that it is.
    goal: u32,
    reached: Wakeup,
    /// An event waits for the thread.
    due: AtomicBool,
}

/// What the selector shares with the network: the edge, and the sign that there is one or a wake-up.
struct Edges {
    edge: Mutex<bool>,
    ready: Wakeup,
}

impl Source for Conn {
    fn ready_flag(&self) -> &ReadyFlag {
        &self.ready
    }

    fn network(&self) -> Option<Network> {
        None
    }
}

impl EventLoop for Model {
    /// As soon as can be.
    const DISARMED_AFTER: u32 = 1;

    type Source = Conn;
    type Selector = Arc<Edges>;
    type Waker = Arc<Edges>;

    /// Reads one byte at a time, so that a step may end with more to read.
    fn progress(&self, conn: &Arc<Conn>, _: &mut [u8], _: Mode, _: &mut Outbox<'_>) -> Progress {
        let mut state = conn.state.lock();
        let before = state.done;
        if std::mem::take(&mut state.owed) {
            state.done += 1;
        }
        if state.unread > 0 {
            state.unread -= 1;
            state.done += 1;
        }
        if state.done != before {
            self.look(&state);
        }
        match (state.unread, state.done - before) {
            (1.., _) => Progress::More,
            (0, 0) => Progress::Idle,
            _ => Progress::Drained,
        }
    }

    fn defer(&self, _: &Arc<Conn>, _: Deferral) {}

    /// What is there already is an edge, as where epoll_ctl(2) adds a socket.
    fn arm(&self, conn: &Arc<Conn>) -> bool {
        let mut state = conn.state.lock();
        if std::mem::take(&mut state.disarmed) && state.unread > 0 {
            self.add_edge();
        }
        false
    }

    /// With it goes an edge that was not taken.
    fn disarm(&self, conn: &Arc<Conn>) {
        conn.state.lock().disarmed = true;
        *self.engine.waker.edge.lock() = false;
    }

    fn poll_events(&self, edges: &mut Arc<Edges>, block: bool) -> bool {
        if block {
            edges.ready.wait();
        }
        edges.ready.clear();
        if std::mem::take(&mut *edges.edge.lock()) {
            self.conn.ready.note();
            self.engine.mark_ready_in_poll(&self.conn);
            return true;
        }
        false
    }

    fn is_due(&self) -> bool {
        self.due.load(Ordering::Acquire)
    }

    fn wake(edges: &Arc<Edges>) {
        edges.ready.set();
    }
}

impl Model {
    fn new(goal: u32) -> Arc<Self> {
        let edges = Arc::new(Edges { edge: Mutex::new(false), ready: Wakeup::new().unwrap() });
        let conn = Conn { ready: ReadyFlag::default(), state: Mutex::default() };
        Arc::new(Model {
            engine: ProgressEngine::new(edges.clone(), edges, Some(Duration::ZERO), None),
            conn: Arc::new(conn),
            goal,
            reached: Wakeup::new().unwrap(),
            due: AtomicBool::new(false),
        })
    }

    /// An event comes up, to be reported by the thread.
    fn add_report(&self) {
        self.due.store(true, Ordering::Release);
        self.engine.interrupt();
    }

    /// The thread reports what is due.
    fn report(&self) {
        if self.due.swap(false, Ordering::AcqRel) {
            let mut state = self.conn.state.lock();
            state.done += 1;
            self.look(&state);
        }
    }

    /// Its thread ticks: somebody has polled.
    fn ticking(goal: u32) -> Arc<Self> {
        let model = Model::new(goal);
        model.engine.note_poll();
        model.engine.run_once(&*model, SHORT);
        model
    }

    /// Does something while a poller goes over the connection, which is hot.
    fn beside_a_poll(self: &Arc<Self>, act: impl FnOnce(&Self)) {
        self.engine.mark_ready(&self.conn);
        let model = self.clone();
        let poller = thread::spawn(move || model.engine.poll(&*model, &mut Outbox::none()));
        act(self);
        poller.join().unwrap();
    }

    /// Bytes come over the network.
    fn arrive(&self, bytes: u32) {
        let mut state = self.conn.state.lock();
        state.unread += bytes;
        if !state.disarmed {
            self.add_edge();
        }
    }

    fn add_edge(&self) {
        let edges = &self.engine.waker;
        *edges.edge.lock() = true;
        edges.ready.set();
    }

    /// A credit comes to be owed, as by a receive that is posted.
    fn owe(&self) {
        let mut state = self.conn.state.lock();
        if self.engine.leave_to_step(&self.conn) {
            state.owed = true;
        } else {
            state.done += 1;
            self.look(&state);
        }
    }

    /// Something is posted that may be held.
    fn post(&self) {
        let mut state = self.conn.state.lock();
        if self.engine.defer_post(&self.conn) {
            state.owed = true;
        } else {
            state.done += 1;
            self.look(&state);
        }
    }

    fn look(&self, state: &State) {
        if state.done == self.goal {
            self.reached.set();
        }
    }

    /// The domain's thread, until it is asked to end.
    fn start(self: &Arc<Self>, tick: Duration) -> thread::JoinHandle<()> {
        let model = self.clone();
        thread::spawn(move || {
            while !model.engine.is_stopped() {
                model.engine.run_once(&*model, tick);
                model.report();
            }
        })
    }

    /// Everything is done without a poll, and the thread ends when asked to.
    fn finish(&self, thread: thread::JoinHandle<()>) {
        self.reached.wait();
        assert_eq!(self.conn.state.lock().done, self.goal);
        self.engine.stop();
        thread.join().unwrap();
    }
}

/// `stop_polling` clears the sign, then ends the doze: the thread that has seen the sign is woken, the other one sees it
/// clear. Nothing else would end this tick.
#[test]
fn handing_over_ends_a_doze() {
    loom::model(|| {
        let model = Model::new(1);
        model.engine.note_poll();
        let thread = model.start(ENDLESS);
        model.arrive(1);
        model.engine.stop_polling();
        model.finish(thread);
    });
}

/// An application polls once while bytes come, and never again. Pollers keep away from the selector once the thread
/// has taken over: an edge they took then would be lost when they stop, with bytes left unread, and the thread
/// asleep.
#[test]
fn polling_stops_without_a_word() {
    loom::model(|| {
        let model = Model::new(2);
        model.engine.note_poll();
        let thread = model.start(SHORT);
        model.arrive(2);
        model.engine.poll(&*model, &mut Outbox::none());
        model.finish(thread);
    });
}

/// A poller goes over a hot connection, finds it dry and lets it cool, while the thread's selector names it: the one
/// notes, then looks whether it is hot; the other cools, then looks whether something was noted.
#[test]
fn cooling_beside_an_edge() {
    loom::model(|| {
        let model = Model::new(1);
        let thread = model.start(SHORT);
        model.beside_a_poll(|model| model.arrive(1));
        model.finish(thread);
    });
}

/// A credit that was left to the next step, because the connection is ready already, is sent although that step was
/// over and the connection about to cool: what is left to a step is noted first.
#[test]
fn cooling_beside_a_credit() {
    loom::model(|| {
        let model = Model::ticking(1);
        model.beside_a_poll(Model::owe);
        let thread = model.start(SHORT);
        model.finish(thread);
    });
}

/// A credit is left to the next step while the thread takes over: it stops ticking, then looks for heated
/// connections; who heats one looks afterwards whether it still ticks, and wakes it if not.
#[test]
fn taking_over_beside_a_credit() {
    loom::model(|| {
        let model = Model::ticking(1);
        let thread = model.start(SHORT);
        model.owe();
        model.finish(thread);
    });
}

/// A post is held while the thread falls into a nap that nothing else would end: who naps deeply looks afterwards
/// whether something is held, who holds looks afterwards whether the nap is deep.
#[test]
fn holding_beside_a_nap() {
    loom::model(|| {
        let model = Model::ticking(1);
        model.engine.note_poll();
        let thread = model.start(ENDLESS);
        model.post();
        model.finish(thread);
    });
}

/// A post is held while a poller's step is under way, and no poll follows: the step says first that nothing is
/// held any more, then looks at the connections.
#[test]
fn holding_beside_a_poll() {
    loom::model(|| {
        let model = Model::ticking(1);
        model.beside_a_poll(Model::post);
        let thread = model.start(ENDLESS);
        model.finish(thread);
    });
}

/// An application that drives: it sleeps until the selector has something, and polls, until all is done.
fn application(model: &Arc<Model>) -> thread::JoinHandle<()> {
    let model = model.clone();
    thread::spawn(move || {
        while model.conn.state.lock().done < model.goal {
            model.engine.arm_manual(&*model);
            model.engine.waker.ready.wait();
            model.engine.poll(&*model, &mut Outbox::none());
            // What it may not take the thread is about to.
            thread::yield_now();
        }
    })
}

/// Bytes come while an application that drives goes to sleep on the selector: what it left cold is an edge.
#[test]
fn resting_beside_bytes() {
    loom::model(|| {
        let model = Model::ticking(1);
        model.engine.mark_ready(&model.conn);
        let application = application(&model);
        model.arrive(1);
        application.join().unwrap();
    });
}

/// An application goes to sleep to drive, and does not come when bytes do: the thread takes over.
#[test]
fn resting_for_ever() {
    loom::model(|| {
        let model = Model::new(1);
        model.engine.note_poll();
        let thread = model.start(SHORT);
        model.engine.arm_manual(&*model);
        model.arrive(1);
        model.finish(thread);
    });
}

/// The thread, in the selector, may take the edge out of it that would wake a resting application, and give way to that,
/// for ever: what it took it sees to first.
#[test]
fn giving_way_to_one_who_rests() {
    loom::model(|| {
        let model = Model::new(1);
        let thread = model.start(ENDLESS);
        let application = application(&model);
        model.arrive(1);
        model.finish(thread);
        // It may still wait for what the thread took.
        model.engine.waker.ready.set();
        application.join().unwrap();
    });
}

/// An event comes up while the thread falls into a nap that nothing else would end: it is added, then the nap ended; the
/// thread takes the nap's lock, then looks whether something is due.
#[test]
fn reporting_beside_a_nap() {
    loom::model(|| {
        let model = Model::ticking(1);
        model.engine.note_poll();
        let thread = model.start(ENDLESS);
        model.add_report();
        model.finish(thread);
    });
}

/// An event comes up while the thread goes to sleep in the selector.
#[test]
fn reporting_beside_a_sleep() {
    loom::model(|| {
        let model = Model::new(1);
        let thread = model.start(ENDLESS);
        model.add_report();
        model.finish(thread);
    });
}
