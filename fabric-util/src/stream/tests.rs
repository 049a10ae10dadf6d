//! Two links against each other, without sockets: every way to cut the streams into pieces. In `ends`, what
//! ends a connection; in `shared`, receives that links share; in `lent`, what is beside the stream; in `breaches`
//! and `bits`, a peer that is almost right.

mod bits;
mod breaches;
mod conn;
mod ends;
mod late;
mod lent;
mod shared;
mod stalls;
mod wire;

use std::sync::Arc;

use crate::stats::Stats;
use fabric_core::{
    Access, AtomicCall, AtomicOp, AtomicType, DisconnectReason, EndpointId, Event, RawCompletion,
    RecvWork, RegistrationOps, RemoteAddr, Segment, SendFlags, SendOp, SendWork, Side, Status,
    Token,
};
use proptest::prelude::*;

use super::testing::{Pipe, Taker};
use super::{End, Link, LinkContext, Phase, READS, SharedReceives, Transport};
use crate::completion_ring::CompletionRing;
use crate::region_table::{RegionTable, Registration};
use crate::stream::wire::frame::{Header, Kind};

const HALF: usize = 1 << 20;

/// A link with its memory: the first half is for its own operations, the second is the peer's to reach.
struct Node {
    link: Link,
    memory: Vec<u64>,
    registration: Registration,
    sends: Arc<CompletionRing>,
    recvs: Arc<CompletionRing>,
    reasons: Vec<DisconnectReason>,
    stats: Arc<Stats>,
    posted: u32,
    received: u32,
}

impl Node {
    fn new() -> Self {
        Node::with_half(HALF)
    }

    fn with_half(half: usize) -> Self {
        Node::taking_from(None, EndpointId(1), half)
    }

    fn taking_from(receives: Option<Arc<SharedReceives>>, id: EndpointId, half: usize) -> Self {
        let stats = Arc::new(Stats::default());
        let (table, reasons) = (Arc::new(RegionTable::default()), Vec::new());
        let mut memory = vec![0u64; 2 * half / 8];
        let shared = memory.as_mut_ptr().cast::<u8>().wrapping_add(half);
        let registration = // SAFETY: the node keeps its memory as long as the registration.
        unsafe { Registration::new("test", &table, (shared, half), Access::ALL) }.unwrap();
        let (sends, recvs) =
            (CompletionRing::new(&stats).unwrap(), CompletionRing::new(&stats).unwrap());
        let link = Link::new(LinkContext {
            id,
            regions: table,
            send_ring: sends.clone(),
            receives,
            recv_ring: recvs.clone(),
            stats: stats.clone(),
        });
        Node { link, memory, registration, sends, recvs, reasons, stats, posted: 0, received: 0 }
    }

    fn at(&mut self, offset: usize) -> *mut u8 {
        self.memory.as_mut_ptr().cast::<u8>().wrapping_add(offset)
    }

    fn segment(&mut self, offset: usize, len: usize) -> Vec<Segment> {
        let addr = self.at(offset);
        if len == 0 { Vec::new() } else { vec![Segment::new(addr, len, 0)] }
    }

    fn key(&self) -> u64 {
        self.registration.remote_key()
    }

    fn post(&mut self, op: SendOp, offset: usize, len: usize, flags: SendFlags) {
        self.post_with(op, offset, len, flags | SendFlags::SIGNALED);
    }

    fn post_with(&mut self, op: SendOp, offset: usize, len: usize, flags: SendFlags) {
        let token = Token::new(0, 0, Side::Send, self.posted);
        self.posted += 1;
        let segments = self.segment(offset, len);
        let work = SendWork::new(token, op, &segments, flags);
        // SAFETY: the node keeps its memory as long as its link.
        unsafe { self.link.post_send(&[work]) }.unwrap();
    }

    fn receive(&mut self, offset: usize, len: usize) {
        let token = Token::new(0, 0, Side::Recv, self.received);
        self.received += 1;
        let segments = self.segment(offset, len);
        let work = RecvWork::new(token, &segments);
        // SAFETY: the node keeps its memory as long as its link.
        unsafe { self.link.post_recv(&[work]) }.unwrap();
        self.link.pay();
    }

