//! Which receive a message takes, and how many there can be.

use fabric::SharedReceiveAttr;

use super::server::{SENDS, SharedServer};
use crate::prelude::*;

pub(super) fn oldest_first(rig: &Rig) -> Outcome {
    const CLIENTS: usize = 3;
    const ROUNDS: usize = 30;
    let server = SharedServer::new(rig, CLIENTS, ROUNDS)?;
    let inbox = server.inbox(ROUNDS, 8)?;
    server.post(&inbox, 8, 0..ROUNDS)?;
    let mut rng = rig.rng();
    for round in 0..ROUNDS {
        let who = rng.below(CLIENTS);
        let word = (round << 8 | who) as u64;
        server.clients[who].inject(&word.to_ne_bytes(), round as u64)?;
        server.clients[who].expect_ok(round)?;
        server.expect(who, Done::recv(round, 8))?;
        check_eq!(inbox.get::<u64>(round * 8)?, word, "message {round}");
    }
    check_eq!(server.receives.posted(), ROUNDS as u64, "receives that were posted");
    check!(server.receives.is_empty(), "no receive that is left of {:?}", server.receives);
    for (end, client) in server.ends.iter().zip(&server.clients) {
        let (seen, sent) = (end.counters(), client.counters());
        check_eq!(seen.received, sent.posted_sends, "messages that {end:?} counts");
        check_eq!(seen.received_bytes, sent.posted_bytes, "their bytes");
    }
    Ok(())
}

pub(super) fn all_sizes(rig: &Rig) -> Outcome {
    let max = rig.info().limits.message.min(1 << 22) as usize;
    let server = SharedServer::new(rig, 2, 1)?;
    let inbox = server.inbox(1, max)?;
    for (round, len) in [0, 1, 63, 4096, 65_537, max / 2 + 1, max].into_iter().enumerate() {
        for (who, client) in server.clients.iter().enumerate() {
            let source = client.patterned(len, rig.pattern(round * 2 + who))?;
            inbox.fill(0)?;
            let at = [0, len / 3, len / 2, max];
            let parts = at.windows(2).map(|part| inbox.slice(part[0]..part[1]));
            let parts: Vec<_> = parts.collect();
            server.receives.recv(&parts[..], 1)?;
            client.post(&Op::send(&source).immediate(len as u32).context(2))?;
            server.expect(who, Done::ok(1).kind(OpKind::Recv).len(len).immediate(len as u32))?;
            client.expect(Done::send(2, len))?;
            inbox.check_pattern(..len, rig.pattern(round * 2 + who))?;
            inbox.check_filled(len.., 0)?;
        }
    }
    let inject = rig.info().limits.inject.min(128);
    let bytes = rig.pattern(9).bytes(inject);
    server.receives.recv(inbox.slice(..inject), 3)?;
    server.clients[1].inject(&bytes, 4)?;
    server.expect(1, Done::recv(3, inject))?;
    check_bytes!(inbox.bytes(..inject)?, bytes, "an injected message");
    Ok(())
}

pub(super) fn write_imm(rig: &Rig) -> Outcome {
    const LEN: usize = 3000;
    let server = SharedServer::new(rig, 2, 2)?;
    let (unused, target) = (server.inbox(1, 64)?, server.inbox(1, LEN)?);
    server.post(&unused, 64, [0])?;
    for (who, client) in server.clients.iter().enumerate() {
        let source = client.patterned(LEN, rig.pattern(who))?;
        client.post(&Op::write(&source, target.at(0)).context(1))?;
        client.expect_ok(1)?;
        server.expect_left(1)?;
        client.post(&Op::write(&source, target.at(0)).immediate(7).context(2))?;
        client.expect_ok(2)?;
        server.expect(who, Done::recv_write(0, LEN, 7))?;
        target.check_pattern(.., rig.pattern(who))?;
        server.post(&unused, 64, [0])?;
    }
    unused.check_filled(.., 0)
}

pub(super) fn idle_take_none(rig: &Rig) -> Outcome {
    const RECEIVES: usize = SENDS;
    let server = SharedServer::new(rig, 6, RECEIVES)?;
    let inbox = server.inbox(RECEIVES, 8)?;
    // Each is used once, so that it knows that there are receives.
    server.post(&inbox, 8, 0..server.clients.len())?;
    for (who, client) in server.clients.iter().enumerate() {
        client.inject(&[0; 8], 0)?;
        client.expect_ok(0)?;
        server.expect(who, Done::recv(who, 8))?;
    }
    for (who, client) in server.clients.iter().enumerate() {
        server.post(&inbox, 8, 0..RECEIVES)?;
        for i in 0..RECEIVES as u64 {
            client.inject(&i.to_ne_bytes(), i)?;
        }
        for i in 0..RECEIVES {
            server.expect(who, Done::recv(i, 8))?;
            check_eq!(inbox.get::<u64>(i * 8)?, i as u64, "message {i} of client {who}");
        }
        client.expect_each(0..RECEIVES)?;
    }
    Ok(())
}

