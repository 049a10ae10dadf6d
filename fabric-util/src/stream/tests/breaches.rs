//! Frames that are well formed, and wrong at their place.

use super::*;

/// An acknowledgement ends an operation, and its memory is free then: so not before its bytes have gone.
#[test]
fn what_has_not_been_transmitted_cannot_be_acknowledged() {
    for part in [0, 100, 8192, 1 << 20] {
        let (mut a, mut b) = pair();
        let to = RemoteAddr { key: b.key(), addr: 0 };
        a.post(SendOp::Write { to, imm: None }, 0, 8192, SendFlags::empty());
        if part > 0 {
            carry(&mut a, &mut b, part, &mut Vec::new());
        }
        let mut ack = Vec::new();
        Header { kind: Kind::Ack, ask: false, len: 0, ack: 1, credit: 0, seq: 0 }.encode(&mut ack);
        a.feed(&ack);
        let gone = part > 8192;
        let status = if gone { Status::Ok } else { Status::PeerLost };
        assert_eq!(statuses(&a.take_sends()), [status], "{part} bytes transmitted");
        assert_eq!(a.stats.protocol_errors.get(), u64::from(!gone), "{part} bytes transmitted");
    }
}

/// Breaches of the protocol by a peer that otherwise speaks it well.
#[test]
fn almost_right_frames_are_breaches() {
    let head = |kind, len, ack, credit, seq| {
        let mut bytes = Vec::new();
        Header { kind, ask: false, len, ack, credit, seq }.encode(&mut bytes);
        bytes.resize(
            bytes.len() + if matches!(kind, Kind::Read { .. }) { 0 } else { len as usize },
            1,
        );
        bytes
    };
    let lent = Kind::Lent { from: RemoteAddr { key: 1, addr: 1 << 48 }, more: false };
    let here = RemoteAddr { key: 1, addr: 0 };
    let send = |total| Kind::Send { total, imm: None };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a message without a credit", head(send(1), 1, 0, 0, 0)),
        (
            "an immediate without a credit",
            head(Kind::Write { total: 0, imm: Some(1), to: here }, 0, 0, 0, 0),
        ),
        ("an ack of what was never sent", head(Kind::Ack, 0, 1, 0, 0)),
        ("a request out of its order", head(Kind::Read { from: here }, 8, 0, 0, 1)),
        ("a fragment of no message", head(Kind::Data { more: false }, 8, 0, 0, 0)),
        ("a lent fragment of no message", head(lent, 8, 0, 0, 0)),
        ("an answer to what was not asked", head(Kind::ReadData { last: true }, 8, 0, 0, 0)),
        ("an old value that was not asked for", head(Kind::OldValue, 8, 0, 0, 0)),
        (
            "a refusal of what was not asked",
            head(Kind::Nak { status: Status::TooLong }, 0, 0, 0, 0),
        ),
        (
            "a credit that was taken back",
            [head(Kind::Ack, 0, 0, 5, 0), head(Kind::Ack, 0, 0, 4, 0)].concat(),
        ),
        ("an unknown kind", vec![77; 64]),
        ("a handshake in the middle", b"FBRC\x01\x01".repeat(10)),
    ];
    for (what, bytes) in cases {
        let (_, mut b) = pair();
        b.feed(&bytes);
        assert_eq!(b.reasons(), [DisconnectReason::Protocol], "{what}");
        assert_eq!(b.stats.protocol_errors.get(), 1, "{what}");
        assert_eq!(b.link.phase(), Phase::Closed, "{what}");
    }
}

#[test]
fn reads_beyond_the_limit_are_a_breach() {
    let (_, mut b) = pair();
    let from = RemoteAddr { key: b.key(), addr: 0 };
    for seq in 0..=READS {
        let mut bytes = Vec::new();
        Header { kind: Kind::Read { from }, ask: false, len: 8, ack: 0, credit: 0, seq }
            .encode(&mut bytes);
        b.feed(&bytes);
    }
    assert_eq!(b.reasons(), [DisconnectReason::Protocol]);
}

/// Of a send and of a write, too much of it, and what this side cannot reach at all.
#[test]
fn what_is_lent_to_a_side_that_reaches_nothing_is_a_breach() {
    for (is_send, len, more) in
        [(true, 8, false), (true, 9, false), (true, 8, true), (true, 4, true), (false, 8, false)]
    {
        let (_, mut b) = pair();
        b.receive(0, 64);
        let to = RemoteAddr { key: b.key(), addr: 0 };
        let kind = match is_send {
            true => Kind::Send { total: 16, imm: None },
            false => Kind::Write { total: 16, imm: None, to },
        };
        let mut bytes = Vec::new();
        Header { kind, ask: false, len: 8, ack: 0, credit: 0, seq: 0 }.encode(&mut bytes);
        bytes.resize(bytes.len() + 8, 1);
        let kind = Kind::Lent { from: RemoteAddr { key: 1, addr: 1 << 48 }, more };
        Header { kind, ask: false, len, ack: 0, credit: 0, seq: 0 }.encode(&mut bytes);
        b.feed(&bytes);
        assert_eq!(b.reasons(), [DisconnectReason::Protocol], "{is_send} {len} {more}");
        assert_eq!(b.bytes(8, 8), [0; 8]);
        assert_eq!(statuses(&b.take_recvs()), [Status::Canceled]);
    }
}

#[test]
fn a_fragment_beyond_its_message_is_a_breach() {
    let (_, mut b) = pair();
    b.receive(0, 64);
    let mut bytes = Vec::new();
    let kind = Kind::Send { total: 16, imm: None };
    Header { kind, ask: false, len: 8, ack: 0, credit: 0, seq: 0 }.encode(&mut bytes);
    bytes.resize(bytes.len() + 8, 1);
    Header { kind: Kind::Data { more: false }, ask: false, len: 9, ack: 0, credit: 0, seq: 0 }
        .encode(&mut bytes);
    bytes.resize(bytes.len() + 9, 2);
    b.feed(&bytes);
    assert_eq!(b.reasons(), [DisconnectReason::Protocol]);
    assert_eq!(b.bytes(8, 8), [0; 8]);
    assert_eq!(statuses(&b.take_recvs()), [Status::Canceled]);
}
