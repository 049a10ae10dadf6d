//! Datagrams that arrive, and those that do not.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use fabric::Armed;
use fabric_util::wakeup::wait_readable;

use super::mail::{Mail, is_protected};
use crate::prelude::*;

pub(super) fn all_lengths(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    let (a, b) = Mail::pair(rig)?;
    let (to, max) = (a.to(&b)?, a.end.max_len());
    check_eq!(max, rig.info().limits.datagram, "the longest datagram");
    let (source, target) = (a.buffer(rig, max)?, b.buffer(rig, max)?);
    source.put_pattern(.., rig.pattern(0))?;
    for len in [0, 1, 2, 11, 63, 64, 65, 1000, max / 2, max - 1, max] {
        let len = len.min(max);
        target.fill(0)?;
        let done = a.deliver(&to, source.slice(..len), &b, &target)?;
        check_eq!(done.len, len, "length of {done:?}");
        target.check_pattern(..len, rig.pattern(0))?;
        target.check_filled(len.., 0)?;
    }
    // In pieces at both ends, of other lengths; empty ones among them.
    let third = max / 3;
    let from = [
        source.slice(..1),
        source.slice(1..third),
        source.slice(third..third),
        source.slice(third..max),
    ];
    let into = [target.slice(..third + 7), target.slice(third + 7..max)];
    target.fill(0)?;
    let done = a.deliver(&to, &from, &b, &into)?;
    check_eq!(done.len, max, "length of {done:?}");
    target.check_pattern(.., rig.pattern(0))?;

    // Without immediate data, and injected.
    for len in [0, 1, a.end.attr().inject] {
        b.end.recv(&target, 3)?;
        let bytes = vec![len as u8 | 1; len];
        let done = a.send_until_it_ends(&to, &Op::inject(&bytes), &b)?;
        check_eq!((done.context, done.status, done.len), (3, Status::Ok, len), "{done:?}");
        check_eq!(done.immediate, None, "immediate data that was not sent");
        target.check_filled(..len, len as u8 | 1)?;
        b.expect_quiet(rig)?;
    }
    Ok(())
}

pub(super) fn oldest_first(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    const COUNT: usize = 32;
    let (a, b) = Mail::pair(rig)?;
    let to = a.to(&b)?;
    let inbox = b.buffer(rig, COUNT * 8)?;
    let slots = || (0..COUNT).map(|n| Recv::new(inbox.slice(n * 8..(n + 1) * 8), n as u64));
    b.end.post_recvs(&slots().collect::<Vec<_>>())?;
    let mut next = 0;
    for round in 0..10 * COUNT {
        let number = (round as u32).to_ne_bytes();
        a.end.inject_to(&to, &number, round as u64)?;
        let done = a.next()?;
        check_eq!(
            (done.context, done.status),
            (round as u64, Status::Ok),
            "sends in order: {done:?}"
        );
        while let Some(done) = b.next_within(rig.scaled(Duration::from_millis(20)))? {
            check_eq!(
                (done.context, done.status),
                (next as u64, Status::Ok),
                "receives in order: {done:?}"
            );
            next += 1;
            if next == COUNT {
                return Ok(());
            }
        }
    }
    fail!("each of the receives to be taken", "{next} of {COUNT}")
}

pub(super) fn too_long_for_its_receive(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    let (a, b) = Mail::pair(rig)?;
    let (to, max) = (a.to(&b)?, a.end.max_len());
    let (source, target) = (a.buffer(rig, max)?, b.buffer(rig, 64)?);
    source.put_pattern(.., rig.pattern(0))?;
    for (len, room) in [(1, 0), (65, 64), (max, 64), (max, 1), (max, 0)] {
        let into = target.slice(..room);
        b.end.recv(into, 5)?;
        let done = a.send_until_it_ends(&to, &Op::send(source.slice(..len)), &b)?;
        check_eq!(
            (done.context, done.status),
            (5, Status::TooLong),
            "{len} B into {room}: {done:?}"
        );
        check_eq!((done.len, done.source), (0, None), "length and source of {done:?}");
        target.check_guards()?;
        target.check_filled(room.., 0)?;
        target.fill(0)?;
        b.expect_quiet(rig)?;
    }
    a.expect_alive(rig, &b)
}

pub(super) fn no_receive(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    const COUNT: u64 = 16;
    let (a, b) = Mail::pair(rig)?;
    let to = a.to(&b)?;
    let before = b.end.drops()?;
    for n in 0..COUNT {
        a.post(&to, &Op::inject(&[n as u8; 100]))?;
    }
    if before.no_receive.is_some() {
        // What the network lost is sent again.
        let mut tries = 0;
        rig.eventually(|| {
            let count = b.end.drops()?.no_receive;
            check!(count >= before.no_receive.map(|n| n + COUNT), "{COUNT} drops, not {count:?}");
            Ok(())
        })
        .or_else(|failed| {
            tries += 1;
            let lost = b.end.drops()?.overrun.unwrap_or(0) > before.overrun.unwrap_or(0);
            if lost { Ok(()) } else { Err(failed) }
        })?;
    } else {
        thread::sleep(rig.scaled(Duration::from_millis(50)));
    }
    let target = b.buffer(rig, 128)?;
    b.end.recv(&target, 2)?;
    b.expect_quiet(rig)?;
    let done = a.send_until_it_ends(&to, &Op::inject(b"now"), &b)?;
    check_eq!((done.context, done.status, done.len), (2, Status::Ok, 3), "{done:?}");
    check_bytes!(target.bytes(..3)?, b"now", "what came");
    check_eq!(b.end.drops()?.malformed.unwrap_or(0), 0, "malformed ones");
    Ok(())
}

