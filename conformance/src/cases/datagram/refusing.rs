//! What is refused, and what is declared.

use std::fmt::Write;

use fabric::{DatagramAttr, Secret, Security};

use super::mail::{Mail, attr, expect_unprotected_only, is_protected};
use crate::check::check_says;
use crate::prelude::*;
use crate::sys::in_child;
use crate::target::Level;

pub(super) fn declared(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    let (domain, info) = (rig.domain_a(), rig.domain_a().info());
    let declares = info.capabilities.contains(Capabilities::DATAGRAMS);
    check_eq!(info.limits.datagram > 0, declares, "a limit of datagrams above zero");
    let queue = domain.completion_queue(512)?;
    if declares {
        let end = domain.datagram_endpoint(&queue)?;
        check_eq!(end.attr(), &DatagramAttr::default(), "its settings");
        check_eq!(queue.room(), 512 - 256, "room that is left");
        check!(end.max_len() >= 256, "at least 256 bytes, not {}", end.max_len());
        return Ok(());
    }
    let error = check_err!(
        domain.datagram_endpoint(&queue),
        Error::Unsupported(_),
        "without the capability"
    );
    check_says(&error.to_string(), &["datagrams", info.provider], "a device without datagrams")?;
    check_eq!(queue.room(), 512, "room that is left");
    Ok(())
}

pub(super) fn too_long(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    let (a, b) = Mail::pair(rig)?;
    let (to, max) = (a.to(&b)?, a.end.max_len());
    let (source, target) = (a.buffer(rig, 2 * max)?, b.buffer(rig, 2 * max)?);
    b.end.recv(&target, 1)?;
    for len in [max + 1, 2 * max] {
        let refused = a.end.send_to(&to, source.slice(..len), 1);
        let error = check_err!(refused, Error::InvalidArgument(_), "{len} B in one datagram");
        let numbers = [len.to_string(), max.to_string()];
        check_says(&error.to_string(), &[&numbers[0], &numbers[1]], "a datagram too long")?;
    }
    let halves = [source.slice(..max), source.slice(..1)];
    check_err!(a.end.send_to(&to, &halves, 1), Error::InvalidArgument(_), "too long in pieces");
    a.expect_quiet(rig)?;
    b.expect_quiet(rig)?;
    let done = a.send_until_it_ends(&to, &Op::send(source.slice(..max)), &b)?;
    check_eq!((done.context, done.status, done.len), (1, Status::Ok, max), "{done:?}");
    Ok(())
}

pub(super) fn arguments(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    let (a, b) = Mail::pair(rig)?;
    let (to, domain) = (a.to(&b)?, rig.domain_a());
    let (queue, foreign) = (domain.completion_queue(64)?, rig.domain_b().completion_queue(512)?);
    let limits = &domain.info().limits;
    for what in ["send_depth", "recv_depth", "inject", "source"] {
        let mut attr = attr(rig, domain);
        match what {
            "send_depth" => attr.send_depth = 0,
            "recv_depth" => attr.recv_depth = limits.recv_depth + 1,
            "inject" => attr.inject = limits.inject + 1,
            _ => attr.source = Some([192, 0, 2, 1].into()),
        }
        let made = domain.datagram_endpoint_with(&attr, &queue, &queue);
        let error = check_err!(made, Error::InvalidArgument(_), "{what}");
        check_says(&error.to_string(), &[what], what)?;
    }
    check_err!(
        domain.datagram_endpoint(&queue),
        Error::InvalidArgument(_),
        "256 into a queue of 64"
    );
    check_err!(
        domain.datagram_endpoint(&foreign),
        Error::InvalidArgument(_),
        "another domain's queue"
    );
    check_eq!((queue.room(), foreign.room()), (64, 512), "room that is left");

    let (source, theirs) = (a.buffer(rig, 64)?, b.buffer(rig, 64)?);
    let read_only = rig.buffer(domain, 64, Access::empty())?;
    let five = [source.slice(..1); 5];
    let remote = theirs.region().remote();
    let inject = vec![0; a.end.attr().inject + 1];
    check_err!(a.end.send_to(&to, &five, 1), Error::InvalidArgument(_), "five segments to send");
    check_err!(a.end.recv(&five, 1), Error::InvalidArgument(_), "five segments to receive");
    check_err!(a.end.inject_to(&to, &inject, 1), Error::InvalidArgument(_), "an inject too long");
    check_err!(
        a.end.send_to(&to, &theirs, 1),
        Error::InvalidArgument(_),
        "a region of another domain"
    );
    check_err!(a.end.recv(&theirs, 1), Error::InvalidArgument(_), "the same for a receive");
    check_err!(
        a.end.recv(&read_only, 1),
        Error::InvalidArgument(_),
        "a receive without LOCAL_WRITE"
    );
    let write = Op::write(&source, remote.at(0));
    check_err!(a.end.post_to(&to, &write), Error::InvalidArgument(_), "a write");
    let complete = Op::send(&source).delivery_complete();
    check_err!(a.end.post_to(&to, &complete), Error::Unsupported(_), "delivery complete");
    a.expect_quiet(rig)?;
    // Read-only memory can be sent, and a fence has nothing to wait for.
    a.post(&to, &Op::send(read_only.slice(..8)).fence())?;
    a.expect_alive(rig, &b)
}

