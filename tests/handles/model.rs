//! Random programs of posts, completions, polls, failures and drops, held against a model of the accounting.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::{Access, Completion, DisconnectReason, Endpoint, EndpointId, Error, Op, Recv, Status};
use proptest::prelude::*;

use crate::null::{Control, Link};
use crate::rig::{Rig, connect};

#[derive(Clone, Debug)]
enum Step {
    /// Posts sends; signaled where true.
    Post {
        to: usize,
        signaled: Vec<bool>,
    },
    Receive {
        to: usize,
    },
    /// The provider finishes that many.
    Release {
        of: usize,
        count: usize,
    },
    Bring {
        to: usize,
    },
    /// The next operation that finishes fails.
    Fail {
        of: usize,
    },
    Lose {
        of: usize,
    },
    Poll {
        room: usize,
    },
    /// Drops an endpoint and puts a new one in its place.
    Drop {
        of: usize,
    },
}

/// A posted operation, until its completion is taken or a later one shows that it is done.
struct Entry {
    context: u64,
    signaled: bool,
    /// How it ended; `None` while the provider has it.
    end: Option<Status>,
}

impl Entry {
    fn is_told(&self) -> bool {
        self.end.is_some_and(|status| self.signaled || status != Status::Ok)
    }

    fn is_quiet(&self) -> bool {
        !self.signaled && self.end == Some(Status::Ok)
    }
}

#[derive(Default)]
struct Side {
    depth: usize,
    entries: VecDeque<Entry>,
    /// The newest operation, and the one that was it when an unsignaled one left: an operation of the library's own may be
    /// behind that, until one that came later has ended.
    newest: u64,
    asked: Option<u64>,
    /// The endpoint is gone: what is not known to have succeeded is canceled.
    dropped: bool,
}

impl Side {
    /// The fewest and the most that may count against the depth: an unsignaled operation that is done counts
    /// until the library knows, which is at the latest when a completion behind it was seen.
    fn counted(&self) -> (usize, usize) {
        let quiet = self.entries.iter().filter(|entry| entry.is_quiet()).count();
        let reported = self.entries.iter().rposition(Entry::is_told).unwrap_or(0);
        let known = self.entries.iter().take(reported).filter(|entry| entry.is_quiet()).count();
        // To let go of dropped regions, the library asks behind unsignaled operations whether they are done.
        let own = self.asked.is_some() || self.entries.iter().any(|entry| !entry.signaled);
        (self.entries.len() - quiet, self.entries.len() - known + usize::from(own))
    }

    fn accepts(&self) -> Option<bool> {
        let (least, most) = self.counted();
        if most < self.depth {
            Some(true)
        } else if least >= self.depth {
            Some(false)
        } else {
            None
        }
    }

    fn push(&mut self, context: u64, signaled: bool) {
        self.newest = context;
        self.entries.push_back(Entry { context, signaled, end: None });
    }

    fn finish(&mut self, status: Status) -> bool {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.end.is_none()) else {
            return false;
        };
        entry.end = Some(status);
        true
    }

    fn cancel(&mut self) {
        while self.finish(Status::Canceled) {}
    }

    /// A completion was taken: it must be the next one there is.
    fn take(&mut self, completion: &Completion) -> Result<(), TestCaseError> {
        if self.asked.is_some_and(|asked| completion.context > asked) {
            self.asked = None;
        }
        while let Some(entry) = self.entries.pop_front() {
            if !entry.signaled {
                self.asked = Some(self.newest);
            }
            if entry.context == completion.context {
                let unknown = self.dropped && entry.is_quiet();
                let end = if unknown { Some(Status::Canceled) } else { entry.end };
                prop_assert_eq!(end, Some(completion.status));
                prop_assert!(unknown || entry.is_told(), "{:?} is not reported", completion);
                return Ok(());
            }
            prop_assert!(entry.is_quiet(), "{} was passed over by {:?}", entry.context, completion);
        }
        Err(TestCaseError::fail(format!("{completion:?} was never posted, or reported before")))
    }
}

#[derive(Default)]
struct Model {
    sends: Side,
    recvs: Side,
    dead: bool,
    failure: Option<Status>,
}

