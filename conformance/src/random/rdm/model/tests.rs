//! The model beside stories made by hand: what is right is accepted, and what is wrong is not.

use fabric_rdm::{DeathCause, Kind, Status};

use super::super::program::{Payload, RdmSettings, RemoteOp, SendSpec, Want};
use super::{Posting, RdmModel, SeenEnd, Sight, written};
use crate::check::Outcome;

const ANY: Want = Want { tag: Some(0), ignore: !0, from: None };

fn exact(tag: u64) -> Want {
    Want { tag: Some(tag), ignore: 0, from: None }
}

/// What endpoints of a program do and see.
struct Story(RdmModel);

impl Story {
    fn new(ends: usize) -> Self {
        let settings = RdmSettings {
            ends,
            send_depth: 100,
            recv_depth: 100,
            window: 2,
            bytes: 1 << 20,
            rendezvous: 32 << 10,
            ..RdmSettings::default()
        };
        Story(RdmModel::new(&settings))
    }

    fn post(&mut self, from: usize, to: usize, spec: SendSpec, posting: Posting) -> Outcome {
        self.0.posted_send((from, to), spec, false, posting)
    }

    /// A message with a tag, of eight bytes, and its number.
    fn send(&mut self, from: usize, to: usize, tag: u64) -> usize {
        self.post(from, to, spec(tag), Posting::Taken).unwrap();
        self.0.messages.len() - 1
    }

    /// A receive of 100 bytes.
    fn receive(&mut self, at: usize, want: Want) -> usize {
        self.0.posted_receive(at, (want, 100, None), false, None, Posting::Taken).unwrap();
        self.0.receives.len() - 1
    }

    /// A receive is seen to have a message.
    fn took(&mut self, receive: usize, message: usize) -> Outcome {
        let seen = self.taking(receive, message);
        self.0.ended_receive(self.0.receives[receive].at, receive, &seen)
    }

    fn taking(&self, receive: usize, message: usize) -> SeenEnd {
        let one = &self.0.messages[message];
        let room = self.0.receives[receive].room;
        let status = if one.spec.len > room { Status::Truncated } else { Status::Ok };
        SeenEnd {
            peer: Some(one.from),
            tag: one.spec.tag,
            len: one.spec.len.min(room),
            message_len: one.spec.len,
            message: Some(message),
            ..end(Kind::Recv, status)
        }
    }

    /// A receive is seen to have ended without a message.
    fn over(&mut self, receive: usize, status: Status) -> Outcome {
        self.0.ended_receive(self.0.receives[receive].at, receive, &end(Kind::Recv, status))
    }

    /// A send is seen to have ended.
    fn sent(&mut self, message: usize, status: Status) -> Outcome {
        let one = self.0.messages[message].clone();
        let len = if status == Status::Ok { one.spec.len } else { 0 };
        let seen = SeenEnd { peer: Some(one.to), len, ..end(Kind::Send, status) };
        self.0.ended_op(one.from, one.op, &seen)
    }

    fn probe(
        &mut self,
        at: usize,
        want: Want,
        found: Option<usize>,
        claims: bool,
    ) -> Option<usize> {
        let sight = found.map(|message| {
            let one = &self.0.messages[message];
            Sight { from: one.from, tag: one.spec.tag, len: one.spec.len }
        });
        self.0.probed(at, want, sight, claims)
    }

    fn access(&mut self, at: usize, to: usize, what: RemoteOp, fence: bool) -> usize {
        self.0.posted_access((at, to), (what, fence, false), false, Posting::Taken).unwrap();
        self.0.ops.len() - 1
    }

    fn accessed(&mut self, op: usize, kind: Kind, len: usize) {
        let one = self.0.ops[op].clone();
        let seen = SeenEnd { peer: Some(one.to), len, ..end(kind, Status::Ok) };
        self.0.ended_op(one.at, op, &seen).unwrap();
    }
}

fn spec(tag: u64) -> SendSpec {
    let (payload, matched, unsignaled) = (Payload::Inject, false, false);
    SendSpec { tag: Some(tag), len: 8, payload, matched, unsignaled, immediate: true }
}

