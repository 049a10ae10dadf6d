//! Sleeping until there is a completion.

use std::os::fd::AsFd;
use std::sync::mpsc;

use fabric::Armed;

use crate::cases::crowd::{depths, joined};
use crate::cases::places::Slots;
use crate::prelude::*;
use crate::sys::Epoll;

/// A sleeper that is not awake by then was not woken.
pub(in crate::cases) const WAKEUP: Duration = Duration::from_secs(2);

/// Lets a thread sleep on the queue of `end`, and then acts; gives the completion that ended the sleep, and how long
/// after the act that was.
fn woken_by(
    rig: &Rig,
    end: &End,
    act: impl FnOnce() -> fabric::Result<()>,
) -> Result<(Completion, Duration), Failed> {
    thread::scope(|scope| {
        let patience = Some(rig.scaled(2 * WAKEUP));
        let sleeper = scope.spawn(move || (end.cq().wait_one(patience), Instant::now()));
        // It sleeps by then, most likely; if not, it must be no worse.
        thread::sleep(Duration::from_millis(20));
        let acted = Instant::now();
        act()?;
        let (woken_with, woke) = joined(sleeper);
        Ok((woken_with?, woke.saturating_duration_since(acted)))
    })
}

pub(super) fn wait_wakeup(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let (source, sink) = (a.buffer(64)?, b.buffer(64)?);
    for round in 0..4 {
        source.put_pattern(.., rig.pattern(round))?;
        let context = round as u64;
        if round % 2 == 0 {
            // The receiver sleeps until there is a message.
            b.recv(&sink, context)?;
            let (received, after) = woken_by(rig, &b, || a.send(&source, context))?;
            check_eq!((received.context, received.status), (context, Status::Ok), "the receive");
            check!(after < rig.scaled(WAKEUP), "the receiver awake at once, not after {after:?}");
            a.expect_ok(context)?;
        } else {
            // The sender sleeps until there is a receive.
            a.send(&source, context)?;
            let (sent, after) = woken_by(rig, &a, || b.recv(&sink, context))?;
            check_eq!((sent.context, sent.status), (context, Status::Ok), "the send");
            check!(after < rig.scaled(WAKEUP), "the sender awake at once, not after {after:?}");
            b.expect_ok(context)?;
        }
        sink.check_pattern(.., rig.pattern(round))?;
    }
    Ok(())
}

/// Sleeps in epoll as an event loop does, if there is nothing yet: arms, sleeps only if that says so, polls.
pub(in crate::cases) fn next_by_epoll(
    rig: &Rig,
    end: &End,
    epoll: &Epoll,
) -> Result<Completion, Failed> {
    let deadline = rig.deadline(2 * WAKEUP);
    loop {
        if end.cq().arm()? == Armed::Waiting {
            let readable = epoll.wait(rig.scaled(WAKEUP))?;
            check!(readable, "the armed descriptor readable within {WAKEUP:?}");
        }
        if let Some(done) = end.cq().poll_one()? {
            return Ok(done);
        }
        // Readable for nothing is allowed, but not for ever.
        check!(Instant::now() < deadline, "a completion behind what makes the queue ready");
    }
}

/// Watches the queue of `end`.
pub(in crate::cases) fn watch(end: &End) -> Result<Epoll, Failed> {
    let epoll = Epoll::new()?;
    epoll.add(end.cq().as_fd())?;
    Ok(epoll)
}