pub(super) fn depth(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    const DEPTH: usize = 4;
    let shallow = |attr: &mut DatagramAttr| (attr.send_depth, attr.recv_depth) = (DEPTH, DEPTH);
    let a = Mail::open_with(rig, rig.domain_a(), shallow)?;
    let b = Mail::open_with(rig, rig.domain_b(), shallow)?;
    let to = a.to(&b)?;
    for round in 0..3 {
        for n in 0..DEPTH {
            a.end.inject_to(&to, &[round; 8], n as u64)?;
        }
        check_err!(a.end.inject_to(&to, b"more", 9), Error::Again, "a send beyond the depth");
        check_eq!(a.next()?.context, 0, "the oldest send");
        a.end.inject_to(&to, b"one more", DEPTH as u64)?;
        check_err!(a.end.inject_to(&to, b"more", 9), Error::Again, "a send beyond it again");
        for n in 1..=DEPTH {
            check_eq!(a.next()?.context, n as u64, "the next send");
        }
    }
    let target = b.buffer(rig, 8)?;
    for n in 0..DEPTH {
        b.end.recv(&target, n as u64)?;
    }
    check_err!(b.end.recv(&target, 9), Error::Again, "a receive beyond the depth");
    let batch = [Recv::new(&target, 9); 2];
    let Err(stopped) = b.end.post_recvs(&batch) else {
        fail!("a batch beyond it to stop", "it was posted");
    };
    check_eq!(stopped.posted, 0, "receives of that batch");
    let _ = check_matches!(stopped.error, Error::Again, "why it stopped");
    let done = a.send_until_it_ends(&to, &Op::inject(b"place"), &b)?;
    check_eq!((done.context, done.status), (0, Status::Ok), "{done:?}");
    b.end.recv(&target, 4)?;
    check_err!(b.end.recv(&target, 9), Error::Again, "a receive beyond it again");
    let again = (a.end.counters().again, b.end.counters().again);
    check_eq!(again, (6, 3), "refusals that were counted");
    Ok(())
}

pub(super) fn secured(rig: &Rig) -> Outcome {
    let secret = Secret::new(&[9; 32])?;
    let domain = rig.secured_domain(Level::secret(Security::Authenticated, &secret))?;
    expect_unprotected_only(&domain)
}

pub(super) fn fork_child(rig: &Rig) -> Outcome {
    if is_protected(rig)? {
        return Ok(());
    }
    let (a, b) = Mail::pair(rig)?;
    let (to, target) = (a.to(&b)?, b.buffer(rig, 64)?);
    b.end.recv(&target, 8)?;
    let dropped = (Mail::open(rig, rig.domain_a())?, a.to(&b)?);
    let mut dropped = Some(dropped);
    let said = in_child(rig.scaled(Duration::from_secs(10)), || {
        let mut wrong = String::new();
        let mut refused = |call: &str, error: Option<Error>| {
            if !matches!(error, Some(Error::InvalidState(_))) {
                // Writing to a string does not fail.
                let _ = write!(wrong, "{call}: {error:?}; ");
            }
        };
        refused("inject_to", a.end.inject_to(&to, b"x", 1).err());
        refused("recv", a.end.recv(Slices::none(), 1).err());
        refused("resolve", a.end.resolve(&b.end.address()).err());
        refused("drops", a.end.drops().err());
        refused("datagram_endpoint", rig.domain_a().datagram_endpoint(&a.queue).err());
        // This gives nothing that could be refused; it must have no effect either.
        drop(dropped.take());
        wrong
    })?;
    check_eq!(said, "", "calls in the child that were not InvalidState");
    let done = a.send_until_it_ends(&to, &Op::inject(b"parent"), &b)?;
    check_eq!((done.context, done.status, done.len), (8, Status::Ok, 6), "{done:?}");
    let Some((kept, _)) = &dropped else {
        fail!("the endpoint that only the child has dropped", "none");
    };
    kept.expect_alive(rig, &b)
}