    /// Reports the link's events.
    fn report(&mut self) {
        self.link.deliver();
        for event in self.link.take_events() {
            if let Event::Disconnected { reason, .. } = event {
                self.reasons.push(reason);
            }
            self.link.reported();
        }
    }

    /// Why the connection ended, once each time that was reported.
    fn reasons(&mut self) -> Vec<DisconnectReason> {
        self.report();
        self.reasons.clone()
    }

    fn take_sends(&mut self) -> Vec<RawCompletion> {
        self.report();
        take(&self.sends)
    }

    fn take_recvs(&mut self) -> Vec<RawCompletion> {
        self.report();
        take(&self.recvs)
    }

    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let word = |at: usize| self.memory[at / 8].to_ne_bytes()[at % 8];
        (offset..offset + len).map(word).collect()
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        for (i, byte) in bytes.iter().enumerate() {
            let mut word = self.memory[(offset + i) / 8].to_ne_bytes();
            word[(offset + i) % 8] = *byte;
            self.memory[(offset + i) / 8] = u64::from_ne_bytes(word);
        }
    }

    /// Feeds bytes as if they came from the peer.
    fn feed(&mut self, bytes: &[u8]) {
        self.link.consume(0, bytes);
        self.link.deliver();
    }
}

fn take(ring: &CompletionRing) -> Vec<RawCompletion> {
    let mut all = vec![RawCompletion::default(); 4096];
    let taken = ring.take(&mut all);
    all.truncate(taken);
    all
}

fn statuses(completions: &[RawCompletion]) -> Vec<Status> {
    completions.iter().map(|c| c.status).collect()
}

fn pair() -> (Node, Node) {
    connect(Node::new(), Node::new())
}

fn connect(mut a: Node, mut b: Node) -> (Node, Node) {
    let credit = b.link.credit();
    a.link.open(READS, credit);
    b.link.open(READS, 0);
    a.link.announce(&[]);
    b.link.announce(&[]);
    a.report();
    b.report();
    (a, b)
}

/// Moves at most `max` bytes from one link to the other, as one write and as many reads as it takes.
fn carry(from: &mut Node, to: &mut Node, max: usize, pipe: &mut Vec<u8>) -> bool {
    from.link.encode_pending();
    let mut pipe = Pipe { bytes: pipe, max };
    let moved = from.link.send_to(&mut pipe).unwrap();
    let mut scratch = vec![0; max.clamp(1, 64 << 10)];
    while pipe.unsent() > 0 {
        to.link.recv_from(&mut scratch, &mut pipe).unwrap();
        to.link.complete_finished();
    }
    to.link.pay();
    to.link.ask();
    to.link.deliver();
    moved > 0
}

/// Moves everything both ways until nothing moves, in pieces of at most `max` bytes.
fn settle(a: &mut Node, b: &mut Node, max: usize) {
    let mut pipe = Vec::new();
    loop {
        let there = carry(a, b, max, &mut pipe);
        let back = carry(b, a, max, &mut pipe);
        if !there && !back {
            break;
        }
    }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed * 7 + i / 251) as u8).collect()
}

