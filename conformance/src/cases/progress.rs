//! What happens while the application makes no call.
//!
//! Here no thread makes a fabric call for the peer, unless the case is about that call.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use fabric::Armed;

use crate::cases::completion::waiting::{message_by_epoll, watch};
use crate::cases::crowd::joined;
use crate::cases::places::Slots;
use crate::prelude::*;
use crate::sys::{Epoll, cpu_time};

pub(super) const CASES: &[Case] = cases! { Progress:
    self::target_sleep, Needs::ALL,
        "while the target sleeps for 10 s, write, read and atomic finish in less than 1 s each"
        .freedom(Freedom::Counts("rounds go on for a time, not for a number")).trap();
    self::target_compute, Needs::ALL,
        "while the target computes, write, read and atomic finish in less than 1 s each" .trap();
    self::target_blocked_wait, Needs::ALL,
        "while the target waits on its queue, one-sided operations finish and do not wake it";
    self::unmatched_alive, Needs::SEND_RMA.and(Capabilities::LIVENESS),
        "a peer that posts no receive for 4 intervals is alive: the connection stays";
    self::initiator_silent, Needs::ALL,
        "what is posted finishes while the initiator sleeps; one poll takes it all";
    self::armed_no_tick, Needs::SEND,
        "1000 messages to a waiter in epoll: half of them are there within half a tick of 1 ms"
        .local_only("each message is timed from the post to the waiter's waking, by one clock").exclusive();
    self::polls_stop, Needs::ALL,
        "an end that polls through 1000 round trips and stops is a target, wakes, and hears its peer close";
    self::idle_is_free, Needs::SEND,
        "100 idle connections need less than 50 ms of processor time in 10 s" .exclusive();
};

/// What the one-sided operations of a case use: a word to count in and a block to write and read.
struct OneSided {
    target: Guarded,
    source: Guarded,
    into: Guarded,
    rounds: usize,
}

const BLOCK: usize = 4096;
const COUNTER: usize = BLOCK;

impl OneSided {
    fn new(a: &End, b: &End) -> Result<Self, Failed> {
        let (target, source) = (b.buffer(BLOCK + 8)?, a.buffer(BLOCK)?);
        Ok(OneSided { target, source, into: a.buffer(BLOCK + 8)?, rounds: 0 })
    }

    /// A write, a read and an atomic, one after the other; each takes less than a second, and is right.
    fn round(&mut self, rig: &Rig, a: &End) -> Outcome {
        let (i, limit) = (self.rounds, rig.scaled(Duration::from_secs(1)));
        let OneSided { target, source, into, .. } = self;
        source.put_pattern(.., rig.pattern(i))?;
        let old = into.slice(COUNTER..);
        let ops = [
            ("write", Op::write(&*source, target.at(0))),
            ("read", Op::read(into.slice(..BLOCK), target.at(0))),
            ("atomic", Op::fetch_atomic(AtomicOp::Add, 1u64, old, target.at(COUNTER))),
        ];
        for (what, op) in ops {
            let start = Instant::now();
            a.run(op, Done::ok(i))?;
            let took = start.elapsed();
            check!(took < limit, "the {what} of round {i} done within {limit:?}, not {took:?}");
        }
        into.check_pattern(..BLOCK, rig.pattern(i))?;
        check_bytes!(into.bytes(COUNTER..)?, (i as u64).to_ne_bytes(), "the counter in round {i}");
        self.rounds += 1;
        Ok(())
    }

    /// What the target's CPU sees at the end.
    fn check(&self, rig: &Rig, a: &End, b: &End) -> Outcome {
        a.settle(b)?;
        self.target.check_pattern(..BLOCK, rig.pattern(self.rounds - 1))?;
        let count = (self.rounds as u64).to_ne_bytes();
        check_bytes!(self.target.bytes(COUNTER..)?, count, "the counter in the target's memory");
        Ok(())
    }
}

fn target_sleep(rig: &Rig) -> Outcome {
    const SLEEP: Duration = Duration::from_secs(10);
    let (a, b) = rig.pair()?;
    let mut ops = OneSided::new(&a, &b)?;
    let mut rng = rig.rng();
    thread::scope(|scope| -> Outcome {
        let target = scope.spawn(|| thread::sleep(SLEEP));
        while !target.is_finished() {
            ops.round(rig, &a)?;
            // Now and then there is nothing to do for long enough that whatever drives the target sleeps, too.
            thread::sleep(Duration::from_millis(rng.below(400) as u64));
        }
        Ok(())
    })?;
    ops.check(rig, &a, &b)
}

fn target_compute(rig: &Rig) -> Outcome {
    const ROUNDS: usize = 200;
    let (a, b) = rig.pair()?;
    let mut ops = OneSided::new(&a, &b)?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let outcome = (0..ROUNDS).try_for_each(|_| ops.round(rig, &a));
        done.store(true, Ordering::Relaxed);
        outcome
    })?;
    ops.check(rig, &a, &b)
}

