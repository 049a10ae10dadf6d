//! Receives that links share: messages that come before there is a receive for them.

use super::*;

/// What each receive has room for.
const ROOM: usize = 12_000;
const RECEIVES: usize = 64;
const SMALL: usize = 512 << 10;

/// The receives, with their memory.
struct Inbox {
    receives: Arc<SharedReceives>,
    memory: Vec<u64>,
    posted: u32,
}

impl Inbox {
    fn new() -> Self {
        let memory = vec![0; RECEIVES * ROOM / 8];
        Inbox { receives: Arc::default(), memory, posted: 0 }
    }

    /// Two links; the second takes its receives from here.
    fn pair(&self, id: u64) -> (Node, Node) {
        self.pair_with_half(id, SMALL)
    }

    fn pair_with_half(&self, id: u64, half: usize) -> (Node, Node) {
        let target = Node::taking_from(Some(self.receives.clone()), EndpointId(id), half);
        connect(Node::with_half(half), target)
    }

    /// Posts the next receive; gives the endpoints that waited.
    fn post(&mut self) -> Vec<EndpointId> {
        let at = self.posted as usize * ROOM;
        let addr = self.memory.as_mut_ptr().cast::<u8>().wrapping_add(at);
        let segments = [Segment::new(addr, ROOM, 0)];
        let work = RecvWork::new(Token::new(0, 0, Side::Recv, self.posted), &segments);
        self.posted += 1;
        // SAFETY: the inbox keeps its memory as long as the links of its test.
        unsafe { self.receives.push(&[work]) }
    }

    /// As `post`, and notifies those of `targets` that waited.
    fn post_for(&mut self, targets: &mut [&mut Node]) {
        let mut woken = self.post();
        assert!(woken.len() <= targets.len(), "{woken:?}");
        for target in targets {
            if let Some(at) = woken.iter().position(|id| *id == target.link.id()) {
                woken.remove(at);
                target.link.receives_posted();
            }
        }
        assert_eq!(woken, [], "each once, and only those that are there");
    }

    fn bytes(&self, number: u32, len: usize) -> Vec<u8> {
        let at = number as usize * ROOM;
        let word = |at: usize| self.memory[at / 8].to_ne_bytes()[at % 8];
        (at..at + len).map(word).collect()
    }
}

#[test]
fn every_operation_waits_for_its_receive_in_every_cut() {
    for max in (1..=120).chain([511, 512, 513, 4096, 1 << 20]) {
        let mut inbox = Inbox::new();
        let (mut a, mut b) = inbox.pair(7);
        let len = if max < 100 { 3_000 } else { ROOM };
        a.put(0, &pattern(len, max));
        let (data, there) = (a.bytes(0, len), RemoteAddr { key: b.key(), addr: 1 });
        let at = RemoteAddr { key: b.key(), addr: (SMALL - 8) as u64 };
        let call = AtomicCall { op: AtomicOp::Add, ty: AtomicType::U64, operand: 5, compare: 0 };
        a.post(SendOp::Send { imm: Some(7) }, 0, len, SendFlags::empty());
        a.post(SendOp::Write { to: there, imm: None }, 0, len, SendFlags::empty());
        a.post(SendOp::Atomic { at, call, fetch: true }, SMALL - 8, 8, SendFlags::empty());
        a.post(SendOp::Write { to: there, imm: Some(9) }, 0, len, SendFlags::empty());
        a.post(SendOp::Read { from: there }, len, len, SendFlags::FENCE);
        settle(&mut a, &mut b, max);
        assert!(a.take_sends().is_empty() && b.take_recvs().is_empty(), "pieces of {max}");
        assert_eq!(b.bytes(SMALL, SMALL), vec![0; SMALL], "nothing behind was executed");
        inbox.post_for(&mut [&mut b]);
        settle(&mut a, &mut b, max);
        assert_eq!(statuses(&a.take_sends()), [Status::Ok; 3], "pieces of {max}");
        inbox.post_for(&mut [&mut b]);
        settle(&mut a, &mut b, max);
        assert_eq!(statuses(&a.take_sends()), [Status::Ok; 2], "pieces of {max}");
        let got = b.take_recvs();
        let fields: Vec<_> =
            got.iter().map(|c| (c.token.sequence(), c.endpoint, c.len, c.immediate)).collect();
        let (id, total) = (Some(EndpointId(7)), len as u64);
        assert_eq!(fields, [(0, id, total, Some(7)), (1, id, total, Some(9))]);
        assert_eq!((inbox.bytes(0, len), a.bytes(len, len)), (data.clone(), data));
        assert_eq!(b.bytes(2 * SMALL - 8, 8), 5u64.to_ne_bytes());
    }
}

