//! What a case took from the API, in order and without times: so that providers can be compared.
//!
//! One sequence of completions for each endpoint and side, one of events for each domain. No order holds between
//! sequences. Endpoints are named by domain and order of creation (`a0`, `b3`; `x0` on a domain beside the two).
//! Keys, addresses, ports, identifiers, provider codes and times are not in it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::freedom::Freedom;

/// The transcript of one case on one provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Transcript {
    /// The sequences by name: `a0 send`, `a0 recv`, `a events`.
    pub sequences: BTreeMap<String, Sequence>,
}

/// One sequence. However long, its form is short: equal neighbours are one line, and of many lines the middle is
/// left out; the digests cover everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sequence {
    /// Entries in all.
    pub entries: u64,
    /// Digest of the entries in their order, hexadecimal.
    pub digest: String,
    /// Digest of what ended, in order, without how: kinds and contexts; events without errors and reasons.
    pub operations: String,
    /// The kinds and statuses that occur.
    pub outcomes: BTreeSet<String>,
    /// The first lines: an entry each, or a run of entries that differ in an ascending context only.
    pub head: Vec<String>,
    /// Lines left out behind them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u64,
    /// The last lines, if some are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tail: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Sequence {
    /// Every line there is, with one that says how many are missing.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = self.head.clone();
        if self.omitted > 0 {
            lines.push(format!("... {} lines left out", self.omitted));
        }
        lines.extend_from_slice(&self.tail);
        lines
    }

    fn equals(&self, other: &Sequence, name: &str, freedom: Freedom) -> bool {
        let is_events = name.ends_with(EVENTS);
        match freedom {
            Freedom::Statuses(_) => self.operations == other.operations,
            Freedom::Counts(_) if !is_events => self.outcomes == other.outcomes,
            Freedom::Whole(_) => true,
            _ => self.digest == other.digest,
        }
    }
}

/// How the names of event sequences end.
pub(crate) const EVENTS: &str = " events";

/// Where two transcripts differ first, within one sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The sequence.
    pub sequence: String,
    /// The two providers.
    pub providers: [String; 2],
    /// The number of the line, from 0, in [`Sequence::lines`]; where all of those are equal, that of the line that
    /// stands for those left out.
    pub line: usize,
    /// That line of each of the two; none where the sequence has ended.
    pub lines: [Option<String>; 2],
}

impl Transcript {
    /// Where this one and another differ, sequence by sequence, but for what the freedom leaves open.
    ///
    /// `providers` names those that the two are of.
    pub fn differences(
        &self,
        other: &Transcript,
        providers: [&str; 2],
        freedom: Freedom,
    ) -> Vec<Difference> {
        if let Freedom::Whole(_) = freedom {
            return Vec::new();
        }
        let names: BTreeSet<_> = self.sequences.keys().chain(other.sequences.keys()).collect();
        let difference = |name: &String| {
            let both = [self.sequences.get(name), other.sequences.get(name)];
            if let [Some(one), Some(two)] = both
                && one.equals(two, name, freedom)
            {
                return None;
            }
            let lines = both.map(|sequence| sequence.map(Sequence::lines).unwrap_or_default());
            let longest = lines[0].len().max(lines[1].len());
            let apart = (0..longest).find(|&at| lines[0].get(at) != lines[1].get(at));
            // Where it is among the lines left out, the one that says so.
            let line = apart.unwrap_or(both[0].map_or(0, |sequence| sequence.head.len()));
            let lines = lines.map(|lines| lines.get(line).cloned());
            let providers = providers.map(str::to_owned);
            Some(Difference { sequence: name.clone(), providers, line, lines })
        };
        names.into_iter().filter_map(difference).collect()
    }
}

#[cfg(test)]
mod tests {
    use fabric::{Completion, DisconnectReason, EndpointId, Event, OpKind, Status};

    use super::*;
    use crate::recorder::Recorder;

    /// What was taken of one endpoint: the statuses of its sends, their lengths the contexts.
    fn transcript(statuses: &[Status], reason: DisconnectReason) -> Transcript {
        let recorder = Recorder::default();
        let endpoint = EndpointId(7);
        recorder.add_endpoint("a", endpoint);
        for (context, status) in statuses.iter().enumerate() {
            let mut done = Completion::new(context as u64, endpoint, OpKind::Send, *status);
            done.len = context;
            recorder.completions("a", &[done]);
        }
        recorder.event("a", &Event::Disconnected { endpoint, reason });
        recorder.transcript()
    }

    const LONG: [Status; 3] = [Status::Ok, Status::Ok, Status::Canceled];

    #[track_caller]
    fn assert_differ(one: &Transcript, two: &Transcript, freedom: Freedom, expected: &[&str]) {
        let names = |one: &Transcript, two: &Transcript| -> Vec<String> {
            let found = one.differences(two, ["one", "two"], freedom);
            found.into_iter().map(|difference| difference.sequence).collect()
        };
        assert_eq!(names(one, two), expected, "{freedom}");
        assert_eq!(names(two, one), expected, "{freedom}, the other way round");
    }

    #[test]
    fn equal_transcripts_do_not_differ() {
        let one = transcript(&LONG, DisconnectReason::Remote);
        assert_differ(&one, &one.clone(), Freedom::None, &[]);
    }

    #[test]
    fn first_differing_line_is_told() {
        let one = transcript(&LONG, DisconnectReason::Remote);
        let two = transcript(&LONG[..2], DisconnectReason::Remote);
        let found = one.differences(&two, ["one", "two"], Freedom::None);
        let expected = Difference {
            sequence: "a0 send".to_owned(),
            providers: ["one".to_owned(), "two".to_owned()],
            line: 2,
            lines: [Some("Send Canceled, context 2".to_owned()), None],
        };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn missing_sequence_differs() {
        let one = transcript(&LONG, DisconnectReason::Remote);
        let two = transcript(&[], DisconnectReason::Remote);
        assert_differ(&one, &two, Freedom::None, &["a0 send"]);
        assert_differ(&one, &two, Freedom::Counts(""), &["a0 send"]);
    }

    #[test]
    fn freedoms_leave_open_what_they_say() {
        let one = transcript(&LONG, DisconnectReason::Remote);
        let statuses = [Status::Ok, Status::Canceled, Status::PeerLost];
        let other_statuses = transcript(&statuses, DisconnectReason::Remote);
        let more = transcript(&[Status::Ok, Status::Canceled], DisconnectReason::Remote);
        let reason = transcript(&LONG, DisconnectReason::PeerLost);
        for (two, freedom, differ) in [
            (&other_statuses, Freedom::None, &["a0 send"][..]),
            (&other_statuses, Freedom::Statuses(""), &[]),
            (&other_statuses, Freedom::Counts(""), &["a0 send"]),
            (&more, Freedom::Statuses(""), &["a0 send"]),
            (&more, Freedom::Counts(""), &[]),
            (&reason, Freedom::None, &["a events"]),
            (&reason, Freedom::Statuses(""), &[]),
            (&reason, Freedom::Counts(""), &["a events"]),
            (&reason, Freedom::Whole(""), &[]),
        ] {
            assert_differ(&one, two, freedom, differ);
        }
    }
}
