//! What ends a connection: refused requests, closed regions, a disconnect, the end of the stream.

use super::*;

#[test]
fn a_refused_write_ends_what_follows_and_nothing_before() {
    let (mut a, mut b) = pair();
    a.put(0, &[9; 64]);
    b.receive(0, 64);
    let to = |b: &Node, addr| RemoteAddr { key: b.key(), addr };
    a.post(SendOp::Write { to: to(&b, 0), imm: None }, 0, 8, SendFlags::empty());
    a.post(SendOp::Read { from: to(&b, 0) }, 128, 8, SendFlags::empty());
    a.post(SendOp::Write { to: to(&b, HALF as u64 - 4), imm: None }, 0, 8, SendFlags::empty());
    a.post(SendOp::Write { to: to(&b, 16), imm: None }, 0, 8, SendFlags::empty());
    settle(&mut a, &mut b, 50);
    use Status::{Canceled, Ok, RemoteAccess};
    assert_eq!(statuses(&a.take_sends()), [Ok, Ok, RemoteAccess, Canceled]);
    assert_eq!(statuses(&b.take_recvs()), [Canceled]);
    assert_eq!(b.bytes(HALF, 24), [[9; 8], [0; 8], [0; 8]].concat());
    assert_eq!(b.bytes(2 * HALF - 4, 4), [0; 4]);
    for node in [&mut a, &mut b] {
        assert_eq!(node.reasons(), [DisconnectReason::OperationFailed]);
    }
}

#[test]
fn an_oversize_message_is_too_long_on_both_sides() {
    let (mut a, mut b) = pair();
    b.receive(0, 8);
    b.receive(8, 8);
    a.post(SendOp::Send { imm: None }, 0, 9, SendFlags::empty());
    settle(&mut a, &mut b, 1 << 16);
    assert_eq!(statuses(&a.take_sends()), [Status::TooLong]);
    assert_eq!(statuses(&b.take_recvs()), [Status::TooLong, Status::Canceled]);
}

#[test]
fn a_region_that_closes_during_a_read_gives_nothing_more() {
    let (mut a, mut b) = pair();
    b.put(HALF, &[7; 1000]);
    let from = RemoteAddr { key: b.key(), addr: 0 };
    a.post(SendOp::Read { from }, 0, HALF / 2, SendFlags::empty());
    let (mut there, mut back) = (Vec::new(), Vec::new());
    carry(&mut a, &mut b, 1 << 20, &mut there);
    carry(&mut b, &mut a, 100, &mut back);
    b.registration.deregister().unwrap();
    b.put(HALF, &[8; HALF]);
    settle(&mut a, &mut b, 1 << 20);
    assert_eq!(statuses(&a.take_sends()), [Status::RemoteAccess]);
    assert!(!a.bytes(0, HALF / 2).contains(&8), "bytes of a closed region were sent");
}

/// The call that finds the end while it transmits reports it, whatever it transmits for.
#[test]
fn a_region_that_closes_under_an_answer_in_the_stream_ends_everything_in_flight() {
    let (mut a, mut b) = pair();
    b.receive(0, 8);
    let from = RemoteAddr { key: b.key(), addr: 0 };
    a.post(SendOp::Read { from }, 0, HALF / 2, SendFlags::empty());
    carry(&mut a, &mut b, 1 << 20, &mut Vec::new());
    b.link.encode_pending();
    // Its header goes, and what is next is the region's.
    assert!(b.link.send_to(&mut Taker::of_pieces(1)).unwrap() < 100 && b.link.has_output());
    b.registration.deregister().unwrap();
    b.link.send_to(&mut Taker::new(0)).unwrap();
    assert_eq!(statuses(&b.take_recvs()), [Status::Canceled]);
}