pub(super) fn depth(rig: &Rig) -> Outcome {
    const DEPTH: usize = 7;
    let queue = rig.domain_b().completion_queue(DEPTH + SENDS)?;
    let receives = rig.domain_b().shared_receive_queue(DEPTH, &queue)?;
    check_eq!(queue.room(), SENDS, "room that is left of the completion queue");
    check_eq!(receives.attr().depth, DEPTH, "depth");
    let inbox = rig.buffer(rig.domain_b(), 8 * (DEPTH + 1), Access::LOCAL_WRITE)?;
    let post = |slot: usize| receives.recv(inbox.slice(slot * 8..slot * 8 + 8), slot as u64);
    for slot in 0..DEPTH {
        post(slot)?;
    }
    check_err!(post(DEPTH), Error::Again, "a post beyond the depth");
    check_eq!(receives.len(), DEPTH, "receives in the queue");

    let client = rig.end(rig.domain_a())?;
    let end = rig.end_sharing(rig.domain_b(), &queue, &receives, |attr| attr.send_depth = SENDS)?;
    rig.connect(&client, &end)?;
    check_err!(post(DEPTH), Error::Again, "a post beyond the depth");
    for round in 0..3 * DEPTH {
        client.inject(&[1; 8], 1)?;
        client.expect_ok(1)?;
        // Whether the message is there already or not, its place is taken until the application takes the completion.
        check_err!(post(DEPTH), Error::Again, "a post beyond the depth");
        let done = end.expect(Done::ok(round % DEPTH))?;
        post(done.context as usize)?;
        check_err!(post(DEPTH), Error::Again, "a post beyond the depth");
    }
    // Of a batch as many as there is room for.
    client.inject(&[1; 8], 2)?;
    client.expect_ok(2)?;
    end.expect(Done::ok(0))?;
    let two = [Recv::new(inbox.slice(..8), 0), Recv::new(inbox.slice(8..16), 1)];
    let Err(stopped) = receives.post_recvs(&two) else { fail!("a batch that stops", "Ok") };
    check_eq!(stopped.posted, 1, "receives of the batch that were posted");
    check_matches!(stopped.error, Error::Again, "a batch beyond the depth");
    inbox.check_filled(8 * DEPTH.., 0)
}

pub(super) fn arguments(rig: &Rig) -> Outcome {
    let server = SharedServer::new(rig, 1, 2)?;
    let (domain, receives) = (rig.domain_b(), &server.receives);
    let limits = &rig.info().limits;
    let room = domain.completion_queue(limits.cq_capacity)?;
    for depth in [0, limits.shared_depth + 1] {
        check_err!(
            domain.shared_receive_queue(depth, &room),
            Error::InvalidArgument(_),
            "a depth beyond the limits"
        );
    }
    let mut attr = SharedReceiveAttr::new(1);
    attr.segments = limits.recv_segments + 1;
    check_err!(
        domain.shared_receive_queue_with(&attr, &room),
        Error::InvalidArgument(_),
        "more segments than the limit"
    );
    let small = domain.completion_queue(4)?;
    check_err!(
        domain.shared_receive_queue(5, &small),
        Error::InvalidArgument(_),
        "a depth beyond the room of its completion queue"
    );
    check_eq!(small.room(), 4, "room that is left of the completion queue");
    let other = rig.domain_a().completion_queue(64)?;
    check_err!(
        domain.shared_receive_queue(1, &other),
        Error::InvalidArgument(_),
        "a completion queue of another domain"
    );
    let builder = || domain.endpoint().send_depth(1).shared_receives(receives);
    check_err!(
        builder().build_with(&room, &room),
        Error::InvalidArgument(_),
        "another completion queue for its receives"
    );
    check_err!(
        builder().build(&other),
        Error::InvalidArgument(_),
        "an endpoint's completion queue of another domain"
    );

    // An endpoint without receives of its own, and memory that receives cannot have.
    let inbox = server.inbox(1, 64)?;
    check_err!(
        server.ends[0].recv(inbox.slice(..8), 1),
        Error::InvalidState(_),
        "a receive of an endpoint that shares"
    );
    let batch = [Recv::new(inbox.slice(..8), 1)];
    let refused = server.ends[0].post_recvs(&batch).map_err(|stopped| stopped.error);
    check_err!(refused, Error::InvalidState(_), "a batch of receives of an endpoint that shares");
    let many = [inbox.slice(..8); 5];
    check_err!(receives.recv(&many[..], 1), Error::InvalidArgument(_), "too many segments");
    let read_only = rig.buffer(domain, 8, Access::REMOTE_READ)?;
    check_err!(
        receives.recv(read_only.slice(..), 1),
        Error::InvalidArgument(_),
        "memory that is not to be written"
    );
    let foreign = rig.buffer(rig.domain_a(), 8, Access::LOCAL_WRITE)?;
    check_err!(
        receives.recv(foreign.slice(..), 1),
        Error::InvalidArgument(_),
        "memory of another domain"
    );
    check!(receives.is_empty(), "a queue in which nothing is, not {receives:?}");

    server.post(&inbox, 64, [0])?;
    server.clients[0].inject(b"as ever", 1)?;
    server.expect(0, Done::recv(0, 7))?;
    Ok(())
}
