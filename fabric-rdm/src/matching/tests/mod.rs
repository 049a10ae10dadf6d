//! Matching by rule, and beside a model.

mod model;
mod programs;

use super::*;
use crate::peers::Peer;

type Tested = Matcher<u32, u32>;

fn matcher() -> Tested {
    Matcher::new(MatchLimits { receives: 50_000, messages: 50_000 }).unwrap()
}

fn peer(number: u64) -> Peer {
    Peer::from_bits(number)
}

fn envelope(source: u64, tag: u64, len: u64) -> Envelope {
    Envelope { source: peer(source), tag: Some(tag), len }
}

/// Posts a receive with room for 10 bytes; the messages that it took at once.
fn post(matcher: &mut Tested, pattern: Pattern, context: u32) -> (ReceiveId, Vec<u32>) {
    let mut taken = Vec::new();
    let receive = Receive::new(pattern, 10);
    let id = matcher.post(receive, context, |it| taken.push(it.payload)).unwrap();
    (id, taken)
}

/// The context of the receive that took a message.
fn taken_by(matcher: &mut Tested, envelope: Envelope) -> Option<u32> {
    match matcher.arrive(envelope, 0).unwrap() {
        Arrived::Matched(it) => Some(it.context),
        Arrived::Waits(_) => None,
    }
}

#[test]
fn exact_vs_wildcard_age() {
    let exact = Pattern::tagged(7).from(peer(1));
    let any = Pattern::tagged(7);
    let masked = Pattern::tagged(0).ignoring(!0);
    for order in [[exact, any, masked], [masked, any, exact], [any, exact, masked]] {
        let mut matcher = matcher();
        for (context, pattern) in (0..).zip(order) {
            post(&mut matcher, pattern, context);
        }
        let taken: Vec<_> = (0..4).map(|_| taken_by(&mut matcher, envelope(1, 7, 0))).collect();
        assert_eq!(taken, [Some(0), Some(1), Some(2), None], "in the order of posts");
    }
}

#[test]
fn any_source_order() {
    let mut matcher = matcher();
    for (source, payload) in [(1, 10), (2, 20), (1, 11), (2, 21)] {
        let _ = matcher.arrive(envelope(source, 7, 0), payload);
    }
    assert_eq!(post(&mut matcher, Pattern::tagged(7).from(peer(2)), 0).1, [20]);
    assert_eq!(post(&mut matcher, Pattern::tagged(7), 0).1, [10]);
    assert_eq!(post(&mut matcher, Pattern::tagged(7), 0).1, [11]);
    assert_eq!(post(&mut matcher, Pattern::tagged(7), 0).1, [21]);
}

#[test]
fn tagged_untagged_apart() {
    let mut matcher = matcher();
    post(&mut matcher, Pattern::tagged(0).ignoring(!0), 1);
    let untagged = Envelope { tag: None, ..envelope(1, 0, 0) };
    assert_eq!(taken_by(&mut matcher, untagged), None);
    assert!(post(&mut matcher, Pattern::tagged(0), 2).1.is_empty());
    assert_eq!(post(&mut matcher, Pattern::untagged(), 3).1, [0]);
    post(&mut matcher, Pattern::untagged().from(peer(1)), 4);
    assert_eq!(taken_by(&mut matcher, envelope(1, 0, 0)), Some(1));
    assert_eq!(taken_by(&mut matcher, untagged), Some(4));
}

#[test]
fn probe_claims_once() {
    let mut matcher = matcher();
    let _ = matcher.arrive(envelope(1, 7, 3), 10);
    let _ = matcher.arrive(envelope(1, 7, 4), 11);
    let (message, found) = matcher.probe(&Pattern::tagged(7)).unwrap();
    assert_eq!(found.len, 3);
    assert_eq!(matcher.probe(&Pattern::tagged(7)).unwrap().0, message, "it is still there");
    assert_eq!(matcher.claim(message).unwrap().payload, 10);
    assert_eq!(matcher.claim(message), None);
    assert_eq!(post(&mut matcher, Pattern::tagged(7), 0).1, [11], "not the claimed one");
    let Arrived::Waits(third) = matcher.arrive(envelope(1, 7, 0), 12).unwrap() else { panic!() };
    assert_eq!(matcher.claim(message), None, "though the place is used again");
    assert_eq!(matcher.claim(third).unwrap().payload, 12);
}

