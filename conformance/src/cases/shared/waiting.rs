//! Messages that find no receive.

use super::server::{SENDS, SharedServer};
use crate::prelude::*;

/// Bytes of long messages, on a device that has them.
fn long(rig: &Rig) -> usize {
    rig.info().limits.message.min(1 << 20) as usize
}

pub(super) fn waits_at_sender(rig: &Rig) -> Outcome {
    const BEHIND: usize = 4;
    for len in [8, long(rig)] {
        let server = SharedServer::new(rig, 3, 4)?;
        let inbox = server.inbox(4, len)?;
        let (target, answer) = (server.inbox(2, len)?, server.clients[0].buffer(len)?);
        let sources: Vec<_> = (server.clients.iter().enumerate())
            .map(|(who, client)| client.patterned(len, rig.pattern(who)))
            .collect::<Result<_, _>>()?;
        // Two wait, and the first has writes behind, more than any socket takes.
        server.clients[0].send(&sources[0], 0)?;
        for i in 1..=BEHIND {
            server.clients[0].write(&sources[0], target.at(0), i as u64)?;
        }
        server.clients[1].send(&sources[1], 0)?;

        // The third does what it wants, and the server as well, also towards those that wait.
        server.clients[2].run(Op::write(&sources[2], target.at(len)), Done::ok(0))?;
        server.clients[2].run(Op::read(&sources[2], target.at(len)), Done::ok(0))?;
        server.clients[0].recv(&answer, 9)?;
        server.ends[0].send(target.slice(len..), 5)?;
        server.expect(0, Done::send(5, len))?;
        server.clients[0].expect(Done::recv(9, len))?;
        answer.check_pattern(.., rig.pattern(2))?;
        for client in &server.clients[..2] {
            client.expect_none_for(Duration::from_millis(20))?;
        }
        server.expect_left(0)?;
        target.check_filled(..len, 0)?;

        server.post(&inbox, len, 0..2)?;
        let mut seen = Vec::new();
        for slot in 0..2 {
            let done = server.ends[0].next()?;
            let who = server.end_of(&done)?;
            check_eq!((done.status, done.len), (Status::Ok, len), "receive {slot} {done:?}");
            inbox.check_pattern(slot_of(done.context, len), rig.pattern(who))?;
            seen.push(who);
        }
        seen.sort_unstable();
        check_eq!(seen, [0, 1], "the clients whose messages came");
        server.clients[0].expect_each(0..=BEHIND)?;
        server.clients[1].expect_ok(0)?;
        server.settle(0)?;
        target.check_pattern(..len, rig.pattern(0))?;
    }
    Ok(())
}

fn slot_of(context: u64, len: usize) -> std::ops::Range<usize> {
    let at = context as usize * len;
    at..at + len
}

/// Every client sends `each` messages, of a few sizes; there are `at_once` receives. All come, whole, in order.
fn take_all(rig: &Rig, clients: usize, each: usize, at_once: usize) -> Outcome {
    let each = rig.bulk(each);
    let sizes = [8, 100, 5000, 70_000];
    let room = sizes[3];
    let server = SharedServer::new(rig, clients, at_once)?;
    let inbox = server.inbox(at_once, room)?;
    let mut expected = vec![0; clients];
    let sources: Vec<_> = (server.clients.iter().enumerate())
        .map(|(who, client)| client.patterned(room + each * 8, rig.pattern(who)))
        .collect::<Result<_, _>>()?;
    let size = |who: usize, i: usize| sizes[(who + i) % sizes.len()];
    thread::scope(|scope| -> Outcome {
        let senders: Vec<_> = (server.clients.iter().zip(&sources).enumerate())
            .map(|(who, (client, source))| {
                scope.spawn(move || -> Outcome {
                    for i in 0..each {
                        let slice = source.slice(i * 8..i * 8 + size(who, i));
                        client.post_when_room(&Op::send(slice).immediate(i as u32).unsignaled())?;
                    }
                    Ok(())
                })
            })
            .collect();
        server.post(&inbox, room, 0..at_once)?;
        for _ in 0..clients * each {
            let done = server.ends[0].next()?;
            let who = server.end_of(&done)?;
            let i = expected[who];
            expected[who] += 1;
            Done::ok(done.context)
                .kind(OpKind::Recv)
                .len(size(who, i))
                .immediate(i as u32)
                .check(&done)?;
            let at = done.context as usize * room;
            let (seen, sent) =
                (inbox.bytes(at..at + done.len)?, sources[who].bytes(i * 8..i * 8 + done.len)?);
            check_bytes!(seen, sent, "message {i} of client {who}");
            server.post(&inbox, room, [done.context as usize])?;
        }
        senders.into_iter().try_for_each(crate::cases::crowd::joined)
    })?;
    (0..clients).try_for_each(|client| server.settle(client))?;
    server.expect_left(at_once)
}

pub(super) fn posted_one_by_one(rig: &Rig) -> Outcome {
    take_all(rig, 4, rig.count(SENDS / 2, 4 * SENDS), 1)
}

pub(super) fn scarce(rig: &Rig) -> Outcome {
    take_all(rig, 8, rig.count(SENDS, 8 * SENDS), 2)
}

pub(super) fn behind_is_executed_once(rig: &Rig) -> Outcome {
    const ROUNDS: usize = 20;
    let server = SharedServer::new(rig, 1, 4)?;
    let (client, inbox) = (&server.clients[0], server.inbox(4, 64)?);
    let (target, local) = (server.inbox(1, 64)?, client.buffer(64)?);
    for round in 0..ROUNDS as u64 {
        // Each of these was sent, perhaps, before the refusal came, and is sent again.
        client.inject(&round.to_ne_bytes(), 1)?;
        client.post(&Op::atomic(AtomicOp::Add, 1u64, target.at(0)).unsignaled())?;
        client.fetch_add(1u64, local.slice(..8), target.at(0), 2)?;
        client.post(&Op::inject_write(&round.to_ne_bytes(), target.at(8)).unsignaled())?;
        client.post(&Op::inject(&(!round).to_ne_bytes()).unsignaled())?;
        // The fence waits for both additions, and for no more than those.
        client.post(&Op::read(local.slice(8..16), target.at(8)).fence().context(3))?;
        if round % 2 == 0 {
            client.expect_none_for(Duration::from_millis(5))?;
        }
        server.post(&inbox, 64, 0..2)?;
        server.expect(0, Done::recv(0, 8))?;
        server.expect(0, Done::recv(1, 8))?;
        client.expect_each(1..=3)?;
        check_eq!(inbox.get::<u64>(0)?, round, "the first message");
        check_eq!(inbox.get::<u64>(64)?, !round, "the second message");
        check_eq!(local.get::<u64>(0)?, 2 * round + 1, "the sum before the second addition");
        check_eq!(local.get::<u64>(8)?, round, "what was written, and read behind it");
        check_eq!(target.get::<u64>(0)?, 2 * round + 2, "the sum");
    }
    server.expect_left(0)
}
