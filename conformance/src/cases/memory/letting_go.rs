//! Regions of operations that succeed without a completion: let go in bounded time, without a poll or a post.

use super::accesses::write_and_read;
use crate::prelude::*;

/// How long the library may take to find out that an operation has succeeded.
const BOUND: Duration = Duration::from_secs(2);

/// Each kind of operation, unsignaled, from a region of its own. `done` says when the peer has seen to it.
const KINDS: [&str; 4] = ["send", "write", "read", "atomic"];

/// Posts an unsignaled operation that uses the whole of `region`, and waits until it has succeeded, without a call of
/// `a`'s.
fn run_unsignaled(
    rig: &Rig,
    (a, b): (&End, &End),
    kind: &str,
    region: &fabric::Region,
    target: &Guarded,
) -> Outcome {
    region.write_at(0, &1u64.to_ne_bytes())?;
    target.set(0, 2u64)?;
    let at = target.at(0);
    let op = match kind {
        "send" => {
            b.recv(target, 1)?;
            Op::send(region)
        }
        "write" => Op::write(region, at),
        "read" => Op::read(region, at),
        _ => Op::fetch_atomic(AtomicOp::Add, 5u64, region.slice(..), at),
    };
    a.post(&op.unsignaled())?;
    if kind == "send" {
        b.expect_ok(1)?;
    }
    rig.eventually(|| {
        let (here, there) = (region.to_vec(..)?, target.get::<u64>(0)?);
        let done = match kind {
            "send" | "write" => there == 1,
            "read" => here == 2u64.to_ne_bytes(),
            _ => there == 7 && here == 2u64.to_ne_bytes(),
        };
        check!(done, "an unsignaled {kind} to take effect, not {here:?} here and {there} there");
        Ok(())
    })
}

/// Closes a region that unsignaled operations used, as often as it takes; `between` happens before each attempt.
fn close_in_time(
    rig: &Rig,
    region: &fabric::Region,
    what: &str,
    between: impl Fn() -> Outcome,
) -> Outcome {
    let until = rig.deadline(BOUND);
    loop {
        between()?;
        match region.close() {
            Ok(()) => return Ok(()),
            Err(Error::Busy) => check!(Instant::now() < until, "{what} to let its region go"),
            Err(error) => return Err(error.into()),
        }
        thread::sleep(Duration::from_millis(1));
    }
}

pub(super) fn close_unsignaled(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let target = b.buffer(8)?;
    for kind in KINDS {
        let region = a.domain().alloc(8, Access::LOCAL_WRITE)?;
        run_unsignaled(rig, (&a, &b), kind, &region, &target)?;
        close_in_time(rig, &region, &format!("an unsignaled {kind}"), || Ok(()))?;
    }
    // None of it has a completion, and the endpoint is as good as before.
    a.expect_none_for(Duration::from_millis(20))?;
    a.settle(&b)
}

pub(super) fn drop_unsignaled(rig: &Rig) -> Outcome {
    for kind in KINDS {
        let (a, b) = rig.pair()?;
        let (target, own) = (b.buffer(8)?, b.buffer(8)?);
        let region = a.domain().alloc(8, Access::ALL)?;
        run_unsignaled(rig, (&a, &b), kind, &region, &target)?;
        let remote = region.remote();
        drop(region);
        let until = rig.deadline(BOUND);
        // The peer tries to get in, by turns, until it is refused.
        for i in 0.. {
            let [write, read] = write_and_read(&own, remote.at(0));
            b.post(&[write, read][i % 2].1.context(1))?;
            let seen = b.next()?;
            if b.is_refusal(seen.status) {
                break;
            }
            check_eq!(seen.status, Status::Ok, "an access to a region that is about to go");
            check!(Instant::now() < until, "a region dropped behind an unsignaled {kind} to go");
            thread::sleep(Duration::from_millis(5));
        }
        a.expect_disconnected()?;
    }
    Ok(())
}

pub(super) fn end_unsignaled(rig: &Rig) -> Outcome {
    for kind in KINDS {
        for end in ["disconnect", "shutdown", "the peer's disconnect", "the peer's drop"] {
            let (a, b) = rig.pair()?;
            let target = b.buffer(8)?;
            let regions = [(); 3].map(|()| a.domain().alloc(8, Access::LOCAL_WRITE)).into_iter();
            let regions = regions.collect::<fabric::Result<Vec<_>>>()?;
            for region in &regions {
                run_unsignaled(rig, (&a, &b), kind, region, &target)?;
            }
            // The peer has seen to them; that this side has heard so takes a moment more.
            thread::sleep(rig.scaled(Duration::from_millis(100)));
            match end {
                "disconnect" => a.disconnect(),
                "shutdown" => a.shutdown(rig.scaled(Duration::from_secs(5)))?,
                "the peer's disconnect" => b.disconnect(),
                _ => drop(b),
            }
            a.expect_disconnected()?;
            for region in &regions {
                let what = format!("an unsignaled {kind} before {end}");
                close_in_time(rig, region, &what, || Ok(()))?;
            }
            // They had succeeded, so they have no completions now either.
            a.expect_none_for(Duration::from_millis(5))?;
        }
    }
    Ok(())
}

/// An operation that is executed while its connection ends has no completion, if it succeeds, and lets its region go; one
/// that is canceled does so when its completion is taken. The end comes a little later each time, so that it meets each
/// stage.
pub(super) fn end_amid_unsignaled(rig: &Rig) -> Outcome {
    for round in 0..200 {
        let (a, b) = rig.pair()?;
        let (target, region) = (b.buffer(8)?, a.domain().alloc(8, Access::LOCAL_WRITE)?);
        target.set(0, 0u64)?;
        let op = match round % 2 {
            0 => Op::fetch_atomic(AtomicOp::Swap, 5f32, region.slice(..4), target.at(0)),
            _ => Op::write(&region, target.at(0)),
        };
        a.post(&op.unsignaled())?;
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(round) {
            std::hint::spin_loop();
        }
        a.disconnect();
        a.expect_disconnected()?;
        let take = || match a.cq().poll_one()? {
            Some(done) => {
                check_eq!(done.status, Status::Canceled, "round {round}: an unsignaled operation");
                Ok(())
            }
            None => Ok(()),
        };
        close_in_time(
            rig,
            &region,
            &format!("round {round}: what was posted before the end"),
            take,
        )?;
    }
    Ok(())
}
