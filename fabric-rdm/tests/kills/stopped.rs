//! A peer that is stopped for seconds, and goes on: nothing is lost, nothing ends early, and the order holds.

use std::time::{Duration, Instant};

use fabric::{Access, AtomicOp, Op};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Endpoint, Full, Kind, PostError, RdmAttr, Recv, Send};
use rustix::process::Signal;

use crate::content::{MAX_LEN, Message};
use crate::process::{LONG, Process, domain, heard, own_domain, say};
use crate::variable;
use crate::words::Place;

/// Each way, in each round.
const MESSAGES: u32 = 150;
const ROUNDS: u32 = 2;
const THERE: u32 = 1;
const BACK: u32 = 2;

/// Receives messages in the order of their numbers, and answers each with one of its own: the role, and the other side of it.
struct Side {
    endpoint: Endpoint,
    /// Whose messages come.
    from: u32,
    received: u32,
    into: fabric::Region,
}

impl Side {
    fn new(endpoint: Endpoint, from: u32) -> Self {
        let into = endpoint.domain().alloc(MAX_LEN, Access::LOCAL_WRITE).unwrap();
        let side = Side { endpoint, from, received: 0, into };
        side.receive();
        side
    }

    fn to(&self) -> u32 {
        THERE + BACK - self.from
    }

    fn message(&self, number: u32) -> Message {
        Message { tag: Some(1), ..Message::new(self.from, self.to(), number) }
    }

    fn receive(&self) {
        self.endpoint.post_recv(&Recv::new(Pattern::tagged(1), &self.into).context(1)).unwrap();
    }

    /// The next message came: it is the next one.
    fn on_received(&mut self, done: &fabric_rdm::Completion) {
        assert!(done.is_ok(), "{done:?}\n{}", self.endpoint.dump());
        let message = self.message(self.received);
        assert_eq!(done.immediate, Some(message.number), "the next message");
        assert_eq!(done.len, message.len as u64);
        assert_eq!(self.into.to_vec(..message.len).unwrap(), message.payload(message.len));
        self.received += 1;
        self.receive();
    }

    /// Sends the message of this number, or not, if there is no place for it.
    fn send(&self, peer: fabric_rdm::Peer, number: u32) -> bool {
        let message = Message { tag: Some(1), ..Message::new(self.to(), self.from, number) };
        let is_readable = number.is_multiple_of(2);
        let rights = if is_readable { Access::REMOTE_READ } else { Access::empty() };
        let region = self.endpoint.domain().alloc(message.len.max(8), rights).unwrap();
        region.write_at(0, &message.payload(message.len)).unwrap();
        let send = Send::new(region.slice(..message.len)).tag(1).immediate(number);
        match self.endpoint.post_send(peer, &send) {
            Ok(_) => true,
            Err(PostError::Again(Full::Peer(_))) => false,
            Err(error) => panic!("{error}\n{}", self.endpoint.dump()),
        }
    }
}

/// The role.
pub(crate) fn echo() {
    let domain = own_domain();
    let endpoint = Endpoint::new(&domain, &RdmAttr::default()).unwrap();
    let memory = domain.alloc(64, Access::ALL).unwrap();
    say(&format!("at {}", Place::of(&endpoint, &memory)));
    let lines = heard();
    let first = Place::parse(&lines.recv_timeout(LONG).unwrap());
    let peer = endpoint.insert(&first.address).unwrap();
    let mut side = Side::new(endpoint, THERE);
    let mut answered = 0;
    // Until it is killed.
    loop {
        if let Ok(done) = side.endpoint.wait_one(Some(Duration::from_millis(1))) {
            match done.kind {
                Kind::Recv => side.on_received(&done),
                _ => assert!(done.is_ok(), "{done:?}"),
            }
        }
        while answered < side.received && side.send(peer, answered) {
            answered += 1;
        }
    }
}

pub(crate) fn lives(provider: &str) {
    let domain = domain(provider);
    let endpoint = Endpoint::new(&domain, &RdmAttr::default()).unwrap();
    let own = Place::of(&endpoint, &domain.alloc(64, Access::ALL).unwrap());
    let mut echo = Process::start("the one that is stopped", "echo", provider, &[]);
    let place = Place::parse(&echo.expect("at"));
    let peer = endpoint.insert(&place.address).unwrap();
    echo.order(&own.to_string());
    let mut side = Side::new(endpoint, BACK);
    let stop = Duration::from_secs(variable("FABRIC_RDM_STOP_SECONDS", 3));
    let (mut sent, mut ended, mut adds) = (0, 0, 0);
    for round in 1..=ROUNDS {
        let until = MESSAGES * round;
        let begun = Instant::now();
        let mut stopped: Option<Instant> = None;
        let mut was_stopped = false;
        while ended < until + adds || side.received < until {
            assert!(begun.elapsed() < LONG, "{}", side.endpoint.dump());
            // In the middle of it.
            if !was_stopped && side.received >= until - MESSAGES / 2 {
                echo.signal(Signal::STOP);
                (stopped, was_stopped) = (Some(Instant::now()), true);
                for _ in 0..8 {
                    let op = Op::atomic(AtomicOp::Add, 1u64, place.memory.at(0));
                    side.endpoint.post(peer, &op).unwrap();
                    adds += 1;
                }
            }
            if stopped.is_some_and(|at| at.elapsed() > stop) {
                echo.signal(Signal::CONT);
                stopped = None;
            }
            if sent < until && side.send(peer, sent) {
                sent += 1;
            }
            if let Ok(done) = side.endpoint.wait_one(Some(Duration::from_millis(1))) {
                match done.kind {
                    Kind::Recv => side.on_received(&done),
                    _ => {
                        assert!(done.is_ok(), "{done:?}\n{}", side.endpoint.dump());
                        ended += 1;
                    }
                }
            }
            assert_eq!(side.endpoint.down(peer).unwrap(), None);
            assert_eq!(side.endpoint.poll_event().unwrap(), None);
        }
        assert!(was_stopped && stopped.is_none_or(|at| at.elapsed() < LONG));
        if stopped.is_some() {
            echo.signal(Signal::CONT);
        }
    }
    // Each addition once.
    let sum = domain.alloc(8, Access::LOCAL_WRITE).unwrap();
    side.endpoint.post(peer, &Op::read(&sum, place.memory.at(0)).fence()).unwrap();
    let done = side.endpoint.wait_one(Some(LONG)).unwrap();
    assert!(done.is_ok(), "{done:?}");
    assert_eq!(sum.get::<u64>(0).unwrap(), u64::from(adds));
}