#[derive(Clone, Debug)]
enum Act {
    Send { len: usize, unsignaled: bool },
    Inject { len: usize },
    Write { len: usize, at: usize, imm: bool, unsignaled: bool },
    Read { len: usize, fence: bool },
    Add { value: u64 },
    Receive,
    Carry { max: usize, back: bool },
}

/// With the connection that it is for.
fn act() -> impl Strategy<Value = (usize, Act)> {
    let len = prop_oneof![0usize..70, 2040usize..2056, 4090usize..4102, Just(ROOM)];
    let act = prop_oneof![
        3 => (len.clone(), any::<bool>()).prop_map(|(len, unsignaled)| Act::Send { len, unsignaled }),
        2 => (0usize..65).prop_map(|len| Act::Inject { len }),
        2 => (len, 0usize..100_000, any::<bool>(), any::<bool>())
            .prop_map(|(len, at, imm, unsignaled)| Act::Write { len, at, imm, unsignaled }),
        1 => (0usize..4102, any::<bool>()).prop_map(|(len, fence)| Act::Read { len, fence }),
        2 => any::<u64>().prop_map(|value| Act::Add { value }),
        2 => Just(Act::Receive),
        5 => (prop_oneof![1usize..300, 1usize..100_000], any::<bool>())
            .prop_map(|(max, back)| Act::Carry { max, back }),
    ];
    (0usize..2, act)
}

/// Where in the initiator's half what comes back goes, and in the target's what is read, and the counter.
const BACK: usize = SMALL / 4;
const FIXED: usize = SMALL / 2;
const COUNTER: usize = SMALL - 8;

/// A connection of a program, and what should come of it.
struct Course {
    a: Node,
    b: Node,
    pipes: [Vec<u8>; 2],
    signaled: Vec<u32>,
    messages: Vec<(bool, Vec<u8>)>,
    model: Vec<u8>,
    counter: u64,
    /// Where results come, and what they are.
    results: Vec<(usize, Vec<u8>)>,
    room: usize,
}

impl Course {
    fn new(inbox: &Inbox, id: u64) -> Self {
        let (mut a, mut b) = inbox.pair(id);
        a.put(0, &pattern(ROOM + 1000, id as usize));
        b.put(SMALL + FIXED, &pattern(4200, id as usize));
        let model = b.bytes(SMALL, SMALL);
        let (signaled, messages, results) = (Vec::new(), Vec::new(), Vec::new());
        let (pipes, counter, room) = (Default::default(), 0, BACK);
        Course { a, b, pipes, signaled, messages, model, counter, results, room }
    }

    fn post(&mut self, op: SendOp, offset: usize, len: usize, flags: SendFlags) {
        if flags.contains(SendFlags::SIGNALED) {
            self.signaled.push(self.a.posted);
        }
        self.a.post_with(op, offset, len, flags);
    }

    fn back(&mut self, len: usize, result: Vec<u8>) -> usize {
        let at = self.room;
        self.room += len.next_multiple_of(8);
        self.results.push((at, result));
        at
    }

