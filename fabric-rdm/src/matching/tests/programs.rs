//! Random programs of everything that a matcher does, beside the model.

use proptest::prelude::*;

use super::model::{Model, Outcome};
use super::*;

/// As many receives as there may be, and messages.
const MAX: usize = 60;

#[derive(Clone, Debug)]
enum Step {
    Post {
        pattern: Pattern,
        capacity: u64,
        min_free: Option<u64>,
        max_messages: u32,
    },
    Arrive(Envelope),
    /// A receive that was ever posted.
    Cancel(prop::sample::Index),
    Probe(Pattern),
    /// A message that ever waited.
    Claim(prop::sample::Index),
    /// A message under way into a buffer of many.
    Deliver(prop::sample::Index),
    EndPeer(u64),
    RemovePeer(u64),
}

/// So few tags and sources that much meets, and more masks than have a class.
fn pattern() -> impl Strategy<Value = Pattern> {
    let tag = prop_oneof![
        1 => Just(Pattern::untagged()),
        5 => (0..8u64).prop_map(Pattern::tagged),
        6 => (0..8u64, 0..12usize).prop_map(|(tag, mask)| {
            let masks = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16, !0];
            Pattern::tagged(tag).ignoring(masks[mask])
        }),
    ];
    (tag, prop::option::of(0..3u64)).prop_map(|(pattern, source)| match source {
        Some(source) => pattern.from(peer(source)),
        None => pattern,
    })
}

fn message() -> impl Strategy<Value = Envelope> {
    (0..3u64, prop::option::weighted(0.9, 0..8u64), 0..12u64)
        .prop_map(|(source, tag, len)| Envelope { source: peer(source), tag, len })
}

/// With so many posts and arrivals, of a hundred steps or so.
fn step(posts: u32, arrivals: u32) -> impl Strategy<Value = Step> {
    let min_free = prop::option::weighted(0.2, 0..6u64);
    let max_messages = prop_oneof![0..4u32, Just(u32::MAX)];
    let post = (pattern(), 0..20u64, min_free, max_messages);
    let post = post.prop_map(|(pattern, capacity, min_free, max_messages)| Step::Post {
        pattern,
        capacity,
        min_free,
        max_messages,
    });
    prop_oneof![
        posts => post,
        arrivals => message().prop_map(Step::Arrive),
        8 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        8 => pattern().prop_map(Step::Probe),
        4 => any::<prop::sample::Index>().prop_map(Step::Claim),
        8 => any::<prop::sample::Index>().prop_map(Step::Deliver),
        1 => (0..3u64).prop_map(Step::EndPeer),
        1 => (0..3u64).prop_map(Step::RemovePeer),
    ]
}

/// Times of many messages alternate with times of many receives.
fn program() -> impl Strategy<Value = Vec<Step>> {
    let phase = |posts, arrivals| prop::collection::vec(step(posts, arrivals), 0..60);
    let either = prop_oneof![phase(20, 50), phase(50, 20), phase(3, 60), phase(60, 3)];
    prop::collection::vec(either, 1..5).prop_map(|phases| phases.concat())
}

/// Both, and the names that the matcher gave.
struct Run {
    matcher: Tested,
    model: Model,
    receives: Vec<ReceiveId>,
    /// With the number of each.
    messages: Vec<(MessageId, u32)>,
    /// The receives that messages are under way into.
    under_way: Vec<(ReceiveId, u32)>,
    next_message: u32,
}

fn matched(it: &Match<u32, u32>) -> Outcome {
    let Match { context: receive, payload: message, offset, len, .. } = *it;
    Outcome::Matched { receive, message, offset, len }
}

fn released(it: Released<u32>) -> Outcome {
    let Released { context: receive, used, reason, .. } = it;
    let (full, canceled) = (reason == ReleaseReason::Full, reason == ReleaseReason::Canceled);
    Outcome::Released { receive, used, full, canceled }
}

fn ended(outcome: Ending<u32>) -> Outcome {
    match outcome {
        Ending::Ended(receive) => Outcome::Ended(receive),
        Ending::Released(it) => released(it),
        Ending::WithLast => Outcome::WithLast,
        Ending::NotThere => Outcome::NotThere,
    }
}

