//! Two ends that prove their secret to each other, without a device.

use fabric_core::Secret;

use super::*;

const CONNECTING: u32 = 0x11;
const LISTENING: u32 = 0x22;

fn keys(of: u8) -> Option<HandshakeKeys> {
    Some(HandshakeKeys::new(&Secret::new(&[of; 32]).unwrap()))
}

/// A host that asks another by this queue pair.
fn from(host: u8, queue_pair: u32) -> Ends {
    Ends::new([192, 0, 2, host].into(), [198, 51, 100, 1].into(), queue_pair)
}

/// What came of a handshake.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Both applications know what the other said.
    Connected,
    /// The listener's application hears nothing, the other's this.
    Refused(RefuseReason),
    /// The connecting application hears this, behind the listener's answer.
    Declined(Declined),
}

/// How the listening application answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Accept,
    Reject,
}

/// Lets two ends greet each other. `tamper` may change the messages: hello, challenge, proof, answer, by number.
fn greet(
    secrets: [Option<HandshakeKeys>; 2],
    answer: Answer,
    mut tamper: impl FnMut(usize, &mut Vec<u8>),
) -> Outcome {
    let [initiating, listening] = secrets;
    let (mut initiator, mut request) =
        Initiator::new(initiating.as_ref(), from(1, CONNECTING), (5, b"hi"));
    let mut challenges = Challenges::new(listening);
    let mut step = 0;
    let acceptance = loop {
        tamper(step, &mut request);
        match challenges.hear(Instant::now(), from(1, CONNECTING), &request) {
            Err((reason, _)) => return Outcome::Refused(reason),
            Ok(Heard::Whole(params, acceptance)) => {
                assert_eq!(params, ConnectParams { probe: 5, data: (*b"hi").into() });
                break acceptance;
            }
            Ok(Heard::Challenge(mut bytes)) => {
                tamper(step + 1, &mut bytes);
                request = match initiator.on_reject(&bytes) {
                    Ok(request) => request,
                    Err(declined) => return Outcome::Declined(declined),
                };
                step += 2;
            }
        }
    };
    if answer == Answer::Reject {
        let mut bytes = acceptance.reject(b"no");
        tamper(3, &mut bytes);
        return Outcome::Declined(initiator.on_reject(&bytes).unwrap_err());
    }
    let mut bytes = acceptance.accept(LISTENING, (6, b"welcome"));
    tamper(3, &mut bytes);
    match initiator.on_accept(LISTENING, &bytes) {
        Ok(params) => {
            assert_eq!(params, ConnectParams { probe: 6, data: (*b"welcome").into() });
            Outcome::Connected
        }
        Err(declined) => Outcome::Declined(declined),
    }
}

fn rejected() -> Outcome {
    Outcome::Declined(Declined::Rejected((*b"no").into()))
}

#[test]
fn only_ends_with_the_same_secret_connect() {
    let of = |secrets| greet(secrets, Answer::Accept, |_, _| ());
    assert_eq!(of([None, None]), Outcome::Connected);
    assert_eq!(of([keys(1), keys(1)]), Outcome::Connected);
    assert_eq!(of([None, keys(1)]), Outcome::Refused(RefuseReason::SecretWanted));
    assert_eq!(of([keys(1), None]), Outcome::Refused(RefuseReason::NoSecret));
    assert_eq!(of([keys(1), keys(2)]), Outcome::Refused(RefuseReason::OtherSecret));
    assert_eq!(greet([None, None], Answer::Reject, |_, _| ()), rejected());
    assert_eq!(greet([keys(1), keys(1)], Answer::Reject, |_, _| ()), rejected());
}