#[test]
fn truncated_lives() {
    let mut matcher = matcher();
    post(&mut matcher, Pattern::tagged(7), 0);
    let Arrived::Matched(it) = matcher.arrive(envelope(1, 7, 11), 0).unwrap() else { panic!() };
    assert_eq!((it.len, it.envelope.len, it.is_truncated()), (10, 11, true));
    post(&mut matcher, Pattern::tagged(7), 0);
    let Arrived::Matched(it) = matcher.arrive(envelope(1, 7, 10), 0).unwrap() else { panic!() };
    assert!(!it.is_truncated());
}

#[test]
fn cancel_receive() {
    let mut matcher = matcher();
    let (first, _) = post(&mut matcher, Pattern::tagged(7), 1);
    let (second, _) = post(&mut matcher, Pattern::tagged(7), 2);
    assert_eq!(matcher.cancel(first), Ending::Ended(1));
    assert_eq!(matcher.cancel(first), Ending::NotThere);
    let (third, _) = post(&mut matcher, Pattern::tagged(7), 3);
    assert_eq!(matcher.cancel(first), Ending::NotThere, "though the place is used again");
    assert_eq!(taken_by(&mut matcher, envelope(1, 7, 0)), Some(2));
    assert_eq!(matcher.cancel(second), Ending::NotThere, "it has met its message");
    assert_eq!(matcher.cancel(third), Ending::Ended(3));
    let _ = matcher.arrive(envelope(1, 7, 0), 5);
    let (at_once, taken) = post(&mut matcher, Pattern::tagged(7), 4);
    assert_eq!((taken, matcher.cancel(at_once)), (vec![5], Ending::NotThere));
}

#[test]
fn multi_receive_last() {
    let mut matcher = matcher();
    let receive = Receive::new(Pattern::tagged(7), 10).of_many(4);
    let _ = matcher.arrive(envelope(1, 7, 3), 1);
    let mut begun = Vec::new();
    let id = matcher.post(receive, 9, |it| begun.push((it.payload, it.offset, it.len))).unwrap();
    assert_eq!(begun, [(1, 0, 3)]);
    let Arrived::Matched(second) = matcher.arrive(envelope(2, 7, 4), 2).unwrap() else { panic!() };
    assert_eq!((second.receive, second.offset, second.len), (id, 3, 4));
    assert_eq!(taken_by(&mut matcher, envelope(2, 7, 1)), None, "3 are free, and 4 are wanted");
    assert_eq!(matcher.cancel(id), Ending::NotThere, "it is full");
    assert_eq!(matcher.delivered(id), None, "one is under way");
    let released = matcher.delivered(id).unwrap();
    assert_eq!((released.context, released.used), (9, 7));
    assert_eq!(released.reason, ReleaseReason::Full);
    assert_eq!((matcher.delivered(id), matcher.posted_len()), (None, 0));
}

#[test]
fn a_canceled_buffer_is_released_by_its_last_message() {
    let mut matcher = matcher();
    let receive = Receive::new(Pattern::tagged(7).from(peer(1)), 10).of_many(0);
    let id = matcher.post(receive, 9, |_| ()).unwrap();
    assert_eq!(taken_by(&mut matcher, envelope(1, 7, 0)), Some(9));
    assert_eq!(matcher.cancel(id), Ending::WithLast);
    assert_eq!(matcher.cancel(id), Ending::NotThere, "it was canceled before");
    matcher.end_peer(peer(1), |_, _| panic!("it was canceled before"));
    assert_eq!(taken_by(&mut matcher, envelope(1, 7, 0)), None);
    let released = matcher.delivered(id).unwrap();
    assert_eq!((released.used, released.reason), (0, ReleaseReason::Canceled));
    assert_eq!(matcher.cancel(id), Ending::NotThere);
    let small = Receive::new(Pattern::tagged(7), 10).of_many(11);
    assert!(matches!(matcher.post(small, 0, |_| ()), Err(fabric_core::Error::InvalidArgument(_))));
    let nothing = Receive::new(Pattern::tagged(7), 0).of_many(0);
    assert!(matches!(
        matcher.post(nothing, 0, |_| ()),
        Err(fabric_core::Error::InvalidArgument(_))
    ));
}

