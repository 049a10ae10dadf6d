//! Keys that were not given, processes that are not the owner, operations that are not offered.

use std::fmt::Write;

use fabric::Completion;

use crate::prelude::*;
use crate::sys::in_child;

pub(super) fn guess_keys(rig: &Rig) -> Outcome {
    const GUESSES: usize = 1000;
    let mut rng = rig.rng();
    let owner = rig.end(rig.domain_b())?;
    let targets: Vec<_> = (0..8).map(|_| owner.buffer(8)).collect::<Result<_, _>>()?;
    let (target, honest) = (&targets[4], targets[4].region().remote());
    let key = honest.key();
    // Where careless numbering would put the others and this one, then anything.
    let near = (1..=16).flat_map(|step| [key.wrapping_add(step), key.wrapping_sub(step)]);
    let flipped = (0..64).map(|bit| key ^ 1 << bit);
    let mut guesses: Vec<_> = near.chain(flipped).chain(0..128).collect();
    guesses.resize_with(GUESSES, || rng.next_u64());

    let listener = rig.listen(rig.domain_b())?;
    for guess in guesses {
        // Each needs a connection: the one before is dead.
        let (a, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
        a.connect(listener.local_addr(), &[])?;
        listener.accept(Some(rig.scaled(Duration::from_secs(10))))?.accept(&b, &[])?;
        a.expect_connected()?;
        let lie = forged_key(&honest, guess).at(target.at(0).offset());
        a.run(Op::inject_write(b"burglar!", lie), Done::refused(1))?;
    }
    for target in &targets {
        target.check_filled(.., 0)?;
    }
    Ok(())
}

pub(super) fn fork_child(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let (source, target) = (a.buffer(64)?, b.buffer(64)?);
    let listener = rig.listen(rig.domain_a())?;
    let idle = rig.end(rig.domain_a())?;
    let events = rig.domain_a().events();
    // Connected, so that its peer would see it if dropping it in the child had an effect.
    let (dropped, dropped_peer) = rig.pair()?;
    let buffer = dropped.buffer(8)?;
    let mut dropped = Some((dropped, buffer));

    let time = rig.scaled(Duration::from_secs(10));
    let said = in_child(time, || {
        let mut wrong = String::new();
        let mut refused = |call: &str, error: Option<Error>| {
            if !matches!(error, Some(Error::InvalidState(_))) {
                // Writing to a string does not fail.
                let _ = write!(wrong, "{call}: {error:?}; ");
            }
        };
        refused("send", a.send(&source, 1).err());
        refused("write", a.write(&source, target.at(0), 2).err());
        refused("read", a.read(&source, target.at(0), 3).err());
        refused("recv", a.recv(&source, 4).err());
        refused("post_batch", a.post_batch(&[Op::send(&source)]).err().map(|batch| batch.error));
        refused("connect", idle.connect(listener.local_addr(), &[]).err());
        refused("shutdown", a.shutdown(Duration::ZERO).err());
        refused("wait_connected", a.wait_connected(Some(Duration::ZERO)).err());
        refused("wait_disconnected", a.wait_disconnected(Some(Duration::ZERO)).err());
        refused("poll_one", a.cq().poll_one().err());
        refused("poll", a.cq().poll(&mut [Completion::default(); 2]).err());
        refused("wait", a.cq().wait_one(Some(Duration::ZERO)).err());
        refused("arm", a.cq().arm().err());
        refused("wait for an event", events.wait(Some(Duration::ZERO)).err());
        refused("accept", listener.accept(Some(Duration::ZERO)).err());
        refused("register", rig.domain_a().alloc(64, Access::ALL).err());
        refused("grant", source.region().grant(&a, .., Access::REMOTE_READ).err());
        refused("close", source.region().close().err());
        refused("completion_queue", rig.domain_a().completion_queue(16).err());
        refused("endpoint", rig.domain_a().endpoint().build(a.cq()).err());
        refused("listen", rig.domain_a().listen(rig.addr(rig.domain_a())).err());
        // These give nothing that could be refused; they must have no effect either.
        a.disconnect();
        drop(dropped.take());
        wrong
    })?;
    check_eq!(said, "", "calls in the child that were not InvalidState");

    // The connections are the parent's alone, as before.
    a.expect_none_for(Duration::from_millis(20))?;
    b.expect_no_event_for(Duration::from_millis(20))?;
    source.put_pattern(.., rig.pattern(0))?;
    a.run(Op::write(&source, target.at(0)), Done::ok(5))?;
    a.settle(&b)?;
    target.check_pattern(.., rig.pattern(0))?;
    let Some((kept, buffer)) = &dropped else {
        fail!("the endpoint that only the child has dropped", "none");
    };
    kept.settle(&dropped_peer)?;
    buffer.check_filled(.., 0)
}

pub(super) fn unsupported_inverse(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let (local, target) = (a.patterned(64, rig.pattern(0))?, b.patterned(64, rig.pattern(1))?);
    let at = target.at(0);
    let send = || Op::send(local.slice(..8));
    let write = || Op::write(local.slice(..8), at);
    let read = || Op::read(local.slice(..8), at);
    let add = || Op::fetch_atomic(AtomicOp::Add, 1u64, local.slice(..8), at);

    // What no provider offers.
    let mut outside = vec![
        ("a delivery-complete send", send().delivery_complete()),
        ("a delivery-complete inject", Op::inject(b"x").delivery_complete()),
        ("a delivery-complete read", read().delivery_complete()),
        ("a delivery-complete atomic", add().delivery_complete()),
        ("a read with immediate", read().immediate(1)),
        ("an atomic with immediate", add().immediate(1)),
    ];
    for op in [AtomicOp::And, AtomicOp::Or, AtomicOp::Xor] {
        outside.push(("bits of a f32", Op::atomic(op, 1.0f32, at)));
        outside.push(("bits of a f64", Op::fetch_atomic(op, 1.0f64, local.slice(..8), at)));
    }
    // What this one does not.
    let offered = rig.info().capabilities;
    if !offered.contains(Capabilities::SEND) {
        outside.extend([("a send", send()), ("an inject", Op::inject(b"x"))]);
    }
    if !offered.contains(Capabilities::RMA) {
        outside.extend([("a write", write()), ("a read", read())]);
        outside.push(("a write with immediate", write().immediate(1)));
    }
    if !offered.contains(Capabilities::ATOMIC) {
        for op in AtomicOp::ALL.into_iter().filter(|op| *op != AtomicOp::CompareSwap) {
            outside.push(("an atomic", Op::atomic(op, 1u64, at)));
            outside.push(("a narrow atomic", Op::atomic(op, 1u16, at)));
        }
        outside.push(("a compare-and-swap", Op::compare_swap(0u64, 1, at)));
    }
    if !offered.contains(Capabilities::GRANTS) {
        let refused = target.region().grant(&b, .., Access::REMOTE_READ);
        check_err!(refused, Error::Unsupported(_), "a grant");
    }
    for (what, op) in outside {
        let error = check_err!(a.post(&op.context(1)), Error::Unsupported(_), "{what}");
        let provider = error.failure().map(|failure| failure.provider);
        check_eq!(provider, Some(rig.info().provider), "the provider named for {what}");
    }

    check_eq!(a.state(), EndpointState::Connected, "state after all of it");
    a.expect_none_for(Duration::from_millis(20))?;
    b.expect_none_for(Duration::from_millis(1))?;
    b.expect_no_event_for(Duration::from_millis(1))?;
    local.check_pattern(.., rig.pattern(0))?;
    target.check_pattern(.., rig.pattern(1))
}
