//! Writes the transcript of a running case.
//!
//! Recording must not disturb what it records: an entry costs a lock that is hardly ever contended, a few
//! multiplications, and memory only where the entry does not continue the line before it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fabric::{Completion, EndpointId, Error, Event, OpKind, Status};

use crate::pattern::mix;
use crate::transcript::{EVENTS, Sequence, Transcript};

/// Lines kept of the start of a sequence, and of its end.
const HEAD: usize = 100;
const TAIL: usize = 20;
/// Sequences that are listed one by one; those of a case with more are one.
const SEQUENCES: usize = 64;

/// An endpoint that no rig has made.
const UNNAMED: &str = "unnamed";

/// The name of a domain: `a`, `b`, or `x` for any other.
pub(crate) type DomainName = &'static str;

/// Seen by the ends of a case, and by the runner that takes the transcript.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<RecorderState>);

#[derive(Debug, Default)]
struct RecorderState {
    names: BTreeMap<(DomainName, EndpointId), String>,
    made: BTreeMap<DomainName, usize>,
    completions: BTreeMap<(DomainName, EndpointId, bool), Tape>,
    events: BTreeMap<DomainName, Tape>,
    /// What ended in no order that means something, by the names of their sequences.
    unordered: BTreeMap<String, Vec<String>>,
}

impl Recorder {
    /// Names an endpoint by the order of creation.
    pub(crate) fn add_endpoint(&self, domain: DomainName, id: EndpointId) {
        let mut state = self.lock();
        let made = state.made.entry(domain).or_default();
        let name = format!("{domain}{made}");
        *made += 1;
        state.names.insert((domain, id), name);
    }

    /// Names something else that was made on a domain, and has completions of its own kind.
    pub(crate) fn add_other(&self, domain: DomainName) -> String {
        let mut state = self.lock();
        let made = state.made.entry(domain).or_default();
        *made += 1;
        format!("{domain}{}", *made - 1)
    }

    /// Something that ended, in a sequence without order.
    pub(crate) fn ended(&self, sequence: String, text: String) {
        self.lock().unordered.entry(sequence).or_default().push(text);
    }

    pub(crate) fn completions(&self, domain: DomainName, completions: &[Completion]) {
        let mut state = self.lock();
        for done in completions {
            let key = (domain, done.endpoint, done.kind.is_receive());
            state.completions.entry(key).or_default().push(Entry::of(done));
        }
    }

    pub(crate) fn event(&self, domain: DomainName, event: &Event) {
        let what = match event {
            Event::Connected { data, .. } => format!("Connected, {}", bytes(data)),
            Event::ConnectFailed { endpoint, error } => {
                return self.connect_failed(domain, *endpoint, error);
            }
            Event::Disconnected { reason, .. } => format!("Disconnected({reason:?})"),
            other => variant(other),
        };
        self.lock().event(domain, event.endpoint(), &what);
    }

    pub(crate) fn connect_failed(&self, domain: DomainName, endpoint: EndpointId, error: &Error) {
        let what = match error {
            Error::Rejected(data) => format!("ConnectFailed(Rejected), {}", bytes(data)),
            error => format!("ConnectFailed({})", variant(error)),
        };
        self.lock().event(domain, Some(endpoint), &what);
    }

    /// The transcript so far.
    pub(crate) fn transcript(&self) -> Transcript {
        let state = self.lock();
        let name = |domain, id| state.names.get(&(domain, id)).map_or(UNNAMED, String::as_str);
        let sides = state.completions.iter().map(|((domain, id, receive), tape)| {
            let side = if *receive { "recv" } else { "send" };
            (format!("{} {side}", name(domain, *id)), tape.sequence())
        });
        let events = state
            .events
            .iter()
            .map(|(domain, tape)| (format!("{domain}{EVENTS}"), tape.sequence()));
        let mut sequences: BTreeMap<_, _> = events.collect();
        let unordered = state.unordered.iter().map(|(name, texts)| (name.clone(), sorted(texts)));
        sequences.extend(unordered);
        let sides: Vec<_> = sides.collect();
        if sides.len() > SEQUENCES {
            let (name, all) = together(&sides);
            sequences.insert(name, all);
        } else {
            sequences.extend(sides);
        }
        Transcript { sequences }
    }

    fn lock(&self) -> MutexGuard<'_, RecorderState> {
        // Whole between statements; a panic of a case does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecorderState {
    fn event(&mut self, domain: DomainName, endpoint: Option<EndpointId>, what: &str) {
        let name = |id| self.names.get(&(domain, id)).map_or(UNNAMED, String::as_str);
        let text = endpoint.map_or(what.to_owned(), |id| format!("{} {what}", name(id)));
        self.events.entry(domain).or_default().push(Entry { text, ..Entry::default() });
    }
}