fn target_blocked_wait(rig: &Rig) -> Outcome {
    const ROUNDS: usize = 100;
    let (a, b) = rig.pair()?;
    let mut ops = OneSided::new(&a, &b)?;
    b.recv(Slices::none(), 1)?;
    let wakeups = || b.domain().counters().provider.wakeups;
    let patience = Some(rig.scaled(Duration::from_secs(20)));
    thread::scope(|scope| -> Outcome {
        let target = scope.spawn(|| b.cq().wait_one(patience));
        // It waits by then, most likely; if not, it has still less to be woken from.
        thread::sleep(Duration::from_millis(20));
        let before = wakeups();
        (0..ROUNDS).try_for_each(|_| ops.round(rig, &a))?;
        check_eq!(wakeups(), before, "wake-ups at the target during {ROUNDS} rounds");
        check!(!target.is_finished(), "the target still waiting for a completion of its own");
        a.inject(b"", 1)?;
        let received = joined(target)?;
        check_eq!((received.context, received.status), (1, Status::Ok), "what ends the wait");
        a.expect_ok(1)?;
        Ok(())
    })?;
    ops.check(rig, &a, &b)
}

/// One end of messages to and fro, which polls all the time.
fn to_and_fro(end: &End, begins: bool, rounds: usize) -> Outcome {
    const SENT: u64 = 1;
    const RECEIVED: u64 = 2;
    let mut sent = 0;
    for round in 0..rounds {
        end.recv(Slices::none(), RECEIVED)?;
        if begins {
            end.inject(b"", SENT)?;
        }
        loop {
            let done = end.next()?;
            check_eq!(done.status, Status::Ok, "what ends in round {round}");
            if done.context == RECEIVED {
                break;
            }
            sent += 1;
        }
        if !begins {
            end.inject(b"", SENT)?;
        }
    }
    (sent..rounds).try_for_each(|_| end.expect_ok(SENT).map(drop))
}

/// An end that polls all the time may be served in another way than one that sleeps.
fn polls_stop(rig: &Rig) -> Outcome {
    const ROUNDS: usize = 1000;
    let (a, b) = rig.pair()?;
    let mut ops = OneSided::new(&a, &b)?;
    let epoll = watch(&b)?;
    for stop in 0..4 {
        thread::scope(|scope| {
            let echo = scope.spawn(|| to_and_fro(&b, false, ROUNDS));
            let first = to_and_fro(&a, true, ROUNDS);
            joined(echo).and(first)
        })?;
        for _ in 0..2 {
            ops.round(rig, &a)?;
            thread::sleep(Duration::from_millis(5));
        }
        b.recv(Slices::none(), stop)?;
        let armed = if stop % 2 == 0 { b.cq().arm()? } else { b.cq().arm_manual()? };
        check_eq!(armed, Armed::Waiting, "arming before there is a message");
        message_by_epoll(rig, (&a, &b), &epoll, stop)?;
    }
    ops.check(rig, &a, &b)?;
    a.disconnect();
    b.expect_closed_by_peer()
}

fn unmatched_alive(rig: &Rig) -> Outcome {
    let interval = rig.liveness(Duration::from_secs(1));
    let (a, b) = rig.pair_with(|attr| attr.liveness = Some(interval))?;
    let (source, target, sink) = (a.patterned(64, rig.pattern(0))?, b.buffer(64)?, b.buffer(64)?);
    // The write waits behind the send.
    a.send(&source, 1)?;
    a.write(&source, target.at(0), 2)?;
    // By the clock: intervals are not stretched either.
    thread::sleep(4 * interval);
    a.expect_none_for(Duration::from_millis(1))?;
    for end in [&a, &b] {
        check_eq!(end.state(), EndpointState::Connected, "state of {end:?} after 4 intervals");
        end.expect_no_event_for(Duration::from_millis(1))?;
    }
    b.recv(&sink, 3)?;
    b.expect_ok(3)?;
    a.expect_each([1, 2])?;
    a.settle(&b)?;
    for arrived in [&sink, &target] {
        arrived.check_pattern(.., rig.pattern(0))?;
    }
    Ok(())
}

fn initiator_silent(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let (target, sink) = (b.buffer(BLOCK + 8)?, b.buffer(BLOCK)?);
    let (source, into, old) = (a.patterned(BLOCK, rig.pattern(0))?, a.buffer(BLOCK)?, a.buffer(8)?);
    b.recv(&sink, 9)?;
    // The provider has just seen that the application polls.
    check_eq!(a.cq().poll_one()?, None, "a completion before anything was posted");
    a.write(&source, target.at(0), 0)?;
    a.read(&into, target.at(0), 1)?;
    a.fetch_add(7u64, old.slice(..), target.at(COUNTER), 2)?;
    a.send(&source, 3)?;
    thread::sleep(rig.scaled(Duration::from_millis(300)));
    let mut room = [Completion::default(); 8];
    let got = a.cq().poll(&mut room)?;
    let done: Vec<_> = room[..got].iter().map(|done| (done.context, done.status)).collect();
    check_eq!(done, [0, 1, 2, 3].map(|i| (i, Status::Ok)), "what one poll takes after the sleep");
    into.check_pattern(.., rig.pattern(0))?;
    old.check_filled(.., 0)?;
    b.expect_ok(9)?;
    sink.check_pattern(.., rig.pattern(0))?;
    target.check_pattern(..BLOCK, rig.pattern(0))?;
    check_bytes!(target.bytes(COUNTER..)?, 7u64.to_ne_bytes(), "the counter");
    Ok(())
}

