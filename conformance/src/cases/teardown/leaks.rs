//! What is left when everything is over.

use crate::prelude::*;
use crate::usage::Usage;

/// What the process may have grown by: the runner keeps the results.
const MAX_GROWTH: usize = 32 << 20;

pub(super) fn leak_check(rig: &Rig) -> Outcome {
    // Run without others, it has only its own work to look at.
    let start = match rig.usage_at_start() {
        Some(start) => start,
        None => {
            work(rig)?;
            &Usage::at_rest()?
        }
    };
    work(rig)?;
    // Of what is resident, allocators keep the more the more threads there were.
    rig.expect_no_more(start, |held| held.allocated_bytes, MAX_GROWTH)
}

/// Some of everything that takes descriptors, threads or memory; all of it is over when this returns.
fn work(rig: &Rig) -> Outcome {
    const ROUNDS: usize = 8;
    const LEN: usize = 1 << 16;
    let patience = Some(rig.connect_timeout());
    let sends = rig.info().capabilities.contains(Capabilities::SEND);
    for round in 0..ROUNDS {
        let (one, two) = (rig.target().open()?, rig.target().open()?);
        let memory = [one.alloc(LEN, Access::ALL)?, two.alloc(LEN, Access::ALL)?];
        let queues = [one.completion_queue(256)?, two.completion_queue(256)?];
        let (a, b) = (rig.builder(&one).build(&queues[0])?, rig.builder(&two).build(&queues[1])?);
        let listener = rig.listen(&two)?;
        a.connect(listener.local_addr(), b"work")?;
        let mut request = listener.accept(patience)?;
        // Rejected, left alone, or accepted.
        if round % 4 == 0 {
            request.reject(b"no")?;
            continue;
        }
        if round % 4 == 1 {
            continue;
        }
        request.accept(&b, &[])?;
        a.wait_connected(patience)?;
        b.wait_connected(patience)?;
        if sends {
            // The second finds no receive.
            b.recv(&memory[1], 1)?;
            a.send(&memory[0], 1)?;
            a.send(&memory[0], 2)?;
            queues[1].wait_one(patience)?;
        }
        // Closed by the one side, or by neither.
        if round % 4 == 2 {
            a.disconnect();
            b.wait_disconnected(patience)?;
        }
    }
    Ok(())
}
