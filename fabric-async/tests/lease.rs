//! Leases: who lends what for how long, and that nothing changes when they have ended.

#![cfg(not(miri))] // Miri has no sockets that sleep
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use common::{address, between, eventually, node, pair};
use fabric::Access;
use fabric_async::{
    Buffer, Connection, Error, LeaseEnd, LeasePolicy, Node, Refusal, RemoteLease, block_on,
};
use futures_util::FutureExt;
use futures_util::stream::{FuturesOrdered, StreamExt};

const LONG: Duration = Duration::from_secs(60);

fn filled(conn: &Connection, len: usize, byte: u8) -> Buffer {
    let mut buffer = conn.alloc(len).unwrap();
    buffer.fill(byte);
    buffer
}

fn lender(edit: impl FnOnce(&mut LeasePolicy)) -> Node {
    let mut policy = LeasePolicy::default();
    edit(&mut policy);
    node(|b| b.lend(policy))
}

#[test]
fn a_lease_is_used_and_given_back() {
    let (user, owner) = (node(|b| b), node(|b| b));
    block_on(async {
        let (a, b) = between(&user, &owner).await;
        let before = owner.pool().metrics();
        let remote = a.request_lease(4093, LONG).await.unwrap();
        assert_eq!((remote.len(), remote.access()), (4096, Access::REMOTE));
        assert!(remote.time_left() > LONG - Duration::from_secs(10));
        let read = a.read(filled(&a, 4096, 9), remote.at(0)).await.unwrap();
        assert!(read.iter().all(|byte| *byte == 0), "lent memory is zeroed");
        a.write(filled(&a, 100, 7), remote.at(8)).delivered().await.unwrap();
        assert_eq!(a.fetch_add(remote.at(0), 5).await.unwrap(), 0);

        let lent = b.local_lease(remote.id()).unwrap();
        assert_eq!((lent.len(), lent.get::<u64>(0).unwrap()), (4096, 5));
        lent.put(0, &6u64).unwrap();
        assert_eq!(a.fetch_add(remote.at(0), 1).await.unwrap(), 6);
        assert!(lent.read_at(4096, &mut [0]).is_err());
        drop(remote);
        eventually("the lease is given back", || !lent.is_active());
        assert!(b.local_lease(lent.id()).is_none());
        let buffer = lent.take().unwrap();
        assert_eq!((buffer[0], buffer[8], buffer[107], buffer[108]), (7, 7, 7, 0));
        assert!(lent.take().is_err() && lent.get::<u8>(0).is_err());
        drop(buffer);
        assert_eq!(owner.pool().metrics().in_use, before.in_use);
        // The connection has not minded any of it.
        a.send(filled(&a, 5, 1)).await.unwrap();
        b.recv().await.unwrap();
    });
}