#[test]
fn a_buffer_takes_no_more_messages_than_it_may() {
    let mut matcher = matcher();
    let _ = matcher.arrive(envelope(1, 7, 0), 1);
    let mut begun = Vec::new();
    let receive = Receive::new(Pattern::tagged(7), 10).of_many(1).max_messages(3);
    let id = matcher.post(receive, 9, |it| begun.push((it.payload, it.offset))).unwrap();
    assert_eq!(begun, [(1, 0)]);
    assert_eq!(taken_by(&mut matcher, envelope(1, 7, 2)), Some(9));
    assert_eq!(taken_by(&mut matcher, envelope(1, 7, 0)), Some(9));
    assert_eq!(taken_by(&mut matcher, envelope(1, 7, 0)), None, "it waits for another receive");
    assert_eq!((matcher.delivered(id), matcher.delivered(id)), (None, None));
    let released = matcher.delivered(id).unwrap();
    assert_eq!((released.used, released.reason), (2, ReleaseReason::Full));
}

#[test]
fn directed_receive_ends() {
    let mut matcher = matcher();
    let (directed, _) = post(&mut matcher, Pattern::tagged(7).from(peer(1)), 1);
    post(&mut matcher, Pattern::tagged(7).from(peer(2)), 2);
    post(&mut matcher, Pattern::tagged(7), 3);
    let _ = matcher.arrive(envelope(1, 8, 0), 10);
    let mut ended = Vec::new();
    matcher.end_peer(peer(1), |id, outcome| ended.push((id, outcome)));
    assert_eq!(ended, [(directed, Ending::Ended(1))]);
    assert_eq!(post(&mut matcher, Pattern::tagged(8).from(peer(1)), 4).1, [10], "it stays");
    let _ = matcher.arrive(envelope(1, 8, 0), 11);
    let _ = matcher.arrive(envelope(2, 8, 0), 20);
    let mut dropped = Vec::new();
    matcher.remove_peer(peer(1), |_, _| panic!(), |message| dropped.push(message.payload));
    assert_eq!((dropped, matcher.waiting_len(), matcher.posted_len()), (vec![11], 1, 2));
}

#[test]
fn limits_are_kept() {
    let mut matcher = Tested::new(MatchLimits { receives: 1, messages: 1 }).unwrap();
    post(&mut matcher, Pattern::tagged(7), 1);
    let receive = Receive::new(Pattern::tagged(7), 0);
    let again = matcher.post(receive, 2, |_| ());
    assert!(matches!(again, Err(fabric_core::Error::Again)));
    assert!(matcher.arrive(envelope(1, 8, 0), 1).is_ok());
    assert_eq!(matcher.arrive(envelope(1, 8, 0), 2), Err(2), "the caller has it again");
    assert_eq!(
        taken_by(&mut matcher, envelope(1, 7, 0)),
        Some(1),
        "what has a receive needs no room"
    );
}

/// Every receive finds its message, however the two sides are interleaved with others.
#[test]
fn ten_thousand_of_each() {
    let patterns = |tag: u64| {
        [
            Pattern::tagged(tag).from(peer(tag % 100)),
            Pattern::tagged(tag),
            Pattern::tagged(tag << 8).ignoring(0xff),
            Pattern::tagged(tag << 8).ignoring(0xff).from(peer(tag % 100)),
        ]
    };
    for kind in 0..4 {
        let mut matcher = matcher();
        let of = |tag: u64| envelope(tag % 100, if kind < 2 { tag } else { tag << 8 | 0x55 }, 0);
        for tag in 0..10_000 {
            post(&mut matcher, patterns(tag)[kind], tag as u32);
        }
        for tag in (0..10_000).rev() {
            assert_eq!(taken_by(&mut matcher, of(tag)), Some(tag as u32));
            assert!(matches!(matcher.arrive(of(tag), tag as u32), Ok(Arrived::Waits(_))));
        }
        for tag in 0..10_000 {
            assert_eq!(post(&mut matcher, patterns(tag)[kind], 0).1, [tag as u32]);
        }
        assert_eq!((matcher.posted_len(), matcher.waiting_len()), (0, 0));
    }
}
