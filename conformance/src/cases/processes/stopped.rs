//! A peer whose process is stopped.

use crate::prelude::*;

const BLOCK: usize = 4096;

pub(super) fn target_stopped(rig: &Rig) -> Outcome {
    let process = rig.process()?;
    let far = process.domain()?;
    let (a, b) = rig.pair_on(rig.domain_a(), &far)?;
    let (source, into, target) = (a.buffer(BLOCK)?, a.buffer(BLOCK + 8)?, b.buffer(BLOCK + 8)?);
    source.put_pattern(.., rig.pattern(0))?;
    target.set(BLOCK, 41u64)?;

    process.stop()?;
    a.write(&source, target.at(0), 1)?;
    a.read(into.slice(..BLOCK), target.at(0), 2)?;
    a.fetch_add(1u64, into.slice(BLOCK..), target.at(BLOCK), 3)?;
    let path = a.path().ok_or_else(|| Failed::new("a path", "none"))?;
    let goes_on = path.capabilities.contains(Capabilities::PROGRESS_WHILE_STOPPED);
    if !goes_on {
        a.expect_none_for(Duration::from_secs(2))?;
        process.resume()?;
    }
    a.expect_each(1..=3)?;
    if goes_on {
        process.resume()?;
    }
    into.check_pattern(..BLOCK, rig.pattern(0))?;
    check_eq!(into.get::<u64>(BLOCK)?, 41, "the old value");
    a.settle(&b)?;
    target.check_pattern(..BLOCK, rig.pattern(0))?;
    check_eq!(target.get::<u64>(BLOCK)?, 42, "the new value");
    Ok(())
}

pub(super) fn stopped_with_liveness(rig: &Rig) -> Outcome {
    const INTERVAL: Duration = Duration::from_secs(1);
    // More than the kernels at both ends keep for a process that does not read.
    const WRITES: usize = 32;
    const LEN: usize = 1 << 20;
    let process = rig.process()?;
    let far = process.domain()?;
    let end = |domain| rig.end_with(domain, |attr| attr.liveness = Some(INTERVAL));
    let (idle, idle_peer) = (end(rig.domain_a())?, end(&far)?);
    let (busy, busy_peer) = (end(rig.domain_a())?, end(&far)?);
    rig.connect(&idle, &idle_peer)?;
    rig.connect(&busy, &busy_peer)?;
    let (source, target) = (busy.patterned(LEN, rig.pattern(0))?, busy_peer.buffer(LEN)?);

    process.stop()?;
    for i in 0..WRITES as u64 {
        busy.write(&source, target.at(0), i)?;
    }
    // By the clock: intervals are not stretched either.
    thread::sleep(6 * INTERVAL);
    for end in [&idle, &busy] {
        check_eq!(end.state(), EndpointState::Connected, "state after 6 intervals");
        end.expect_no_event_for(Duration::from_millis(1))?;
    }
    process.resume()?;
    busy.expect_each(0..WRITES as u64)?;
    busy.settle(&busy_peer)?;
    idle.settle(&idle_peer)?;
    target.check_pattern(.., rig.pattern(0))
}