fn end(kind: Kind, status: Status) -> SeenEnd {
    let (peer, tag, has_immediate, message) = (None, None, true, None);
    SeenEnd { kind, status, peer, tag, len: 0, message_len: 0, offset: 0, has_immediate, message }
}

#[test]
fn messages_of_one_sender_meet_receives_in_order() {
    for (order, is_right) in [([0, 1], true), ([1, 0], false)] {
        let mut story = Story::new(2);
        let receives = [story.receive(1, ANY), story.receive(1, ANY)];
        let messages = [story.send(0, 1, 5), story.send(0, 1, 6)];
        for (receive, message) in receives.into_iter().zip(order) {
            story.took(receive, messages[message]).unwrap();
        }
        assert_eq!(story.0.check_matching(1).is_ok(), is_right, "{order:?}");
    }
}

#[test]
fn unexpected_messages_too_and_tags_apart() {
    for (tags, is_right) in [([5, 5], false), ([5, 6], true)] {
        let mut story = Story::new(2);
        let messages = tags.map(|tag| story.send(0, 1, tag));
        story.sent(messages[0], Status::Ok).unwrap();
        let receive = story.receive(1, exact(tags[1]));
        story.took(receive, messages[1]).unwrap();
        assert_eq!(story.0.check_matching(1).is_ok(), is_right, "{tags:?}");
    }
}

#[test]
fn the_oldest_receive_has_the_message() {
    for (taker, is_right) in [(0, true), (1, false)] {
        let mut story = Story::new(2);
        let receives = [story.receive(1, ANY), story.receive(1, exact(5))];
        let message = story.send(0, 1, 5);
        story.took(receives[taker], message).unwrap();
        assert_eq!(story.0.check_matching(1).is_ok(), is_right, "{taker}");
    }
}

#[test]
fn either_of_two_senders_may_be_first() {
    for order in [[0, 1], [1, 0]] {
        let mut story = Story::new(3);
        let messages = [story.send(0, 2, 5), story.send(1, 2, 5)];
        let receives = [story.receive(2, ANY), story.receive(2, ANY)];
        for (receive, message) in receives.into_iter().zip(order) {
            story.took(receive, messages[message]).unwrap();
        }
        story.0.check_matching(2).unwrap();
    }
}

#[test]
fn a_probe_finds_what_is_there() {
    for (is_ok, is_right) in [(false, true), (true, false)] {
        let mut story = Story::new(2);
        let message = story.send(0, 1, 5);
        if is_ok {
            story.sent(message, Status::Ok).unwrap();
            story.0.rests(1);
        }
        story.probe(1, ANY, None, false);
        assert_eq!(story.0.check_matching(1).is_ok(), is_right, "sent: {is_ok}");
    }
    let mut story = Story::new(2);
    let older = story.send(0, 1, 5);
    let newer = story.send(0, 1, 6);
    story.probe(1, exact(6), Some(newer), false);
    story.probe(1, ANY, Some(newer), false);
    assert!(story.0.check_matching(1).is_err(), "not the oldest, which is {older}");
}

#[test]
fn a_message_comes_once_and_whole() {
    let mut story = Story::new(2);
    let receives = [story.receive(1, ANY), story.receive(1, exact(7)), story.receive(1, ANY)];
    let message = story.send(0, 1, 5);
    story.took(receives[1], message).unwrap_err();
    let right = story.taking(receives[0], message);
    let wrong = [
        SeenEnd { len: 7, ..right.clone() },
        SeenEnd { message_len: 9, ..right.clone() },
        SeenEnd { tag: Some(6), ..right.clone() },
        SeenEnd { has_immediate: false, ..right.clone() },
        SeenEnd { peer: Some(1), ..right.clone() },
        SeenEnd { offset: 1, ..right.clone() },
        SeenEnd { status: Status::Truncated, ..right.clone() },
        SeenEnd { status: Status::PeerLost, ..right.clone() },
        SeenEnd { message: None, ..right },
    ];
    for seen in wrong {
        story.0.ended_receive(1, receives[0], &seen).unwrap_err();
    }
    story.took(receives[0], message).unwrap();
    story.took(receives[0], message).unwrap_err();
    story.took(receives[2], message).unwrap_err();
    story.sent(message, Status::Ok).unwrap();
    story.sent(message, Status::Ok).unwrap_err();
}