pub(super) fn many_to_one(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    const SENDERS: usize = 8;
    const EACH: usize = 8;
    const LEN: usize = 100;
    let b = Mail::open(rig, rig.domain_b())?;
    let senders =
        (0..SENDERS).map(|_| Mail::open(rig, rig.domain_a())).collect::<Result<Vec<_>, _>>()?;
    let ways = senders.iter().map(|sender| sender.to(&b)).collect::<Result<Vec<_>, _>>()?;
    let sources = senders
        .iter()
        .enumerate()
        .map(|(who, sender)| {
            let buffer = sender.buffer(rig, LEN)?;
            buffer.put_pattern(.., rig.pattern(who))?;
            Ok(buffer)
        })
        .collect::<Result<Vec<_>, Failed>>()?;
    const SLOTS: usize = SENDERS * EACH;
    let inbox = b.buffer(rig, SLOTS * LEN)?;
    let post = |slot: usize| b.end.recv(inbox.slice(slot * LEN..(slot + 1) * LEN), slot as u64);
    for slot in 0..SLOTS {
        post(slot)?;
    }
    let mut came = [[false; EACH]; SENDERS];
    for _ in 0..20 {
        for (who, sender) in senders.iter().enumerate() {
            for number in (0..EACH).filter(|number| !came[who][*number]) {
                let op = Op::send(&sources[who]).immediate((who * EACH + number) as u32);
                sender.post(&ways[who], &op)?;
            }
        }
        while let Some(done) = b.next_within(rig.scaled(Duration::from_millis(100)))? {
            check_eq!((done.status, done.len), (Status::Ok, LEN), "{done:?}");
            let number = done.immediate.map_or(usize::MAX, |immediate| immediate as usize);
            check!(number < SLOTS, "a number that was sent, not {number}");
            let (who, slot) = (number / EACH, done.context as usize);
            check_eq!(done.source, Some(senders[who].end.address()), "the source of {done:?}");
            inbox.check_pattern(slot * LEN..(slot + 1) * LEN, rig.pattern(who))?;
            came[who][number % EACH] = true;
            post(slot)?;
        }
        if came.iter().flatten().all(|came| *came) {
            return Ok(());
        }
    }
    fail!("every datagram to come in 20 tries", "{came:?}")
}

pub(super) fn both_ways(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    let (a, b) = Mail::pair(rig)?;
    check!(a.end.address() != b.end.address(), "addresses of their own");
    let (asked, answered) = (b.buffer(rig, 32)?, a.buffer(rig, 32)?);
    b.end.recv(&asked, 1)?;
    let question = a.send_until_it_ends(&a.to(&b)?, &Op::inject(b"question"), &b)?;
    check!(question.is_ok(), "a question, not {question:?}");
    let Some(source) = question.source else {
        fail!("the source of the question", "none");
    };
    a.end.recv(&answered, 2)?;
    let answer = b.send_until_it_ends(&b.end.resolve(&source)?, &Op::inject(b"answer"), &a)?;
    check_eq!((answer.status, answer.len), (Status::Ok, 6), "{answer:?}");
    check_eq!(answer.source, Some(b.end.address()), "the source of the answer");
    check_bytes!(answered.bytes(..6)?, b"answer", "the answer");

    // To itself: both completions are its own, in any order.
    let own = a.end.resolve(&a.end.address())?;
    a.end.recv(&answered, 3)?;
    for _ in 0..20 {
        a.end.inject_to(&own, b"echo", 4)?;
        let (mut sent, mut received) = (false, None);
        while !sent || received.is_none() {
            let Some(done) = a.next_within(rig.scaled(Duration::from_millis(250)))? else { break };
            check!(done.is_ok(), "what ends well, not {done:?}");
            if done.kind.is_receive() { received = Some(done) } else { sent = true }
        }
        check!(sent, "the send to end");
        if let Some(done) = received {
            check_eq!((done.context, done.source), (3, Some(a.end.address())), "{done:?}");
            return Ok(());
        }
    }
    fail!("one of 20 datagrams to itself", "none came")
}