/// A sequence of what has no order: sorted.
fn sorted(texts: &[String]) -> Sequence {
    let mut texts = texts.to_vec();
    texts.sort_unstable();
    let mut tape = Tape::default();
    texts.into_iter().for_each(|text| tape.push(Entry { text, ..Entry::default() }));
    tape.sequence()
}

/// Many sequences as one, that of their names and digests.
fn together(sides: &[(String, Sequence)]) -> (String, Sequence) {
    let mut tape = Tape::default();
    let mut entries = 0;
    let mut outcomes = BTreeSet::new();
    let mut operations = 0;
    for (name, side) in sides {
        entries += side.entries;
        outcomes.extend(side.outcomes.iter().cloned());
        operations = mix(operations ^ text_digest(name) ^ text_digest(&side.operations));
        let text = format!("{name}: {} entries, {}", side.entries, side.digest);
        tape.push(Entry { text, ..Entry::default() });
    }
    let operations = hex(operations);
    let all = Sequence { entries, operations, outcomes, ..tape.sequence() };
    ("all completions".to_owned(), all)
}

/// One completion, or the text of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    kind: OpKind,
    status: Status,
    len: usize,
    immediate: Option<u32>,
    context: u64,
    /// Of an event; else empty.
    text: String,
}

impl Entry {
    fn of(done: &Completion) -> Self {
        let Completion { kind, status, len, immediate, context, .. } = *done;
        Entry { kind, status, len, immediate, context, text: String::new() }
    }

    /// Digests of all of it, and of what ended without how.
    fn digests(&self) -> (u64, u64) {
        // Of an event, errors and reasons are in brackets.
        let (what, how) = self.text.split_once('(').unwrap_or((&self.text, ""));
        let operation = mix(mix(self.kind as u64) ^ self.context) ^ text_digest(what);
        let immediate = self.immediate.map_or(1 << 32, u64::from);
        let outcome = mix(mix(self.status as u64) ^ self.len as u64) ^ immediate;
        (mix(operation ^ mix(outcome ^ text_digest(how))), operation)
    }
}

/// Neighbours that differ in their context only, which stays or goes up by one.
#[derive(Clone, Debug)]
struct Repetition {
    first: Entry,
    step: u64,
    count: u64,
}

impl Repetition {
    fn takes(&mut self, entry: &Entry) -> bool {
        let step = entry.context.wrapping_sub(self.first.context.wrapping_add(self.last_offset()));
        let fits = if self.count == 1 { step <= 1 } else { step == self.step };
        let same = fits && Entry { context: self.first.context, ..entry.clone() } == self.first;
        if same {
            self.step = step;
            self.count += 1;
        }
        same
    }

    fn last_offset(&self) -> u64 {
        self.step.wrapping_mul(self.count - 1)
    }

    fn text(&self) -> String {
        let Entry { kind, status, len, immediate, context, text } = &self.first;
        let times = match self.count {
            1 => String::new(),
            count => format!(" ({count} times)"),
        };
        if !text.is_empty() {
            return format!("{text}{times}");
        }
        let imm = immediate.map_or(String::new(), |imm| format!(", immediate {imm:#010x}"));
        let len = if *status == Status::Ok { format!(" {len} B") } else { String::new() };
        let last = context.wrapping_add(self.last_offset());
        let contexts = if self.step == 0 {
            format!("{}{times}", number(*context))
        } else {
            format!("{} to {}", number(*context), number(last))
        };
        format!("{kind:?} {status:?}{len}{imm}, context {contexts}")
    }
}

fn number(value: u64) -> String {
    if value < 1 << 32 { value.to_string() } else { format!("{value:#x}") }
}

/// One sequence while it is written.
#[derive(Debug, Default)]
struct Tape {
    entries: u64,
    digest: u64,
    operations: u64,
    /// Kinds and statuses, each once; never many.
    outcomes: Vec<(OpKind, Status)>,
    head: Vec<Repetition>,
    omitted: u64,
    tail: VecDeque<Repetition>,
}

impl Tape {
    fn push(&mut self, entry: Entry) {
        let (all, operation) = entry.digests();
        self.entries += 1;
        self.digest = mix(self.digest ^ all);
        self.operations = mix(self.operations ^ operation);
        let outcome = (entry.kind, entry.status);
        if entry.text.is_empty() && !self.outcomes.contains(&outcome) {
            self.outcomes.push(outcome);
        }
        if self.tail.back_mut().or(self.head.last_mut()).is_some_and(|run| run.takes(&entry)) {
            return;
        }
        let run = Repetition { first: entry, step: 0, count: 1 };
        if self.head.len() < HEAD {
            self.head.push(run);
            return;
        }
        if self.tail.len() == TAIL {
            self.tail.pop_front();
            self.omitted += 1;
        }
        self.tail.push_back(run);
    }