#[test]
fn what_was_canceled_takes_and_comes_no_more() {
    let mut story = Story::new(2);
    let (receive, message) = (story.receive(1, ANY), story.send(0, 1, 5));
    story.0.canceled_receive(receive, true).unwrap();
    story.took(receive, message).unwrap_err();
    story.over(receive, Status::Canceled).unwrap();
    story.0.canceled_op(story.0.messages[message].op, true).unwrap();
    let other = story.receive(1, ANY);
    story.took(other, message).unwrap_err();
    story.sent(message, Status::Ok).unwrap_err();
    story.sent(message, Status::Canceled).unwrap();

    let mut story = Story::new(2);
    let receive = story.receive(1, ANY);
    story.0.canceled_receive(receive, false).unwrap();
    assert!(story.0.check_matching(1).is_err(), "it was open");
    story.over(receive, Status::Canceled).unwrap_err();
}

#[test]
fn a_message_to_oneself_is_here_until_it_is_canceled() {
    for (probes_late, is_right) in [(false, true), (true, false)] {
        let mut story = Story::new(2);
        let message = story.send(0, 0, 5);
        if !probes_late {
            story.probe(0, ANY, Some(message), false);
        }
        story.0.canceled_op(story.0.messages[message].op, true).unwrap();
        if probes_late {
            story.probe(0, ANY, Some(message), false);
        }
        assert_eq!(story.0.check_matching(0).is_ok(), is_right, "{probes_late}");
    }
}

#[test]
fn matched_sends_end_behind_their_receive() {
    for (is_first, is_right) in [(true, true), (false, false)] {
        let mut story = Story::new(2);
        story.post(0, 1, SendSpec { matched: true, ..spec(5) }, Posting::Taken).unwrap();
        let early = is_first.then(|| story.receive(1, ANY));
        story.sent(0, Status::Ok).unwrap();
        let receive = early.unwrap_or_else(|| story.receive(1, ANY));
        story.took(receive, 0).unwrap();
        assert_eq!(story.0.check_matching(1).is_ok(), is_right, "receive first: {is_first}");
    }
}

#[test]
fn a_claimed_message_meets_no_receive() {
    let mut story = Story::new(2);
    let message = story.send(0, 1, 5);
    let claim = story.probe(1, ANY, Some(message), true).unwrap();
    story.0.dropped_claim(claim, Some(message));
    let receive = story.receive(1, ANY);
    story.took(receive, message).unwrap_err();
    story.0.check_matching(1).unwrap();

    // Nor does it leave its place to a newer one.
    let mut story = Story::new(2);
    let messages = [story.send(0, 1, 5), story.send(0, 1, 5)];
    let claim = story.probe(1, ANY, Some(messages[0]), true).unwrap();
    story.0.posted_receive(1, (ANY, 100, None), false, Some(claim), Posting::Taken).unwrap();
    story.took(0, messages[1]).unwrap();
    assert!(story.0.check_matching(1).is_err());
}

#[test]
fn a_buffer_for_many_is_filled_in_order() {
    for (offset, len, is_right) in [(8, 16, true), (8, 8, false), (9, 16, false)] {
        let mut story = Story::new(2);
        story.0.posted_receive(1, (ANY, 20, Some(8)), false, None, Posting::Taken).unwrap();
        let messages = [story.send(0, 1, 5), story.send(0, 1, 6)];
        story.took(0, messages[0]).unwrap();
        let second = SeenEnd { offset, ..story.taking(0, messages[1]) };
        let release = SeenEnd { len, ..end(Kind::Released, Status::Ok) };
        let seen = story.0.ended_receive(1, 0, &second);
        let seen = seen.and_then(|()| story.0.ended_receive(1, 0, &release));
        let seen = seen.and_then(|()| story.0.check_matching(1));
        assert_eq!(seen.is_ok(), is_right, "{offset} {len}");
    }
    let mut story = Story::new(2);
    story.0.posted_receive(1, (ANY, 20, Some(8)), false, None, Posting::Taken).unwrap();
    let early = end(Kind::Released, Status::Ok);
    story.0.ended_receive(1, 0, &early).unwrap_err();
}

