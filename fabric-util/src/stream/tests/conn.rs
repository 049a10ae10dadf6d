//! Connections over a stream in memory; each test decides what the stream takes and when it ends. How connections begin
//! and end, what their deadlines do, and when a turn asks for another.

use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use fabric_core::{EndpointAttr, Error};

use super::wire::Wire;
use super::*;
use crate::completion_ring::Outbox;
use crate::progress::Progress;
use crate::refusal::RefuseReason;
use crate::stream::phase::Phase;
use crate::stream::refuse;
use crate::stream::testing::HostLog;
use crate::stream::{AckPolicy, Conn, Greeting, Locked, Silence, Timer};

/// An end of a connection, with what its provider knows of it.
pub(super) struct Peer {
    pub(super) conn: Conn<Wire>,
    pub(super) log: HostLog,
    pub(super) wire: Wire,
    pub(super) memory: Vec<u64>,
    pub(super) sends: Arc<CompletionRing>,
    pub(super) recvs: Arc<CompletionRing>,
    pub(super) regions: Arc<RegionTable>,
}

impl Peer {
    fn new(wire: Wire, stall: Option<Duration>) -> Self {
        let stats = Arc::new(Stats::default());
        let ring = || CompletionRing::new(&stats).unwrap();
        let (sends, recvs, regions) = (ring(), ring(), Arc::<RegionTable>::default());
        let context = LinkContext {
            id: EndpointId(1),
            regions: regions.clone(),
            send_ring: sends.clone(),
            recv_ring: recvs.clone(),
            receives: None,
            stats: stats.clone(),
        };
        let mut attr = EndpointAttr::default();
        attr.liveness = Some(Duration::from_secs(1));
        attr.stall = stall;
        let conn = Conn::new("test", &attr, context);
        Peer { conn, log: HostLog::default(), wire, memory: vec![0; 4096], sends, recvs, regions }
    }

    pub(super) fn lock(&self) -> Locked<'_, Wire, &HostLog> {
        self.conn.lock(&self.log)
    }

    fn connect(&self) {
        self.lock().connect(self.wire.clone(), b"hello", None);
    }

    fn accept(&self) {
        let mut greeting = Greeting::default();
        assert_eq!(greeting.read(&mut self.wire.clone()), Ok(true));
        assert_eq!(greeting.data(), b"hello");
        self.lock().accept(self.wire.clone(), &greeting, b"welcome");
    }

    pub(super) fn turn(&self) -> Progress {
        self.lock().turn(&mut [0; 4096], &mut Outbox::none())
    }

    /// Sends so many bytes, as the peer can take them.
    pub(super) fn send(&mut self, number: u32, len: usize) {
        self.send_as(number, len, SendFlags::SIGNALED);
    }

    fn send_as(&mut self, number: u32, len: usize, flags: SendFlags) {
        let addr = self.memory.as_mut_ptr().cast::<u8>();
        let segments = [Segment::new(addr, len, 0)];
        let token = Token::new(0, 0, Side::Send, number);
        let work = SendWork::new(token, SendOp::Send { imm: None }, &segments, flags);
        let mut conn = self.lock();
        // SAFETY: the memory is kept as long as the connection.
        if !unsafe { conn.post_short(&work) } {
            // SAFETY: as above.
            unsafe { conn.link.post_send(&[work]) }.unwrap();
        }
        conn.flush(AckPolicy::Piggyback);
        conn.follow_up();
    }

    /// Reads so many bytes of what `key` opens.
    pub(super) fn read(&mut self, key: u64, len: usize) {
        let addr = self.memory.as_mut_ptr().cast::<u8>();
        let segments = [Segment::new(addr, len, 0)];
        let op = SendOp::Read { from: RemoteAddr { key, addr: 0 } };
        let token = Token::new(0, 0, Side::Send, 0);
        let mut conn = self.lock();
        // SAFETY: the memory is kept as long as the connection.
        let posted = unsafe {
            conn.link.post_send(&[SendWork::new(token, op, &segments, SendFlags::SIGNALED)])
        };
        posted.unwrap();
        conn.flush(AckPolicy::Piggyback);
    }

    /// Has room for so many messages, and says so.
    pub(super) fn receive(&mut self, count: u32) {
        let addr = self.memory.as_mut_ptr().cast::<u8>();
        let segments = [Segment::new(addr, 8 * self.memory.len(), 0)];
        let mut conn = self.lock();
        for number in 0..count {
            let work = RecvWork::new(Token::new(0, 0, Side::Recv, number), &segments);
            // SAFETY: the memory is kept as long as the connection.
            unsafe { conn.link.post_recv(&[work]) }.unwrap();
        }
        conn.flush(AckPolicy::Now);
    }

    pub(super) fn deadlines(&self) -> Vec<Timer> {
        std::mem::take(&mut *self.log.deadlines.borrow_mut())
    }

    pub(super) fn ended(&self) -> Option<DisconnectReason> {
        self.log.events.borrow().iter().find_map(|event| match event {
            Event::Disconnected { reason, .. } => Some(*reason),
            _ => None,
        })
    }

    fn refusal(&self) -> Error {
        let mut events = self.log.events.borrow_mut();
        match events.pop() {
            Some(Event::ConnectFailed { error, .. }) if events.is_empty() => error,
            other => panic!("{other:?} behind {events:?}"),
        }
    }
}

