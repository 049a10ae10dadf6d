//! Every interleaving of threads that add events and report them (`scripts/loom`).

use loom::thread;

use super::*;

/// Keeps the endpoints of the events reported to it.
#[derive(Default)]
struct Sink(Mutex<Vec<u64>>);

impl EventSink for Sink {
    fn event(&self, event: Event) {
        self.0.lock().extend(event.endpoint().map(|id| id.0));
    }
}

struct Model {
    reports: Reports<u64>,
    sink: Arc<Sink>,
    /// What waited for events that were reported.
    after: Mutex<Vec<u64>>,
}

impl Model {
    fn new() -> Arc<Self> {
        let sink = Arc::<Sink>::default();
        let (reports, after) = (Reports::new(sink.clone()), Mutex::default());
        Arc::new(Model { reports, sink, after })
    }

    fn push(&self, id: u64) {
        self.reports.push(Event::Connected { endpoint: EndpointId(id), data: Box::default() }, id);
    }

    fn flush(&self) {
        self.reports.flush(|id| {
            // What waits for an event comes after it.
            assert!(self.sink.0.lock().contains(&id));
            self.after.lock().push(id);
        });
    }

    /// All was reported, once each, in this order; gives that.
    fn reported(&self) -> Vec<u64> {
        assert!(!self.reports.is_waiting() && !self.reports.is_due());
        let reported = self.sink.0.lock().clone();
        assert_eq!(*self.after.lock(), reported);
        reported
    }
}

/// An event is added while another thread is about to be done with those before: either that goes on to it, or who added
/// it reports it.
#[test]
fn adding_beside_a_flush() {
    loom::model(|| {
        let model = Model::new();
        let other = model.clone();
        model.push(1);
        let other = thread::spawn(move || other.flush());
        model.push(2);
        model.flush();
        other.join().unwrap();
        assert_eq!(model.reported(), [1, 2]);
    });
}

/// Two threads add and report: the events of each stay in order.
#[test]
fn two_who_add() {
    loom::model(|| {
        let model = Model::new();
        let other = model.clone();
        let other = thread::spawn(move || {
            other.push(1);
            other.flush();
            other.push(2);
            other.flush();
        });
        model.push(3);
        model.flush();
        other.join().unwrap();
        let reported = model.reported();
        assert!([[1, 2, 3], [1, 3, 2], [3, 1, 2]].iter().any(|order| reported == *order));
    });
}

/// One adds and looks whether a thread is at it, as an engine does before it goes to sleep: if so, that one goes on to it.
#[test]
fn looking_beside_a_flush() {
    loom::model(|| {
        let model = Model::new();
        let other = model.clone();
        model.push(1);
        let other = thread::spawn(move || other.flush());
        model.push(2);
        if model.reports.is_due() {
            model.flush();
        }
        other.join().unwrap();
        assert_eq!(model.reported(), [1, 2]);
    });
}

/// An event is taken back while it is reported: one or the other.
#[test]
fn taking_back_beside_a_flush() {
    loom::model(|| {
        let model = Model::new();
        let other = model.clone();
        model.push(1);
        model.push(2);
        let other = thread::spawn(move || other.flush());
        let retracted = model.reports.retract(EndpointId(1));
        other.join().unwrap();
        model.flush();
        match &*retracted {
            [] => assert_eq!(model.reported(), [1, 2]),
            retracted => assert_eq!((retracted, &*model.reported()), (&[1][..], &[2][..])),
        }
    });
}