#[test]
fn windows_are_kept_and_not_too_small() {
    let mut story = Story::new(2);
    story.post(0, 1, spec(5), Posting::Window).unwrap_err();
    story.send(0, 1, 5);
    story.post(0, 1, spec(5), Posting::Window).unwrap_err();
    story.send(0, 1, 5);
    story.post(0, 1, spec(5), Posting::Window).unwrap();
    assert!(story.0.owed(true).is_some_and(|what| !what.contains("room")), "others first");
    story.post(0, 1, spec(5), Posting::Depth).unwrap_err();
    story.0.check_windows().unwrap();
    story.send(0, 1, 5);
    story.0.check_windows().unwrap_err();
}

#[test]
fn only_what_was_cut_is_lost_and_the_oldest_first() {
    let mut story = Story::new(2);
    let messages = [story.send(0, 1, 5), story.send(0, 1, 6)];
    story.sent(messages[0], Status::PeerLost).unwrap_err();
    story.0.fell(0, 1).unwrap_err();
    story.0.removed(1, 0);
    story.sent(messages[1], Status::PeerLost).unwrap_err();
    story.sent(messages[1], Status::Canceled).unwrap_err();
    story.sent(messages[0], Status::PeerLost).unwrap();
    story.sent(messages[1], Status::Ok).unwrap_err();
    story.sent(messages[1], Status::PeerLost).unwrap_err();
    story.sent(messages[1], Status::Canceled).unwrap();
}

#[test]
fn a_peer_is_down_for_what_can_have_been() {
    use DeathCause::{Gone, Lost, Protocol, Unreachable};
    for (is_dropped, cause, is_right) in [
        (false, Lost, true),
        (false, Unreachable, true),
        (false, Protocol, false),
        (false, Gone, false),
        (true, Gone, true),
        (true, Protocol, false),
    ] {
        let mut story = Story::new(2);
        if is_dropped {
            story.0.drops(1);
        }
        assert_eq!(story.0.fell_by(0, 1, cause).is_ok(), is_right, "{is_dropped}, {cause}");
    }
}

#[test]
fn down_stays_down() {
    let mut story = Story::new(2);
    story.0.removed(1, 0);
    story.0.fell(0, 1).unwrap();
    story.0.posted_send((0, 1), spec(5), true, Posting::Taken).unwrap_err();
    story.0.stands(0, 1).unwrap_err();
    story.0.posted_send((0, 1), spec(5), true, Posting::PeerDown).unwrap();
    story.0.revived(0, 1);
    story.0.stands(0, 1).unwrap();
    story.post(0, 1, spec(5), Posting::Taken).unwrap();
}

#[test]
fn of_a_life_that_was_cut_no_message_comes_behind_a_gap() {
    for (kept, is_right) in [(0, true), (1, false)] {
        let mut story = Story::new(3);
        let receives = [story.receive(1, ANY), story.receive(1, exact(9))];
        let messages = [story.send(0, 1, 5), story.send(0, 1, 6)];
        story.took(receives[0], messages[kept]).unwrap();
        story.0.drops(0);
        assert_eq!(story.0.check_matching(1).is_ok(), is_right, "{kept}");
    }
}

#[test]
fn a_receive_of_many_takes_first_what_never_came_whole() {
    for (offset, is_right) in [(8, true), (4, false)] {
        let mut story = Story::new(3);
        let messages = [story.send(0, 1, 5), story.send(2, 1, 6)];
        story.probe(1, exact(5), Some(messages[0]), false);
        story.probe(1, exact(6), Some(messages[1]), false);
        story.0.posted_receive(1, (ANY, 100, Some(8)), false, None, Posting::Taken).unwrap();
        let seen = SeenEnd { offset, ..story.taking(0, messages[1]) };
        story.0.ended_receive(1, 0, &seen).unwrap();
        story.0.drops(0);
        story.over(0, Status::PeerLost).unwrap();
        assert_eq!(story.0.check_matching(1).is_ok(), is_right, "{offset}");
    }
}

