//! The end of endpoints that share receives, and of the queue.

use super::server::SharedServer;
use crate::prelude::*;

pub(super) fn rest_stays(rig: &Rig) -> Outcome {
    const RECEIVES: usize = 8;
    let mut server = SharedServer::new(rig, 4, RECEIVES)?;
    let inbox = server.inbox(RECEIVES, 8)?;
    server.post(&inbox, 8, 0..RECEIVES)?;
    // By the peer, by this side, and by a drop.
    server.clients[0].disconnect();
    server.ends[0].expect_closed_by_peer()?;
    server.ends[1].disconnect();
    check_eq!(server.ends[1].expect_disconnected()?, DisconnectReason::Local, "reason");
    let last = server.ends.swap_remove(2);
    drop(last);
    server.clients[2].expect_closed_by_peer()?;
    server.expect_left(RECEIVES)?;

    // The one that is left, and one that comes now.
    server.clients.swap_remove(2);
    server.add(rig)?;
    for i in 0..RECEIVES {
        let who = 2 + i % 2;
        server.clients[who].inject(&[i as u8; 8], 1)?;
        server.expect(who, Done::recv(i, 8))?;
        inbox.check_filled(i * 8..i * 8 + 8, i as u8)?;
    }
    Ok(())
}

pub(super) fn too_long(rig: &Rig) -> Outcome {
    let server = SharedServer::new(rig, 2, 4)?;
    let inbox = server.inbox(4, 64)?;
    server.post(&inbox, 64, 0..4)?;
    let source = server.clients[0].patterned(65, rig.pattern(0))?;
    server.clients[0].send(&source, 7)?;
    server.expect(0, Done::failed(0, Status::TooLong))?;
    server.clients[0].expect(Done::failed(7, Status::TooLong))?;
    server.ends[0].expect_disconnected()?;
    server.expect_left(3)?;
    for i in 1..4 {
        server.clients[1].inject(&[i; 8], 1)?;
        server.expect(1, Done::recv(i, 8))?;
        inbox.check_filled(usize::from(i) * 64..usize::from(i) * 64 + 8, i)?;
    }
    server.expect_left(0)
}

pub(super) fn in_the_middle(rig: &Rig) -> Outcome {
    const ROUNDS: usize = 16;
    let len = rig.info().limits.message.min(8 << 20) as usize;
    let mut server = SharedServer::new(rig, 1, 2)?;
    let inbox = server.inbox(2, len)?;
    let mut posted = Vec::new();
    for round in 0..ROUNDS {
        server.add(rig)?;
        let (client, end) = (server.clients.len() - 1, server.ends.len() - 1);
        for slot in 0..2 {
            if !posted.contains(&slot) {
                server.post(&inbox, len, [slot])?;
                posted.push(slot);
            }
        }
        let source = server.clients[client].patterned(len, rig.pattern(round))?;
        server.clients[client].send(&source, 1)?;
        thread::sleep(Duration::from_micros(200 * round as u64));
        let (name, cq) = (server.ends[end].id(), server.ends[end].cq().clone());
        match round % 4 {
            0 => server.clients[client].disconnect(),
            1 => server.ends[end].disconnect(),
            2 => drop(server.clients.pop()),
            _ => drop(server.ends.pop()),
        }
        if let Some(end) = server.ends.get(end) {
            end.expect_disconnected()?;
        }
        // Then all that there will ever be of it has come.
        server.ends.truncate(end);
        server.clients.truncate(1);
        let mut seen = Vec::new();
        while let Some(done) = cq.poll_one()? {
            check_eq!(done.endpoint, name, "the endpoint of {done:?}");
            check!(
                matches!(done.status, Status::Ok | Status::Canceled),
                "a message that came, or its end, not {done:?}"
            );
            if done.is_ok() {
                let at = done.context as usize * len;
                inbox.check_pattern(at..at + len, rig.pattern(round))?;
            }
            posted.retain(|slot| *slot as u64 != done.context);
            seen.push(done.context);
        }
        check!(seen.len() <= 1, "one receive at most that ended, not {seen:?}");
        check_eq!(server.receives.len(), posted.len(), "receives that are left");
    }
    // None is lost: what is left is taken.
    let client = &server.clients[0];
    for _ in 0..posted.len() {
        client.inject(b"at last", 1)?;
        let done = server.ends[0].next()?;
        check_eq!((server.end_of(&done)?, done.status), (0, Status::Ok), "{done:?}");
    }
    server.expect_left(0)
}

