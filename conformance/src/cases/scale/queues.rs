//! Many completion queues of one domain.

use std::os::fd::AsFd;

use fabric::Armed;
use fabric_util::wakeup::wait_readable;

use crate::cases::crowd::depths;
use crate::prelude::*;
use crate::sys::{allow_descriptors, max_descriptors};

/// More than the kernel lets watch each other at will, and few enough for any machine.
const MAX: usize = 1200;

pub(super) fn completion_queues(rig: &Rig) -> Outcome {
    const SMALL: usize = 2;
    let domain = rig.domain_a();
    // Some descriptors each, and others for cases beside this one.
    let room = max_descriptors()?.saturating_sub(1000) / 4;
    let count = domain.info().limits.completion_queues.min(MAX).min(room);
    check!(count > 501, "descriptors for more than 501 queues (`ulimit -Hn`), not for {count}");
    allow_descriptors(4 * count + 500)?;
    let queues =
        (0..count).map(|_| domain.completion_queue(2 * SMALL)).collect::<Result<Vec<_>, _>>()?;
    for queue in &queues {
        for armed in [queue.arm_manual()?, queue.arm()?] {
            check_eq!(armed, Armed::Waiting, "arming a queue that is not used");
        }
    }
    for queue in [queues.first(), queues.last()].into_iter().flatten() {
        let (a, b) = (rig.end_on(domain, queue, depths(SMALL, SMALL))?, rig.end(rig.domain_b())?);
        rig.connect(&a, &b)?;
        a.settle(&b)?;
        // By sleeping on it, in both ways.
        a.recv(Slices::none(), 1)?;
        b.send(Slices::none(), 1)?;
        check_eq!(
            queue.wait_one(Some(rig.scaled(Duration::from_secs(10))))?.context,
            1,
            "received"
        );
        b.expect_ok(1)?;
        a.recv(Slices::none(), 2)?;
        b.send(Slices::none(), 2)?;
        let until = rig.deadline(Duration::from_secs(10));
        let seen = loop {
            if let Some(seen) = a.cq().poll_one()? {
                break seen;
            }
            check!(Instant::now() < until, "the second message within 10 s");
            if queue.arm_manual()? == Armed::Waiting {
                wait_readable(queue.as_fd(), Some(until))?;
            }
        };
        check_eq!(seen.context, 2, "received by one that drives");
        b.expect_ok(2)?;
    }
    Ok(())
}