pub(super) fn asleep(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    let (a, b) = Mail::pair(rig)?;
    let (to, target) = (a.to(&b)?, b.buffer(rig, 8)?);
    for by_hand in [false, true] {
        b.end.recv(&target, 6)?;
        // A thread sends from time to time, until it hears that one came.
        let stop = std::sync::atomic::AtomicBool::new(false);
        let done = thread::scope(|scope| {
            let sender = scope.spawn(|| -> Outcome {
                for _ in 0..20 {
                    thread::sleep(rig.scaled(Duration::from_millis(50)));
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    a.post(&to, &Op::inject(b"wake up"))?;
                }
                Ok(())
            });
            let done = sleep_until_done(rig, &b, by_hand);
            stop.store(true, Ordering::Relaxed);
            sender.join().map_err(|_| Failed::new("the sender to return", "it panicked"))??;
            done
        })?;
        check_eq!((done.context, done.status, done.len), (6, Status::Ok, 7), "{done:?}");
    }
    Ok(())
}

fn sleep_until_done(rig: &Rig, b: &Mail, by_hand: bool) -> Result<Completion, Failed> {
    if !by_hand {
        return b.next();
    }
    let until = rig.deadline(Duration::from_secs(10));
    while Instant::now() < until {
        if let Some(done) = b.queue.poll_one()? {
            return Ok(done);
        }
        if b.queue.arm()? == Armed::Waiting {
            wait_readable(b.queue.as_fd(), Some(until))?;
        }
    }
    Err(Failed::new("a datagram to wake the sleeper", "none did"))
}

pub(super) fn unsignaled(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    let a = Mail::open_with(rig, rig.domain_a(), |attr| attr.send_depth = 4)?;
    let b = Mail::open(rig, rig.domain_b())?;
    let (to, source) = (a.to(&b)?, a.buffer(rig, 64)?);
    // Far more than the depth, without a single poll.
    for n in 0..200 {
        let op = if n % 2 == 0 { Op::send(&source) } else { Op::inject(b"injected") };
        let until = rig.deadline(Duration::from_secs(10));
        while let Err(error) = a.end.post_to(&to, &op.unsignaled()) {
            check!(matches!(error, Error::Again), "Again at most, not {error}");
            check!(Instant::now() < until, "room again, without a poll");
            thread::yield_now();
        }
    }
    rig.eventually(|| Ok(source.region().close()?))?;
    a.expect_quiet(rig)?;
    a.post(&to, &Op::inject(b"the last"))
}

pub(super) fn threads(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    const THREADS: usize = 4;
    let each = rig.count(200, 20_000);
    let (a, b) = Mail::pair(rig)?;
    let (to, depth) = (a.to(&b)?, b.end.attr().recv_depth);
    let inbox = b.buffer(rig, depth * 64)?;
    for slot in 0..depth {
        b.end.recv(inbox.slice(slot * 64..(slot + 1) * 64), slot as u64)?;
    }
    let (sent, received) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let stop = std::sync::atomic::AtomicBool::new(false);
    let send = |who: usize| -> Outcome {
        for n in 0..each {
            let byte = (who * 64 + n % 64) as u8;
            while let Err(error) = a.end.inject_to(&to, &[byte; 64], 0) {
                check!(matches!(error, Error::Again), "Again at most, not {error}");
                if let Some(done) = a.queue.poll_one()? {
                    check!(done.is_ok() && !done.kind.is_receive(), "a send, not {done:?}");
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    };
    let receive = || -> Outcome {
        loop {
            // What came before the senders ended is taken too.
            let is_over = stop.load(Ordering::Relaxed);
            let Some(done) = b.next_within(Duration::from_millis(5))? else {
                if is_over {
                    break;
                }
                continue;
            };
            check_eq!((done.status, done.len), (Status::Ok, 64), "{done:?}");
            let slot = done.context as usize * 64;
            let bytes = inbox.bytes(slot..slot + 64)?;
            check!(bytes.iter().all(|byte| *byte == bytes[0]), "one datagram, not {bytes:?}");
            received.fetch_add(1, Ordering::Relaxed);
            b.end.recv(inbox.slice(slot..slot + 64), done.context)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let senders: Vec<_> = (0..THREADS).map(|who| scope.spawn(move || send(who))).collect();
        let receivers: Vec<_> = (0..2).map(|_| scope.spawn(receive)).collect();
        let panicked = |_| Failed::new("a thread to return", "it panicked");
        let results: Vec<_> = senders.into_iter().map(|one| one.join()).collect();
        stop.store(true, Ordering::Relaxed);
        for result in results.into_iter().chain(receivers.into_iter().map(|one| one.join())) {
            result.map_err(panicked)??;
        }
        Ok::<_, Failed>(())
    })?;
    let total = THREADS * each;
    while sent.load(Ordering::Relaxed) < total {
        let done = a.next()?;
        check!(done.is_ok(), "a send that ends well, not {done:?}");
        sent.fetch_add(1, Ordering::Relaxed);
    }
    a.expect_quiet(rig)?;
    let received = received.load(Ordering::Relaxed);
    check!(received > 0, "some of {total} datagrams to come");
    Ok(())
}

impl Mail {
    /// Nothing more ends.
    #[track_caller]
    pub(super) fn expect_quiet(&self, rig: &Rig) -> Outcome {
        match self.next_within(rig.scaled(Duration::from_millis(20)))? {
            None => Ok(()),
            Some(done) => Err(Failed::new("no completion more", format!("{done:?}"))),
        }
    }
}
