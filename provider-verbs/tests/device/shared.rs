//! Receives of a shared queue that a message has begun, when their connection ends. The message stops in its midst because the
//! sender's device finds no memory for the rest; no handle posts such a one, so the provider is driven by its own interface.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fabric_core::{
    Access, Capabilities, CqAttr, CqOps, Device, DomainAttr, DomainOps, EndpointAttr, EndpointId,
    EndpointOps, Event, EventSink, Info, ListenerAttr, ListenerId, ListenerOps, Provider,
    RawCompletion, RecvWork, RegistrationOps, Segment, SendFlags, SendOp, SendWork,
    SharedReceiveAttr, SharedReceiveOps, Side, Status, Token,
};
use provider_verbs::{VerbsCq, VerbsDomain, VerbsEndpoint, VerbsListener, VerbsProvider};

use crate::rig::choice;

/// Of the part of a message that arrives: several packets of any MTU.
const PART: usize = 16 << 10;
/// Of a receive.
const ROOM: usize = 64 << 10;
const SOON: Duration = Duration::from_secs(30);
/// So long nothing comes that never does.
const QUIET: Duration = Duration::from_millis(300);

struct Sink(Mutex<Sender<Event>>);

impl EventSink for Sink {
    fn event(&self, event: Event) {
        let _ = self.0.lock().unwrap().send(event);
    }
}

/// A domain with a shared queue, to which receives were posted.
struct Bed {
    // In this order: what uses another comes first.
    shared: Box<dyn SharedReceiveOps>,
    listener: VerbsListener,
    sends: VerbsCq,
    receives: VerbsCq,
    events: Receiver<Event>,
    region: Box<dyn RegistrationOps>,
    memory: &'static mut [u8],
    domain: VerbsDomain,
}

fn device() -> Info {
    let wanted = choice();
    let devices = VerbsProvider::new().devices().into_iter();
    let usable = devices.filter_map(|Device { state, .. }| state.ok());
    let named = |info: &Info| format!("{wanted}").ends_with(&info.device);
    let mut usable = usable.collect::<Vec<_>>();
    let at = usable.iter().position(named).unwrap_or(0);
    usable.swap_remove(at)
}

fn token(sequence: u32) -> Token {
    Token::new(9, 1, Side::Recv, sequence)
}

impl Bed {
    /// `None` where the device has no shared receive queues.
    fn new(posted: u32) -> Option<Self> {
        let info = device();
        if !info.capabilities.contains(Capabilities::SHARED_RECEIVES) {
            println!("{} has no shared receive queues", info.device);
            return None;
        }
        let (sender, events) = channel();
        let domain = VerbsProvider::new()
            .open(&info, &DomainAttr::default(), Arc::new(Sink(Mutex::new(sender))))
            .unwrap();
        let memory = Vec::leak(vec![0; ROOM * (posted as usize + 2)]);
        // SAFETY: it is never freed.
        let region = unsafe {
            domain.register(memory.as_mut_ptr(), memory.len(), Access::LOCAL_WRITE).unwrap()
        };
        let queue = || domain.completion_queue(&CqAttr::new(64)).unwrap();
        let (sends, receives) = (queue(), queue());
        let ip = *info.addresses.iter().find(|ip| ip.is_ipv4()).or(info.addresses.first()).unwrap();
        let at = SocketAddr::new(ip, 0);
        let listener = domain.listen(ListenerId(1), at, &ListenerAttr::default()).unwrap();
        let shared = domain.shared_receives(&SharedReceiveAttr::new(16), &receives).unwrap();
        let region = Box::new(region);
        let bed = Bed { shared, listener, sends, receives, events, region, memory, domain };
        (0..posted).for_each(|sequence| bed.post(sequence));
        Some(bed)
    }

    fn segment(&self, at: usize, len: usize) -> Segment {
        let addr = self.memory[at..at + len].as_ptr().cast_mut();
        Segment::new(addr, len, self.region.local_key())
    }

    fn post(&self, sequence: u32) {
        let segments = [self.segment(sequence as usize * ROOM, ROOM)];
        let work = [RecvWork::new(token(sequence), &segments)];
        // SAFETY: the memory stays.
        let posted = unsafe { self.shared.post_recv(&work) };
        assert!(posted.accepted == 1 && posted.refusal.is_none(), "{posted:?}");
    }

    fn event(&self) -> Event {
        self.events.recv_timeout(SOON).unwrap()
    }