#[test]
fn the_owners_policy_holds() {
    let owner = lender(|policy| {
        policy.max_bytes = 8192;
        policy.max_leases = 3;
        policy.max_duration = Duration::from_secs(5);
        policy.rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
    });
    let user = node(|b| b);
    block_on(async {
        let (a, _b) = between(&user, &owner).await;
        let short = Duration::from_secs(5);
        let refused = |result: Result<fabric_async::RemoteLease, Error>| match result {
            Err(Error::NotGranted(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(a.request_lease(8193, short).await), Refusal::TooMuch { max: 8192 });
        assert_eq!(
            refused(a.request_lease(usize::MAX, short).await),
            Refusal::TooMuch { max: 8192 }
        );
        assert_eq!(refused(a.request_lease(8, LONG).await), Refusal::TooLong { max: short });
        let atomic = a.request_lease_with(8, short, Access::REMOTE_ATOMIC).await;
        assert_eq!(refused(atomic), Refusal::Rights);
        let first = a.request_lease_with(4096, short, Access::REMOTE_READ).await.unwrap();
        assert_eq!(first.access(), Access::REMOTE_READ);
        let failed = a.write(filled(&a, 8, 1), first.at(0)).await.unwrap_err();
        assert!(matches!(failed.error, Error::Fabric(fabric::Error::InvalidArgument(_))));
        let second = a.request_lease(8, short).await.unwrap();
        assert_eq!(second.access(), Access::REMOTE_READ | Access::REMOTE_WRITE);
        let third = a.request_lease(8, short).await.unwrap();
        assert_eq!(refused(a.request_lease(8, short).await), Refusal::TooMany);
        drop(third);
        // What is given back can be asked for again.
        let mut again = a.request_lease(4088, short).await;
        while again.is_err() {
            again = a.request_lease(4088, short).await;
        }
        assert_eq!(refused(a.request_lease(8, short).await), Refusal::TooMuch { max: 8192 });
        assert!(matches!(
            second.renew(LONG).await,
            Err(Error::NotGranted(Refusal::TooLong { .. }))
        ));
    });
    let nothing = lender(|policy| policy.max_bytes = 0);
    let off = node(|b| b.leases(false));
    block_on(async {
        let (a, b) = between(&user, &nothing).await;
        let refused = a.request_lease(8, LONG).await;
        assert!(matches!(refused, Err(Error::NotGranted(Refusal::Nothing))));
        assert_eq!(b.request_lease(8, LONG).await.unwrap().len(), 8);
        let (a, b) = between(&user, &off).await;
        assert!(matches!(
            a.request_lease(8, LONG).await,
            Err(Error::NotGranted(Refusal::Disabled))
        ));
        assert!(matches!(b.next_lease().await, Err(Error::NotGranted(Refusal::Disabled))));
    });
}

#[test]
fn an_expired_lease_is_refused_here_and_unchanged_there() {
    let (user, owner) = (node(|b| b), node(|b| b));
    // A write that was let through here may come too late there, on a machine that has other things to do: once more.
    assert!((0..20).any(|_| expires_between_writes(&user, &owner)), "never refused here first");
}

/// Writes until the lease has expired; says whether this side knew that first.
fn expires_between_writes(user: &Node, owner: &Node) -> bool {
    block_on(async {
        let (a, b) = between(user, owner).await;
        let (time, began) = (Duration::from_secs(1), Instant::now());
        let remote = a.request_lease(4096, time).await.unwrap();
        let Some(lent) = b.local_lease(remote.id()) else { return false };
        let mut writes = 0u64;
        let end = loop {
            let mut buffer = a.alloc(4096).unwrap();
            buffer.view_all_mut::<u64>().unwrap().fill(writes + 1);
            match a.write(buffer, remote.at(0)).await {
                Ok(_) => writes += 1,
                Err(failed) => break failed.error,
            }
        };
        assert!(began.elapsed() >= time - Duration::from_millis(50));
        if matches!(end, Error::RemoteAccess) || writes == 0 {
            return false;
        }
        assert!(matches!(end, Error::LeaseEnded(LeaseEnd::Expired)), "{end}");
        assert_eq!(remote.time_left(), Duration::ZERO);
        eventually("the owner ends it too", || !lent.is_active());
        assert!(b.local_lease(remote.id()).is_none());
        // Refused here, it has harmed nothing.
        assert_eq!(a.request_lease(64, LONG).await.unwrap().len(), 64);
        let last = lent.get::<u64>(0).unwrap();
        assert!(last == writes, "{last} {writes}");
        true
    })
}

#[test]
fn writes_that_reach_an_ended_lease_are_a_remote_access() {
    const SLOTS: usize = 8;
    const WORDS: usize = 512;
    let (user, owner) = (node(|b| b), node(|b| b));
    block_on(async {
        let (a, b) = between(&user, &owner).await;
        let remote = a.request_lease(SLOTS * WORDS * 8, Duration::from_secs(2)).await.unwrap();
        let lent = b.local_lease(remote.id()).unwrap();
        // As if this side knew nothing of leases.
        let at = format!("{:?}", remote.at(0));
        assert!(at.starts_with("RemoteTarget(0 of"), "{at}");
        let forged = remote.descriptor();
        // A stream of writes, each slot's one behind the other: what each slot was written last, for good.
        let (mut value, mut accepted, mut stream) = (0u64, [0u64; SLOTS], FuturesOrdered::new());
        let (end, failed) = loop {
            while stream.len() < SLOTS {
                value += 1;
                let (slot, value) = (value as usize % SLOTS, value);
                let mut buffer = a.alloc(WORDS * 8).unwrap();
                buffer.view_all_mut::<u64>().unwrap().fill(value);
                let write = a.write(buffer, forged.at((slot * WORDS * 8) as u64));
                stream.push_back(write.map(move |outcome| (slot, value, outcome)));
            }
            match stream.next().await.unwrap() {
                (slot, value, Ok(_)) => accepted[slot] = value,
                (_, value, Err(failed)) => break (failed.error, value),
            }
        };
        assert!(matches!(end, Error::RemoteAccess), "{end}");
        while let Some((.., outcome)) = stream.next().await {
            let then = outcome.unwrap_err().error;
            assert!(matches!(then, Error::Failed(_) | Error::Disconnected(_)), "{then}");
        }
        // A write may be refused while the registration still goes.
        eventually("the lease is over", || !lent.is_active());
        let buffer = lent.take().unwrap();
        let words = buffer.view_all::<u64>().unwrap();
        for (slot, words) in words.chunks(WORDS).enumerate() {
            // The last write that was accepted; of the one during which the lease ended a first part may be there, as
            // the contract has it for operations that fail.
            let part = words.iter().take_while(|word| **word == failed).count();
            let good = words[part..].iter().all(|word| *word == accepted[slot]);
            assert!(good, "slot {slot}: {}, {failed}, {part}: {words:?}", accepted[slot]);
        }
        // No byte changes any more, although peers go on writing.
        let then = words.to_vec();
        for _ in 0..5 {
            let (c, _d) = between(&user, &owner).await;
            let late = c.write(filled(&c, 4096, 0xDD), forged.at(0)).await.unwrap_err();
            assert!(matches!(late.error, Error::RemoteAccess), "{late}");
            assert_eq!(words, then);
        }
    });
}

#[test]
fn renewals_keep_a_lease() {
    let (user, owner) = (node(|b| b), node(|b| b));
    block_on(async {
        let (a, b) = between(&user, &owner).await;
        let time = Duration::from_secs(4);
        let remote = a.request_lease(64, time).await.unwrap();
        let until = Instant::now() + 2 * time;
        while Instant::now() < until {
            remote.renew(time).await.unwrap();
            a.write(filled(&a, 64, 3), remote.at(0)).await.unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(b.local_lease(remote.id()).unwrap().is_active());
        remote.clone().release();
        assert!(matches!(remote.renew(time).await, Err(Error::LeaseEnded(LeaseEnd::Released))));
    });
}

#[test]
fn memory_lent_unasked_and_passed_on() {
    // No timer of a connection that was made wakes the owner's thread in time by chance.
    let owner = node(|b| b.connect_timeout(LONG));
    let (user, third) = (node(|b| b), node(|b| b));
    block_on(async {
        let (a, b) = between(&user, &owner).await;
        let lent = b.lend(filled(&b, 64, 4), LONG, Access::REMOTE_READ).unwrap();
        let remote = a.next_lease().await.unwrap();
        assert_eq!((remote.id(), remote.access()), (lent.id(), Access::REMOTE_READ));
        assert_eq!(*a.read(filled(&a, 64, 0), remote.at(0)).await.unwrap(), [4; 64]);

        let (to_third, c) = between(&user, &third).await;
        let (third_to_owner, _d) = between(&third, &owner).await;
        remote.pass_on(&to_third).await.unwrap();
        let passed = c.next_lease().await.unwrap();
        let buffer = third_to_owner.alloc(64).unwrap();
        assert_eq!(*third_to_owner.read(buffer, passed.at(0)).await.unwrap(), [4; 64]);
        assert!(passed.renew(LONG).await.is_err());
        let known = passed.descriptor();
        drop(passed);
        assert!(lent.is_active());

        // The owner takes it back, and the holder is notified.
        assert_eq!(*lent.take().unwrap(), [4; 64]);
        eventually("the holder is notified", || remote.end() == Some(LeaseEnd::Revoked));
        // The third notices by the failing access.
        let late = third_to_owner.read(third_to_owner.alloc(64).unwrap(), known.at(0)).await;
        assert!(matches!(late.unwrap_err().error, Error::RemoteAccess));
        owner.pool().trim();
        let failed = b.lend(filled(&b, 64, 1), LONG, Access::LOCAL_WRITE).unwrap_err();
        assert_eq!(*failed.buffer, [1; 64]);
    });
}

/// A lease ends as its owner renewed it last, whatever renewal is waited for first.
#[test]
fn the_last_renewal_is_the_one_that_counts() {
    let (user, owner) = (node(|b| b), node(|b| b));
    let (a, _b) = block_on(between(&user, &owner));
    let remote = block_on(a.request_lease(64, LONG)).unwrap();
    let (mut long, mut short) = (pin!(remote.renew(LONG)), pin!(remote.renew(LONG / 2)));
    let mut cx = Context::from_waker(Waker::noop());
    // Asked for in this order. An answer may be there at once.
    let asked = [long.as_mut().poll(&mut cx), short.as_mut().poll(&mut cx)];
    for (asked, renewal) in asked.into_iter().zip([&mut long, &mut short]).rev() {
        match asked {
            Poll::Ready(renewed) => renewed.unwrap(),
            Poll::Pending => block_on(renewal.as_mut()).unwrap(),
        }
    }
    assert!(remote.time_left() <= LONG / 2, "{:?}", remote.time_left());
}

/// However long the message takes that a lease was lent, or passed on, its holder believes it no longer than its lender.
#[test]
fn what_was_lent_unasked_ends_no_later_at_its_holder() {
    const TIME: Duration = Duration::from_secs(5);
    let busy = Duration::from_millis(200);
    // Its thread is busy with a request, and takes what comes after that later.
    let slow = || {
        node(|b| {
            b.decide_leases(move |_| {
                std::thread::sleep(busy);
                true
            })
        })
    };
    let ends = |remote: &RemoteLease| Instant::now() + remote.time_left();
    let (owner, user, third) = (node(|b| b), slow(), slow());
    block_on(async {
        let (a, b) = between(&user, &owner).await;
        let (to_third, c) = between(&user, &third).await;
        assert!(b.request_lease(8, LONG).now_or_never().is_none());
        let lent = b.lend(filled(&b, 64, 4), TIME, Access::REMOTE).unwrap();
        let until = Instant::now() + TIME;
        let remote = a.next_lease().await.unwrap();
        assert!(ends(&remote) <= until && ends(&remote) > until - TIME, "{:?}", remote.time_left());
        let region = remote.clone();
        assert!(to_third.request_lease(8, LONG).now_or_never().is_none());
        region.pass_on(&to_third).await.unwrap();
        let passed = c.next_lease().await.unwrap();
        assert!(ends(&passed) <= until && ends(&passed) > until - TIME, "{:?}", passed.time_left());
        drop(lent);
    });
}

#[test]
fn a_lease_that_was_passed_on_expires_for_all() {
    let (owner, user, third) = (node(|b| b), node(|b| b), node(|b| b));
    block_on(async {
        let (a, b) = between(&user, &owner).await;
        let (to_third, c) = between(&user, &third).await;
        let (third_to_owner, _d) = between(&third, &owner).await;
        let time = Duration::from_secs(5);
        let remote = a.request_lease(64, time).await.unwrap();
        let lent = b.local_lease(remote.id()).unwrap();
        remote.pass_on(&to_third).await.unwrap();
        let passed = c.next_lease().await.unwrap();
        assert!(passed.time_left() <= time);
        third_to_owner.write(filled(&third_to_owner, 64, 5), passed.at(0)).await.unwrap();
        eventually("it expires at the owner's", || !lent.is_active());
        let buffer = lent.take().unwrap();
        assert_eq!(*buffer, [5; 64]);
        // A holder that knows of the expiry fails locally, the other at the owner.
        eventually("and at the third's", || passed.time_left().is_zero());
        let here = third_to_owner.write(filled(&third_to_owner, 64, 6), passed.at(0)).await;
        assert!(matches!(here.unwrap_err().error, Error::LeaseEnded(LeaseEnd::Expired)));
        let forged = passed.descriptor().at(0);
        let there = third_to_owner.write(filled(&third_to_owner, 64, 6), forged).await;
        assert!(matches!(there.unwrap_err().error, Error::RemoteAccess));
        assert_eq!(*buffer, [5; 64]);
    });
}

#[test]
fn leases_end_with_their_connection() {
    let (user, owner) = (node(|b| b), node(|b| b));
    block_on(async {
        let (a, b) = between(&user, &owner).await;
        let remote = a.request_lease(64, LONG).await.unwrap();
        let other = b.request_lease(64, LONG).await.unwrap();
        let lent = b.local_lease(remote.id()).unwrap();
        drop(a);
        eventually("the owner has it back", || !lent.is_active());
        eventually("the holder knows", || other.end() == Some(LeaseEnd::Disconnected));
        assert!(matches!(b.request_lease(8, LONG).await, Err(Error::Disconnected(_))));
        assert!(matches!(b.next_lease().await, Err(Error::Disconnected(_))));
    });
}

#[test]
fn requests_at_once_share_the_policy() {
    let owner = lender(|policy| (policy.max_bytes, policy.max_leases) = (64 << 10, 5));
    let user = node(|b| b);
    let (a, _b) = block_on(between(&user, &owner));
    for (len, max) in [(16 << 10, 4), (8, 5)] {
        let ask = || block_on(a.request_lease(len, LONG)).ok();
        let granted: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(granted.len(), max);
        drop(granted);
        eventually("all of it can be lent again", || {
            block_on(a.request_lease(64 << 10, LONG)).is_ok()
        });
        eventually("and is given back", || {
            owner.pool().metrics().in_use == user.pool().metrics().in_use
        });
    }
}

#[test]
fn what_is_lent_while_the_connection_ends_comes_back() {
    let (user, owner) = (node(|b| b), node(|b| b));
    for round in 0..20 {
        let (a, b) = block_on(between(&user, &owner));
        std::thread::scope(|scope| {
            scope.spawn(|| while block_on(a.request_lease(1 << 20, LONG)).is_ok() {});
            scope.spawn(|| {
                while let Ok(lent) = b.lend(filled(&b, 4096, 1), LONG, Access::REMOTE) {
                    drop(lent);
                }
            });
            std::thread::sleep(Duration::from_micros(round * 100));
            if round % 2 == 0 { a.close() } else { b.close() }
        });
        drop((a, b));
        for node in [&user, &owner] {
            eventually("all memory is back", || node.pool().metrics().in_use == 0);
        }
    }
}

#[test]
fn requests_that_nobody_waits_for_leave_nothing() {
    let node = node(|b| b);
    block_on(async {
        let (a, b) = pair(&node).await;
        let before = node.pool().metrics().in_use;
        for _ in 0..100 {
            let mut request = Box::pin(a.request_lease(1 << 20, LONG));
            std::future::poll_fn(|cx| {
                let _ = request.as_mut().poll(cx);
                std::task::Poll::Ready(())
            })
            .await;
        }
        let mut last = a.request_lease(64, LONG).await;
        while last.is_err() {
            last = a.request_lease(64, LONG).await;
        }
        drop(last);
        eventually("all is given back", || node.pool().metrics().in_use == before);
        a.send(filled(&a, 5, 1)).await.unwrap();
        b.recv().await.unwrap();
    });
}

#[test]
fn a_peer_that_talks_nonsense_is_cut_off() {
    let node = node(|b| b);
    let listener = block_on(node.listen(address())).unwrap();
    let domain = fabric::Domain::open(&fabric::Hints::default()).unwrap();
    let queue = domain.completion_queue(1024).unwrap();
    let hello = |kind: u8| {
        let mut bytes = *b"fA\x01\x02\x00\x10\x00\x00\x07\x07\x07\x07\x07\x07\x07\x07";
        bytes[3] |= kind;
        bytes
    };
    let connect = |hello: &[u8]| {
        let end = domain.endpoint().build(&queue).unwrap();
        end.connect(listener.local_addr(), hello).unwrap();
        end
    };
    let patience = Some(LONG);
    // No greeting at all, and leases for a connection that is not there.
    for bad in [&b"who"[..], &hello(1), &[b'f'; 16]] {
        let outcome = connect(bad).wait_connected(patience);
        assert!(matches!(outcome, Err(fabric::Error::Rejected(_))), "{outcome:?}");
    }
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| block_on(listener.accept()).unwrap());
        let user = connect(&hello(0));
        user.wait_connected(patience).unwrap();
        let control = connect(&hello(1));
        control.wait_connected(patience).unwrap();
        let conn = accepting.join().unwrap();
        control.inject(b"\x2A nonsense", 1).unwrap();
        control.wait_disconnected(patience).unwrap();
        // The application's connection goes on; leases are over.
        let error = block_on(conn.request_lease(8, LONG)).unwrap_err();
        assert!(matches!(error, Error::Disconnected(_)), "{error}");
        user.inject(b"fine", 1).unwrap();
        assert_eq!(&*block_on(conn.recv()).unwrap(), b"fine");
    });
}