    fn sequence(&self) -> Sequence {
        let mut head: Vec<_> = self.head.iter().map(Repetition::text).collect();
        let mut tail: Vec<_> = self.tail.iter().map(Repetition::text).collect();
        if self.omitted == 0 {
            head.append(&mut tail);
        }
        Sequence {
            entries: self.entries,
            digest: hex(self.digest),
            operations: hex(self.operations),
            outcomes: self
                .outcomes
                .iter()
                .map(|(kind, status)| format!("{kind:?} {status:?}"))
                .collect(),
            head,
            omitted: self.omitted,
            tail,
        }
    }
}

fn hex(digest: u64) -> String {
    format!("{digest:016x}")
}

fn text_digest(text: &str) -> u64 {
    text.bytes().fold(0, |state, byte| mix(state ^ u64::from(byte)))
}

/// Private data: the length, and a digest that differs where contents do.
fn bytes(data: &[u8]) -> String {
    match data.len() {
        0 => "no data".to_owned(),
        len => {
            let digest = data.iter().fold(0, |state, byte| mix(state ^ u64::from(*byte)));
            format!("{len} B of data {:08x}", digest >> 32)
        }
    }
}

/// The name of an enum's variant, without what it holds.
fn variant(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(context: u64, len: usize) -> Completion {
        let mut done = Completion::new(context, EndpointId(3), OpKind::Recv, Status::Ok);
        done.len = len;
        done
    }

    fn sequence(completions: &[Completion]) -> Sequence {
        let recorder = Recorder::default();
        recorder.add_endpoint("b", EndpointId(3));
        recorder.completions("b", completions);
        recorder.transcript().sequences.remove("b0 recv").unwrap()
    }

    #[test]
    fn neighbours_are_one_line() {
        let all: Vec<_> = (5..1005).map(|i| done(i, 8)).collect();
        assert_eq!(sequence(&all).head, ["Recv Ok 8 B, context 5 to 1004"]);
        assert_eq!(sequence(&[done(1, 8); 3]).head, ["Recv Ok 8 B, context 1 (3 times)"]);
        let other = [done(1, 8), done(2, 8), done(2, 8), done(3, 9)];
        let lines =
            ["Recv Ok 8 B, context 1 to 2", "Recv Ok 8 B, context 2", "Recv Ok 9 B, context 3"];
        assert_eq!(sequence(&other).head, lines);
    }

    #[test]
    fn long_sequences_are_cut_and_compared_whole() {
        let all: Vec<_> = (0..10_000).map(|i| done(i, i as usize)).collect();
        let one = sequence(&all);
        assert_eq!((one.entries, one.head.len(), one.tail.len()), (10_000, HEAD, TAIL));
        assert_eq!(one.omitted as usize, 10_000 - HEAD - TAIL);
        assert_eq!(one.lines().len(), HEAD + TAIL + 1);
        let mut changed = all.clone();
        changed[5000].immediate = Some(1);
        let two = sequence(&changed);
        assert_eq!(one.lines(), two.lines());
        assert_ne!(one.digest, two.digest);
        assert_eq!(one.operations, two.operations);
    }

    #[test]
    fn many_sequences_are_one() {
        let recorded = |len: usize| {
            let recorder = Recorder::default();
            for i in 0..=SEQUENCES as u64 {
                let id = EndpointId(i);
                recorder.add_endpoint("a", id);
                let mut done = Completion::new(i, id, OpKind::Send, Status::Ok);
                done.len = len;
                recorder.completions("a", &[done]);
            }
            recorder.transcript().sequences
        };
        let (one, two) = (recorded(1), recorded(2));
        assert_eq!(one.keys().collect::<Vec<_>>(), ["all completions"]);
        let (one, two) = (&one["all completions"], &two["all completions"]);
        assert_eq!(one.entries, SEQUENCES as u64 + 1);
        assert_ne!(one.digest, two.digest);
        assert_eq!((&one.operations, &one.outcomes), (&two.operations, &two.outcomes));
    }

    #[test]
    fn what_depends_on_the_provider_is_not_in_it() {
        let recorder = Recorder::default();
        let endpoint = EndpointId(99);
        recorder.add_endpoint("a", endpoint);
        let data: Box<[u8]> = (*b"secret").into();
        let error = Error::Rejected(Box::new(data.clone()));
        recorder.event("a", &Event::Connected { endpoint, data });
        recorder.event("a", &Event::ConnectFailed { endpoint, error });
        let error = Error::state("connect", "to 10.0.0.1:4711");
        recorder.connect_failed("a", endpoint, &error);
        recorder.event("a", &Event::ConnectRequest { listener: fabric::ListenerId(12) });
        let lines = recorder.transcript().sequences["a events"].lines();
        let digest = lines[0].strip_prefix("a0 Connected, 6 B of data ").unwrap();
        let expected = format!("a0 ConnectFailed(Rejected), 6 B of data {digest}");
        assert_eq!(lines[1..], [&expected, "a0 ConnectFailed(InvalidState)", "ConnectRequest"]);
    }
}
