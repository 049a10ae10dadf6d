//! Sends and receives.

use crate::prelude::*;

pub(super) const CASES: &[Case] =
    &[Case::new(Group::Send, "fifo", Needs::SEND, "1000 sends arrive in posting order", fifo)];

fn fifo(rig: &Rig) -> Outcome {
    const SENDS: usize = 1000;
    const AT_ONCE: usize = 100;
    const MOST: usize = 200;
    let (a, b) = rig.pair()?;
    let source = a.buffer(AT_ONCE * MOST)?;
    let sink = b.buffer(AT_ONCE * MOST)?;
    for first in (0..SENDS).step_by(AT_ONCE) {
        let round = first..first + AT_ONCE;
        // Message i has a length and bytes of its own, and a slot for it on either side.
        let len = |i: usize| 1 + i * 7 % MOST;
        let slot = |i: usize| i % AT_ONCE * MOST..i % AT_ONCE * MOST + len(i);
        for i in round.clone() {
            b.recv(sink.slice(i % AT_ONCE * MOST..(i % AT_ONCE + 1) * MOST), i as u64)?;
            source.put_pattern(slot(i), rig.pattern(i))?;
        }
        for i in round.clone() {
            a.send(source.slice(slot(i)), i as u64)?;
        }
        for i in round {
            let received = b.expect_ok(i as u64)?;
            check_eq!(received.kind, OpKind::Recv, "kind of receive {i}");
            check_eq!(received.len, len(i), "length of receive {i}");
            sink.check_pattern(slot(i), rig.pattern(i))?;
            a.expect_ok(i as u64)?;
        }
    }
    sink.check_guards()
}
