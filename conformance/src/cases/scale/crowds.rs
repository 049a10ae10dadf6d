//! Many connections that stand.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::cases::crowd::{Crowd, depths, joined, places, post_receives, slot};
use crate::prelude::*;
use crate::sys;

pub(super) fn endpoints_1000(rig: &Rig) -> Outcome {
    const ENDS: usize = 1000;
    // Two sockets a connection, and some for everything else.
    sys::allow_descriptors(2 * ENDS + 200)?;
    let crowd = Crowd::new(rig, ENDS, depths(4, 4))?;
    let Crowd { ends, peers } = &crowd;
    let (ping, pong) = (peers[0].buffer(ENDS * 8)?, ends[0].buffer(ENDS * 8)?);
    let slot = |i: usize| i * 8..i * 8 + 8;
    let number = |i: usize| (i as u64).to_ne_bytes();
    for (i, (end, peer)) in crowd.pairs().enumerate() {
        peer.recv(ping.slice(slot(i)), i as u64)?;
        end.recv(pong.slice(slot(i)), i as u64)?;
    }
    for (i, end) in ends.iter().enumerate() {
        end.inject(&number(i), i as u64)?;
    }
    let by_name = places(peers);
    for done in peers[0].take(ENDS)? {
        let who = by_name.get(&done.endpoint).copied();
        check_eq!(who, Some(done.context as usize), "the endpoint of {done:?}");
        check_eq!((done.kind, done.status, done.len), (OpKind::Recv, Status::Ok, 8), "{done:?}");
        let who = done.context as usize;
        check_bytes!(ping.bytes(slot(who))?, number(who), "the message to {who}");
        peers[who].inject(&(!done.context).to_ne_bytes(), done.context)?;
    }
    // Message sent, answer received; answer sent.
    for (side, of_side, each) in [("initiators", ends, 2), ("peers", peers, 1)] {
        let by_name = places(of_side);
        let mut seen = vec![0; ENDS];
        for done in of_side[0].take(ENDS * each)? {
            let who = by_name.get(&done.endpoint).copied();
            check_eq!(who, Some(done.context as usize), "the endpoint of {done:?}");
            check_eq!(done.status, Status::Ok, "status of {done:?}");
            seen[done.context as usize] += 1;
        }
        check!(seen.iter().all(|seen| *seen == each), "{each} completions of each of the {side}");
    }
    let answers: Vec<u8> = (0..ENDS as u64).flat_map(|i| (!i).to_ne_bytes()).collect();
    check_bytes!(pong.bytes(..)?, answers, "the answers");
    Ok(())
}

pub(super) fn fan_in(rig: &Rig) -> Outcome {
    const ENDS: usize = 64;
    // Few, so that those of the beginning do not hide what comes then.
    const SENDS: usize = 8;
    const RECEIVES: usize = 16;
    let measured = rig.bulk(rig.count(ENDS * 200, ENDS * 10_000));
    let crowd = Crowd::new(rig, ENDS, depths(SENDS, RECEIVES))?;
    let Crowd { ends, peers } = &crowd;
    let sink = peers[0].buffer(ENDS * RECEIVES * 8)?;
    post_receives(peers, &sink, RECEIVES)?;
    let (enough, sent) = (AtomicBool::new(false), AtomicUsize::new(usize::MAX));
    // Each endpoint always has as much posted as it may: each message that gets through is followed by another.
    let flood = || -> Outcome {
        let by_name = places(ends);
        let message = |who: usize, i: u64| ((who as u64) << 32 | i).to_ne_bytes();
        for i in 0..SENDS as u64 {
            for (who, end) in ends.iter().enumerate() {
                end.inject(&message(who, i), i)?;
            }
        }
        let mut posted = [SENDS as u64; ENDS];
        let mut done = [0; ENDS];
        while done != posted {
            let one = ends[0].next()?;
            let Some(&who) = by_name.get(&one.endpoint) else {
                fail!("one of the ends", "{one:?}")
            };
            check_eq!((one.context, one.status), (done[who], Status::Ok), "a send of end {who}");
            done[who] += 1;
            if !enough.load(Ordering::Relaxed) {
                ends[who].inject(&message(who, posted[who]), posted[who])?;
                posted[who] += 1;
            }
        }
        sent.store(posted.iter().sum::<u64>() as usize, Ordering::Relaxed);
        Ok(())
    };
    let counts = thread::scope(|scope| -> Result<_, Failed> {
        let sender = scope.spawn(flood);
        let by_name = places(peers);
        let (mut got, mut counts, mut total) = ([0u64; ENDS], None, 0);
        let mut deadline = rig.deadline(Duration::from_secs(10));
        while total < sent.load(Ordering::Relaxed) {
            let Some(one) = peers[0].cq().poll_one()? else {
                check!(Instant::now() < deadline, "a message within 10 s, after {total}");
                // A sender that has failed says why.
                if sender.is_finished() && sent.load(Ordering::Relaxed) == usize::MAX {
                    break;
                }
                thread::yield_now();
                continue;
            };
            let Some(&who) = by_name.get(&one.endpoint) else { fail!("a peer", "{one:?}") };
            check_eq!((one.context, one.status), (got[who], Status::Ok), "a receive of peer {who}");
            let slot = slot(who, got[who], RECEIVES);
            let message: u64 = sink.get(slot.start)?;
            check_eq!(message, (who as u64) << 32 | got[who], "the next message of {who}");
            peers[who].recv(sink.slice(slot), got[who] + RECEIVES as u64)?;
            got[who] += 1;
            total += 1;
            if total == measured {
                enough.store(true, Ordering::Relaxed);
                counts = Some(got);
            }
            deadline = rig.deadline(Duration::from_secs(10));
        }
        joined(sender)?;
        check_eq!(total, sent.load(Ordering::Relaxed), "messages received of those that were sent");
        counts.ok_or_else(|| Failed::new(format!("{measured} messages"), total.to_string()))
    })?;
    let min = measured / ENDS / 8;
    for (who, count) in counts.into_iter().enumerate() {
        check!(count >= min as u64, "{min} of {measured} messages of end {who}, not {count}");
    }
    Ok(())
}