impl Model {
    fn die(&mut self) {
        self.dead = true;
        self.sends.cancel();
        self.recvs.cancel();
    }
}

struct Program {
    rig: Rig,
    here: Vec<(Endpoint, Arc<Link>)>,
    models: HashMap<EndpointId, Model>,
    next: u64,
}

const DEPTHS: [(usize, usize); 2] = [(5, 2), (2, 3)];

impl Program {
    fn new() -> Self {
        let rig = Rig::with(|b| b.send_depth(1).recv_depth(1));
        let mut program = Program { rig, here: Vec::new(), models: HashMap::new(), next: 0 };
        for slot in 0..DEPTHS.len() {
            let endpoint = program.make(slot);
            program.here.push(endpoint);
        }
        program
    }

    fn make(&mut self, slot: usize) -> (Endpoint, Arc<Link>) {
        let (sends, recvs) = DEPTHS[slot];
        let builder = self.rig.domain.endpoint().send_depth(sends).recv_depth(recvs);
        let endpoint = builder.build(&self.rig.queue).unwrap();
        connect(&endpoint);
        let link = self.rig.control.link(endpoint.id());
        link.hold();
        let model = self.models.entry(endpoint.id()).or_default();
        (model.sends.depth, model.recvs.depth) = (sends, recvs);
        (endpoint, link)
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Post { to, signaled } => {
                // Its handle is dropped at once: only the operations keep the memory.
                let region = self.rig.domain.alloc(64, Access::ALL).unwrap();
                let first = self.next;
                let ops: Vec<_> = (first..)
                    .zip(&signaled)
                    .map(|(context, signaled)| {
                        let op = Op::read(&region, region.remote().at(0)).context(context);
                        if *signaled { op } else { op.unsignaled() }
                    })
                    .collect();
                let model = self.models.get_mut(&self.here[to].0.id()).unwrap();
                let (mut left, deadline) = (&ops[..], Instant::now() + Duration::from_secs(10));
                while !left.is_empty() {
                    let (posted, error) = match self.here[to].0.post_batch(left) {
                        Ok(()) => (left.len(), None),
                        Err(batch) => (batch.posted, Some(batch.error)),
                    };
                    let from = first + (ops.len() - left.len()) as u64;
                    for (context, signaled) in
                        (from..).zip(&signaled[ops.len() - left.len()..]).take(posted)
                    {
                        prop_assert!(model.sends.accepts() != Some(false), "beyond the depth");
                        model.sends.push(context, *signaled);
                    }
                    left = &left[posted..];
                    match error {
                        None => {}
                        // While the library's thread looks after the dropped regions, it may be just making room.
                        Some(Error::Again) if model.sends.accepts() == Some(true) => {
                            prop_assert!(!model.dead);
                            prop_assert!(Instant::now() < deadline, "room was left");
                            std::thread::yield_now();
                        }
                        Some(Error::Again) => {
                            prop_assert!(!model.dead);
                            break;
                        }
                        Some(Error::NotConnected) => {
                            prop_assert!(model.dead);
                            break;
                        }
                        Some(other) => return Err(TestCaseError::fail(other.to_string())),
                    }
                }
                self.next += ops.len() as u64;
            }
            Step::Receive { to } => {
                let region = self.rig.domain.alloc(64, Access::ALL).unwrap();
                let context = self.next;
                let model = self.models.get_mut(&self.here[to].0.id()).unwrap();
                let deadline = Instant::now() + Duration::from_secs(10);
                let result = loop {
                    let posted = self.here[to].0.post_recvs(&[Recv::new(&region, context)]);
                    let result = posted.map_err(|batch| batch.error);
                    let room = model.recvs.accepts() == Some(true);
                    // As for sends.
                    if !(room && matches!(result, Err(Error::Again)) && Instant::now() < deadline) {
                        break result;
                    }
                    std::thread::yield_now();
                };
                match result {
                    Ok(()) => {
                        prop_assert_eq!(model.recvs.accepts(), Some(true));
                        model.recvs.push(context, true);
                    }
                    Err(Error::Again) => prop_assert_eq!(model.recvs.accepts(), Some(false)),
                    Err(Error::NotConnected) => prop_assert!(model.dead),
                    Err(other) => prop_assert!(false, "{other}"),
                }
                self.next += 1;
            }
            Step::Release { of, count } => {
                self.here[of].1.release(count);
                let model = self.models.get_mut(&self.here[of].0.id()).unwrap();
                for _ in 0..count {
                    let status = model.failure.unwrap_or_default();
                    if !model.sends.finish(status) {
                        break;
                    }
                    model.failure = None;
                    if status != Status::Ok {
                        model.die();
                    }
                }
            }
            Step::Bring { to } => {
                let brought = self.here[to].1.bring(8, None);
                let model = self.models.get_mut(&self.here[to].0.id()).unwrap();
                prop_assert_eq!(model.recvs.finish(Status::Ok), brought);
            }
            Step::Fail { of } => {
                self.here[of].1.fail_next(Status::RemoteAccess);
                let model = self.models.get_mut(&self.here[of].0.id()).unwrap();
                model.failure = Some(Status::RemoteAccess);
            }
            Step::Lose { of } => {
                self.here[of].1.lose(DisconnectReason::PeerLost);
                self.models.get_mut(&self.here[of].0.id()).unwrap().die();
            }
            Step::Poll { room } => self.poll(room)?,
            Step::Drop { of } => {
                let new = self.make(of);
                let (old, _) = std::mem::replace(&mut self.here[of], new);
                self.drop(old);
            }
        }
        Ok(())
    }

    fn drop(&mut self, endpoint: Endpoint) {
        let id = endpoint.id();
        drop(endpoint);
        let model = self.models.get_mut(&id).unwrap();
        model.die();
        (model.sends.dropped, model.recvs.dropped) = (true, true);
    }

    fn poll(&mut self, room: usize) -> Result<(), TestCaseError> {
        let mut out = vec![Completion::default(); room];
        let taken = self.rig.queue.poll(&mut out).unwrap();
        for completion in &out[..taken] {
            let model = self.models.get_mut(&completion.endpoint).unwrap();
            let receive = completion.kind.is_receive();
            let side = if receive { &mut model.recvs } else { &mut model.sends };
            side.take(completion)?;
        }
        let waiting = |side: &Side| side.entries.iter().any(Entry::is_told);
        if taken < room {
            prop_assert!(self.models.values().all(|m| !waiting(&m.sends) && !waiting(&m.recvs)));
        }
        Ok(())
    }

    /// In the end everything was reported, everything is free, and nothing is reserved.
    fn end(mut self) -> Result<(), TestCaseError> {
        for (endpoint, _) in std::mem::take(&mut self.here) {
            self.drop(endpoint);
        }
        let control: &Control = &self.rig.control;
        // The thread that lets regions go may be at one.
        let deadline = Instant::now() + Duration::from_secs(10);
        while control.registrations() != 1 && Instant::now() < deadline {
            std::thread::yield_now();
        }
        prop_assert_eq!(control.registrations(), 1, "the rig's own");
        self.poll(1 << 10)?;
        prop_assert_eq!(self.rig.queue.room(), self.rig.queue.capacity() - 2);
        Ok(())
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let slot = || 0..DEPTHS.len();
    let step = prop_oneof![
        8 => (slot(), prop::collection::vec(any::<bool>(), 1..4))
            .prop_map(|(to, signaled)| Step::Post { to, signaled }),
        3 => slot().prop_map(|to| Step::Receive { to }),
        6 => (slot(), 1..5usize).prop_map(|(of, count)| Step::Release { of, count }),
        2 => slot().prop_map(|to| Step::Bring { to }),
        1 => slot().prop_map(|of| Step::Fail { of }),
        1 => slot().prop_map(|of| Step::Lose { of }),
        6 => (0..6usize).prop_map(|room| Step::Poll { room }),
        2 => slot().prop_map(|of| Step::Drop { of }),
    ];
    prop::collection::vec(step, 0..if cfg!(miri) { 25 } else { 120 })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 512 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn accounting_agrees_with_the_model(steps in steps()) {
        let mut program = Program::new();
        for step in steps {
            program.step(step)?;
        }
        program.end()?;
    }
}