pub(super) fn linked() -> (Peer, Peer) {
    let (near, far) = linked_with(None);
    assert_eq!((near.deadlines(), far.deadlines()), (vec![Timer::Connect], vec![Timer::Connect]));
    (near, far)
}

/// Two ends. The first is not to stall for longer.
pub(super) fn linked_with(stall: Option<Duration>) -> (Peer, Peer) {
    let (near, far) = Wire::pair();
    let (near, mut far) = (Peer::new(near, stall), Peer::new(far, None));
    near.connect();
    assert_eq!(near.turn(), Progress::Idle, "no answer has come");
    far.accept();
    assert_eq!(near.turn(), Progress::More, "the answer came, and more may have");
    far.receive(100);
    rest(&near, &far);
    near.conn.reported();
    far.conn.reported();
    (near, far)
}

/// Gives both ends turns until nothing moves.
pub(super) fn rest(near: &Peer, far: &Peer) {
    while [near, far].map(Peer::turn).iter().any(|found| *found != Progress::Idle) {
        if near.log.closed.get() + far.log.closed.get() == 2 {
            return;
        }
    }
}

#[test]
fn both_ends_hear_of_the_connection_once() {
    let (near, far) = linked();
    let data = |side: &Peer| match &side.log.events.borrow()[..] {
        [Event::Connected { data, .. }] => data.to_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!((data(&near), data(&far)), (b"welcome".to_vec(), Vec::new()));
    // The handshake is done: its deadline has nothing to say.
    near.lock().expired(Timer::Connect);
    far.lock().expired(Timer::Connect);
    assert_eq!((near.ended(), far.ended()), (None, None));
}

#[test]
fn a_connect_fails_with_the_reason_that_the_stream_gives() {
    let refusal = |prepare: &dyn Fn(&mut Wire)| {
        let (near, mut far) = Wire::pair();
        let near = Peer::new(near, None);
        near.connect();
        prepare(&mut far);
        assert_eq!(near.turn(), Progress::Closed);
        assert_eq!((near.log.closed.get(), near.turn()), (1, Progress::Closed));
        near.refusal()
    };
    let ended = |far: &mut Wire| far.out.borrow_mut().ended = true;
    let reset = |far: &mut Wire| far.out.borrow_mut().broken = Some(ErrorKind::ConnectionReset);
    let garbage = |far: &mut Wire| far.out.borrow_mut().bytes.extend(b"SSH-2.0-OpenSSH_9.2");
    assert!(matches!(refusal(&ended), Error::Refused(None)));
    assert!(matches!(refusal(&reset), Error::Refused(None)));
    assert!(matches!(refusal(&|far| refuse(far, RefuseReason::Full)), Error::Refused(None)));
    let rejected = refusal(&|far| Greeting::default().reject(far, b"no"));
    assert!(matches!(rejected, Error::Rejected(data) if **data == *b"no"));
    let unreachable = refusal(&garbage);
    assert!(unreachable.to_string().contains("no fabric listener"), "{unreachable}");
}

#[test]
fn a_transport_that_never_connects_says_why() {
    let refusal = |kind: ErrorKind| {
        let near = Peer::new(Wire::default(), None);
        near.connect();
        *near.wire.connects.borrow_mut() = Some(Ok(false));
        assert_eq!(near.turn(), Progress::Idle, "not yet");
        *near.wire.connects.borrow_mut() = Some(Err(kind.into()));
        assert_eq!(near.turn(), Progress::Closed);
        near.refusal()
    };
    assert!(matches!(refusal(ErrorKind::ConnectionRefused), Error::Refused(None)));
    assert!(matches!(refusal(ErrorKind::TimedOut), Error::TimedOut(None)));
    let unreachable = refusal(ErrorKind::NetworkUnreachable);
    assert!(unreachable.to_string().contains("no way to the address"), "{unreachable}");
}

#[test]
fn deadlines_end_a_handshake_that_does_not() {
    let (near, far) = Wire::pair();
    let (near, far) = (Peer::new(near, None), Peer::new(far, None));
    near.connect();
    near.turn();
    far.accept();
    // The initiator's time is over before the answer is read; the acceptor never hears that its answer got there.
    near.lock().expired(Timer::Connect);
    assert!(matches!(near.refusal(), Error::TimedOut(None)));
    far.lock().expired(Timer::Connect);
    assert_eq!(far.ended(), Some(DisconnectReason::PeerLost));
    assert_eq!((near.log.closed.get(), far.log.closed.get()), (1, 1));
}

#[test]
fn an_application_that_ends_a_connect_cancels_it() {
    let near = Peer::new(Wire::default(), None);
    near.connect();
    near.turn();
    near.lock().end(End::Local);
    assert!(matches!(near.refusal(), Error::Canceled));
    assert_eq!(near.log.closed.get(), 1);
}

#[test]
fn a_full_stream_waits_for_its_event_and_a_turn_goes_on() {
    let (mut near, far) = linked();
    near.wire.out.borrow_mut().capacity = Some(1000);
    near.send(0, 20_000);
    assert!(near.lock().is_full() && !near.lock().wants_turn(), "an event follows");
    assert_eq!(near.turn(), Progress::Idle, "it is still full");
    far.turn();
    // Such an event.
    assert_eq!(near.turn(), Progress::Drained);
    near.wire.out.borrow_mut().capacity = None;
    rest(&near, &far);
    assert!(!near.lock().is_full() && near.wire.out.borrow().bytes.is_empty());
}

#[test]
fn an_acknowledgement_waits_for_the_answer_of_an_application_that_polls() {
    let (mut near, mut far) = linked();
    near.receive(100);
    rest(&near, &far);
    far.log.may_defer.set(true);
    let frames = |far: &Peer| far.wire.out.borrow().bytes.len();
    for number in 0..10 {
        near.send(number, 64);
        for _ in 0..4 {
            assert_eq!(far.turn(), Progress::Drained, "a turn has to follow");
        }
        assert_eq!(frames(&far), 0, "nothing goes without need");
        far.send(number, 64);
        let answer = frames(&far);
        far.turn();
        assert_eq!(frames(&far), answer, "the answer has carried it");
        near.turn();
        assert!(!near.lock().link.sends.awaits_ack());
        rest(&near, &far);
    }
    // Where none comes it goes alone; where no thread polls, at once.
    near.send(10, 64);
    rest(&near, &far);
    assert!(!near.lock().link.sends.awaits_ack());
    far.log.may_defer.set(false);
    near.send(11, 64);
    far.turn();
    assert!(frames(&far) > 0);
}

#[test]
fn one_turn_reads_a_bounded_number_of_times() {
    let (mut near, far) = linked();
    for number in 0..100 {
        near.send(number, 64);
    }
    far.wire.back.borrow_mut().read_max = Some(8);
    far.log.has_ended.set(true);
    let before = far.wire.back.borrow().bytes.len();
    assert_eq!(far.turn(), Progress::More);
    assert_eq!(before - far.wire.back.borrow().bytes.len(), 16 * 8);
}

#[test]
fn the_last_words_get_their_time_and_no_more() {
    let (mut near, far) = linked();
    near.send(0, 64);
    near.wire.out.borrow_mut().capacity = Some(0);
    near.deadlines();
    near.lock().end(End::Local);
    assert_eq!((near.deadlines(), near.log.closed.get()), (vec![Timer::Linger], 0));
    assert!(near.conn.lingers(), "the peer has not taken all");
    // It takes it, and hears that this end was closed.
    near.wire.out.borrow_mut().capacity = None;
    near.turn();
    assert!(near.wire.out.borrow().ended);
    far.turn();
    assert_eq!(far.ended(), Some(DisconnectReason::Remote));
    assert_eq!(near.ended(), Some(DisconnectReason::Local));
    near.conn.reported();
    assert_eq!(take(&near.sends).len(), 1);

    let (near, _far) = linked();
    near.wire.out.borrow_mut().capacity = Some(0);
    near.lock().end(End::Local);
    near.lock().expired(Timer::Linger);
    assert_eq!((near.log.closed.get(), near.conn.lingers()), (1, false), "its time is over");
    assert_eq!(near.turn(), Progress::Closed);
}

/// The endpoint was disconnected while its transport was made: nothing begins any more, on either side.
#[test]
fn one_that_has_ended_does_not_begin() {
    let (near, far) = Wire::pair();
    let (near, far) = (Peer::new(near, None), Peer::new(far, None));
    near.lock().end(End::Local);
    near.connect();
    near.turn();
    assert!(near.wire.out.borrow().bytes.is_empty(), "no hello");
    assert_eq!(near.lock().link.phase(), Phase::Closed);
    assert_eq!(near.log.closed.get(), 2, "the transport that came late is forgotten, too");

    let other = Peer::new(Wire { out: near.wire.out.clone(), ..Wire::default() }, None);
    other.connect();
    other.turn();
    far.lock().end(End::Local);
    far.accept();
    assert!(far.wire.out.borrow().bytes.is_empty(), "no welcome");
    assert_eq!(far.lock().link.phase(), Phase::Closed);
}

#[test]
fn where_no_event_says_that_it_may_connect_it_is_tried_now_and_then() {
    let (near, far) = Wire::pair();
    let (near, far) = (Peer::new(near, None), Peer::new(far, None));
    near.connect();
    assert_eq!(near.deadlines(), [Timer::Connect]);
    for attempt in 0..3 {
        near.wire.gives_up.set(true);
        for _ in 0..2 {
            *near.wire.connects.borrow_mut() = Some(Ok(false));
            assert_eq!(near.turn(), Progress::Idle, "others have the time");
        }
        let deadlines = near.deadlines();
        assert_eq!(deadlines.len(), 1, "one at a time");
        near.wire.gives_up.set(attempt < 2);
        assert!(near.lock().expired(deadlines[0]), "a turn follows");
    }
    assert_eq!(near.turn(), Progress::Idle, "the hello went");
    far.accept();
    near.turn();
    assert_eq!(near.lock().link.phase(), Phase::Open);
    // One that has ended meanwhile is not tried again.
    let other = Peer::new(Wire::pair().0, None);
    other.connect();
    (*other.wire.connects.borrow_mut(), _) = (Some(Ok(false)), other.wire.gives_up.set(true));
    other.turn();
    other.lock().expired(Timer::Connect);
    assert!(matches!(other.refusal(), Error::TimedOut(_)));
    assert!(!other.deadlines().into_iter().any(|timer| other.lock().expired(timer)));
}

#[test]
fn a_stream_that_ends_without_a_word_is_a_lost_peer() {
    for broken in [None, Some(ErrorKind::ConnectionReset)] {
        let (mut near, far) = linked();
        near.send(0, 64);
        (far.wire.out.borrow_mut().ended, far.wire.out.borrow_mut().broken) = (true, broken);
        assert_eq!(near.turn(), Progress::Closed);
        assert_eq!(near.ended(), Some(DisconnectReason::PeerLost));
        assert!(take(&near.sends).is_empty(), "before the application has heard of the end");
        near.conn.reported();
        assert_eq!(statuses(&take(&near.sends)), [Status::PeerLost]);
    }
}

#[test]
fn liveness_watches_what_is_unanswered_and_rests_when_nothing_is() {
    let silence = |unanswered, seconds| {
        let lasts = Duration::from_secs(seconds);
        Some(Silence { lasts, unanswered, held_back: false })
    };
    let (mut near, _far) = linked();
    near.wire.silence.set(silence(true, 0));
    near.send(0, 64);
    assert_eq!(near.deadlines(), [Timer::Liveness]);
    near.wire.silence.set(silence(false, 0));
    near.lock().expired(Timer::Liveness);
    assert_eq!(near.deadlines(), [], "all is answered");

    near.wire.silence.set(silence(true, 9));
    near.send(1, 64);
    assert_eq!(near.deadlines(), [Timer::Liveness], "it wrote again");
    near.lock().expired(Timer::Liveness);
    assert_eq!(near.ended(), Some(DisconnectReason::PeerLost));
    assert_eq!(near.log.closed.get(), 1);
}

#[test]
fn what_a_domain_leaves_behind_says_nothing_more() {
    let (mut near, far) = linked();
    near.send(0, 64);
    let before = near.log.events.borrow().len();
    assert!(near.conn.abandon().is_some_and(|wire| Rc::ptr_eq(&wire.out, &near.wire.out)));
    far.turn();
    assert_eq!(near.turn(), Progress::Closed);
    assert_eq!((near.log.events.borrow().len(), take(&near.sends).len()), (before, 0));
    assert!(near.conn.try_dump().contains("over"));
}

#[test]
fn a_panic_of_the_provider_ends_it_as_internal() {
    let (mut near, _far) = linked();
    near.send(0, 64);
    near.lock().fail();
    let reason = near.ended();
    assert_eq!(reason, Some(DisconnectReason::Internal));
    assert_eq!(near.turn(), Progress::Closed);
    assert!(!near.lock().wants_turn());
}

#[test]
fn what_no_one_waits_for_is_acknowledged_by_what_comes_and_asked_for_in_the_end() {
    const LAZY: SendFlags = SendFlags::SIGNALED.union(SendFlags::LAZY);
    let (mut near, mut far) = linked();
    near.receive(100);
    far.receive(100);
    rest(&near, &far);
    near.log.may_defer.set(true);
    let frames = |peer: &Peer| peer.wire.out.borrow().bytes.len();
    let done = |near: &Peer| {
        let mut out = [RawCompletion::default(); 16];
        near.lock().link.deliver();
        near.sends.take(&mut out)
    };
    // Short and long, so that they go by both ways of a message. What the peer sends acknowledges them.
    for number in 0..4 {
        near.send_as(number, [64, 2000][number as usize % 2], LAZY);
        far.turn();
        assert_eq!(frames(&far), 0, "it was not asked");
    }
    assert_eq!((near.turn(), frames(&near), done(&near)), (Progress::Drained, 0, 0));
    far.send(0, 64);
    while near.turn() == Progress::Drained && near.lock().link.leaves_unasked() {}
    near.turn();
    assert_eq!((frames(&near), done(&near)), (0, 4));
    rest(&near, &far);
    // One that someone waits for asks for all before it.
    near.send_as(4, 64, LAZY);
    near.send(5, 64);
    far.turn();
    assert!(frames(&far) > 0);
    rest(&near, &far);
    assert_eq!(done(&near), 2);
    // By itself it is asked for after some turns; where no application polls, at once.
    near.send_as(6, 64, LAZY);
    far.turn();
    assert!(
        (0..).take_while(|_| frames(&near) == 0 && near.turn() == Progress::Drained).count() > 30
    );
    rest(&near, &far);
    assert_eq!(done(&near), 1);
    near.log.may_defer.set(false);
    near.send_as(7, 64, LAZY);
    far.turn();
    near.turn();
    assert!(frames(&near) > 0);
    rest(&near, &far);
    assert_eq!(done(&near), 1);
}
