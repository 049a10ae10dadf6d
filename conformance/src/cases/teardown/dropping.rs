//! Endpoints that are dropped with work in flight.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::flushed::{CLOSED, check_flushed, take};
use crate::cases::crowd::{Crowd, at_once, depths, places};
use crate::prelude::*;

pub(super) fn drop_keeps_other(rig: &Rig) -> Outcome {
    const ENDS: usize = 4;
    const DEPTH: usize = 16;
    const MATCHED: usize = 8;
    let Crowd { ends, peers } = Crowd::new(rig, ENDS, depths(DEPTH, DEPTH))?;
    let queue = ends[0].cq().clone();
    let place = places(&ends);
    // Everybody has receives and sends that are done, untaken; the sends of the one that goes are not all matched.
    for i in 0..MATCHED as u64 {
        for (end, peer) in ends.iter().zip(&peers) {
            end.recv(Slices::none(), i)?;
            peer.recv(Slices::none(), i)?;
            end.inject(b"", i)?;
            peer.inject(b"", i)?;
        }
    }
    for done in peers[0].take(ENDS * 2 * MATCHED)? {
        check!(done.is_ok(), "the peers' operations Ok, not {done:?}");
    }
    let (goes, stays) = (1, 2);
    for i in MATCHED..DEPTH {
        ends[goes].inject(b"", i as u64)?;
        ends[goes].recv(Slices::none(), i as u64)?;
    }
    let mut ends: Vec<_> = ends.into_iter().map(Some).collect();
    ends[goes] = None;

    // While it is going, the others go on.
    if let Some(end) = &ends[stays] {
        end.recv(Slices::none(), MATCHED as u64)?;
        peers[stays].run(Op::inject(b""), Done::ok(99))?;
    }
    let total = ENDS * 2 * MATCHED + 2 * (DEPTH - MATCHED) + 1;
    let done = take(rig, &queue, total)?;
    check_eq!(queue.poll_one()?, None, "a completion too many");
    for (endpoint, &who) in &place {
        let own = |receive: bool| {
            let mine = move |one: &&Completion| {
                one.endpoint == *endpoint && one.kind.is_receive() == receive
            };
            done.iter().filter(mine)
        };
        let extra = usize::from(who == stays);
        let count = if who == goes { DEPTH } else { MATCHED };
        let sends = check_flushed("sends", count, CLOSED, own(false))?;
        let receives = check_flushed("receives", count + extra, CLOSED, own(true))?;
        check_eq!(receives, MATCHED + extra, "receives of end {who} that went well");
        check!(sends <= MATCHED, "sends of end {who} that went well, not {sends}");
        check!(who == goes || sends == MATCHED, "all sends of end {who}, not {sends}");
    }

    // Its place is another's, who gets nothing of it.
    check_eq!(queue.room(), 2 * DEPTH, "room where the endpoint was");
    let (end, peer) =
        (rig.end_on(rig.domain_a(), &queue, depths(DEPTH, DEPTH))?, rig.end(rig.domain_b())?);
    rig.connect(&end, &peer)?;
    end.settle(&peer)
}

pub(super) fn endpoint_drop_frees_regions(rig: &Rig) -> Outcome {
    const SENDS: usize = 6;
    const RECEIVES: usize = 6;
    let (a, b) = rig.pair()?;
    let queue = a.cq().clone();
    let room = queue.capacity();
    let buffers = [a.patterned(64, rig.pattern(0))?, a.buffer(64)?, a.buffer(64)?];
    let [source, into, sink] = &buffers;
    let (target, inbox) = (b.buffer(64)?, b.buffer(64)?);
    for i in 0..RECEIVES as u64 {
        a.recv(sink, i)?;
    }
    // The first finds no receive.
    a.send(source, 0)?;
    a.read(into, target.at(0), 1)?;
    for i in 2..SENDS as u64 {
        a.write(source, target.at(0), i)?;
    }
    for buffer in &buffers {
        check_err!(buffer.region().close(), Error::Busy, "closing what is in use");
    }
    drop(a);
    // At once, without a poll.
    for buffer in &buffers {
        buffer.region().close()?;
        buffer.fill(0xee)?;
    }
    // The room is still theirs, until they are taken.
    let left = SENDS + RECEIVES;
    check_eq!(queue.room(), room - left, "room while {left} completions wait");
    b.expect_disconnected()?;
    check_err!(b.recv(&inbox, 1), Error::NotConnected, "a receive when the peer is gone");
    let done = take(rig, &queue, left)?;
    for (receive, count) in [(false, SENDS), (true, RECEIVES)] {
        let side = done.iter().filter(|one| one.kind.is_receive() == receive);
        let good = check_flushed("operations of a dropped endpoint", count, CLOSED, side)?;
        check_eq!(good, 0, "operations that went well without a receive");
    }
    check_eq!(queue.poll_one()?, None, "a completion too many");
    check_eq!(queue.room(), room, "room when all are taken");
    for buffer in &buffers {
        buffer.check_filled(.., 0xee)?;
    }
    target.check_filled(.., 0)?;
    inbox.check_filled(.., 0)
}