#[test]
fn no_bit_of_a_handshake_may_change() {
    let good = |answer| if answer == Answer::Accept { Outcome::Connected } else { rejected() };
    for answer in [Answer::Accept, Answer::Reject] {
        let mut lengths = [0; 4];
        let lone = greet([keys(1), keys(1)], answer, |at, message| lengths[at] = message.len());
        assert_eq!(lone, good(answer));
        assert!(lengths.iter().all(|len| *len >= 56), "{lengths:?}");
        for (at, len) in lengths.into_iter().enumerate() {
            for bit in 0..8 * len {
                let outcome = greet([keys(1), keys(1)], answer, |step, message| {
                    if step == at {
                        message[bit / 8] ^= 1 << (bit % 8);
                    }
                });
                assert!(
                    !matches!(
                        outcome,
                        Outcome::Connected | Outcome::Declined(Declined::Rejected(_))
                    ),
                    "bit {bit} of message {at}: {outcome:?}"
                );
            }
        }
    }
}

#[test]
fn a_listener_has_to_prove_the_secret_too() {
    let (mut initiator, hello) = Initiator::new(keys(1).as_ref(), from(1, CONNECTING), (0, b""));
    let unproven = |declined| assert_eq!(declined, Declined::unauthenticated(NOT_PROVEN));
    let open = Acceptance(None);
    unproven(initiator.on_accept(LISTENING, &open.accept(LISTENING, (0, b""))).unwrap_err());
    unproven(initiator.on_reject(&open.reject(b"no")).unwrap_err());
    // With the key, but before it was asked for.
    let eager = Acceptance(initiator.transcript.clone().map(Box::new));
    unproven(initiator.on_accept(LISTENING, &eager.accept(LISTENING, (0, b""))).unwrap_err());
    // One that has another secret can challenge, and no more.
    let mut other = Challenges::new(keys(2));
    let heard = other.hear(Instant::now(), from(1, CONNECTING), &hello);
    let Ok(Heard::Challenge(challenge)) = heard else {
        panic!("no challenge");
    };
    let proof = initiator.on_reject(&challenge).unwrap();
    let mut said = begin(other.keys().unwrap(), from(1, CONNECTING), &whole(&hello));
    said.add(&challenge);
    said.add(&proof);
    let other = Acceptance(Some(Box::new(said)));
    unproven(initiator.on_accept(LISTENING, &other.accept(LISTENING, (0, b""))).unwrap_err());
    // Once is enough.
    assert!(matches!(initiator.on_reject(&challenge), Err(Declined::Malformed(_))));
    let (mut open, _) = Initiator::new(None, from(1, CONNECTING), (0, b""));
    assert!(matches!(open.on_reject(&challenge), Err(Declined::Malformed(_))));
}

#[test]
fn an_answer_is_that_of_one_queue_pair() {
    let (mut initiator, hello) = Initiator::new(keys(1).as_ref(), from(1, CONNECTING), (0, b""));
    let mut challenges = Challenges::new(keys(1));
    let mut hear =
        |queue_pair, request: &[u8]| challenges.hear(Instant::now(), from(1, queue_pair), request);
    let Ok(Heard::Challenge(challenge)) = hear(CONNECTING, &hello) else { panic!("no challenge") };
    let proof = initiator.on_reject(&challenge).unwrap();
    // Nor is a request.
    assert!(matches!(hear(CONNECTING + 1, &proof), Err((RefuseReason::Full, _))));
    let Ok(Heard::Whole(_, acceptance)) = hear(CONNECTING, &proof) else { panic!("no proof") };
    let accept = acceptance.accept(LISTENING, (0, b""));
    assert!(initiator.on_accept(LISTENING + 1, &accept).is_err());
    assert!(initiator.on_accept(LISTENING, &accept).is_ok());
}