fn armed_no_tick(rig: &Rig) -> Outcome {
    const MESSAGES: usize = 1000;
    const HALF_A_TICK: Duration = Duration::from_micros(500);
    const RECEIVES: usize = 64;
    let (a, b) = rig.pair()?;
    let sink = Slots::new(&b, RECEIVES, 8)?;
    // There is always a receive, so that nothing but the waiter's waking takes time.
    sink.post(&b, 0..RECEIVES)?;
    // Before each message a byte wakes the same thread from a bare socket: so long takes a wake-up on this machine
    // as busy as it is now.
    let (near, far) = UnixStream::pair()?;
    let (bare, epoll) = (Epoll::new()?, Epoll::new()?);
    bare.add(far.as_fd())?;
    epoll.add(b.cq().as_fd())?;
    let patience = rig.scaled(Duration::from_secs(2));
    // The waiter reports that it begins to wait, and when it woke. A sender that is gone says why itself.
    let (report, reports) = mpsc::channel();
    let (mut bare_times, mut times) = thread::scope(|scope| {
        let (b, sink) = (&b, &sink);
        let waiter = scope.spawn(move || -> Outcome {
            for i in 0..MESSAGES {
                let _ = report.send(None);
                check!(bare.wait(patience)?, "the bare socket readable in time");
                let _ = report.send(Some(Instant::now()));
                (&far).read_exact(&mut [0])?;

                // It has polled before it sleeps, as an event loop does.
                check_eq!(b.cq().poll_one()?, None, "a completion before message {i}");
                let mut armed = b.cq().arm()?;
                check_eq!(armed, Armed::Waiting, "arming before message {i}");
                let _ = report.send(None);
                let received = loop {
                    if armed == Armed::Waiting {
                        let readable = epoll.wait(patience)?;
                        check!(readable, "the armed descriptor readable in time, message {i}");
                    }
                    if let Some(received) = b.cq().poll_one()? {
                        break received;
                    }
                    armed = b.cq().arm()?;
                };
                let _ = report.send(Some(Instant::now()));
                Done::recv(i, 8).check(&received)?;
                check_bytes!(sink.seen(i, 8)?, (i as u64).to_ne_bytes(), "message {i}");
                b.recv(sink.slot(i), (i + RECEIVES) as u64)?;
            }
            Ok(())
        });
        let time_to_wake = |wake: &dyn Fn() -> Outcome| -> Result<Option<Duration>, Failed> {
            let Ok(None) = reports.recv() else { return Ok(None) };
            let start = Instant::now();
            wake()?;
            let Ok(Some(woke)) = reports.recv() else { return Ok(None) };
            Ok(Some(woke.saturating_duration_since(start)))
        };
        let send = || -> Result<(Vec<Duration>, Vec<Duration>), Failed> {
            let (mut bare_times, mut times) = (Vec::new(), Vec::new());
            for i in 0..MESSAGES as u64 {
                bare_times.extend(time_to_wake(&|| Ok((&near).write_all(&[1])?))?);
                times.extend(time_to_wake(&|| {
                    a.inject(&i.to_ne_bytes(), i)?;
                    a.expect_ok(i).map(drop)
                })?);
            }
            Ok((bare_times, times))
        };
        let times = send();
        // A waiter that still waits for a sender that failed need not wait for long.
        drop(near);
        let waited = joined(waiter);
        times.and_then(|times| waited.map(|()| times))
    })?;
    bare_times.sort_unstable();
    times.sort_unstable();
    let (bare, median) = (bare_times[MESSAGES / 2], times[MESSAGES / 2]);
    // On the way a thread of the provider may have to wake, too, and each of them do its work.
    let limit = 4 * bare + rig.scaled(HALF_A_TICK);
    check!(median < limit, "a median below {limit:?}, not {median:?} (a bare wake-up: {bare:?})");
    Ok(())
}

fn idle_is_free(rig: &Rig) -> Outcome {
    const CONNECTIONS: usize = 100;
    const IDLE: Duration = Duration::from_secs(10);
    const MAX: Duration = Duration::from_millis(50);
    let mut pairs = Vec::new();
    for _ in 0..CONNECTIONS {
        let (a, b) = rig.pair()?;
        // Not idle from the start.
        a.settle(&b)?;
        pairs.push((a, b));
    }
    // What was under way may end.
    thread::sleep(Duration::from_millis(500));
    let before = cpu_time()?;
    thread::sleep(IDLE);
    let (spent, limit) = (cpu_time()?.saturating_sub(before), rig.scaled(MAX));
    check!(spent < limit, "less than {limit:?} of processor time in {IDLE:?}, not {spent:?}");
    // They are idle, not dead.
    pairs.iter().try_for_each(|(a, b)| a.settle(b))
}
