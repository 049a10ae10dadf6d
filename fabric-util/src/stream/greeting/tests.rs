//! Two ends that greet each other, in memory.

use fabric_core::{Event, Secret};

use super::*;
use crate::stream::Phase;
use crate::stream::testing::{Stream, Taker, link};

fn secret(of: u8) -> HandshakeKeys {
    HandshakeKeys::new(&Secret::new(&[of; 32]).unwrap())
}

fn begin(data: &[u8], secret: Option<&HandshakeKeys>) -> (Link, Initiator, Vec<u8>) {
    let mut link = link();
    let initiator = Initiator::begin(&mut link, data, secret).unwrap();
    let hello = sent(&mut link);
    (link, initiator, hello)
}

fn sent(link: &mut Link) -> Vec<u8> {
    let mut taker = Taker::new(usize::MAX);
    while link.has_output() {
        link.send_to(&mut taker).unwrap();
    }
    taker.bytes
}

/// What came of a handshake.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Both links are open, and each application heard what the other said.
    Open,
    /// The acceptor's application hears of nothing.
    Unwelcome(Unwelcome),
    /// The initiator's application hears this, and the acceptor's connection is not announced.
    Declined(Declined),
    /// Somebody still waits for bytes.
    Stuck,
}

/// Lets two ends with these secrets greet each other. `tamper` may change what is said: hello, challenge, proof, answer, by
/// number. `answer` is the application's.
fn greet(
    secrets: [Option<&HandshakeKeys>; 2],
    mut tamper: impl FnMut(usize, &mut Vec<u8>),
    answer: impl FnOnce(&Greeting, &mut Link, &mut Stream),
) -> Outcome {
    let (mut initiating, mut initiator, mut said) = begin(b"from here", secrets[0]);
    let (mut greeting, mut stream) = (Greeting::new(secrets[1]), Stream::default());
    let mut step = 0;
    while !greeting.is_whole() {
        tamper(step, &mut said);
        stream.came.append(&mut said);
        let read = greeting.read(&mut stream);
        let mut answered = std::mem::take(&mut stream.said);
        tamper(step + 1, &mut answered);
        match (read, initiator.receive(&mut initiating, &answered)) {
            // What was said to it, if anything, is what its application hears.
            (Err(unwelcome), Ok(false)) => return Outcome::Unwelcome(unwelcome),
            (_, Err(declined)) => return Outcome::Declined(declined),
            (_, Ok(true)) => panic!("open before the application answered"),
            (Ok(_), Ok(false)) => said = sent(&mut initiating),
        }
        if !greeting.is_whole() && said.is_empty() {
            return Outcome::Stuck;
        }
        step += 2;
    }
    assert_eq!(greeting.data(), b"from here");
    let mut accepting = link();
    answer(&greeting, &mut accepting, &mut stream);
    let mut answered = std::mem::take(&mut stream.said);
    answered.extend(sent(&mut accepting));
    tamper(3, &mut answered);
    let outcome = initiator.receive(&mut initiating, &answered);
    assert_eq!(initiating.phase() == Phase::Open, outcome == Ok(true));
    match outcome {
        Ok(false) => return Outcome::Stuck,
        Err(declined) => return Outcome::Declined(declined),
        Ok(true) => {}
    }
    let event = &initiating.take_events()[0];
    assert!(matches!(event, Event::Connected { data, .. } if &data[..] == b"from there"));
    assert!(!accepting.is_announced());
    accepting.consume(0, &sent(&mut initiating));
    assert!(accepting.is_announced(), "by the first frame");
    Outcome::Open
}

fn accept(greeting: &Greeting, link: &mut Link, _: &mut Stream) {
    assert!(greeting.accept(link, b"from there"));
}

#[test]
fn two_ends_come_to_an_open_link_byte_by_byte() {
    for secret in [None, Some(&secret(1))] {
        let (mut initiating, mut initiator, mut said) = begin(b"from here", secret);
        let (mut greeting, mut stream) = (Greeting::new(secret), Stream::default());
        while !greeting.is_whole() {
            assert!(!said.is_empty());
            for byte in said.drain(..) {
                assert!(!greeting.is_whole());
                stream.came.push(byte);
                greeting.read(&mut stream).unwrap();
            }
            for byte in stream.said.drain(..) {
                assert_eq!(initiator.receive(&mut initiating, &[byte]), Ok(false));
            }
            said = sent(&mut initiating);
        }
        assert_eq!(greeting.data(), b"from here");

        let mut accepting = link();
        assert!(greeting.accept(&mut accepting, b"from there"));
        let answer = sent(&mut accepting);
        for (at, byte) in answer.iter().enumerate() {
            let whole = initiator.receive(&mut initiating, &[*byte]).unwrap();
            assert_eq!(whole, at + 1 == answer.len());
        }
        assert_eq!(initiating.phase(), Phase::Open);
    }
}

