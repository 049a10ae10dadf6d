//! Sends whose acknowledgement comes with a message: an application that polls has the message first, and they complete in the
//! next turn.

use super::conn::{Peer, linked, rest};
use super::*;
use crate::progress::Progress;
use crate::stream::Deferral;

/// Two ends of polling applications; a message of the near one is acknowledged by one of the far one's, which is there.
fn answered() -> (Peer, Peer) {
    let (mut near, mut far) = linked();
    near.receive(10);
    rest(&near, &far);
    near.log.may_defer.set(true);
    far.log.may_defer.set(true);
    near.send(0, 64);
    far.turn();
    far.send(0, 64);
    (near, far)
}

#[test]
fn a_message_is_handed_out_before_the_send_that_it_acknowledges() {
    let (mut near, mut far) = answered();
    assert_eq!(near.turn(), Progress::Drained, "the next turn has to follow");
    assert_eq!((take(&near.recvs).len(), take(&near.sends).len()), (1, 0));
    // The answer is not held up by the send before it.
    let segments = [Segment::new(near.memory.as_mut_ptr().cast(), 64, 0)];
    let (op, token) = (SendOp::Send { imm: None }, Token::new(0, 0, Side::Send, 1));
    let work = SendWork::new(token, op, &segments, SendFlags::SIGNALED);
    // SAFETY: the memory is kept as long as the connection.
    assert!(unsafe { near.lock().post_short(&work) });
    far.turn();
    assert_eq!(take(&far.recvs).len(), 2);
    far.send(1, 64);
    assert_eq!(near.turn(), Progress::Drained);
    let tokens = |ring| take(ring).iter().map(|one| one.token.sequence()).collect::<Vec<_>>();
    assert_eq!(tokens(&near.sends), [0]);
    assert!(
        take(&near.recvs).is_empty(),
        "no look at the stream where an application may wait for the send"
    );
    near.turn();
    assert_eq!((take(&near.recvs).len(), take(&near.sends).len()), (1, 0));
    near.turn();
    assert_eq!(tokens(&near.sends), [1]);
}

#[test]
fn a_send_that_is_acknowledged_completes_with_the_message_where_no_turn_follows() {
    let (near, _far) = answered();
    near.log.may_defer.set(false);
    near.turn();
    assert_eq!((take(&near.recvs).len(), take(&near.sends).len()), (1, 1));
}

#[test]
fn a_send_that_is_acknowledged_ends_well_whatever_ends_the_connection() {
    for lost in [false, true] {
        let (mut near, far) = answered();
        near.turn();
        near.send(1, 64);
        if lost {
            far.wire.out.borrow_mut().ended = true;
        } else {
            near.lock().end(End::Local);
        }
        while near.turn() != Progress::Closed && near.ended().is_none() {}
        near.conn.reported();
        let rest = if lost { Status::PeerLost } else { Status::Canceled };
        assert_eq!(statuses(&take(&near.sends)), [Status::Ok, rest]);
    }
}

/// The read is acknowledged, and its bytes are still to come; what has completed waits for an event.
#[test]
fn completions_that_wait_for_an_event_keep_no_turn_from_reading() {
    let (mut near, mut far) = linked();
    near.receive(10);
    rest(&near, &far);
    near.log.may_defer.set(true);
    near.read(0, 0);
    near.lock().link.report_end(DisconnectReason::Remote);
    far.lock().link.defer(Deferral { updates: false, answers: true });
    far.turn();
    for number in 0..2 {
        far.send(number, 64);
        // Many, so that the acknowledgement goes in the end.
        for _ in 0..100 {
            near.turn();
        }
        assert!(near.wire.back.borrow().bytes.is_empty(), "message {number} was not read");
    }
    near.conn.reported();
    assert_eq!(take(&near.recvs).len(), 2);
}
