//! Two ends that encrypt, in memory.

mod identities;

use std::io::{self, ErrorKind};
use std::sync::Arc;

use fabric_core::Secret;
use rustls::SupportedCipherSuite;
use rustls::crypto::{CipherSuiteCommon, CryptoProvider};

use super::keys::provider;
use super::*;
use crate::fault::FaultTransport;
use crate::refusal::{Declined, Unwelcome};
use crate::splitmix::SplitMix64;
use crate::stream::testing::Stream;
use crate::stream::{Greeting, Protection, Transport};

fn keys(of: u8) -> TlsKeys {
    TlsKeys::new(Some(&Secret::new(&[of; 32]).unwrap()), None).unwrap()
}

fn ends(keys: [&TlsKeys; 2]) -> [TlsTransport<Stream>; 2] {
    [
        TlsTransport::initiator(Stream::default(), keys[0]).unwrap(),
        TlsTransport::acceptor(Stream::default(), keys[1]).unwrap(),
    ]
}

fn send(end: &mut impl Transport, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the bytes are read only.
    unsafe { end.send(&[(bytes.as_ptr().cast_mut(), bytes.len())]) }
}

fn recv(end: &mut impl Transport, room: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0xee; room];
    // Two runs; the first may be empty.
    let (first, second) = bytes.split_at_mut(room / 3);
    let runs = [(first.as_mut_ptr(), first.len()), (second.as_mut_ptr(), second.len())];
    // SAFETY: the memory is ours.
    let got = unsafe { end.recv(&runs) }?;
    assert!(bytes[got..].iter().all(|byte| *byte == 0xee), "nothing behind what was received");
    bytes.truncate(got);
    Ok(bytes)
}

fn is_blocked<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// What either end says reaches the other; `tamper` may change it. Says what each came to.
fn shake_hands(
    [a, b]: &mut [TlsTransport<Stream>; 2],
    mut tamper: impl FnMut(usize, &mut Vec<u8>),
) -> [io::Result<bool>; 2] {
    let mut outcome = [Ok(false), Ok(false)];
    for step in 0.. {
        outcome[0] = a.finish_connect();
        let mut said = std::mem::take(&mut a.inner_mut().said);
        tamper(2 * step, &mut said);
        b.inner_mut().came.extend(said);
        outcome[1] = match recv(b, 0) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(b.is_ready()),
        };
        let mut said = std::mem::take(&mut b.inner_mut().said);
        let is_over = said.is_empty() || outcome[0].is_err();
        tamper(2 * step + 1, &mut said);
        a.inner_mut().came.extend(said);
        if is_over {
            break;
        }
    }
    outcome
}

fn connected() -> [TlsTransport<Stream>; 2] {
    let keys = keys(1);
    let mut ends = ends([&keys, &keys]);
    let outcome = shake_hands(&mut ends, |_, _| ());
    assert!(matches!(outcome, [Ok(true), Ok(true)]), "{outcome:?}");
    ends
}

fn move_said(from: &mut TlsTransport<Stream>, to: &mut TlsTransport<Stream>) {
    to.inner_mut().came.append(&mut from.inner_mut().said);
}

#[test]
fn bytes_arrive_as_they_were_sent_and_none_goes_in_clear() {
    let [mut a, mut b] = connected();
    let mut dice = SplitMix64::new(1);
    for (len, room) in
        [(1, 1), (64, 4096), (5000, 100), (16 << 10, 16 << 10), (200_000, 300_000), (70_000, 7)]
    {
        let sent: Vec<u8> = (0..len).map(|_| dice.below(256) as u8).collect();
        let (mut taken, mut got) = (0, Vec::new());
        while got.len() < len {
            if taken < len {
                taken += send(&mut a, &sent[taken..]).unwrap();
            }
            let seen = &a.inner().said;
            assert!(
                len < 64 || !seen.windows(16).any(|part| sent.windows(16).next() == Some(part))
            );
            move_said(&mut a, &mut b);
            loop {
                let more = recv(&mut b, room);
                if is_blocked(&more) {
                    break;
                }
                got.extend(more.unwrap());
            }
        }
        assert!(got == sent, "{len} bytes, {room} at a time");
        assert!(!b.gave_up() && !a.is_holding());
        std::mem::swap(&mut a, &mut b);
    }
}

