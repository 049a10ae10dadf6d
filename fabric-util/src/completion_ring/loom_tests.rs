//! Every interleaving of a sleeper and the engine (`scripts/loom`). Where a wake-up is lost the sleeper sleeps for ever,
//! which loom reports as a deadlock.

use fabric_core::{Status, Token};
use loom::thread;

use super::*;

/// Takes completions as who polls, arms and sleeps does, and checks their order.
fn take(ring: &CompletionRing, count: u64) {
    let (mut taken, mut out) = (0, [RawCompletion::default()]);
    while taken < count {
        if ring.take(&mut out) == 1 {
            assert_eq!(out[0].token, Token::from_bits(taken));
            taken += 1;
        } else if ring.arm() == Armed::Waiting {
            ring.wakeup.wait();
        }
    }
}

fn push(ring: &CompletionRing, number: u64) {
    ring.push([&[RawCompletion::new(Token::from_bits(number), Status::Ok)], &[]]);
}

/// A completion comes while its taker polls, arms and goes to sleep: arming clears the descriptor, then looks, and a
/// push that comes after the look finds the queue armed. The second one is armed for again.
#[test]
fn pushed_beside_arming() {
    loom::model(|| {
        let ring = CompletionRing::new(&Arc::default()).unwrap();
        let engine = {
            let ring = ring.clone();
            thread::spawn(move || (0..2).for_each(|number| push(&ring, number)))
        };
        take(&ring, 2);
        engine.join().unwrap();
        assert_eq!(ring.take(&mut [RawCompletion::default()]), 0);
    });
}

/// Two pushers, as pollers of two queues' endpoints and the thread may be: nothing is lost or doubled, and one sleeper
/// is woken however they meet.
#[test]
fn pushed_from_both_sides() {
    loom::model(|| {
        let ring = CompletionRing::new(&Arc::default()).unwrap();
        let pushers = [(), ()].map(|()| {
            let ring = ring.clone();
            thread::spawn(move || ring.push([&[RawCompletion::default()], &[]]))
        });
        let (mut taken, mut out) = (0, [RawCompletion::default(); 2]);
        while taken < 2 {
            match ring.take(&mut out) {
                0 if ring.arm() == Armed::Waiting => ring.wakeup.wait(),
                got => taken += got,
            }
        }
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        assert_eq!(ring.take(&mut out), 0);
    });
}
