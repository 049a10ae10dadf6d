//! Injects where requests carry no bytes: these are copied to registered memory, a slot for each place of the queue.

use fabric::{Access, Op, Status};
use provider_verbs::TestLimits;

use crate::rig::{SOON, Side, join, listen, open, open_limited, take};

const DEPTH: usize = 5; // no power of two: the slots are one
const INJECT: usize = 200;

/// The bytes of message `i`: each length and each content is its own.
fn message(i: usize) -> Vec<u8> {
    (0..i * 37 % (INJECT + 1)).map(|at| (i * 131 + at) as u8).collect()
}

pub(crate) fn without_inline() {
    const ROUNDS: usize = 20;
    let domain = open_limited(TestLimits { no_inline: true, ..TestLimits::default() }).unwrap();
    let queue = domain.completion_queue(64).unwrap();
    let builder = domain.endpoint().send_depth(DEPTH).recv_depth(8).inject(INJECT);
    let from = builder.build(&queue).unwrap();
    let to = Side::on(&open(), std::time::Duration::from_secs(10));
    join(&listen(&to.domain), &from, &to.endpoint);
    let room = to.domain.alloc(DEPTH * INJECT, Access::ALL).unwrap();
    let copied = domain.counters().provider.copied_bytes;
    let mut sum = 0;
    for round in 0..ROUNDS {
        // All wait for their receives while their bytes are overwritten.
        for i in 0..DEPTH {
            let mut bytes = message(round * DEPTH + i);
            let op = Op::inject(&bytes).context(i as u64);
            from.post(&if i % 2 == 0 { op } else { op.unsignaled() }).unwrap();
            sum += bytes.len() as u64;
            bytes.fill(0xdd);
        }
        for i in 0..DEPTH {
            to.endpoint.recv(room.slice(i * INJECT..(i + 1) * INJECT), i as u64).unwrap();
            let got = to.queue.wait_one(SOON).unwrap();
            let sent = message(round * DEPTH + i);
            assert_eq!((got.status, got.len), (Status::Ok, sent.len()), "message {i} of {round}");
            let at = i * INJECT;
            assert_eq!(room.to_vec(at..at + sent.len()).unwrap(), sent, "message {i} of {round}");
        }
        let done = take(&queue, DEPTH.div_ceil(2));
        assert!(done.iter().all(|one| one.status == Status::Ok), "{done:?}");
    }
    // It was this way that they went.
    assert_eq!(domain.counters().provider.copied_bytes - copied, sum);
}