#[test]
fn what_the_stream_does_not_take_is_held_and_passed_on() {
    let [mut a, mut b] = connected();
    let sent = vec![7; 300_000];
    a.inner_mut().max = 1000;
    assert_eq!(send(&mut a, &sent).unwrap(), 256 << 10, "what is encrypted is taken, all of it");
    a.inner_mut().said.clear();
    let [mut a, _] = connected_with(&mut b);
    a.inner_mut().max = 0;
    assert_eq!(send(&mut a, &sent).unwrap(), 256 << 10);
    assert!(a.is_holding() && a.unsent() > 256 << 10);
    assert!(is_blocked(&send(&mut a, &sent)) && is_blocked(&a.flush()));
    a.inner_mut().max = usize::MAX;
    a.flush().unwrap();
    assert!(!a.is_holding() && a.unsent() == 0);
    move_said(&mut a, &mut b);
    assert_eq!(recv(&mut b, 300_000).unwrap(), sent[..256 << 10]);
}

#[test]
fn what_a_peer_said_before_it_left_is_received() {
    let [mut a, mut b] = connected();
    send(&mut b, &[7; 100]).unwrap();
    move_said(&mut b, &mut a);
    a.inner_mut().max = 0;
    send(&mut a, &[1; 100]).unwrap();
    (a.inner_mut().is_broken, a.inner_mut().has_ended) = (true, true);
    assert!(a.is_holding());
    assert_eq!(recv(&mut a, 60).unwrap(), [7; 60]);
    assert_eq!(recv(&mut a, 60).unwrap(), [7; 40]);
    assert!(a.gave_up(), "the end is to be found");
    assert!(recv(&mut a, 60).unwrap().is_empty());
}

/// A byte in a record is much work for little.
#[test]
fn others_have_their_turn_however_little_is_in_what_came() {
    const COUNT: usize = 40_000;
    let [mut a, mut b] = connected();
    (0..COUNT).for_each(|_| assert_eq!(send(&mut a, &[7]).unwrap(), 1));
    move_said(&mut a, &mut b);
    let (mut before, mut got) = (b.inner().came.len(), 0);
    while got < COUNT {
        got += recv(&mut b, 64 << 10).unwrap().len();
        let now = b.inner().came.len();
        assert!(before - now <= 600 << 10, "{} bytes at once", before - now);
        assert!(b.gave_up() || got == COUNT, "no event follows");
        before = now;
    }
}

#[test]
fn a_connection_that_comes_to_rest_keeps_little() {
    let [mut a, mut b] = connected();
    for round in 0..3 {
        let sent = vec![round; 1 << 20];
        let mut taken = 0;
        while taken < sent.len() {
            taken += send(&mut a, &sent[taken..]).unwrap();
            move_said(&mut a, &mut b);
            while !is_blocked(&recv(&mut b, 300_000)) {}
        }
        assert!(a.session.memory() > 64 << 10);
        // What was sent is acknowledged.
        send(&mut b, &[1; 20]).unwrap();
        move_said(&mut b, &mut a);
        assert_eq!(recv(&mut a, 100).unwrap(), [1; 20]);
        let left = [&a, &b].map(|end| end.session.memory());
        assert!(left.iter().all(|bytes| *bytes <= 48 << 10), "{left:?}");
    }
}

/// A new pair; its acceptor takes the place of `b`.
fn connected_with(b: &mut TlsTransport<Stream>) -> [TlsTransport<Stream>; 2] {
    let [a, other] = connected();
    let old = std::mem::replace(b, other);
    [a, old]
}

/// Each end in turn, over transports that cut, until both have everything.
#[test]
fn over_a_stream_that_cuts_and_hesitates() {
    let keys = keys(1);
    for seed in 0..20 {
        let mut ends = [
            TlsTransport::initiator(FaultTransport::new(Stream::default(), seed), &keys).unwrap(),
            TlsTransport::acceptor(FaultTransport::new(Stream::default(), !seed), &keys).unwrap(),
        ];
        let sent = [vec![1; 100_000], vec![2; 150_000]];
        let (mut taken, mut got, mut is_up) = ([0; 2], [Vec::new(), Vec::new()], false);
        for turn in 0.. {
            assert!(turn < 1_000_000, "seed {seed}: {taken:?}");
            let here = turn % 2;
            let (end, other) = (here, 1 - here);
            is_up |= here == 0 && !is_up && ends[0].finish_connect().unwrap();
            if taken[end] < sent[end].len() {
                match send(&mut ends[end], &sent[end][taken[end]..]) {
                    Ok(count) => taken[end] += count,
                    error => assert!(is_blocked(&error), "{error:?}"),
                }
            } else if ends[end].is_holding() {
                let flushed = ends[end].flush();
                assert!(flushed.is_ok() || is_blocked(&flushed), "{flushed:?}");
            }
            if here == 1 || is_up {
                match recv(&mut ends[end], 10_000) {
                    Ok(bytes) => got[end].extend(bytes),
                    error => assert!(is_blocked(&error), "{error:?}"),
                }
            }
            let said = std::mem::take(&mut ends[end].inner_mut().inner_mut().said);
            ends[other].inner_mut().inner_mut().came.extend(said);
            if got[0].len() == sent[1].len() && got[1].len() == sent[0].len() {
                break;
            }
        }
        assert!(got[0] == sent[1] && got[1] == sent[0], "seed {seed}");
    }
}