    fn run(&mut self, act: &Act) {
        let signaled = |not: bool| if not { SendFlags::empty() } else { SendFlags::SIGNALED };
        let from = self.a.posted as usize * 7 % 1000;
        let at = |addr: usize, b: &Node| RemoteAddr { key: b.key(), addr: addr as u64 };
        match *act {
            Act::Send { len, unsignaled } => {
                self.messages.push((false, self.a.bytes(from, len)));
                self.post(SendOp::Send { imm: None }, from, len, signaled(unsignaled));
            }
            Act::Inject { len } => {
                let data = self.a.bytes(from, len);
                self.a.put(SMALL - 64, &data);
                self.post(SendOp::Send { imm: None }, SMALL - 64, len, SendFlags::INJECT);
                self.a.put(SMALL - 64, &[0xee; 64]);
                self.messages.push((false, data));
            }
            Act::Write { len, at: addr, imm, unsignaled } => {
                let data = self.a.bytes(from, len);
                let op = SendOp::Write { to: at(addr, &self.b), imm: imm.then_some(1) };
                self.post(op, from, len, signaled(unsignaled));
                self.model[addr..addr + len].copy_from_slice(&data);
                if imm {
                    self.messages.push((true, data));
                }
            }
            Act::Read { len, fence } => {
                let from = at(FIXED, &self.b);
                let to = self.back(len, self.model[FIXED..FIXED + len].to_vec());
                let flags = if fence { SendFlags::FENCE } else { SendFlags::empty() };
                self.post(SendOp::Read { from }, to, len, flags | SendFlags::SIGNALED);
            }
            Act::Add { value } => {
                let at = at(COUNTER, &self.b);
                let (op, ty) = (AtomicOp::Add, AtomicType::U64);
                let call = AtomicCall { op, ty, operand: value, compare: 0 };
                let to = self.back(8, self.counter.to_ne_bytes().to_vec());
                self.counter = self.counter.wrapping_add(value);
                self.post(SendOp::Atomic { at, call, fetch: true }, to, 8, SendFlags::SIGNALED);
            }
            Act::Carry { max, back: false } => {
                carry(&mut self.a, &mut self.b, max, &mut self.pipes[0]);
            }
            Act::Carry { max, back: true } => {
                carry(&mut self.b, &mut self.a, max, &mut self.pipes[1]);
            }
            Act::Receive => {}
        }
    }

