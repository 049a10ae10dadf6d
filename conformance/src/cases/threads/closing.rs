//! The end of a connection, or of a region, while threads post.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::cases::crowd::joined;
use crate::prelude::*;

/// Posts until the connection has ended; gives how many were taken.
fn post_until_refused(rig: &Rig, post: impl Fn(u64) -> fabric::Result<()>) -> Result<u64, Failed> {
    let deadline = rig.deadline(Duration::from_secs(10));
    let mut taken = 0;
    loop {
        check!(Instant::now() < deadline, "posts to be refused when the connection has ended");
        match post(taken) {
            Ok(()) => taken += 1,
            Err(Error::Again) => thread::yield_now(),
            Err(Error::NotConnected) => break,
            Err(error) => fail!("a post that is taken, Again or NotConnected", "{error:?}"),
        }
    }
    for _ in 0..3 {
        check_err!(post(u64::MAX), Error::NotConnected, "a post after the one that was refused");
    }
    Ok(taken)
}

pub(super) fn close_vs_post(rig: &Rig) -> Outcome {
    const WRITERS: usize = 2;
    let rounds = rig.count(16, 1000);
    let mut rng = rig.rng();
    for round in 0..rounds {
        let (a, b) = rig.pair()?;
        let (local, target) = (a.buffer(8)?, b.buffer(WRITERS * 8)?);
        let (begin, taken) = (rng.below(400), AtomicUsize::new(0));
        let context = |writer: usize, i: u64| (writer as u64) << 32 | i;
        let stop = AtomicBool::new(false);
        let (posted, mut done) = thread::scope(|scope| -> Result<_, Failed> {
            let writer = |me: usize| {
                let (a, target) = (&a, &target);
                move || {
                    post_until_refused(rig, |i| {
                        let number = i.to_ne_bytes();
                        let write = Op::inject_write(&number, target.at(me * 8));
                        a.post(&write.context(context(me, i)))
                    })
                }
            };
            let writers = [0, 1].map(|me| scope.spawn(writer(me)));
            let receiver = scope.spawn(|| post_until_refused(rig, |i| a.recv(&local, i)));
            let poller = scope.spawn(|| -> Result<Vec<Completion>, Failed> {
                let mut done = Vec::new();
                while !stop.load(Ordering::Acquire) {
                    match a.cq().poll_one()? {
                        Some(one) => done.push(one),
                        None => thread::yield_now(),
                    }
                    taken.store(done.len(), Ordering::Relaxed);
                }
                Ok(done)
            });
            // Somewhere among the posts.
            let until = rig.deadline(Duration::from_secs(10));
            while taken.load(Ordering::Relaxed) < begin && Instant::now() < until {
                thread::yield_now();
            }
            match round % 4 {
                0 => a.disconnect(),
                1 => b.disconnect(),
                2 => drop(b),
                _ => {
                    let other = scope.spawn(|| a.disconnect());
                    b.disconnect();
                    joined(other);
                }
            }
            let posted = writers.map(joined);
            let received = joined(receiver);
            stop.store(true, Ordering::Release);
            let done = joined(poller)?;
            let [one, two] = posted;
            Ok(([one?, two?, received?], done))
        })?;

        let total = posted.iter().sum::<u64>() as usize;
        check!(done.len() <= total, "{total} completions, not {}", done.len());
        done.extend(a.take(total - done.len())?);
        check_eq!(a.cq().poll_one()?, None, "a completion too many, round {round}");
        let mut next = [0; WRITERS + 1];
        let (mut ended, mut good) = (false, [None; WRITERS]);
        for one in done {
            if one.kind.is_receive() {
                let seen = (one.context, one.status);
                check_eq!(seen, (next[WRITERS], Status::Canceled), "the next receive");
                next[WRITERS] += 1;
                continue;
            }
            let (writer, i) = ((one.context >> 32) as usize, one.context & 0xffff_ffff);
            check_eq!(next.get(writer), Some(&i), "the next write of thread {writer}");
            next[writer] += 1;
            match one.status {
                Status::Ok if !ended => good[writer] = Some(i),
                Status::Canceled | Status::PeerLost => ended = true,
                status => fail!("Ok up to some point, then canceled", "{status:?} of {one:?}"),
            }
        }
        check_eq!(next, posted, "completions of what each thread posted");
        for (writer, (good, posted)) in good.into_iter().zip(posted).enumerate() {
            let seen: u64 = target.get(writer * 8)?;
            let range = good.unwrap_or(0)..posted.max(1);
            check!(range.contains(&seen), "a write of {range:?} of thread {writer}, not {seen}");
        }
        a.expect_disconnected()?;
        a.expect_no_event_for(Duration::from_millis(1))?;
    }
    Ok(())
}

pub(super) fn dereg_vs_post(rig: &Rig) -> Outcome {
    const AT_ONCE: usize = 4;
    let rounds = rig.count(40, 5000);
    let (a, b) = rig.pair()?;
    let (constant, target) = (b.buffer(8)?, b.buffer(8)?);
    constant.put(0, b"constant")?;
    let mut rng = rig.rng();
    for round in 0..rounds {
        let local = a.buffer(8)?;
        let closed = AtomicBool::new(false);
        let (begun, spin) = (AtomicBool::new(false), rng.below(2000));
        let reads = round % 2 == 0;
        thread::scope(|scope| -> Outcome {
            let poster = scope.spawn(|| -> Outcome {
                let deadline = rig.deadline(Duration::from_secs(10));
                let mut refused = false;
                while !refused {
                    check!(Instant::now() < deadline, "a post with the closed region refused");
                    let mut posted = 0;
                    while posted < AT_ONCE && !refused {
                        let was_closed = closed.load(Ordering::Acquire);
                        let result = match reads {
                            true => a.read(&local, constant.at(0), 1),
                            false => a.write(&local, target.at(0), 1),
                        };
                        match result {
                            Ok(()) if was_closed => {
                                fail!("a post with the closed region refused", "it was taken")
                            }
                            Ok(()) => posted += 1,
                            Err(Error::InvalidState(_)) => refused = true,
                            Err(error) => fail!("a post taken or InvalidState", "{error:?}"),
                        }
                    }
                    begun.store(true, Ordering::Release);
                    (0..posted).try_for_each(|_| a.expect_ok(1).map(drop))?;
                    // For a moment it is not in use.
                    thread::yield_now();
                }
                Ok(())
            });
            while !begun.load(Ordering::Acquire) && !poster.is_finished() {
                std::hint::spin_loop();
            }
            (0..spin).for_each(|_| std::hint::spin_loop());
            let deadline = rig.deadline(Duration::from_secs(10));
            loop {
                match local.region().close() {
                    Ok(()) => break,
                    Err(Error::Busy) => thread::yield_now(),
                    Err(error) => fail!("Busy or closed", "{error:?}"),
                }
                check!(Instant::now() < deadline, "the region closed when it is not in use");
            }
            // The bytes are this side's alone now.
            local.fill(0xee)?;
            closed.store(true, Ordering::Release);
            local.region().close()?;
            joined(poster)
        })?;
        local.check_filled(.., 0xee)?;
    }
    a.settle(&b)?;
    // Reads came first, so what was written is what they brought, or the zeros of new memory.
    target.check_filled(.., 0)
}