#[test]
fn every_operation_survives_every_cut() {
    for max in (1..=120).chain([511, 512, 513, 4096, 1 << 20]) {
        let (mut a, mut b) = pair();
        let big = if max < 100 { 5_000 } else { 300_000 };
        let (data, there) = (pattern(big, max), RemoteAddr { key: b.key(), addr: 1 });
        a.put(0, &data);
        b.receive(0, big);
        b.receive(8, 0);
        a.post(SendOp::Send { imm: Some(7) }, 0, big, SendFlags::empty());
        a.post(SendOp::Write { to: there, imm: Some(9) }, 0, big, SendFlags::empty());
        a.post(SendOp::Read { from: there }, big, big, SendFlags::empty());
        let at = RemoteAddr { key: b.key(), addr: (HALF - 8) as u64 };
        let call = AtomicCall { op: AtomicOp::Add, ty: AtomicType::U64, operand: 5, compare: 0 };
        a.post(SendOp::Atomic { at, call, fetch: true }, HALF - 8, 8, SendFlags::empty());
        settle(&mut a, &mut b, max);
        assert_eq!(statuses(&a.take_sends()), [Status::Ok; 4], "pieces of {max}");
        let got = b.take_recvs();
        assert_eq!(
            (got[0].len, got[0].immediate, got[0].remote_write),
            (big as u64, Some(7), false)
        );
        assert_eq!(
            (got[1].len, got[1].immediate, got[1].remote_write),
            (big as u64, Some(9), true)
        );
        assert_eq!(b.bytes(0, big), data);
        assert_eq!(b.bytes(HALF + 1, big), data);
        assert_eq!(a.bytes(big, big), data);
        assert_eq!(
            (a.bytes(HALF - 8, 8), b.bytes(2 * HALF - 8, 8)),
            (vec![0; 8], 5u64.to_ne_bytes().to_vec())
        );
    }
}

/// One is cheaper to copy than to name to the system, many are not; very short ones always are.
#[test]
fn a_burst_of_sends_is_one_write_that_copies_little() {
    const COUNT: usize = 16;
    for (len, copied) in [(100, 1600), (1000, 2000), (2048, 2048), (2100, 0)] {
        let (mut a, mut b) = pair();
        a.put(0, &pattern(COUNT * len, len));
        for i in 0..COUNT {
            b.receive(i * len, len);
        }
        settle(&mut a, &mut b, usize::MAX >> 1);
        for i in 0..COUNT {
            a.post(SendOp::Send { imm: None }, i * len, len, SendFlags::empty());
        }
        assert_eq!(a.stats.copied_bytes.get(), copied, "{len} bytes each");
        assert!(carry(&mut a, &mut b, usize::MAX >> 1, &mut Vec::new()));
        assert!(!a.link.has_output(), "one write takes all");
        settle(&mut a, &mut b, usize::MAX >> 1);
        assert_eq!(statuses(&a.take_sends()), [Status::Ok; COUNT]);
        assert_eq!(b.bytes(0, COUNT * len), pattern(COUNT * len, len));
    }
}

#[derive(Clone, Debug)]
enum Act {
    Send { len: usize },
    Write { len: usize, at: usize, imm: bool },
    Read { len: usize, at: usize, fence: bool },
    Add { value: u64 },
    Receive,
    Carry { max: usize, back: bool },
}