    /// Compares with what should be; gives the receives that were taken.
    fn check(&mut self, inbox: &Inbox) -> Vec<u32> {
        let done = self.a.take_sends();
        assert!(done.iter().all(|c| c.status == Status::Ok));
        let done: Vec<_> = done.iter().map(|c| c.token.sequence()).collect();
        assert_eq!(done, self.signaled, "{}", self.a.link.dump());
        let got = self.b.take_recvs();
        assert_eq!(got.len(), self.messages.len(), "{}", self.b.link.dump());
        let mut taken = Vec::new();
        for (completion, (write, bytes)) in got.iter().zip(&self.messages) {
            let number = completion.token.sequence();
            assert_eq!(completion.endpoint, Some(self.b.link.id()));
            assert_eq!((completion.len as usize, completion.remote_write), (bytes.len(), *write));
            if !write {
                assert!(inbox.bytes(number, bytes.len()) == *bytes, "receive {number}");
            }
            taken.push(number);
        }
        assert!(taken.is_sorted(), "oldest first: {taken:?}");
        for (at, bytes) in &self.results {
            assert!(self.a.bytes(*at, bytes.len()) == *bytes, "a result at {at}");
        }
        self.model[COUNTER..].copy_from_slice(&self.counter.to_ne_bytes());
        assert!(self.b.bytes(SMALL, SMALL) == self.model, "the target's memory");
        taken
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    /// Two senders, and receives that come late and one at a time: everything is executed once, in its order.
    #[test]
    fn random_programs_match_the_model(acts in prop::collection::vec(act(), 1..60)) {
        let mut inbox = Inbox::new();
        let mut courses = [Course::new(&inbox, 1), Course::new(&inbox, 2)];
        let needs = |courses: &[Course; 2]| courses.iter().map(|c| c.messages.len()).sum::<usize>();
        for (which, act) in &acts {
            if matches!(act, Act::Receive) {
                let [one, two] = &mut courses;
                inbox.post_for(&mut [&mut one.b, &mut two.b]);
            }
            courses[*which].run(act);
        }
        loop {
            courses.iter_mut().for_each(|course| settle(&mut course.a, &mut course.b, 100_000));
            if inbox.posted as usize >= needs(&courses) {
                break;
            }
            let [one, two] = &mut courses;
            inbox.post_for(&mut [&mut one.b, &mut two.b]);
        }
        let mut taken: Vec<_> = courses.iter_mut().flat_map(|course| course.check(&inbox)).collect();
        taken.sort_unstable();
        prop_assert!(taken.into_iter().eq(0..needs(&courses) as u32), "each is taken once");
    }
}

/// However often one endpoint would wait again, a post wakes each once; and a link that has ended waits no more.
#[test]
fn those_who_wait_are_few_and_alive() {
    let mut inbox = Inbox::new();
    let mut pairs = [inbox.pair(1), inbox.pair(2), inbox.pair(3), inbox.pair(4)];
    for (a, b) in &mut pairs {
        for _ in 0..3 {
            a.post(SendOp::Send { imm: None }, 0, 8, SendFlags::empty());
        }
        settle(a, b, 50);
    }
    pairs[1].0.link.end(End::Local);
    let (a, b) = &mut pairs[1];
    settle(a, b, 50);
    pairs[2].1.link.end(End::Quiet);
    pairs[3].1.link.end(End::Lost);
    assert_eq!(inbox.post(), [EndpointId(1)]);
    assert_eq!(inbox.post(), []);
    assert!(pairs.iter_mut().all(|(_, b)| b.take_recvs().is_empty()));
    // As by a thread that was about to notify it.
    pairs[1].1.link.receives_posted();
    let (a, b) = &mut pairs[0];
    b.link.receives_posted();
    b.link.receives_posted();
    settle(a, b, 50);
    assert_eq!(statuses(&b.take_recvs()), [Status::Ok; 2]);
    assert_eq!(inbox.post(), [EndpointId(1)]);
}

#[test]
fn an_end_in_the_middle_of_a_message_ends_its_receive_alone() {
    for from in 0..4 {
        let mut inbox = Inbox::new();
        let (mut a, mut b) = inbox.pair_with_half(1, HALF);
        let (mut c, mut d) = inbox.pair(2);
        inbox.post();
        inbox.post();
        let to = RemoteAddr { key: b.key(), addr: 0 };
        a.post(SendOp::Write { to, imm: Some(1) }, 0, HALF, SendFlags::empty());
        carry(&mut a, &mut b, 1000, &mut Vec::new());
        match from {
            0 => {
                a.link.end(End::Local);
                settle(&mut a, &mut b, 1 << 20);
            }
            1 => b.link.end(End::Local),
            2 => b.link.end(End::Lost),
            _ => {
                b.link.end(End::Quiet);
                b.link.end(End::Quiet);
            }
        }
        c.post(SendOp::Send { imm: None }, 0, 8, SendFlags::empty());
        settle(&mut c, &mut d, 1 << 20);
        let ended = |node: &mut Node| -> Vec<_> {
            let all = node.take_recvs();
            all.iter().map(|c| (c.token.sequence(), c.status, c.endpoint)).collect()
        };
        assert_eq!(ended(&mut b), [(0, Status::Canceled, Some(EndpointId(1)))], "end {from}");
        assert_eq!(ended(&mut d), [(1, Status::Ok, Some(EndpointId(2)))], "end {from}");
    }
}

#[test]
fn an_oversize_message_ends_its_receive_alone() {
    let mut inbox = Inbox::new();
    let (mut a, mut b) = inbox.pair(1);
    a.post(SendOp::Send { imm: None }, 0, ROOM + 1, SendFlags::empty());
    settle(&mut a, &mut b, 1 << 20);
    inbox.post();
    inbox.post_for(&mut [&mut b]);
    b.link.receives_posted();
    settle(&mut a, &mut b, 1 << 20);
    assert_eq!(statuses(&a.take_sends()), [Status::TooLong]);
    assert_eq!(statuses(&b.take_recvs()), [Status::TooLong]);
}

fn frame(kind: Kind, len: u32, ack: u32, seq: u32) -> Vec<u8> {
    // As of a side that shares its receives, or of one that has none.
    let shares = matches!(kind, Kind::NotReady | Kind::Ready | Kind::Ack);
    let credit = if shares { u32::MAX } else { 0 };
    let mut bytes = Vec::new();
    Header { kind, ask: false, len, ack, credit, seq }.encode(&mut bytes);
    bytes.resize(bytes.len() + len as usize, 1);
    bytes
}

#[test]
fn a_breach_takes_no_shared_receive() {
    let send = Kind::Send { total: 8, imm: None };
    // One that acknowledges what was never sent, and one out of its order.
    for bytes in [frame(send, 8, 1, 0), frame(send, 8, 0, 1)] {
        let mut inbox = Inbox::new();
        let (_, mut b) = inbox.pair(1);
        inbox.post();
        b.feed(&bytes);
        assert_eq!(b.reasons(), [DisconnectReason::Protocol]);
        assert_eq!((inbox.receives.len(), b.take_recvs().len()), (1, 0));
    }
}

/// A target that refuses, or is ready, where it cannot be.
#[test]
fn refusals_of_what_cannot_be_refused_are_breaches() {
    let (refused, ready) = (Kind::NotReady, Kind::Ready);
    let cases = [
        ("a write without immediate data", frame(refused, 0, 0, 0)),
        ("what was not sent", frame(refused, 0, 0, 2)),
        ("what was long ago", frame(refused, 0, 0, u32::MAX)),
        ("what it has accepted", frame(refused, 0, 2, 1)),
        (
            "what it has accepted before",
            [frame(Kind::Ack, 0, 2, 0), frame(refused, 0, 0, 1)].concat(),
        ),
        ("twice", [frame(refused, 0, 0, 1), frame(refused, 0, 0, 1)].concat()),
        ("not again yet", [refused, ready, refused].map(|kind| frame(kind, 0, 0, 1)).concat()),
        ("ready, and was", frame(ready, 0, 0, 0)),
        ("ready twice", [refused, ready, ready].map(|kind| frame(kind, 0, 0, 1)).concat()),
    ];
    for (what, bytes) in cases {
        let (mut a, mut b) = Inbox::new().pair(1);
        let to = RemoteAddr { key: b.key(), addr: 0 };
        a.post(SendOp::Write { to, imm: None }, 0, 8, SendFlags::empty());
        a.post(SendOp::Send { imm: None }, 0, 8, SendFlags::empty());
        carry(&mut a, &mut b, 1 << 20, &mut Vec::new());
        a.feed(&bytes);
        assert_eq!(a.reasons(), [DisconnectReason::Protocol], "{what}");
    }
    let (mut a, mut b) = pair();
    a.post(SendOp::Send { imm: None }, 0, 8, SendFlags::empty());
    let mut bytes = Vec::new();
    Header { kind: Kind::Ack, ask: false, len: 0, ack: 0, credit: 1, seq: 0 }.encode(&mut bytes);
    a.feed(&bytes);
    carry(&mut a, &mut b, 1 << 20, &mut Vec::new());
    bytes.clear();
    Header { kind: refused, ask: false, len: 0, ack: 0, credit: 1, seq: 0 }.encode(&mut bytes);
    a.feed(&bytes);
    assert_eq!(a.reasons(), [DisconnectReason::Protocol], "its receives are not shared");
}

/// An initiator that goes on before it may.
#[test]
fn what_was_refused_comes_again_only_when_it_may() {
    let send = |seq| frame(Kind::Send { total: 8, imm: None }, 8, 0, seq);
    let resume = frame(Kind::Resume, 0, 0, 0);
    let cases = [
        ("goes on, and nothing was refused", resume.clone()),
        ("goes on twice", [send(0), resume.clone(), resume.clone()].concat()),
        ("again before there is a receive", [send(0), resume.clone(), send(0)].concat()),
        ("what was behind it first", [send(0), send(1), resume, send(1)].concat()),
    ];
    for (what, bytes) in cases {
        let inbox = Inbox::new();
        let (_, mut b) = inbox.pair(1);
        b.feed(&bytes);
        assert_eq!(b.reasons(), [DisconnectReason::Protocol], "{what}");
        assert!(b.take_recvs().is_empty(), "{what}");
    }
    // What comes before it knows is discarded, whatever it is.
    let (_, mut b) = Inbox::new().pair(1);
    b.feed(&[send(0), send(1), send(7), send(0)].concat());
    assert_eq!((b.reasons(), b.link.phase()), (Vec::new(), Phase::Open));
}