#[test]
fn only_ends_with_the_same_secret_connect() {
    let (ours, same, other) = (&secret(1), &secret(1), &secret(2));
    let of = |secrets| greet(secrets, |_, _| (), accept);
    assert_eq!(of([None, None]), Outcome::Open);
    assert_eq!(of([Some(ours), Some(same)]), Outcome::Open);
    let declined = |reason| Outcome::Declined(Declined::because(reason));
    assert_eq!(of([None, Some(ours)]), declined(RefuseReason::SecretWanted));
    assert_eq!(of([Some(ours), None]), declined(RefuseReason::NoSecret));
    assert_eq!(of([Some(ours), Some(other)]), declined(RefuseReason::OtherSecret));
}

#[test]
fn an_application_says_no_to_who_has_the_secret() {
    for secret in [None, Some(&secret(1))] {
        let no = |greeting: &Greeting, _: &mut Link, stream: &mut Stream| {
            greeting.reject(stream, b"no");
        };
        let outcome = greet([secret; 2], |_, _| (), no);
        assert_eq!(outcome, Outcome::Declined(Declined::Rejected(b"no"[..].into())));
    }
    let full = |_: &Greeting, _: &mut Link, stream: &mut Stream| refuse(stream, RefuseReason::Full);
    let outcome = greet([Some(&secret(1)); 2], |_, _| (), full);
    assert_eq!(outcome, Outcome::Declined(Declined::Refused));
}

/// Each bit of each frame.
#[test]
fn a_handshake_that_was_changed_makes_no_connection() {
    let secret = &secret(1);
    let mut lens = [0; 4];
    let note = |step: usize, said: &mut Vec<u8>| lens[step] = said.len();
    assert_eq!(greet([Some(secret); 2], note, accept), Outcome::Open);
    let mut answered = 0;
    for (frame, len) in lens.into_iter().enumerate() {
        assert!(len > 0, "{frame}");
        for bit in 0..8 * len {
            let flip = |step: usize, said: &mut Vec<u8>| {
                if step == frame && bit / 8 < said.len() {
                    said[bit / 8] ^= 1 << (bit % 8);
                }
            };
            let outcome = greet([Some(secret); 2], flip, accept);
            assert_ne!(outcome, Outcome::Open, "frame {frame}, bit {bit}");
            answered += usize::from(matches!(outcome, Outcome::Declined(_)));
        }
    }
    assert!(answered > 1000, "most hear why: {answered}");
}

/// What an earlier connection said, or the other end says now, proves nothing.
#[test]
fn what_was_heard_elsewhere_proves_nothing() {
    let secret = &secret(1);
    let mut earlier: Vec<Vec<u8>> = vec![Vec::new(); 4];
    let listen = |step: usize, said: &mut Vec<u8>| earlier[step] = said.clone();
    assert_eq!(greet([Some(secret); 2], listen, accept), Outcome::Open);
    // Each frame of that connection in the place of this one's.
    for (frame, heard) in earlier.iter().enumerate() {
        let replay = |step: usize, said: &mut Vec<u8>| {
            if step == frame {
                said.clone_from(heard);
            }
        };
        assert_ne!(greet([Some(secret); 2], replay, accept), Outcome::Open, "{frame}");
    }
    // All that the initiator said then, to an acceptor of now.
    let mut greeting = Greeting::new(Some(secret));
    let mut stream = Stream { came: earlier[0].clone(), ..Stream::default() };
    assert_eq!(greeting.read(&mut stream), Ok(false));
    stream.came.clone_from(&earlier[2]);
    assert!(greeting.read(&mut stream).is_err_and(|unwelcome| unwelcome.is_unauthenticated));
    // All that the acceptor said then, to an initiator of now.
    let (mut link, mut initiator, _) = begin(b"from here", Some(secret));
    assert_eq!(initiator.receive(&mut link, &earlier[1]), Ok(false));
    let outcome = initiator.receive(&mut link, &earlier[3]);
    assert_eq!(outcome, Err(Declined::unauthenticated(NOT_PROVEN)));
    // The initiator's own words, sent back to it.
    let (mut link, mut initiator, hello) = begin(b"", Some(secret));
    let said_back = |kind, words: &[u8]| {
        let frame = Handshake { is_sealed: true, ..Handshake::new(kind, 1, 0) };
        [&frame.encode(b""), &words[words.len() - SEAL..]].concat()
    };
    let challenge = said_back(HandshakeKind::Challenge, &hello);
    assert_eq!(initiator.receive(&mut link, &challenge), Ok(false));
    let proof = sent(&mut link);
    let outcome = initiator.receive(&mut link, &said_back(HandshakeKind::Accept, &proof));
    assert_eq!(outcome, Err(Declined::unauthenticated(NOT_PROVEN)));
}