fn act() -> impl Strategy<Value = Act> {
    let len = prop_oneof![
        0usize..70,
        250usize..262,
        2040usize..2056,
        4090usize..4102,
        Just(70_000),
        Just(270_000)
    ];
    let at = prop_oneof![Just(0usize), 1usize..600_000];
    prop_oneof![
        2 => len.clone().prop_map(|len| Act::Send { len }),
        2 => (len.clone(), at.clone(), any::<bool>()).prop_map(|(len, at, imm)| Act::Write { len, at, imm }),
        1 => (len, at, any::<bool>()).prop_map(|(len, at, fence)| Act::Read { len, at, fence }),
        1 => any::<u64>().prop_map(|value| Act::Add { value }),
        3 => Just(Act::Receive),
        3 => (1usize..100_000, any::<bool>()).prop_map(|(max, back)| Act::Carry { max, back }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    /// Whatever the order of posts, receives and pieces: everything completes well and in order, and both
    /// memories end as a model of the operations in posting order says.
    #[test]
    fn random_programs_match_the_model(acts in prop::collection::vec(act(), 1..60)) {
        let (mut a, mut b) = pair();
        a.put(0, &pattern(HALF / 2, 3));
        let mut model = b.bytes(HALF, HALF);
        let (mut pipe_ab, mut pipe_ba) = (Vec::new(), Vec::new());
        let (mut needs, mut messages, mut counter, word) = (0u32, Vec::new(), 0u64, HALF - 8);
        for act in acts {
            match act {
                Act::Send { len } => {
                    a.post(SendOp::Send { imm: None }, len % 1000, len, SendFlags::empty());
                    messages.push((len, false));
                    needs += 1;
                }
                Act::Write { len, at, imm } => {
                    let to = RemoteAddr { key: b.key(), addr: at as u64 };
                    let imm = imm.then_some(at as u32);
                    let data = a.bytes(at % 1000, len);
                    a.post(SendOp::Write { to, imm }, at % 1000, len, SendFlags::empty());
                    model[at..at + len].copy_from_slice(&data);
                    needs += u32::from(imm.is_some());
                    if imm.is_some() { messages.push((len, true)); }
                }
                Act::Read { len, at, fence } => {
                    let from = RemoteAddr { key: b.key(), addr: at as u64 };
                    let flags = if fence { SendFlags::FENCE } else { SendFlags::empty() };
                    a.post(SendOp::Read { from }, HALF / 2, len, flags);
                }
                Act::Add { value } => {
                    let at = RemoteAddr { key: b.key(), addr: word as u64 };
                    let call = AtomicCall { op: AtomicOp::Add, ty: AtomicType::U64, operand: value, compare: 0 };
                    a.post(SendOp::Atomic { at, call, fetch: false }, 0, 0, SendFlags::empty());
                    counter = counter.wrapping_add(value);
                }
                Act::Receive => b.receive(0, 300_000),
                Act::Carry { max, back: false } => { carry(&mut a, &mut b, max, &mut pipe_ab); }
                Act::Carry { max, back: true } => { carry(&mut b, &mut a, max, &mut pipe_ba); }
            }
        }
        while b.received < needs { b.receive(0, 300_000); }
        settle(&mut a, &mut b, 100_000);
        let done = a.take_sends();
        prop_assert_eq!(done.len(), a.posted as usize, "{}", a.link.dump());
        for (i, completion) in done.iter().enumerate() {
            prop_assert_eq!((completion.status, completion.token.sequence()), (Status::Ok, i as u32));
        }
        let got: Vec<_> = b.take_recvs().iter().map(|c| (c.len as usize, c.remote_write)).collect();
        prop_assert_eq!(got, messages);
        model[word..].copy_from_slice(&counter.to_ne_bytes());
        prop_assert!(b.bytes(HALF, HALF) == model, "the target's memory differs from the model");
    }

    /// Bytes of no protocol end the connection, whatever they are, and nothing panics.
    #[test]
    fn garbage_ends_the_connection_and_nothing_else(bytes in prop::collection::vec(any::<u8>(), 60..300)) {
        let (_, mut b) = pair();
        b.receive(0, 64);
        b.feed(&bytes);
        let reasons = b.reasons();
        prop_assert!(reasons.len() <= 1);
        prop_assert!(b.bytes(HALF, HALF).iter().all(|byte| *byte == 0), "no key was guessed");
    }
}

/// A peer that sends and never reads is owed an acknowledgement for each; they wait in bounded room.
#[test]
fn acknowledgements_for_a_peer_that_does_not_read_are_bounded() {
    let (_, mut b) = pair();
    let to = RemoteAddr { key: b.key(), addr: 0 };
    let kind = Kind::Write { total: 0, imm: None, to };
    for seq in 0..60_000 {
        let mut bytes = Vec::new();
        Header { kind, ask: true, len: 0, ack: 0, credit: 0, seq }.encode(&mut bytes);
        b.feed(&bytes);
        b.link.pay();
    }
    let waits = b.link.outgoing.queued();
    assert!((500 << 10..513 << 10).contains(&waits), "{waits} bytes wait");
    // What was not said is said when there is room.
    assert_eq!(b.link.send_to(&mut Taker::new(usize::MAX)).unwrap(), waits);
    assert!(b.link.owes());
    b.link.pay();
    assert!(!b.link.owes() && b.link.has_output());
}