pub(super) fn close_in_poll_loop(rig: &Rig) -> Outcome {
    const ENDS: usize = 8;
    const EACH: usize = 3;
    let rounds = rig.count(4, 100);
    for _ in 0..rounds {
        let Crowd { ends, peers } = Crowd::new(rig, ENDS, |_| ())?;
        let queue = ends[0].cq().clone();
        let place = places(&ends);
        for (end, peer) in ends.iter().zip(&peers) {
            end.recv(Slices::none(), 0)?;
            end.recv(Slices::none(), 1)?;
            // There is no receive for it.
            end.inject(b"", 0)?;
            peer.inject(b"", 0)?;
        }
        let ends: Vec<_> = ends.into_iter().map(|end| Mutex::new(Some(end))).collect();
        let taken = AtomicUsize::new(0);
        let deadline = rig.deadline(Duration::from_secs(20));
        let lists = at_once(&[(); 2], |_, ()| {
            let mut list = Vec::new();
            while taken.load(Ordering::Relaxed) < ENDS * EACH {
                let seen = taken.load(Ordering::Relaxed);
                check!(Instant::now() < deadline, "{} completions, not {seen}", ENDS * EACH);
                let Some(done) = queue.poll_one()? else {
                    thread::yield_now();
                    continue;
                };
                taken.fetch_add(1, Ordering::Relaxed);
                list.push(done);
                // The first of its completions is its end.
                let end = place.get(&done.endpoint).and_then(|who| ends.get(*who));
                let Some(end) = end else { fail!("one of the endpoints", "{done:?}") };
                let end = end.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
                drop(end);
            }
            Ok(list)
        })?;
        check_eq!(queue.poll_one()?, None, "a completion too many");
        let all = lists.concat();
        for (endpoint, who) in &place {
            let mut seen: Vec<_> = all
                .iter()
                .filter(|one| one.endpoint == *endpoint)
                .map(|one| (one.kind.is_receive(), one.context, one.status))
                .collect();
            seen.sort_unstable_by_key(|one| (one.0, one.1));
            let expected =
                [(false, 0, Status::Canceled), (true, 0, Status::Ok), (true, 1, Status::Canceled)];
            check_eq!(seen, expected, "what came of endpoint {who}");
        }
        for peer in &peers {
            peer.expect_disconnected()?;
        }
    }
    Ok(())
}

pub(super) fn queue_handles_dropped(rig: &Rig) -> Outcome {
    const DEPTH: usize = 4;
    let domain = rig.extra_domain()?;
    let region = domain.alloc(64, Access::ALL)?;
    let queue = domain.completion_queue(2 * DEPTH)?;
    let peer = rig.builder(&domain).send_depth(DEPTH).recv_depth(DEPTH).build(&queue)?;
    let events = domain.events();
    let (listener, a) = (rig.listen(rig.domain_a())?, rig.end(rig.domain_a())?);
    peer.connect(listener.local_addr(), &[])?;
    let mut request = listener.accept(Some(rig.connect_timeout()))?;
    let sink = a.buffer(64)?;
    for i in 0..DEPTH as u64 {
        a.recv(&sink, i)?;
    }
    request.accept(&a, &[])?;
    a.expect_connected()?;
    // No event is lost with a handle that could have taken it.
    drop(events);
    let event = domain.events().wait(Some(rig.connect_timeout()))?;
    check_matches!(&event, Event::Connected { endpoint, .. } if *endpoint == peer.id(), "the event");

    // Completions cannot be taken any more, so each operation keeps its place.
    peer.recv(&region, 1)?;
    drop(queue);
    for i in 0..DEPTH as u64 {
        peer.send(&region, i)?;
        a.expect_ok(i)?;
    }
    check_err!(peer.send(&region, 9), Error::Again, "a send beyond the depth");
    a.run(Op::inject(b"received"), Done::ok(10))?;
    rig.eventually(|| {
        check_bytes!(region.to_vec(..8)?, b"received", "what the peer has received");
        Ok(())
    })?;
    check_err!(
        region.close(),
        Error::Busy,
        "closing a region with completions that were not taken"
    );
    drop(peer);
    region.close()?;
    a.expect_closed_by_peer()
}