pub(super) fn wait_race(rig: &Rig) -> Outcome {
    const FORCED: u64 = 50;
    const ROUNDS: u64 = 1000;
    let (a, b) = rig.pair()?;
    let epoll = watch(&b)?;
    let sink = b.buffer(8)?;
    // The completion comes for sure after the poll that finds nothing, and most likely before the arming.
    for round in 0..FORCED {
        b.recv(&sink, round)?;
        check_eq!(b.cq().poll_one()?, None, "a completion before there was a message");
        a.run(Op::inject(&round.to_ne_bytes()), Done::ok(round))?;
        let received = next_by_epoll(rig, &b, &epoll)?;
        check_eq!((received.context, received.status), (round, Status::Ok), "the receive");
        check_bytes!(sink.bytes(..)?, round.to_ne_bytes(), "the message");
    }

    // It comes at any moment between the two, or near them: the sender hears when the receiver begins.
    let mut rng = rig.rng();
    let mut pause = move || Duration::from_nanos(rng.below(60_000) as u64);
    let (begin, begun) = mpsc::channel();
    thread::scope(|scope| {
        let a = &a;
        let sender = scope.spawn(move || -> Outcome {
            for (round, pause) in begun {
                spin(pause);
                a.run(Op::inject(&u64::to_ne_bytes(round)), Done::ok(round))?;
            }
            Ok(())
        });
        let mut receive = |begin: mpsc::Sender<_>| -> Outcome {
            for round in 0..ROUNDS {
                b.recv(&sink, round)?;
                // A sender that has failed says why itself.
                let _ = begin.send((round, pause()));
                let received = match b.cq().poll_one()? {
                    Some(early) => early,
                    None => {
                        spin(pause());
                        next_by_epoll(rig, &b, &epoll)?
                    }
                };
                check_eq!((received.context, received.status), (round, Status::Ok), "the receive");
                check_bytes!(sink.bytes(..)?, round.to_ne_bytes(), "the message");
            }
            Ok(())
        };
        let received = receive(begin);
        joined(sender).and(received)
    })
}