impl Run {
    fn new() -> Self {
        let limits = MatchLimits { receives: MAX as u32, messages: MAX as u32 };
        Run {
            matcher: Matcher::new(limits).unwrap(),
            model: Model::new(MAX),
            receives: Vec::new(),
            messages: Vec::new(),
            under_way: Vec::new(),
            next_message: 0,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Post { pattern, capacity, min_free, max_messages } => {
                self.post(pattern, capacity, (min_free, max_messages));
            }
            Step::Arrive(envelope) => self.arrive(envelope),
            Step::Cancel(any) if !self.receives.is_empty() => {
                let number = any.index(self.receives.len());
                let outcome = ended(self.matcher.cancel(self.receives[number]));
                assert_eq!(outcome, self.model.cancel(number as u32));
            }
            Step::Probe(pattern) => {
                let found = self.matcher.probe(&pattern);
                let number = |id| self.messages.iter().find(|it| it.0 == id).unwrap().1;
                let found = found.map_or(Outcome::NotThere, |it| Outcome::Found(number(it.0)));
                assert_eq!(found, self.model.probe(pattern));
            }
            Step::Claim(any) if !self.messages.is_empty() => {
                let (id, number) = self.messages[any.index(self.messages.len())];
                let claimed = self.matcher.claim(id);
                let claimed = claimed.map_or(Outcome::NotThere, |it| Outcome::Claimed(it.payload));
                assert_eq!(claimed, self.model.claim(number));
            }
            Step::Deliver(any) if !self.under_way.is_empty() => {
                let (id, number) = self.under_way.remove(any.index(self.under_way.len()));
                let outcome = self.matcher.delivered(id).map(released);
                assert_eq!(outcome, self.model.delivered(number));
            }
            Step::EndPeer(source) => self.end_peer(peer(source), false),
            Step::RemovePeer(source) => self.end_peer(peer(source), true),
            Step::Cancel(_) | Step::Claim(_) | Step::Deliver(_) => {}
        }
        let lens = (self.matcher.posted_len(), self.matcher.waiting_len());
        assert_eq!(lens, self.model.lens());
    }

    fn post(&mut self, pattern: Pattern, capacity: u64, many: (Option<u64>, u32)) {
        let (min_free, max_messages) = many;
        let number = self.receives.len() as u32;
        let mut receive = Receive::new(pattern, capacity);
        if let Some(min_free) = min_free {
            receive = receive.of_many(min_free).max_messages(max_messages.into());
        }
        let (mut outcomes, mut names) = (Vec::new(), Vec::new());
        let posted = self.matcher.post(receive, number, |it| {
            outcomes.push(matched(&it));
            names.push((it.receive, it.of_many));
        });
        match posted {
            Ok(id) => {
                self.receives.push(id);
                assert!(names.iter().all(|name| *name == (id, min_free.is_some())));
                let many = names.iter().filter(|name| name.1);
                self.under_way.extend(many.map(|name| (name.0, number)));
            }
            Err(_) => outcomes.push(Outcome::Refused),
        }
        assert_eq!(outcomes, self.model.post(number, pattern, capacity, many));
    }

    fn arrive(&mut self, envelope: Envelope) {
        let number = self.next_message;
        self.next_message += 1;
        let outcome = match self.matcher.arrive(envelope, number) {
            Ok(Arrived::Matched(it)) => {
                assert_eq!(
                    (it.envelope, it.receive),
                    (envelope, self.receives[it.context as usize])
                );
                if it.of_many {
                    self.under_way.push((it.receive, it.context));
                }
                matched(&it)
            }
            Ok(Arrived::Waits(id)) => {
                self.messages.push((id, number));
                Outcome::Waits
            }
            Err(payload) => {
                assert_eq!(payload, number);
                Outcome::Refused
            }
        };
        assert_eq!(outcome, self.model.arrive(number, envelope));
    }

    fn end_peer(&mut self, peer: Peer, is_removed: bool) {
        let (mut outcomes, mut dropped) = (Vec::new(), Vec::new());
        let end = |_, outcome| outcomes.push(ended(outcome));
        if is_removed {
            let drop = |it: Message<u32>| dropped.push(Outcome::Dropped(it.payload));
            self.matcher.remove_peer(peer, end, drop);
        } else {
            self.matcher.end_peer(peer, end);
        }
        outcomes.extend(dropped);
        outcomes.sort();
        assert_eq!(outcomes, self.model.end_peer(peer, is_removed));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Default::default()
    })]
    #[test]
    fn a_matcher_does_as_the_model(program in program()) {
        let mut run = Run::new();
        program.into_iter().for_each(|step| run.step(step));
    }
}