fn declined(outcome: &io::Result<bool>) -> Option<&Declined> {
    outcome.as_ref().err()?.get_ref()?.downcast_ref()
}

fn unwelcome(outcome: &io::Result<bool>) -> Option<&Unwelcome> {
    outcome.as_ref().err()?.get_ref()?.downcast_ref()
}

#[test]
fn only_ends_with_the_same_secret_connect() {
    let outcome = shake_hands(&mut ends([&keys(1), &keys(2)]), |_, _| ());
    let Some(Declined::Unauthenticated(text)) = declined(&outcome[0]) else {
        panic!("{outcome:?}")
    };
    assert!(text.contains("another secret"), "{text}");
    assert!(unwelcome(&outcome[1]).unwrap().is_unauthenticated, "{outcome:?}");
}

/// An end without the secret repeats what an earlier initiator said first.
#[test]
fn a_copy_of_the_first_frame_does_not_get_further() {
    let (with, without) = (keys(1), keys(2));
    let mut copied = TlsTransport::initiator(Stream::default(), &with).unwrap();
    assert!(!copied.finish_connect().unwrap());
    let first = copied.inner().said[..84].to_vec();
    let mut ends = ends([&without, &with]);
    let outcome = shake_hands(&mut ends, |step, said| {
        if step == 0 {
            said.splice(..84, first.clone());
        }
    });
    assert!(matches!(declined(&outcome[0]), Some(Declined::Unauthenticated(_))), "{outcome:?}");
    assert!(!matches!(outcome[1], Ok(true)), "{outcome:?}");
}

#[test]
fn a_handshake_that_was_changed_makes_no_connection() {
    no_byte_may_change(&keys(1));
}

/// A bit of each byte of what either end says until both are ready.
fn no_byte_may_change(keys: &TlsKeys) {
    let mut lens = Vec::new();
    let outcome = shake_hands(&mut ends([keys, keys]), |_, said| lens.push(said.len()));
    assert!(matches!(outcome, [Ok(true), Ok(true)]), "{outcome:?}");
    lens.retain(|len| *len > 0);
    assert_eq!(lens.len(), 3, "{lens:?}");
    for (flight, len) in lens.into_iter().enumerate() {
        for at in 0..len {
            let mut ends = ends([keys, keys]);
            let outcome = shake_hands(&mut ends, |step, said| {
                if step == flight && at < said.len() {
                    said[at] ^= 1 << (at % 8);
                }
            });
            if flight < 2 {
                assert!(!matches!(outcome[0], Ok(true)), "{flight} {at}: {outcome:?}");
            }
            assert!(!matches!(outcome[1], Ok(true)), "{flight} {at}: {outcome:?}");
        }
    }
}

/// The records of one end, changed: no byte arrives that was not sent, and the end is noticed.
#[test]
fn records_that_were_changed_end_the_connection() {
    type Change = fn(&mut Vec<Vec<u8>>, usize);
    let changes: [(&str, Change); 5] = [
        ("changed", |records, at| {
            let len = records[2].len();
            records[2][at % len] ^= 1 << (at % 8);
        }),
        ("cut", |records, at| {
            let len = records[2].len();
            records[2].truncate(at % len);
        }),
        ("left out", |records, _| drop(records.remove(2))),
        ("repeated", |records, _| records.insert(2, records[2].clone())),
        ("reordered", |records, _| records.swap(2, 3)),
    ];
    let len = 300;
    for (what, change) in changes {
        let places = if matches!(what, "changed" | "cut") { len + 22 } else { 1 };
        for at in 0..places {
            let [mut a, mut b] = connected();
            let mut sent = Vec::new();
            let mut records: Vec<Vec<u8>> = (0..5)
                .map(|number| {
                    sent.extend(vec![number; len]);
                    send(&mut a, &vec![number; len]).unwrap();
                    std::mem::take(&mut a.inner_mut().said)
                })
                .collect();
            change(&mut records, at);
            b.inner_mut().came = records.concat();
            let mut got = Vec::new();
            let error = loop {
                match recv(&mut b, 1000) {
                    Ok(bytes) => got.extend(bytes),
                    Err(error) => break error,
                }
            };
            // A record whose length was changed may be one that has still to come: until the stream ends.
            let is_noticed = if error.kind() == ErrorKind::WouldBlock {
                b.inner_mut().has_ended = true;
                matches!(recv(&mut b, 1000), Ok(end) if end.is_empty())
            } else {
                error.kind() == ErrorKind::InvalidData
            };
            assert!(is_noticed, "{what} {at}: {error:?}");
            let whole = if what == "repeated" { 3 * len } else { 2 * len };
            // A header that is wrong is noticed before what came in front of it is looked at.
            let is_whole = got.len() == whole || got.is_empty();
            assert!(is_whole && sent.starts_with(&got), "{what} {at}: {} bytes", got.len());
        }
    }
}

