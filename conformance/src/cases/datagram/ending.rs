//! The end of endpoints and regions.

use super::mail::{Mail, is_protected};
use crate::prelude::*;

pub(super) fn posted_are_canceled(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    const POSTED: usize = 8;
    let (a, b) = Mail::pair(rig)?;
    let (to, target) = (a.to(&b)?, b.buffer(rig, POSTED * 8)?);
    for n in 0..POSTED {
        b.end.recv(target.slice(n * 8..(n + 1) * 8), n as u64)?;
    }
    let done = a.send_until_it_ends(&to, &Op::inject(b"first"), &b)?;
    check_eq!((done.context, done.status), (0, Status::Ok), "{done:?}");
    let Mail { end, queue, .. } = b;
    let (id, room) = (end.id(), queue.room());
    drop(end);
    // It is gone, and its memory is free.
    target.fill(7)?;
    target.region().close()?;
    for _ in 0..8 {
        a.post(&to, &Op::inject(b"too late"))?;
    }
    let mut next = 1;
    while next < POSTED as u64 {
        let done = queue.wait_one(Some(rig.scaled(Duration::from_secs(10))))?;
        if done.is_ok() {
            // A datagram that was sent twice, since the first had not come in time.
            check_eq!(done.context, next, "the order of {done:?}");
            next += 1;
            continue;
        }
        check_eq!((done.context, done.status), (next, Status::Canceled), "{done:?}");
        check_eq!((done.endpoint, done.kind), (id, OpKind::Recv), "{done:?}");
        next += 1;
    }
    check_eq!(queue.poll_one()?, None, "one completion more");
    check_eq!(queue.room(), room + 256, "room for what is gone");
    Ok(())
}

pub(super) fn region_dropped(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    let (a, b) = Mail::pair(rig)?;
    let to = a.to(&b)?;
    let region = rig.domain_b().alloc(64, Access::LOCAL_WRITE)?;
    b.end.recv(&region, 1)?;
    check_err!(region.close(), Error::Busy, "closing what a receive uses");
    b.end.recv(&region, 2)?;
    drop(region);
    for context in [1, 2] {
        let done = a.send_until_it_ends(&to, &Op::inject(&[3; 64]), &b)?;
        check_eq!((done.context, done.status, done.len), (context, Status::Ok, 64), "{done:?}");
    }
    // The same at the sender, whose datagrams end by themselves.
    let source = rig.domain_a().alloc(64, Access::empty())?;
    a.end.send_to(&to, source.slice(..8), 3)?;
    drop(source);
    let done = a.next()?;
    check_eq!((done.context, done.status), (3, Status::Ok), "{done:?}");
    a.expect_alive(rig, &b)
}

pub(super) fn under_fire(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    const POSTED: usize = 16;
    let rounds = rig.count(20, 500);
    let a = Mail::open(rig, rig.domain_a())?;
    for round in 0..rounds {
        let b = Mail::open(rig, rig.domain_b())?;
        let (to, target) = (a.to(&b)?, b.buffer(rig, POSTED * 64)?);
        for n in 0..POSTED {
            b.end.recv(target.slice(n * 64..(n + 1) * 64), n as u64)?;
        }
        let Mail { end, queue, .. } = b;
        let stop = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            let sender = scope.spawn(|| -> Outcome {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    a.post(&to, &Op::inject(&[1; 64]))?;
                }
                Ok(())
            });
            thread::sleep(Duration::from_micros(50 * round as u64));
            drop(end);
            target.fill(9)?;
            thread::sleep(Duration::from_millis(1));
            let untouched = target.check_filled(.., 9);
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            sender.join().map_err(|_| Failed::new("the sender to return", "it panicked"))??;
            untouched
        })?;
        for next in 0..POSTED as u64 {
            let done = queue.wait_one(Some(rig.scaled(Duration::from_secs(10))))?;
            check_eq!(done.context, next, "the order of {done:?}");
            let ends = matches!(done.status, Status::Ok | Status::Canceled);
            check!(ends, "a datagram, or the end, not {done:?}");
        }
        check_eq!(queue.poll_one()?, None, "one completion more");
    }
    Ok(())
}
