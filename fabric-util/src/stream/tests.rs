//! Two links against each other, without sockets: every way to cut the streams into pieces. In `bits`, a peer that is
//! almost right.

mod bits;

use std::convert::Infallible;
use std::sync::Arc;

use crate::stats::Stats;
use fabric_core::{
    Access, AtomicCall, AtomicOp, AtomicType, DisconnectReason, EndpointId, Event, RawCompletion,
    RecvWork, RegistrationOps, RemoteAddr, Segment, SendFlags, SendOp, SendWork, Side, Status,
    Token,
};
use proptest::prelude::*;

use super::{End, Link, Phase, READS, Surroundings};
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
        let stats = Arc::new(Stats::default());
        let (table, reasons) = (Arc::new(RegionTable::default()), Vec::new());
        let mut memory = vec![0u64; 2 * half / 8];
        let shared = memory.as_mut_ptr().cast::<u8>().wrapping_add(half);
        let registration = // SAFETY: the node keeps its memory as long as the registration.
        unsafe { Registration::new("test", &table, (shared, half), Access::ALL) }.unwrap();
        let (sends, recvs) =
            (CompletionRing::new(&stats).unwrap(), CompletionRing::new(&stats).unwrap());
        let link = Link::new(Surroundings {
            id: EndpointId(1),
            regions: table,
            send_ring: sends.clone(),
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
        if len == 0 { Vec::new() } else { vec![Segment { addr, len, key: 0 }] }
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
        let work = SendWork { token, op, segments: &segments, flags };
        // SAFETY: the node keeps its memory as long as its link.
        unsafe { self.link.post_send(&[work]) }.unwrap();
    }

    fn receive(&mut self, offset: usize, len: usize) {
        let token = Token::new(0, 0, Side::Recv, self.received);
        self.received += 1;
        let segments = self.segment(offset, len);
        let work = RecvWork { token, segments: &segments };
        // SAFETY: the node keeps its memory as long as its link.
        unsafe { self.link.post_recv(&[work]) }.unwrap();
        self.link.pay();
    }

    /// Reports the link's events.
    fn report(&mut self) {
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
        self.link.consume(bytes);
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
    let (mut a, mut b) = (Node::new(), Node::new());
    a.link.open(READS, 0);
    b.link.open(READS, 0);
    a.link.announce(&[]);
    b.link.announce(&[]);
    a.report();
    b.report();
    (a, b)
}

/// Moves at most `most` bytes from one link to the other, as one write and as many reads as it takes.
fn carry(from: &mut Node, to: &mut Node, most: usize, pipe: &mut Vec<u8>) -> bool {
    from.link.fill();
    let moved: Result<usize, Infallible> = from.link.transmit(|runs| {
        let mut left = most;
        for &(addr, len) in runs {
            let part = len.min(left);
            // SAFETY: the runs are memory of nodes that live through the test.
            pipe.extend_from_slice(unsafe { std::slice::from_raw_parts(addr, part) });
            left -= part;
        }
        Ok(most - left)
    });
    let mut scratch = vec![0; most.clamp(1, 64 << 10)];
    while !pipe.is_empty() {
        let read: Result<_, Infallible> = to.link.receive(&mut scratch, |runs| {
            let mut got = 0;
            for &(addr, len) in runs {
                let part = len.min(pipe.len() - got).min(most - got);
                // SAFETY: as above.
                unsafe { std::ptr::copy_nonoverlapping(pipe[got..].as_ptr(), addr, part) };
                got += part;
            }
            pipe.drain(..got);
            Ok(got)
        });
        read.unwrap();
    }
    to.link.pay();
    to.link.ask();
    to.link.deliver();
    moved.unwrap() > 0
}

/// Moves everything both ways until nothing moves, in pieces of at most `most` bytes.
fn settle(a: &mut Node, b: &mut Node, most: usize) {
    let mut pipe = Vec::new();
    loop {
        let there = carry(a, b, most, &mut pipe);
        let back = carry(b, a, most, &mut pipe);
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
    for most in (1..=120).chain([511, 512, 513, 4096, 1 << 20]) {
        let (mut a, mut b) = pair();
        let big = if most < 100 { 5_000 } else { 300_000 };
        let (data, there) = (pattern(big, most), RemoteAddr { key: b.key(), addr: 1 });
        a.put(0, &data);
        b.receive(0, big);
        b.receive(8, 0);
        a.post(SendOp::Send { imm: Some(7) }, 0, big, SendFlags::empty());
        a.post(SendOp::Write { to: there, imm: Some(9) }, 0, big, SendFlags::empty());
        a.post(SendOp::Read { from: there }, big, big, SendFlags::empty());
        let at = RemoteAddr { key: b.key(), addr: (HALF - 8) as u64 };
        let call = AtomicCall { op: AtomicOp::Add, ty: AtomicType::U64, operand: 5, compare: 0 };
        a.post(SendOp::Atomic { at, call, fetch: true }, HALF - 8, 8, SendFlags::empty());
        settle(&mut a, &mut b, most);
        assert_eq!(statuses(&a.take_sends()), [Status::Ok; 4], "pieces of {most}");
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

#[derive(Clone, Debug)]
enum Act {
    Send { len: usize },
    Write { len: usize, at: usize, imm: bool },
    Read { len: usize, at: usize, fence: bool },
    Add { value: u64 },
    Receive,
    Carry { most: usize, back: bool },
}

fn act() -> impl Strategy<Value = Act> {
    let len =
        prop_oneof![0usize..70, 2040usize..2056, 4090usize..4102, Just(70_000), Just(270_000)];
    let at = prop_oneof![Just(0usize), 1usize..600_000];
    prop_oneof![
        2 => len.clone().prop_map(|len| Act::Send { len }),
        2 => (len.clone(), at.clone(), any::<bool>()).prop_map(|(len, at, imm)| Act::Write { len, at, imm }),
        1 => (len, at, any::<bool>()).prop_map(|(len, at, fence)| Act::Read { len, at, fence }),
        1 => any::<u64>().prop_map(|value| Act::Add { value }),
        3 => Just(Act::Receive),
        3 => (1usize..100_000, any::<bool>()).prop_map(|(most, back)| Act::Carry { most, back }),
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
                Act::Carry { most, back: false } => { carry(&mut a, &mut b, most, &mut pipe_ab); }
                Act::Carry { most, back: true } => { carry(&mut b, &mut a, most, &mut pipe_ba); }
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

#[test]
fn a_refused_write_ends_what_follows_and_nothing_before() {
    let (mut a, mut b) = pair();
    a.put(0, &[9; 64]);
    b.receive(0, 64);
    let to = |b: &Node, addr| RemoteAddr { key: b.key(), addr };
    a.post(SendOp::Write { to: to(&b, 0), imm: None }, 0, 8, SendFlags::empty());
    a.post(SendOp::Read { from: to(&b, 0) }, 128, 8, SendFlags::empty());
    a.post(SendOp::Write { to: to(&b, HALF as u64 - 4), imm: None }, 0, 8, SendFlags::empty());
    a.post(SendOp::Write { to: to(&b, 16), imm: None }, 0, 8, SendFlags::empty());
    settle(&mut a, &mut b, 50);
    use Status::{Canceled, Ok, RemoteAccess};
    assert_eq!(statuses(&a.take_sends()), [Ok, Ok, RemoteAccess, Canceled]);
    assert_eq!(statuses(&b.take_recvs()), [Canceled]);
    assert_eq!(b.bytes(HALF, 24), [[9; 8], [0; 8], [0; 8]].concat());
    assert_eq!(b.bytes(2 * HALF - 4, 4), [0; 4]);
    for node in [&mut a, &mut b] {
        assert_eq!(node.reasons(), [DisconnectReason::OperationFailed]);
    }
}

#[test]
fn an_oversize_message_is_too_long_on_both_sides() {
    let (mut a, mut b) = pair();
    b.receive(0, 8);
    b.receive(8, 8);
    a.post(SendOp::Send { imm: None }, 0, 9, SendFlags::empty());
    settle(&mut a, &mut b, 1 << 16);
    assert_eq!(statuses(&a.take_sends()), [Status::TooLong]);
    assert_eq!(statuses(&b.take_recvs()), [Status::TooLong, Status::Canceled]);
}

#[test]
fn a_region_that_closes_during_a_read_gives_nothing_more() {
    let (mut a, mut b) = pair();
    b.put(HALF, &[7; 1000]);
    let from = RemoteAddr { key: b.key(), addr: 0 };
    a.post(SendOp::Read { from }, 0, HALF / 2, SendFlags::empty());
    let (mut there, mut back) = (Vec::new(), Vec::new());
    carry(&mut a, &mut b, 1 << 20, &mut there);
    carry(&mut b, &mut a, 100, &mut back);
    b.registration.deregister().unwrap();
    b.put(HALF, &[8; HALF]);
    settle(&mut a, &mut b, 1 << 20);
    assert_eq!(statuses(&a.take_sends()), [Status::RemoteAccess]);
    assert!(!a.bytes(0, HALF / 2).contains(&8), "bytes of a closed region were sent");
}

/// Who finds the end while it transmits tells of it, whatever it transmits for.
#[test]
fn a_region_that_closes_under_an_answer_in_the_stream_ends_everything_in_flight() {
    let (mut a, mut b) = pair();
    b.receive(0, 8);
    let from = RemoteAddr { key: b.key(), addr: 0 };
    a.post(SendOp::Read { from }, 0, HALF / 2, SendFlags::empty());
    carry(&mut a, &mut b, 1 << 20, &mut Vec::new());
    b.link.fill();
    // Its header goes, and what is next is the region's.
    let head: Result<usize, Infallible> = b.link.transmit(|runs| Ok(runs[0].1));
    assert!(head.is_ok() && b.link.has_output());
    b.registration.deregister().unwrap();
    let refusal: Result<usize, Infallible> = b.link.transmit(|_| Ok(0));
    assert!(refusal.is_ok());
    assert_eq!(statuses(&b.take_recvs()), [Status::Canceled]);
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
    let emptied: Result<usize, Infallible> = b.link.transmit(|runs| Ok(runs[0].1));
    assert_eq!(emptied, Ok(waits));
    assert!(b.link.owes());
    b.link.pay();
    assert!(!b.link.owes() && b.link.has_output());
}

/// The refusal of a read whose region has closed comes first, whatever is refused behind it, and when.
#[test]
fn a_region_that_closes_refuses_its_read_whatever_comes_behind() {
    let bad =
        |b: &Node| SendOp::Write { to: RemoteAddr { key: b.key(), addr: HALF as u64 }, imm: None };
    let refused = |a: &mut Node, b: &mut Node, expected: &[Status], when: &str| {
        assert_eq!(statuses(&a.take_sends()), expected, "{when}");
        for node in [a, b] {
            let reasons = node.reasons();
            assert_eq!(reasons, [DisconnectReason::OperationFailed], "{when}");
        }
    };
    use Status::{Canceled, Ok, RemoteAccess};

    for before in [true, false] {
        let (mut a, mut b) = pair();
        let (from, bad) = (RemoteAddr { key: b.key(), addr: 0 }, bad(&b));
        a.post(SendOp::Read { from }, 0, HALF / 2, SendFlags::empty());
        let mut there = Vec::new();
        carry(&mut a, &mut b, 1 << 20, &mut there);
        b.link.fill();
        if before {
            b.registration.deregister().unwrap();
        }
        a.post(bad, 0, 8, SendFlags::empty());
        carry(&mut a, &mut b, 1 << 20, &mut there);
        b.registration.deregister().unwrap();
        settle(&mut a, &mut b, 1 << 20);
        let when = format!("closed before the refusal: {before}");
        // What is behind a refusal is copied with it, so the region may close then.
        let expected = if before { [RemoteAccess, Canceled] } else { [Ok, RemoteAccess] };
        refused(&mut a, &mut b, &expected, &when);
    }

    // Both requests come together, so that the answer is cut when the end is known.
    let (mut a, mut b) = pair();
    let (from, bad_write) = (RemoteAddr { key: b.key(), addr: 0 }, bad(&b));
    a.post(SendOp::Read { from }, 0, HALF / 2, SendFlags::empty());
    a.post(bad_write, 0, 8, SendFlags::empty());
    let mut there = Vec::new();
    carry(&mut a, &mut b, 1 << 20, &mut there);
    b.registration.deregister().unwrap();
    settle(&mut a, &mut b, 1 << 20);
    refused(&mut a, &mut b, &[RemoteAccess, Canceled], "cut after the refusal");

    // The closed region's answer is short and has to wait for a long one of another.
    let (mut a, mut b) = pair();
    let bad_write = bad(&b);
    let long = b.at(HALF);
    let regions = &b.link.around.regions;
    // SAFETY: the memory outlives the registration.
    let other = unsafe { Registration::new("test", regions, (long, HALF), Access::ALL) }.unwrap();
    a.post(
        SendOp::Read { from: RemoteAddr { key: other.remote_key(), addr: 0 } },
        0,
        HALF,
        SendFlags::empty(),
    );
    a.post(SendOp::Read { from: RemoteAddr { key: b.key(), addr: 0 } }, 0, 8, SendFlags::empty());
    a.post(bad_write, 0, 8, SendFlags::empty());
    carry(&mut a, &mut b, 1 << 20, &mut there);
    b.registration.deregister().unwrap();
    settle(&mut a, &mut b, 1 << 20);
    refused(&mut a, &mut b, &[Ok, RemoteAccess, Canceled], "a short answer");
}

/// An acknowledgement ends an operation, and its memory is free then: so not before its bytes have gone.
#[test]
fn what_has_not_been_transmitted_cannot_be_acknowledged() {
    for part in [0, 100, 8192, 1 << 20] {
        let (mut a, mut b) = pair();
        let to = RemoteAddr { key: b.key(), addr: 0 };
        a.post(SendOp::Write { to, imm: None }, 0, 8192, SendFlags::empty());
        if part > 0 {
            carry(&mut a, &mut b, part, &mut Vec::new());
        }
        let mut ack = Vec::new();
        Header { kind: Kind::Ack, ask: false, len: 0, ack: 1, credit: 0, seq: 0 }.encode(&mut ack);
        a.feed(&ack);
        let gone = part > 8192;
        let status = if gone { Status::Ok } else { Status::PeerLost };
        assert_eq!(statuses(&a.take_sends()), [status], "{part} bytes transmitted");
        assert_eq!(a.stats.protocol_errors.get(), u64::from(!gone), "{part} bytes transmitted");
    }
}

#[test]
fn disconnect_in_the_middle_of_a_message_lets_go_of_its_memory() {
    let (mut a, mut b) = pair();
    b.receive(0, HALF / 2);
    a.post(SendOp::Send { imm: None }, 0, HALF / 2, SendFlags::empty());
    let mut pipe = Vec::new();
    carry(&mut a, &mut b, 1000, &mut pipe);
    a.link.end(End::Local);
    assert_eq!(statuses(&a.take_sends()), [Status::Canceled]);
    // The operation is over: its memory may change, and what is still transmitted must not show it.
    a.put(0, &[0xee; HALF / 2]);
    settle(&mut a, &mut b, 1 << 20);
    assert!(!b.bytes(0, HALF / 2).contains(&0xee));
    assert_eq!(statuses(&b.take_recvs()), [Status::Canceled]);
    assert_eq!(b.reasons(), [DisconnectReason::Remote]);
    assert!(a.link.said_all());
}

#[test]
fn the_end_of_the_stream_loses_the_oldest_and_cancels_the_rest() {
    let (mut a, mut b) = pair();
    a.receive(0, 8);
    a.post(SendOp::Send { imm: None }, 0, 8, SendFlags::empty());
    a.post(SendOp::Send { imm: None }, 0, 8, SendFlags::empty());
    a.link.end(End::Lost);
    a.link.deliver();
    assert_eq!(statuses(&a.take_sends()), [Status::PeerLost, Status::Canceled]);
    assert_eq!(statuses(&a.take_recvs()), [Status::Canceled]);
    assert_eq!(a.reasons(), [DisconnectReason::PeerLost]);
    b.link.end(End::Quiet);
    assert!(b.take_recvs().is_empty());
}

/// Breaches of the protocol by a peer that otherwise speaks it well.
#[test]
fn almost_right_frames_are_breaches() {
    let head = |kind, len, ack, credit, seq| {
        let mut bytes = Vec::new();
        Header { kind, ask: false, len, ack, credit, seq }.encode(&mut bytes);
        bytes.resize(
            bytes.len() + if matches!(kind, Kind::Read { .. }) { 0 } else { len as usize },
            1,
        );
        bytes
    };
    let here = RemoteAddr { key: 1, addr: 0 };
    let send = |total| Kind::Send { total, imm: None };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a message without a credit", head(send(1), 1, 0, 0, 0)),
        (
            "an immediate without a credit",
            head(Kind::Write { total: 0, imm: Some(1), to: here }, 0, 0, 0, 0),
        ),
        ("an ack of what was never sent", head(Kind::Ack, 0, 1, 0, 0)),
        ("a request out of its order", head(Kind::Read { from: here }, 8, 0, 0, 1)),
        ("a fragment of no message", head(Kind::Data { more: false }, 8, 0, 0, 0)),
        ("an answer to what was not asked", head(Kind::ReadData { last: true }, 8, 0, 0, 0)),
        ("an old value nobody asked for", head(Kind::OldValue, 8, 0, 0, 0)),
        (
            "a refusal of what was not asked",
            head(Kind::Nak { status: Status::TooLong }, 0, 0, 0, 0),
        ),
        (
            "a credit that was taken back",
            [head(Kind::Ack, 0, 0, 5, 0), head(Kind::Ack, 0, 0, 4, 0)].concat(),
        ),
        ("an unknown kind", vec![77; 64]),
        ("a handshake in the middle", b"FBRC\x01\x01".repeat(10)),
    ];
    for (what, bytes) in cases {
        let (_, mut b) = pair();
        b.feed(&bytes);
        assert_eq!(b.reasons(), [DisconnectReason::Protocol], "{what}");
        assert_eq!(b.stats.protocol_errors.get(), 1, "{what}");
        assert_eq!(b.link.phase(), Phase::Closed, "{what}");
    }
}

#[test]
fn reads_beyond_the_limit_are_a_breach() {
    let (_, mut b) = pair();
    let from = RemoteAddr { key: b.key(), addr: 0 };
    for seq in 0..=READS {
        let mut bytes = Vec::new();
        Header { kind: Kind::Read { from }, ask: false, len: 8, ack: 0, credit: 0, seq }
            .encode(&mut bytes);
        b.feed(&bytes);
    }
    assert_eq!(b.reasons(), [DisconnectReason::Protocol]);
}

#[test]
fn a_fragment_beyond_its_message_is_a_breach() {
    let (_, mut b) = pair();
    b.receive(0, 64);
    let mut bytes = Vec::new();
    let kind = Kind::Send { total: 16, imm: None };
    Header { kind, ask: false, len: 8, ack: 0, credit: 0, seq: 0 }.encode(&mut bytes);
    bytes.resize(bytes.len() + 8, 1);
    Header { kind: Kind::Data { more: false }, ask: false, len: 9, ack: 0, credit: 0, seq: 0 }
        .encode(&mut bytes);
    bytes.resize(bytes.len() + 9, 2);
    b.feed(&bytes);
    assert_eq!(b.reasons(), [DisconnectReason::Protocol]);
    assert_eq!(b.bytes(8, 8), [0; 8]);
    assert_eq!(statuses(&b.take_recvs()), [Status::Canceled]);
}

#[test]
fn what_an_end_cancels_waits_until_the_end_was_reported() {
    let (mut a, _b) = pair();
    a.receive(0, 64);
    a.post(SendOp::Send { imm: None }, 0, 8, SendFlags::empty());
    a.link.end(End::Local);
    assert!(take(&a.sends).is_empty() && take(&a.recvs).is_empty());
    assert_eq!(a.reasons(), [DisconnectReason::Local]);
    assert_eq!(statuses(&take(&a.sends)), [Status::Canceled]);
    assert_eq!(statuses(&take(&a.recvs)), [Status::Canceled]);
}

#[test]
fn nothing_waits_for_a_report_once_the_endpoint_is_dropped() {
    let (mut a, _b) = pair();
    a.receive(0, 64);
    a.link.end(End::Local);
    a.link.end(End::Quiet);
    assert_eq!(statuses(&take(&a.recvs)), [Status::Canceled]);
    assert!(a.link.take_events().is_empty());
    // As by a thread that was about to report.
    a.link.reported();
    assert!(take(&a.recvs).is_empty());
}

#[test]
fn the_last_unsignaled_operation_is_known_to_have_succeeded_once_the_connection_has_ended() {
    let (mut a, mut b) = pair();
    let to = RemoteAddr { key: b.key(), addr: 0 };
    for _ in 0..3 {
        a.post_with(SendOp::Write { to, imm: None }, 0, 8, SendFlags::empty());
    }
    settle(&mut a, &mut b, 1 << 16);
    assert!(a.take_sends().is_empty());
    a.link.end(End::Local);
    let ends = a.take_sends();
    assert_eq!((statuses(&ends), ends[0].token.sequence()), (vec![Status::Ok], 2));
}