/// As `provider`, with keys that are good for a few records.
fn changes_keys_often() -> CryptoProvider {
    let mut provider = provider();
    let SupportedCipherSuite::Tls13(suite) = provider.cipher_suites[0];
    let common = CipherSuiteCommon { confidentiality_limit: 5, ..copy(&suite.common) };
    let suite = rustls::Tls13CipherSuite {
        common,
        hkdf_provider: suite.hkdf_provider,
        aead_alg: suite.aead_alg,
        quic: None,
    };
    provider.cipher_suites = vec![SupportedCipherSuite::Tls13(Box::leak(Box::new(suite)))];
    provider
}

fn copy(common: &CipherSuiteCommon) -> CipherSuiteCommon {
    CipherSuiteCommon {
        suite: common.suite,
        hash_provider: common.hash_provider,
        confidentiality_limit: 0,
    }
}

#[test]
fn keys_are_changed_under_load() {
    let keys =
        TlsKeys::with(Some(&Secret::new(&[1; 32]).unwrap()), None, changes_keys_often()).unwrap();
    let mut ends = ends([&keys, &keys]);
    let outcome = shake_hands(&mut ends, |_, _| ());
    assert!(matches!(outcome, [Ok(true), Ok(true)]), "{outcome:?}");
    let (mut records, mut bytes) = (0, 0);
    for round in 0..200 {
        let [a, b] = &mut ends;
        let sent = vec![round as u8; 1 + round * 500];
        let mut taken = 0;
        while taken < sent.len() {
            let count = send(a, &sent[taken..]).unwrap();
            records += count.div_ceil(16 << 10);
            let plain = count + count.div_ceil(16 << 10) * 22;
            bytes += a.inner().said.len() - plain.min(a.inner().said.len());
            move_said(a, b);
            assert!(recv(b, 1 << 20).unwrap() == sent[taken..taken + count]);
            taken += count;
        }
        ends.swap(0, 1);
    }
    // Each change is a record of its own.
    assert!(bytes / 27 > records / 10, "{} changes of keys in {records} records", bytes / 27);
}

#[test]
fn ends_of_other_levels_hear_what_is_wrong() {
    let secret = &Secret::new(&[1; 32]).unwrap();
    let handshake = Arc::new(crate::proof::HandshakeKeys::new(secret));
    let keys = keys(1);
    // One that encrypts, to one that does not.
    for (level, says) in [
        (Protection::Open, "no secret"),
        (Protection::Authenticated(handshake.clone()), "not encrypt"),
    ] {
        let mut a = TlsTransport::initiator(Stream::default(), &keys).unwrap();
        assert!(!a.finish_connect().unwrap());
        let mut b = Stream { came: std::mem::take(&mut a.inner_mut().said), ..Stream::default() };
        let mut greeting = Greeting::new(level.handshake());
        assert!(greeting.read(&mut b).unwrap_err().is_unauthenticated);
        assert!(b.came.is_empty(), "what was not read would make the kernel forget the refusal");
        a.inner_mut().came = b.said;
        let outcome = a.finish_connect();
        let Some(Declined::Unauthenticated(text)) = declined(&outcome) else {
            panic!("{outcome:?}")
        };
        assert!(text.contains(says), "{text}");
    }
    // And the other way round.
    for level in [None, Some(&*handshake)] {
        let mut link = crate::stream::testing::link();
        let mut initiator = crate::stream::Initiator::begin(&mut link, b"", level).unwrap();
        let mut hello = Stream::default();
        link.send_to(&mut hello).unwrap();
        let mut b = TlsTransport::acceptor(Stream::default(), &keys).unwrap();
        b.inner_mut().came = hello.said;
        let unwelcome = Greeting::new(None).read(&mut b).unwrap_err();
        assert!(unwelcome.is_unauthenticated && unwelcome.why.contains("not encrypt"));
        let declined = initiator.receive(&mut link, &b.inner().said).unwrap_err();
        assert!(matches!(declined, Declined::Unauthenticated(text) if text.contains("encrypts")));
    }
}

#[test]
fn strangers_get_no_answer_and_cost_no_curve() {
    let mut b = TlsTransport::acceptor(Stream::default(), &keys(1)).unwrap();
    // TLS, without what is to be said first.
    b.inner_mut().came = vec![0x16, 3, 1, 0, 200];
    let error = recv(&mut b, 10).unwrap_err();
    let why = error.get_ref().unwrap().to_string();
    assert!(why.contains("no valid handshake"), "{why}");
    assert!(b.inner().said.is_empty());
}