/// The refusal of a read whose region has closed comes first, whatever is refused behind it, and when.
#[test]
fn a_region_that_closes_refuses_its_read_whatever_comes_behind() {
    let bad =
        |b: &Node| SendOp::Write { to: RemoteAddr { key: b.key(), addr: HALF as u64 }, imm: None };
    let refused = |a: &mut Node, b: &mut Node, expected: &[Status], when: &str| {
        assert_eq!(statuses(&a.take_sends()), expected, "{when}");
        for node in [a, b] {
            let reasons = node.reasons();
            assert_eq!(reasons, [DisconnectReason::OperationFailed], "{when}");
        }
    };
    use Status::{Canceled, Ok, RemoteAccess};

    for before in [true, false] {
        let (mut a, mut b) = pair();
        let (from, bad) = (RemoteAddr { key: b.key(), addr: 0 }, bad(&b));
        a.post(SendOp::Read { from }, 0, HALF / 2, SendFlags::empty());
        let mut there = Vec::new();
        carry(&mut a, &mut b, 1 << 20, &mut there);
        b.link.encode_pending();
        if before {
            b.registration.deregister().unwrap();
        }
        a.post(bad, 0, 8, SendFlags::empty());
        carry(&mut a, &mut b, 1 << 20, &mut there);
        b.registration.deregister().unwrap();
        settle(&mut a, &mut b, 1 << 20);
        let when = format!("closed before the refusal: {before}");
        // What is behind a refusal is copied with it, so the region may close then.
        let expected = if before { [RemoteAccess, Canceled] } else { [Ok, RemoteAccess] };
        refused(&mut a, &mut b, &expected, &when);
    }

    // Both requests come together, so that the answer is cut when the end is known.
    let (mut a, mut b) = pair();
    let (from, bad_write) = (RemoteAddr { key: b.key(), addr: 0 }, bad(&b));
    a.post(SendOp::Read { from }, 0, HALF / 2, SendFlags::empty());
    a.post(bad_write, 0, 8, SendFlags::empty());
    let mut there = Vec::new();
    carry(&mut a, &mut b, 1 << 20, &mut there);
    b.registration.deregister().unwrap();
    settle(&mut a, &mut b, 1 << 20);
    refused(&mut a, &mut b, &[RemoteAccess, Canceled], "cut after the refusal");

    // The closed region's answer is short and has to wait for a long one of another.
    let (mut a, mut b) = pair();
    let bad_write = bad(&b);
    let long = b.at(HALF);
    let regions = &b.link.context.regions;
    // SAFETY: the memory outlives the registration.
    let other = unsafe { Registration::new("test", regions, (long, HALF), Access::ALL) }.unwrap();
    a.post(
        SendOp::Read { from: RemoteAddr { key: other.remote_key(), addr: 0 } },
        0,
        HALF,
        SendFlags::empty(),
    );
    a.post(SendOp::Read { from: RemoteAddr { key: b.key(), addr: 0 } }, 0, 8, SendFlags::empty());
    a.post(bad_write, 0, 8, SendFlags::empty());
    carry(&mut a, &mut b, 1 << 20, &mut there);
    b.registration.deregister().unwrap();
    settle(&mut a, &mut b, 1 << 20);
    refused(&mut a, &mut b, &[Ok, RemoteAccess, Canceled], "a short answer");
}

#[test]
fn disconnect_in_the_middle_of_a_message_lets_go_of_its_memory() {
    let (mut a, mut b) = pair();
    b.receive(0, HALF / 2);
    a.post(SendOp::Send { imm: None }, 0, HALF / 2, SendFlags::empty());
    let mut pipe = Vec::new();
    carry(&mut a, &mut b, 1000, &mut pipe);
    a.link.end(End::Local);
    assert_eq!(statuses(&a.take_sends()), [Status::Canceled]);
    // The operation is over: its memory may change, and what is still transmitted must not show it.
    a.put(0, &[0xee; HALF / 2]);
    settle(&mut a, &mut b, 1 << 20);
    assert!(!b.bytes(0, HALF / 2).contains(&0xee));
    assert_eq!(statuses(&b.take_recvs()), [Status::Canceled]);
    assert_eq!(b.reasons(), [DisconnectReason::Remote]);
    assert!(a.link.fully_sent());
}

#[test]
fn the_end_of_the_stream_loses_the_oldest_and_cancels_the_rest() {
    let (mut a, mut b) = pair();
    a.receive(0, 8);
    a.post(SendOp::Send { imm: None }, 0, 8, SendFlags::empty());
    a.post(SendOp::Send { imm: None }, 0, 8, SendFlags::empty());
    a.link.end(End::Lost);
    a.link.deliver();
    assert_eq!(statuses(&a.take_sends()), [Status::PeerLost, Status::Canceled]);
    assert_eq!(statuses(&a.take_recvs()), [Status::Canceled]);
    assert_eq!(a.reasons(), [DisconnectReason::PeerLost]);
    b.link.end(End::Quiet);
    assert!(b.take_recvs().is_empty());
}

#[test]
fn what_an_end_cancels_waits_until_the_end_was_reported() {
    let (mut a, _b) = pair();
    a.receive(0, 64);
    a.post(SendOp::Send { imm: None }, 0, 8, SendFlags::empty());
    a.link.end(End::Local);
    // As where its lock is released.
    a.link.deliver();
    assert!(take(&a.sends).is_empty() && take(&a.recvs).is_empty());
    assert_eq!(a.reasons(), [DisconnectReason::Local]);
    assert_eq!(statuses(&take(&a.sends)), [Status::Canceled]);
    assert_eq!(statuses(&take(&a.recvs)), [Status::Canceled]);
}

#[test]
fn nothing_waits_for_a_report_once_the_endpoint_is_dropped() {
    let (mut a, _b) = pair();
    a.receive(0, 64);
    a.link.end(End::Local);
    a.link.end(End::Quiet);
    a.link.deliver();
    assert_eq!(statuses(&take(&a.recvs)), [Status::Canceled]);
    assert!(a.link.take_events().is_empty());
    // As by a thread that was about to report.
    a.link.reported();
    assert!(take(&a.recvs).is_empty());
}

#[test]
fn the_last_unsignaled_operation_is_known_to_have_succeeded_once_the_connection_has_ended() {
    let (mut a, mut b) = pair();
    let to = RemoteAddr { key: b.key(), addr: 0 };
    for _ in 0..3 {
        a.post_with(SendOp::Write { to, imm: None }, 0, 8, SendFlags::empty());
    }
    settle(&mut a, &mut b, 1 << 16);
    assert!(a.take_sends().is_empty());
    a.link.end(End::Local);
    let ends = a.take_sends();
    assert_eq!((statuses(&ends), ends[0].token.sequence()), (vec![Status::Ok], 2));
}
