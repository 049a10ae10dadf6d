//! Event sinks are user code: they panic, call back, block, and let go of the last of a domain.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use fabric_core::provider::RawRequest;
use fabric_core::{
    CqAttr, CqOps, DisconnectReason, DomainAttr, DomainOps, EndpointAttr, EndpointId, EndpointOps,
    Error, Event, EventSink, Info, ListenerAttr, ListenerId, ListenerOps, Provider, RawCompletion,
    RecvWork, Side, Status, Token,
};
use provider_verbs::TestLimits;
use provider_verbs::{VerbsCq, VerbsDomain, VerbsEndpoint, VerbsListener, VerbsProvider};

use crate::rig::{SOON, choice};

/// Keeps events in words, then does something with each.
struct Sink {
    seen: Mutex<Vec<String>>,
    act: Box<dyn Fn(&Event) + Send + Sync>,
}

impl EventSink for Sink {
    fn event(&self, event: Event) {
        self.seen.lock().unwrap().push(format!("{event:?}"));
        (self.act)(&event);
    }
}

impl Sink {
    fn new(act: impl Fn(&Event) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Sink { seen: Mutex::default(), act: Box::new(act) })
    }

    fn has(&self, what: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|one| one.contains(what)).count()
    }

    fn waits_for(&self, what: &str, count: usize) {
        until(&format!("{count} of {what}: {:?}", self.seen), || self.has(what) >= count);
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + SOON.unwrap();
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn info(provider: &VerbsProvider) -> Info {
    let wanted = format!("{:?}", choice());
    let usable = provider.devices().into_iter().filter_map(|device| device.state.ok());
    let mut all: Vec<_> = usable.collect();
    all.sort_by_key(|info| !wanted.contains(&info.device));
    all.swap_remove(0)
}

fn open(test_limits: TestLimits, sink: &Arc<Sink>) -> VerbsDomain {
    let provider = VerbsProvider::with_test_limits(test_limits);
    provider.open(&info(&provider), &DomainAttr::default(), sink.clone()).unwrap()
}

/// Two endpoints of a domain, number 1 and 2.
struct Pair {
    one: Arc<VerbsEndpoint>,
    two: Arc<VerbsEndpoint>,
    queue: VerbsCq,
    listener: VerbsListener,
    domain: VerbsDomain,
}

impl Pair {
    fn new(domain: VerbsDomain) -> Self {
        let queue = domain.completion_queue(&CqAttr::new(1024)).unwrap();
        let endpoint = |id| {
            let attr = EndpointAttr::default();
            Arc::new(domain.endpoint(EndpointId(id), &attr, &queue, &queue).unwrap())
        };
        let (one, two) = (endpoint(1), endpoint(2));
        let ip = info(&VerbsProvider::new()).addresses[0];
        let listener = domain.listen(ListenerId(9), (ip, 0).into(), &ListenerAttr::default());
        Pair { one, two, queue, listener: listener.unwrap(), domain }
    }

    fn request(&self) -> RawRequest {
        self.one.connect(self.listener.local_addr(), &[]).unwrap();
        let mut found = None;
        until("a request", || {
            found = self.listener.next_request();
            found.is_some()
        });
        found.unwrap()
    }

    /// A receive of nothing.
    fn receive(&self, member: u32) -> Token {
        let token = Token::new(member, 0, Side::Recv, 0);
        let work = RecvWork::new(token, &[]);
        // SAFETY: there is no memory.
        assert_eq!(unsafe { self.one.post_recv(&[work]) }.accepted, 1);
        token
    }

    fn poll(&self) -> Option<RawCompletion> {
        let mut out = [RawCompletion::default()];
        (self.queue.poll(&mut out) == 1).then(|| out[0])
    }
}

/// Panics lose one event to the sink, and nothing else.
pub(crate) fn may_panic() {
    let sink = Sink::new(|_| resume_unwind(Box::new("as a user's sink might")));
    let pair = Pair::new(open(TestLimits::default(), &sink));
    let request = pair.request();
    pair.two.accept(request.id, &[]).unwrap();
    sink.waits_for("Connected", 2);
    let token = pair.receive(1);
    pair.two.disconnect();
    sink.waits_for("Disconnected", 2);
    let mut got = None;
    until("the receive's end", || {
        got = pair.poll();
        got.is_some()
    });
    assert_eq!(got.map(|one| (one.token, one.status)), Some((token, Status::Canceled)));
    assert_eq!(sink.has("Disconnected"), 2, "{:?}", sink.seen);
}

/// The sink calls back into what it hears of; and no completion overtakes the event that it is canceled by.
pub(crate) fn may_call_back() {
    static PAIR: OnceLock<Pair> = OnceLock::new();
    static EARLY: AtomicUsize = AtomicUsize::new(0);
    let sink = Sink::new(|event| {
        let Some(pair) = PAIR.get() else { return };
        std::thread::sleep(Duration::from_millis(50));
        if let Event::Disconnected { endpoint: EndpointId(1), .. } = event {
            // A poll finds the end, whose completions are held back until this returns.
            EARLY.fetch_add(usize::from(pair.poll().is_some()), Ordering::Relaxed);
        }
        pair.one.disconnect();
        pair.two.disconnect();
        let _ = (pair.one.dump(), pair.queue.arm(), pair.domain.dump(), pair.one.local_addr());
    });
    let pair = PAIR.get_or_init(|| Pair::new(open(TestLimits::default(), &sink)));
    pair.receive(1);
    let request = pair.request();
    // The first event of a connection ends it.
    pair.two.accept(request.id, &[]).unwrap();
    until("the receive's end", || pair.poll().is_some());
    sink.waits_for("endpoint: EndpointId(1)", 1);
    assert_eq!(EARLY.load(Ordering::Relaxed), 0, "before its event");
}

/// The last of a domain goes on the domain's own thread.
pub(crate) fn may_drop_the_domain() {
    let held = Arc::new(Mutex::new(None::<Pair>));
    let gone = Arc::new(AtomicBool::new(false));
    let (to_drop, done) = (held.clone(), gone.clone());
    let sink = Sink::new(move |event| {
        if matches!(event, Event::Connected { endpoint: EndpointId(1), .. }) {
            drop(to_drop.lock().unwrap().take());
            done.store(true, Ordering::Release);
        }
    });
    let pair = Pair::new(open(TestLimits::default(), &sink));
    let request = pair.request();
    let two = pair.two.clone();
    *held.lock().unwrap() = Some(pair);
    two.accept(request.id, &[]).unwrap();
    drop(two);
    until("the domain's drop", || gone.load(Ordering::Acquire));
    until("the thread's end", || Arc::strong_count(&sink) == 1);
}

/// A fault of the provider on its thread: each endpoint ends, once, and the process goes on.
pub(crate) fn a_fault_ends_the_domain() {
    let sink = Sink::new(|_| ());
    let pair = Pair::new(open(TestLimits { thread_panics: true, ..TestLimits::default() }, &sink));
    pair.receive(1);
    pair.one.connect(pair.listener.local_addr(), &[]).unwrap();
    sink.waits_for("ConnectFailed", 1);
    sink.waits_for("Disconnected", 1);
    until("the receive's end", || pair.poll().is_some());
    let refused = pair.domain.completion_queue(&CqAttr::new(8));
    assert!(matches!(refused.err(), Some(Error::DeviceLost)));
    pair.one.disconnect();
    std::thread::sleep(Duration::from_millis(100));
    let seen = sink.seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(
        seen.iter().all(|one| one.contains(&format!("{:?}", DisconnectReason::Internal))),
        "{seen:?}"
    );
}
