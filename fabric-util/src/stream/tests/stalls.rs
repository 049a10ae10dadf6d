//! Connections that are to end when what is under way does not get on; the test decides when they are looked at.

use std::time::Duration;

use super::conn::{Peer, linked_with, rest};
use super::*;
use crate::stream::Timer;

const LEN: usize = 8192;
/// More than it takes.
const LOOKS: usize = 20;

/// Two ends that rest. The first is not to stall.
fn linked() -> (Peer, Peer) {
    let (near, far) = linked_with(Some(Duration::from_secs(10)));
    look(&near);
    assert!(!look(&near), "nothing is under way");
    (near, far)
}

/// The deadline of a look comes, if there is one. True if there was.
fn look(near: &Peer) -> bool {
    let due = near.deadlines().into_iter().filter(|timer| *timer == Timer::Stall).count();
    assert!(due <= 1, "{due} looks at a time");
    if due > 0 {
        near.lock().expired(Timer::Stall);
        near.conn.reported();
    }
    due > 0
}

/// Why it ended after so many looks, each after something was done.
fn ended_after(near: &Peer, mut before_each: impl FnMut(usize)) -> Option<DisconnectReason> {
    for number in 0..LOOKS {
        before_each(number);
        look(near);
    }
    near.ended()
}

#[test]
fn operations_of_which_none_completes_end_it_canceled_and_the_peer_hears_of_it() {
    let (mut near, far) = linked();
    near.send(0, 64);
    near.send(1, 64);
    let mut looks = 0;
    while near.ended().is_none() {
        assert!(look(&near), "a look is due after {looks}");
        looks += 1;
    }
    assert_eq!((near.ended(), looks), (Some(DisconnectReason::Stalled), 4));
    assert_eq!(statuses(&take(&near.sends)), [Status::Canceled; 2]);
    rest(&near, &far);
    assert_eq!(far.ended(), Some(DisconnectReason::Remote));
}

#[test]
fn a_send_that_waits_for_its_receive_is_under_way_though_nothing_is_written() {
    let (mut near, far) = linked();
    // All receives of the other end are used up.
    for number in 0..100 {
        near.send(number, 8);
        rest(&near, &far);
    }
    while look(&near) {}
    assert_eq!((near.ended(), take(&near.sends).len()), (None, 100));
    near.send(100, 8);
    assert_eq!(ended_after(&near, |_| rest(&near, &far)), Some(DisconnectReason::Stalled));
}

#[test]
fn one_completion_now_and_then_is_enough_and_what_rests_is_not_looked_at() {
    let (mut near, far) = linked();
    for number in 0..LOOKS as u32 {
        near.send(number, 64);
        assert!(look(&near) && look(&near) && look(&near));
        rest(&near, &far);
    }
    assert_eq!(near.ended(), None);
    while look(&near) {}
    assert_eq!((near.ended(), take(&near.sends).len()), (None, LOOKS));
}

#[test]
fn an_answer_that_the_peer_does_not_take_ends_it_and_each_byte_that_it_takes_counts() {
    for takes in [false, true] {
        let (near, mut far) = linked();
        let mut memory = vec![0u64; LEN / 8];
        let range = (memory.as_mut_ptr().cast(), LEN);
        let registration = // SAFETY: the memory is kept as long as the registration.
        unsafe { Registration::new("test", &near.regions, range, Access::ALL) }.unwrap();
        far.read(registration.remote_key(), LEN);
        let wire = near.wire.clone();
        wire.out.borrow_mut().capacity = Some(1000);
        near.turn();
        let ended = ended_after(&near, |_| {
            if takes {
                wire.out.borrow_mut().bytes.pop_front();
                near.turn();
            }
        });
        assert_eq!(ended, (!takes).then_some(DisconnectReason::Stalled));
    }
}

#[test]
fn what_the_transport_took_and_the_peer_does_not_take_ends_it_too() {
    let (near, mut far) = linked();
    // A read of nothing is answered by a few bytes, which the transport holds.
    far.read(0, 0);
    near.turn();
    assert!(!near.wire.out.borrow().bytes.is_empty());
    assert_eq!(ended_after(&near, |_| ()), Some(DisconnectReason::Stalled));
}

#[test]
fn half_a_message_ends_it_and_each_byte_that_comes_counts() {
    // In the header, in the payload, and between two frames of a message.
    for (cut, len) in [(3, 64), (100, LEN), (5000, LEN)] {
        for comes in [false, true] {
            let (mut near, mut far) = linked();
            near.receive(1);
            rest(&near, &far);
            while look(&near) {}
            far.send(0, len);
            let rest_of_it = near.wire.back.borrow_mut().bytes.split_off(cut);
            near.turn();
            let mut bytes = rest_of_it.into_iter();
            let ended = ended_after(&near, |_| {
                if comes {
                    near.wire.back.borrow_mut().bytes.extend(bytes.next());
                    near.turn();
                }
            });
            assert_eq!(ended, (!comes).then_some(DisconnectReason::Stalled), "{cut} of {len}");
        }
    }
}