/// Nothing without the secret can play a listener either.
#[test]
fn a_listener_has_to_prove_the_secret_too() {
    let secret = &secret(1);
    let declined = |frames: &[Vec<u8>]| {
        let (mut link, mut initiator, _) = begin(b"", Some(secret));
        let all = frames.concat();
        let declined = initiator.receive(&mut link, &all).unwrap_err();
        assert_eq!(link.phase(), Phase::Idle);
        declined
    };
    let plain = |kind| Handshake::new(kind, 1, 0).encode(b"no");
    let sealed = |kind, data| {
        let frame = Handshake { is_sealed: true, ..Handshake::new(kind, 1, 0) };
        [frame.encode(data), vec![7; SEAL]].concat()
    };
    let challenge = sealed(HandshakeKind::Challenge, b"");
    for kind in [HandshakeKind::Accept, HandshakeKind::Reject] {
        let not_proven = Declined::unauthenticated(NOT_PROVEN);
        assert_eq!(declined(&[plain(kind)]), not_proven);
        assert_eq!(declined(&[sealed(kind, b"no")]), not_proven);
        assert_eq!(declined(&[challenge.clone(), plain(kind)]), not_proven);
        assert_eq!(declined(&[challenge.clone(), sealed(kind, b"no")]), not_proven);
    }
    let twice = declined(&[challenge.clone(), challenge.clone()]);
    assert!(matches!(&twice, Declined::Malformed(why) if why.contains("challenges")), "{twice:?}");
    let proof = declined(&[challenge, sealed(HandshakeKind::Proof, b"")]);
    assert!(matches!(&proof, Declined::Malformed(_)), "{proof:?}");
}

fn answer(answer: impl FnOnce(&mut Taker)) -> Declined {
    let (mut link, mut initiator, _) = begin(b"", None);
    let mut taker = Taker::new(usize::MAX);
    answer(&mut taker);
    let declined = initiator.receive(&mut link, &taker.bytes).unwrap_err();
    assert_eq!(link.phase(), Phase::Idle);
    declined
}

#[test]
fn other_answers_make_no_connection() {
    assert_eq!(answer(|to| refuse(to, RefuseReason::Full)), Declined::Refused);
    let malformed = |bytes: &[u8]| match answer(|to| to.bytes = bytes.to_vec()) {
        Declined::Malformed(why) => why,
        other => panic!("{other:?}"),
    };
    let (_, _, hello) = begin(b"", None);
    assert!(malformed(&hello).contains("a hello with a hello"));
    assert!(malformed(b"HTTP/1.1").contains("no fabric listener"));
    let sealed = |kind| {
        let frame = Handshake { is_sealed: true, ..Handshake::new(kind, 1, 0) };
        [frame.encode(b""), vec![7; SEAL]].concat()
    };
    assert!(malformed(&sealed(HandshakeKind::Challenge)).contains("no secret"));
    assert!(malformed(&sealed(HandshakeKind::Accept)).contains("it was not asked for"));
}

#[test]
fn what_is_no_hello_says_why() {
    let why = |bytes: &[u8]| {
        let mut stream = Stream { came: bytes.to_vec(), ..Stream::default() };
        let unwelcome = Greeting::default().read(&mut stream).unwrap_err();
        assert!(!unwelcome.is_unauthenticated && stream.said.is_empty());
        unwelcome.why
    };
    let (_, _, mut hello) = begin(b"", None);
    hello.push(0);
    assert!(why(&hello).contains("not alone"));
    hello[4] += 1;
    assert!(why(&hello).contains("version"));
    assert!(why(&Handshake::new(HandshakeKind::Accept, 1, 0).encode(b"")).contains("no hello"));
    let mut greeting = Greeting::default();
    assert_eq!(greeting.read(&mut Taker::new(0)), Ok(false), "nothing has come");
    assert!(!greeting.accept(&mut link(), b""));
}