#[test]
fn what_waits_of_a_lost_peer_stays_or_goes() {
    let stories = [
        (Some(0), Some(1), true),
        (Some(1), None, true),
        (None, None, true),
        (Some(1), Some(0), false),
    ];
    for (first, second, is_right) in stories {
        let mut story = Story::new(2);
        let messages = [5, 6].map(|tag| story.send(0, 1, tag));
        story.probe(1, exact(6), Some(messages[1]), false);
        story.0.drops(0);
        story.0.fell(1, 0).unwrap();
        story.probe(1, ANY, first.map(|first: usize| messages[first]), true);
        story.probe(1, ANY, second.map(|second: usize| messages[second]), false);
        assert_eq!(story.0.check_matching(1).is_ok(), is_right, "{first:?}, {second:?}");
    }
}

#[test]
fn receives_from_a_lost_peer_alone_end() {
    let directed = Want { from: Some(0), ..ANY };
    for (want, ends, is_right) in
        [(directed, true, true), (directed, false, false), (ANY, false, true), (ANY, true, false)]
    {
        let mut story = Story::new(2);
        let receive = story.receive(1, want);
        story.0.drops(0);
        story.0.fell(1, 0).unwrap();
        if ends {
            story.over(receive, Status::PeerLost).unwrap();
        }
        assert_eq!(story.0.check_matching(1).is_ok(), is_right, "{want}, {ends}");
    }
}

#[test]
fn what_fits_has_to_come() {
    let mut story = Story::new(2);
    let message = story.send(0, 1, 5);
    let receive = story.receive(1, exact(6));
    story.sent(message, Status::Ok).unwrap();
    assert_eq!(story.0.owed(false), None);
    assert!(story.0.owed(true).is_some(), "at the end each message is received");
    let other = story.receive(1, ANY);
    assert!(story.0.owed(false).is_some());
    story.took(other, message).unwrap();
    story.0.canceled_receive(receive, true).unwrap();
    assert!(story.0.owed(false).is_some());
    story.over(receive, Status::Canceled).unwrap();
    assert_eq!(story.0.owed(true), None);
}

#[test]
fn reads_find_the_last_write() {
    let mut story = Story::new(2);
    let first = story.access(0, 1, RemoteOp::Write(0), false);
    let second = story.access(0, 1, RemoteOp::Write(0), false);
    let read = story.access(0, 1, RemoteOp::Read(0), false);
    let time = story.0.posted_at(read);
    story.0.check_place((0, 1), 0, time, &written(second, 8)).unwrap();
    story.0.check_place((0, 1), 0, time, &written(first, 8)).unwrap_err();
    story.0.check_place((0, 1), 0, time, &[0; 8]).unwrap_err();
    story.0.check_place((0, 1), 1, time, &[0; 8]).unwrap();
    let third = story.access(0, 1, RemoteOp::Write(0), false);
    story.0.check_place((0, 1), 0, time, &written(third, 8)).unwrap();
}

#[test]
fn each_fetch_finds_another_value() {
    let mut story = Story::new(2);
    let ops = [false, false, true].map(|fence| story.access(0, 1, RemoteOp::Add, fence));
    story.0.fetched(ops[0], 1).unwrap();
    story.0.fetched(ops[1], 1).unwrap_err();
    story.0.fetched(ops[1], 3).unwrap_err();
    story.0.fetched(ops[2], 0).unwrap_err();
    story.0.fetched(ops[2], 2).unwrap();
    story.accessed(ops[2], Kind::Atomic, 8);
    let late = story.access(0, 1, RemoteOp::Add, false);
    story.0.fetched(late, 0).unwrap_err();
    story.0.check_counter(0, 1, 4).unwrap();
    story.0.check_counter(0, 1, 3).unwrap_err();
    story.0.check_counter(0, 1, 5).unwrap_err();
}