pub(super) fn while_waiting(rig: &Rig) -> Outcome {
    let server = SharedServer::new(rig, 4, 4)?;
    let inbox = server.inbox(4, 8)?;
    for (who, client) in server.clients.iter().enumerate() {
        client.inject(&[who as u8; 8], 1)?;
        client.expect_none_for(Duration::from_millis(5))?;
    }
    server.clients[0].disconnect();
    server.ends[0].expect_closed_by_peer()?;
    server.ends[2].disconnect();
    server.clients[2].expect_closed_by_peer()?;
    server.clients[0].expect(Done::canceled(1))?;
    server.clients[2].expect(Done::canceled(1))?;
    server.post(&inbox, 8, 0..4)?;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let done = server.ends[1].next()?;
        check!(done.is_ok(), "a message that came, not {done:?}");
        let who = server.end_of(&done)?;
        let at = done.context as usize * 8;
        inbox.check_filled(at..at + 8, who as u8)?;
        seen.push(who);
    }
    seen.sort_unstable();
    check_eq!(seen, [1, 3], "the clients whose messages came");
    server.clients[1].expect_ok(1)?;
    server.clients[3].expect_ok(1)?;
    server.expect_left(2)
}

pub(super) fn last_of_all(rig: &Rig) -> Outcome {
    const RECEIVES: usize = 5;
    let server = SharedServer::new(rig, 2, RECEIVES)?;
    let inbox = server.inbox(RECEIVES, 8)?;
    server.post(&inbox, 8, 0..RECEIVES)?;
    let SharedServer { clients, mut ends, receives, queue, .. } = server;
    let (name, room) = (receives.id(), queue.room());
    drop(receives);
    clients[1].inject(&[7; 8], 1)?;
    let done = ends[1].expect(Done::recv(0, 8))?;
    check_eq!(done.endpoint, ends[1].id(), "the endpoint of {done:?}");
    ends.truncate(1);
    ends[0].expect_none_for(Duration::from_millis(20))?;
    clients[0].inject(&[8; 8], 1)?;
    ends[0].expect(Done::recv(1, 8))?;
    inbox.check_filled(..8, 7)?;
    inbox.check_filled(8..16, 8)?;

    let cq = ends[0].cq().clone();
    drop(ends);
    for slot in 2..RECEIVES {
        let done = cq.wait_one(Some(rig.scaled(Duration::from_secs(10))))?;
        Done::canceled(slot).check(&done)?;
        check_eq!(done.endpoint, name, "the name in {done:?}");
    }
    check_eq!(cq.poll_one()?, None, "one completion more");
    check!(queue.room() > room + RECEIVES, "room for what is gone, not {}", queue.room());
    Ok(())
}

pub(super) fn stalled(rig: &Rig) -> Outcome {
    let stall = rig.scaled(Duration::from_secs(1));
    let mut server = SharedServer::new(rig, 1, 4)?;
    server.add_with(rig, |attr| attr.stall = Some(stall))?;
    let inbox = server.inbox(2, 8)?;
    let (patient, hurried) = (&server.clients[0], &server.clients[1]);
    patient.inject(&[7; 8], 0)?;
    hurried.inject(&[8; 8], 1)?;
    check_eq!(hurried.expect_disconnected()?, DisconnectReason::Stalled, "why it ended");
    hurried.expect_canceled([1])?;
    server.ends[1].expect_closed_by_peer()?;
    server.post(&inbox, 8, 0..2)?;
    server.expect(0, Done::recv(0, 8))?;
    patient.expect_ok(0)?;
    inbox.check_filled(..8, 7)?;
    server.expect_left(1)
}