/// Passes the time without giving up the processor.
fn spin(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

pub(super) fn wait_timeout(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    a.settle(&b)?;
    let mut room = [Completion::default(); 4];
    let late = rig.scaled(Duration::from_millis(100));
    for time in [0, 1, 20, 150].map(Duration::from_millis) {
        let start = Instant::now();
        let waited = b.cq().wait(&mut room, Some(time));
        let took = start.elapsed();
        check_err!(waited, Error::TimedOut(_), "a wait of {time:?} for nothing");
        check!(took >= time, "a wait of {time:?} that is not over after {took:?}");
        check!(took < time + late, "a wait of {time:?} that is over before {took:?}");
    }
    // What is there needs no time.
    b.recv(Slices::none(), 1)?;
    a.run(Op::inject(b""), Done::ok(1))?;
    rig.eventually(|| {
        let waited = b.cq().wait_one(Some(Duration::ZERO));
        check_eq!(waited?.context, 1, "the completion that waits");
        Ok(())
    })
}

/// A message to an end that is armed, which only the descriptor announces.
pub(in crate::cases) fn message_by_epoll(
    rig: &Rig,
    (a, b): (&End, &End),
    epoll: &Epoll,
    round: u64,
) -> Outcome {
    a.inject(b"", round)?;
    let readable = epoll.wait(rig.scaled(WAKEUP))?;
    check!(readable, "the armed descriptor readable within {WAKEUP:?} of message {round}");
    let received = match b.cq().poll_one()? {
        Some(received) => received,
        // Readable for nothing; again, then.
        None => next_by_epoll(rig, b, epoll)?,
    };
    check_eq!((received.context, received.status), (round, Status::Ok), "the receive");
    a.expect_ok(round)?;
    Ok(())
}

pub(super) fn fd_drive(rig: &Rig) -> Outcome {
    const ROUNDS: u64 = 100;
    let (a, b) = rig.pair()?;
    let epoll = watch(&b)?;
    let (source, target) = (a.buffer(8)?, b.buffer(8)?);
    for round in 0..ROUNDS {
        b.recv(Slices::none(), round)?;
        check_eq!(b.cq().arm_manual()?, Armed::Waiting, "arming before there is a message");
        // Whether or not the descriptor is readable by this, no call is made.
        source.put_pattern(.., rig.pattern(round as usize))?;
        a.run(Op::write(&source, target.at(0)).delivery_complete(), Done::ok(round))?;
        target.check_pattern(.., rig.pattern(round as usize))?;

        message_by_epoll(rig, (&a, &b), &epoll, round)?;
    }
    Ok(())
}

/// Another thread may sleep on the descriptor of the queue that this one polls.
pub(super) fn fd_polled(rig: &Rig) -> Outcome {
    const ROUNDS: u64 = 500;
    let (a, b) = rig.pair()?;
    let epoll = watch(&b)?;
    for round in 0..ROUNDS {
        b.recv(Slices::none(), round)?;
        let armed = if round % 2 == 0 { b.cq().arm()? } else { b.cq().arm_manual()? };
        check_eq!(armed, Armed::Waiting, "arming before there is a message");
        a.inject(b"", round)?;
        b.expect_ok(round)?;
        let readable = epoll.wait(rig.scaled(WAKEUP))?;
        check!(readable, "the armed descriptor readable within {WAKEUP:?} of completion {round}");
        a.expect_ok(round)?;
    }
    Ok(())
}

pub(super) fn fd_poll(rig: &Rig) -> Outcome {
    const ROUNDS: u64 = 100;
    const MESSAGES: usize = 1000;
    const RECEIVES: usize = 100;
    let (a, b) = rig.pair()?;
    let epoll = watch(&b)?;
    // One by one: armed before there is anything, so that only the descriptor can show it.
    for round in 0..ROUNDS {
        b.recv(Slices::none(), round)?;
        check_eq!(b.cq().arm()?, Armed::Waiting, "arming before there is a message");
        message_by_epoll(rig, (&a, &b), &epoll, round)?;
    }

    // A stream in bursts, with pauses in which the receiver falls asleep.
    let sink = Slots::new(&b, RECEIVES, 8)?;
    sink.post(&b, 0..RECEIVES)?;
    thread::scope(|scope| {
        let (a, mut rng) = (&a, rig.rng());
        let sender = scope.spawn(move || -> Outcome {
            let mut sent = 0;
            while sent < MESSAGES {
                let burst = sent..MESSAGES.min(sent + 1 + rng.below(20));
                sent = burst.end;
                for i in burst.clone() {
                    a.inject(&(i as u64).to_ne_bytes(), i as u64)?;
                }
                a.expect_each(burst)?;
                thread::sleep(Duration::from_micros(rng.below(1500) as u64));
            }
            Ok(())
        });
        let receive = || -> Outcome {
            for i in 0..MESSAGES {
                let received = next_by_epoll(rig, &b, &epoll)?;
                Done::recv(i, 8).check(&received)?;
                check_bytes!(sink.seen(i, 8)?, (i as u64).to_ne_bytes(), "message {i}");
                b.recv(sink.slot(i), (i + RECEIVES) as u64)?;
            }
            Ok(())
        };
        let received = receive();
        joined(sender).and(received)
    })
}

pub(super) fn wait_after_full(rig: &Rig) -> Outcome {
    const DEPTH: usize = 4;
    let (a, b) = rig.pair_with(depths(DEPTH, DEPTH))?;
    let (source, sink) = (a.buffer(8)?, b.buffer(8)?);
    let (epoll_a, epoll_b) = (watch(&a)?, watch(&b)?);
    for i in 0..DEPTH as u64 {
        b.recv(&sink, i)?;
        a.send(&source, i)?;
    }
    // They get done meanwhile, and posts without room look for some: whatever they find is there already when the
    // application goes to sleep.
    let until = rig.deadline(Duration::from_millis(200));
    while Instant::now() < until {
        check_err!(a.send(&source, 99), Error::Again, "a send beyond the depth");
        check_err!(b.recv(&sink, 99), Error::Again, "a receive beyond the depth");
        thread::sleep(Duration::from_millis(1));
    }
    for i in 0..DEPTH as u64 {
        for (end, epoll) in [(&a, &epoll_a), (&b, &epoll_b)] {
            let done = next_by_epoll(rig, end, epoll)?;
            check_eq!((done.context, done.status), (i, Status::Ok), "the next of {end:?}");
        }
    }
    Ok(())
}
