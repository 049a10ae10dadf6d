//! Many threads at one queue.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cases::crowd::{Crowd, at_once, depths, joined, places};
use crate::cases::places::Slots;
use crate::prelude::*;

/// The context of a thread's operation: which thread, and which of its operations.
fn context(thread: usize, i: usize) -> u64 {
    (thread as u64) << 32 | i as u64
}

/// Checks that `context` is the next of its thread.
fn check_next(next: &mut [usize], seen: u64, what: &str) -> Outcome {
    let (thread, i) = ((seen >> 32) as usize, seen as u32 as usize);
    check_eq!(next.get(thread), Some(&i), "the next {what} of thread {thread}");
    next[thread] += 1;
    Ok(())
}

pub(super) fn mt_post(rig: &Rig) -> Outcome {
    const THREADS: usize = 8;
    const RECEIVES: usize = 128;
    let each = rig.bulk(rig.count(500, 50_000));
    let (a, b) = rig.pair()?;
    let (sink, target) = (Slots::new(&b, RECEIVES, 8)?, b.buffer(THREADS * 8)?);
    sink.post(&b, 0..RECEIVES)?;
    // Each thread writes a number to its word, and then sends it.
    let post = |thread: usize| -> Outcome {
        for i in 0..each {
            let number = context(thread, i).to_ne_bytes();
            let write = Op::inject_write(&number, target.at(thread * 8)).unsignaled();
            let send = Op::inject(&number).context(context(thread, i));
            a.post_when_room(&write)?;
            a.post_when_room(&send)?;
        }
        Ok(())
    };
    let (sent, received) = thread::scope(|scope| -> Result<_, Failed> {
        let posters = scope.spawn(|| at_once(&[(); THREADS], |thread, ()| post(thread)));
        let receiver = scope.spawn(|| -> Result<_, Failed> {
            let (mut order, mut next) = (Vec::new(), [0; THREADS]);
            for i in 0..THREADS * each {
                b.expect(Done::recv(i, 8))?;
                let message: u64 = sink.get(sink.range(i).start)?;
                check_next(&mut next, message, "message")?;
                // What its thread wrote before it is there, or what it wrote since.
                let written: u64 = target.get((message >> 32) as usize * 8)?;
                check!(written >= message, "the write before {message:#x}, not {written:#x}");
                order.push(message);
                b.recv(sink.slot(i), (i + RECEIVES) as u64)?;
            }
            Ok(order)
        });
        let sent = (|| {
            let (mut order, mut next) = (Vec::new(), [0; THREADS]);
            for _ in 0..THREADS * each {
                let done = a.next()?;
                check_eq!((done.kind, done.status), (OpKind::Send, Status::Ok), "{done:?}");
                check_next(&mut next, done.context, "completion")?;
                order.push(done.context);
            }
            Ok(order)
        })();
        let (posted, received) = (joined(posters), joined(receiver));
        posted?;
        Ok((sent?, received?))
    })?;
    // One order for all: that of the posts.
    let differs = sent.iter().zip(&received).position(|(sent, received)| sent != received);
    check_eq!(differs, None, "the first place where completions and messages differ in order");
    let last: Vec<_> = (0..THREADS).flat_map(|t| context(t, each - 1).to_ne_bytes()).collect();
    check_bytes!(target.bytes(..)?, last, "the last write of each thread");
    check_eq!(a.cq().poll_one()?, None, "a completion too many");
    Ok(())
}

pub(super) fn mt_poll(rig: &Rig) -> Outcome {
    const POLLERS: usize = 4;
    const ENDS: usize = 4;
    const DEPTH: usize = 64;
    let each = rig.count(2000, 100_000);
    let crowd = Crowd::new(rig, ENDS, depths(DEPTH, 1))?;
    let target = crowd.peers[0].buffer(ENDS * 8)?;
    let taken = AtomicUsize::new(0);
    let deadline = || rig.deadline(Duration::from_secs(10));
    let post = |who: usize, end: &End| -> Outcome {
        for i in 0..each {
            let number = (i as u64).to_ne_bytes();
            let write = Op::inject_write(&number, target.at(who * 8));
            end.post_when_room(&write.context(context(who, i)))?;
        }
        Ok(())
    };
    // Takes what it gets, a few at a time, until nothing is left.
    let poll = |_: usize, max: &usize| -> Result<Vec<Completion>, Failed> {
        let mut list = Vec::new();
        let mut room = [Completion::default(); 8];
        // Others may get everything for a while.
        let (mut last, mut until) = (0, deadline());
        loop {
            let got = crowd.ends[0].cq().poll(&mut room[..*max])?;
            list.extend_from_slice(&room[..got]);
            let all = taken.fetch_add(got, Ordering::Relaxed) + got;
            if all == ENDS * each {
                break;
            }
            if all != last {
                (last, until) = (all, deadline());
            }
            check!(Instant::now() < until, "all of {} completions, not {all}", ENDS * each);
            if got == 0 {
                thread::yield_now();
            }
        }
        Ok(list)
    };
    let lists = thread::scope(|scope| -> Result<_, Failed> {
        let posters = scope.spawn(|| at_once(&crowd.ends, post));
        let lists = at_once(&[1, 2, 3, 8], poll);
        joined(posters)?;
        lists
    })?;
    check_eq!(lists.len(), POLLERS, "pollers");

    let place = places(&crowd.ends);
    let mut times = vec![0u8; ENDS * each];
    for list in &lists {
        // What one poller got of an endpoint is in order, whatever others took in between.
        let mut last = [None; ENDS];
        for done in list {
            let (who, i) = ((done.context >> 32) as usize, done.context as u32 as usize);
            check_eq!(done.status, Status::Ok, "status of write {i} of endpoint {who}");
            check_eq!(place.get(&done.endpoint), Some(&who), "the endpoint of {done:?}");
            check!(last[who] < Some(i), "ascending writes of endpoint {who}, not {i} next");
            last[who] = Some(i);
            times[who * each + i] += 1;
        }
    }
    let wrong = times.iter().position(|times| *times != 1);
    check_eq!(wrong, None, "a write that did not complete exactly once");
    crowd.pairs().try_for_each(|(end, peer)| end.settle(peer))?;
    let last = (each as u64 - 1).to_ne_bytes().repeat(ENDS);
    check_bytes!(target.bytes(..)?, last, "the last write of each endpoint");
    Ok(())
}