/// A host that passes all of it on, as its own or to another, has nothing of it.
#[test]
fn what_another_host_passes_on_proves_nothing() {
    let asked = from(1, CONNECTING);
    let elsewhere = Ends::new(asked.initiator, [198, 51, 100, 2].into(), CONNECTING);
    for heard_as in [from(2, CONNECTING), elsewhere, from(1, CONNECTING + 1)] {
        let (mut initiator, hello) = Initiator::new(keys(1).as_ref(), asked, (0, b""));
        let mut challenges = Challenges::new(keys(1));
        let mut hear = |request: &[u8]| challenges.hear(Instant::now(), heard_as, request);
        let Ok(Heard::Challenge(challenge)) = hear(&hello) else { panic!("no challenge") };
        let proof = initiator.on_reject(&challenge).unwrap();
        let Err((reason, unwelcome)) = hear(&proof) else { panic!("{heard_as:?} is let in") };
        assert_eq!((reason, unwelcome.is_unauthenticated), (RefuseReason::OtherSecret, true));
    }
}

#[test]
fn an_address_is_the_same_in_either_form() {
    let mapped = "::ffff:192.0.2.1".parse().unwrap();
    assert_eq!(Ends::new(mapped, [198, 51, 100, 1].into(), CONNECTING), from(1, CONNECTING));
}

/// A challenge of `challenges` to a host, and the proof for it.
fn challenged(challenges: &mut Challenges, now: Instant, host: u8) -> Vec<u8> {
    let ends = from(host, CONNECTING);
    let (mut initiator, hello) = Initiator::new(keys(1).as_ref(), ends, (0, b""));
    let heard = challenges.hear(now, ends, &hello);
    let Ok(Heard::Challenge(challenge)) = heard else { panic!("no challenge") };
    initiator.on_reject(&challenge).unwrap()
}

#[test]
fn a_proof_counts_once_for_one_peer_and_for_a_time() {
    let (mut challenges, now) = (Challenges::new(keys(1)), Instant::now());
    let is_good = |challenges: &mut Challenges, now, host, proof: &[u8]| match challenges.hear(
        now,
        from(host, CONNECTING),
        proof,
    ) {
        Ok(Heard::Whole(..)) => true,
        Ok(Heard::Challenge(_)) => panic!("a challenge"),
        Err((reason, unwelcome)) => {
            assert_eq!((reason, unwelcome.is_unauthenticated), (RefuseReason::Full, false));
            false
        }
    };
    let proof = challenged(&mut challenges, now, 1);
    assert!(!is_good(&mut challenges, now, 2, &proof), "of another host");
    assert!(is_good(&mut challenges, now, 1, &proof));
    assert!(!is_good(&mut challenges, now, 1, &proof), "again");
    // What was heard elsewhere proves nothing.
    assert_ne!(challenged(&mut challenges, now, 1)[8..], proof[8..]);
    let late = challenged(&mut challenges, now, 3);
    challenged(&mut challenges, now + 2 * CHALLENGE, 3);
    assert!(!is_good(&mut challenges, now + 2 * CHALLENGE, 3, &late), "too late");
    assert_eq!(challenges.waiting.len(), 1);
}

#[test]
fn a_wrong_proof_does_not_spoil_the_challenge() {
    let (mut challenges, now) = (Challenges::new(keys(1)), Instant::now());
    let proof = challenged(&mut challenges, now, 1);
    let mut wrong = proof.clone();
    wrong[40] ^= 1;
    let peer = from(1, CONNECTING);
    for _ in 0..2 {
        let Err((reason, unwelcome)) = challenges.hear(now, peer, &wrong) else { panic!("good") };
        assert_eq!((reason, unwelcome.is_unauthenticated), (RefuseReason::OtherSecret, true));
    }
    assert!(matches!(challenges.hear(now, peer, &proof), Ok(Heard::Whole(..))));
}

#[test]
fn a_crowd_displaces_itself() {
    let (mut challenges, now) = (Challenges::new(keys(1)), Instant::now());
    let honest = challenged(&mut challenges, now, 1);
    for _ in 0..2 * MAX_CHALLENGES {
        challenged(&mut challenges, now, 2);
    }
    assert_eq!(challenges.waiting.len(), MAX_CHALLENGES);
    let heard = challenges.hear(now, from(1, CONNECTING), &honest);
    assert!(matches!(heard, Ok(Heard::Whole(..))));
}