    /// A connected pair; the second takes its receives from the shared queue.
    fn pair(&self, first: u64) -> (VerbsEndpoint, VerbsEndpoint) {
        let attr = EndpointAttr::default();
        let (from, to) = (EndpointId(first), EndpointId(first + 1));
        let from = self.domain.endpoint(from, &attr, &self.sends, &self.sends).unwrap();
        let to = self.domain.endpoint_sharing(to, &attr, &self.sends, &*self.shared).unwrap();
        from.connect(self.listener.local_addr(), &[]).unwrap();
        let mut connected = 0;
        while connected < 2 {
            match self.event() {
                Event::ConnectRequest { .. } => {
                    to.accept(self.listener.next_request().unwrap().id, &[]).unwrap();
                }
                Event::Connected { .. } => connected += 1,
                // Of an earlier pair.
                Event::Disconnected { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        (from, to)
    }

    /// Sends a message, or the part of one that the device can read. Only the poll of its completion ends the connection.
    fn send(&self, from: &VerbsEndpoint, whole: bool) {
        let good = self.segment(self.memory.len() - ROOM, PART);
        let bad = Segment::new(good.addr, PART, 0x00de_ad00);
        let segments = [good, if whole { good } else { bad }];
        let op = SendOp::Send { imm: None };
        let work =
            [SendWork::new(Token::new(1, 1, Side::Send, 0), op, &segments, SendFlags::SIGNALED)];
        // SAFETY: the memory stays.
        let posted = unsafe { from.post_send(&work) };
        assert!(posted.refusal.is_none(), "{posted:?}");
        // It is there then.
        std::thread::sleep(2 * QUIET);
    }

    /// The next completion of a receive.
    fn next(&self) -> RawCompletion {
        let until = Instant::now() + SOON;
        loop {
            let mut out = [RawCompletion::default()];
            if self.receives.poll(&mut out) == 1 {
                return out[0];
            }
            assert!(Instant::now() < until, "no receive completes");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn none(&self) {
        std::thread::sleep(QUIET);
        let mut out = [RawCompletion::default()];
        assert_eq!(self.receives.poll(&mut out), 0, "{out:?}");
    }

    /// The next completion is of the begun receive; the others stay for another endpoint.
    fn only_begun_ends(self, ended: u64, ends: (VerbsEndpoint, VerbsEndpoint)) {
        let begun = self.next();
        assert_eq!((begun.token, begun.status), (token(0), Status::Canceled));
        assert_eq!(begun.endpoint, Some(EndpointId(ended)));
        self.none();
        self.goes_on(ends);
    }

    /// Another endpoint's message takes the next receive.
    fn goes_on(self, ended: (VerbsEndpoint, VerbsEndpoint)) {
        let (from, to) = self.pair(20);
        self.send(&from, true);
        let next = self.next();
        assert_eq!((next.token, next.status, next.len), (token(1), Status::Ok, 2 * PART as u64));
        assert_eq!(next.endpoint, Some(EndpointId(21)));
        from.quiesce().unwrap();
        to.quiesce().unwrap();
        drop((ended, from, to));
        self.none();
        self.shared.quiesce().unwrap();
        self.none();
    }
}

fn disconnected(bed: &Bed, ended: u64) {
    loop {
        match bed.event() {
            Event::Disconnected { endpoint, .. } if endpoint == EndpointId(ended) => return,
            Event::Disconnected { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The end by this side.
pub(crate) fn disconnect_ends_what_was_begun() {
    let Some(bed) = Bed::new(3) else { return };
    let (from, to) = bed.pair(1);
    bed.send(&from, false);
    bed.none();
    to.disconnect();
    disconnected(&bed, 2);
    bed.only_begun_ends(2, (from, to));
}

/// The end by the peer, whose device stopped the message.
pub(crate) fn peer_ends_what_was_begun() {
    let Some(bed) = Bed::new(3) else { return };
    let (from, to) = bed.pair(1);
    bed.send(&from, false);
    bed.none();
    // The completion waits for the event.
    assert_eq!(bed.sends.poll(&mut [RawCompletion::default()]), 0);
    disconnected(&bed, 2);
    bed.only_begun_ends(2, (from, to));
}

/// The end because the endpoint goes, whose queue pair goes at once.
pub(crate) fn quiesce_ends_what_was_begun() {
    for _ in 0..10 {
        let Some(bed) = Bed::new(3) else { return };
        let (from, to) = bed.pair(1);
        bed.send(&from, false);
        let start = Instant::now();
        to.quiesce().unwrap();
        println!("quiesced after {:.2?}", start.elapsed());
        bed.only_begun_ends(2, (from, to));
    }
}

/// One that has begun nothing ends nothing, and a message that waits for a receive gets none from it.
pub(crate) fn ends_leave_the_rest() {
    let Some(bed) = Bed::new(1) else { return };
    let (from, to) = bed.pair(1);
    bed.send(&from, true);
    let first = bed.next();
    assert_eq!((first.token, first.status), (token(0), Status::Ok));
    // This one waits.
    bed.send(&from, true);
    bed.none();
    to.quiesce().unwrap();
    bed.post(1);
    bed.none();
    bed.goes_on((from, to));
}
