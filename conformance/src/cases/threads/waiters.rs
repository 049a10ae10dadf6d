//! Several sleepers on one queue.

use std::os::fd::AsFd;

use fabric::Armed;

use crate::cases::completion::waiting::{WAKEUP, next_by_epoll, watch};
use crate::cases::crowd::{Crowd, joined};
use crate::prelude::*;
use crate::sys::Epoll;

pub(super) fn wait_many(rig: &Rig) -> Outcome {
    two_sleepers(rig)?;
    armed_beside_another(rig)?;
    beside_a_shutdown(rig)
}

/// Two wait, two completions come: each gets one.
fn two_sleepers(rig: &Rig) -> Outcome {
    let rounds = rig.count(100, 5000) as u64;
    let (a, b) = rig.pair()?;
    let patience = Some(rig.scaled(2 * WAKEUP));
    let mut rng = rig.rng();
    for round in 0..rounds {
        let contexts = [2 * round, 2 * round + 1];
        b.recv_empty(contexts)?;
        let mut pause = || {
            let until = Instant::now() + Duration::from_nanos(rng.below(200_000) as u64);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        };
        let (mut done, took) = thread::scope(|scope| -> Result<_, Failed> {
            let start = Instant::now();
            let mut sleepers = Vec::new();
            for context in contexts {
                sleepers.push(scope.spawn(|| b.cq().wait_one(patience)));
                pause();
                a.inject(b"", context)?;
            }
            let done: Vec<_> = sleepers.into_iter().map(joined).collect();
            Ok((done.into_iter().collect::<fabric::Result<Vec<_>>>()?, start.elapsed()))
        })?;
        check!(took < rig.scaled(WAKEUP), "both awake at once, not after {took:?}");
        done.sort_by_key(|done| done.context);
        let seen: Vec<_> = done.iter().map(|done| (done.context, done.status)).collect();
        check_eq!(seen, contexts.map(|c| (c, Status::Ok)), "what the two got in round {round}");
        a.expect_each([contexts[0], contexts[1]])?;
    }
    Ok(())
}

/// One has armed the queue. Another finds a completion and does not take it: that is no reason for the first to
/// sleep on.
fn armed_beside_another(rig: &Rig) -> Outcome {
    const ROUNDS: u64 = 20;
    let (a, b) = rig.pair()?;
    let epoll = watch(&b)?;
    for round in 0..ROUNDS {
        b.recv(Slices::none(), round)?;
        check_eq!(b.cq().arm()?, Armed::Waiting, "arming before there is a message");
        a.run(Op::inject(b""), Done::ok(round))?;
        rig.eventually(|| {
            check_eq!(b.cq().arm()?, Armed::Ready, "arming when there is a message");
            Ok(())
        })?;
        let readable = epoll.wait(rig.scaled(WAKEUP))?;
        check!(readable, "the descriptor readable for who armed it first, round {round}");
        b.expect_ok(round)?;
    }
    Ok(())
}

/// Another endpoint of the queue is shut down, which waits on the queue, too.
fn beside_a_shutdown(rig: &Rig) -> Outcome {
    const ROUNDS: u64 = 20;
    for round in 0..ROUNDS {
        let Crowd { ends, peers } = Crowd::new(rig, 2, |_| ())?;
        let ([stays, goes], [its_peer, other_peer]) = (&ends[..], &peers[..]) else {
            fail!("two pairs", "{} and {}", ends.len(), peers.len());
        };
        let epoll = Epoll::new()?;
        epoll.add(stays.cq().as_fd())?;
        stays.recv(Slices::none(), round)?;
        other_peer.recv(Slices::none(), 1)?;
        let received = thread::scope(|scope| -> Result<_, Failed> {
            let sleeper = scope.spawn(|| next_by_epoll(rig, stays, &epoll));
            // Its send is unsignaled, so that only the shutdown waits for it.
            goes.post(&Op::inject(b"").unsignaled())?;
            goes.shutdown(rig.scaled(WAKEUP))?;
            its_peer.inject(b"", round)?;
            joined(sleeper)
        })?;
        let seen = (received.endpoint, received.context, received.status);
        check_eq!(seen, (stays.id(), round, Status::Ok), "what the sleeper got");
        // Both peers' ends are in their queue.
        for done in its_peer.take(2)? {
            check_eq!(done.status, Status::Ok, "status of {done:?}");
        }
    }
    Ok(())
}
